"""Matchings compared with networkx, rustworkx and scipy, on the same weights.

``python -m benchmarks.matchings``. Edmonds: the heaviest matching of all racks. Helios: 32 planes
of one-way light paths; scipy plans the planes in turn, as the paper does, HydRA plans them at once.
Results are compared before the measurement of processor time. Baselines that take minutes are left
out: networkx beyond 64 racks; rustworkx on products of rack weights (gravity) at 1000. There
scipy's assignment takes the place of rustworkx, and gives only the bound, without a matching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import process_time

import networkx as nx
import numpy as np
import rustworkx
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from benchmarks._report import Result, report, run_benchmark
from benchmarks._timing import median_ms
from topology.bmatching import heaviest_b_matching
from topology.colouring import colour_edges
from topology.layers import whole_units
from topology.matching import heaviest_matching
from topology.synthetic import synthetic_demand

RATE_MBPS = 10_000.0
PLANES = 32
LOAD = 0.7
SEED = 1
EDMONDS_TARGET_MS = 100.0
EDMONDS_TARGET = 35.0
HELIOS_TARGET = 8.0
KINDS = ("uniform", "gravity", "sparse")


def demand_of(kind: str, n: int) -> NDArray[np.int64]:
    """Demand of a kind, shape (n, n), in bit/s."""
    return whole_units(synthetic_demand(kind, n, SEED, LOAD * PLANES * RATE_MBPS))


def total(pairs: Iterable[tuple[int, int]], weight: NDArray[np.int64]) -> int:
    return sum(int(weight[a, b]) for a, b in pairs)


def with_rustworkx(weight: NDArray[np.int64]) -> int:
    rows, columns = np.nonzero(np.triu(weight))
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(weight)))
    edges = zip(rows.tolist(), columns.tolist(), weight[rows, columns].tolist(), strict=True)
    graph.add_edges_from(list(edges))
    return total(rustworkx.max_weight_matching(graph, weight_fn=int), weight)


def with_networkx(weight: NDArray[np.int64]) -> int:
    return total(nx.max_weight_matching(nx.from_numpy_array(weight)), weight)


def edmonds(kind: str, n: int, runs: int) -> list[Result]:
    demand = demand_of(kind, n)
    weight = np.minimum(np.maximum(demand, demand.T), whole_units(np.array(RATE_MBPS)))
    found = heaviest_matching(weight)
    ways: dict[str, Callable[[int], object]] = {"ours": lambda _run: heaviest_matching(weight)}
    if kind == "gravity" and n == 1000:
        ways["scipy, assignment"] = lambda _run: linear_sum_assignment(weight, maximize=True)
    else:
        if not found.weight <= with_rustworkx(weight) <= found.bound:
            raise SystemExit("the heaviest matching is outside the bounds: nothing to compare")
        ways["rustworkx"] = lambda _run: with_rustworkx(weight)
    if n <= 64:
        ways["networkx"] = lambda _run: with_networkx(weight)
    times = median_ms(ways, runs, process_time)
    metric = f"heaviest matching, median of {runs}"
    results = [
        Result(
            f"{n} racks, {kind}",
            metric,
            "ms",
            "lower",
            times["ours"],
            times[baseline],
            baseline,
            EDMONDS_TARGET_MS if n == 1000 else None,
        )
        for baseline in ways
        if baseline != "ours"
    ]
    if n == 1000 and "rustworkx" in ways:
        results.append(speed_up(results[0], "rustworkx", EDMONDS_TARGET))
    percent = 100 * found.weight / found.bound
    results.append(
        Result(results[0].case, "weight, of its bound", "%", "higher", percent, 100.0, "the bound")
    )
    return results


def speed_up(result: Result, baseline: str, target: float) -> Result:
    factor = result.baseline / result.ours
    metric = f"as fast as {baseline}"
    return Result(result.case, metric, "x", "higher", factor, 1.0, baseline, target)


def at_once(demand: NDArray[np.int64], capacity: NDArray[np.int64]) -> int:
    n = len(demand)
    degree = np.full(n, PLANES)
    everywhere = np.ones((n, PLANES), dtype=bool)
    found = heaviest_b_matching(demand, capacity, degree, degree)
    if (colour_edges(found.rows, found.columns, everywhere, everywhere) < 0).any():
        raise SystemExit("a light path found no plane")
    return found.weight


def in_turn(demand: NDArray[np.int64], capacity: NDArray[np.int64]) -> int:
    left, value = demand.copy(), 0
    for _ in range(PLANES):
        weight = np.minimum(left, capacity)
        rows, columns = linear_sum_assignment(weight, maximize=True)
        value += int(weight[rows, columns].sum())
        left[rows, columns] -= weight[rows, columns]
    return value


def helios(kind: str, n: int, runs: int) -> list[Result]:
    demand = demand_of(kind, n)
    capacity = np.full((n, n), whole_units(np.array(RATE_MBPS)))
    ways = {
        "ours": lambda _run: at_once(demand, capacity),
        "scipy": lambda _run: in_turn(demand, capacity),
    }
    case = f"{n} racks, {PLANES} planes, {kind}"
    share = {name: 100 * way(0) / demand.sum() for name, way in ways.items()}
    times = median_ms(ways, runs, process_time)
    time = Result(
        case,
        f"light paths planned, median of {runs}",
        "ms",
        "lower",
        times["ours"],
        times["scipy"],
        "scipy, in turn",
    )
    served = Result(
        case,
        "demand served",
        "%",
        "higher",
        share["ours"],
        share["scipy"],
        "in turn",
        share["scipy"],
    )
    return [time, speed_up(time, "scipy", HELIOS_TARGET), served]


def main() -> int:
    results = []
    for n, runs in ((64, 7), (320, 5), (1000, 1)):
        for kind in KINDS:
            results += edmonds(kind, n, runs)
    for n, runs in ((320, 3), (1000, 1)):
        for kind in KINDS:
            results += helios(kind, n, runs)
    return report("matchings", results)


if __name__ == "__main__":
    run_benchmark(main)
