"""Messages that no switch would send, at the OpenFlow port of a running controller.

``python -m benchmarks.fuzz_openflow [--messages N] [--seed S]``. A quarter of the rogue connections
sends before the handshake, the others after one: half as a switch that nobody knows, half with the
datapath id of a switch of the fabric. Messages are mutated from those of the codecs' corpus, or
made up, with lengths that hold or do not. Meanwhile an honest switch asks for an echo fifty times a
second. Once without TLS; once with it, where the rogue has a certificate of the fabric's authority.
"""

from __future__ import annotations

import argparse
import random
import socket
import ssl
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
from rich.progress import Progress

from apps.tools.authority import Use, create_authority, issue
from benchmarks._report import Result, report
from tests.unit.controller.test_responsiveness import Controller
from tests.unit.planning.test_planner import wait_until

MESSAGES: Final = 1_000_000
MOST_ECHO_MS: Final = 100.0
HONEST: Final = 0x2101
KNOWN: Final = 0x2102
STRANGER: Final = 0xBAD
_PER_CONNECTION: Final = 2000
_ECHO_EVERY_S: Final = 0.02
_HEADER: Final = struct.Struct("!BBHI")
_HELLO, _ECHO_REQUEST, _ECHO_REPLY, _FEATURES_REQUEST, _FEATURES_REPLY = 0, 2, 3, 5, 6
_KINDS: Final = 30
CORPUS: Final = Path(__file__).parents[1] / "tests" / "unit" / "drivers" / "corpus" / "openflow"


def message(chance: random.Random, kept: Sequence[bytes]) -> bytes:
    """Of the corpus, changed; or made up, its length mostly true."""
    if chance.random() < 0.4:
        data = bytearray(chance.choice(kept))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data)
    body = chance.randbytes(chance.choice((0, 0, 4, 8, 16, 40, 200, 3000)))
    length = 8 + len(body)
    if chance.random() < 0.05:
        length = chance.choice((0, 7, 8, length + 1, 65535))
    version = 4 if chance.random() < 0.9 else chance.randrange(256)
    kind = chance.randrange(_KINDS if chance.random() < 0.9 else 256)
    return _HEADER.pack(version, kind, length, chance.getrandbits(32)) + body


def handshake(connection: socket.socket, datapath: int) -> None:
    """Become a switch with this id, as far as features go."""
    connection.sendall(_HEADER.pack(4, _HELLO, 8, 1))
    stream = connection.makefile("rb")
    while len(head := stream.read(8)) == 8:
        _, kind, length, xid = _HEADER.unpack(head)
        stream.read(length - 8)
        if kind == _FEATURES_REQUEST:
            features = struct.pack("!QIBBxxII", datapath, 0, 254, 0, 0x47, 0)
            connection.sendall(_HEADER.pack(4, _FEATURES_REPLY, 32, xid) + features)
            return


@dataclass(slots=True)
class Target:
    address: tuple[str, int]
    tls: ssl.SSLContext | None

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self.address, timeout=5)
        return connection if self.tls is None else self.tls.wrap_socket(connection)


@dataclass(slots=True)
class Honest:
    """A switch of the fabric that wants to know who lives."""

    target: Target
    echoes_ms: list[float] = field(default_factory=list)
    lost: int = 0
    """Connections that the controller ended."""
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


def attack(target: Target, messages: int, seed: int, progress: Progress) -> None:
    """Send so many, over as many connections as it takes."""
    chance = random.Random(seed)
    kept = [path.read_bytes() for path in sorted(CORPUS.glob("*.bin"))]
    bar = progress.add_task("messages", total=messages)
    sent = 0
    while sent < messages:
        with suppress(OSError), target.connect() as connection:
            if chance.random() >= 0.25:
                handshake(connection, chance.choice((STRANGER, KNOWN)))
            for _ in range(_PER_CONNECTION):
                connection.sendall(message(chance, kept))
                sent += 1
                if sent >= messages:
                    break
        sent += 1  # the one that it refused to read on after
        progress.update(bar, completed=min(sent, messages))


def certificates(folder: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """The controller's settings, and what switches connect with."""
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
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        settings: dict[str, Any] = {}
        context = None
        if tls:
            settings, context = certificates(folder)
        controller = Controller(folder, settings)
        try:
            wait_until(lambda: controller.answers() or controller.process.poll() is not None, 60)
            target = Target(controller.openflow, context)
            honest = Honest(target)
            thread = threading.Thread(target=honest.run)
            thread.start()
            wait_until(lambda: len(honest.echoes_ms) > 50, 60)
            quiet_ms = list(honest.echoes_ms)
            honest.echoes_ms.clear()
            started_s = time.monotonic()
            attack(target, messages, seed, progress)
            lasted_s = time.monotonic() - started_s
            honest.end()
            thread.join()
            alive = controller.process.poll() is None and healthy(controller)
            log = controller.log.read_text(errors="replace")
        finally:
            controller.close()
    case = f"{messages} messages{' over TLS' if tls else ''}, {lasted_s:.0f} s"
    calm = f"before, {len(quiet_ms)} echoes"
    return [
        Result(case, "controller ended", "", "lower", not alive, 0, "allowed", 0),
        Result(case, "tracebacks", "", "lower", log.count("Traceback"), 0, "allowed", 0),
        Result(case, "lines of its log", "", "lower", len(log.splitlines()), messages, "messages"),
        Result(case, "honest switch cut off", "times", "lower", honest.lost, 0, "allowed", 0),
        Result(case, "its echo, median", "ms", "lower", statistics.median(honest.echoes_ms),
               statistics.median(quiet_ms), calm),
        Result(case, "its echo, longest", "ms", "lower", max(honest.echoes_ms),
               max(quiet_ms), calm, MOST_ECHO_MS),
    ]  # fmt: skip


def healthy(controller: Controller) -> bool:
    with suppress(httpx.HTTPError):
        return controller.http.get("/v1/topology").status_code == 200
    return False


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_openflow")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    results = []
    with Progress(transient=True) as progress:
        for tls in (False, True):
            results += play(given.messages, given.seed, tls=tls, progress=progress)
    report("fuzz_openflow", results)
    return 0 if all(result.meets_target for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
