"""From polled counters to rates: resets, wraps, late switches, clocks that step, and averaging.

One row per switch that counts, one column per destination rack. A reading that can't be true moves
no rate: it becomes what the next one is compared with, and is counted by its cause.
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
"""A counter that fell by more than this has wrapped; by less, it was set back."""
_NOT_COUNTED: Final = 2**64 - 1
"""A counter that is not available: the switch lacks it, or can't read it now."""
_IMPLAUSIBLE: Final = 1000.0
"""Times the rate of a server's link: what no memory or bus of it can send either."""
_CLOCK_SLACK_S: Final = 2.0
_CLOCK_RATIO: Final = 1.5
"""Between two readings the controller's clock and the switch's may differ by this much.

Rule ages have whole seconds on some switches, and an answer may wait for a while."""
_FEW: Final = 3
"""A rate that rests on fewer readings, so on a single interval, may be a burst's."""
_STEP_READINGS: Final = 3
_ALIKE: Final = 0.8
"""Of readings in a row, the least is at least this part of the greatest: traffic that is steady."""
_OVERTAKEN: Final = 0.5
"""An average of which steady traffic has less than this part is of traffic that is no more."""
_ARRIVAL_S: Final = 60.0
"""Switches that were not heard within this time of the first one are not waited for."""


_PortT = TypeVar("_PortT")


class Anomaly(StrEnum):
    """Why a reading was not used."""

    COUNTER_WENT_BACK = "counter went back"
    """The switch restarted, its rules were installed anew, or it errs."""
    IMPLAUSIBLE_RATE = "implausible rate"
    NOT_COUNTED = "counter not available"
    CLOCK_WENT_BACK = "clock went back"
    CLOCKS_DISAGREE = "clocks disagree"
    """The controller's clock or the switch's has stepped."""


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Rates that counting switches see, an entry for each and a destination rack; shapes (F,)."""

    source: NDArray[np.intp]
    """The switch's place in :attr:`DemandMeter.sources`."""
    to: NDArray[np.intp]
    mbps: NDArray[np.float64]
    """Averaged; above zero."""
    latest_mbps: NDArray[np.float64]
    """In the last interval alone: averages follow slowly what fills a link at once."""
    least_mbps: NDArray[np.float64]
    """The smaller of the last two intervals'.

    One alone may hold what was sent in two: Open vSwitch brings a rule's counter up to date every
    half a second (``other_config:max-revalidator``), and later on a busy machine.
    """


@dataclass(slots=True)
class DemandMeter:
    """Exponentially weighted rates from byte counters of 64 bits.

    Traffic that has become steady at less than half of its average is taken at its new rate, three
    readings later: an average would still tell of what it was. A pause is no rate to be steady at.

    One row per switch that counts what it sends (``Substrate.steering``): a server's, or a
    whole rack's. One that was not heard keeps its last rates and is reported stale.
    """

    fabric: Fabric
    window_s: float
    """Time constant of the average."""
    anomalies: Counter[Anomaly] = field(init=False, default_factory=Counter)
    sources: tuple[Steering, ...] = field(init=False)
    """Whose counters they are, row by row."""
    _bytes: NDArray[np.uint64] = field(init=False)
    _rates_mbps: NDArray[np.float64] = field(init=False)
    _recent_mbps: NDArray[np.float32] = field(init=False)
    """Rates of the last intervals, shape (F, intervals, racks); the newest first."""
    _heard_s: NDArray[np.float64] = field(init=False)
    _rule_age_s: NDArray[np.float64] = field(init=False)
    _readings: NDArray[np.intp] = field(init=False)
    _began_s: float = field(init=False, default=math.inf)
    _sending: NDArray[np.bool_] = field(init=False)
    """Rows with a rate above zero, so that nobody looks through all others."""
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
        self._heard_s = np.full(shape[0], -math.inf)
        self._rule_age_s = np.full(shape[0], math.inf)
        self._readings = np.zeros(shape[0], dtype=np.intp)
        self._sending = np.zeros(shape[0], dtype=bool)
        self._rack = np.array([switch.rack for switch in self.sources], dtype=np.intp)
        rows = {s.name: row for row, switch in enumerate(self.sources) for s in switch.servers}
        self._row_of_server = np.array([rows[s.name] for s in self.fabric.servers], dtype=np.intp)
        self._servers_in_row = np.array([len(one.servers) for one in self.sources], dtype=np.intp)

    def update(
        self,
        source: int,
        totals: NDArray[np.uint64],
        now_s: float,
        rule_age_s: float = math.inf,
    ) -> Anomaly | None:
        """Take one row's byte totals, shape (racks,), read at ``now_s``; 2^64 - 1 is not available.

        ``rule_age_s`` is how old the switch says its oldest rule is: a second clock, infinite if
        it does not say. Returns what was wrong with the reading, or with one of its counters.
        """
        elapsed_s = now_s - float(self._heard_s[source])
        if elapsed_s == 0:
            return None  # the same reading twice
        anomaly = self._clock_anomaly(elapsed_s, rule_age_s - float(self._rule_age_s[source]))
        if anomaly is None and math.isfinite(elapsed_s):
            anomaly = self._weigh(source, totals, elapsed_s)
        self._bytes[source] = totals
        self._heard_s[source] = now_s
        self._began_s = min(self._began_s, now_s)
        self._rule_age_s[source] = rule_age_s
        if anomaly is not None:
            self.anomalies[anomaly] += 1
        return anomaly

    def _clock_anomaly(self, elapsed_s: float, aged_s: float) -> Anomaly | None:
        if elapsed_s < 0:
            return Anomaly.CLOCK_WENT_BACK
        if not math.isfinite(elapsed_s) or not math.isfinite(aged_s) or aged_s <= 0:
            return None  # nothing to compare: no ages, or of a rule that was installed anew
        near, far = sorted((elapsed_s, aged_s))
        if far > _CLOCK_RATIO * near + _CLOCK_SLACK_S:
            return Anomaly.CLOCKS_DISAGREE
        return None

    def _weigh(self, source: int, totals: NDArray[np.uint64], elapsed_s: float) -> Anomaly | None:
        before, uncounted = self._bytes[source], totals == _NOT_COUNTED
        known = ~(uncounted | (before == _NOT_COUNTED))
        sent = totals - before  # modulo 2^64, as the counters themselves
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
        """As :meth:`matrix`, with NaN for pairs whose rate is not known now.

        They are those that are :meth:`unsure`, and those from racks of which no switch was heard in
        ``limit_s``.
        """
        heard = np.zeros(len(self.fabric.racks), dtype=bool)
        heard[self._rack[(self._readings > 0) & (now_s - self._heard_s <= limit_s)]] = True
        return np.where(heard[:, None] & ~self.unsure(now_s, limit_s), self.matrix(), np.nan)

    def sent(self) -> Sent:
        """Everything that is not zero."""
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
        """Mbps from these servers to these racks, pair by pair, and of all that each of them sends.

        Shapes as ``server`` and ``rack``, which are of one length. Servers are those of the
        fabric, by position. Where one switch counts for several, what they send is taken together
        for a pair, and as shared evenly for all.
        """
        row = self._row_of_server[server]
        sending = self._rates_mbps[row].sum(axis=1) / self._servers_in_row[row]
        return self._rates_mbps[row, rack], sending

    @property
    def ready(self) -> bool:
        """Whether any server has been read twice."""
        return bool(self._readings.any())

    def unsure(self, now_s: float, limit_s: float) -> NDArray[np.bool_]:
        """Pairs whose demand rests on readings that are too few or older than ``limit_s``, (N, N).

        Of a switch that has just begun to be read, all; of others, whatever has a rate.
        """
        few = self._readings < _FEW - 1
        late = now_s - self._heard_s > limit_s
        arriving = (self._readings == 0) & (now_s - self._began_s <= _ARRIVAL_S)
        racks = len(self.fabric.racks)
        found = np.zeros((racks, racks), dtype=bool)
        rows = np.flatnonzero((few | late) & self._sending)
        np.logical_or.at(found, self._rack[rows], self._rates_mbps[rows] > 0)
        found[self._rack[arriving]] = True
        np.fill_diagonal(found, False)
        return found

    def stale(self, now_s: float, limit_s: float) -> Sequence[str]:
        """Servers, or racks, not heard for longer than ``limit_s``."""
        late = now_s - self._heard_s > limit_s
        return [s.name for s, is_late in zip(self.sources, late, strict=True) if is_late]

    def age_s(self, now_s: float) -> float | None:
        """Time since the newest reading; None before the first."""
        newest = float(self._heard_s.max(initial=-math.inf))
        return now_s - newest if math.isfinite(newest) else None


@dataclass(slots=True)
class PortMeter(Generic[_PortT]):
    """Rates of ports from byte counters of 64 bits, over the last interval."""

    anomalies: Counter[Anomaly] = field(default_factory=Counter)
    _last: dict[_PortT, tuple[int, float]] = field(default_factory=dict)
    _rates_mbps: dict[_PortT, float] = field(default_factory=dict)

    def update(self, port: _PortT, sent_bytes: int, now_s: float) -> Anomaly | None:
        """Take one reading; returns what was wrong with it."""
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
        """Its switch did not answer: unknown, not zero."""
        self._last.pop(port, None)
        self._rates_mbps.pop(port, None)

    def rates_mbps(self) -> Mapping[_PortT, float]:
        """Mbps at each port that has been read twice."""
        return dict(self._rates_mbps)
