"""Throughput of a pair with part of its flows spilled to the electrical network.

``python -m benchmarks.both_networks [--seconds N] [WORKLOAD…]`` (root). Racks r1 and r2 of the demo
fabric have a circuit of 20 Mb/s; each workload is played with ``policy.spill`` off and on, with 2
and 10 Mb/s of the electrical network for each server. Results include the time of attempts that the
controller undoes. Other pairs' traffic, if the workload has any, is reported separately.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks._choice import chosen
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.reporting.narrator import ConsoleNarrator
from mininet_scenarios.stage import building
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.stage import Stage, tcp_transfer, udp_transfer

SCALE: Final = 0.2
"""Factor on all rates, so that one machine with other work can emulate the network."""
ELECTRICAL_MBPS: Final = (10.0, 50.0)
SECONDS: Final = 30
POLICY: Final = {"poll_interval_s": 0.5, "gain_horizon_s": 3.0, "spill": "off"}
HARM: Final = 97.0
"""Least throughput of other pairs with spills, in per cent of the throughput without spills."""
_PORT: Final = 5201
_LOOK_S: Final = 2.0
"""Time before the end of the run, in s."""
_PATIENCE_S: Final = 15.0
_DATAGRAM_BYTES: Final = 1200


@dataclass(frozen=True, slots=True)
class Stream:
    src: str
    dst: str
    connections: int = 1
    mbps: float | None = None
    """Total rate by UDP at scale 1; None: greedy TCP."""


HOT: Final = (Stream("h11", "h21", 8), Stream("h12", "h22", 8))
OTHERS: Final = (Stream("h11", "h31"), Stream("h41", "h22"))


@dataclass(frozen=True, slots=True)
class Workload:
    streams: tuple[Stream, ...]
    others: tuple[Stream, ...] = ()
    """Streams between racks without a circuit."""


WORKLOADS: Final[Mapping[str, Workload]] = {
    "one flow": Workload((Stream("h11", "h21"),)),
    "4 flows": Workload((Stream("h11", "h21", 2), Stream("h12", "h22", 2))),
    "16 flows": Workload(HOT),
    "64 flows": Workload((Stream("h11", "h21", 32), Stream("h12", "h22", 32))),
    "elephants and mice": Workload(
        (*HOT, *(Stream("h12", "h21", mbps=0.3) for _ in range(3))),
    ),
    "UDP, 8 flows of 14 Mb/s": Workload(tuple(Stream("h11", "h21", mbps=14) for _ in range(8))),
    "16 flows, others need the electrical network": Workload(HOT, OTHERS),
    "16 flows, others need a little of it": Workload(
        HOT, (Stream("h11", "h31", mbps=1), Stream("h41", "h22", mbps=1))
    ),
}


@dataclass(frozen=True, slots=True)
class Played:
    hot_mbps: float
    """Bytes received by r2 from r1."""
    others_mbps: float
    share: float
    """Share of the flows that was electrical at the end."""


def play(
    stage: Stage, client: ControllerClient, workload: Workload, seconds: int, spill: str
) -> Played:
    """Measure from the first second on, so that undone attempts count.

    UDP begins first: iperf3 does not repeat its start message, which a full queue might drop.
    """
    client.amend({"spill": spill})
    streams = (*workload.streams, *workload.others)
    order = sorted(range(len(streams)), key=lambda number: streams[number].mbps is None)
    with ExitStack() as stack:
        started = {}
        for number in order:
            stream = streams[number]
            ends = stream.src, stream.dst, _PORT + number, float(seconds)
            if stream.mbps is None:
                transfer = tcp_transfer(stage, *ends, streams=stream.connections)
            else:
                mbps = stream.mbps * SCALE
                transfer = udp_transfer(
                    stage, *ends, average_mbps=mbps, datagram_bytes=_DATAGRAM_BYTES
                )
            started[number] = stack.enter_context(transfer)
        time.sleep(seconds - _LOOK_S)
        share = client.electrical_share("r1", "r2")
        received = [
            started[number].finish(_PATIENCE_S)[0].average_mbps for number in range(len(streams))
        ]
    client.amend({"spill": "off"})
    hot = len(workload.streams)
    return Played(sum(received[:hot]), sum(received[hot:]), share)


def compare(
    stage: Stage, client: ControllerClient, name: str, electrical_mbps: float, seconds: int
) -> Iterator[Result]:
    workload = WORKLOADS[name]
    off, on = (play(stage, client, workload, seconds, spill) for spill in ("off", "on"))
    case = f"{name}; electrical {electrical_mbps * SCALE:g}, circuit {100 * SCALE:g} Mb/s"
    parts = f"1 in {round(1 / on.share)} flows" if on.share else "none at the end"
    yield Result(
        case, f"r1 to r2, {parts} electrical", "Mb/s", "higher",
        on.hot_mbps, off.hot_mbps, "by the circuit alone", HARM / 100 * off.hot_mbps,
    )  # fmt: skip
    if workload.others:
        yield Result(
            case, "others", "Mb/s", "higher", on.others_mbps, off.others_mbps,
            "by the circuit alone", HARM / 100 * off.others_mbps,
        )  # fmt: skip


def electrical_at(mbps: float) -> dict[str, Any]:
    config = building.scaled_config(SCALE)
    return {**config, "electrical": {**config["electrical"], "rate_mbps": mbps * SCALE}}


def main(argv: Sequence[str] = ()) -> int:
    names, seconds = chosen("both_networks", "workload", WORKLOADS, argv, SECONDS)
    each_s = 2.0 * (seconds + _LOOK_S)
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        ConsoleNarrator(Console(), len(ELECTRICAL_MBPS) * len(names) * each_s) as narrator,
    ):
        for mbps in ELECTRICAL_MBPS:
            work_dir = Path(directory) / f"{mbps:g}"
            with (
                building.stage_with(electrical_at(mbps), work_dir, narrator) as stage,
                stage.controller(POLICY) as client,
            ):
                client.reconfigure([PairDemand("r1", "r2", 80 * SCALE)], use_planes=["p1"])
                for name in names:
                    with narrator.phase(f"{name}, electrical {mbps * SCALE:g} Mb/s", each_s):
                        results += compare(stage, client, name, mbps, seconds)
    return report("both_networks", results)


if __name__ == "__main__":
    run_benchmark(main)
