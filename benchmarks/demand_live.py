"""Demand measured from counters against a demand given in advance, on the emulated data plane.

``python -m benchmarks.demand_live [--seconds N] [WORKLOAD…]`` (root). Each workload is played twice
on the demo fabric with one of its planes at 20 Mb/s, the electrical network at 2. In one run the
controller decides every second from its counters (in one workload from agents, too). In the other
run the controller gets the offered load by REST when traffic begins, and at each change; the
offered load of greedy TCP is the max-min share of an ideal switch. The same algorithm plans for
both. Compared are the bytes received by servers, and the time until the circuits join the same
racks.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from benchmarks._choice import chosen
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.reporting.narrator import ConsoleNarrator
from mininet_scenarios.stage import building
from mininet_scenarios.stage.agents import agent_stage
from mininet_scenarios.stage.controller_client import ControllerClient, OneWayDemand
from mininet_scenarios.stage.stage import (
    ScenarioError,
    Stage,
    sent_bytes,
    tcp_transfer,
    udp_transfer,
)
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG
from topology.demand import max_min_rates

SCALE: Final = 0.2
CIRCUIT_MBPS: Final = 20.0
POLICY: Final = {
    "poll_interval_s": 0.5,
    "epoch_s": 1.0,
    "elephant_mbps": 0.2,
    "minimum_gain_mbps": 0.2,
    "minimum_circuit_life_s": 0.0,
    "algorithm": "hydra-bfs+",
}
SECONDS: Final = 60
TARGET: Final = 97.0
_PORT: Final = 5201
_LOOK_S: Final = 0.05
_DATAGRAM_BYTES: Final = 1200
_SETTLE_S: Final = 15.0
"""Wait before a run: five time constants of the controller's averages, which still contain the last
run.
"""

Joined = frozenset[tuple[str, str]]
"""Pairs of racks with a path of circuits."""


@dataclass(frozen=True, slots=True)
class Stream:
    src: str
    dst: str
    mbps: float | None = None
    """Rate by UDP; None: greedy TCP."""
    connections: int = 1
    begins: float = 0.0
    """Time of the stream, as a part of the run."""
    ends: float = 1.0


@dataclass(frozen=True, slots=True)
class Workload:
    streams: tuple[Stream, ...]
    agents: bool = False


WORKLOADS: Final[Mapping[str, Workload]] = {
    "1:2": Workload((Stream("h11", "h21", 12), Stream("h12", "h31", 6))),
    "1:5": Workload((Stream("h11", "h21", 3), Stream("h12", "h31", 15))),
    "1:10": Workload((Stream("h11", "h21", 18), Stream("h12", "h31", 1.8))),
    "1:50": Workload((Stream("h11", "h21", 0.36), Stream("h12", "h31", 18))),
    "two rooms for three": Workload(
        (Stream("h11", "h21", 16), Stream("h22", "h31", 9), Stream("h32", "h41", 12))
    ),
    "greedy beside paced": Workload((Stream("h11", "h21"), Stream("h12", "h31", 6))),
    "many beside one": Workload((Stream("h11", "h21", connections=8), Stream("h11", "h31"))),
    "one grows": Workload(
        (
            Stream("h11", "h21", 4),
            Stream("h11", "h21", 14, begins=1 / 3),
            Stream("h12", "h31", 10),
        )
    ),
    "one shrinks": Workload(
        (Stream("h11", "h21", 4), Stream("h11", "h21", 14, ends=1 / 3), Stream("h12", "h31", 10))
    ),
    "behind one full uplink": Workload((Stream("h11", "h21", 12), Stream("h11", "h31", 3))),
    "behind one full uplink, agents": Workload(
        (Stream("h11", "h21", connections=6), Stream("h11", "h31")), agents=True
    ),
    "incast": Workload((Stream("h11", "h21"), Stream("h31", "h21"), Stream("h41", "h22"))),
    "shuffle": Workload(
        tuple(
            Stream(f"h{a}1", f"h{b}1", connections=1 + (a + b) % 3)
            for a in range(1, 5)
            for b in range(1, 5)
            if a != b
        )
    ),
}


def offered(stage: Stage, streams: Sequence[Stream]) -> list[OneWayDemand]:
    """Rates from rack to rack on an ideal switch, whose ports are the servers' links."""
    place = {server.name: number for number, server in enumerate(stage.fabric.servers)}
    uses = np.array([[place[stream.src], len(place) + place[stream.dst]] for stream in streams])
    rates = max_min_rates(
        uses,
        np.full(2 * len(place), stage.fabric.server_rate_mbps),
        np.array([np.inf if stream.mbps is None else stream.mbps for stream in streams]),
        np.array([stream.connections for stream in streams], dtype=np.float64),
    )
    wanted: dict[tuple[str, str], float] = {}
    for stream, mbps in zip(streams, rates.tolist(), strict=True):
        pair = rack_of(stage, stream.src), rack_of(stage, stream.dst)
        wanted[pair] = wanted.get(pair, 0.0) + mbps
    return [OneWayDemand(*pair, mbps) for pair, mbps in wanted.items()]


def rack_of(stage: Stage, server: str) -> str:
    return stage.fabric.racks[stage.fabric.server_by_name[server].rack].name


@contextmanager
def playing(stage: Stage, workload: Workload, seconds: int) -> Iterator[None]:
    """Run the streams that start with the block; the other streams start later by themselves.

    Raises ScenarioError at the end if a later stream did not start.
    """
    failed: list[ScenarioError] = []
    with ExitStack() as stack:
        timers = []
        for number, stream in enumerate(workload.streams):
            lasts_s = (stream.ends - stream.begins) * seconds + (2 if stream.ends == 1 else 0)

            def begin(
                stream: Stream = stream, port: int = _PORT + number, s: float = lasts_s
            ) -> None:
                if stream.begins:
                    transfer = _later(stage, stream, s)
                elif stream.mbps is None:
                    transfer = tcp_transfer(
                        stage, stream.src, stream.dst, port, s, streams=stream.connections
                    )
                else:
                    transfer = udp_transfer(
                        stage, stream.src, stream.dst, port, s,
                        average_mbps=stream.mbps, datagram_bytes=_DATAGRAM_BYTES,
                    )  # fmt: skip
                stack.enter_context(transfer)

            def begin_later(begin: Callable[[], None] = begin) -> None:
                try:
                    begin()
                except ScenarioError as error:
                    failed.append(error)

            if stream.begins == 0:
                begin()
            else:
                timers.append(threading.Timer(stream.begins * seconds, begin_later))
        for timer in timers:
            timer.start()
        yield
        for timer in timers:
            timer.join()
    for error in failed:
        raise error


def _later(stage: Stage, stream: Stream, seconds: float) -> AbstractContextManager[object]:
    """Datagrams without a handshake: iperf3's TCP would not get through an uplink overrun by an
    earlier stream's datagrams.
    """
    if stream.mbps is None:
        raise ScenarioError(f"{stream.src} to {stream.dst}: TCP can't begin later")
    pps = stream.mbps * 1e6 / (8 * _DATAGRAM_BYTES)
    return paced_stream(
        stage, stream.src, stream.dst, pps=pps, payload_bytes=_DATAGRAM_BYTES,
        count=int(pps * seconds), acquainted=True,
    )  # fmt: skip


def changes(workload: Workload) -> list[float]:
    """Times, as parts of the run, at which the offered load changes."""
    return sorted(
        {stream.begins for stream in workload.streams}
        | {stream.ends for stream in workload.streams}
    )


def joined(client: ControllerClient, stage: Stage) -> Joined:
    racks = [rack.name for rack in stage.fabric.racks]
    return frozenset(
        (a, b) for a in racks for b in racks if a < b and client.path_between(a, b).planes
    )


@dataclass(frozen=True, slots=True)
class Played:
    received_mb: float
    seen: tuple[tuple[float, Joined], ...]
    """Time since the start, and the racks joined from then on."""

    def since_s(self, wanted: Joined, after_s: float) -> float | None:
        """Time from ``after_s`` until these racks were joined; None: never."""
        standing = [racks for at_s, racks in self.seen if at_s <= after_s]
        if standing and standing[-1] == wanted:
            return 0.0
        later = [at_s for at_s, racks in self.seen if at_s > after_s and racks == wanted]
        return later[0] - after_s if later else None


def play(
    stage: Stage, client: ControllerClient, workload: Workload, seconds: int, *, by_rest: bool
) -> Played:
    receivers = [stage.fabric.server_by_name[stream.dst].vswitch for stream in workload.streams]
    ports = sorted({vswitch.host_port for vswitch in receivers if vswitch is not None})
    due = [part * seconds for part in changes(workload)[:-1]]
    client.amend({"mode": "on-request"})
    client.reconfigure([])
    time.sleep(_SETTLE_S)
    seen: list[tuple[float, Joined]] = [(0.0, frozenset())]
    with playing(stage, workload, seconds):
        before, started_s = sent_bytes(ports), time.monotonic()
        if not by_rest:
            client.amend({"mode": "periodic"})
        while (now_s := time.monotonic() - started_s) < seconds:
            if by_rest and due and now_s >= due[0]:
                part = due.pop(0) / seconds
                client.reconfigure(
                    offered(stage, [s for s in workload.streams if s.begins <= part < s.ends])
                )
            racks = joined(client, stage)
            if racks != seen[-1][1]:
                seen.append((time.monotonic() - started_s, racks))
            time.sleep(_LOOK_S)
        received = sent_bytes(ports) - before
    return Played(received / 1e6, tuple(seen))


def compare(stage: Stage, name: str, seconds: int, console: Console) -> list[Result]:
    workload = WORKLOADS[name]
    senders = sorted({stream.src for stream in workload.streams})
    with (
        agent_stage(stage, senders, {**POLICY, "mode": "on-request"}) as agents,
        agents.client() as client,
        ExitStack() as stack,
    ):
        for rack in stage.fabric.racks:
            port = stage.fabric.ports_of(rack.id)[1]
            client.set_aside(rack.name, port.tor_port, "one plane is enough")
        oracle = play(stage, client, workload, seconds, by_rest=True)
        for sender in senders if workload.agents else ():
            stack.enter_context(agents.agent(sender))
        ours = play(stage, client, workload, seconds, by_rest=False)
    share = 100 * ours.received_mb / oracle.received_mb
    console.print(f"{name}: {share:.1f} %; joined {_said(ours)}; told of it {_said(oracle)}")
    rows = [
        Result(
            name, f"received in {seconds} s, of what it is when told", "%", "higher",
            share, 100.0, "told by REST", TARGET
        )
    ]  # fmt: skip
    for number, part in enumerate(changes(workload)[:-1], 1):
        after_s = part * seconds
        until_s = changes(workload)[number] * seconds
        wanted = [racks for at_s, racks in oracle.seen if at_s < until_s][-1]
        took_s, alone_s = ours.since_s(wanted, after_s), oracle.since_s(wanted, after_s)
        rows.append(
            Result(
                name, f"demand {number}: until the same racks are joined", "s", "lower",
                seconds if took_s is None else took_s, alone_s or 0.0, "told by REST"
            )
        )  # fmt: skip
    return rows


def _said(played: Played) -> str:
    return ", ".join(
        f"{'+'.join('-'.join(pair) for pair in sorted(racks)) or 'none'} at {at_s:.1f} s"
        for at_s, racks in played.seen
    )


def main(argv: Sequence[str] = ()) -> int:
    names, seconds = chosen("demand_live", "workload", WORKLOADS, argv, SECONDS)
    console = Console()
    expected_s = len(names) * 2.0 * (seconds + 2 * _SETTLE_S)
    results = []
    with (
        tempfile.TemporaryDirectory() as directory,
        ConsoleNarrator(console, expected_s) as narrator,
        building.stage_of(DEFAULT_CONFIG, SCALE, Path(directory) / "stage", narrator) as stage,
    ):
        for name in names:
            with narrator.phase(name, expected_s / len(names)):
                results += compare(stage, name, seconds, console)
    return report("demand_live", results)


if __name__ == "__main__":
    run_benchmark(main)
