"""c-Through's Table 2: cost of output scheduling for a transfer, on circuits and electrically.

``python -m benchmarks.output_scheduling [ROUNDS]`` (root; by default 5). TCP at full speed between
two servers of the demo fabric, at a fiftieth of the paper's rates (20 Mb/s on a circuit, 2 Mb/s
electrically), which even a busy machine can forward; with the kernel's own queues, and with an
agent that schedules. Then two transfers of one server at once; and a transfer on the circuit while
the server floods the electrical network with datagrams at the rate of its own link. Without
scheduling, the link then has a queue of that rate.

Other work of the machine changes single figures by more than scheduling does. So both cases are
measured in every round, in changing order, and the medians of all rounds are compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Final

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.stage.agents import AgentStage, agent_stage
from mininet_scenarios.stage.stage import Stage, tcp_transfer
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed.servers import run_in

ROUNDS: Final = 5
SECONDS: Final = 8
SETTLE_S: Final = 2.0
PORT: Final = 5201
SENDER: Final = "h11"
RECEIVERS: Final = {"optical": "h21", "electrical": "h31"}
PAPER: Final = {"optical": 921 / 940, "electrical": 94 / 94}
"""Throughput of TCP with output scheduling, relative to TCP without scheduling."""
OPTICAL_MBPS: Final = 20
DEMAND: Final = [{"src": a, "dst": b, "mbps": 15} for a, b in (("r1", "r2"), ("r2", "r1"))]
NOISE: Final = 0.95
"""Ratio of medians that occurs even between equal cases."""
Figures = Mapping[str, float]


LINK: Final = f"{SENDER}-eth0"
FLOOD_PPS: Final = OPTICAL_MBPS * 1e6 / 8 / 1442
FLOOD_BYTES: Final = 1400
"""Payload of a datagram: 1442 bytes in all."""


@contextmanager
def scheduled(agents: AgentStage, wanted: bool) -> Iterator[None]:
    with ExitStack() as stack:
        if wanted:
            stack.enter_context(agents.agent(SENDER, "--interface", LINK))
            time.sleep(SETTLE_S + 2)
        yield


def alone(stage: Stage, kind: str) -> float:
    with tcp_transfer(stage, SENDER, RECEIVERS[kind], PORT, SECONDS) as transfer:
        received, _ = transfer.finish(SECONDS + 20)
    return received.average_between(SETTLE_S, SECONDS)


def together(stage: Stage) -> Figures:
    with ExitStack() as stack:
        running = {
            kind: stack.enter_context(tcp_transfer(stage, SENDER, server, PORT, SECONDS))
            for kind, server in RECEIVERS.items()
        }
        found = {kind: transfer.finish(SECONDS + 20)[0] for kind, transfer in running.items()}
    return {kind: run.average_between(SETTLE_S, SECONDS - 1) for kind, run in found.items()}


@contextmanager
def plain_queue(stage: Stage, wanted: bool) -> Iterator[None]:
    """The server's link with a rate limit and no scheduling: first come, first served."""
    if not wanted:
        yield
        return
    host = stage.testbed.host(SENDER)
    run_in(host, *f"tc qdisc add dev {LINK} root handle 9: htb default 1".split())
    rate = f"rate {OPTICAL_MBPS}mbit burst 32k quantum 15140"
    run_in(host, *f"tc class add dev {LINK} parent 9: classid 9:1 htb {rate}".split())
    try:
        yield
    finally:
        run_in(host, *f"tc qdisc del dev {LINK} root".split())


def crowded(stage: Stage) -> float:
    """Mb/s on the circuit during a flood on the electrical network."""
    flood = paced_stream(
        stage, SENDER, RECEIVERS["electrical"], pps=FLOOD_PPS, payload_bytes=FLOOD_BYTES,
        count=int(FLOOD_PPS * (SECONDS + 4)),
    )  # fmt: skip
    with flood as stream:
        received = alone(stage, "optical")
        stream.sender.stop()
    return received


def look(agents: AgentStage, wanted: bool) -> Figures:
    """Mb/s of each row, with or without scheduling."""
    with scheduled(agents, wanted):
        figures = {kind: alone(agents.stage, kind) for kind in RECEIVERS}
        both = together(agents.stage)
        with plain_queue(agents.stage, not wanted):
            flooded = crowded(agents.stage)
    figures |= {f"{kind}, both at once": mbps for kind, mbps in both.items()}
    return figures | {"optical, beside a flood": flooded}


def measure(agents: AgentStage, rounds: int) -> list[Result]:
    seen: dict[bool, list[Figures]] = {False: [], True: []}
    for number in range(rounds):
        for wanted in (number % 2 == 0, number % 2 == 1):
            figures = look(agents, wanted)
            seen[wanted].append(figures)
            words = ", ".join(f"{kind} {mbps:.2f}" for kind, mbps in figures.items())
            print(f"round {number + 1}, {'with' if wanted else 'without'}: {words}", flush=True)
    return [_result(kind, seen) for kind in seen[True][0]]


def _result(kind: str, seen: Mapping[bool, Sequence[Figures]]) -> Result:
    ours, without = (median(figures[kind] for figures in seen[wanted]) for wanted in (True, False))
    target = NOISE * PAPER[kind] * without if kind in PAPER else None
    metric = f"TCP with output scheduling, median of {len(seen[True])}"
    return Result(kind, metric, "Mb/s", "higher", ours, without, "without", target)


def main(argv: Sequence[str] = ()) -> int:
    rounds = int(argv[0]) if argv else ROUNDS
    with (
        demo_stage(OPTICAL_MBPS) as stage,
        agent_stage(stage, [SENDER], {"agents": {"optical_share": 0.9}}) as agents,
    ):
        headers = {"Prefer": "wait=20"}
        path, body = "/v1/reconfigurations", {"demand": DEMAND}
        agents.ask("POST", path, json=body, headers=headers).raise_for_status()
        results = measure(agents, rounds)
    return report("output_scheduling", results)


if __name__ == "__main__":
    run_benchmark(main)
