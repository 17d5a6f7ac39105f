"""Delivered rates of reservations, from counters at the receivers."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
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


class _Shared:
    """Flows by reservation and by tally, and names of senders by link, of some holdings."""

    def __init__(self, held: Holdings) -> None:
        self.routes = held.routes
        self._flows = held.flows

    @cached_property
    def by_reservation(self) -> Mapping[str, Sequence[Flow]]:
        by_reservation: defaultdict[str, list[Flow]] = defaultdict(list)
        for flow in self._flows:
            by_reservation[flow.reservation].append(flow)
        return by_reservation

    @cached_property
    def by_tally(self) -> Mapping[Tally, Sequence[Flow]]:
        by_tally: defaultdict[Tally, list[Flow]] = defaultdict(list)
        for flow in self._flows:
            for tally in flow.tallies:
                by_tally[tally].append(flow)
        return by_tally

    @cached_property
    def senders(self) -> Mapping[Link, Collection[str]]:
        senders: defaultdict[Link, set[str]] = defaultdict(set)
        for aggregate, links in self.routes.items():
            for link in links:
                senders[link].add(aggregate.sender)
        return senders


_NOTHING: Final = _Shared(Holdings())


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

    def forget(self, tallies: Iterable[Tally]) -> None:
        for tally in tallies:
            self._readings.pop(tally, None)


class Deliveries:
    """Not thread-safe: the caller holds the lock of the meters' tables."""

    def __init__(self) -> None:
        self._shared: dict[str, _Shared] = {}
        """By the id of a reservation; has all holdings in touch with the reservation."""
        self._rates = _Rates()

    def hold(self, gone: Holdings, new: Holdings) -> None:
        """Hold the reservations of ``new`` in place of the reservations of ``gone``."""
        for flow in gone.flows:
            self._shared.pop(flow.reservation, None)
        self._shared |= dict.fromkeys((flow.reservation for flow in new.flows), _Shared(new))
        self._rates.forget(gone.tallies - new.tallies)

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
        shared = self._shared.get(reservation.id, _NOTHING)
        flows = shared.by_reservation.get(reservation.id, ())
        there = [flow for flow in flows if flow.source == reservation.src_rack]
        back = [flow for flow in flows if flow.source != reservation.src_rack]
        return Delivery(
            reservation,
            there_mbps=self._delivered_mbps(there, shared),
            back_mbps=self._delivered_mbps(back, shared),
            unheld=tuple(name for name in _senders(flows, shared) if not is_metered(name)),
        )

    def _delivered_mbps(self, flows: Iterable[Flow], shared: _Shared) -> float | None:
        """Mbps, None if not known yet. A tally of several reservations is divided in proportion."""
        total_mbps = None
        for flow in flows:
            for tally in flow.tallies:
                mbps = self._rates.mbps(tally)
                if mbps is not None:
                    total_mbps = (total_mbps or 0.0) + mbps * _part(flow, shared.by_tally[tally])
        return total_mbps


def _part(flow: Flow, sharing: Sequence[Flow]) -> float:
    """The share of a flow in the count of a tally, which the flows ``sharing`` have in common."""
    promised_mbps = sum(other.mbps for other in sharing)
    return flow.mbps / promised_mbps if promised_mbps else 1 / len(sharing)


def _senders(flows: Iterable[Flow], shared: _Shared) -> list[str]:
    """Servers that send on the circuits of ``flows``."""
    links = {
        link for flow in flows for aggregate in flow.aggregates for link in shared.routes[aggregate]
    }
    return sorted({name for link in links for name in shared.senders.get(link, ())})
