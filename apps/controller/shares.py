"""Shares of senders in the bandwidth of circuits with reservations.

Reserved bandwidth comes first, and is available to its owner at once. The rest is shared max-min
fairly by offered rates, for best effort and for rates beyond a reservation alike. A small part is
kept for idle senders, so that they can begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from hydra.model import RackId
from hydra.sharing.policing import Aggregate, Flow, Holdings, Link
from topology.demand import max_min_rates

_GROWTH: Final = 1.1
"""Largest expected growth of an aggregate that was not held back, as a factor."""
_BEYOND: Final = 1.25
"""Largest expected growth of an aggregate that was held back and has its reserved rate: the excess
may have come late and all at once.
"""
_FOR_BEGINNERS: Final = 0.05
_UNBOUNDED: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Offer:
    """The recent rate of an aggregate."""

    mbps: float
    held_back: bool
    """True if the meter dropped some traffic: the aggregate would send more."""


IDLE: Final = Offer(0.0, held_back=False)


def shares(holdings: Holdings, offers: Mapping[Aggregate, Offer]) -> dict[Aggregate, float]:
    """Mbps for each aggregate's meter; infinite for an aggregate that meets no other.

    Aggregates absent in ``offers`` count as idle.
    """
    meeting = [aggregate for aggregate, links in holdings.routes.items() if links]
    wanted = {
        aggregate: _wanted_mbps(aggregate, offers.get(aggregate, IDLE)) for aggregate in meeting
    }
    rates = dict.fromkeys(holdings.routes, _UNBOUNDED) | dict.fromkeys(meeting, 0.0)
    for flow in sorted(holdings.flows, key=lambda flow: len(flow.aggregates)):
        _give_reserved(flow, wanted, rates)
    _give_rest(holdings, meeting, wanted, rates)
    return rates


def _wanted_mbps(aggregate: Aggregate, offer: Offer) -> float:
    if not offer.held_back:
        return offer.mbps * _GROWTH
    return offer.mbps * _BEYOND if aggregate.reserved else _UNBOUNDED


def _give_reserved(
    flow: Flow, wanted: Mapping[Aggregate, float], rates: dict[Aggregate, float]
) -> None:
    """Divide a flow's rate among its aggregates: by wanted rates, and the surplus evenly."""
    members = [aggregate for aggregate in flow.aggregates if aggregate in wanted]
    if not members:
        return
    unmet = np.array([max(0.0, wanted[aggregate] - rates[aggregate]) for aggregate in members])
    given = max_min_rates(np.zeros((len(members), 1), dtype=np.intp), np.array([flow.mbps]), unmet)
    spare_mbps = (flow.mbps - float(given.sum())) / len(members)
    for aggregate, mbps in zip(members, given, strict=True):
        rates[aggregate] += float(mbps) + spare_mbps


def _give_rest(
    holdings: Holdings,
    meeting: Iterable[Aggregate],
    wanted: Mapping[Aggregate, float],
    rates: dict[Aggregate, float],
) -> None:
    aggregates = list(meeting)
    if not aggregates:
        return
    number: dict[Link, int] = {link: index for index, link in enumerate(holdings.remaining_mbps)}
    remaining = np.array([*holdings.remaining_mbps.values(), _UNBOUNDED])
    routes = [holdings.routes[aggregate] for aggregate in aggregates]
    many = np.array([len(links) for links in routes])
    uses = np.full((len(routes), many.max()), len(number), dtype=np.intp)
    uses[np.arange(many.max()) < many[:, np.newaxis]] = [
        number[link] for links in routes for link in links
    ]
    unmet = np.array([max(0.0, wanted[aggregate] - rates[aggregate]) for aggregate in aggregates])
    given = max_min_rates(uses, remaining * (1 - _FOR_BEGINNERS), unmet)
    for_all = _even_parts(uses, remaining, given)
    for aggregate, mbps in zip(aggregates, given + for_all, strict=True):
        rates[aggregate] += float(mbps)


def _even_parts(
    uses: np.ndarray[tuple[int, int], np.dtype[np.intp]],
    remaining: np.ndarray[tuple[int], np.dtype[np.float64]],
    given: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Even parts of the unwanted rate, one for each row of ``uses``."""
    users = np.bincount(uses.ravel(), minlength=len(remaining))
    taken = np.bincount(
        uses.ravel(), weights=np.repeat(given, uses.shape[1]), minlength=len(remaining)
    )
    with np.errstate(invalid="ignore"):
        parts = np.maximum(remaining - taken, 0.0) / np.maximum(users, 1)
    result: np.ndarray[tuple[int], np.dtype[np.float64]] = parts[uses].min(axis=1)
    return result


def held_back(offers: Mapping[Aggregate, Offer]) -> Mapping[tuple[str, RackId], bool]:
    """By server and destination rack: True if meters drop traffic from the server to the rack."""
    found: dict[tuple[str, RackId], bool] = {}
    for aggregate, offer in offers.items():
        key = aggregate.sender, aggregate.to
        found[key] = found.get(key, False) or offer.held_back
    return found
