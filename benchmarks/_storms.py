"""A stream of OpenFlow messages of one kind without pause, from an unknown or a known switch.

Meanwhile an honest switch asks for echoes, and an operator changes the policy, which needs the
controller's conductor thread. An echo responder in a separate process, which does nothing else,
shows the delays caused by the machine.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress

from benchmarks import fuzz_openflow as fuzz
from benchmarks._report import Result
from mininet_scenarios.emulators.storms import kinds
from tests.unit.controller.test_responsiveness import Controller
from tests.unit.planning.test_planner import wait_until

STORM_S: Final = 6.0
_HEADER: Final = struct.Struct("!BBHI")
_HELLO, _ECHO_REQUEST, _ECHO_REPLY, _FEATURES_REQUEST, _MULTIPART_REQUEST = 0, 2, 3, 5, 18
MOST_MEMORY: Final = 1.1
_SENT_BYTES: Final = 1 << 18
_ROLES: Final = {"a stranger": fuzz.STRANGER, "known": fuzz.KNOWN}


def _blow(target: fuzz.Target, datapath: int, name: str, over: Event) -> None:
    message = kinds(datapath)[name]
    some = message * (_SENT_BYTES // len(message))
    while not over.is_set():
        with suppress(OSError), target.connect() as connection:
            fuzz.handshake(connection, datapath)
            connection.settimeout(0.2)
            rest = memoryview(b"")
            while not over.is_set():
                rest = rest or memoryview(some)
                with suppress(TimeoutError):
                    rest = rest[connection.send(rest) :]
        time.sleep(0.05)


@dataclass(slots=True)
class _Operator:
    """Changes the policy again and again."""

    controller: Controller
    changes_ms: list[float]
    failed: int = 0

    def run(self, over: threading.Event) -> None:
        number = 0
        while not over.wait(0.05):
            number += 1
            began_s = time.monotonic()
            body = {"elephant_mb": 10 + number % 2}
            answer = self.controller.http.patch("/v1/policy", json=body)
            self.changes_ms.append(1000 * (time.monotonic() - began_s))
            self.failed += answer.status_code != 200


def play(*, tls: bool, progress: Progress) -> list[Result]:
    """Storms of all kinds, in turn, against one controller."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        settings: dict[str, Any] = {}
        trust = None
        if tls:
            settings, trust = fuzz.certificates(folder)
        controller = Controller(folder, settings)
        honest = None
        try:
            wait_until(lambda: controller.answers() or controller.process.poll() is not None, 60)
            target = fuzz.Target(controller.openflow, trust)
            honest = fuzz.Honest(target)
            thread = threading.Thread(target=honest.run)
            thread.start()
            cases = [(role, name) for role in _ROLES for name in kinds(0)]
            with _bare() as bare:
                _meanwhile(controller, honest, bare, lambda: time.sleep(STORM_S))  # warm
                rest = _meanwhile(controller, honest, bare, lambda: time.sleep(STORM_S))
                for role, name in progress.track(cases, description="storms"):
                    results += _storm(controller, target, (honest, bare), rest, role, name, tls=tls)
        finally:
            if honest is not None:
                honest.end()
            controller.close()
    return results


def _respond(listener: socket.socket) -> None:
    """Accept a single switch, and answer its echoes at once: shows the delay of the machine."""
    connection, _ = listener.accept()
    with suppress(OSError), connection, connection.makefile("rb") as stream:
        for kind, body in (_HELLO, b""), (_FEATURES_REQUEST, b""), (_MULTIPART_REQUEST, bytes(8)):
            connection.sendall(_HEADER.pack(4, kind, 8 + len(body), 1) + body)
        while len(head := stream.read(8)) == 8:
            _, kind, length, xid = _HEADER.unpack(head)
            body = stream.read(length - 8)
            if kind == _ECHO_REQUEST:
                connection.sendall(_HEADER.pack(4, _ECHO_REPLY, length, xid) + body)


@contextmanager
def _bare() -> Iterator[fuzz.Honest]:
    """A switch connected to a responder in a separate process, with the honest switch's
    requests.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context = multiprocessing.get_context("fork")
        responder = context.Process(target=_respond, args=(listener,), daemon=True)
        responder.start()
        switch = fuzz.Honest(fuzz.Target(listener.getsockname(), None))
        thread = threading.Thread(target=switch.run)
        thread.start()
        try:
            yield switch
        finally:
            switch.end()
            thread.join()
            responder.terminate()
            responder.join()


@dataclass(frozen=True, slots=True)
class _Measured:
    echoes_ms: list[float]
    bare_ms: list[float]
    """Echo times of the bare responder meanwhile."""
    changes_ms: list[float]
    memory_mb: float
    """Memory of the process at the end."""


def _meanwhile(
    controller: Controller, honest: fuzz.Honest, bare: fuzz.Honest, do: Any
) -> _Measured:
    over, operator = threading.Event(), _Operator(controller, [])
    thread = threading.Thread(target=operator.run, args=(over,))
    honest.echoes_ms.clear()
    bare.echoes_ms.clear()
    thread.start()
    do()
    over.set()
    thread.join()
    return _Measured(
        list(honest.echoes_ms),
        list(bare.echoes_ms),
        operator.changes_ms,
        fuzz.resident_mb(controller),
    )


def _storm(
    controller: Controller,
    target: fuzz.Target,
    switches: tuple[fuzz.Honest, fuzz.Honest],
    at_rest: _Measured,
    role: str,
    name: str,
    *,
    tls: bool,
) -> list[Result]:
    context = multiprocessing.get_context("fork")
    over = context.Event()
    storm = context.Process(target=_blow, args=(target, _ROLES[role], name, over), daemon=True)

    def blow() -> None:
        storm.start()
        time.sleep(STORM_S)
        over.set()

    honest, bare = switches
    lost = honest.lost
    found = _meanwhile(controller, honest, bare, blow)
    storm.join()
    case = f"{name}, {role}{', TLS' if tls else ''}"
    memory_mb = at_rest.memory_mb
    longest_ms, beside_ms = max(found.echoes_ms, default=1e6), max(found.bare_ms)
    return [
        Result(case, "memory", "MB", "lower", found.memory_mb, memory_mb, "at rest",
               MOST_MEMORY * memory_mb),
        Result(case, "honest switch cut off", "times", "lower", honest.lost - lost, target=0),
        Result(case, "its echo, longest", "ms", "lower", longest_ms,
               max(at_rest.echoes_ms), "at rest", fuzz.MOST_ECHO_MS),
        Result(case, "its echo, longest, less the machine's", "ms", "lower",
               max(0.0, longest_ms - beside_ms), beside_ms, "of a bare responder meanwhile",
               fuzz.MOST_ECHO_MS),
        Result(case, "its echo, 99th percentile", "ms", "lower", _p99(found.echoes_ms),
               _p99(found.bare_ms), "of a bare responder meanwhile"),
        Result(case, "policy changes, median", "ms", "lower", statistics.median(found.changes_ms),
               statistics.median(at_rest.changes_ms), "at rest"),
        Result(case, "policy changes, longest", "ms", "lower", max(found.changes_ms),
               max(at_rest.changes_ms), "at rest"),
    ]  # fmt: skip


def _p99(some: list[float]) -> float:
    return statistics.quantiles(some, n=100)[-1] if len(some) > 1 else 1e6
