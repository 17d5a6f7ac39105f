"""The life cycle of a VLAN-ID (or a label, for ToRs that forward by label): allocation, use, rest.

::

    free ── a path takes the ID ──▶ in use ── its last path loses it ──▶ at rest ──▶ free

The paths of a state have the IDs *in use*. The last change freed the IDs *at rest*: switches may
still remember addresses there. The next change takes IDs at rest only if free IDs do not suffice,
and waits until each ID has rested long enough (:class:`RestClock`). *Free* IDs are taken in order:
never used first, then longest unused. A *closed* ID belongs to another change under way: no new
path takes a closed ID, even if IDs are scarce.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Generic, NewType, TypeVar

VlanId = NewType("VlanId", int)
_PathT = TypeVar("_PathT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class VlanRange:
    first: VlanId
    last: VlanId

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, vlan: object) -> bool:
        return isinstance(vlan, int) and self.first <= vlan <= self.last


@dataclass(frozen=True, slots=True)
class VlanPool:
    """State of the IDs apart from use by paths; each change makes a new pool."""

    resting: frozenset[VlanId] = frozenset()
    """IDs at rest. During planning, also IDs in use that no new path should join."""
    freed: tuple[VlanId, ...] = ()
    """IDs freed by paths, longest ago first."""
    closed: frozenset[VlanId] = frozenset()
    """IDs at rest that no new path may take. Only for planning: no result of a change has closed
    IDs.
    """

    # --- allocation ------------------------------------------------------------------------------

    def in_turn(self, vlans: VlanRange) -> list[VlanId]:
        """The IDs of a range in allocation order, including IDs in use or at rest."""
        last = len(self.freed) + 1
        order = dict.fromkeys(self.resting, last)  # just now, if an aborted change tried the IDs
        order |= {vlan: place for place, vlan in enumerate(self.freed, start=1)}
        ids = [VlanId(vlan) for vlan in range(vlans.first, vlans.last + 1)]
        waited = sorted((vlan for vlan in ids if vlan in order), key=order.__getitem__)
        return [vlan for vlan in ids if vlan not in order] + waited

    def free(self, vlans: VlanRange, in_use: AbstractSet[VlanId]) -> list[VlanId]:
        """Free IDs of a range in allocation order."""
        barred = in_use | self.resting
        return [vlan for vlan in self.in_turn(vlans) if vlan not in barred]

    def spare(self, in_use: Iterable[VlanId]) -> frozenset[VlanId]:
        """IDs at rest that new paths may take once all free IDs are taken."""
        return self.resting.difference(self.closed, in_use)

    def at_rest(self, vlans: VlanRange, in_use: Iterable[VlanId]) -> list[VlanId]:
        """The :meth:`spare` IDs of a range in allocation order."""
        spare = self.spare(in_use)
        return [vlan for vlan in self.in_turn(vlans) if vlan in spare]

    def assigned(
        self, paths: Iterable[_PathT], vlans: VlanRange, in_use: AbstractSet[VlanId]
    ) -> dict[_PathT, VlanId]:
        """A free ID for each of ``paths``; without an ID, the last paths if IDs are too few."""
        return dict(zip(paths, self.free(vlans, in_use), strict=False))

    def abounds(self, vlans: VlanRange, in_use: AbstractSet[VlanId]) -> bool:
        """True if at least half of the IDs of a range are free."""
        return 2 * len(in_use | self.resting) <= len(vlans)

    # --- changes ---------------------------------------------------------------------------------

    def after(
        self,
        in_use: AbstractSet[VlanId],
        *,
        rests: Iterable[VlanId],
        lost: Iterable[VlanId],
        taken: Collection[VlanId],
    ) -> VlanPool:
        """The pool after a change that leaves ``in_use``; other IDs of ``rests`` are at rest.

        Through the change, paths have lost the IDs in ``lost`` and have taken the IDs in ``taken``.
        """
        return VlanPool(frozenset(rests) - in_use, self._then_freed(lost, taken))

    def put_last(self, lost: Iterable[VlanId]) -> VlanPool:
        """The pool with the IDs lost by paths at the end of the allocation order."""
        return VlanPool(self.resting, self._then_freed(lost, ()), self.closed)

    def used(self, in_use: Iterable[VlanId]) -> VlanPool:
        """The pool with ``in_use`` removed from the IDs at rest."""
        return VlanPool(self.resting.difference(in_use), self.freed)

    def given_up(self, lost: AbstractSet[VlanId]) -> VlanPool:
        """The pool with the IDs in ``lost`` at rest, and at the end of the allocation order."""
        return self.put_last(lost).rested(lost) if lost else self

    def rested(self, vlans: Iterable[VlanId]) -> VlanPool:
        """The pool with ``vlans`` at rest, too: a path may have used the IDs until now."""
        return VlanPool(self.resting.union(vlans), self.freed)

    def barred(self, vlans: Iterable[VlanId]) -> VlanPool:
        """The pool for planning without new paths on ``vlans``, if free IDs suffice."""
        return VlanPool(self.resting.union(vlans), self.freed, self.closed)

    def shared(self, reserved: frozenset[VlanId], in_use: Iterable[VlanId]) -> VlanPool:
        """The pool of a state that takes turns with other states: ``reserved`` IDs rest while the
        state does not use the IDs.
        """
        return VlanPool(reserved.difference(in_use), self.freed)

    def closed_to(self, vlans: Collection[VlanId]) -> VlanPool:
        """The pool for planning beside changes under way that own ``vlans``."""
        return VlanPool(self.resting.union(vlans), self.freed, self.closed.union(vlans))

    def _then_freed(self, lost: Iterable[VlanId], taken: Collection[VlanId]) -> tuple[VlanId, ...]:
        now = {*lost, *self.resting.difference(self.freed)}.difference(taken)
        before = (vlan for vlan in self.freed if vlan not in now and vlan not in taken)
        return (*before, *sorted(now))


EMPTY_POOL = VlanPool()


def taken_between(
    before: Mapping[_PathT, VlanId], after: Mapping[_PathT, VlanId]
) -> dict[VlanId, set[_PathT]]:
    """IDs with the paths that begin to use them between ``before`` and ``after``.

    With swapped arguments: IDs with the paths that lose them.
    """
    changed: dict[VlanId, set[_PathT]] = {}
    for path, vlan in after.items():
        if before.get(path) != vlan:
            changed.setdefault(vlan, set()).add(path)
    return changed


class RestClock(Generic[_PathT]):
    """The time and the paths of the last loss of each ID, in seconds of any monotonic clock."""

    def __init__(self, resting: Iterable[VlanId] = (), now_s: float = 0.0) -> None:
        """``resting``: IDs at rest from ``now_s`` on, after unknown paths."""
        self._lost: dict[VlanId, tuple[float, AbstractSet[_PathT]]] = {
            vlan: (now_s, frozenset()) for vlan in resting
        }

    def lose(
        self,
        pool: VlanPool,
        *,
        before: Mapping[_PathT, VlanId],
        after: Mapping[_PathT, VlanId],
        now_s: float,
    ) -> VlanPool:
        """Note that paths have the IDs in ``after`` from now on; return the pool without the lost
        IDs at the front of the allocation order.
        """
        lost = taken_between(after, before)
        self._lost |= {vlan: (now_s, paths) for vlan, paths in lost.items()}
        return pool.put_last(lost) if lost else pool

    def wait_s(
        self,
        *,
        before: Mapping[_PathT, VlanId],
        after: Mapping[_PathT, VlanId],
        joins: bool,
        rest_s: float,
        now_s: float,
    ) -> float:
        """Seconds until every ID taken between ``before`` and ``after`` has rested for ``rest_s``.

        An ID that returns to paths that lost the ID needs no rest, and neither does an ID in use,
        if ``joins`` (paths may join an ID in use).
        """
        joined = before.values() if joins else ()
        lost_s = [
            self._lost[vlan][0]
            for vlan, paths in taken_between(before, after).items()
            if vlan in self._lost and vlan not in joined and not paths <= self._lost[vlan][1]
        ]
        return max(0.0, max(lost_s, default=float("-inf")) + rest_s - now_s)
