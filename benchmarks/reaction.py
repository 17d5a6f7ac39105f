"""Time from the start of a hot transfer to its bytes on a circuit, with counters and with agents.

``python -m benchmarks.reaction`` (root). TCP at full speed between racks of the demo fabric without
a circuit; the controller decides every second from counters that are read twice a second. The
electrical network carries 10 Mb/s. So counters show an elephant at once if elephants begin at 1
Mb/s, and never if elephants begin at 20 Mb/s, for any backlog.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import yaml

from apps.process.configuration import load_configuration
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.stage.agents import AgentStage, agent_stage
from mininet_scenarios.stage.stage import Stage, tcp_transfer
from mininet_scenarios.testbed import Testbed

CONFIG: Final = Path(__file__).parents[1] / "configs" / "demo.yaml"
PAIRS: Final = (("h11", "h21"), ("h31", "h41"), ("h12", "h32"), ("h22", "h42"))
"""Pairs of servers; a rack is in at most as many pairs as planes, so each pair finds a free port.
"""
POLICY: Final = {
    "mode": "periodic",
    "epoch_s": 1.0,
    "poll_interval_s": 0.5,
    "demand_window_s": 1.0,
    "minimum_circuit_life_s": 0.0,
}
PATIENCE_S: Final = 10.0
PORT: Final = 5201
ENOUGH_BYTES: Final = 100_000
LOOK_S: Final = 0.01
BUFFER_MB: Final = 20


def optical_bytes(stage: Stage, sender: str) -> int:
    """Bytes sent into circuits by the sender's ToR."""
    fabric = stage.fabric
    ports = fabric.ports_of(fabric.server_by_name[sender].rack)
    counters = (Path(f"/sys/class/net/{port.tor_port}/statistics/tx_bytes") for port in ports)
    return sum(int(counter.read_text()) for counter in counters)


def reaction_s(stage: Stage, sender: str, receiver: str) -> float:
    """Time until bytes are on a circuit; ``PATIENCE_S`` without bytes in that time."""
    before = optical_bytes(stage, sender)
    with tcp_transfer(stage, sender, receiver, PORT, PATIENCE_S + 5) as transfer:
        started_s = transfer.client.started_s
        while time.monotonic() - started_s < PATIENCE_S:
            if optical_bytes(stage, sender) - before > ENOUGH_BYTES:
                return time.monotonic() - started_s
            time.sleep(LOOK_S)
    return PATIENCE_S


def reactions_s(agents: AgentStage, with_agents: bool) -> list[float]:
    with ExitStack() as stack:
        if with_agents:
            for sender, _ in PAIRS:
                stack.enter_context(agents.agent(sender, "--socket-buffer-mb", str(BUFFER_MB)))
            time.sleep(3)
        return [reaction_s(agents.stage, *pair) for pair in PAIRS]


def measure(stage: Stage, threshold_mbps: float) -> Result:
    policy = {**POLICY, "elephant_mbps": threshold_mbps}
    found = {}
    for with_agents in (False, True):
        with agent_stage(stage, [sender for sender, _ in PAIRS], policy) as agents:
            found[with_agents] = reactions_s(agents, with_agents)
    never = min(found[False]) >= PATIENCE_S
    return Result(
        f"elephants from {threshold_mbps:g} Mb/s on",
        f"first bytes on a circuit, median of {len(PAIRS)}",
        "s",
        "lower",
        median(found[True]),
        median(found[False]),
        f"counters alone: never in {PATIENCE_S:g} s" if never else "counters alone",
    )


def main() -> int:
    loaded = load_configuration(CONFIG)
    document = yaml.safe_load(CONFIG.read_text())
    with (
        tempfile.TemporaryDirectory() as directory,
        Testbed(loaded.fabric, loaded.controller) as testbed,
    ):
        stage = Stage(testbed, loaded.fabric, document, Path(directory))
        results = [measure(stage, threshold_mbps) for threshold_mbps in (1.0, 20.0)]
    return report("reaction", results)


if __name__ == "__main__":
    run_benchmark(main)
