"""The controller's own computing time at reference size.

``python -m benchmarks.planner``. Without devices and packets: the demo measures the cost of a
reconfiguration on the wire.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from apps.process.configuration import load_configuration
from benchmarks._report import Result, report, run_benchmark
from drivers.codecs.openflow.rules import SwitchPorts, encode_changes
from hydra.forwarding.rules import Install
from hydra.model import EMPTY_TOPOLOGY, Fabric, NetworkState, VlanId
from mininet_scenarios.cycles.orders import emulated_rules
from topology.algorithms import algorithm
from topology.problem import Budget, FabricArrays, Reserved
from topology.vlan import allocate

REFERENCE = Path(__file__).parents[1] / "configs" / "reference.yaml"
REPEATS = 3
SEED = 1
RULES = 5000


def measure(rows: list[Result], case: str, metric: str, work: Callable[[], Any]) -> Any:
    """Add a row for the median processor time of a few runs; return the last run's result."""
    times_ms = []
    for _ in range(REPEATS):
        started = time.process_time()
        result = work()
        times_ms.append((time.process_time() - started) * 1000)
    rows.append(Result(case, metric, "ms", "lower", median(times_ms)))
    return result


def sparse_demand(fabric: Fabric, partners: int) -> np.ndarray:
    """Demand of each rack for a few random other racks, in Mbps."""
    racks = len(fabric.racks)
    random = np.random.default_rng(SEED)
    demand = np.zeros((racks, racks))
    for rack in range(racks):
        others = random.choice(racks - 1, size=partners, replace=False)
        demand[rack, others + (others >= rack)] = random.uniform(1, 10_000, partners)
    return demand


def main() -> int:
    rows: list[Result] = []
    case = "reference fabric"
    loaded = measure(rows, case, "read and check the file", lambda: load_configuration(REFERENCE))
    fabric, policy = loaded.fabric, loaded.policy
    arrays = measure(rows, case, "as arrays", lambda: FabricArrays.of(fabric))
    plan, budget = algorithm(policy.algorithm), Budget(policy.max_hops)
    for partners in (1, 8, 32):
        demand = sparse_demand(fabric, partners)
        case = f"{policy.algorithm}, {partners} partners a rack"
        result = measure(
            rows,
            case,
            "plan",
            lambda demand=demand: plan(arrays, demand, EMPTY_TOPOLOGY, Reserved(), budget),
        )
        measure(
            rows,
            case,
            f"VLANs for its {len(result.topology.paths)} paths",
            lambda result=result: allocate(
                arrays, NetworkState(), result.topology, fabric.circuit_vlans
            ),
        )
    rules = emulated_rules(RULES, VlanId(100), 1)
    ports = SwitchPorts(1, 2, 3)
    measure(
        rows,
        f"{RULES} rules",
        "encode as one bundle",
        lambda: encode_changes(map(Install, rules), ports, 1, 1),
    )
    return report("planner", rows)


if __name__ == "__main__":
    run_benchmark(main)
