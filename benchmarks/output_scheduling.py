"""c-Through's Table 2: what output scheduling costs a transfer, on circuits and electrically.

``python -m benchmarks.output_scheduling`` (root). TCP at full speed between two servers of the demo
fabric, at a fiftieth of the paper's rates, which a busy machine forwards, too: 20 Mb/s on a
circuit, 2 Mb/s electrically; with queues as the kernel has them, and with an agent that schedules.
Then both at once: two transfers that share the server's link of 20 Mb/s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from apps.configuration import load_configuration
from benchmarks._report import Result, report
from mininet_scenarios.agents import AgentStage, agent_stage
from mininet_scenarios.stage import Stage, tcp_transfer
from mininet_scenarios.testbed import Testbed

CONFIG: Final = Path(__file__).parents[1] / "configs" / "demo.yaml"
SECONDS: Final = 8
SETTLE_S: Final = 2.0
PORT: Final = 5201
SENDER: Final = "h11"
RECEIVERS: Final = {"optical": "h21", "electrical": "h31"}
PAPER: Final = {"optical": 921 / 940, "electrical": 94 / 94}
"""With output scheduling as a share of without, TCP."""
OPTICAL_MBPS: Final = 20
DEMAND: Final = [{"src": a, "dst": b, "mbps": 15} for a, b in (("r1", "r2"), ("r2", "r1"))]


@contextmanager
def scheduled(agents: AgentStage, wanted: bool) -> Iterator[None]:
    with ExitStack() as stack:
        if wanted:
            stack.enter_context(agents.agent(SENDER, "--interface", f"{SENDER}-eth0"))
            time.sleep(SETTLE_S + 2)
        yield


def alone(stage: Stage, kind: str) -> float:
    with tcp_transfer(stage, SENDER, RECEIVERS[kind], PORT, SECONDS) as transfer:
        received, _ = transfer.finish(SECONDS + 20)
    return received.average_between(SETTLE_S, SECONDS)


def together(stage: Stage) -> dict[str, float]:
    with ExitStack() as stack:
        running = {
            kind: stack.enter_context(tcp_transfer(stage, SENDER, server, PORT, SECONDS))
            for kind, server in RECEIVERS.items()
        }
        found = {kind: one.finish(SECONDS + 20)[0] for kind, one in running.items()}
    return {kind: run.average_between(SETTLE_S, SECONDS - 1) for kind, run in found.items()}


def measure(agents: AgentStage) -> list[Result]:
    stage = agents.stage
    figures: dict[bool, dict[str, float]] = {}
    for wanted in (False, True):
        with scheduled(agents, wanted):
            figures[wanted] = {kind: alone(stage, kind) for kind in RECEIVERS}
            both = together(stage)
            figures[wanted] |= {f"{kind}, both at once": mbps for kind, mbps in both.items()}
    return [
        Result(
            kind,
            "TCP with output scheduling",
            "Mb/s",
            "higher",
            ours,
            figures[False][kind],
            "without",
            # The paper's share, less what two runs differ by anyway.
            0.95 * PAPER[kind] * figures[False][kind] if kind in PAPER else None,
        )
        for kind, ours in figures[True].items()
    ]


def slowed_down() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    document["planes"][0]["rate_mbps"] = document["server_rate_mbps"] = OPTICAL_MBPS
    document["electrical"]["rate_mbps"] = OPTICAL_MBPS / 10
    return document


def main() -> int:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        document = slowed_down()
        config = Path(directory) / "fabric.yaml"
        config.write_text(yaml.safe_dump(document))
        loaded = load_configuration(config)
        testbed = stack.enter_context(Testbed(loaded.fabric, loaded.controller))
        stage = Stage(testbed, loaded.fabric, document, Path(directory))
        with agent_stage(stage, [SENDER], {"agents": {"optical_share": 0.9}}) as agents:
            headers = {"Prefer": "wait=20"}
            path, body = "/v1/reconfigurations", {"demand": DEMAND}
            agents.ask("POST", path, json=body, headers=headers).raise_for_status()
            results = measure(agents)
    report("output_scheduling", results)
    return 0 if all(result.meets_target for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
