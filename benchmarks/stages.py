"""A change of many circuits in stages, and all at once: ``python -m benchmarks.stages``.

A fluid model, without devices and packets. Racks of ``configs/reference.yaml`` have circuits for a
demand, all filled to the same part, and are given those for another one. A stage takes 150 ms (half
the racks on one plane of the emulated data plane: ``benchmarks.reconfigurations``); meanwhile what
it diverts shares the electrical network with what waits for its turn, by max-min fairness. The
other way moves everything in one such time, and then has its circuits for as long as the stages
take. ``--racks 320 --planes 32`` is the reference fabric, and takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import yaml
from numpy.typing import NDArray

from apps.planning.engine import Planning
from apps.process.configuration import load_configuration
from benchmarks._demands import scaled
from benchmarks._fabric import Size, reference
from benchmarks._report import Result, report
from hydra.forwarding.substrate import substrate_of
from hydra.model import (
    EMPTY_TOPOLOGY,
    Circuit,
    DemandMatrix,
    Fabric,
    NetworkState,
    RackId,
    Topology,
)
from hydra.policy import Policy
from hydra.reconfiguration.plan import Pair, directions, moving_pairs, pair_of
from hydra.reconfiguration.stages import Traffic, stages
from hydra.service import PlanRequest
from topology.demand import served_mbps
from topology.problem import FabricArrays

KINDS: Final = ("sparse", "gravity", "dense")
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
    """Traffic that fills each circuit to this part, Mbps; pairs over one circuit share it."""
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


class Fluid:
    """Traffic that gets through, of what is sent."""

    def __init__(self, fabric: Fabric, sent_mbps: DemandMatrix) -> None:
        self._arrays = FabricArrays.of(fabric)
        substrate = substrate_of(fabric)
        self.electrical_mbps: NDArray[np.float64] = np.array(
            [substrate.electrical_mbps(rack) for rack in fabric.racks], dtype=np.float64
        )
        self._sent = sent_mbps

    def delivered_mbps(self, circuits: frozenset[tuple[RackId, RackId]]) -> float:
        """Mbps that arrive while these directions are on circuits, and the others are not."""
        electrical = self._sent.copy()
        for direction in circuits:
            electrical[direction] = 0.0
        limit = self.electrical_mbps
        arrived = served_mbps(self._arrays, EMPTY_TOPOLOGY, electrical, limit, limit)
        return float(arrived.sum() + (self._sent - electrical).sum())

    def crowding(self, circuits: frozenset[tuple[RackId, RackId]]) -> float:
        """Traffic that is sent electrically, as a part of the busiest rack's rate."""
        electrical = self._sent.copy()
        for direction in circuits:
            electrical[direction] = 0.0
        most = np.maximum(electrical.sum(axis=0), electrical.sum(axis=1))
        return float((most / self.electrical_mbps).max())


def staying(topology: Topology, moved: frozenset[Pair]) -> frozenset[tuple[RackId, RackId]]:
    """Directions on circuits while these pairs are diverted."""
    return frozenset(
        way for path in topology.paths if pair_of(path) not in moved for way in path.directions
    )


def measure(fabric: Fabric, planning: Planning, kind: str) -> list[Result]:
    arrays = FabricArrays.of(fabric)
    demand = scaled(kind, arrays)
    turned = np.roll(demand, (1, 3), (0, 1))
    np.fill_diagonal(turned, 0.0)
    request = PlanRequest()
    before = planning.propose(NetworkState(), request, demand, (), ()).target
    after = planning.propose(before, request, turned, (), ()).target
    found = []
    for load in LOADS:
        sent = filled(fabric, before, load)
        fluid = Fluid(fabric, sent)
        traffic = Traffic(sent, fluid.electrical_mbps, SHARE)
        started = time.perf_counter()
        cut = list(stages(before, after, traffic))
        cutting_s = time.perf_counter() - started
        delivered = crowding = 0.0
        state = before
        for stage in cut:
            circuits = staying(state.topology, stage.pairs)
            delivered += fluid.delivered_mbps(circuits)
            crowding = max(crowding, fluid.crowding(circuits))
            state = stage.target
        moved = moving_pairs(before, after)
        at_once = staying(before.topology, moved)
        there = fluid.delivered_mbps(directions(after))
        baseline = fluid.delivered_mbps(at_once) + (len(cut) - 1) * there
        offered = len(cut) * float(sent.sum())
        case = f"{kind}, circuits filled to {load:.0%}, {len(moved)} pairs move"
        name = "all at once"
        found += [
            Result(case, "stages", "", "lower", len(cut), 1, name),
            Result(
                case, "most sent electrically, of a rack's rate", "", "lower",
                crowding, fluid.crowding(at_once), name,
            ),
            Result(
                case, "not delivered meanwhile", "Gbit", "lower",
                STAGE_S * (offered - delivered) / 1e3, STAGE_S * (offered - baseline) / 1e3, name,
            ),
            Result(case, "to cut a stage", "ms", "lower", cutting_s / len(cut) * 1e3, None, ""),
        ]  # fmt: skip
        print(f"{case}: {len(cut)} stages", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--racks", type=int, default=64)
    parser.add_argument("--planes", type=int, default=32)
    asked = parser.parse_args(arguments)
    fabric, policy = fabric_of(asked.racks, asked.planes)
    planning = Planning(fabric, policy)
    print(f"{asked.racks} racks, {asked.planes} planes", flush=True)
    report("stages", [row for kind in KINDS for row in measure(fabric, planning, kind)])


if __name__ == "__main__":
    main()
