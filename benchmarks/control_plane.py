"""A reconfiguration of the papers' size, under traffic: time of each substep.

``python -m benchmarks.control_plane [CHANGES]`` (root; default: 20). Four racks of two servers have
four ports on each of two planes. All 16 circuits, and thus 32 ToR ports, move from two pairs of
racks to two other pairs and back, with 5000 rules over the eight vswitches, while a server sends
TCP at 100 Mb/s. The baselines are the published prototypes: HydRA (section V.B: 2.2 s with 5000
rules), and the part of Helios' control loop that software could shorten (section 5.4: 168 ms).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import cycle
from statistics import median

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.stage.controller_client import (
    ControllerClient,
    PairDemand,
    ReconfigurationRecord,
)
from mininet_scenarios.stage.delays import split
from mininet_scenarios.stage.stage import tcp_transfer

CHANGES = 20
PERIOD_S = 1.5
RULES = 5000
PORTS = 32
UPLINKS = (1, 2, 3, 4)
PAPER_MS = 2200.0
HELIOS_MS = 168.0
TARGET_MS = 100.0
WIRING = [
    {
        "racks": "r[1-4]",
        "planes": "p[1-2]",
        "tor_port": f"hyt-r{{rack}}-p{{plane}}{uplink}",
        "ingress": f"{{rack * 4 - {4 - uplink}}}",
        "egress": f"{{ports + rack * 4 - {4 - uplink}}}",
    }
    for uplink in UPLINKS
]
POLICY = {
    "mode": "on-request",
    "algorithm": "hydra-bfs+",
    "paths_per_pair": 8,
}
PAIRINGS = ((("r1", "r2"), ("r3", "r4")), (("r1", "r3"), ("r2", "r4")))
SUBSTEPS = ("divert", "retag", "push", "mirrors", "gate", "activate")


def changes(client: ControllerClient, number: int) -> list[ReconfigurationRecord]:
    """Move all circuits from one pairing to the other and back, repeatedly."""
    records = []
    for _, pairs in zip(range(number + 1), cycle(PAIRINGS), strict=False):
        started_s = time.monotonic()
        records.append(client.reconfigure([PairDemand(a, b, 800.0) for a, b in pairs]))
        time.sleep(max(0.0, PERIOD_S - (time.monotonic() - started_s)))
    return records[1:]  # before the first change, there were no circuits to move


def main(argv: Sequence[str] = ()) -> int:
    number = int(argv[0]) if argv else CHANGES
    with (
        demo_stage(changes={"wiring": WIRING}) as stage,
        stage.controller(POLICY, rules=RULES) as client,
    ):
        switching_ms = stage.fabric.planes[0].switching_ms
        with tcp_transfer(stage, "h11", "h21", 5201, (number + 4) * PERIOD_S):
            time.sleep(PERIOD_S)
            records = changes(client, number)
    for record in records:
        if record.ports_retagged < PORTS or record.rules_pushed < RULES:
            raise SystemExit(
                f"only {record.ports_retagged} ports and {record.rules_pushed} rules: no comparison"
            )
    delays = [split(record.timeline, switching_ms) for record in records]
    without_ms = median(delay.delay_without_mirrors_ms for delay in delays)
    case = f"{PORTS} ports, {RULES} rules, 2 planes, under TCP, median of {number}"
    metric = "less mirrors and drain"
    results = [
        Result(case, metric, "ms", "lower", without_ms, PAPER_MS, "HydRA's prototype", TARGET_MS),
        Result(case, metric, "ms", "lower", without_ms, HELIOS_MS, "Helios, optional part"),
    ]
    results += [
        Result(case, name, "ms", "lower", median(d.substep(name) for d in delays), without_ms,
               "the whole, less mirrors and drain")
        for name in (*SUBSTEPS, "drain")
    ]  # fmt: skip
    return report("control_plane", results)


if __name__ == "__main__":
    run_benchmark(main)
