"""Every algorithm on every window of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from apps.offline.study import Limits, Outcome, Study
from apps.traces.windows import Window
from hydra.errors import PlanError
from hydra.model import Fabric, NetworkState
from topology.algorithms import ENTRIES


@dataclass(frozen=True, slots=True)
class Attempt:
    """An algorithm on a window."""

    window: int
    start_s: float
    demand_mbps: float
    served_share: float
    """Part of the demand that fits on the circuits."""
    planning_ms: float
    connect: int
    disconnect: int
    """Circuits set up and taken down since the previous window."""
    problems: tuple[str, ...]
    """Problems found by the independent checks."""
    mean_hops: float | None = None
    """Mean number of hops of a path; None for a plan without paths, such as a schedule."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """An algorithm on all windows."""

    algorithm: str
    attempts: tuple[Attempt, ...]
    refused: str = ""
    """Reason why the algorithm can't plan here; then there are no attempts."""

    @property
    def served_share(self) -> float:
        """Part of the demand of all windows together."""
        total = sum(attempt.demand_mbps for attempt in self.attempts)
        served = sum(attempt.served_share * attempt.demand_mbps for attempt in self.attempts)
        return served / total if total else 1.0

    @property
    def worst_share(self) -> float:
        return min((attempt.served_share for attempt in self.attempts), default=1.0)

    @property
    def planning_ms(self) -> float:
        return fmean(attempt.planning_ms for attempt in self.attempts) if self.attempts else 0.0

    @property
    def mean_hops(self) -> float | None:
        """Mean over the windows with paths; None if there are none."""
        hops = [attempt.mean_hops for attempt in self.attempts if attempt.mean_hops is not None]
        return fmean(hops) if hops else None

    @property
    def changes(self) -> float:
        """Mean number of circuits set up or taken down per window."""
        moved = [attempt.connect + attempt.disconnect for attempt in self.attempts]
        return fmean(moved) if moved else 0.0


def compare(
    fabric: Fabric,
    cut: Sequence[Window],
    limits: Limits,
    algorithms: Iterable[str] = tuple(ENTRIES),
    report: Callable[[str], None] = lambda _what: None,
) -> list[Contestant]:
    """Plan every window with every algorithm, each from the algorithm's last topology.

    ``report`` is called with the progress. Raises PlanError for windows of another size,
    UnknownName.
    """
    if not cut:
        raise PlanError("no window holds a flow between racks")
    return [_contest(fabric, cut, limits, name, report) for name in algorithms]


def _contest(
    fabric: Fabric,
    cut: Sequence[Window],
    limits: Limits,
    name: str,
    report: Callable[[str], None],
) -> Contestant:
    attempts: list[Attempt] = []
    current = NetworkState()
    for position, window in enumerate(cut, start=1):
        report(f"{name}: window {position} of {len(cut)}")
        study = Study(fabric, window.demand_mbps, limits, current)
        try:
            outcome = study.run(name, check=True)
        except PlanError as error:
            return Contestant(name, (), str(error))
        if outcome.result is None:
            return Contestant(name, (), outcome.refused)
        attempts.append(_attempt(window, study, outcome))
        # One-way light paths and schedules leave no circuits for the next plan to keep.
        current = outcome.state or current
    return Contestant(name, tuple(attempts))


def _attempt(window: Window, study: Study, outcome: Outcome) -> Attempt:
    now, then = study.current.topology.circuits, outcome.plan.topology.circuits
    return Attempt(
        window.number,
        start_s=window.start_s,
        demand_mbps=window.total_mbps,
        served_share=outcome.plan.served_share,
        planning_ms=outcome.planning_ms,
        connect=len(then - now),
        disconnect=len(now - then),
        mean_hops=outcome.plan.mean_hops if outcome.plan.topology.paths else None,
        problems=outcome.problems or (),
    )
