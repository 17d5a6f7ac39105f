"""Effects of make-before-break changes on traffic, compared with HydRA's order.

``python -m benchmarks.make_before_break [CHANGES | plans]`` (root; default: 16 changes). On the
demo fabric, the circuit of a rack pair moves from plane to plane and back, under TCP at full speed
with a change every 4 s and every 0.5 s, and under 1000 datagrams a second. The baseline is the same
controller with ``transition: divert-first``, which sends the pair over the electrical network
meanwhile, in the same run and on the same testbed. Shares are relative to TCP without changes;
repeated segments are counted beyond the segments repeated without changes.

First, the benchmark computes the traffic that random changes of 8 racks and 4 planes take off
circuits (``benchmarks._moves``); with ``plans``, the benchmark ends there, and needs no root.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from benchmarks import _moves
from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.stage.alternation import Alternation, Change
from mininet_scenarios.stage.controller_client import PairDemand
from mininet_scenarios.stage.stage import CONGESTION, Stage, tcp_transfer
from mininet_scenarios.stage.streams import UdpResult, paced_stream

CHANGES = 16
PAIR, PLANES = ("r1", "r2"), ("p1", "p2")
HOSTS = ("h11", "h21")
PERIODS_S = (4.0, 0.5)
RULES = (100, 5000)
SHARE_TARGETS = {4.0: 0.998, 0.5: 0.99}
SEGMENTS_TARGET = 2.0
GAP_TARGET_MS = 2.0
PPS, PAYLOAD_BYTES = 1000.0, 750
WARM_UP_S, STATIC_S, PORT = 1.0, 10.0, 5201
OURS, BASELINE = CycleName.HITLESS, CycleName.DIVERT_FIRST


@dataclass(frozen=True, slots=True)
class Tcp:
    """TCP at full speed: Mb/s received, segments repeated per second, number of changes."""

    mbps: float
    repeated_per_s: float
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class Way:
    """Cost of a way of changing."""

    tcp: dict[float, Tcp]
    """TCP results by the time between two changes, in s."""
    udp: UdpResult
    dark_frames: int


def demand() -> PairDemand:
    return PairDemand(*PAIR, 80.0)


def tcp(stage: Stage, seconds: float, alternation: Alternation | None, period_s: float) -> Tcp:
    """TCP for ``seconds``, with a change every ``period_s`` if an ``alternation`` is given."""
    changes: Sequence[Change] = ()
    with tcp_transfer(
        stage, *HOSTS, PORT, WARM_UP_S + seconds + 1.0, congestion=CONGESTION
    ) as transfer:
        if alternation is not None:
            number = int(seconds / period_s)
            times_s = [WARM_UP_S + period_s * (turn + 0.5) for turn in range(number)]
            changes = alternation.perform(transfer.client.started_s, times_s)
        received, sent = transfer.finish(seconds + 30.0)
    mbps = received.average_between(WARM_UP_S, WARM_UP_S + seconds)
    return Tcp(mbps, (sent.retransmits or 0) / (WARM_UP_S + seconds + 1.0), changes)


def resting_gap_ms(stage: Stage) -> float:
    """Longest gap of the paced stream without changes."""
    with paced_stream(stage, *HOSTS, pps=PPS, payload_bytes=PAYLOAD_BYTES) as stream:
        time.sleep(STATIC_S)
        return stream.stop().max_gap_ms


def way(stage: Stage, cycle: CycleName, rules: int, number: int) -> Way:
    """All measurements with one order of substeps and one number of rules."""
    before = stage.losses()
    with stage.controller({"mode": "on-request"}, cycle, rules) as client:
        client.reconfigure([demand()], use_planes=PLANES[:1])
        alternation = Alternation(client, demand(), PLANES, stage.fabric.planes[0].switching_ms)
        found = {
            period_s: tcp(stage, period_s * max(4, number // 4), alternation, period_s)
            for period_s in PERIODS_S
        }
        with paced_stream(stage, *HOSTS, pps=PPS, payload_bytes=PAYLOAD_BYTES) as stream:
            now_s = time.monotonic()
            alternation.perform(now_s, [0.5 + 0.5 * turn for turn in range(number)])
            udp = stream.stop()
    return Way(found, udp, stage.losses().since(before).dark_frames)


def results(rules: int, static: Tcp, ours: Way, theirs: Way) -> list[Result]:
    """Rows for a number of rules."""
    case, name = f"{rules} rules", "divert first"
    rows = []
    for period_s in PERIODS_S:
        our_tcp, their_tcp = ours.tcp[period_s], theirs.tcp[period_s]
        every = f"a change every {period_s:g} s"
        shares = [run.mbps / static.mbps for run in (our_tcp, their_tcp)]
        rows.append(
            Result(case, f"TCP, {every}: share of static", "", "higher", shares[0], shares[1],
                   name, SHARE_TARGETS[period_s])
        )  # fmt: skip
        beyond = [
            max(0.0, run.repeated_per_s - static.repeated_per_s) * period_s
            for run in (our_tcp, their_tcp)
        ]
        rows.append(
            Result(case, f"TCP, {every}: segments repeated a change", "", "lower", beyond[0],
                   beyond[1], name, SEGMENTS_TARGET)
        )  # fmt: skip
    gaps_ms = [run.udp.max_gap_ms for run in (ours, theirs)]
    rows += [
        Result(case, "1 kHz paced: longest gap", "ms", "lower", *gaps_ms, name, GAP_TARGET_MS),
        Result(case, "1 kHz paced: out of order", "", "lower", ours.udp.reordered,
               theirs.udp.reordered, name, 0.0),
        Result(case, "1 kHz paced: lost", "", "lower", ours.udp.lost, theirs.udp.lost, name, 0.0),
        Result(case, "frames in the dark", "", "lower", ours.dark_frames, theirs.dark_frames, name,
               0.0),
    ]  # fmt: skip
    delays_ms = [
        median(change.delay.total_ms for run in each.tcp.values() for change in run.changes)
        for each in (ours, theirs)
    ]
    rows.append(
        Result(case, "until traffic is on the new path", "ms", "lower", *delays_ms, name,
               delays_ms[1])
    )  # fmt: skip
    return rows


def main(argv: Sequence[str] = ()) -> int:
    rows: list[Result] = list(_moves.rows())
    if list(argv) == ["plans"]:
        return report("make_before_break", rows)
    number = int(argv[0]) if argv else CHANGES
    with demo_stage() as stage:
        with stage.controller({"mode": "on-request"}) as client:
            client.reconfigure([demand()], use_planes=PLANES[:1])
            runs = [tcp(stage, STATIC_S, None, STATIC_S) for _ in range(2)]
            gap_ms = resting_gap_ms(stage)
        static = Tcp(fmean(run.mbps for run in runs), fmean(run.repeated_per_s for run in runs), ())
        rows += [
            Result("no change", "TCP", "Mb/s", "higher", static.mbps),
            Result("no change", "segments repeated a second", "", "lower", static.repeated_per_s),
            Result("no change", "1 kHz paced: longest gap", "ms", "lower", gap_ms),
        ]
        for rules in RULES:
            ours, theirs = (way(stage, order, rules, number) for order in (OURS, BASELINE))
            rows += results(rules, static, ours, theirs)
    return report("make_before_break", rows)


if __name__ == "__main__":
    run_benchmark(main)
