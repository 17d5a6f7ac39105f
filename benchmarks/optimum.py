"""Plans held against proven optima and bounds: ``python -m benchmarks.optimum [INSTANCES]``.

Every instance is a fabric of 8 racks on 4 planes and a demand of one of five kinds at one of two
loads. HiGHS (``scipy.optimize.milp``) finds the most that any circuits could serve over at most 3
hops if a pair's demand could be split at will. Larger fabrics are held against the
bound of :func:`topology.bounds.served_share_bound`. Times are the processor's, in the same run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from statistics import mean, median
from time import process_time

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from benchmarks._demands import RATE_MBPS, full_fabric, scaled
from benchmarks._report import Result, report
from hydra.model import EMPTY_TOPOLOGY
from topology.algorithms import ENTRIES, Product
from topology.bounds import served_share_bound
from topology.problem import Budget, PlanResult, Reserved, pair_demands

RACKS = 8
PLANES = 4
MAX_HOPS = 3
LOADS = (0.5, 0.9)
"""What the busiest rack sends or receives, as a part of its ports' rate."""
INSTANCES = 240
DEFAULT = "anytime"
MEAN_TARGET, WORST_TARGET, TIME_TARGET = 0.97, 0.90, 0.1
ALL_TO_ALLS = ((8, 2), (32, 4), (64, 8), (128, 8))
MANY_JOBS = ((64, 8), (128, 16), (320, 32))
LARGE_KINDS = ("sparse", "dense", "gravity")
_GAP = 1e-6
"""Distance from the optimum, relative, at which HiGHS stops."""

Matrix = NDArray[np.float64]


def _sparse(random: np.random.Generator) -> Matrix:
    return random.uniform(1, 10, (RACKS, RACKS)) * (random.random((RACKS, RACKS)) < 0.3)


def _dense(random: np.random.Generator) -> Matrix:
    return random.uniform(0.5, 1.5, (RACKS, RACKS))


def _gravity(random: np.random.Generator) -> Matrix:
    out, into = random.lognormal(0, 1, (2, RACKS))
    return np.outer(out, into)


def _elephants(random: np.random.Generator) -> Matrix:
    demand = random.uniform(0, 0.2, (RACKS, RACKS))
    demand[np.arange(RACKS), random.permutation(RACKS)] += 5
    return demand


def _jobs(random: np.random.Generator) -> Matrix:
    """Rings and all-to-alls of equal rates."""
    demand = np.zeros((RACKS, RACKS))
    for _ in range(3):
        racks = random.choice(RACKS, random.integers(3, 7), replace=False)
        if random.random() < 0.5:
            demand[racks, np.roll(racks, 1)] += 4
        else:
            demand[np.ix_(racks, racks)] += 1
    return demand


KINDS: dict[str, Callable[[np.random.Generator], Matrix]] = {
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


def instances(count: int) -> Iterator[Instance]:
    cases = [(kind, load) for kind in KINDS for load in LOADS]
    for number in range(count):
        kind, load = cases[number % len(cases)]
        demand = KINDS[kind](np.random.default_rng(number))
        np.fill_diagonal(demand, 0.0)
        busiest = max(demand.sum(axis=0).max(), demand.sum(axis=1).max())
        yield Instance(
            f"{kind}, load {load}", demand * (load * PLANES * RATE_MBPS / max(busiest, 1e-9))
        )


def optimum(demand: Matrix) -> float:
    """The share that the best circuits serve, each pair split at will over paths of 3 hops.

    Whole numbers of circuits between racks, as many as the planes allow: a rack has one a plane,
    and among an odd number of racks one of them is left out on each plane. Circuits that obey both
    may still fit on no planes (Seymour, 1979): then this is a little above the optimum.
    """
    pairs = pair_demands(demand)
    if not len(pairs):
        return 1.0
    edges = list(combinations(range(RACKS), 2))
    place = {edge: number for number, edge in enumerate(edges)}
    ways = list(_ways(pairs.src.tolist(), pairs.dst.tolist()))
    n_ways, n_edges, n_pairs = len(ways), len(edges), len(pairs)
    entries = [(way, pair, 1.0) for way, (pair, _) in enumerate(ways)]
    for way, (_, racks) in enumerate(ways):
        entries += [(way, n_pairs + place[min(hop), max(hop)], 1.0) for hop in pairwise(racks)]
    entries += [(n_ways + edge, n_pairs + edge, -RATE_MBPS) for edge in range(n_edges)]
    limits = [*pairs.mbps.tolist(), *[0.0] * n_edges]
    for size in (1, *range(3, RACKS + 1, 2)):
        for group in combinations(range(RACKS), size):
            inside = [
                edge
                for edge, (a, b) in enumerate(edges)
                if (a in group or b in group if size == 1 else a in group and b in group)
            ]
            entries += [(n_ways + edge, len(limits), 1.0) for edge in inside]
            limits.append(float(PLANES * max(1, size // 2)))
    columns, rows, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns)), shape=(len(limits), n_ways + n_edges)).tocsr()
    upper = np.concatenate([np.full(n_ways, np.inf), np.full(n_edges, float(PLANES))])
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


def _ways(src: list[int], dst: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each pair's position and racks along a path, for all paths of at most 3 hops."""
    for pair, (a, b) in enumerate(zip(src, dst, strict=True)):
        others = [rack for rack in range(RACKS) if rack not in (a, b)]
        for relays in range(MAX_HOPS):
            for between in permutations(others, relays):
                yield pair, (a, *between, b)


def _all_to_all(racks: int) -> Matrix:
    return np.full((racks, racks), 100.0) - np.diag(np.full(racks, 100.0))


def _many_jobs(racks: int, planes: int) -> Matrix:
    """Rings and all-to-alls of 4 to 16 racks; the busiest rack is loaded by half."""
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
    """Results for fabrics that have no proven optimum, beside the bound and ``hydra-bfs+``."""
    cases = [
        *((racks, planes, "all-to-all", _all_to_all(racks)) for racks, planes in ALL_TO_ALLS),
        *((racks, planes, "jobs", _many_jobs(racks, planes)) for racks, planes in MANY_JOBS),
    ]
    huge = full_fabric(320, 32)
    cases += [(320, 32, kind, scaled(kind, huge)) for kind in LARGE_KINDS]
    for racks, planes, kind, demand in cases:
        fabric = full_fabric(racks, planes)
        bound = served_share_bound(fabric, demand, max_hops=MAX_HOPS) or 1.0
        for name, paths in (("hydra-bfs+", 1), (DEFAULT, None)):
            began = process_time()
            result = ENTRIES[name].plan(
                fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(MAX_HOPS, paths_per_pair=paths)
            )
            spent_ms = (process_time() - began) * 1000
            case = f"{racks}x{planes}, {kind}, {name}, paths {paths or 'as wanted'}"
            share = result.served_share
            yield Result(case, "served", "of demand", "higher", share, bound, "bound")
            yield Result(case, "time", "ms", "lower", spent_ms, None, "")
            print(f"{case}: {share:.4f} of at most {bound:.4f}, {spent_ms:.0f} ms", flush=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else INSTANCES
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
        best = optimum(instance.demand)
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
    report("optimum", [*rows, *large_rows()])


if __name__ == "__main__":
    main()
