"""Cost of the source check: ports of servers accept only the servers' own MAC addresses.

``python -m benchmarks.source_check`` (root). The baseline is ``policy.source_check: off``. Rules
are counted in switches of the demo and of the reference fabric, and of the same fabrics with
OpenFlow ToRs. TCP crosses a circuit at its full rate, with and without the check in turn, by
reloads of one controller's policy: on the demo's vswitches, and on OpenFlow ToRs.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from apps.process.configuration import load_configuration
from benchmarks._demo import CONFIGS, demo_stage
from benchmarks._report import Result, report, run_benchmark
from hydra.forwarding.rules import FlowRule
from hydra.forwarding.substrate import substrate_of
from hydra.model import Fabric, NetworkState
from hydra.policy import SourceCheck
from mininet_scenarios.stage.controller_client import PairDemand
from mininet_scenarios.stage.stage import Stage, tcp_transfer
from tests.unit.core.fabrics import openflow_only

ROUNDS = 3
SECONDS = 3.0
PORT = 5201
STAGES = {"vswitches of the demo": "demo", "OpenFlow ToRs": "openflow-only"}


def rules() -> Iterator[Result]:
    demo, reference = (
        load_configuration(CONFIGS / f"{name}.yaml").fabric for name in ("demo", "reference")
    )
    for case, fabric in (
        ("vswitch, 4 racks", demo),
        ("vswitch, 320 racks", reference),
        ("OpenFlow ToR of 2 servers, 4 racks", openflow_only(demo)),
        ("OpenFlow ToR of 32 servers, 320 racks", openflow_only(reference)),
    ):
        held = {check: float(len(rules_of(fabric, check))) for check in SourceCheck}
        baseline = held.pop(SourceCheck.OFF)
        for check, number in held.items():
            metric = f"rules without a circuit, {check.value}"
            yield Result(case, metric, "", "lower", number, baseline, "off")


def rules_of(fabric: Fabric, source_check: SourceCheck) -> list[FlowRule]:
    """Rules of the first steering switch."""
    substrate = substrate_of(fabric)
    (switch, *_) = substrate.steering(fabric.racks[0].id)
    return list(substrate.rules(switch.datapath, NetworkState(), (), source_check))


def throughput(case: str, stage: Stage) -> Iterator[Result]:
    found: dict[str, list[tuple[float, float]]] = {"on": [], "off": []}
    with stage.one_controller():
        for number in range(ROUNDS + 1):
            for value, figures in found.items():
                policy = {"source_check": value, "mode": "on-request"}
                with stage.controller(policy) as client:
                    if not number:
                        client.reconfigure([PairDemand("r1", "r2", 80.0)])
                    measured = transfer(stage)
                if number:  # warm-up round
                    figures.append(measured)
    (mbps, cpu), (mbps_off, cpu_off) = (
        map(median, zip(*figures, strict=True)) for figures in found.values()
    )
    over = f"over a circuit, median of {ROUNDS}"
    yield Result(case, f"TCP {over}", "Mb/s", "higher", mbps, mbps_off, "off")
    yield Result(case, f"processor time of all switches, {over}", "s/Gbit", "lower", cpu, cpu_off,
                 "off")  # fmt: skip


def transfer(stage: Stage) -> tuple[float, float]:
    """(Mb/s, seconds of forwarding for each Gbit) of TCP at full rate.

    Raises SystemExit if the kernel forwards, since no process is charged for the kernel's time.
    """
    before_s = stage.testbed.forwarding_cpu_s()
    with tcp_transfer(stage, "h11", "h21", PORT, SECONDS) as tcp:
        received, _ = tcp.finish(SECONDS + 20)
    after_s = stage.testbed.forwarding_cpu_s()
    if before_s is None or after_s is None:
        raise SystemExit("the kernel forwards: its processor time is nobody's")
    gbit = received.average_mbps * received.seconds / 1e3
    return received.average_mbps, (after_s - before_s) / gbit


def main() -> int:
    results = list(rules())
    for case, name in STAGES.items():
        with demo_stage(source=CONFIGS / f"{name}.yaml") as stage:
            results += throughput(case, stage)
    return report("source_check", results)


if __name__ == "__main__":
    run_benchmark(main)
