"""Changes of meters that circuits can bear: each change fills the bucket of its meter again.

A meter lets its rate pass, and once the burst that its bucket holds. Open vSwitch fills the bucket
at each OFPMC_MODIFY, to the same rate even. So what passes a meter that is changed each second is
its rate and a burst each second, which the sum of the rates does not show. A link therefore has an
account: changes are charged with the bursts that they let pass again, and a small part of the
link's rate pays them off. Meters on a link that is in debt are left as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from hydra.sharing.policing import Aggregate, Link

PART: Final = 0.01
"""Part of a link's rate that refilled bursts may take, beyond the sum of its meters' rates."""

MOST_S: Final = 10.0
"""Longest time for which a link's meters are left alone, however often reservations change them."""

Routes = Mapping[Aggregate, Collection[Link]]


class Refills:
    """Debts of links, in Mbit. Not thread-safe."""

    def __init__(self, rate_mbps: Callable[[Link], float]) -> None:
        """``rate_mbps`` of a link."""
        self._rate_mbps = rate_mbps
        self._debts: dict[Link, float] = {}
        self._at_s = 0.0
        """Time as of which debts are noted."""

    def pass_to(self, now_s: float) -> None:
        """Pay debts off until now."""
        passed_s, self._at_s = now_s - self._at_s, now_s
        left = {
            link: debt - PART * self._rate_mbps(link) * passed_s
            for link, debt in self._debts.items()
        }
        self._debts = {link: debt for link, debt in left.items() if debt > 0}

    def charge(self, links: Iterable[Link], mbit: float) -> None:
        """Note a burst that the change of a meter lets pass again."""
        for link in links:
            most = PART * self._rate_mbps(link) * MOST_S
            self._debts[link] = min(most, self._debts.get(link, 0.0) + mbit)

    def bears(self, links: Iterable[Link]) -> bool:
        """True if none of these links is in debt."""
        return self._debts.keys().isdisjoint(links)


def borne(
    old_mbps: Mapping[Aggregate, float],
    wanted_mbps: Mapping[Aggregate, float],
    routes: Routes,
    may_change: Callable[[Aggregate], bool],
    is_news: Callable[[float, float], bool],
) -> dict[Aggregate, float]:
    """New rates of those meters that are to be changed now, such that no link gets more in all.

    Where a meter that should be lowered stays as it is, others on its links are raised by as much
    less. In all, a link has no more than by ``old_mbps`` or by ``wanted_mbps``, both of which keep
    to what it carries. ``is_news(old, new)``: whether a change is worth telling a meter.
    """
    told = {
        one: mbps
        for one, mbps in wanted_mbps.items()
        if is_news(old_mbps[one], mbps) and may_change(one)
    }
    unmet = {one: mbps for one, mbps in told.items() if not routes[one]}
    told = {one: mbps for one, mbps in told.items() if routes[one]}
    changed = {one: mbps for one, mbps in told.items() if mbps < old_mbps[one]}
    before, after, now = (defaultdict[Link, float](float) for _ in range(3))
    for one, links in routes.items():
        for link in links:
            before[link] += old_mbps[one]
            after[link] += wanted_mbps[one]
            now[link] += changed.get(one, old_mbps[one])
    raised = sorted(told.keys() - changed.keys(), key=lambda one: (wanted_mbps[one], one))
    for one in raised:
        room_mbps = min(max(before[link], after[link]) - now[link] for link in routes[one])
        more_mbps = min(wanted_mbps[one] - old_mbps[one], room_mbps)
        if more_mbps > 0 and is_news(old_mbps[one], old_mbps[one] + more_mbps):
            changed[one] = old_mbps[one] + more_mbps
            for link in routes[one]:
                now[link] += more_mbps
    return changed | unmet
