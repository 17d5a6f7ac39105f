"""Rates from polled counters: resets, wraps, late switches, clock steps, and averaging.

The arrays have a row per counting switch, and a column per destination rack. An implausible reading
changes no rate: the reading becomes the reference of the next reading, and is counted by cause.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hydra.forwarding.substrate import Steering, substrate_of
from hydra.model import DemandMatrix, Fabric

_BITS_PER_MBIT: Final = 1e6
_COUNTER_MODULUS: Final = 2**64
_WRAP_LIMIT: Final = 2**63
"""A counter that falls by more than this has wrapped; a smaller fall is a reset."""
_NOT_COUNTED: Final = 2**64 - 1
"""Value of an unavailable counter, missing or unreadable at the switch."""
_IMPLAUSIBLE: Final = 1000.0
"""Multiple of the rate of a server link that no server memory or bus can reach."""
_CLOCK_SLACK_S: Final = 2.0
_CLOCK_RATIO: Final = 1.5
"""Tolerated ratio of the intervals measured by the controller's clock and the switch's clock.

Rule ages have whole seconds on some switches, and an answer may be delayed.
"""
_FEW: Final = 3
"""Minimum number of readings: a rate from fewer readings may be a burst."""
_STEP_READINGS: Final = 3
_ALIKE: Final = 0.8
"""Traffic is steady if the least of several readings in a row is at least this share of the
greatest.
"""
_OVERTAKEN: Final = 0.5
"""If steady traffic is below this share of the average, the average is outdated."""
_ARRIVAL_S: Final = 60.0
"""Time to wait after the first reading for switches that have never been read, in s."""


_PortT = TypeVar("_PortT")


class Anomaly(StrEnum):
    """Reason for an unused reading."""

    COUNTER_WENT_BACK = "counter went back"
    """The switch restarted or errs, or its rules were reinstalled."""
    IMPLAUSIBLE_RATE = "implausible rate"
    NOT_COUNTED = "counter not available"
    CLOCK_WENT_BACK = "clock went back"
    CLOCKS_DISAGREE = "clocks disagree"
    """The clock of the controller or of the switch has stepped."""


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Rates at counting switches, an entry per switch and destination rack; shapes (F,)."""

    source: NDArray[np.intp]
    """Index of the switch in :attr:`DemandMeter.sources`."""
    to: NDArray[np.intp]
    mbps: NDArray[np.float64]
    """Averaged; above zero."""
    latest_mbps: NDArray[np.float64]
    """Rate of the last interval: averages lag behind a sudden burst."""
    least_mbps: NDArray[np.float64]
    """The smaller rate of the last two intervals.

    A single interval may contain the bytes of two: Open vSwitch updates the counter of a rule every
    half a second (``other_config:max-revalidator``), and later on a busy machine.
    """


@dataclass(slots=True)
class DemandMeter:
    """Exponentially weighted rates from 64-bit byte counters.

    Traffic that becomes steady below half of its average gets its new rate after three readings:
    the average would still reflect the past. A pause does not count as steady.

    The arrays have a row per switch that counts sent traffic (``Substrate.steering``), of a server
    or of a whole rack. A silent switch keeps its last rates and is reported as stale.
    """

    fabric: Fabric
    window_s: float
    """Time constant of the average."""
    anomalies: Counter[Anomaly] = field(init=False, default_factory=Counter)
    sources: tuple[Steering, ...] = field(init=False)
    """The counting switch of each row."""
    _bytes: NDArray[np.uint64] = field(init=False)
    _rates_mbps: NDArray[np.float64] = field(init=False)
    _recent_mbps: NDArray[np.float32] = field(init=False)
    """Rates of the last intervals, shape (F, intervals, racks); the newest first."""
    _received_s: NDArray[np.float64] = field(init=False)
    _rule_age_s: NDArray[np.float64] = field(init=False)
    _readings: NDArray[np.intp] = field(init=False)
    _began_s: float = field(init=False, default=math.inf)
    _sending: NDArray[np.bool_] = field(init=False)
    """Rows with a rate above zero, to skip the rest."""
    _rack: NDArray[np.intp] = field(init=False)
    """Ascending."""
    _row_of_server: NDArray[np.intp] = field(init=False)
    _servers_in_row: NDArray[np.intp] = field(init=False)

    def __post_init__(self) -> None:
        substrate = substrate_of(self.fabric)
        self.sources = tuple(
            switch for rack in self.fabric.racks for switch in substrate.steering(rack.id)
        )
        shape = (len(self.sources), len(self.fabric.racks))
        self._bytes = np.zeros(shape, dtype=np.uint64)
        self._rates_mbps = np.zeros(shape)
        self._recent_mbps = np.zeros((shape[0], _STEP_READINGS, shape[1]), dtype=np.float32)
        self._received_s = np.full(shape[0], -math.inf)
        self._rule_age_s = np.full(shape[0], math.inf)
        self._readings = np.zeros(shape[0], dtype=np.intp)
        self._sending = np.zeros(shape[0], dtype=bool)
        self._rack = np.array([switch.rack for switch in self.sources], dtype=np.intp)
        rows = {s.name: row for row, switch in enumerate(self.sources) for s in switch.servers}
        self._row_of_server = np.array([rows[s.name] for s in self.fabric.servers], dtype=np.intp)
        self._servers_in_row = np.array(
            [len(source.servers) for source in self.sources], dtype=np.intp
        )

    def update(
        self,
        source: int,
        totals: NDArray[np.uint64],
        now_s: float,
        rule_age_s: float = math.inf,
    ) -> Anomaly | None:
        """Take the byte totals of a row, shape (racks,), read at ``now_s``; 2^64 - 1: not
        available.

        ``rule_age_s`` is the age of the switch's oldest rule, a second clock; infinite if unknown.
        Returns the anomaly of the reading, or of a counter.
        """
        elapsed_s = now_s - float(self._received_s[source])
        if elapsed_s == 0:
            return None  # the same reading twice
        anomaly = self._clock_anomaly(elapsed_s, rule_age_s - float(self._rule_age_s[source]))
        if anomaly is None and math.isfinite(elapsed_s):
            anomaly = self._weigh(source, totals, elapsed_s)
        self._bytes[source] = totals
        self._received_s[source] = now_s
        self._began_s = min(self._began_s, now_s)
        self._rule_age_s[source] = rule_age_s
        if anomaly is not None:
            self.anomalies[anomaly] += 1
        return anomaly

    def _clock_anomaly(self, elapsed_s: float, aged_s: float) -> Anomaly | None:
        if elapsed_s < 0:
            return Anomaly.CLOCK_WENT_BACK
        if not math.isfinite(elapsed_s) or not math.isfinite(aged_s) or aged_s <= 0:
            return None  # no comparison: no ages, or a reinstalled rule
        near, far = sorted((elapsed_s, aged_s))
        if far > _CLOCK_RATIO * near + _CLOCK_SLACK_S:
            return Anomaly.CLOCKS_DISAGREE
        return None

    def _weigh(self, source: int, totals: NDArray[np.uint64], elapsed_s: float) -> Anomaly | None:
        before, uncounted = self._bytes[source], totals == _NOT_COUNTED
        known = ~(uncounted | (before == _NOT_COUNTED))
        sent = totals - before  # modulo 2^64, like the counters
        went_back = known & (sent >= _WRAP_LIMIT)
        rate = sent * (8 / _BITS_PER_MBIT / elapsed_s)
        implausible = known & (rate > _IMPLAUSIBLE * self.fabric.server_rate_mbps)
        known &= ~(went_back | implausible)
        weight = -math.expm1(-elapsed_s / self.window_s) if self._readings[source] else 1.0
        rates = self._rates_mbps[source]
        rates += np.where(known, weight * (rate - rates), 0.0)
        recent = self._recent_mbps[source]
        np.copyto(recent[1:], recent[:-1].copy(), where=known)
        np.copyto(recent[0], rate, casting="same_kind", where=known)
        least, most = recent.min(axis=0), recent.max(axis=0)
        stepped = known & (least > 0) & (least >= _ALIKE * most) & (most < _OVERTAKEN * rates)
        np.copyto(rates, recent.mean(axis=0), where=stepped)
        self._sending[source] = rates.any()
        self._readings[source] += 1
        if went_back.any():
            return Anomaly.COUNTER_WENT_BACK
        if implausible.any():
            return Anomaly.IMPLAUSIBLE_RATE
        return Anomaly.NOT_COUNTED if uncounted.any() else None

    def matrix(self) -> DemandMatrix:
        """Rack-to-rack rates in Mbps, shape (racks, racks)."""
        racks = len(self.fabric.racks)
        demand = np.zeros((racks, racks))
        rows = np.flatnonzero(self._sending)
        if len(rows):
            of, first = np.unique(self._rack[rows], return_index=True)
            demand[of] = np.add.reduceat(self._rates_mbps[rows], first)
        np.fill_diagonal(demand, 0.0)
        return demand

    def known(self, now_s: float, limit_s: float) -> DemandMatrix:
        """Like :meth:`matrix`, with NaN for pairs with an unknown rate.

        Unknown are pairs in :meth:`unsure`, and pairs from racks without a reading in ``limit_s``.
        """
        seen = np.zeros(len(self.fabric.racks), dtype=bool)
        seen[self._rack[(self._readings > 0) & (now_s - self._received_s <= limit_s)]] = True
        return np.where(seen[:, None] & ~self.unsure(now_s, limit_s), self.matrix(), np.nan)

    def sent(self) -> Sent:
        """All entries above zero."""
        rows = np.flatnonzero(self._sending)
        place, to = np.nonzero(self._rates_mbps[rows])
        source = rows[place]
        away = self._rack[source] != to
        source, to = source[away], to[away]
        latest, before = self._recent_mbps[source, :2, to].astype(np.float64).T
        least = np.minimum(latest, before)
        return Sent(source, to, self._rates_mbps[source, to], latest, least)

    def counted(
        self, server: NDArray[np.intp], rack: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mbps from each server to each rack, and in total from each server, entry by entry.

        Shapes as ``server`` and ``rack``, which have the same length. Servers are positions in the
        fabric. If a switch counts for several servers, a pair gets their common rate, and the total
        is divided evenly.
        """
        row = self._row_of_server[server]
        sending = self._rates_mbps[row].sum(axis=1) / self._servers_in_row[row]
        return self._rates_mbps[row, rack], sending

    @property
    def ready(self) -> bool:
        """True if any server has been read twice."""
        return bool(self._readings.any())

    def unsure(self, now_s: float, limit_s: float) -> NDArray[np.bool_]:
        """Pairs with too few readings, or with readings older than ``limit_s``, (N, N).

        Of a new switch, all pairs; of other switches, pairs with a rate.
        """
        few = self._readings < _FEW - 1
        late = now_s - self._received_s > limit_s
        arriving = (self._readings == 0) & (now_s - self._began_s <= _ARRIVAL_S)
        racks = len(self.fabric.racks)
        found = np.zeros((racks, racks), dtype=bool)
        rows = np.flatnonzero((few | late) & self._sending)
        np.logical_or.at(found, self._rack[rows], self._rates_mbps[rows] > 0)
        found[self._rack[arriving]] = True
        np.fill_diagonal(found, False)
        return found

    def stale(self, now_s: float, limit_s: float) -> Sequence[str]:
        """Servers or racks without a reading for longer than ``limit_s``."""
        late = now_s - self._received_s > limit_s
        return [s.name for s, is_late in zip(self.sources, late, strict=True) if is_late]

    def age_s(self, now_s: float) -> float | None:
        """Time since the newest reading; None before the first reading."""
        newest = float(self._received_s.max(initial=-math.inf))
        return now_s - newest if math.isfinite(newest) else None


@dataclass(slots=True)
class PortMeter(Generic[_PortT]):
    """Rates of ports from 64-bit byte counters, over the last interval."""

    anomalies: Counter[Anomaly] = field(default_factory=Counter)
    _last: dict[_PortT, tuple[int, float]] = field(default_factory=dict)
    _rates_mbps: dict[_PortT, float] = field(default_factory=dict)

    def update(self, port: _PortT, sent_bytes: int, now_s: float) -> Anomaly | None:
        """Take a reading; return the anomaly, if any."""
        last_bytes, last_s = self._last.get(port, (sent_bytes, -math.inf))
        if now_s == last_s:
            return None
        self._last[port] = (sent_bytes, now_s)
        if not math.isfinite(last_s):
            return None
        sent = (sent_bytes - last_bytes) % _COUNTER_MODULUS
        anomaly = None
        if now_s < last_s:
            anomaly = Anomaly.CLOCK_WENT_BACK
        elif sent >= _WRAP_LIMIT:
            anomaly = Anomaly.COUNTER_WENT_BACK
        else:
            self._rates_mbps[port] = sent * 8 / _BITS_PER_MBIT / (now_s - last_s)
        if anomaly is not None:
            self.anomalies[anomaly] += 1
        return anomaly

    def forget(self, port: _PortT) -> None:
        """Drop a port whose switch did not answer: the rate is unknown, not zero."""
        self._last.pop(port, None)
        self._rates_mbps.pop(port, None)

    def rates_mbps(self) -> Mapping[_PortT, float]:
        """Mbps of each port with two readings."""
        return dict(self._rates_mbps)
