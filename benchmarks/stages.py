"""A change of many circuits in stages, and all at once.

``python -m benchmarks.stages``. A fluid model, without devices and packets. Racks of
``configs/reference.yaml`` have circuits for a demand, with equal loads, and get the circuits for
another demand. A stage takes 150 ms (half the racks on one plane of the emulated data plane:
``benchmarks.reconfigurations``); meanwhile its diverted traffic shares the electrical network with
pairs that wait for their turn, by max-min fairness. The baseline moves everything in a single
stage, and then has its circuits until the stages would have ended.

``--racks 320 --planes 32`` is the reference fabric, and takes a quarter of an hour for each load;
much longer with hardly any room for detours, unless ``--budget-ms`` bounds the search for detours.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Final

import numpy as np
import yaml
from numpy.typing import NDArray

from apps.planning.engine import Planning
from apps.process.configuration import load_configuration
from apps.process.garbage import exempt_present_objects
from apps.traces.reading import read_trace, summarise
from apps.traces.synthetic import SAMPLE_COFLOWS, SAMPLE_SEED, coflow_lines
from apps.traces.windows import rack_numbers, windows
from benchmarks._demands import scaled
from benchmarks._fabric import Size, reference
from benchmarks._report import Result, report, run_benchmark
from hydra.forwarding.substrate import substrate_of
from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, Pair, Topology
from hydra.policy import Policy
from hydra.reconfiguration.detours import Detours
from hydra.reconfiguration.plan import moving_pairs, pair_of
from hydra.reconfiguration.stages import Stage, Traffic, stages
from hydra.service import PlanRequest
from topology.demand import max_min_rates
from topology.problem import FabricArrays, pair_demands

TRACE: Final = "trace"
KINDS: Final = ("sparse", "gravity", "dense", TRACE)
TRACE_LOAD: Final = 0.4
"""Demand of the trace's window, as a part of all ports' capacity."""
WINDOW_S: Final = 10.0
LOADS: Final = (0.3, 0.6, 0.9)
STAGE_S: Final = 0.15
SHARE: Final = Policy().divert_share


def fabric_of(racks: int, planes: int) -> tuple[Fabric, Policy]:
    with tempfile.TemporaryDirectory() as directory:
        addresses = [f"127.0.0.1:{5000 + plane}" for plane in range(planes)]
        document = reference(Size(racks, planes, 32), Path(directory), addresses)
        path = Path(directory) / "fabric.yaml"
        path.write_text(yaml.safe_dump(document))
        loaded = load_configuration(path)
    return loaded.fabric, loaded.policy


def filled(fabric: Fabric, state: NetworkState, part: float) -> DemandMatrix:
    """Traffic that loads each circuit to this share, Mbps; pairs over the same circuit share the
    rate.
    """
    users: dict[Circuit, int] = {}
    for path in state.topology.paths:
        for circuit in path.circuits:
            users[circuit] = users.get(circuit, 0) + 1
    sent = np.zeros((len(fabric.racks),) * 2)
    for path in state.topology.paths:
        mbps = min(fabric.rate_of(circuit) / users[circuit] for circuit in path.circuits)
        for direction in path.directions:
            sent[direction] += part * mbps
    return sent


Directions = NDArray[np.bool_]
"""True if the traffic from row to column is on circuits; shape (N, N)."""


class Fluid:
    """Delivered share of the sent traffic."""

    def __init__(self, fabric: Fabric, sent_mbps: DemandMatrix) -> None:
        substrate = substrate_of(fabric)
        self.electrical_mbps: NDArray[np.float64] = np.array(
            [substrate.electrical_mbps(rack) for rack in fabric.racks], dtype=np.float64
        )
        self._sent = sent_mbps
        self.sent_mbps = float(sent_mbps.sum())

    def delivered_mbps(self, circuits: Directions) -> float:
        """Mbps delivered while these directions are on circuits, and all other directions are
        not.
        """
        electrical = self._sent * ~circuits
        src, dst = np.nonzero(electrical)
        uses = np.stack([src, len(electrical) + dst], axis=1)
        limit = self.electrical_mbps
        arrived = max_min_rates(uses, np.concatenate([limit, limit]), electrical[src, dst])
        return float(arrived.sum() + (self._sent - electrical).sum())

    def crowding(self, circuits: Directions) -> float:
        """Traffic sent electrically, as a part of the busiest rack's rate."""
        electrical = self._sent * ~circuits
        most = np.maximum(electrical.sum(axis=0), electrical.sum(axis=1))
        return float((most / self.electrical_mbps).max())


def staying(fabric: Fabric, topology: Topology, moved: Collection[Pair] = ()) -> Directions:
    """Directions on circuits while these pairs are diverted."""
    pairs = [pair for pair in map(pair_of, topology.paths) if pair not in moved]
    low, high = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    found = np.zeros((len(fabric.racks),) * 2, dtype=np.bool_)
    found[low, high] = found[high, low] = True
    return found


def demands(kind: str, arrays: FabricArrays) -> tuple[DemandMatrix, DemandMatrix]:
    """Demand before the change, and demand for which the change is made."""
    if kind == TRACE:
        return of_trace(arrays)
    demand = scaled(kind, arrays)
    turned = np.roll(demand, (1, 3), (0, 1))
    np.fill_diagonal(turned, 0.0)
    return demand, turned


def of_trace(arrays: FabricArrays) -> tuple[DemandMatrix, DemandMatrix]:
    """Two successive windows of a synthetic trace with the largest total traffic, equally
    scaled.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.txt"
        lines = coflow_lines(arrays.n_racks, SAMPLE_COFLOWS, SAMPLE_SEED)
        path.write_text("".join(f"{line}\n" for line in lines))
        numbers = rack_numbers(summarise(path).racks, arrays.n_racks, fold=False)
        cut = list(windows(read_trace(path), numbers, arrays.n_racks, WINDOW_S))
    following = [pair for pair in pairwise(cut) if pair[0].number + 1 == pair[1].number]
    first, second = max(following, key=lambda pair: pair[0].total_mbps + pair[1].total_mbps)
    wanted_mbps = TRACE_LOAD * float(arrays.port_rate_mbps.sum()) / 2
    return tuple(
        case.demand_mbps * (wanted_mbps / float(pair_demands(case.demand_mbps).mbps.sum()))
        for case in (first, second)
    )


class _Budget:
    """Limit of processor time for detours of each stage."""

    def __init__(self, budget_ms: float) -> None:
        self._budget_s = budget_ms / 1000
        self.renew()

    def renew(self) -> None:
        self._ends_s = time.process_time() + self._budget_s

    def expired(self) -> bool:
        return time.process_time() > self._ends_s

    def spent_on(self, stages_ahead: Iterable[Stage]) -> Iterator[Stage]:
        """These stages, with a fresh budget for each stage, as in the controller."""
        self.renew()
        for stage in stages_ahead:
            yield stage
            self.renew()


@dataclass(frozen=True, slots=True)
class Course:
    """Result of a way to make the change."""

    not_delivered_gbit: float
    crowding: float
    """Largest simultaneous electrical traffic, as a part of the busiest rack's rate."""


def course(
    fabric: Fabric,
    fluid: Fluid,
    before: NetworkState,
    after: NetworkState,
    cut: Sequence[Stage],
    times: int,
) -> Course:
    """``times``: sampled lengths of stages, from the start of the change."""
    missing_mbps = crowding = 0.0
    state = before
    for stage in cut:
        circuits = staying(fabric, state.topology, stage.pairs)
        missing_mbps += fluid.sent_mbps - fluid.delivered_mbps(circuits)
        crowding = max(crowding, fluid.crowding(circuits))
        state = stage.target
    after_mbps = fluid.sent_mbps - fluid.delivered_mbps(staying(fabric, after.topology))
    missing_mbps += (times - len(cut)) * after_mbps
    return Course(STAGE_S * missing_mbps / 1e3, crowding)


def measure(
    fabric: Fabric,
    planning: Planning,
    policy: Policy,
    kind: str,
    loads: Sequence[float],
    budget_ms: float,
) -> list[Result]:
    demand, other = demands(kind, FabricArrays.of(fabric))
    request = PlanRequest()
    before = planning.propose(NetworkState(), request, demand, (), ()).target
    after = planning.propose(before, request, other, (), ()).target
    moved = moving_pairs(before, after)
    budget = _Budget(budget_ms)
    detours = Detours(
        fabric=fabric,
        max_hops=policy.max_hops,
        closed=frozenset(),
        toward=planning.toward,
        expired=budget.expired,
    )
    found = []
    for load in loads:
        sent = filled(fabric, before, load)
        fluid = Fluid(fabric, sent)
        traffic = Traffic(sent, fluid.electrical_mbps, SHARE)
        started = time.process_time()
        cut = list(budget.spent_on(stages(before, after, traffic, detours)))
        cutting_s = time.process_time() - started
        plain = list(stages(before, after, traffic))
        times = max(len(cut), len(plain))
        at_once = [Stage(target=after, pairs=moved, diverted_mbps=0.0, beyond={}, last=True)]
        ours = course(fabric, fluid, before, after, cut, times)
        once = course(fabric, fluid, before, after, at_once, times)
        electrical = course(fabric, fluid, before, after, plain, times)
        case = f"{kind}, circuits filled to {load:.0%}, {len(moved)} pairs move"
        took_s = STAGE_S * len(cut)
        for name, number, course_ in (
            ("all at once", 1, once),
            ("without detours", len(plain), electrical),
        ):
            found += [
                Result(case, "stages", "", "lower", len(cut), number, name),
                Result(case, "time in all", "s", "lower", took_s, STAGE_S * number, name),
                Result(
                    case, "most sent electrically, of a rack's rate", "", "lower",
                    ours.crowding, course_.crowding, name
                ),
                Result(
                    case, "not delivered meanwhile", "Gbit", "lower",
                    ours.not_delivered_gbit, course_.not_delivered_gbit, name
                ),
            ]  # fmt: skip
        diverted = sum(len(stage.detoured) for stage in cut)
        found += [
            Result(case, "pairs that waited on circuits of others", "", "higher", diverted),
            Result(case, "processor time to cut a stage", "ms", "lower",
                   cutting_s / len(cut) * 1e3),
        ]  # fmt: skip
    return found


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--racks", type=int, default=64)
    parser.add_argument("--planes", type=int, default=32)
    parser.add_argument("--demand", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument(
        "--budget-ms",
        type=float,
        default=inf,
        help="processor time for detours of a stage; the controller's is policy.planning_budget_ms",
    )
    asked = parser.parse_args(arguments)
    fabric, policy = fabric_of(asked.racks, asked.planes)
    planning = Planning(fabric, policy)
    exempt_present_objects()  # as in the controller
    print(f"{asked.racks} racks, {asked.planes} planes", flush=True)
    found = [
        row
        for kind in asked.demand
        for row in measure(fabric, planning, policy, kind, asked.loads, asked.budget_ms)
    ]
    return report("stages", found)


if __name__ == "__main__":
    run_benchmark(main)
