"""Many reconfigurations under traffic: losses, their places, and the time of each change.

``python -m benchmarks.reconfigurations [NUMBER]`` (root; by default 50, once under paced UDP and
once under TCP). The circuit of a pair of the demo fabric moves from plane to plane once a second.
The traffic is 1000 datagrams a second of the moving pair (80 % of the electrical capacity) and of a
staying pair, and a few datagrams that a third pair sends electrically to the receiver of the
diverted datagrams; then a TCP flow of the moving pair at full speed. The baseline is the same
traffic without changes, and for delays the published prototype (HydRA, section V.B).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.stage.alternation import Alternation, Change
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.stage import Losses, Stage, tcp_transfer
from mininet_scenarios.stage.streams import UdpResult, paced_stream

NUMBER = 50
PERIOD_S = 1.0
PPS = 1000.0
PAYLOAD_BYTES = 950
"""Payload for 8 Mb/s with headers, of the electrical network's 10 Mb/s."""
PAPER_MS = 2200.0
TARGET_MS = 100.0
_MOVED, _KEPT, _ELECTRICAL = ("h11", "h21"), ("h31", "h41"), ("h42", "h21")
_ELECTRICAL_PPS = 100.0
_LEAD_S = 1.0


@dataclass(frozen=True, slots=True)
class UdpRun:
    changes: tuple[Change, ...]
    moved: UdpResult
    kept: UdpResult
    electrical: UdpResult
    """Result of a pair without circuits that sends to the moving pair's receiver."""
    losses: Losses


@dataclass(frozen=True, slots=True)
class TcpRun:
    changes: tuple[Change, ...]
    retransmits: int
    mbps: float
    kept: UdpResult
    losses: Losses


def _perform(
    client: ControllerClient, number: int, switching_ms: float, start_s: float
) -> tuple[Change, ...]:
    alternation = Alternation(client, PairDemand("r1", "r2", 80.0), ("p1", "p2"), switching_ms)
    times_s = [_LEAD_S + index * PERIOD_S for index in range(number)]
    return alternation.perform(start_s, times_s)


def udp_run(stage: Stage, client: ControllerClient, number: int) -> UdpRun:
    """A run of ``number`` changes; 0: a run without changes, for the time of ten changes."""
    seconds = 2 * _LEAD_S + (number or 10) * PERIOD_S
    before = stage.losses()
    count = int(seconds * PPS)
    sparse = int(seconds * _ELECTRICAL_PPS)
    with (
        paced_stream(
            stage, *_ELECTRICAL, pps=_ELECTRICAL_PPS, payload_bytes=200, count=sparse
        ) as electrical,
        paced_stream(stage, *_KEPT, pps=PPS, payload_bytes=200, count=count) as kept,
        paced_stream(stage, *_MOVED, pps=PPS, payload_bytes=PAYLOAD_BYTES, count=count) as moved,
    ):
        switching_ms = stage.fabric.planes[0].switching_ms
        changes = _perform(client, number, switching_ms, moved.sender.started_s)
        results = tuple(stream.finish(seconds + 10) for stream in (moved, kept, electrical))
    return UdpRun(changes, *results, stage.losses().since(before))


def tcp_run(stage: Stage, client: ControllerClient, number: int) -> TcpRun:
    """A run of ``number`` changes; 0: a run without changes, for the time of ten changes."""
    seconds = 2 * _LEAD_S + (number or 10) * PERIOD_S
    before = stage.losses()
    with (
        paced_stream(
            stage, *_KEPT, pps=PPS, payload_bytes=200, count=int((seconds + 2) * PPS)
        ) as kept,
        tcp_transfer(stage, *_MOVED, 5201, seconds) as tcp,
    ):
        switching_ms = stage.fabric.planes[0].switching_ms
        changes = _perform(client, number, switching_ms, tcp.client.started_s)
        received, sent = tcp.finish(seconds + 10)
        bystander = kept.finish(seconds + 10)
    return TcpRun(
        changes,
        sent.retransmits or 0,
        received.average_mbps,
        bystander,
        stage.losses().since(before),
    )


def _delays(case: str, changes: Sequence[Change]) -> list[Result]:
    splits = [change.delay for change in changes]
    without = median(split.delay_without_mirrors_ms for split in splits)
    whole = median(split.delay_ms for split in splits)
    drain = median(split.drain_ms for split in splits)
    name = f"median of {len(splits)}"
    return [
        Result(case, f"delay less mirrors, {name}", "ms", "lower", without, PAPER_MS, "paper",
               TARGET_MS),
        Result(case, f"delay, mirrors included, {name}", "ms", "lower", whole, PAPER_MS, "paper"),
        Result(case, f"drain, {name}", "ms", "lower", drain),
    ]  # fmt: skip


def _losses(case: str, losses: Losses, static: Losses) -> list[Result]:
    dark = Result(case, "frames at dark ports", "", "lower", float(losses.dark_frames),
                  float(static.dark_frames), "static", 0.0)  # fmt: skip
    queues = [
        Result(case, f"frames dropped by the queue of {name}", "", "lower", float(dropped),
               float(static.queues.get(name, 0)), "static")
        for name, dropped in sorted(losses.queues.items())
    ]  # fmt: skip
    return [dark, *queues]


def main(argv: Sequence[str] = ()) -> int:
    number = int(argv[0]) if argv else NUMBER
    with demo_stage() as stage, stage.controller({"mode": "on-request"}) as client:
        demands = [PairDemand("r1", "r2", 80.0), PairDemand("r3", "r4", 80.0)]
        client.reconfigure(demands, use_planes=("p1",))
        static, static_udp = tcp_run(stage, client, 0), udp_run(stage, client, 0)
        udp = udp_run(stage, client, number)
        tcp = tcp_run(stage, client, number)
    under_udp, under_tcp = f"{number} changes, paced UDP", f"{number} changes, TCP"
    results = [
        Result(case, f"datagrams lost, {pair} pair, of {found.sent}", "", "lower",
               float(found.lost), float(static.kept.lost), "static", 0.0)
        for case, pair, found in (
            (under_udp, "moved", udp.moved),
            (under_udp, "kept", udp.kept),
            (under_udp, "electrical", udp.electrical),
            (under_tcp, "kept", tcp.kept),
        )
    ]  # fmt: skip
    results.append(
        Result(under_udp, "p99 one-way delay, electrical pair", "ms", "lower",
               udp.electrical.p99_delay_ms or math.nan,
               static_udp.electrical.p99_delay_ms or math.nan, "static")
    )  # fmt: skip
    results += _losses(under_udp, udp.losses, static.losses)
    results += _losses(under_tcp, tcp.losses, static.losses)
    per_change = tcp.retransmits / number
    results.append(Result(under_tcp, "segments retransmitted a change", "", "lower", per_change,
                          static.retransmits / 10, "static, a period"))  # fmt: skip
    results.append(
        Result(under_tcp, "throughput", "Mb/s", "higher", tcp.mbps, static.mbps, "static")
    )
    results += _delays(under_udp, udp.changes) + _delays(under_tcp, tcp.changes)
    return report("reconfigurations", results)


if __name__ == "__main__":
    run_benchmark(main)
