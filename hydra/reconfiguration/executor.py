"""Carries out a plan in the three substeps of HydRA (section III.B) without losing a frame.

1. **Divert** the affected pairs to the electrical network, and **drain** the circuits that move: a
   barrier confirms tables, not the packets still in flight.
2. **Retag** ToR ports, **push** rules (inactive under the divert rules) and **move mirrors**, all
   devices in parallel; then **gate** each new path: carrier at both ToRs, probes both ways. A ToR
   that forgets an address floods, and frames flooded into a dark port are lost. So a VLAN that
   other pairs use leaves a port before the port goes dark, and joins a port that has light. Before
   a frame is sent on a new path, the path's VLAN leaves the ports of circuits that got no light.
3. **Activate** paths that passed, by removing their divert rules. Other paths stay electrical.

If all new paths of a plan fit beside the old paths, no pair needs to leave the light:
:mod:`hydra.reconfiguration.make_before_break` carries out such a plan.

The executor only decides: :class:`Execution` yields batches of commands and is sent their outcomes
(see :mod:`hydra.reconfiguration.commands`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from hydra.failures import Failure, FailureKind
from hydra.journal_format import INTENDED, state_record
from hydra.lifecycle import ReconfigurationState
from hydra.model import Fabric, NetworkState
from hydra.reconfiguration.commands import Batch, Pause, Record, Steps
from hydra.reconfiguration.plan import Plan, diff, pair_named
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.substeps import OWN_CYCLE, Cycle
from hydra.reconfiguration.touched import Touched, rebased, target_without

STEPS: Final = frozenset(
    {
        "activate", "close", "divert", "drain", "isolate", "mirrors", "move", "push", "relay",
        "retag", "shift", "tag", "tidy", "untag",
    }
)  # fmt: skip
"""Steps that may fail in a reconfiguration, besides the steps of the gate (``GATE``)."""
_LETS_OTHERS_IN: Final = frozenset(
    {
        ReconfigurationState.MAKING,
        ReconfigurationState.SHIFTING,
        ReconfigurationState.EMPTYING,
        ReconfigurationState.BREAKING,
        ReconfigurationState.DIVERTING,
        ReconfigurationState.DRAINING,
        ReconfigurationState.MOVING,
        ReconfigurationState.GATING,
        ReconfigurationState.ACTIVATING,
    }
)
"""States between the intent and the saved result: both describe the whole state."""


@dataclass(slots=True, eq=False, kw_only=True)
class Execution(Run):
    cycle: Cycle = OWN_CYCLE
    claims: Touched = field(default_factory=Touched)
    """Parts touched by the other courses of the same change."""
    _touched: Touched | None = None

    @property
    def admits_other_changes(self) -> bool:
        """True if a disjoint change may begin beside the execution.

        False on one-way fabrics: a ring moves as a whole, so changes of rings take turns.
        """
        alone = self.fabric.one_way or not self.cycle.others_beside
        return not alone and self.state in _LETS_OTHERS_IN

    @property
    def touched(self) -> Touched:
        """Parts of the network that the execution may have altered, may alter, or relies on."""
        if self._touched is None:
            self._touched = Touched.by(self.fabric, self.planned) | self.claims
        return self._touched

    def rebase_on(self, before: NetworkState, after: NetworkState) -> None:
        """Rebase on ``after``: a change beside the execution led from ``before`` to ``after``."""
        old, plan = self.plan, self.plan
        self.plan = replace(
            plan,
            current=rebased(plan.current, before, after),
            target=rebased(plan.target, before, after),
        )
        self.began = rebased(self.began, before, after)
        self.wanted = rebased(self.wanted, before, after)
        self.result = rebased(self.result, before, after)
        if self.pushed is not None and self.pushed.plan is old:  # the pushed rules stay the same
            self.pushed = replace(self.pushed, plan=self.plan)

    @property
    def may_cede(self) -> bool:
        """True if the execution may leave some pairs and ports to another change: pairs are
        diverted, circuits drain, and nothing else has been done yet.
        """
        return (
            self.gives_way
            and self.admits_other_changes
            and self.state is ReconfigurationState.DRAINING
        )

    def plan_without(self, excluded: Touched) -> Plan | None:
        """The plan without the parts of ``excluded``, another change; None if impossible."""
        if not self.may_cede:
            return None
        target = target_without(excluded, self.plan.current, self.plan.target)
        plan = diff(self.fabric, self.plan.current, target, self.order_of)
        return None if Touched.by(self.fabric, plan).meets(excluded) else plan

    def cede(self, excluded: Touched, plan: Plan) -> None:
        """Go on with ``plan``, from :meth:`plan_without`. The other change now activates the
        diverted pairs of ``excluded``.
        """
        named = ", ".join(pair_named(self.fabric, pair) for pair in sorted(excluded.pairs))
        reason = f"gives way to another change, of {named}"
        self.obstacles.append(Failure("drain", named, FailureKind.HELD_UP, reason))
        self._touched = Touched.by(self.fabric, plan) | self.touched.but_for(excluded)
        self.ceded = excluded if self.ceded is None else self.ceded | excluded
        self.moving -= excluded.pairs
        self.plan = plan
        self.wanted = plan.target
        if self.draining is not None:
            self.draining.let_go(excluded.pairs, excluded.ports)

    def _intent(self, current: NetworkState, target: NetworkState) -> Record:
        """The intent, merged with the intents of the changes beside this execution: after a crash,
        the journal's last entry has to describe all changes.
        """
        return intent(self.fabric, current, target, self.beside)

    def run(self) -> Steps:
        """Run the plan to the end with ``send``; afterwards read the attributes, and save the
        result.

        Until the result is saved, the journal's last entry is the intent.
        """
        if self.plan.empty:
            self.result = self.plan.target
            self.enter(ReconfigurationState.DONE)
            return
        yield Batch("intent", (self._intent(self.plan.current, self.plan.target),))
        yield from self.cycle.in_light(self) if self.in_light else self.cycle.diverted(self)
        partial = self.failures or self.obstacles
        self.enter(ReconfigurationState.PARTIAL if partial else ReconfigurationState.DONE)


def intent(
    fabric: Fabric, current: NetworkState, target: NetworkState, others: Collection[Run]
) -> Record:
    """The intent to go from ``current`` to ``target``, merged with the targets of other changes."""
    for other in others:
        target = rebased(target, other.began, other.wanted)
    details = {
        "current": state_record(fabric, current),
        "target": state_record(fabric, target),
    }
    return Record(INTENDED, details)


def rest(seconds: float) -> Steps:
    """Let VLAN-IDs rest before a plan that takes them begins."""
    yield Batch("rest", (Pause(seconds),))
