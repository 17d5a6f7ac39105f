"""Changes under way at the same time: the parts touched by each, and when a new change may begin.

A new change may begin beside the changes under way if the new change touches none of their pairs,
ports or VLAN-IDs, if the state of its devices is known, and if its VLAN-IDs have rested. A change
whose circuits drain may leave some pairs and ports to a new change
(:meth:`Execution.plan_without`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from hydra.model import Fabric, Path
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Plan
from hydra.reconfiguration.touched import Touched


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The changes under way, in the order of their start."""

    fabric: Fabric
    under_way: Sequence[Execution]

    @property
    def let_others_in(self) -> bool:
        """True if a change may begin beside the changes under way; False without any under way."""
        return bool(self.under_way) and all(
            execution.admits_other_changes for execution in self.under_way
        )

    @property
    def touched(self) -> Touched:
        """The parts of the network touched by the changes."""
        return reduce(or_, (execution.touched for execution in self.under_way), Touched())

    def touched_beside(self, wanted: Touched) -> Touched | None:
        """The parts that the changes touch once ``wanted`` is left to a new change; None if a
        change under way has to go on first.
        """
        touched = Touched()
        for execution in self.under_way:
            part = execution.touched
            if part.meets(wanted):
                plan = execution.plan_without(wanted)
                if plan is None:
                    return None
                part = part.but_for(wanted) | Touched.by(self.fabric, plan)
            touched |= part
        return touched

    def leaves(self, wanted: Touched, reserved: Collection[Path | None]) -> bool:
        """True if the changes can leave ``wanted`` to a new change without the loss of a
        ``reserved`` path.
        """
        for execution in self.under_way:
            if not execution.touched.meets(wanted):
                continue
            plan = execution.plan_without(wanted)
            if plan is None or execution.touched.but_for(wanted).meets(wanted):
                return False
            dropped = set(execution.plan.target.topology.paths).difference(
                plan.target.topology.paths
            )
            if not dropped.isdisjoint(reserved):
                return False
        return True

    def unknown(self, plan: Plan, unconfirmed: Collection[str]) -> Sequence[str]:
        """Sorted names of a plan's devices in an unknown state: ``unconfirmed`` devices, and
        devices with an unconfirmed step of a change under way.
        """
        fabric, uncertain = self.fabric, set(unconfirmed)
        for execution in self.under_way:
            uncertain |= {fabric.planes[plane].name for plane in execution.uncertain_planes}
            uncertain |= execution.unconfirmed
        touched = Touched.by(fabric, plan)
        names = {fabric.planes[circuit.plane].name for circuit in plan.connect | plan.disconnect}
        names |= {fabric.racks[fabric.ports[end].rack].name for end in touched.ports}
        return sorted(names & uncertain)

    def leave(self, wanted: Touched) -> Sequence[int] | None:
        """Leave ``wanted`` to a new change that begins now.

        Returns the number of waiting pairs of each change that leaves parts. Returns None, with
        nothing left, if a change cannot leave ``wanted``.
        """
        plans = {
            execution: execution.plan_without(wanted)
            for execution in self.under_way
            if execution.touched.meets(wanted)
        }
        waiting = []
        for execution, plan in plans.items():
            if plan is None:
                return None
            waiting.append(len(execution.plan.affected - plan.affected))
        for execution, plan in plans.items():
            if plan is not None:
                execution.cede(wanted, plan)
        return waiting
