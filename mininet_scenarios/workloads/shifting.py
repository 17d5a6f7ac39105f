"""TCP flows that change their destinations all at once, again and again (Helios, section 5.1).

Each server runs one process, which sends and receives::

    python -m mininet_scenarios.workloads.shifting --bind 10.0.1.1 --port 5700 --ready FILE \
        --orders FILE --start FILE --stability-s 4 --report FILE

The orders are a JSON list of periods, each a list of destinations ``"10.0.2.1:5700"``: one flow to
each, at full speed, from the period's begin until the period's end. An ending flow is cut off: data
not received by then do not count. ``--start`` is a file that appears, complete, once all servers
are ready, with the time of ``CLOCK_MONOTONIC`` at which the first period begins.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from mininet_scenarios.workloads.mesh import Endpoint
from mininet_scenarios.workloads.reports import WorkloadError, awaited_s, write_report

_CHUNK: Final = bytes(16_384)
_CUT_OFF: Final = struct.pack("ii", 1, 0)
"""``SO_LINGER`` for no time: a reset, and nothing more is sent."""
SAMPLE_S: Final = 0.1
_RETRY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Sample:
    """Bytes received until a time of ``CLOCK_MONOTONIC``; the time is read after the number."""

    at_s: float
    received_bytes: int


def samples_from_json(data: Mapping[str, Any]) -> tuple[Sample, ...]:
    """Samples of a report. Raises WorkloadError."""
    try:
        return tuple(Sample(**sample) for sample in data["samples"])
    except (KeyError, TypeError) as error:
        raise WorkloadError(f"not the report of a server with shifting flows: {error}") from error


class Sink(socketserver.ThreadingTCPServer):
    """A receiver that counts all data."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, endpoint: Endpoint) -> None:
        self._counting = threading.Lock()
        self._received_bytes = 0
        super().__init__((endpoint.address, endpoint.port), _Counting)

    @property
    def received_bytes(self) -> int:
        with self._counting:
            return self._received_bytes

    def count(self, number: int) -> None:
        with self._counting:
            self._received_bytes += number


class _Counting(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server = self.server
        if not isinstance(server, Sink):
            raise TypeError(f"{type(server).__name__} does not count")
        with contextlib.suppress(ConnectionResetError):  # how flows end here
            while chunk := self.request.recv(len(_CHUNK)):
                server.count(len(chunk))


def flow(to: Endpoint, until_s: float, congestion: str | None) -> None:
    """Send at full speed until ``until_s``; a failed connection is tried again."""
    while (remaining_s := until_s - time.monotonic()) > 0:
        try:
            with socket.create_connection((to.address, to.port), timeout=remaining_s) as sock:
                _fill(sock, until_s, congestion)
        except OSError:
            time.sleep(min(_RETRY_S, max(0.0, until_s - time.monotonic())))


def _fill(sock: socket.socket, until_s: float, congestion: str | None) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CUT_OFF)
    if congestion is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    while (remaining_s := until_s - time.monotonic()) > 0:
        sock.settimeout(remaining_s)
        with contextlib.suppress(TimeoutError):
            sock.send(_CHUNK)


def send(
    periods: Sequence[Sequence[Endpoint]],
    start_s: float,
    stability_s: float,
    congestion: str | None,
) -> None:
    """Send in all periods, one after the other; blocks until the end of the last period."""
    for number, destinations in enumerate(periods):
        begin_s = start_s + number * stability_s
        time.sleep(max(0.0, begin_s - time.monotonic()))
        flows = [
            threading.Thread(target=flow, args=(to, begin_s + stability_s, congestion))
            for to in destinations
        ]
        for thread in flows:
            thread.start()
        for thread in flows:
            thread.join()


def sampled(sink: Sink, over: threading.Event) -> list[Sample]:
    """Samples of arrivals, ten times a second, until ``over``, and once more then."""
    samples = [_sample(sink)]
    while not over.wait(SAMPLE_S):
        samples.append(_sample(sink))
    samples.append(_sample(sink))
    return samples


def _sample(sink: Sink) -> Sample:
    received_bytes = sink.received_bytes
    return Sample(time.monotonic(), received_bytes)


def run(
    endpoint: Endpoint,
    periods: Sequence[Sequence[Endpoint]],
    start: Path,
    stability_s: float,
    ready: Path,
    congestion: str | None,
) -> list[Sample]:
    """Send and receive until the last period is over; returns samples of received bytes."""
    over = threading.Event()

    def work() -> None:
        try:
            send(periods, awaited_s(start), stability_s, congestion)
        finally:
            over.set()

    with Sink(endpoint) as sink:
        threading.Thread(target=sink.serve_forever, args=(_RETRY_S,), daemon=True).start()
        ready.touch()
        threading.Thread(target=work, daemon=True).start()
        samples = sampled(sink, over)
        sink.shutdown()
    return samples


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="shifting", description="Flows that shift together.")
    parser.add_argument("--bind", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ready", type=Path, required=True, help="a file to make")
    parser.add_argument("--orders", type=Path, required=True, help="JSON")
    parser.add_argument(
        "--start", type=Path, required=True, help="a file with CLOCK_MONOTONIC in s"
    )
    parser.add_argument("--stability-s", type=float, required=True)
    parser.add_argument("--congestion", help="TCP congestion control, e.g. cubic")
    parser.add_argument("--report", type=Path, required=True, help="JSON report to write")
    given = parser.parse_args(arguments)
    orders = json.loads(given.orders.read_text(encoding="utf-8"))
    periods = [[Endpoint.parse(to) for to in period] for period in orders]
    endpoint = Endpoint(given.bind, given.port)
    samples = run(endpoint, periods, given.start, given.stability_s, given.ready, given.congestion)
    write_report(given.report, {"samples": [asdict(sample) for sample in samples]})


if __name__ == "__main__":
    main()
