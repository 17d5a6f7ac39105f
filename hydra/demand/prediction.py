"""Prediction of demand over the life of circuits, from past demand.

Each predictor predicts the mean over a horizon; the error is measured after the horizon. Sources:
exponential smoothing with a trend is Holt's (1957); HydRA (section III.B.3) asks for a prediction
and leaves the method open.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np

from hydra.model import DemandMatrix
from hydra.policy import CurrentPolicy, Prediction

_BUCKETS: Final = 8
"""Number of parts of a horizon with a recorded peak."""
_PHASES: Final = 32
"""Number of parts of a season with a recorded mean."""
_NEW_SEASON: Final = 0.5
"""Weight of the last season against earlier seasons."""
_NEW_CHECK: Final = 0.2
"""Weight of the last error against earlier errors."""


class Predictor(Protocol):
    """Demands have shape (N, N), in Mbps."""

    def see(self, wanted_mbps: DemandMatrix, now_s: float, /) -> None:
        """Take the present demand; times must increase."""

    def mean_mbps(self) -> DemandMatrix:
        """Mean over the horizon from the last reading on. Needs at least a reading."""


@dataclass(slots=True)
class Last:
    """Demand stays as it is."""

    _wanted: DemandMatrix = field(init=False)

    def see(self, wanted_mbps: DemandMatrix, _now_s: float, /) -> None:
        self._wanted = wanted_mbps

    def mean_mbps(self) -> DemandMatrix:
        return self._wanted


@dataclass(slots=True)
class Ewma:
    """Demand equals the past average, with exponentially fading weights."""

    horizon_s: float
    """Time constant."""
    _mean: DemandMatrix = field(init=False)
    _seen_s: float = field(init=False, default=-math.inf)

    def see(self, wanted_mbps: DemandMatrix, now_s: float, /) -> None:
        if math.isinf(self._seen_s):
            self._mean = wanted_mbps
        weight = -math.expm1((self._seen_s - now_s) / self.horizon_s)
        self._mean = self._mean + weight * (wanted_mbps - self._mean)
        self._seen_s = now_s

    def mean_mbps(self) -> DemandMatrix:
        return self._mean


@dataclass(slots=True)
class Peak:
    """Demand of each pair equals its peak within the past horizon."""

    horizon_s: float
    _peaks: deque[tuple[float, DemandMatrix]] = field(init=False, default_factory=deque)
    """Start and peak demands of each part of the horizon."""

    def see(self, wanted_mbps: DemandMatrix, now_s: float, /) -> None:
        while self._peaks and now_s - self._peaks[0][0] > self.horizon_s:
            self._peaks.popleft()
        if self._peaks and now_s - self._peaks[-1][0] < self.horizon_s / _BUCKETS:
            since_s, peak = self._peaks[-1]
            self._peaks[-1] = since_s, np.maximum(peak, wanted_mbps)
        else:
            self._peaks.append((now_s, wanted_mbps))

    def mean_mbps(self) -> DemandMatrix:
        found = self._peaks[0][1]
        for _, peak in self._peaks:
            found = np.maximum(found, peak)
        return found


@dataclass(slots=True)
class Holt:
    """Demand continues its growth or decline."""

    horizon_s: float
    """Time constant of the level and of the trend."""
    _level: DemandMatrix = field(init=False)
    _per_s: DemandMatrix = field(init=False)
    _seen_s: float = field(init=False, default=-math.inf)

    def see(self, wanted_mbps: DemandMatrix, now_s: float, /) -> None:
        elapsed_s = now_s - self._seen_s
        self._seen_s = now_s
        if not math.isfinite(elapsed_s):
            self._level, self._per_s = wanted_mbps, np.zeros_like(wanted_mbps)
            return
        weight = -math.expm1(-elapsed_s / self.horizon_s)
        before = self._level
        expected = before + self._per_s * elapsed_s
        self._level = np.maximum(expected + weight * (wanted_mbps - expected), 0.0)
        self._per_s = self._per_s + weight * ((self._level - before) / elapsed_s - self._per_s)

    def mean_mbps(self) -> DemandMatrix:
        return np.maximum(self._level + self._per_s * (self.horizon_s / 2), 0.0)


@dataclass(slots=True)
class Seasonal:
    """Demand repeats every ``season_s``; constant until the first season is complete."""

    season_s: float
    horizon_s: float
    _means: dict[int, DemandMatrix] = field(init=False, default_factory=dict)
    """Mean over past seasons, by phase."""
    _phase: int = field(init=False, default=-1)
    _sum: DemandMatrix = field(init=False)
    _count: int = field(init=False, default=0)
    _wanted: DemandMatrix = field(init=False)
    _seen_s: float = field(init=False, default=0.0)

    def see(self, wanted_mbps: DemandMatrix, now_s: float, /) -> None:
        phase = self._phase_of(now_s)
        if phase != self._phase:
            self._close()
            self._phase, self._sum, self._count = phase, np.zeros_like(wanted_mbps), 0
        self._sum = self._sum + wanted_mbps
        self._count += 1
        self._wanted, self._seen_s = wanted_mbps, now_s

    def mean_mbps(self) -> DemandMatrix:
        ahead_s = min(self.horizon_s, self.season_s)
        steps = max(1, round(ahead_s / self.season_s * _PHASES))
        total = np.zeros_like(self._wanted)
        for step in range(steps):
            phase = self._phase_of(self._seen_s + (step + 0.5) * ahead_s / steps)
            total += self._means.get(phase, self._wanted)
        return total / steps

    def _phase_of(self, at_s: float) -> int:
        return int(at_s % self.season_s / self.season_s * _PHASES) % _PHASES

    def _close(self) -> None:
        """Add the readings of a phase to its mean."""
        if not self._count:
            return
        seen = self._sum / self._count
        before = self._means.get(self._phase, seen)
        self._means[self._phase] = before + _NEW_SEASON * (seen - before)


@dataclass(slots=True)
class ErrorWatch:
    """Errors of a forecast: predicted and actual means, horizon by horizon."""

    _prediction: DemandMatrix | None = field(init=False, default=None)
    _since_s: float = field(init=False, default=0.0)
    _until_s: float = field(init=False, default=0.0)
    _received_mbit: DemandMatrix = field(init=False)
    _last: DemandMatrix = field(init=False)
    _last_s: float = field(init=False, default=0.0)
    _missed: float = field(init=False, default=0.0)
    _wanted: float = field(init=False, default=0.0)
    error_mbps: DemandMatrix | None = field(init=False, default=None)
    """Mean absolute error of each pair, shape (N, N), recent checks weighted most."""

    @property
    def share(self) -> float | None:
        """Sum of absolute errors of all pairs, as a share of the demand; None: unknown."""
        return self._missed / self._wanted if self._wanted else None

    def see(self, wanted_mbps: DemandMatrix, now_s: float) -> None:
        """Take the present demand."""
        if self._prediction is not None:
            self._received_mbit = self._received_mbit + self._last * (now_s - self._last_s)
            if now_s >= self._until_s and now_s > self._since_s:
                self._check(self._prediction, self._received_mbit / (now_s - self._since_s))
                self._prediction = None
        self._last, self._last_s = wanted_mbps, now_s

    def predicted(self, mean_mbps: DemandMatrix, horizon_s: float) -> None:
        """Note a prediction after the last reading, unless an earlier prediction is being
        checked.
        """
        if self._prediction is None:
            self._prediction, self._received_mbit = mean_mbps, np.zeros_like(mean_mbps)
            self._since_s, self._until_s = self._last_s, self._last_s + horizon_s

    def _check(self, predicted: DemandMatrix, came: DemandMatrix) -> None:
        missed = np.abs(predicted - came)
        before = self.error_mbps
        self.error_mbps = missed if before is None else before + _NEW_CHECK * (missed - before)
        self._missed += _NEW_CHECK * (float(missed.sum()) - self._missed)
        self._wanted += _NEW_CHECK * (float(came.sum()) - self._wanted)


class PredictionReport(NamedTuple):
    """Fields as in :class:`hydra.service.DemandReport`."""

    predicted_mbps: DemandMatrix | None = None
    """None: demand stays as it is."""
    error_mbps: DemandMatrix | None = None
    error_share: float | None = None


class Forecast:
    """The predictor of the policy, and its errors; a new choice resets both."""

    def __init__(self, policy: CurrentPolicy) -> None:
        self._policy = policy
        self._chosen: tuple[Prediction, float, float] | None = None
        self._predictor: Predictor = Last()
        self._errors = ErrorWatch()
        self._latest_report = PredictionReport()

    def see(self, wanted_mbps: DemandMatrix, now_s: float) -> None:
        """Take the present demand, Mbps of shape (N, N); times must increase."""
        horizon_s = self._policy.in_force.prediction_horizon_s
        chosen = self._policy.now.prediction, horizon_s, self._policy.now.season_s
        if chosen != self._chosen:
            self._chosen, self._errors = chosen, ErrorWatch()
            self._predictor = _predictor(*chosen)
        self._predictor.see(wanted_mbps, now_s)
        mean = self._predictor.mean_mbps()
        self._errors.see(wanted_mbps, now_s)
        self._errors.predicted(mean, horizon_s)
        self._latest_report = PredictionReport(
            None if self._policy.now.prediction is Prediction.LAST else self._elephants(mean),
            self._errors.error_mbps,
            self._errors.share,
        )

    def _elephants(self, mean: DemandMatrix) -> DemandMatrix:
        policy = self._policy.now
        return np.where(mean >= policy.elephant_mbps * policy.elephant_release, mean, 0.0)

    def latest_report(self) -> PredictionReport:
        """The prediction from the last reading; for any thread."""
        return self._latest_report


def _predictor(kind: Prediction, horizon_s: float, season_s: float) -> Predictor:
    match kind:
        case Prediction.LAST:
            return Last()
        case Prediction.EWMA:
            return Ewma(horizon_s)
        case Prediction.PEAK:
            return Peak(horizon_s)
        case Prediction.HOLT:
            return Holt(horizon_s)
        case Prediction.SEASONAL:
            return Seasonal(season_s=season_s, horizon_s=horizon_s)
