"""One kind of OpenFlow message without pause, from a switch that nobody knows or a known one.

Meanwhile an honest switch asks for echoes, and an operator changes the policy, for which the
controller's one thread of decisions has to be free.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import threading
import time
from contextlib import suppress
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
    """Storms of all kinds, one after the other, against one controller."""
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
            _meanwhile(controller, honest, lambda: time.sleep(STORM_S))  # warm
            rest = _meanwhile(controller, honest, lambda: time.sleep(STORM_S))
            cases = [(role, name) for role in _ROLES for name in kinds(0)]
            for role, name in progress.track(cases, description="storms"):
                results += _storm(controller, target, honest, rest, role, name, tls=tls)
        finally:
            if honest is not None:
                honest.end()
            controller.close()
    return results


Measured = tuple[list[float], list[float], float]
"""Echoes and changes, in ms, and the process's memory at the end, in MB."""


def _meanwhile(controller: Controller, honest: fuzz.Honest, do: Any) -> Measured:
    over, operator = threading.Event(), _Operator(controller, [])
    thread = threading.Thread(target=operator.run, args=(over,))
    honest.echoes_ms.clear()
    thread.start()
    do()
    over.set()
    thread.join()
    return list(honest.echoes_ms), operator.changes_ms, fuzz.resident_mb(controller)


def _storm(
    controller: Controller,
    target: fuzz.Target,
    honest: fuzz.Honest,
    at_rest: Measured,
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

    lost = honest.lost
    echoes_ms, changes_ms, memory_mb = _meanwhile(controller, honest, blow)
    storm.join()
    case = f"{name}, {role}{', TLS' if tls else ''}"
    rest_echoes, rest_changes, rest_mb = at_rest
    return [
        Result(case, "memory", "MB", "lower", memory_mb, rest_mb, "at rest", MOST_MEMORY * rest_mb),
        Result(case, "honest switch cut off", "times", "lower", honest.lost - lost, 0,
               "allowed", 0),
        Result(case, "its echo, longest", "ms", "lower", max(echoes_ms, default=1e6),
               max(rest_echoes), "at rest", fuzz.MOST_ECHO_MS),
        Result(case, "policy changes, median", "ms", "lower", statistics.median(changes_ms),
               statistics.median(rest_changes), "at rest"),
        Result(case, "policy changes, longest", "ms", "lower", max(changes_ms),
               max(rest_changes), "at rest"),
    ]  # fmt: skip
