"""A change of every circuit on the emulated data plane: in stages, at once, and none.

``python -m benchmarks.stages_live [--rate MBPS] [--electrical PART] [--seconds N] [--loads PART…]``
(root). Eight racks of one server each, four planes of 0.5 Mb/s, all ports in use: each rack has a
circuit to four other racks. Traffic loads all circuits to 30, 60 or 90 % in both directions, by UDP
and by TCP. Then every circuit moves to another plane. In stages, the controller cuts the change by
the counted traffic; at once, the controller counts no traffic, and so diverts everything; the ideal
is the same traffic without a change. The electrical network carries 2.5 circuits a rack, of four.
Receivers count losses; completion times are of TCP transfers that produce data at the given rate. A
pair's time at the electrical rate is from its first to its last frame on the electrical network,
without pauses. Finally, reservations are made for pairs without a circuit: the time to the first
frame on a circuit, at rest and during a change of every circuit.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import httpx
import yaml

from benchmarks._demo import CONFIG, demo_stage
from benchmarks._paced import HEADERS_BYTES, Counted, Ends
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios import plain_http
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.transfers import Wish, transfer_all
from mininet_scenarios.testbed import testbed_lock
from mininet_scenarios.testbed.layout import electrical_interfaces
from mininet_scenarios.testbed.links import QueueSize
from mininet_scenarios.testbed.shell import member_environment

RACKS: Final = 8
PLANES: Final = 4
CIRCUIT_MBPS: Final = 0.5
ELECTRICAL: Final = 2.5
"""Rate of a rack's electrical uplink, in circuits."""
LOADS: Final = (0.3, 0.6, 0.9)
SECONDS: Final = 20.0
DATAGRAM_BYTES: Final = 1000
LEAD_S: Final = 6.0
"""Duration of traffic before the change, from which the controller learns the rates."""
ROUNDS: Final = 5
HEAD_START_S: Final = 0.1
"""Time from the request for a change to the request for a reservation."""
MORE_MS: Final = 150.0
"""Target: additional wait of a reservation during a change."""
WAYS: Final = {"no change": 0.5, "in stages": 0.5, "at once": 0.0}
"""Intervals between the controller's readings of counters, in s; 0: no measured traffic."""
READY_S: Final = 180.0
"""Time limit until a controller is ready, also on a machine with other work."""
DRAIN_MS: Final = 3000.0
"""Time for delayed frames: a full queue takes a quarter of a second, other work delays frames, too.
"""
QUEUES: Final = QueueSize(least_frames=16)
"""Length of queues: frames do not shrink with the rates, and 10 ms at 0.5 Mb/s would hold no frame.
"""
_PORT: Final = 5201
_IPV4: Final = b"\x08\x00"
_ALL: Final = 3
_DATA_BYTES: Final = 300
"""Longer frames are data, not acknowledgements, probes or announcements."""
_PAUSE_S: Final = 0.25
"""Frames of a pair with this distance belong to two stays on the electrical network."""
_SENDING_S: Final = 120.0

Ways = tuple[str, str]
"""Addresses of source and destination."""


def document(rate_mbps: float, electrical: float) -> dict[str, Any]:
    """Changed parts of the demo's configuration."""
    demo = yaml.safe_load(CONFIG.read_text())
    (racks,), (planes,), (wiring,) = demo["racks"], demo["planes"], demo["wiring"]
    (servers,) = racks["servers"]
    names, lines = f"r[1-{RACKS}]", f"p[1-{PLANES}]"
    named = {**servers, "names": "h{rack}[1-1]"}
    return {
        "racks": [{**racks, "names": names, "servers": [named]}],
        "planes": [{**planes, "names": lines, "rate_mbps": rate_mbps}],
        "wiring": [{**wiring, "racks": names, "planes": lines}],
        "electrical": {"rate_mbps": electrical * rate_mbps},
        "server_rate_mbps": PLANES * rate_mbps,
        "policy": {
            "mode": "on-request",
            "algorithm": "edmonds",
            "demand_window_s": 1.0,
            "drain": {"bound_ms": DRAIN_MS},
        },
    }


def matching(number: int) -> list[tuple[int, int]]:
    """One of seven disjoint sets of four pairs that join all racks."""
    around = RACKS - 1
    apart = [((number + step) % around, (number - step) % around) for step in range(1, RACKS // 2)]
    return [(around, number % around), *((a, b) for a, b in apart)]


TURNS: Final = ((0, 1, 2, 3), (3, 0, 1, 2))
"""Matchings on p1, p2 and so on."""
PAIRS: Final = tuple(pair for number in TURNS[0] for pair in matching(number))
UNJOINED: Final = tuple(pair for number in (4, 5, 6) for pair in matching(number))


def circuits(turn: int) -> list[dict[str, str]]:
    """All target circuits: a matching for each plane."""
    return [
        {"plane": f"p{place + 1}", "a": f"r{a + 1}", "b": f"r{b + 1}"}
        for place, number in enumerate(TURNS[turn % 2])
        for a, b in matching(number)
    ]


def circuit_mbps(stage: Stage) -> float:
    return stage.fabric.planes[0].rate_mbps


def server(rack: int) -> str:
    return f"h{rack + 1}1"


DIRECTIONS: Final = tuple((server(a), server(b)) for pair in PAIRS for a, b in (pair, pair[::-1]))


class Taps(threading.Thread):
    """IPv4 frames at interfaces, with times."""

    def __init__(self, interfaces: Sequence[str], least_bytes: int) -> None:
        super().__init__(daemon=True)
        self.stays: dict[Ways, list[tuple[float, float]]] = {}
        """First and last frame of each stay, in Unix seconds."""
        self._least_bytes = least_bytes
        self._over = threading.Event()
        self._taps = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for _ in interfaces]
        for name, tap in zip(interfaces, self._taps, strict=True):
            tap.bind((name, _ALL))  # not before: the socket would receive from all interfaces

    def run(self) -> None:
        while not self._over.is_set():
            ready, _, _ = select.select(self._taps, (), (), 0.1)
            for tap in ready:
                frame = tap.recv(2048)
                if len(frame) >= self._least_bytes:
                    self._note(frame)
        for tap in self._taps:
            tap.close()

    def _note(self, frame: bytes) -> None:
        at = 18 if frame[12:14] == b"\x81\x00" else 14
        if frame[at - 2 : at] != _IPV4:
            return
        ends = (
            socket.inet_ntoa(frame[at + 12 : at + 16]),
            socket.inet_ntoa(frame[at + 16 : at + 20]),
        )
        now_s = time.time()
        stays = self.stays.setdefault(ends, [])
        if stays and now_s - stays[-1][1] < _PAUSE_S:
            stays[-1] = stays[-1][0], now_s
        else:
            stays.append((now_s, now_s))

    def finish(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def tapped(interfaces: Sequence[str], least_bytes: int) -> Iterator[Taps]:
    taps = Taps(interfaces, least_bytes)
    taps.start()
    try:
        yield taps
    finally:
        taps.finish()


def longest_s(taps: Taps, since_s: float, until_s: float) -> float:
    """Longest stay of any pair in this time."""
    stays = [stay for ends in taps.stays.values() for stay in ends]
    return max(
        (last_s - first_s for first_s, last_s in stays if last_s > since_s and first_s < until_s),
        default=0.0,
    )


@dataclass(frozen=True, slots=True)
class Changed:
    stages: int
    took_s: float
    reason: str
    """The reason why the change was incomplete; empty: complete."""


def change(http: httpx.Client, turn: int) -> Changed:
    """Have every circuit moved, and wait for the end."""
    asked_s = time.monotonic()
    number = ask(http, turn)
    return ended(http, number, asked_s)


def ask(http: httpx.Client, turn: int) -> str:
    """Request a move of every circuit, as a list: a planner would keep circuits that serve as
    much.
    """
    wanted = {"topology": {"circuits": circuits(turn)}}
    answer = http.post("/v1/reconfigurations", json=wanted).raise_for_status()
    return str(answer.json()["id"])


def ended(http: httpx.Client, number: str, asked_s: float) -> Changed:
    while True:
        found = http.get(f"/v1/reconfigurations/{number}").raise_for_status().json()
        if found["state"] in ("done", "partial", "refused", "failed"):
            break
        time.sleep(0.02)
    if found["state"] not in ("done", "partial"):
        raise SystemExit(f"the change of every circuit is {found['state']}: {found['reason']}")
    if not found["connected"]:
        raise SystemExit("the change moved no circuit")
    # A change that fits is a single change, without a count of stages.
    stages, took_s = max(1, found["stages_done"]), time.monotonic() - asked_s
    return Changed(stages, took_s, found["reason"] if found["state"] == "partial" else "")


@dataclass(frozen=True, slots=True)
class Played:
    changed: Changed | None
    electrical_s: float
    """Longest stay of a pair on the electrical network."""
    sent: int = 0
    lost: int = 0
    delivered_mb: float = 0.0
    seconds: tuple[float, ...] = ()
    """Completion times."""


@dataclass(slots=True)
class Paced:
    """Streams of UDP under way in all directions of all pairs."""

    process: subprocess.Popen[bytes]
    report: Path

    def finish(self) -> Counted:
        self.process.terminate()
        if self.process.wait(_SENDING_S):
            raise SystemExit("the sender of datagrams failed")
        return Counted(**json.loads(self.report.read_text()))


@contextmanager
def paced(stage: Stage, load: float) -> Iterator[Paced]:
    """Load circuits to this share, from before the block begins until the block ends."""
    ends = [
        Ends(stage.testbed.host(src).pid, stage.address(src), stage.testbed.host(dst).pid,
             stage.address(dst))
        for src, dst in DIRECTIONS
    ]  # fmt: skip
    orders, report = stage.file("paced", ".json"), stage.file("paced-report", ".json")
    document = {
        "ends": [asdict(end) for end in ends],
        "first_port": _PORT,
        "pps": load * circuit_mbps(stage) * 1e6 / 8 / (DATAGRAM_BYTES + HEADERS_BYTES),
        "payload_bytes": DATAGRAM_BYTES,
    }
    orders.write_text(json.dumps(document))
    command = [sys.executable, "-m", "benchmarks._paced", str(orders), str(report)]
    with subprocess.Popen(command, env=member_environment({})) as process:
        try:
            ready = Path(f"{report}.ready")
            while not ready.exists():
                if process.poll() is not None:
                    raise SystemExit("the sender of datagrams did not start")
                time.sleep(0.02)
            yield Paced(process, report)
        finally:
            process.kill()


class Player:
    """The data plane with a controller for one of the ways."""

    def __init__(self, stage: Stage, http: httpx.Client, way: str, seconds: float) -> None:
        self._stage = stage
        self._http = http
        self._way = way
        self._seconds = seconds
        self._turn = 0
        change(http, self._turn)

    @property
    def _interfaces(self) -> Sequence[str]:
        return electrical_interfaces(self._stage.fabric)

    def _change(self) -> Changed | None:
        if self._way == "no change":
            return None
        self._turn += 1
        return change(self._http, self._turn)

    def udp(self, load: float) -> Played:
        with tapped(self._interfaces, _DATA_BYTES) as taps, paced(self._stage, load) as streams:
            time.sleep(LEAD_S)
            since_s = time.time()
            changed = self._change()
            until_s = time.time()
            time.sleep(max(0.0, self._seconds - (until_s - since_s)))
            counted = streams.finish()
        return Played(
            changed,
            longest_s(taps, since_s, until_s),
            counted.sent,
            counted.lost,
            counted.received * DATAGRAM_BYTES / 1e6,
        )

    def tcp(self, load: float) -> Played:
        mbps = load * circuit_mbps(self._stage)
        size = int(mbps * 1e6 / 8 * self._seconds)
        wishes = [Wish(src, dst, size, "all", made_mbps=mbps) for src, dst in DIRECTIONS]
        found: list[Changed | None] = []
        times_s: list[float] = []

        def later() -> None:
            time.sleep(LEAD_S + 2)
            times_s.append(time.time())
            found.append(self._change())
            times_s.append(time.time())

        with tapped(self._interfaces, _DATA_BYTES) as taps:
            other = threading.Thread(target=later)
            other.start()
            done = transfer_all(self._stage, wishes, _SENDING_S)
            other.join()
        return Played(
            found[0], longest_s(taps, *times_s), seconds=tuple(change.seconds for change in done)
        )


@contextmanager
def controlled(stage: Stage, poll_interval_s: float) -> Iterator[httpx.Client]:
    policy = {"poll_interval_s": poll_interval_s}
    with (
        stage.process(policy, ready_timeout_s=READY_S) as process,
        plain_http.client(base_url=process.base_url, timeout=60) as http,
    ):
        yield http


def rows(case: str, kind: str, of: dict[str, Played]) -> list[Result]:
    ideal, staged, once = of["no change"], of["in stages"], of["at once"]
    found = []
    for base, name in ((once, "at once"), (ideal, "no change")):
        if base.changed and staged.changed:
            found += [
                Result(case, "stages", "", "lower", staged.changed.stages, base.changed.stages,
                       name),
                Result(case, "takes", "s", "lower", staged.changed.took_s, base.changed.took_s,
                       name),
                Result(case, "not made in full", "", "lower", bool(staged.changed.reason),
                       bool(base.changed.reason), name),
            ]  # fmt: skip
        if kind == "UDP":
            sent = f"datagrams lost, of {staged.sent}"
            found += [
                Result(case, sent, "", "lower", staged.lost, base.lost, name),
                Result(case, "delivered", "MB", "higher", staged.delivered_mb,
                       base.delivered_mb, name),
            ]  # fmt: skip
        else:
            found += [
                Result(case, "completion time, mean", "s", "lower", mean(staged.seconds),
                       mean(base.seconds), name),
                Result(case, "completion time, longest", "s", "lower", max(staged.seconds),
                       max(base.seconds), name),
            ]  # fmt: skip
        found.append(
            Result(case, "longest time at the electrical rate of a pair", "s", "lower",
                   staged.electrical_s, base.electrical_s, name)
        )  # fmt: skip
    return found


def first_frame_ms(stage: Stage, http: httpx.Client, pair: tuple[int, int]) -> float:
    """Time from the request for a reservation until its first frame on a circuit."""
    src, dst = server(pair[0]), server(pair[1])
    ends = stage.address(src), stage.address(dst)
    ports = [port.tor_port for port in stage.fabric.ports_of(stage.fabric.racks[pair[0]].id)]
    with tapped(ports, 0) as taps:
        asked_s = time.time()
        body = {"src": src, "dst": dst, "bandwidth_mbps": 0.02}
        answer = http.post("/v1/reservations", json=body)
        if answer.is_error:
            raise SystemExit(f"no reservation from {src} to {dst}: {answer.text}")
        made = answer.json()
        while not (stays := taps.stays.get(ends)):
            if time.time() > asked_s + _SENDING_S:
                raise SystemExit(f"nothing of {src} to {dst} came on a circuit")
            time.sleep(0.001)
    path = f"/v1/reservations/{made['id']}"
    while http.get(path).json()["state"] == "activating":
        time.sleep(0.01)
    http.delete(path, headers={"Prefer": "wait=30"}).raise_for_status()
    return (stays[0][0] - asked_s) * 1000


def first_frames(stage: Stage, http: httpx.Client) -> list[Result]:
    """Reservations at rest, and during changes of every circuit, under traffic at 90 %."""
    turn, pairs = 0, cycle(UNJOINED)
    change(http, turn)
    rest_ms, during_ms = [], []
    with ExitStack() as stack:
        stack.enter_context(paced(stage, max(LOADS)))
        for a, b in UNJOINED:
            ping = ["ping", "-i", "0.005", stage.address(server(b))]
            stack.enter_context(stage.job(server(a), "ping", ping))
        time.sleep(LEAD_S)
        for _ in range(ROUNDS):
            rest_ms.append(first_frame_ms(stage, http, next(pairs)))
            turn += 1
            asked_s = time.monotonic()
            number = ask(http, turn)
            time.sleep(HEAD_START_S)
            during_ms.append(first_frame_ms(stage, http, next(pairs)))
            ended(http, number, asked_s)
    case = f"first frame of a reservation, {ROUNDS} times each"
    at_rest, under_way = median(rest_ms), median(during_ms)
    return [
        Result(case, "median", "ms", "lower", under_way, at_rest, "at rest", at_rest + MORE_MS),
        Result(case, "longest", "ms", "lower", max(during_ms), max(rest_ms), "at rest"),
    ]


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rate", type=float, default=CIRCUIT_MBPS, help="of a circuit, Mb/s")
    parser.add_argument("--electrical", type=float, default=ELECTRICAL, help="circuits' rates")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each run")
    parser.add_argument("--loads", type=float, nargs="*", default=LOADS)
    parser.add_argument("--without-reservations", action="store_true")
    asked = parser.parse_args(arguments)
    found: dict[tuple[str, float], dict[str, Played]] = {}
    with (
        testbed_lock(),
        demo_stage(changes=document(asked.rate, asked.electrical), queues=QUEUES) as stage,
    ):
        stage.introduce([server.name for server in stage.fabric.servers])
        results: list[Result] = []
        for way, poll_interval_s in WAYS.items():
            with controlled(stage, poll_interval_s) as http:
                player = Player(stage, http, way, asked.seconds)
                for load in asked.loads:
                    for kind, play in (("UDP", player.udp), ("TCP", player.tcp)):
                        played = found.setdefault((kind, load), {})[way] = play(load)
                        print(f"{way}, {kind}, {load:.0%}: {played}", flush=True)
        for (kind, load), of in found.items():
            results += rows(f"{kind}, circuits filled to {load:.0%}", kind, of)
        if not asked.without_reservations:
            with controlled(stage, WAYS["in stages"]) as http:
                results += first_frames(stage, http)
    return report("stages_live", results)


if __name__ == "__main__":
    run_benchmark(main)
