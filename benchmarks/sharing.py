"""``sharing: auto`` compared with the fixed ways of sharing, on the tournament's workloads.

``python -m benchmarks.sharing [--algorithm NAME] [--racks N] [--planes N] [--seed N]
[--no-catch-up] [--trace FILE]``. Each figure is the part of the demand carried by circuits and the
electrical network, less the cost of changes, as counted by ``hydra replay``. With
``--no-catch-up``, traffic that misses its slot is not sent later. With ``--trace``, windows of a
trace are played instead, each for one decision.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from apps.offline.rehearsal import Rehearsal
from apps.offline.replay import Variant, replay
from apps.planning.rates import Rates
from apps.traces.reading import read_trace, summarise
from apps.traces.windows import Window, rack_numbers, windows
from benchmarks._demands import RATE_MBPS
from benchmarks._report import Result, report, run_benchmark
from hydra.model import Fabric
from hydra.policy import Policy, Sharing
from mininet_scenarios.experiments.tournament import policy_matrix
from mininet_scenarios.experiments.tournament.experiment import Size, workloads

ELECTRICAL_SHARE: Final = 0.1
SEED: Final = 1
PERIODS: Final = 4
PERIOD_S: Final = 10.0
_FIXED: Final = tuple(kind for kind in Sharing if kind is not Sharing.AUTO)
_POINT: Final = 1.0


def _of_tournament(
    fabric: Fabric, base: Policy, size: Size, seed: int, *, catches_up: bool
) -> Iterator[Result]:
    for name, make in workloads(size, seed).items():
        trace = policy_matrix.trace_of(fabric, make(), size.window_s)
        served = {
            sharing: 100
            * replay(
                fabric,
                base,
                trace,
                Variant(sharing.value, replace(base, sharing=sharing)),
                policy_matrix.OUTAGE_S,
                catches_up=catches_up,
            ).served_share
            for sharing in Sharing
        }
        best = max(served[sharing] for sharing in _FIXED)
        for sharing in Sharing:
            goal = best - _POINT if sharing is Sharing.AUTO else None
            case = f"{name}, {sharing.value}"
            yield Result(case, "served", "%", "higher", served[sharing], best, "best fixed", goal)


def _of_windows(fabric: Fabric, base: Policy, cut: Sequence[Window]) -> Iterator[Result]:
    shares: dict[Sharing, list[tuple[float, float]]] = {}
    for sharing in (Sharing.BY_DEMAND, Sharing.SLOTTED, Sharing.AUTO):
        loop = Rehearsal(fabric, replace(base, sharing=sharing), policy_matrix.OUTAGE_S)
        judge = Rates(fabric)
        for window in cut:
            loop.see(window.start_s, window.demand_mbps, window.demand_mbps)
            loop.step(window.start_s)
            served = loop.served_mbps(judge, window.demand_mbps)
            shares.setdefault(sharing, []).append((served, window.total_mbps))
            share = served / window.total_mbps
            print(f"{sharing.value}, window {window.number}: {share:.4f}", flush=True)
    for sharing, found in shares.items():
        total = 100 * sum(mbps for mbps, _ in found) / sum(wanted for _, wanted in found)
        worst = min(100 * mbps / wanted for mbps, wanted in found)
        goal = 95.0 if sharing is Sharing.AUTO else None
        yield Result(f"trace, {sharing.value}", "served", "%", "higher", total)
        yield Result(
            f"trace, {sharing.value}", "worst window", "%", "higher", worst, None, "", goal
        )


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing")
    parser.add_argument("--algorithm", default="hydra-bfs+")
    parser.add_argument("--racks", type=int, default=16)
    parser.add_argument("--planes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--no-catch-up", action="store_true", help="traffic of constant rates")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--window-s", type=float, default=300.0)
    given = parser.parse_args(argv)
    fabric = policy_matrix.fabric(given.racks, given.planes, RATE_MBPS, ELECTRICAL_SHARE)
    base = replace(policy_matrix.base_policy(RATE_MBPS), algorithm=given.algorithm)
    if given.trace is None:
        size = Size(given.racks, given.planes, PERIODS, PERIOD_S)
        catches_up = not given.no_catch_up
        results = list(_of_tournament(fabric, base, size, given.seed, catches_up=catches_up))
    else:
        numbers: Mapping[str, int] = rack_numbers(
            summarise(given.trace).racks, given.racks, fold=False
        )
        cut = list(windows(read_trace(given.trace), numbers, given.racks, given.window_s))
        results = list(_of_windows(fabric, replace(base, elephant_mbps=0.0), cut))
    return report("sharing", results)


if __name__ == "__main__":
    run_benchmark(main)
