"""Time of the HydRA heuristic and of its VLANs.

``python -m benchmarks.multihop``. Baselines: networkx (an updated graph, and a search per demand)
where fast enough, numpy (the same on a Boolean matrix), and first fit on arrays for the VLANs. All
baselines follow the same rounds; numpy breaks ties as HydRA does, and must find as many paths of
each length. Times are processor times: all code runs in a single thread without waits.

``python -m benchmarks.multihop --whole`` times the whole computation of a controller's decision:
plan, VLANs, checks, and the steps from the standing state, for an empty network and for a change of
everything. The baseline is the time in which Python makes an object of each path, and a dict of the
VLAN-IDs.
"""

from __future__ import annotations

import argparse
import copy
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from time import process_time

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from apps.offline.study import plain_fabric
from apps.planning.engine import Planning
from benchmarks._demands import KINDS, RATE_MBPS, full_fabric, scaled
from benchmarks._report import Result, report, run_benchmark
from benchmarks._timing import median_ms
from hydra.model import EMPTY_TOPOLOGY, NetworkState, Path, VlanId, VlanRange
from hydra.policy import Policy
from hydra.service import PlanRequest
from topology.bounds import served_share_bound
from topology.drafts import Ground
from topology.multihop import plan_hydra_bfs, plan_hydra_bfs_plus
from topology.problem import (
    Budget,
    FabricArrays,
    PairDemands,
    Reserved,
    pair_demands,
    validate_demand,
)
from topology.rounds import Rule
from topology.vlan import allocate

PLANES = 32
MAX_HOPS = 3
RUNS = 5
VLANS = VlanRange(VlanId(1), VlanId(4094))
PASS_TARGET_MS = {320: 25.0, 1000: 200.0}
SHARE_TARGET = {("dense", 320): 0.98, ("gravity", 320): 0.96}
VLAN_TARGET = 0.65
LARGE = 320
"""Number of racks with a target for the number of VLANs."""
VLAN_TARGET_MS = 100.0
WHOLE_TARGET_MS = {320: 60.0, 1000: 600.0}
NETWORKX = {(kind, racks) for kind in KINDS for racks in (64, 320)}
NETWORKX_BFS = NETWORKX | {("sparse", 1000)}
"""Cases with networkx: 1000 racks take two minutes with these kinds of demand, half an hour or more
with other kinds.
"""
NETWORKX_TARGET = {1000: 5000.0}
NOTHING_RESERVED = Reserved()

Racks = tuple[int, ...]


class Rounds(ABC):
    """The heuristic on a fabric with a port per rack and plane, with a Boolean demand.

    ``adjacent`` marks possible neighbours, which subclasses search.
    """

    def __init__(self, racks: int) -> None:
        self.free = np.ones((racks, PLANES), dtype=np.bool_)
        self.residual: dict[tuple[int, int], list[float]] = {}
        self.adjacent = ~np.eye(racks, dtype=np.bool_)

    @abstractmethod
    def search(self, src: int, dst: int, depth: int) -> Racks | None:
        """The racks along a shortest path of at most ``depth`` hops."""

    def cut(self, rack: int, others: NDArray[np.intp]) -> None:
        self.adjacent[rack, others] = self.adjacent[others, rack] = False

    def run(self, pairs: PairDemands) -> list[int]:
        """Serve all pairs; returns the number of paths by hops."""
        waiting = list(pairs)
        by_hops = [0] * (MAX_HOPS + 1)
        for depth in range(1, MAX_HOPS + 1):
            left_over = []
            for pair in waiting:
                racks = self.search(pair.src, pair.dst, depth)
                if racks is None:
                    left_over.append(pair)
                else:
                    by_hops[len(racks) - 1] += 1
                    self.book(racks, pair.mbps)
            waiting = left_over
        return by_hops

    def book(self, racks: Racks, mbps: float) -> None:
        hops = [self.hop(min(hop), max(hop), mbps) for hop in pairwise(racks)]
        given = min(mbps, *(links[best] for links, best in hops))
        for links, best in hops:
            links[best] -= given
        for hop in pairwise(racks):
            self.update(min(hop), max(hop))

    def hop(self, low: int, high: int, mbps: float) -> tuple[list[float], int]:
        links = self.residual.setdefault((low, high), [])
        best = max(range(len(links)), key=links.__getitem__, default=-1)
        if best >= 0 and links[best] >= mbps - 1e-6:
            return links, best
        common = np.flatnonzero(self.free[low] & self.free[high])
        if not common.size:
            return links, best
        for rack in (low, high):
            self.free[rack, common[0]] = False
        links.append(RATE_MBPS)
        for rack in (low, high):
            self.lose_plane(rack, common[0])
        return links, len(links) - 1

    def lose_plane(self, rack: int, plane: int) -> None:
        others = np.flatnonzero(self.free[:, plane] & self.adjacent[rack])
        gone = others[~(self.free[others] & self.free[rack]).any(axis=1)]
        alive = [max(self.residual.get((min(rack, o), max(rack, o)), [0.0])) > 1e-6 for o in gone]
        self.cut(rack, gone[~np.array(alive, dtype=np.bool_)])

    def update(self, low: int, high: int) -> None:
        spent = max(self.residual[low, high]) <= 1e-6
        if spent and not (self.free[low] & self.free[high]).any():
            self.cut(low, np.array([high]))


class NumpyRounds(Rounds):
    def search(self, src: int, dst: int, depth: int) -> Racks | None:
        if self.adjacent[src, dst]:
            return src, dst
        if depth == 2:
            relays = np.flatnonzero(self.adjacent[src] & self.adjacent[dst])
            return (src, int(relays[0]), dst) if relays.size else None
        if depth == 3:
            first = np.flatnonzero(self.adjacent[src])
            second = self.adjacent[first] & self.adjacent[dst]
            reaching = np.flatnonzero(second.any(axis=1))
            if reaching.size:
                return src, int(first[reaching[0]]), int(second[reaching[0]].argmax()), dst
        return None


class NetworkxRounds(Rounds):
    """Search from both ends: finds any shortest path, in the shortest time."""

    def __init__(self, racks: int) -> None:
        super().__init__(racks)
        self.graph = nx.from_numpy_array(self.adjacent)

    def search(self, src: int, dst: int, depth: int) -> Racks | None:
        try:
            racks = nx.bidirectional_shortest_path(self.graph, src, dst)
        except nx.NetworkXNoPath:
            return None
        return tuple(racks) if len(racks) <= depth + 1 else None

    def cut(self, rack: int, others: NDArray[np.intp]) -> None:
        super().cut(rack, others)
        self.graph.remove_edges_from([(rack, int(other)) for other in others])


class NetworkxBfsRounds(NetworkxRounds):
    """Search as in the paper: breadth first from one end, to the depth of the round."""

    def search(self, src: int, dst: int, depth: int) -> Racks | None:
        racks = nx.single_source_shortest_path(self.graph, src, cutoff=depth).get(dst)
        return tuple(racks) if racks else None


def first_fit(fabric: FabricArrays, paths: list[Path]) -> int:
    """Number of VLANs if each path goes into the first VLAN that stays a forest; one test for all
    VLANs.
    """
    tree = np.repeat(np.arange(fabric.n_racks)[:, np.newaxis], len(paths), axis=1)
    held = np.zeros((fabric.n_ports, len(paths)), dtype=np.bool_)
    count = 0
    for path in paths:
        racks = fabric.racks_along(path)
        loop = np.zeros(count, dtype=np.bool_)
        for i, j in combinations(range(len(racks)), 2):
            missing = ~np.logical_and.reduce([held[c.a, :count] for c in path.circuits[i:j]])
            loop |= missing & (tree[racks[i], :count] == tree[racks[j], :count])
        vlan = int(loop.argmin()) if not loop.all() else count
        count = max(count, vlan + 1)
        for rack in racks[1:]:
            column = tree[:, vlan]
            column[column == column[rack]] = column[racks[0]]
        held[[circuit.a for circuit in path.circuits], vlan] = True
    return count


def _run(baseline: Callable[[int], Rounds], ground: Ground, found: list[list[int]]) -> None:
    found.append(baseline(ground.fabric.n_racks).run(ground.pairs))


def search_rows(kind: str, fabric: FabricArrays, ground: Ground) -> list[Result]:
    """Results of a pass of the rounds, and of a whole call of the planner."""
    racks = fabric.n_racks
    budget = Budget(MAX_HOPS)
    demand = scaled(kind, fabric)
    rule = Rule(whole=False, partial=True)
    case = f"{racks} racks, {kind}, {len(ground.pairs)} pairs"
    ours = median_ms(
        {
            "pass": lambda _: ground.draft(rule),
            "plan": lambda _: plan_hydra_bfs(
                fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget
            ),
            "plan+": lambda _: plan_hydra_bfs_plus(
                fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget
            ),
            "read": lambda _: pair_demands(validate_demand(demand, racks)),
        },
        RUNS,
        process_time,
    )
    baselines: dict[str, Callable[[int], Rounds]] = {"numpy": NumpyRounds}
    if (kind, racks) in NETWORKX:
        baselines["networkx"] = NetworkxRounds
    if (kind, racks) in NETWORKX_BFS:
        baselines["networkx, BFS"] = NetworkxBfsRounds
    hops = np.bincount(ground.draft(rule).hops, minlength=MAX_HOPS + 1).tolist()
    least = "checking the demand and putting its pairs in order"
    rows = [Result(case, "pass", "ms", "lower", ours["pass"], ours["read"], least)]
    for name, baseline in baselines.items():
        found: list[list[int]] = []
        began = process_time()
        _run(baseline, ground, found)
        times = {name: (process_time() - began) * 1000}
        if name == "numpy" and found[-1] != hops:
            raise SystemExit(f"{case}: numpy finds {found[-1]} paths by hops, we find {hops}")
        for metric in ("pass", "plan"):
            target = PASS_TARGET_MS.get(racks) if metric == "pass" else None
            rows.append(
                Result(case, metric, "ms", "lower", ours[metric], times[name], name, target)
            )
        if name == "networkx, BFS":
            factor, target = times[name] / ours["pass"], NETWORKX_TARGET.get(racks)
            rows.append(Result(case, "as fast as", "x", "higher", factor, 1.0, name, target))
    rows.append(
        Result(case, "hydra-bfs+", "ms", "lower", ours["plan+"], ours["plan"], "hydra-bfs", None)
    )
    return rows


def quality_rows(kind: str, fabric: FabricArrays) -> list[Result]:
    """Results for the served share of demand."""
    arguments = (fabric, scaled(kind, fabric), EMPTY_TOPOLOGY, NOTHING_RESERVED, Budget(MAX_HOPS))
    paper, ours = plan_hydra_bfs(*arguments), plan_hydra_bfs_plus(*arguments)
    case = f"{fabric.n_racks} racks, {kind}"
    target = SHARE_TARGET.get((kind, fabric.n_racks))
    share, unit = ours.served_share, "of demand"
    bound = served_share_bound(fabric, arguments[1]) or 1.0
    return [
        Result(case, "served", unit, "higher", share, paper.served_share, "hydra-bfs", target),
        Result(case, "served", unit, "higher", share, bound, "LP bound of any plan", None),
    ]


def vlan_rows(kind: str, fabric: FabricArrays) -> list[Result]:
    """Results for the number of VLANs, and the time to allocate them."""
    demand = scaled(kind, fabric)
    topology = plan_hydra_bfs(
        fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, Budget(MAX_HOPS)
    ).topology
    shuffled = [
        topology.paths[i] for i in np.random.default_rng(1).permutation(len(topology.paths))
    ]
    counts: list[int] = []
    ours = median_ms(
        {"": lambda _: allocate(fabric, NetworkState(), topology, VLANS)}, RUNS, process_time
    )[""]
    baseline = median_ms(
        {"": lambda _: counts.append(first_fit(fabric, shuffled))}, 1, process_time
    )[""]
    used = len(set(allocate(fabric, NetworkState(), topology, VLANS).vlans.values()))
    case = f"{fabric.n_racks} racks, {kind}, {len(topology.paths)} paths"
    name = "first fit, numpy"
    target = VLAN_TARGET * counts[-1] if fabric.n_racks == LARGE else None
    forests = -(-len(topology.circuits) // (fabric.n_racks - 1))
    return [
        Result(case, "VLANs", "", "lower", used, counts[-1], name, target),
        Result(case, "VLANs", "", "lower", used, forests, "forests for its circuits, at least"),
        Result(case, "allocate", "ms", "lower", ours, baseline, name, VLAN_TARGET_MS),
    ]


def whole_rows(racks: int) -> Iterator[Result]:
    """Results for the whole computation of a decision, with ``hydra-bfs`` and gravity demand."""
    fabric = plain_fabric(racks, PLANES, RATE_MBPS)
    planning = Planning(fabric, Policy())
    request = PlanRequest(algorithm="hydra-bfs")
    demand = scaled("gravity", FabricArrays.of(fabric))
    other = demand[::-1, ::-1].copy()
    empty = NetworkState()
    standing = planning.for_demand(empty, request, demand, (), ())
    for words, current, wanted in (
        ("of an empty network", empty, demand),
        ("of everything", standing, other),
    ):
        target = planning.for_demand(current, request, wanted, (), ())
        ways: dict[str, Callable[[int], object]] = {
            "plan, VLANs, checks, diff": lambda _, at=current, of=wanted: planning.diff(
                at, planning.for_demand(at, request, of, (), ())
            ),
            "objects": lambda _, of=target: dict(copy.copy(of.vlans)),
            "to another process and back": lambda _, of=target: pickle.loads(pickle.dumps(of)),  # noqa: S301 - our own
        }
        times = median_ms(ways, RUNS, process_time)
        case = f"{racks} racks, gravity, {len(target.vlans)} paths, a change {words}"
        for metric, target_ms in (
            ("plan, VLANs, checks, diff", WHOLE_TARGET_MS[racks]),
            ("to another process and back", None),
        ):
            ours, objects = times[metric], times["objects"]
            yield Result(case, metric, "ms", "lower", ours, objects, "objects", target_ms)


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multihop")
    parser.add_argument("--whole", action="store_true", help="time whole decisions")
    if parser.parse_args(argv).whole:
        return report("multihop", [row for racks in WHOLE_TARGET_MS for row in whole_rows(racks)])
    results = []
    for racks in (64, 320, 1000):
        fabric = full_fabric(racks, PLANES)
        for kind in KINDS:
            budget = Budget(MAX_HOPS, paths_per_pair=1)  # as for the baselines
            demand = scaled(kind, fabric)
            ground = Ground.of(fabric, demand, EMPTY_TOPOLOGY, NOTHING_RESERVED, budget)
            print(f"{racks} racks, {kind}", flush=True)
            results += search_rows(kind, fabric, ground)
            if racks < 1000:
                results += quality_rows(kind, fabric) + vlan_rows(kind, fabric)
    return report("multihop", results)


if __name__ == "__main__":
    run_benchmark(main)
