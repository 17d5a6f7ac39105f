"""Carries out a plan in the three substeps of HydRA (section III.B), and loses nothing on the way.

1. **Divert** the affected pairs to the electrical network, and **drain** the circuits that move:
   a barrier confirms tables, not the packets still in flight.
2. **Retag** ToR ports, **push** rules (inactive under the divert rules) and **move mirrors**, all
   devices in parallel; then **gate** each new path: carrier at both ToRs, probes both ways. A VLAN
   that other pairs use leaves a port before the port goes dark, and joins one that has light; that
   of a new path leaves the ports of circuits that got no light before anything is sent on it. A
   ToR that forgets an address floods, and frames flooded into the dark are frames lost.
3. **Activate** paths that passed, by removing their divert rules. Others stay electrical.

The executor decides; it does nothing itself. It yields batches of commands and is sent their
outcomes (see :mod:`hydra.reconfiguration.commands`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from hydra.failures import Failure, FailureKind
from hydra.journal_format import INTENDED, state_record
from hydra.lifecycle import ReconfigurationState
from hydra.model import Fabric, NetworkState
from hydra.reconfiguration.activating import activate
from hydra.reconfiguration.beside import Touched, left_to, moved_on
from hydra.reconfiguration.commands import Batch, Pause, Record, Steps
from hydra.reconfiguration.diverting import divert, drain, go_undiverted
from hydra.reconfiguration.gate import gate
from hydra.reconfiguration.moving import move
from hydra.reconfiguration.plan import Plan, diff, pair_named
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.steering import rules_to_push

STEPS: Final = frozenset(
    {
        "activate", "close", "divert", "drain", "mirrors", "move", "push", "relay", "retag", "tag",
        "tidy", "untag",
    }
)  # fmt: skip
"""Steps of a reconfiguration that may fail, besides those of the gate (``GATE``)."""
_LETS_OTHERS_IN: Final = frozenset(
    {
        ReconfigurationState.DIVERTING,
        ReconfigurationState.DRAINING,
        ReconfigurationState.MOVING,
        ReconfigurationState.GATING,
    }
)
"""States after an intent and before the result is saved: either tells of the state as a whole."""


@dataclass(slots=True, eq=False)
class Execution(Run):
    """Carries out one plan."""

    _touched: Touched | None = None

    @property
    def lets_others_in(self) -> bool:
        """True if a change that touches nothing of this one may be made before the next step.

        Rules of emulated circuits are removed by epoch, whoever put them there, and rings move as
        wholes: there, changes have their turn.
        """
        return self._may_have_others_beside and self.state in _LETS_OTHERS_IN

    @property
    def lets_others_in_meanwhile(self) -> bool:
        """The same while it does nothing but wait. Once it has told switches to activate, it may
        wait for slow ones; before that, what has been probed is to be acted upon at once.
        """
        states = _LETS_OTHERS_IN | {ReconfigurationState.ACTIVATING}
        return self._may_have_others_beside and self.state in states

    @property
    def _may_have_others_beside(self) -> bool:
        return self.hitless and not (self.policy.emulated_rules or self.fabric.one_way)

    @property
    def touched(self) -> Touched:
        """All that it may have altered or alters yet, and counts on."""
        if self._touched is None:
            self._touched = Touched.by(self.fabric, self.planned)
        return self._touched

    def hear_of_change(self, before: NetworkState, after: NetworkState) -> None:
        """Take it for granted that a change beside this one has led from one state to the other."""
        old, plan = self.plan, self.plan
        self.plan = replace(
            plan,
            current=moved_on(plan.current, before, after),
            target=moved_on(plan.target, before, after),
        )
        self.wanted = moved_on(self.wanted, before, after)
        self.result = moved_on(self.result, before, after)
        if self.pushed is not None and self.pushed.plan is old:  # no rule of it is another now
            self.pushed = replace(self.pushed, plan=self.plan)

    @property
    def may_leave(self) -> bool:
        """True if it may leave some of what it touches to another: all that it has done so far is
        to divert pairs, and it waits for circuits to drain.
        """
        return (
            self.gives_way and self.lets_others_in and self.state is ReconfigurationState.DRAINING
        )

    def leaving_to(self, theirs: Touched) -> Plan | None:
        """The plan that leaves to another change all that this touches; None if there is none."""
        if not self.may_leave:
            return None
        target = left_to(theirs, self.plan.current, self.plan.target)
        plan = diff(self.fabric, self.plan.current, target, self.order_of)
        return None if Touched.by(self.fabric, plan).meets(theirs) else plan

    def leave_to(self, theirs: Touched, plan: Plan) -> None:
        """Go on by :meth:`leaving_to`'s plan. Pairs that are diverted and another's are that
        one's to activate from now on.
        """
        named = ", ".join(pair_named(self.fabric, one) for one in sorted(theirs.pairs))
        reason = f"gives way to another change, of {named}"
        self.obstacles.append(Failure("drain", named, FailureKind.HELD_UP, reason))
        self._touched = Touched.by(self.fabric, plan) | self.touched.but_for(theirs)
        self.left = theirs if self.left is None else self.left | theirs
        self.moving -= theirs.pairs
        self.plan = plan
        self.wanted = plan.target
        if self.draining is not None:
            self.draining.let_go(theirs.pairs, theirs.ports)

    def _intent(self, current: NetworkState, target: NetworkState) -> Record:
        """The intent, with those of the changes that this one is beside: after a death, the last
        entry of the journal has to tell of all.
        """
        return intent(self.fabric, current, target, self.beside)

    def run(self) -> Steps:
        """Drive to the end with ``send``; afterwards read the attributes, and save the result.

        Until then, the journal's last entry is the intent.
        """
        if self.plan.empty:
            self.result = self.plan.target
            self.enter(ReconfigurationState.DONE)
            return
        yield Batch("intent", (self._intent(self.plan.current, self.plan.target),))
        rules_to_push(self)  # before anything waits for them
        if self.hitless:
            self.enter(ReconfigurationState.DIVERTING)
            yield from divert(self)
            self.enter(ReconfigurationState.DRAINING)
            yield from drain(self)
        else:
            go_undiverted(self)
        self.enter(ReconfigurationState.MOVING)
        yield from move(self)
        self.enter(ReconfigurationState.GATING)
        yield from gate(self)
        self.enter(ReconfigurationState.ACTIVATING)
        yield from activate(self)
        partial = self.failures or self.obstacles
        self.enter(ReconfigurationState.PARTIAL if partial else ReconfigurationState.DONE)


def intent(
    fabric: Fabric, current: NetworkState, target: NetworkState, others: Collection[Run]
) -> Record:
    """The intent to get from one state to the other, with what ``others`` are about to make."""
    for other in others:
        target = moved_on(target, other.plan.current, other.wanted)
    details = {
        "current": state_record(fabric, current),
        "target": state_record(fabric, target),
    }
    return Record(INTENDED, details)


def rest(seconds: float) -> Steps:
    """Let VLAN-IDs rest before a plan that takes them begins."""
    yield Batch("rest", (Pause(seconds),))
