"""Messages that no switch would send, to the OpenFlow port of a running controller.

``python -m benchmarks.fuzz_openflow [--messages N] [--seed S]``. Four rogue connections at a time:
a quarter sends before the handshake; the others send after the handshake, half as an unknown
switch, half with the datapath id of a switch of the fabric. Nearly all messages have a consistent
header, so that the controller parses the messages: mutated parts of the codecs' corpus, and made-up
bodies, many with the transaction ids that the controller waits for. One message in a thousand has a
wrong version or length, and ends its connection. An echo after each hundred messages confirms their
arrival; without TLS, the thread that answers the echo buffers at most 128 KiB of unread messages.

Meanwhile an honest switch sends an echo request fifty times a second. The test runs without TLS,
and with TLS and a certificate of the fabric's authority for the rogue.

``--storms`` sends each kind of message without pause instead, as an unknown switch and as a switch
of the fabric; meanwhile an operator changes the policy.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import socket
import ssl
import statistics
import struct
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import httpx
from rich.progress import Progress

from apps.tools.authority import Use, create_authority, issue
from benchmarks._report import Result, report, run_benchmark
from tests.unit.controller.test_responsiveness import Controller
from tests.unit.planning.test_planner import wait_until

MESSAGES: Final = 1_000_000
MOST_ECHO_MS: Final = 100.0
HONEST: Final = 0x2101
KNOWN: Final = 0x2102
STRANGER: Final = 0xBAD
_ROGUES: Final = 4
_PER_CONNECTION: Final = 5000
_UNTIL_ECHO: Final = 100
_WRONG: Final = 0.001
_PATIENCE_S: Final = 10.0
_TELLING: Final = threading.Lock()
_ECHO_EVERY_S: Final = 0.02
_HEADER: Final = struct.Struct("!BBHI")
_HELLO, _ERROR, _ECHO_REQUEST, _ECHO_REPLY, _EXPERIMENTER = range(5)
_FEATURES_REQUEST, _FEATURES_REPLY, _PACKET_IN, _PORT_STATUS = 5, 6, 10, 12
_MULTIPART_REQUEST, _MULTIPART_REPLY, _BARRIER_REQUEST, _BARRIER_REPLY = 18, 19, 20, 21
_ROLE_REQUEST, _ROLE_REPLY = 24, 25
_KINDS: Final = 30
_REPLIES: Final = {
    _MULTIPART_REQUEST: _MULTIPART_REPLY,
    _BARRIER_REQUEST: _BARRIER_REPLY,
    _ROLE_REQUEST: _ROLE_REPLY,
}
_SENT_BY_SWITCHES: Final = (
    _ERROR, _ECHO_REPLY, _EXPERIMENTER, _PACKET_IN, _PORT_STATUS, *_REPLIES.values(),
)  # fmt: skip
_STATISTICS: Final = (0, 1, 2, 3, 4, 9, 10, 13, 0xFFFF)
CORPUS: Final = Path(__file__).parents[1] / "tests" / "unit" / "drivers" / "corpus" / "openflow"


def kept_bodies() -> dict[int, list[bytes]]:
    """Bodies of the messages in the codecs' corpus, by kind."""
    bodies: dict[int, list[bytes]] = {}
    for path in sorted(CORPUS.glob("*.bin")):
        data = path.read_bytes()
        while len(data) >= _HEADER.size:
            _, kind, length, _ = _HEADER.unpack_from(data)
            bodies.setdefault(kind, []).append(data[_HEADER.size : max(length, _HEADER.size)])
            data = data[max(length, _HEADER.size) :]
    return bodies


def message(
    chance: random.Random, kept: Mapping[int, list[bytes]], asked: Sequence[Asked]
) -> bytes:
    """A message with consistent version and length."""
    xid = chance.getrandbits(32)
    kind = chance.choice(_SENT_BY_SWITCHES) if chance.random() < 0.8 else chance.randrange(_KINDS)
    about = chance.choice(_STATISTICS)
    if asked and chance.random() < 0.5:
        kind, xid, about = chance.choice(asked)
    if kind in kept and chance.random() < 0.5:
        body = bytearray(chance.choice(kept[kind]))
    else:
        body = bytearray(chance.randbytes(chance.choice((0, 4, 8, 16, 40, 72, 200, 3000))))
        if chance.random() < 0.3:
            body = bytearray(len(body))
    for _ in range(chance.randrange(4) if body else 0):
        body[chance.randrange(len(body))] = chance.choice((0, 0, 1, 255, chance.randrange(256)))
    if kind == _MULTIPART_REPLY and len(body) >= 8:
        struct.pack_into("!HH", body, 0, about, chance.choice((0, 0, 1)))
    if kind == _FEATURES_REPLY:
        kind = _ECHO_REPLY  # a second reply would name a different switch
    return _HEADER.pack(4, kind, _HEADER.size + len(body), xid) + body


def wrong(chance: random.Random) -> bytes:
    """A message of another version or length, and possible further bytes."""
    version = chance.choice((4, chance.randrange(256)))
    head = _HEADER.pack(version, chance.randrange(256), chance.choice((0, 7, 65535)), 0)
    return head + chance.randbytes(chance.choice((0, 100, 70_000)))


Asked = tuple[int, int, int]
"""The kind, the transaction id and the kind of statistics of the expected reply."""


@dataclass(slots=True)
class Rogue:
    """A connection of an attacker; ``read``: number of messages that the controller has read."""

    connection: socket.socket
    read: int = 0
    _asked: deque[Asked] = field(default_factory=lambda: deque(maxlen=50))
    _echoes: int = 1 << 29

    def attack(self, chance: random.Random, kept: Mapping[int, list[bytes]]) -> None:
        """Send until cut off, or until enough is sent. Raises OSError."""
        for _ in range(_PER_CONNECTION // _UNTIL_ECHO):
            batch = [message(chance, kept, self._asked) for _ in range(_UNTIL_ECHO)]
            self._echoes += 1
            batch.append(_HEADER.pack(4, _ECHO_REQUEST, _HEADER.size, self._echoes))
            self.connection.sendall(b"".join(batch))
            if not self._answered():
                return
            self.read += _UNTIL_ECHO
            if chance.random() < _WRONG * _UNTIL_ECHO:
                self.connection.sendall(wrong(chance))
                return

    def _answered(self) -> bool:
        """Wait for the echo reply, and collect other requests. False if the connection has
        ended.
        """
        while True:
            head = exactly(self.connection, _HEADER.size)
            if len(head) < _HEADER.size:
                return False
            _, kind, length, xid = _HEADER.unpack(head)
            body = exactly(self.connection, length - _HEADER.size)
            if (kind, xid) == (_ECHO_REPLY, self._echoes):
                return True
            if kind in _REPLIES:
                about = struct.unpack_from("!H", body)[0] if kind == _MULTIPART_REQUEST else 0
                self._asked.append((_REPLIES[kind], xid, about))


def exactly(connection: socket.socket, count: int) -> bytes:
    """Exactly ``count`` bytes; fewer if the connection ends early."""
    data = b""
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return data


def handshake(connection: socket.socket, datapath: int) -> None:
    """Do the handshake of a switch with this id and three ports."""
    connection.sendall(_HEADER.pack(4, _HELLO, 8, 1))
    while len(head := exactly(connection, 8)) == 8:
        _, kind, length, xid = _HEADER.unpack(head)
        exactly(connection, length - 8)
        if kind == _FEATURES_REQUEST:
            features = struct.pack("!QIBBxxII", datapath, 0, 254, 0, 0x47, 0)
            connection.sendall(_HEADER.pack(4, _FEATURES_REPLY, 32, xid) + features)
        elif kind == _MULTIPART_REQUEST:
            ports = b"".join(
                struct.pack("!I4x6s2x16s32x", number, bytes(6), name)
                for number, name in enumerate((b"hyh-h12", b"hyo-h12", b"hye-h12"), 1)
            )
            head = _HEADER.pack(4, _MULTIPART_REPLY, 16 + len(ports), xid)
            connection.sendall(head + struct.pack("!HH4x", 13, 0) + ports)
            return


@dataclass(slots=True)
class Target:
    address: tuple[str, int]
    tls: ssl.SSLContext | None

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self.address, timeout=_PATIENCE_S)
        return connection if self.tls is None else self.tls.wrap_socket(connection)


@dataclass(slots=True)
class Honest:
    """An honest switch of the fabric, which sends echo requests."""

    target: Target
    echoes_ms: list[float] = field(default_factory=list)
    lost: int = 0
    """Number of connections that the controller ended."""
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._over.is_set():
            with suppress(OSError), self.target.connect() as connection:
                handshake(connection, HONEST)
                self._ask(connection)
            self.lost += not self._over.is_set()

    def end(self) -> None:
        self._over.set()

    def _ask(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        xid = 1 << 30
        while not self._over.wait(_ECHO_EVERY_S):
            xid += 1
            asked_s = time.monotonic()
            connection.sendall(_HEADER.pack(4, _ECHO_REQUEST, 8, xid))
            while True:
                head = stream.read(8)
                if len(head) < 8:
                    return
                _, kind, length, answered = _HEADER.unpack(head)
                body = stream.read(length - 8)
                if kind == _ECHO_REQUEST:
                    connection.sendall(_HEADER.pack(4, _ECHO_REPLY, length, answered) + body)
                elif (kind, answered) == (_ECHO_REPLY, xid):
                    self.echoes_ms.append(1000 * (time.monotonic() - asked_s))
                    break


@dataclass(slots=True)
class Attack:
    """Run rogues, each in a thread, until the controller has read this number of messages.

    In a separate process, so that the rogues do not delay the honest switch's reads of echoes.
    """

    target: Target
    messages: int
    seed: int
    _read: int = 0

    def run(self, go: Event, outcomes: Connection) -> None:
        """Report each connection's role, the number of read messages, and whether the connection
        stalled.
        """
        go.wait()
        threads = [
            threading.Thread(target=self._run, args=(number, outcomes)) for number in range(_ROGUES)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes.send(None)

    def _run(self, number: int, outcomes: Connection) -> None:
        chance, kept = random.Random(_ROGUES * self.seed + number), kept_bodies()
        while self._read < self.messages:
            role = chance.choice(("before the handshake", "a stranger", "known", "known"))
            read, stalled = self._connect(chance, role, kept)
            with _TELLING:
                self._read += read
                outcomes.send((role, read, stalled))

    def _connect(
        self, chance: random.Random, role: str, kept: Mapping[int, list[bytes]]
    ) -> tuple[int, bool]:
        rogue = None
        try:
            with self.target.connect() as connection:
                rogue = Rogue(connection)
                if role != "before the handshake":
                    handshake(connection, STRANGER if role == "a stranger" else KNOWN)
                rogue.attack(chance, kept)
        except TimeoutError:
            return rogue.read if rogue else 0, True
        except OSError:
            pass  # cut off
        return rogue.read if rogue else 0, False


def certificates(folder: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """The controller's settings, and the TLS settings of switches."""
    now = datetime.now(UTC)
    authority = create_authority(folder / "ca", "lab", 30, now)
    issue(folder / "ca", "controller", ["127.0.0.1"], Use.SERVER, 20, now)
    issue(folder / "ca", "switches", [], Use.CLIENT, 20, now)
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    context.load_cert_chain(folder / "ca" / "switches.pem", folder / "ca" / "switches.key")
    settings = {
        "openflow_certificate": str(folder / "ca" / "controller.pem"),
        "openflow_key": str(folder / "ca" / "controller.key"),
        "openflow_authority": str(folder / "ca" / "ca.pem"),
    }
    return settings, context


def play(messages: int, seed: int, *, tls: bool, progress: Progress) -> list[Result]:
    shares: Counter[str] = Counter()
    connections = stalled = 0
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        settings: dict[str, Any] = {}
        trust = None
        if tls:
            settings, trust = certificates(folder)
        controller = Controller(folder, settings)
        try:
            wait_until(lambda: controller.answers() or controller.process.poll() is not None, 60)
            target = Target(controller.openflow, trust)
            context = multiprocessing.get_context("fork")
            go, (outcomes, outcomes_end) = context.Event(), context.Pipe(duplex=False)
            attacker = context.Process(
                target=Attack(target, messages, seed).run, args=(go, outcomes_end), daemon=True
            )
            attacker.start()
            honest = Honest(target)
            thread = threading.Thread(target=honest.run)
            thread.start()
            wait_until(lambda: len(honest.echoes_ms) > 50, 60)
            quiet_ms = list(honest.echoes_ms)
            honest.echoes_ms.clear()
            before_mb = resident_mb(controller)
            bar = progress.add_task("messages", total=messages)
            started_s = time.monotonic()
            go.set()
            while (heard := outcomes.recv()) is not None:
                role, read, stall = heard
                shares[role] += read
                connections, stalled = connections + 1, stalled + stall
                progress.advance(bar, read)
            lasted_s = time.monotonic() - started_s
            honest.end()
            thread.join()
            alive = controller.process.poll() is None and healthy(controller)
            after_mb = resident_mb(controller) if alive else 0.0
            log = controller.log.read_text(errors="replace")
        finally:
            controller.close()
    total = shares.total()
    case = f"{total} messages read{' over TLS' if tls else ''}, {lasted_s:.0f} s"
    calm = f"before, {len(quiet_ms)} echoes"
    told_of = ", ".join(f"{count} {role}" for role, count in sorted(shares.items()))
    return [
        Result(case, "controller ended", "", "lower", not alive, target=0),
        Result(case, "tracebacks", "", "lower", log.count("Traceback"), target=0),
        Result(case, "connections that stalled", "", "lower", stalled, connections,
               f"connections; {told_of}", 0),
        Result(case, "lines of its log", "", "lower", len(log.splitlines()), total, "messages"),
        Result(case, "memory", "MB", "lower", after_mb, before_mb, "before"),
        Result(case, "honest switch cut off", "times", "lower", honest.lost, target=0),
        Result(case, "its echo, median", "ms", "lower", statistics.median(honest.echoes_ms),
               statistics.median(quiet_ms), calm),
        Result(case, "its echo, 99th percentile", "ms", "lower", p99(honest.echoes_ms),
               p99(quiet_ms), calm),
        Result(case, "its echo, longest", "ms", "lower", max(honest.echoes_ms),
               max(quiet_ms), f"{calm}; {len(honest.echoes_ms)} meanwhile", MOST_ECHO_MS),
    ]  # fmt: skip


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def resident_mb(controller: Controller, key: str = "VmRSS") -> float:
    """Memory of a process in MB; the peak with ``VmHWM``."""
    status = Path(f"/proc/{controller.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


def healthy(controller: Controller) -> bool:
    with suppress(httpx.HTTPError):
        return controller.http.get("/v1/topology").status_code == 200
    return False


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_openflow")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--storms", action="store_true")
    given = parser.parse_args(argv)
    results = []
    with Progress(transient=True) as progress:
        for tls in (False, True):
            if given.storms:
                from benchmarks import _storms  # noqa: PLC0415  (it needs this module)

                results += _storms.play(tls=tls, progress=progress)
            else:
                results += play(given.messages, given.seed, tls=tls, progress=progress)
    return report("fuzz_openflow", results)


if __name__ == "__main__":
    run_benchmark(main)
