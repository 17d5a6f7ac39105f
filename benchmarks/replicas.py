"""Controllers that share a store in etcd: killed, cut off, paused, and handed over, under traffic.

``python -m benchmarks.replicas [--kills N] [--partitions N] [--stops N] [--members N] …`` (root).
Two controllers on the demo fabric share an etcd of three members on this machine, with the election
timers of ``deploy/three-machines``; each controller has separate links to the members, which can be
cut. The leader gets SIGKILL in each phase of a change in turn, is cut off from etcd, is stopped by
SIGSTOP until the other controller leads and then resumed, and is asked to hand over; members of
etcd are killed, etcd's own leader among them. Meanwhile datagrams go between every two racks, a TCP
connection sends between the two racks whose circuit moves, and a customer reserves and releases by
the URLs of both controllers.

A killed controller is started again by a process with all imports done: the imports take seconds on
both processors, and would slow down the leader.

*Without a leader* is the longest time in which neither controller answered ``/readyz`` with 200;
both are asked every 20 ms. A reservation is *lost* if the customer got an answer, and the
reservation is missing or differs from the answer; a reservation is *doubled* if the customer got
one answer, and two reservations exist. The connection may make no progress for the longest silence
of any datagrams' pair, plus the delay of its timer
(:func:`mininet_scenarios.workloads.paced_tcp.longest_silence_s`). The client measures the duration
of a change, on etcd and on SQLite in the same run; etcd's revisions give the number of writes per
change.

*Rules of two leaders* are writes that a switch accepted from a controller that was not its master,
found in the messages between switches and controllers, which tcpdump records throughout
(:mod:`benchmarks._two_leaders`).
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from apps.etcd.gateway import Etcd, get, put
from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from benchmarks._two_leaders import Verdict, expression, judged
from benchmarks.recovery import PHASES
from hydra.errors import HydraError
from hydra.lifecycle import ReconfigurationState
from hydra.reservations.reservation import FINAL_STATES
from hydra_hybrid_network_client import ClientError, HydraClient
from hydra_hybrid_network_client.errors import Refusal
from mininet_scenarios import plain_http
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.replicas import ReplicaSet, replicas
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.etcd_members import QUICK, EtcdMembers
from mininet_scenarios.stage.stage import Losses, Stage
from mininet_scenarios.stage.streams import TcpResult, paced_connection, streams_everywhere
from mininet_scenarios.testbed.capture import Capture
from mininet_scenarios.workloads import paced_tcp
from tests.integration.warm import cool, warm
from tests.lossy import LossyWay

LONGEST_S: Final = 3.0
"""Target of the time without a leader, with :data:`_LEASE_S`; for a handover :data:`PLANNED_S`."""
PLANNED_S: Final = 0.5
MORE_MS: Final = 15.0
LOST_LEASE: Final = 75
_LEASE_S: Final = 2
_POLICY: Final = {"audit_interval_s": 0}
_MOVED: Final = PairDemand("r1", "r2", 80.0)
_KEPT: Final = PairDemand("r3", "r4", 80.0)
_RESERVED: Final = ("r1", "r3")
_CONNECTED: Final = ("h11", "h21")
"""Servers of the racks whose circuit moves."""
_WRITES_PER_S: Final = 50.0
_WRITE_BYTES: Final = 200
_MBPS: Final = 0.1
_READY_S: Final = 90.0
_NAMES: Final = ("a", "b")
_SNAP_BYTES: Final = 262_144
"""Snapshot length: more than any segment on loopback."""
_POLL_S: Final = 0.02
_PAUSE_S: Final = 1.0
_MANY: Final = 100
"""Number of simultaneous reservations, of 10 Mb/s each, on a circuit of 100 Mb/s."""
_UNKNOWN: Final = "leader-unanswered"
_MOST_MENDING: Final = 10
_BROKEN: Final = (HydraError, httpx.HTTPError, OSError)
"""Errors that break off a fault."""


class Roll:
    """Polls every controller every 20 ms, and records the times when a controller was ready."""

    def __init__(self, these: ReplicaSet) -> None:
        self._these = these
        self._ready_s: list[float] = []
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(process.base_url,), daemon=True)
            for process in these.processes.values()
        ]

    def __enter__(self) -> Roll:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def longest_s(self, since_s: float) -> float:
        """Longest time without a leader, since a moment of the monotonic clock with a leader."""
        times = sorted([since_s, *(time_s for time_s in self._ready_s if time_s > since_s)])
        return max((b - a for a, b in pairwise(times)), default=0.0)

    def _call(self, url: str) -> None:
        timeout = httpx.Timeout(0.5)
        with plain_http.client(base_url=url, timeout=timeout) as http:
            while not self._ended.wait(_POLL_S):
                try:
                    ready = http.get("/readyz").status_code == httpx.codes.OK
                except httpx.TransportError:
                    continue
                if ready:
                    self._ready_s.append(time.monotonic())


@dataclass
class Customer:
    """Reserves and releases with pauses of a tenth of a second.

    Every second reservation is released at once, the others after :data:`_MANY` newer
        reservations.
    """

    urls: Sequence[str]
    given_back: dict[str, bool] = field(default_factory=dict)
    """Reservations, and True for released reservations."""
    unknown: int = 0
    """Number of requests without a known outcome."""
    refused: int = 0
    """Number of refused requests, without effect."""
    _kept: deque[str] = field(default_factory=deque)
    _ended: threading.Event = field(default_factory=threading.Event)

    def shop(self) -> None:
        with HydraClient(",".join(self.urls)) as client:
            while not self._ended.wait(0.1):
                try:
                    self._buy(client)
                except Refusal as refusal:
                    if refusal.kind == _UNKNOWN:
                        self.unknown += 1
                    else:
                        self.refused += 1
                except ClientError:
                    self.unknown += 1

    def _buy(self, client: HydraClient) -> None:
        reservation = client.reserve(*_RESERVED, _MBPS)
        self.given_back[reservation.id] = False
        self._kept.append(reservation.id)
        if len(self.given_back) % 2:
            self._give_back(client, self._kept.pop())
        elif len(self._kept) > _MANY:
            self._give_back(client, self._kept.popleft())

    def _give_back(self, client: HydraClient, name: str) -> None:
        self.given_back[name] = True  # from here on, both states are possible
        client.release(name)

    @contextmanager
    def shopping(self) -> Iterator[None]:
        thread = threading.Thread(target=self.shop, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def wrong(self, client: HydraClient) -> tuple[int, int]:
        """(Number of reservations lost, number of reservations doubled)."""
        found = {reservation.id: reservation.state for reservation in client.reservations()}
        kept = [name for name, released in self.given_back.items() if not released]
        lost = sum(found.get(name) is None or found[name] in FINAL_STATES for name in kept)
        alive = {name for name, state in found.items() if state not in FINAL_STATES}
        untold = len(alive - self.given_back.keys())
        return lost, max(0, untold - self.unknown)


@dataclass(slots=True)
class Found:
    """Seconds without a leader, by kind of fault, and total losses."""

    leaderless_s: dict[str, list[float]] = field(default_factory=dict)
    went_on: int = 0
    """Leaders that lost their lease and did not end because of the loss."""
    datagrams: int = 0
    lost: int = 0
    silence_ms: float = 0.0
    losses: Losses | None = None
    tcp: TcpResult | None = None
    reservations: int = 0
    unknown: int = 0
    refused: int = 0
    broken_off: list[str] = field(default_factory=list)
    """Faults that were broken off, in words."""
    wrong: tuple[int, int] = (0, 0)
    change_ms: list[float] = field(default_factory=list)
    writes: int = 0
    """Number of writes to the store during these changes."""
    verdict: Verdict = field(default_factory=Verdict)
    captured_mb: float = 0.0
    dropped: int = 0
    """Number of frames between controllers and switches that the kernel's capture buffer dropped.
    """


class Faults:
    """Faults of controllers and etcd; at the end of each fault, all processes run again."""

    def __init__(
        self, these: ReplicaSet, etcd: EtcdMembers, ways: dict[str, list[LossyWay]], roll: Roll
    ) -> None:
        self._these = these
        self._etcd = etcd
        self._ways = ways
        self._roll = roll
        self._phases = cycle(PHASES)
        self.found = Found()

    def kill(self) -> str:
        """SIGKILL in the middle of a change."""
        leader, phase = self._these.leader(), next(self._phases)
        with ControllerClient(self._these.processes[leader].base_url) as client:
            client.reconfigure([_MOVED], racks=("r1", "r2"), use_planes=("p1",))
            number = client.request([_MOVED], racks=("r1", "r2"), use_planes=("p2",))
            # A change past the phase is killed there: phases last milliseconds.
            reached = [*PHASES[PHASES.index(phase) :], ReconfigurationState.DONE.value]
            while client.reconfiguration(number).state not in reached:
                pass
            self._these.kill(leader)
        self._these.leader(leader)
        self._these.start(leader)
        return "killed in a change"

    def partition(self) -> str:
        leader = self._these.leader()
        for way in self._ways[leader]:
            way.requests = 0
        self._these.leader(leader)
        self._ends(self._these.await_end(leader))
        for way in self._ways[leader]:
            way.heal()
        self._these.start(leader)
        return "cut off from etcd"

    def stop(self) -> str:
        leader = self._these.leader()
        self._these.freeze(leader)
        self._these.leader(leader)
        self._ends(self._these.thaw(leader))
        self._these.start(leader)
        return "stopped past its lease"

    def member(self) -> str:
        names = self._etcd.names
        number = len(self.found.leaderless_s.get("a member of etcd killed", ()))
        name = names[number % len(names)] if number % 2 else self._etcd.leader()
        self._etcd.kill(name)
        time.sleep(3 * _PAUSE_S)
        self._etcd.start(name)
        self._etcd.await_quorum()
        return "a member of etcd killed"

    def hand_over(self) -> str:
        leader = self._these.leader()
        url = self._these.processes[leader].base_url
        self._these.http.post(f"{url}/v1/handover", json={}).raise_for_status()
        self._these.leader(leader)
        self._these.await_end(leader)
        self._these.start(leader)
        return "handed over"

    def _ends(self, status: int) -> None:
        self.found.went_on += status != LOST_LEASE

    def play(self, fault: Callable[[], str], times: int) -> None:
        for number in range(times):
            try:
                self._play(fault, f"{number + 1} of {times}")
            except _BROKEN as error:
                self.found.broken_off.append(f"{fault.__name__} {number + 1}: {error}")
                print(f"broken off, {number + 1} of {times}: {error}", flush=True)
                self._mend()

    def _play(self, fault: Callable[[], str], which: str) -> None:
        self._these.standing_by(1)
        since_s = time.monotonic()
        what = fault()
        self._these.leader()
        self._start_ended()
        time.sleep(_PAUSE_S)
        taken_s = self._roll.longest_s(since_s)
        self.found.leaderless_s.setdefault(what, []).append(taken_s)
        print(f"{what}, {which}: {taken_s:.2f} s without a leader", flush=True)

    def _start_ended(self) -> None:
        for name, status in self._these.start_ended().items():
            print(f"{name} ended by itself, with {status}, and is started again")

    def _mend(self) -> None:
        """Start all killed or stopped processes again, after any fault."""
        for _ in range(_MOST_MENDING):
            with suppress(*_BROKEN):
                self._try_to_mend()
                return
            time.sleep(_PAUSE_S)
        self._try_to_mend()

    def _try_to_mend(self) -> None:
        for name in tuple(self._these.frozen):
            self._these.release(name)
        for way in (way for some in self._ways.values() for way in some):
            way.heal()
        self._etcd.start_all()
        self._start_ended()
        self._these.leader()


def _revision(etcd: EtcdMembers) -> int:
    """Number of writes that etcd has made."""
    store = Etcd(etcd.settings())
    try:
        return store.transaction([], []).revision
    finally:
        store.close()


def _changes_ms(client: ControllerClient, times: int) -> list[float]:
    """Durations of changes of a circuit, from the request to the end."""
    taken_ms = []
    for _, plane in zip(range(times), cycle(("p2", "p1")), strict=False):
        began_s = time.monotonic()
        client.reconfigure([_MOVED], racks=("r1", "r2"), use_planes=(plane,))
        taken_ms.append((time.monotonic() - began_s) * 1e3)
    return taken_ms


def _captured(stage: Stage, options: argparse.Namespace, folder: Path) -> Found:
    """Results, including the evaluation of the messages between switches and controllers."""
    ports = {name: free_port() for name in _NAMES}
    capture = Capture(
        "lo", expression=expression(ports.values()), snap_bytes=_SNAP_BYTES, batched=True
    )
    with capture:
        found = _play(stage, options, folder, ports)
    found.verdict = judged(capture.each(), {port: name for name, port in ports.items()})
    found.captured_mb, found.dropped = len(capture.pcap()) / 1e6, capture.dropped
    for words in (*found.verdict.accepted, *found.verdict.equals):
        print(words)
    return found


def _play(
    stage: Stage, options: argparse.Namespace, folder: Path, ports: Mapping[str, int]
) -> Found:
    with ExitStack() as stack:
        etcd = stack.enter_context(EtcdMembers(folder, 3, QUICK))
        members = [int(endpoint.rpartition(":")[2]) for endpoint in etcd.endpoints]
        ways = {name: [stack.enter_context(LossyWay(port)) for port in members] for name in _NAMES}
        these = stack.enter_context(
            replicas(
                stage,
                etcd,
                _POLICY,
                {"requests_per_s": 10_000},
                _NAMES,
                lease_s=options.lease_s,
                launch=warm().launch,
                endpoints={name: [way.url for way in some] for name, some in ways.items()},
                ports=ports,
            )
        )
        roll = stack.enter_context(Roll(these))
        faults = Faults(these, etcd, ways, roll)
        found = faults.found
        urls = [process.base_url for process in these.processes.values()]
        with ControllerClient(urls[0]) as client:
            client.reconfigure([_MOVED, _KEPT], use_planes=("p1",))
            revision = _revision(etcd)
            found.change_ms = _changes_ms(client, options.changes)
            found.writes = _revision(etcd) - revision
            # At its former place: otherwise the customer's circuit may take the place.
            client.reconfigure([_MOVED], racks=("r1", "r2"), use_planes=("p1",))
        before, customer = stage.losses(), Customer(urls)
        pace = {"per_s": _WRITES_PER_S, "write_bytes": _WRITE_BYTES}
        with (
            streams_everywhere(stage) as streams,
            paced_connection(stage, *_CONNECTED, **pace) as connection,
            customer.shopping(),
        ):
            faults.play(faults.kill, options.kills)
            faults.play(faults.partition, options.partitions)
            faults.play(faults.stop, options.stops)
            faults.play(faults.member, options.members)
            faults.play(faults.hand_over, options.handovers)
            found.tcp = connection.stop()
            results = [stream.stop() for stream in streams]
        found.datagrams = sum(result.sent for result in results)
        found.lost = sum(result.lost for result in results)
        found.silence_ms = max(result.max_gap_ms for result in results)
        found.losses = stage.losses().since(before)
        with HydraClient(",".join(urls)) as all_of_them:
            found.wrong = customer.wrong(all_of_them)
        found.reservations = len(customer.given_back)
        found.unknown, found.refused = customer.unknown, customer.refused
    return found


def _on_sqlite_ms(stage: Stage, changes: int) -> list[float]:
    with (
        stage.process(_POLICY, launch=warm().launch, ready_timeout_s=_READY_S) as process,
        ControllerClient(process.base_url) as client,
    ):
        client.reconfigure([_MOVED, _KEPT], use_planes=("p1",))
        return _changes_ms(client, changes)


def _leases_s(number: int, lease_s: int, options: Sequence[str], folder: Path) -> list[float]:
    """Durations of leases of ``lease_s`` without renewal, granted just before etcd's own leader was
    stopped.
    """
    lasted_s: list[float] = []
    with EtcdMembers(folder, 3, options) as members:
        etcd = Etcd(members.settings())
        for round_number in range(number):
            leading, key = members.leader(), f"lease-{round_number}"
            lease = int(etcd.ask("/lease/grant", {"TTL": str(lease_s)})["ID"])
            granted_s = time.monotonic()
            etcd.transaction([], [put(key, "", lease)])
            members.signal(leading, signal.SIGSTOP)
            try:
                while etcd.transaction([], [get(key)], patience_s=_READY_S).found[0]:
                    time.sleep(_POLL_S)
                lasted_s.append(time.monotonic() - granted_s)
            finally:
                members.signal(leading, signal.SIGCONT)
            members.await_quorum()
        etcd.close()
    return lasted_s


def _of_leases(number: int, lease_s: int) -> list[Result]:
    results = []
    for timers, options in (("timers of ours", QUICK), ("etcd's own timers", ())):
        with tempfile.TemporaryDirectory() as folder:
            lasted_s = _leases_s(number, lease_s, options, Path(folder))
        what = f"a lease of {lease_s} s, etcd's leader stopped {number} times, {timers}"
        results.append(
            Result(what, "lasts, longest", "s", "lower", max(lasted_s), min(lasted_s), "shortest")
        )
    return results


def _of_tcp(whole: str, found: Found) -> list[Result]:
    tcp = found.tcp
    if tcp is None:
        return []
    most_s = paced_tcp.longest_silence_s(found.silence_ms / 1e3, 1 / _WRITES_PER_S)
    what = f"{whole}, TCP: {tcp.delivered_bytes:,} bytes delivered, {tcp.sent_again} segments again"
    return [
        Result(what, "sent and not delivered, in order", "bytes", "lower",
               max(tcp.sent_bytes - tcp.delivered_bytes, int(not tcp.intact)), target=0),
        Result(what, "longest time without progress", "ms", "lower", tcp.longest_silence_ms,
               tcp.timer_ms, "its timer", most_s * 1e3),
    ]  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replicas",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, number, what in (
        ("kills", 6, "SIGKILLs of the leader, one in each phase of a change in turn"),
        ("partitions", 2, "times that the leader is cut off from etcd"),
        ("stops", 2, "SIGSTOPs of the leader past its lease"),
        ("members", 2, "members of etcd that are killed"),
        ("handovers", 2, "handovers that are asked for"),
        ("changes", 20, "changes that are timed, on etcd and on SQLite"),
    ):
        parser.add_argument(f"--{name}", type=int, default=number, help=f"{what} ({number})")
    parser.add_argument(
        "--leases",
        type=int,
        default=0,
        help="leases that are granted just before etcd's own leader is stopped, and nothing else",
    )
    parser.add_argument(
        "--lease-s",
        type=int,
        default=_LEASE_S,
        help=f"of the leader ({_LEASE_S}): the target of {LONGEST_S:g} s is for that",
    )
    return parser


def main(argv: Sequence[str] = ()) -> int:
    options = _parser().parse_args(argv)
    if options.leases:
        return report("replicas", _of_leases(options.leases, options.lease_s))
    with demo_stage() as stage, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(cool)
        sqlite_ms = _on_sqlite_ms(stage, options.changes)
        found = _captured(stage, options, Path(folder))
    results = [
        Result(
            f"{what}, {len(taken_s)} times",
            "without a leader, longest",
            "s",
            "lower",
            max(taken_s),
            target=PLANNED_S if what == "handed over" else LONGEST_S,
        )
        for what, taken_s in found.leaderless_s.items()
    ]
    whole = f"{sum(map(len, found.leaderless_s.values()))} faults"
    dark = found.losses.dark_frames if found.losses else 0
    queued = sum(found.losses.queues.values()) if found.losses else 0
    lost, doubled = found.wrong
    verdict = found.verdict
    wire = f"{verdict.switches} switches, {verdict.taken_over} times of another controller"
    results += [
        Result(f"{whole}, {found.datagrams:,} datagrams", "lost", "datagrams", "lower",
               max(0, found.lost - queued), queued, "dropped by queues beside", 0.0),
        Result(whole, "longest silence of any rack pair", "ms", "lower", found.silence_ms),
        *_of_tcp(whole, found),
        Result(whole, "frames at dark ports", "frames", "lower", dark, target=0),
        Result(whole, "faults broken off", "faults", "lower", len(found.broken_off), target=0),
        Result(whole, "leaders that went on without a lease", "", "lower", found.went_on, target=0),
        Result(wire, "writes taken of one that was not its master", "writes", "lower",
               len(verdict.accepted), verdict.by_masters, "taken of masters beside", 0.0),
        Result(wire, "such writes refused", "writes", "lower", verdict.refused,
               verdict.unanswered, "cut off unanswered beside", None),
        Result(wire, "connections of an equal, for a second or longer", "connections", "lower",
               len(verdict.equals), verdict.slaves, "of slaves beside", 0.0),
        Result(wire, "longest time of an equal, until it has a role", "s", "lower",
               verdict.longest_equal_s),
        Result(f"{found.captured_mb:.0f} MB of OpenFlow captured", "dropped by the kernel",
               "packets", "lower", found.dropped, target=0),
        Result(f"{found.captured_mb:.0f} MB of OpenFlow captured", "read in part", "connections",
               "lower", verdict.unread, target=0),
        Result(f"{found.reservations:,} reservations, {found.unknown} requests unanswered, "
               f"{found.refused} refused", "lost", "reservations", "lower", lost, target=0),
        Result(f"{found.reservations:,} reservations", "doubled", "reservations", "lower",
               doubled, target=0),
        Result("a change of one circuit", f"median of {options.changes}", "ms", "lower",
               median(found.change_ms), median(sqlite_ms), "on SQLite",
               median(sqlite_ms) + MORE_MS),
        Result("a change of one circuit", f"of the store, mean of {options.changes}", "writes",
               "lower", found.writes / max(1, options.changes)),
    ]  # fmt: skip
    return report("replicas", results)


if __name__ == "__main__":
    run_benchmark(main)
