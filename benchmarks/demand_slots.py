"""Weeks of slots planned for the expected demand, against weeks planned for the possible demand.

``python -m benchmarks.demand_slots [--cases N] [--first SEED]``. Cases, counters and the estimator
are those of :mod:`benchmarks.demand`, up to 40 racks, after the first reading. Each week is judged
by the true demand in two ways: by rates, slot by slot, as in :mod:`benchmarks.demand`; and by
light, since traffic can wait for its slot: a pair has at most its share of the week on a circuit.
The oracle's week is planned for the true demand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from rich.progress import track

from benchmarks._demand_cases import Case, Network, draw
from benchmarks._demands import RATE_MBPS
from benchmarks._report import Result, report, run_benchmark
from benchmarks.demand import Ours, start_of, trivial
from hydra.model import EMPTY_TOPOLOGY, DemandMatrix
from topology.algorithms import algorithm
from topology.demand import served_mbps
from topology.duplex import topologies
from topology.problem import Budget, Reserved, Timing

CASES: Final = 600
MOST_RACKS: Final = 40
TIMING: Final = Timing(window_s=10.0, switching_s=0.3, shortest_s=1.0)
_ALIKE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Served:
    """Served rates, relative to the oracle's week."""

    by_rate: float
    by_light: float


@dataclass(frozen=True, slots=True)
class Outcome:
    guessed: bool
    """True if the expected demand differs from the possible demand."""
    expected: Served
    wanted: Served


def judge(seed: int) -> Outcome | None:
    """The result of a case; None without demand, or with too many racks."""
    case, random = draw(seed)
    if not len(case.flows.src) or case.fabric.n_racks > MOST_RACKS:
        return None
    truth = case.by_racks(case.truth())
    if trivial(case, truth):
        return None
    estimator = Ours(case)
    network = Network(case, start_of(case, random))
    expected = estimator(case, network, network.counted(case.flows, np.random.default_rng(seed)))
    best = week(case, truth, truth)

    def served(demand: DemandMatrix) -> Served:
        found = week(case, demand, truth)
        return Served(*(share / of if of else 1.0 for share, of in zip(found, best, strict=True)))

    apart = np.abs(estimator.wanted - expected).sum() > _ALIKE * estimator.wanted.sum()
    return Outcome(bool(apart), served(expected), served(estimator.wanted))


def week(case: Case, demand: DemandMatrix, truth: DemandMatrix) -> tuple[float, float]:
    """Served Mbps of the true demand by a week planned for ``demand``: by rate, by light."""
    result = algorithm("tms-duplex")(
        case.fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(1, timing=TIMING)
    )
    electrical = case.electrical_rack_mbps
    days_s = sum(slot.duration_s for slot in result.slots)
    by_rate, light = 0.0, np.zeros_like(truth)
    for slot, standing in zip(result.slots, topologies(case.fabric, result), strict=True):
        now = served_mbps(case.fabric, standing, truth, electrical, electrical)
        by_rate += float(now.sum()) * slot.duration_s / days_s
        for path in standing.paths:
            for pair in path.directions:
                light[pair] += RATE_MBPS * slot.duration_s / TIMING.window_s
    return by_rate, float(np.minimum(truth, light).sum())


def rows(found: Sequence[Outcome]) -> Iterator[Result]:
    figures: list[tuple[str, Callable[[list[float]], object]]] = [
        ("mean", np.mean),
        ("worst tenth", partial(np.percentile, q=10)),
        ("worst hundredth", partial(np.percentile, q=1)),
    ]
    for name, some in (("all", found), ("guesses", [case for case in found if case.guessed])):
        for measure in ("by_rate", "by_light"):
            ours = [100 * getattr(case.expected, measure) for case in some]
            before = [100 * getattr(case.wanted, measure) for case in some]
            for metric, figure in figures:
                metric_name = f"served of the oracle's, {measure.replace('_', ' ')}, {metric}"
                values = float(str(figure(ours))), float(str(figure(before)))
                case = f"{name}, {len(some)} cases"
                yield Result(
                    case, metric_name, "%", "higher", *values, "planned for what may be wanted"
                )


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demand_slots")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    given = parser.parse_args(argv)
    seeds = range(given.first, given.first + given.cases)
    judged = map(judge, track(seeds, "demand_slots", transient=True))
    return report("demand_slots", [*rows([case for case in judged if case is not None])])


if __name__ == "__main__":
    run_benchmark(main)
