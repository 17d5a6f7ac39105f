"""OpenFlow and polling of a whole controller while its REST API is kept busy.

``python -m benchmarks.undisturbed`` (root). The controller of the demo fabric, on four ToRs and
eight vswitches of Open vSwitch, polled once a second, has 10,000 reservations in its calendar. wrk
keeps four connections busy, with one kind of request after the other. Meanwhile a switch sends an
echo request ten times a second, as a keep-alive of OpenFlow, and the controller reports the age of
its newest counters. The baseline is the same controller without requests.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from benchmarks._wrk import CLIENTS, SECONDS, Load, check_wrk, load
from benchmarks.rest import filled_ledger
from mininet_scenarios import plain_http
from mininet_scenarios.kills import UNHURRIED
from mininet_scenarios.stage.controller_process import ControllerProcess

SPAN_S = 365 * 86_400.0
POLL_INTERVAL_S = 1.0
POLICY = {"mode": "on-request", "poll_interval_s": POLL_INTERVAL_S}
KEEP_ALIVE_MS = 5000.0
"""Time limit of an echo reply, after which Open vSwitch takes the connection for dead."""
ECHO_EVERY_S = 0.1
LOOK_EVERY_S = 0.5
_HEADER = struct.Struct("!BBHI")
_HELLO, _ECHO_REQUEST, _ECHO_REPLY = 0, 2, 3
_VERSION = 4


@dataclass
class Watched:
    echoes_ms: list[float] = field(default_factory=list)
    ages_s: list[float] = field(default_factory=list)
    """Ages of the newest counters."""
    stale: float = 0.0
    """Largest number of vswitches with late counters at a time."""
    connections: set[float] = field(default_factory=set)


class Switch:
    """A switch that sends hello, then echo requests."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(_HEADER.pack(_VERSION, _HELLO, _HEADER.size, 1))

    def echo_ms(self, xid: int) -> float:
        asked_s = time.perf_counter()
        self._socket.sendall(_HEADER.pack(_VERSION, _ECHO_REQUEST, _HEADER.size, xid))
        while self._receive() != (_ECHO_REPLY, xid):
            pass
        return (time.perf_counter() - asked_s) * 1000

    def _receive(self) -> tuple[int, int]:
        _, kind, length, xid = _HEADER.unpack(self._stream.read(_HEADER.size))
        self._stream.read(length - _HEADER.size)
        return kind, xid

    def close(self) -> None:
        self._socket.close()


@contextmanager
def watched(process: ControllerProcess) -> Iterator[Watched]:
    """Figures measured by a switch and by scrapes until the block ends."""
    seen, over = Watched(), threading.Event()
    settings = process.settings
    threads = [
        threading.Thread(target=_ask_for_echoes, args=(settings.openflow_host,
                         settings.openflow_port, seen, over)),
        threading.Thread(target=_look, args=(process.base_url, seen, over)),
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _ask_for_echoes(host: str, port: int, seen: Watched, over: threading.Event) -> None:
    switch = Switch((host, port))
    while not over.wait(ECHO_EVERY_S):
        seen.echoes_ms.append(switch.echo_ms(len(seen.echoes_ms) + 2))
    switch.close()


def _look(url: str, seen: Watched, over: threading.Event) -> None:
    with plain_http.client(base_url=url, timeout=30) as http:
        while not over.wait(LOOK_EVERY_S):
            text = http.get("/metrics").raise_for_status().text
            found = {
                sample.name: sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if not sample.labels
            }
            seen.ages_s.append(found["hydra_demand_age_seconds"])
            seen.stale = max(seen.stale, found["hydra_stale_vswitches"])
            seen.connections.add(found["hydra_openflow_connections"])


def main() -> int:
    check_wrk()
    results = []
    loads: list[Load] = []
    with demo_stage() as stage:
        ledger = filled_ledger(stage.fabric, str(stage.work_dir / "journal.db"), SPAN_S)
        known = [reservation.id for reservation in ledger.bookings.all()]
        ledger.close()
        racks = [rack.name for rack in stage.fabric.racks]
        with stage.process(POLICY, UNHURRIED) as process:
            with watched(process) as quiet:
                time.sleep(SECONDS)
            for kind, name in (
                ("healthz", "/healthz"),
                ("read", "GET one"),
                ("page", "GET 100"),
                ("reserve", "POST"),
            ):
                with watched(process) as seen:
                    wrk = load(process.base_url, kind, known if kind == "read" else racks, SPAN_S)
                loads.append(wrk)
                results += rows(f"{name}, {CLIENTS} connections", wrk, seen, loads[0], quiet)
    return report("undisturbed", results)


def rows(case: str, wrk: Load, seen: Watched, bare: Load, quiet: Watched) -> list[Result]:
    idle = "nothing to serve"
    return [
        Result(case, "requests", "/s", "higher", wrk.rate, bare.rate, "/healthz",
               note=f"{wrk.created} answered, {wrk.refused} refused"),
        Result(case, "p99", "ms", "lower", wrk.p99_ms, bare.p99_ms, "/healthz"),
        Result(case, "OpenFlow echo, worst", "ms", "lower", max(seen.echoes_ms),
               max(quiet.echoes_ms), idle, KEEP_ALIVE_MS),
        Result(case, "age of the newest counters, worst", "s", "lower", max(seen.ages_s),
               max(quiet.ages_s), idle, POLL_INTERVAL_S),
        Result(case, "vswitches with late counters", "", "lower", seen.stale, quiet.stale, idle, 0),
        Result(case, "OpenFlow connections", "", "higher", min(seen.connections),
               min(quiet.connections), idle, min(quiet.connections)),
    ]  # fmt: skip


if __name__ == "__main__":
    run_benchmark(main)
