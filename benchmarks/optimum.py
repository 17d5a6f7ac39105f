"""Plans compared with proven optima and bounds.

``python -m benchmarks.optimum [INSTANCES]``. Every instance is a fabric of 8 racks on 4 planes and
a demand of one of five kinds at one of two loads. HiGHS (``scipy.optimize.milp``) finds the largest
share that any circuits could serve over at most 3 hops if a pair's demand could be split freely.
Times are processor times, in the same run.

``python -m benchmarks.optimum --large`` compares plans for larger fabrics with the bound of
:func:`topology.bounds.served_share_bound`.

``python -m benchmarks.optimum --by-rules [INSTANCES]`` compares plans with the optimum under the
data plane's own rules, on 6 racks and 3 planes: a pair has one path, or several paths that share
its flows evenly (:func:`benchmarks._rules.optimum_by_rules`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from statistics import mean, median
from time import process_time

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array

from benchmarks._demands import RATE_MBPS, full_fabric, scaled
from benchmarks._report import Result, report, run_benchmark
from benchmarks._rules import GAP, optimum_by_rules
from hydra.model import EMPTY_TOPOLOGY, Topology
from topology.algorithms import ENTRIES, Product
from topology.bounds import served_share_bound
from topology.problem import Budget, FabricArrays, PlanResult, Reserved, pair_demands

RACKS = 8
PLANES = 4
MAX_HOPS = 3
LOADS = (0.5, 0.9)
"""Load of the busiest rack, as a part of its ports' rate."""
INSTANCES = 240
DEFAULT = "anytime"
MEAN_TARGET, WORST_TARGET, TIME_TARGET = 0.97, 0.90, 0.1
ALL_TO_ALLS = ((8, 2), (32, 4), (64, 8), (128, 8))
MANY_JOBS = ((64, 8), (128, 16), (320, 32))
LARGE_KINDS = ("sparse", "dense", "gravity")
SERVED_TARGETS = {(32, "all-to-all"): 0.92, (64, "all-to-all"): 1.0, (128, "all-to-all"): 0.99}
"""By racks and kind: target share of the demand for the default algorithm, if not the bound."""
NEAR_TARGET = {"all-to-all": 1e-6, "jobs": 0.01}
"""Target distance of the default algorithm from the bound, by kind."""
LARGEST, POINTS_TARGET, TIME_TARGET_MS = 320, 0.02, 1000.0
"""Target distance on the largest fabric for all kinds, and target time of a plan."""
RULED_RACKS, RULED_PLANES = 6, 3
RULED_INSTANCES = 100
RULED_MEAN_TARGET, RULED_WORST_TARGET = 0.99, 0.95
_GAP = 1e-6
"""Relative distance from the optimum at which HiGHS stops."""

Matrix = NDArray[np.float64]


def _sparse(random: np.random.Generator, racks: int) -> Matrix:
    return random.uniform(1, 10, (racks, racks)) * (random.random((racks, racks)) < 0.3)


def _dense(random: np.random.Generator, racks: int) -> Matrix:
    return random.uniform(0.5, 1.5, (racks, racks))


def _gravity(random: np.random.Generator, racks: int) -> Matrix:
    out, into = random.lognormal(0, 1, (2, racks))
    return np.outer(out, into)


def _elephants(random: np.random.Generator, racks: int) -> Matrix:
    demand = random.uniform(0, 0.2, (racks, racks))
    demand[np.arange(racks), random.permutation(racks)] += 5
    return demand


def _jobs(random: np.random.Generator, racks: int) -> Matrix:
    """Rings and all-to-alls of equal rates."""
    demand = np.zeros((racks, racks))
    for _ in range(3):
        job = random.choice(racks, random.integers(3, min(7, racks + 1)), replace=False)
        if random.random() < 0.5:
            demand[job, np.roll(job, 1)] += 4
        else:
            demand[np.ix_(job, job)] += 1
    return demand


KINDS: dict[str, Callable[[np.random.Generator, int], Matrix]] = {
    "sparse": _sparse,
    "dense": _dense,
    "gravity": _gravity,
    "elephants": _elephants,
    "jobs": _jobs,
}


@dataclass(frozen=True, slots=True)
class Instance:
    name: str
    demand: Matrix


def instances(count: int, racks: int = RACKS, planes: int = PLANES) -> Iterator[Instance]:
    cases = [(kind, load) for kind in KINDS for load in LOADS]
    for number in range(count):
        kind, load = cases[number % len(cases)]
        demand = KINDS[kind](np.random.default_rng(number), racks)
        np.fill_diagonal(demand, 0.0)
        busiest = max(demand.sum(axis=0).max(), demand.sum(axis=1).max())
        yield Instance(
            f"{kind}, load {load}", demand * (load * planes * RATE_MBPS / max(busiest, 1e-9))
        )


def optimum(demand: Matrix, planes: int) -> float:
    """The share served by the best circuits, with each pair split freely over paths of 3 hops.

    Variables are integer numbers of circuits between racks, within the limit of the planes: a rack
    has one circuit per plane, and with an odd number of racks, each plane leaves out a rack.
    Circuits within both limits may still not fit on the planes (Seymour, 1979): then the result is
    slightly above the optimum.
    """
    pairs = pair_demands(demand)
    if not len(pairs):
        return 1.0
    racks = len(demand)
    edges = list(combinations(range(racks), 2))
    place = {edge: number for number, edge in enumerate(edges)}
    ways = list(_ways(pairs.src.tolist(), pairs.dst.tolist(), racks))
    n_ways, n_edges, n_pairs = len(ways), len(edges), len(pairs)
    entries = [(way, pair, 1.0) for way, (pair, _) in enumerate(ways)]
    for way, (_, along) in enumerate(ways):
        entries += [(way, n_pairs + place[hop], 1.0) for hop in _hops(along)]
    entries += [(n_ways + edge, n_pairs + edge, -RATE_MBPS) for edge in range(n_edges)]
    limits = [*pairs.mbps.tolist(), *[0.0] * n_edges]
    for inside, most in _circuit_limits(edges, racks, planes):
        entries += [(n_ways + edge, len(limits), 1.0) for edge in inside]
        limits.append(float(most))
    columns, rows, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns)), shape=(len(limits), n_ways + n_edges)).tocsr()
    upper = np.concatenate([np.full(n_ways, np.inf), np.full(n_edges, float(planes))])
    solved = milp(
        np.concatenate([-np.ones(n_ways), np.zeros(n_edges)]),
        constraints=LinearConstraint(matrix, ub=np.array(limits)),
        integrality=np.concatenate([np.zeros(n_ways), np.ones(n_edges)]),
        bounds=Bounds(0, upper),
        options={"mip_rel_gap": _GAP},
    )
    if solved.status != 0:
        raise SystemExit(f"HiGHS has no optimum: {solved.message}")
    return float(-solved.fun / pairs.mbps.sum())


def _circuit_limits(
    edges: list[tuple[int, int]], racks: int, planes: int
) -> Iterator[tuple[list[int], int]]:
    """Groups of edges, by position, and the largest number of circuits of each group on all
    planes.
    """
    for size in (1, *range(3, racks + 1, 2)):
        for group in combinations(range(racks), size):
            inside = [
                edge
                for edge, (a, b) in enumerate(edges)
                if (a in group or b in group if size == 1 else a in group and b in group)
            ]
            yield inside, planes * max(1, size // 2)


def served_by_rules(fabric: FabricArrays, demand: Matrix, topology: Topology) -> float:
    """The share served by a plan's paths if each pair's flows are spread evenly over its paths."""
    pairs = pair_demands(demand)
    wanted = {(pair.src, pair.dst): pair.mbps for pair in pairs}
    paths = [path for path in topology.paths if (path.src, path.dst) in wanted]
    if not paths:
        return 0.0 if len(pairs) else 1.0
    number = Counter((path.src, path.dst) for path in paths)
    place = {circuit: row for row, circuit in enumerate(sorted(topology.circuits))}
    entries = [(place[c], column) for column, path in enumerate(paths) for c in path.circuits]
    rows, columns = zip(*entries, strict=True)
    uses = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(place), len(paths)))
    most = [wanted[path.src, path.dst] / number[path.src, path.dst] for path in paths]
    solved = linprog(
        -np.ones(len(paths)),
        A_ub=uses.tocsr(),
        b_ub=[fabric.rate_of(circuit) for circuit in place],
        bounds=[(0.0, share) for share in most],
    )
    return float(-solved.fun / pairs.mbps.sum())


def _hops(racks: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(min(hop), max(hop)) for hop in pairwise(racks)]


def by_rules_rows(count: int) -> Iterator[Result]:
    """Results for the default algorithm, compared with the optimum under the data plane's rules."""
    fabric = full_fabric(RULED_RACKS, RULED_PLANES)
    for most_paths, allowed in ((1, 1), (RULED_PLANES, None)):
        parts, of_free, times, exact_s = [], [], [], []
        for instance in instances(count, RULED_RACKS, RULED_PLANES):
            free = optimum(instance.demand, RULED_PLANES)
            began = process_time()
            plan = ENTRIES[DEFAULT].plan(
                fabric,
                instance.demand,
                EMPTY_TOPOLOGY,
                Reserved(),
                Budget(MAX_HOPS, paths_per_pair=allowed),
            )
            times.append(process_time() - began)
            served = served_by_rules(fabric, instance.demand, plan.topology)
            began = process_time()
            best = free
            if served < free * (1 - GAP):
                limits = RULED_PLANES, RATE_MBPS, MAX_HOPS, most_paths
                best = min(free, optimum_by_rules(instance.demand, *limits, served))
            exact_s.append(process_time() - began)
            parts.append(served / best if best else 1.0)
            of_free.append(served / free if free else 1.0)
            print(f"{instance.name}, {most_paths}: {served:.4f} of {best:.4f}", flush=True)
        case = f"{DEFAULT}, {'one path a pair' if allowed == 1 else 'paths as wanted'}"
        exact, ms = "optimum by the rules", mean(exact_s) * 1000
        yield Result(case, "mean part", "", "higher", mean(parts), 1.0, exact, RULED_MEAN_TARGET)
        yield Result(case, "worst part", "", "higher", min(parts), 1.0, exact, RULED_WORST_TARGET)
        rest = mean(of_free), min(of_free), "worst"
        yield Result(case, "mean part of the optimum without rules", "", "higher", *rest)
        yield Result(case, "mean time", "ms", "lower", mean(times) * 1000, ms, "exact search")


def _ways(src: list[int], dst: list[int], racks: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each pair's position, and the racks along a path, for all paths of at most 3 hops."""
    for pair, (a, b) in enumerate(zip(src, dst, strict=True)):
        others = [rack for rack in range(racks) if rack not in (a, b)]
        for relays in range(MAX_HOPS):
            for between in permutations(others, relays):
                yield pair, (a, *between, b)


def _all_to_all(racks: int) -> Matrix:
    return np.full((racks, racks), 100.0) - np.diag(np.full(racks, 100.0))


def _many_jobs(racks: int, planes: int) -> Matrix:
    """Rings and all-to-alls of 4 to 16 racks, with a load of one half at the busiest rack."""
    random = np.random.default_rng(1)
    demand = np.zeros((racks, racks))
    for _ in range(racks // 4):
        job = random.choice(racks, random.integers(4, 17), replace=False)
        if random.random() < 0.5:
            demand[job, np.roll(job, 1)] += random.uniform(5, 20)
        else:
            demand[np.ix_(job, job)] += random.uniform(0.5, 2)
    np.fill_diagonal(demand, 0.0)
    busiest = max(demand.sum(axis=0).max(), demand.sum(axis=1).max())
    return demand * (0.5 * planes * RATE_MBPS / busiest)


def large_rows() -> Iterator[Result]:
    """Results for fabrics without a proven optimum, compared with the bound and ``hydra-bfs+``."""
    cases = [
        *((racks, planes, "all-to-all", _all_to_all(racks)) for racks, planes in ALL_TO_ALLS),
        *((racks, planes, "jobs", _many_jobs(racks, planes)) for racks, planes in MANY_JOBS),
    ]
    huge = full_fabric(LARGEST, 32)
    cases += [(LARGEST, 32, kind, scaled(kind, huge)) for kind in LARGE_KINDS]
    for racks, planes, kind, demand in cases:
        fabric = full_fabric(racks, planes)
        bound = served_share_bound(fabric, demand, max_hops=MAX_HOPS) or 1.0
        for name, paths in (("hydra-bfs+", 1), (DEFAULT, None)):
            began = process_time()
            result = ENTRIES[name].plan(
                fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(MAX_HOPS, paths_per_pair=paths)
            )
            spent_ms = (process_time() - began) * 1000
            case = f"{racks}x{planes}, {kind}, {name}, {'one path' if paths else 'as wanted'}"
            share = result.served_share
            default, largest = name == DEFAULT, racks == LARGEST
            goal = bound - (POINTS_TARGET if largest else NEAR_TARGET[kind])
            goal = SERVED_TARGETS.get((racks, kind), goal) if default else None
            soon = TIME_TARGET_MS if default and largest else None
            yield Result(case, "served", "of demand", "higher", share, bound, "bound", goal)
            yield Result(case, "time", "ms", "lower", spent_ms, target=soon)
            print(f"{case}: {share:.4f} of at most {bound:.4f}, {spent_ms:.0f} ms", flush=True)


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimum")
    parser.add_argument("instances", type=int, nargs="?")
    parser.add_argument("--large", action="store_true", help="large fabrics, beside bounds")
    parser.add_argument("--by-rules", action="store_true", help="beside the data plane's rules")
    given = parser.parse_args(argv)
    if given.by_rules:
        return report("optimum", list(by_rules_rows(given.instances or RULED_INSTANCES)))
    if given.large:
        return report("optimum", list(large_rows()))
    count = given.instances or INSTANCES
    fabric = full_fabric(RACKS, PLANES)
    variants = [
        (name, paths)
        for name, entry in ENTRIES.items()
        if entry.product is Product.CIRCUITS and name != "static"
        for paths in (1, None)
    ]
    parts: dict[tuple[str, int | None], list[float]] = {variant: [] for variant in variants}
    times: dict[tuple[str, int | None], list[float]] = {variant: [] for variant in variants}
    exact_s: list[float] = []
    bounds: list[float] = []
    by_kind: dict[str, list[float]] = {}
    for instance in instances(count):
        began = process_time()
        best = optimum(instance.demand, PLANES)
        exact_s.append(process_time() - began)
        bounds.append(best / (served_share_bound(fabric, instance.demand) or 1.0))
        for name, paths in variants:
            budget = Budget(MAX_HOPS, paths_per_pair=paths)
            began = process_time()
            result: PlanResult = ENTRIES[name].plan(
                fabric, instance.demand, EMPTY_TOPOLOGY, Reserved(), budget
            )
            times[name, paths].append(process_time() - began)
            part = result.served_share / best if best else 1.0
            parts[name, paths].append(part)
            if (name, paths) == (DEFAULT, None):
                by_kind.setdefault(instance.name, []).append(part)
    rows = []
    for (name, paths), found in parts.items():
        default = (name, paths) == (DEFAULT, None)
        case = f"{name}, {'paths as wanted' if paths is None else 'one path a pair'}"
        for metric, value, target in (
            ("mean part of the optimum", mean(found), MEAN_TARGET),
            ("worst part of the optimum", min(found), WORST_TARGET),
        ):
            goal = target if default else None
            rows.append(Result(case, metric, "", "higher", value, 1.0, "optimum", goal))
        spent, exact = mean(times[name, paths]) * 1000, mean(exact_s) * 1000
        goal = TIME_TARGET * exact if default else None
        rows.append(Result(case, "mean time", "ms", "lower", spent, exact, "HiGHS", goal))
        spent, exact = median(times[name, paths]) * 1000, median(exact_s) * 1000
        rows.append(Result(case, "median time", "ms", "lower", spent, exact, "HiGHS"))
    for kind, found in by_kind.items():
        case = f"{DEFAULT}, {kind}"
        rows.append(Result(case, "mean part", "", "higher", mean(found), min(found), "worst"))
    rows.append(
        Result(
            "bound of the racks' ports",
            "optimum / bound",
            "",
            "higher",
            mean(bounds),
            min(bounds),
            "worst",
        )
    )
    return report("optimum", rows)


if __name__ == "__main__":
    run_benchmark(main)
