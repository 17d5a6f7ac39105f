"""Every topology algorithm: time, memory, and served demand.

``python -m benchmarks.topology``. Each case runs in a separate process, so that memory and first
calls are separate, too, and is given up after a time limit; times are processor times, so that
other work does not count. The baselines solve the same problem with networkx, rustworkx and scipy,
in the usual way; slow baselines run on a smaller network, which the figure names.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import numpy as np

from apps.offline.study import plain_fabric
from benchmarks._baselines import (
    BASELINES,
    BASELINES_OF,
    MAX_HOPS,
    RATE_MBPS,
    Prepared,
    Way,
    plain_estimate,
)
from benchmarks._report import Result, report, run_benchmark
from benchmarks._timing import median_ms
from hydra.model import EMPTY_TOPOLOGY
from topology.algorithms import ENTRIES, Product, algorithm
from topology.bounds import served_share_bound
from topology.demand import estimate_flows
from topology.problem import Budget, FabricArrays, Reserved
from topology.synthetic import synthetic_demand

SEED = 1
LOAD = 0.9
"""Rate of the busiest rack, as a part of its ports' rates."""
LIMIT_S = 20
"""Limit of processor time for a case."""
REPEAT_S = 1.0
CASES = (
    (64, 8, "sparse"),
    (64, 8, "gravity"),
    (320, 32, "sparse"),
    (320, 32, "gravity"),
    (1000, 32, "sparse"),
)
ESTIMATE_TARGET_MS = 40.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of a way to plan, for a case."""

    first_ms: float
    typical_ms: float
    peak_mb: float
    """Memory in addition to the libraries' memory."""
    value: float
    """Served share of the demand; for baselines that plan matchings, the weight."""


# --- in a process of its own ----------------------------------------------------------------


def measure(way: str, racks: int, planes: int, kind: str) -> Measured:
    plan = BASELINES[way] if way in BASELINES else _registered(way)
    demand = _demand(racks, planes, kind)
    plan_it = plan(racks, planes, demand)
    before_kb = _peak_kb(reset=True)
    started_s = time.process_time()
    value = plan_it()
    first_ms = typical_ms = (time.process_time() - started_s) * 1000
    # The mean of many calls: the processor clock ticks only a few hundred times a second.
    started_s, times = time.process_time(), 0
    while first_ms < REPEAT_S * 1000 and typical_ms * times < REPEAT_S * 1000:
        plan_it()
        times += 1
        typical_ms = (time.process_time() - started_s) * 1000 / times
    more_kb = _peak_kb() - before_kb
    return Measured(first_ms, typical_ms, more_kb / 1024, value)


def _peak_kb(*, reset: bool = False) -> int:
    """Peak memory of this process since the last reset (proc(5))."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def _demand(racks: int, planes: int, kind: str) -> np.ndarray:
    return synthetic_demand(kind, racks, SEED, LOAD * planes * RATE_MBPS)


def _registered(name: str) -> Way:
    def prepare(racks: int, planes: int, demand: np.ndarray) -> Prepared:
        fabric = FabricArrays.of(plain_fabric(racks, planes, RATE_MBPS))
        plan, budget = algorithm(name), Budget(MAX_HOPS)
        return lambda: plan(fabric, demand, EMPTY_TOPOLOGY, Reserved(), budget).served_share

    return prepare


# --- the table ------------------------------------------------------------------------------


def attempt(way: str, racks: int, planes: int, kind: str) -> Measured | None:
    """The result; None after the time limit."""
    command = [sys.executable, "-m", "benchmarks.topology", "--one", way]
    arguments = ["--racks", str(racks), "--planes", str(planes), "--kind", kind]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGXCPU:
        return None
    if done.returncode:
        sys.exit(f"{way} failed on {racks} racks:\n{done.stderr}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def compare_algorithms() -> Iterator[Result]:
    slow: set[str] = set()
    for racks, planes, kind in CASES:
        case = f"{racks} racks, {planes} planes, {kind}"
        fabric = FabricArrays.of(plain_fabric(racks, planes, RATE_MBPS))
        demand = _demand(racks, planes, kind)
        baselines = {
            way: None if way in slow else attempt(way, racks, planes, kind) for way in BASELINES
        }
        slow |= {way for way, measured in baselines.items() if measured is None}
        print(case, flush=True)
        too_long = f"more than {LIMIT_S:g} s of processor time"
        for way, measured in baselines.items():
            if measured is None:
                yield _unplanned(case, way, too_long)
        for name, entry in ENTRIES.items():
            objection = entry.objection(fabric)
            measured = None if objection or name in slow else attempt(name, racks, planes, kind)
            if measured is None:
                yield _unplanned(case, name, objection or too_long)
                slow |= set() if objection else {name}
                continue
            one_way = entry.product is not Product.CIRCUITS
            bound = served_share_bound(fabric, demand, one_way=one_way)
            yield _quality(case, name, measured, bound)
            for way in BASELINES_OF.get(name, ()):
                baseline = baselines[way]
                if baseline is not None:
                    yield from _cost(case, name, measured, way, baseline)


def _quality(case: str, name: str, measured: Measured, bound: float | None) -> Result:
    return Result(
        f"{name}: {case}",
        "demand served",
        "%",
        "higher",
        100 * measured.value,
        100 * (1.0 if bound is None else bound),
        "no plan serves more",
    )


def _cost(
    case: str, name: str, measured: Measured, way: str, baseline: Measured
) -> Iterator[Result]:
    served = f"{way}, serves {100 * baseline.value:.1f} %"
    for metric, unit, ours, theirs in (
        ("planning time", "ms", measured.typical_ms, baseline.typical_ms),
        ("the first time", "ms", measured.first_ms, baseline.first_ms),
        ("memory", "MB", measured.peak_mb, baseline.peak_mb),
    ):
        yield Result(f"{name}: {case}", metric, unit, "lower", ours, theirs, served)


def _unplanned(case: str, name: str, why: str) -> Result:
    return Result(f"{name}: {case}", "demand served", "%", "higher", nan, note=why)


def import_times() -> Iterator[Result]:
    """Results for the time in which a fresh Python loads the algorithms."""

    def importing(module: str) -> Callable[[int], object]:
        command = [sys.executable, "-c", f"import {module}"]
        return lambda _: subprocess.run(command, check=True)

    ways = {"python": importing("sys"), "ours": importing("topology.algorithms")}
    ways |= {"networkx": importing("networkx"), "scipy": importing("scipy.optimize")}
    times = median_ms(ways, 3)
    for baseline in ("networkx", "scipy"):
        yield Result(
            "import of topology.algorithms",
            "time of a fresh process",
            "ms",
            "lower",
            times["ours"],
            times[baseline],
            f"import {baseline}; Python alone {times['python']:.0f} ms",
        )


# --- demand estimation ----------------------------------------------------------------------


def _flows(racks: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(SEED)
    weight = random.lognormal(0, 1, (2, racks))
    src, dst = (random.choice(racks, count, p=w / w.sum()) for w in weight)
    return src[src != dst], dst[src != dst]


def estimates() -> Iterator[Result]:
    for racks, count, target in ((320, 16_384, None), (1000, 250_000, ESTIMATE_TARGET_MS)):
        src, dst = _flows(racks, count)
        capacity = np.full(racks, RATE_MBPS)
        ours = estimate_flows(src, dst, capacity, capacity)
        plain = plain_estimate(src, dst, racks, RATE_MBPS)
        if not np.allclose(ours, plain, rtol=1e-4, atol=1e-3):
            sys.exit("the estimate differs from the plain one")
        times = median_ms(
            {
                "ours": lambda _, s=src, d=dst, c=capacity: estimate_flows(s, d, c, c),
                "plain": lambda _, s=src, d=dst, n=racks: plain_estimate(s, d, n, RATE_MBPS),
            },
            3,
        )
        yield Result(
            f"demand of {count:,} flows, {racks} racks",
            "estimation time",
            "ms",
            "lower",
            times["ours"],
            times["plain"],
            "Hedera's loop in Python",
            target,
        )


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topology")
    parser.add_argument("--one", metavar="ALGORITHM")
    parser.add_argument("--racks", type=int)
    parser.add_argument("--planes", type=int)
    parser.add_argument("--kind")
    given = parser.parse_args(argv)
    if given.one is None:
        return report("topology", [*compare_algorithms(), *import_times(), *estimates()])
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
    measured = measure(given.one, given.racks, given.planes, given.kind)
    fields = ("first_ms", "typical_ms", "peak_mb", "value")
    print(json.dumps({name: getattr(measured, name) for name in fields}))
    return 0


if __name__ == "__main__":
    run_benchmark(main)
