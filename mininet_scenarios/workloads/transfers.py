"""Sized TCP transfers: migrations of virtual machines, copies of files, flows of a trace.

Each receiving server runs one process, and so does each sending server::

    python -m mininet_scenarios.workloads.transfers receive --bind 10.0.4.1 --port 5600 --ready FILE
    python -m mininet_scenarios.workloads.transfers send --orders FILE --report FILE \
        --ready FILE --begin FILE

The orders are a JSON list of ``{"to": "10.0.4.1:5600", "bytes": 1000000}``. Further keys:
``"mbps"``, the rate at which the application makes its data; ``"disk"``, the disk shared by orders
with the same name; ``"unit"``, the bytes that the application makes at a time, the next unit only
after the arrival of the previous unit; and ``"begins_s"``, the delay of a transfer after the common
begin. The common begin is a time of ``CLOCK_MONOTONIC`` in the file ``--begin``, which appears once
all are ready. A transfer is over when the receiver has confirmed the number of received bytes: data
waiting in a buffer do not count.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import socket
import socketserver
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.workloads.mesh import Endpoint
from mininet_scenarios.workloads.reports import StopFlag, WorkloadError, awaited_s, write_report

_CHUNK: Final = bytes(65_536)
_RECEIPT: Final = struct.Struct("!Q")
_SILENCE_S: Final = 60.0
"""Time without any progress after which a transfer has failed."""
_LOOK_S: Final = 1.0
"""Interval between checks for progress."""
_POLL_S: Final = 0.05
_MADE_S: Final = 0.05
"""Time for making one piece of data, for data made at a rate."""
_ARRIVAL_S: Final = 0.005
"""Interval between checks for complete arrival."""
_OUT_QUEUE: Final = struct.Struct("i")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Order:
    """A transfer to make."""

    to: Endpoint
    size_bytes: int
    made_mbps: float | None = None
    """Rate at which the application makes its data, without waiting; None: all data exist at
    once.
    """
    begins_s: float = 0.0
    """Begin, after the common begin."""
    unit_bytes: int | None = None
    """Bytes that the application makes at a time, awaiting their arrival before the next; None: no
    waiting.
    """
    disk: str | None = None
    """Disk; orders of a disk make their data in turn, with the sum of their rates: a waiting order
    leaves its share to the others.
    """

    def to_json(self) -> dict[str, Any]:
        return {
            "to": str(self.to),
            "bytes": self.size_bytes,
            "mbps": self.made_mbps,
            "begins_s": self.begins_s,
            "unit": self.unit_bytes,
            "disk": self.disk,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Order:
        """Raises WorkloadError for a size that can't be sent, and a rate that makes nothing."""
        size_bytes = int(data["bytes"])
        if size_bytes < 1:
            raise WorkloadError(f"a transfer of {size_bytes} bytes to {data['to']} is none")
        made_mbps = None if data.get("mbps") is None else float(data["mbps"])
        if made_mbps is not None and not made_mbps > 0:
            raise WorkloadError(f"data made at {made_mbps:g} Mb/s for {data['to']} is never there")
        begins_s = float(data.get("begins_s", 0.0))
        unit_bytes = None if data.get("unit") is None else int(data["unit"])
        if unit_bytes is not None and unit_bytes < 1:
            raise WorkloadError(f"units of {unit_bytes} bytes for {data['to']} never end")
        disk = None if data.get("disk") is None else str(data["disk"])
        to = Endpoint.parse(str(data["to"]))
        if disk is not None and made_mbps is None:
            raise WorkloadError(f"data for {to} comes from {disk} at no rate")
        return cls(to, size_bytes, made_mbps, begins_s, unit_bytes, disk)


@dataclass(frozen=True, slots=True)
class Done:
    """A finished transfer; results are in the order of the orders."""

    size_bytes: int
    started_s: float
    """Time by ``CLOCK_MONOTONIC`` before the connection was made."""
    finished_s: float


class Maker:
    """Maker of data at a rate, for one order or for several in turn; unused time is lost."""

    def __init__(self, rate_mbps: float) -> None:
        self._byte_s = 8e-6 / rate_mbps
        self._lock = threading.Lock()
        self._busy_until_s = 0.0

    @classmethod
    def of(cls, orders: Iterable[Order]) -> Maker | None:
        """A maker with the sum of the orders' rates; None if data exist at once."""
        rates = [order.made_mbps for order in orders if order.made_mbps is not None]
        return cls(sum(rates)) if rates else None

    def piece_bytes(self) -> int:
        """Size of a piece made at once."""
        return min(len(_CHUNK), max(1, round(_MADE_S / self._byte_s)))

    def make(self, size_bytes: int) -> None:
        """Take the time to make ``size_bytes``, after all earlier requests."""
        with self._lock:
            begun_s = max(self._busy_until_s, time.monotonic())
            self._busy_until_s = ready_s = begun_s + size_bytes * self._byte_s
        time.sleep(max(0.0, ready_s - time.monotonic()))


def transfer(
    order: Order,
    congestion: str | None,
    silence_s: float = _SILENCE_S,
    maker: Maker | None = None,
) -> Done:
    """Send, and wait for the receipt, as long as there is progress.

    ``maker`` makes the data, possibly shared with other orders; None: a maker with the order's own
    rate. Raises WorkloadError without progress for ``silence_s``, or if not all bytes arrived.
    """
    started_s = time.monotonic()
    address = order.to.address, order.to.port
    try:
        with socket.create_connection(address, timeout=PATIENCE_S) as sock:
            sock.settimeout(min(_LOOK_S, silence_s))
            if congestion is not None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
            _send(sock, order, silence_s, maker or Maker.of([order]))
            sock.shutdown(socket.SHUT_WR)
            receipt = _patiently(sock, silence_s, lambda: sock.recv(_RECEIPT.size))
    except OSError as error:
        raise WorkloadError(f"transfer to {order.to}: {error}") from error
    finished_s = time.monotonic()
    arrived = _RECEIPT.unpack(receipt)[0] if len(receipt) == _RECEIPT.size else 0
    if arrived != order.size_bytes:
        raise WorkloadError(f"{arrived} of {order.size_bytes} bytes arrived at {order.to}")
    return Done(order.size_bytes, started_s, finished_s)


def _send(sock: socket.socket, order: Order, silence_s: float, maker: Maker | None) -> None:
    """Send the order's data; making pauses while the buffer is full, and is not made up for."""
    piece_bytes = len(_CHUNK) if maker is None else maker.piece_bytes()
    unit_bytes = order.unit_bytes or order.size_bytes
    for start in range(0, order.size_bytes, unit_bytes):
        left = min(unit_bytes, order.size_bytes - start)
        while left:
            piece = memoryview(_CHUNK)[: min(left, piece_bytes)]
            if maker is not None:
                maker.make(len(piece))
            left -= len(piece)
            while piece:
                piece = piece[_patiently(sock, silence_s, partial(sock.send, piece)) :]
        if start + unit_bytes < order.size_bytes:
            _patiently(sock, silence_s, partial(_wait_for_arrival, sock))


def _wait_for_arrival(sock: socket.socket) -> None:
    """Wait until all is acknowledged. Raises TimeoutError after the socket's time."""
    until_s = time.monotonic() + (sock.gettimeout() or _LOOK_S)
    while _unacknowledged_bytes(sock):
        if time.monotonic() > until_s:
            raise TimeoutError
        time.sleep(_ARRIVAL_S)


def _patiently(sock: socket.socket, silence_s: float, attempt: Callable[[], T]) -> T:
    """Try again while data leave the socket's buffer: a full buffer can take minutes.

    Raises TimeoutError if no data have left for ``silence_s``.
    """
    waiting_bytes, since_s = _unacknowledged_bytes(sock), time.monotonic()
    while True:
        try:
            return attempt()
        except TimeoutError:
            before_bytes, waiting_bytes = waiting_bytes, _unacknowledged_bytes(sock)
            now_s = time.monotonic()
            if waiting_bytes != before_bytes:
                since_s = now_s
            elif now_s - since_s >= silence_s:
                raise TimeoutError(
                    f"nothing has moved for {silence_s:g} s; {waiting_bytes} bytes wait"
                ) from None


def _unacknowledged_bytes(sock: socket.socket) -> int:
    """Number of bytes in the socket's buffer (SIOCOUTQ of tcp(7))."""
    answer = fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(_OUT_QUEUE.size))
    return int(_OUT_QUEUE.unpack(answer)[0])


def send_all(
    orders: Sequence[Order], congestion: str | None = None, begin_at_s: float | None = None
) -> list[Done]:
    """Make all transfers, in a thread each; blocks until the end of the last transfer.

    ``begin_at_s`` is a time of ``CLOCK_MONOTONIC``; None: now. Raises WorkloadError.
    """
    first_s = time.monotonic() if begin_at_s is None else begin_at_s
    disks = {order.disk for order in orders if order.disk is not None}
    makers = {disk: Maker.of(order for order in orders if order.disk == disk) for disk in disks}

    def send(order: Order) -> Done:
        time.sleep(max(0.0, first_s + order.begins_s - time.monotonic()))
        maker = None if order.disk is None else makers[order.disk]
        return transfer(order, congestion, maker=maker)

    with ThreadPoolExecutor(len(orders)) as pool:
        return list(pool.map(send, orders))


class Counting(socketserver.BaseRequestHandler):
    """An incoming transfer."""

    def handle(self) -> None:
        arrived = 0
        while chunk := self.request.recv(len(_CHUNK)):
            arrived += len(chunk)
        self.request.sendall(_RECEIPT.pack(arrived))


class Receiver(socketserver.ThreadingTCPServer):
    """A receiver of any number of transfers, with a receipt for each."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


def receive(endpoint: Endpoint, ready: Path, stop: StopFlag) -> None:
    """Receive until stopped; ``ready`` is written once connections are accepted."""
    with Receiver((endpoint.address, endpoint.port), Counting) as server:
        threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True).start()
        ready.touch()
        while not stop.is_set:
            time.sleep(_POLL_S)
        server.shutdown()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="transfers", description="Sized TCP transfers.")
    commands = parser.add_subparsers(dest="command", required=True)
    receiving = commands.add_parser("receive")
    receiving.add_argument("--bind", required=True)
    receiving.add_argument("--port", type=int, required=True)
    receiving.add_argument("--ready", type=Path, required=True, help="a file to make")
    sending = commands.add_parser("send")
    sending.add_argument("--orders", type=Path, required=True, help="JSON")
    sending.add_argument("--congestion", help="TCP congestion control, e.g. cubic")
    sending.add_argument("--ready", type=Path, required=True, help="a file to make")
    sending.add_argument("--begin", type=Path, required=True, help="a file with CLOCK_MONOTONIC, s")
    sending.add_argument("--report", type=Path, required=True, help="JSON report to write")
    given = parser.parse_args(arguments)
    if given.command == "receive":
        stop = StopFlag()
        stop.install()
        receive(Endpoint(given.bind, given.port), given.ready, stop)
        return
    orders = [
        Order.from_json(order) for order in json.loads(given.orders.read_text(encoding="utf-8"))
    ]
    given.ready.touch()
    done = send_all(orders, given.congestion, awaited_s(given.begin))
    write_report(given.report, {"transfers": [asdict(transfer) for transfer in done]})


if __name__ == "__main__":
    main()
