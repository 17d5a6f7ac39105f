"""Delivered rates of reservations, from counters at the receivers."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from drivers.codecs.openflow.statistics import (
    NOT_COUNTED,
    MalformedReplyError,
    decode_flow_stats,
)
from hydra.forwarding.pipeline import COOKIE_SUBJECT_MASK
from hydra.reservations.reservation import Reservation
from hydra.service import Delivery
from hydra.sharing.policing import (
    Flow,
    Holdings,
    Link,
    Tally,
)

LOG = logging.getLogger("hydra.policing")
_READINGS: Final = 3
"""Rates are averages over two intervals: Open vSwitch updates counters at most twice a second."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """Flows by reservation and by tally; names of senders by link."""

    by_reservation: Mapping[str, Sequence[Flow]] = field(default_factory=dict)
    by_tally: Mapping[Tally, Sequence[Flow]] = field(default_factory=dict)
    senders: Mapping[Link, Collection[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, held: Holdings) -> _Shared:
        by_reservation: defaultdict[str, list[Flow]] = defaultdict(list)
        by_tally: defaultdict[Tally, list[Flow]] = defaultdict(list)
        senders: defaultdict[Link, set[str]] = defaultdict(set)
        for flow in held.flows:
            by_reservation[flow.reservation].append(flow)
            for tally in flow.tallies:
                by_tally[tally].append(flow)
        for aggregate, links in held.routes.items():
            for link in links:
                senders[link].add(aggregate.sender)
        return cls(by_reservation, by_tally, senders)


class _Rates:
    """Mbps from byte counters, averaged over the last readings."""

    def __init__(self) -> None:
        self._readings: dict[Tally, deque[tuple[float, int]]] = {}

    def note(self, tally: Tally, now_s: float, total_bytes: int) -> None:
        readings = self._readings.setdefault(tally, deque(maxlen=_READINGS))
        if readings and total_bytes < readings[-1][1]:
            readings.clear()  # the tally's rules were installed anew
        readings.append((now_s, total_bytes))

    def mbps(self, tally: Tally) -> float | None:
        """None until the tally has been read twice."""
        readings = self._readings.get(tally)
        if readings is None or len(readings) < 2:
            return None
        (first_s, first), (last_s, last) = readings[0], readings[-1]
        return (last - first) * 8e-6 / (last_s - first_s)

    def keep_only(self, tallies: Collection[Tally]) -> None:
        self._readings = {
            key: readings for key, readings in self._readings.items() if key in tallies
        }


class Deliveries:
    """Not thread-safe: the caller holds the lock of the meters' tables."""

    def __init__(self) -> None:
        self._holdings = Holdings()
        self._shared: _Shared | None = None
        """Flows of :attr:`_holdings`; None until the first use."""
        self._rates = _Rates()

    def hold(self, holdings: Holdings) -> None:
        """Replace the held reservations."""
        self._holdings, self._shared = holdings, None
        self._rates.keep_only(holdings.tallies)

    def note(self, tallies: Mapping[Tally, int], body: bytes, now_s: float) -> None:
        """Note a vswitch's counters of tallies; ``tallies`` maps tallies to numbers."""
        try:
            columns = decode_flow_stats(body)
        except MalformedReplyError as error:
            LOG.debug("%s", error)
            return
        totals = dict.fromkeys(tallies.values(), 0)
        numbers = columns.cookie & COOKIE_SUBJECT_MASK
        uncounted = set(numbers[columns.bytes == NOT_COUNTED].tolist())
        for number, total_bytes in zip(numbers.tolist(), columns.bytes.tolist(), strict=True):
            totals[number] = totals.get(number, 0) + total_bytes
        for tally, number in tallies.items():
            if number not in uncounted:
                self._rates.note(tally, now_s, totals[number])

    def of(self, reservation: Reservation, is_metered: Callable[[str], bool]) -> Delivery:
        """Rates of a reservation, as last read. ``is_metered``: true if a sender's vswitch
        meters.
        """
        flows = self._sharing().by_reservation.get(reservation.id, ())
        return Delivery(
            reservation,
            there_mbps=self._delivered_mbps(
                flow for flow in flows if flow.source == reservation.src_rack
            ),
            back_mbps=self._delivered_mbps(
                flow for flow in flows if flow.source != reservation.src_rack
            ),
            unheld=tuple(name for name in self._senders(flows) if not is_metered(name)),
        )

    def _delivered_mbps(self, flows: Iterable[Flow]) -> float | None:
        """Mbps, None if not known yet. A tally of several reservations is divided in proportion."""
        total_mbps = None
        for flow in flows:
            for tally in flow.tallies:
                mbps = self._rates.mbps(tally)
                if mbps is not None:
                    total_mbps = (total_mbps or 0.0) + mbps * self._part(flow, tally)
        return total_mbps

    def _sharing(self) -> _Shared:
        """Flows and senders by shared tally and link; the caller holds the lock."""
        if self._shared is None:
            self._shared = _Shared.of(self._holdings)
        return self._shared

    def _part(self, flow: Flow, tally: Tally) -> float:
        sharing = self._sharing().by_tally[tally]
        promised_mbps = sum(flow.mbps for flow in sharing)
        return flow.mbps / promised_mbps if promised_mbps else 1 / len(sharing)

    def _senders(self, flows: Iterable[Flow]) -> list[str]:
        """Servers that send on the circuits of ``flows``."""
        routes = self._holdings.routes
        links = {
            link for flow in flows for aggregate in flow.aggregates for link in routes[aggregate]
        }
        sharing = self._sharing()
        return sorted({name for link in links for name in sharing.senders.get(link, ())})
