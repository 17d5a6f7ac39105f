"""The order of substeps in which a plan is carried out."""

from __future__ import annotations

from typing import Final

from hydra.lifecycle import ReconfigurationState
from hydra.reconfiguration.activating import activate
from hydra.reconfiguration.commands import Steps
from hydra.reconfiguration.diverting import divert, drain
from hydra.reconfiguration.gate import announce, gate
from hydra.reconfiguration.make_before_break import make_before_break
from hydra.reconfiguration.moving import move
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.steering import rules_to_push


class Cycle:
    """The controller's own order. Experiments inject subclasses with other orders."""

    others_beside: bool = True
    """True if other changes may be made between the steps of a change."""

    def in_light(self, run: Run) -> Steps:
        """Carry out a plan whose pairs all go from circuit to circuit."""
        yield from make_before_break(run)

    def diverted(self, run: Run) -> Steps:
        """Carry out a plan in HydRA's three substeps, with drain and gate (section III.B)."""
        rules_to_push(run)  # before anything waits for the rules
        run.plan.make_moves()  # while traffic still has its circuits
        run.enter(ReconfigurationState.DIVERTING)
        yield from divert(run)
        run.enter(ReconfigurationState.DRAINING)
        yield from drain(run)
        run.enter(ReconfigurationState.MOVING)
        yield from move(run)
        run.enter(ReconfigurationState.GATING)
        yield from gate(run)
        run.enter(ReconfigurationState.ACTIVATING)
        yield from activate(run)
        yield from announce(run, "relearn", run.result)


OWN_CYCLE: Final = Cycle()
