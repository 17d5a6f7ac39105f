"""Bounds changes of meters to the bursts that circuits can bear.

A meter lets its rate pass, and once the burst in its bucket. Open vSwitch fills the bucket at each
OFPMC_MODIFY, even without a change of rate (``findings/ovs_meter_refill.sh``). A meter changed each
second therefore passes its rate and a burst each second, which the sum of the rates does not show.
A link therefore has an account: each change is charged with its burst, and a small part of the
link's rate pays the debt off. Meters on a link in debt are left unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from hydra.sharing.policing import Aggregate, Link

PART: Final = 0.01
"""Part of a link's rate for refilled bursts, beyond the sum of its meters' rates."""

MOST_S: Final = 10.0
"""Longest time for which a link's meters are left alone, at any rate of changes by reservations."""

Routes = Mapping[Aggregate, Collection[Link]]


class Refills:
    """Debts of links, in Mbit. Not thread-safe."""

    def __init__(self, rate_mbps: Callable[[Link], float]) -> None:
        """``rate_mbps`` of a link."""
        self._rate_mbps = rate_mbps
        self._debts: dict[Link, float] = {}
        self._at_s = 0.0
        """Time of the noted debts."""

    def pass_to(self, now_s: float) -> None:
        """Pay debts off until now."""
        passed_s, self._at_s = now_s - self._at_s, now_s
        left = {
            link: debt - PART * self._rate_mbps(link) * passed_s
            for link, debt in self._debts.items()
        }
        self._debts = {link: debt for link, debt in left.items() if debt > 0}

    def charge(self, links: Iterable[Link], mbit: float) -> None:
        """Note a burst allowed again by a change of a meter."""
        for link in links:
            most = PART * self._rate_mbps(link) * MOST_S
            self._debts[link] = min(most, self._debts.get(link, 0.0) + mbit)

    def bears(self, links: Iterable[Link]) -> bool:
        """True if none of ``links`` is in debt."""
        return self._debts.keys().isdisjoint(links)


def borne(
    old_mbps: Mapping[Aggregate, float],
    wanted_mbps: Mapping[Aggregate, float],
    routes: Routes,
    may_change: Callable[[Aggregate], bool],
    is_news: Callable[[float, float], bool],
) -> dict[Aggregate, float]:
    """New rates of meters to be changed now, such that no link gets more in all.

    If a meter due to be lowered stays unchanged, other meters on its links are raised by as much
    less. In all, a link has at most its sum by ``old_mbps`` or by ``wanted_mbps``; both sums keep
    to the link's capacity. ``is_news(old, new)``: whether a change is worth sending to a meter.
    """
    reachable_mbps = {
        aggregate: mbps
        for aggregate, mbps in wanted_mbps.items()
        if is_news(old_mbps[aggregate], mbps) and may_change(aggregate)
    }
    unmet = {aggregate: mbps for aggregate, mbps in reachable_mbps.items() if not routes[aggregate]}
    reachable_mbps = {
        aggregate: mbps for aggregate, mbps in reachable_mbps.items() if routes[aggregate]
    }
    changed = {
        aggregate: mbps for aggregate, mbps in reachable_mbps.items() if mbps < old_mbps[aggregate]
    }
    before, after, now = (defaultdict[Link, float](float) for _ in range(3))
    for aggregate, links in routes.items():
        for link in links:
            before[link] += old_mbps[aggregate]
            after[link] += wanted_mbps[aggregate]
            now[link] += changed.get(aggregate, old_mbps[aggregate])
    raised = sorted(
        reachable_mbps.keys() - changed.keys(),
        key=lambda aggregate: (wanted_mbps[aggregate], aggregate),
    )
    for aggregate in raised:
        room_mbps = min(max(before[link], after[link]) - now[link] for link in routes[aggregate])
        more_mbps = min(wanted_mbps[aggregate] - old_mbps[aggregate], room_mbps)
        if more_mbps > 0 and is_news(old_mbps[aggregate], old_mbps[aggregate] + more_mbps):
            changed[aggregate] = old_mbps[aggregate] + more_mbps
            for link in routes[aggregate]:
                now[link] += more_mbps
    return changed | unmet
