"""Changes under way at a time: what they touch, and when another may be made beside them.

A change may be made beside others if it touches no pair, port or VLAN-ID of theirs, if what its
devices have is known, and if its VLAN-IDs have rested. A change that only waits for its circuits to
drain may leave some of what it touches (:meth:`Execution.leaving_to`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from hydra.model import Fabric, Path
from hydra.reconfiguration.beside import Touched
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Plan

FOR_OTHERS_S: Final = 1.0
"""Time for which a change stands still for others, its pairs diverted; what has begun is finished.
A change that keeps to the pace of slow switches does so for as long as it has been at work, if that
is more: with whatever others want, it takes twice its time at most, and the last of them.
"""


@dataclass(slots=True)
class Standstill:
    """Time for which a change has stood still for others, and would have gone on without them.
    While a change waits anyway, it does not stand still.
    """

    began_s: float
    for_others_s: float = 0.0

    def may_last(self, execution: Execution, now_s: float) -> bool:
        """True if others may have more of the change's time."""
        most_s = FOR_OTHERS_S
        if execution.slow:
            most_s = max(most_s, now_s - self.began_s - self.for_others_s)
        return self.for_others_s < most_s


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The changes under way, each beside those before it."""

    fabric: Fabric
    under_way: Sequence[Execution]

    @property
    def touched(self) -> Touched:
        """What the changes touch."""
        return reduce(or_, (one.touched for one in self.under_way), Touched())

    def touched_beside(self, wanted: Touched) -> Touched | None:
        """What the changes touch once they have left ``wanted`` to another; None if they have to go
        on first.
        """
        touched = Touched()
        for one in self.under_way:
            mine = one.touched
            if mine.meets(wanted):
                plan = one.leaving_to(wanted)
                if plan is None:
                    return None
                mine = mine.but_for(wanted) | Touched.by(self.fabric, plan)
            touched |= mine
        return touched

    def leaves(self, wanted: Touched, reserved: Collection[Path | None]) -> bool:
        """True if the changes can leave ``wanted`` to another, without the loss of a ``reserved``
        path.
        """
        for one in self.under_way:
            if not one.touched.meets(wanted):
                continue
            plan = one.leaving_to(wanted)
            if plan is None or one.touched.but_for(wanted).meets(wanted):
                return False
            dropped = set(one.plan.target.topology.paths).difference(plan.target.topology.paths)
            if not dropped.isdisjoint(reserved):
                return False
        return True

    def unknown(self, plan: Plan, unconfirmed: Collection[str]) -> Sequence[str]:
        """Names of devices that a plan needs, and of which it is not known what they have: those
        ``unconfirmed``, and those that did not confirm to a change under way.
        """
        fabric, uncertain = self.fabric, set(unconfirmed)
        for one in self.under_way:
            uncertain |= {fabric.planes[plane].name for plane in one.uncertain_planes}
            uncertain |= one.unconfirmed
        touched = Touched.by(fabric, plan)
        names = {fabric.planes[circuit.plane].name for circuit in plan.connect | plan.disconnect}
        names |= {fabric.racks[fabric.ports[end].rack].name for end in touched.ports}
        return sorted(names & uncertain)

    def leave(self, wanted: Touched) -> Sequence[int] | None:
        """Have the changes leave ``wanted`` to another that begins now; the number of pairs that
        wait on in each that does. None, and nothing is left, if one can't.
        """
        plans = {one: one.leaving_to(wanted) for one in self.under_way if one.touched.meets(wanted)}
        waiting = []
        for one, plan in plans.items():
            if plan is None:
                return None
            waiting.append(len(one.plan.affected - plan.affected))
        for one, plan in plans.items():
            if plan is not None:
                one.leave_to(wanted, plan)
        return waiting
