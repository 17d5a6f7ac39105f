"""A session with an OVSDB server: calls, pushed updates of rows, and a lock (RFC 7047).

The server pushes updates of the watched columns only; other columns are read when asked for. The
package ``ovs`` makes an object for each value: with 64 ports and up to 3,900 VLANs a ToR,
connecting took 32 ms of a processor instead of 0.7, and idle sessions of 320 ToRs 2 % of a core.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final

from drivers.codecs.ovsdb import Messages, OvsdbError
from drivers.transports.permit import about_to_send
from drivers.transports.tcp import UNIX_PREFIX, parse_endpoint
from hydra.errors import DeviceError

DATABASE: Final = "Open_vSwitch"
SCHEMES: Final = (UNIX_PREFIX, "tcp:", "ssl:")
_RECEIVE_BYTES: Final = 1 << 16
_CROWDED_MS: Final = 5.0
_LOOKS: Final = 3
"""Round trips after which a server has seen the end of a session that ended earlier."""
_AGAIN: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_TURNS: Final = threading.BoundedSemaphore(2)
"""Most calls that compute at a time, while other calls wait for their servers. Threads take turns
at the interpreter: among hundreds of ToRs, OpenFlow's thread would hardly run.
"""

Row = Mapping[str, Any]


class SessionLostError(Exception):
    """The session broke or did not answer in time."""


class RefusedError(Exception):
    """The server has refused a request, and has changed nothing."""


class NotOwnerError(RefusedError):
    """The session lacks the lock that its writes need."""


class OutdatedError(RefusedError):
    """A ``wait`` of the transaction failed: a row differs from the transaction's expectation."""


_REFUSALS: Final = {"not owner": NotOwnerError, "timed out": OutdatedError}
"""Errors of ``assert`` and of ``wait`` (RFC 7047, 5.2.6 and 5.2.10)."""


class Call:
    """A call on a server, with its deadline; ``with`` waits for the call's turn.

    Time taken by the turns of other calls does not count.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def __enter__(self) -> Call:
        _TURNS.acquire()
        self._due_s = time.monotonic() + self._timeout_s
        return self

    def __exit__(self, *_error: object) -> None:
        _TURNS.release()

    def remaining_ms(self) -> float:
        """Time left. Raises SessionLostError when there is none."""
        remaining_ms = (self._due_s - time.monotonic()) * 1000
        if remaining_ms <= 0:
            raise SessionLostError("no answer in time")
        return remaining_ms

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Give other calls their turn meanwhile, until this call gets its next turn."""
        _TURNS.release()
        try:
            yield
        finally:
            began_s = time.monotonic()
            _TURNS.acquire()
            self._due_s += time.monotonic() - began_s

    def wait(self, poll: select.poll, limit_ms: float | None = None) -> bool:
        """Wait for the server, for ``limit_ms`` at most; False if there was nothing.

        Raises SessionLostError when the deadline has passed.
        """
        remaining_ms = self.remaining_ms()
        with self.outside():
            return bool(
                poll.poll(remaining_ms if limit_ms is None else min(limit_ms, remaining_ms))
            )


class OvsdbSession:
    """A session, for one thread at a time; every method but :meth:`close` raises SessionLostError.

    :attr:`rows` holds the server's rows with the watched columns, by table and UUID.
    """

    def __init__(self, address: str, watched: Mapping[str, Sequence[str]]) -> None:
        """``address`` is one of :data:`SCHEMES` and the rest after it."""
        self._address = address
        self._watched = watched
        self._socket: socket.socket | None = None
        self._messages = Messages()
        self._unsent = bytearray()
        self._numbers = count(1)
        self._replies: dict[object, dict[str, Any]] = {}
        self.rows: dict[str, dict[str, Row]] = {table: {} for table in watched}
        self.has_lock = False
        self._lock: str | None = None
        self._lock_request = self._monitor_request = 0

    def connect(self, call: Call, lock: str | None = None, *, steal: bool = False) -> None:
        """Connect, and read the watched rows; :attr:`has_lock` is then True if the lock is held.

        With ``steal`` the lock is taken from its owner, whose writes are refused from then on.
        """
        try:
            self._dial(call)
        except OSError as error:
            raise SessionLostError(error.strerror or str(error)) from error
        if lock is not None:
            self._lock = lock
            self._lock_request = self._request("steal" if steal else "lock", [lock])
        columns = {table: {"columns": list(names)} for table, names in self._watched.items()}
        self._monitor_request = self._request("monitor", [DATABASE, None, columns])
        initial = self._answer(self._monitor_request, call)
        if initial["error"] is not None:
            raise SessionLostError(f"no database {DATABASE} there: {_said(initial['error'])}")
        for _ in range(_LOOKS):
            if lock is not None and not self.has_lock:
                self.echo(call)  # the server may be about to notice the end of the owner's session

    def close(self) -> None:
        """End the session; safe to repeat."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def tend(self) -> None:
        """Read the server's pending messages, and answer its inactivity probes."""
        self._send()
        self._receive()
        self._send()

    def echo(self, call: Call) -> None:
        """Make one round trip. Afterwards all earlier changes are in :attr:`rows` (RFC 7047,
        4.1.3).
        """
        self._answer(self._request("echo", []), call)

    def transact(self, operations: Sequence[bytes], call: Call) -> list[dict[str, Any]]:
        """A result for each operation; all are carried out, or none. Raises RefusedError, and
        SessionLostError for an answer with fewer results.
        """
        reply = self._answer(self.begin(operations), call)
        if reply["error"] is not None:
            raise RefusedError(_said(reply["error"]))
        for result in reply["result"]:
            if result and "error" in result:
                raise _REFUSALS.get(result["error"], RefusedError)(_said(result))
        found: list[dict[str, Any]] = reply["result"]
        if len(found) < len(operations):
            raise SessionLostError(f"{len(operations)} operations have {len(found)} results")
        return found

    def wait_until(self, done: Callable[[], bool], call: Call) -> None:
        """Read the server's messages until ``done``."""
        while not done():
            self._wait(call)

    def begin(self, operations: Sequence[bytes]) -> int:
        """Send operations; returns the request's number."""
        number = next(self._numbers)
        joined = b",".join(operations)
        separator = b"," if joined else b""
        self._unsent += b'{"method":"transact","id":%d,"params":["%s"%s%s]}' % (
            number, DATABASE.encode(), separator, joined,
        )  # fmt: skip
        return number

    def _request(self, method: str, parameters: object) -> int:
        number = next(self._numbers)
        self._unsent += _encoded({"method": method, "params": parameters, "id": number})
        return number

    def _answer(self, number: int, call: Call) -> dict[str, Any]:
        while number not in self._replies:
            self._wait(call)
        return self._replies.pop(number)

    def _wait(self, call: Call) -> None:
        """Send and read all that is possible; if there is nothing to read, wait."""
        self._send()
        if self._receive():
            return
        connection = self._connection()
        poll = select.poll()
        poll.register(connection, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        call.wait(poll)

    def _connection(self) -> socket.socket:
        if self._socket is None:
            raise SessionLostError("there is no connection")
        return self._socket

    def _send(self) -> None:
        connection, unsent = self._connection(), self._unsent
        try:
            while unsent:
                about_to_send(connection)
                with memoryview(unsent) as left:
                    sent = connection.send(left)
                del unsent[:sent]
        except _AGAIN:
            pass
        except OSError as error:
            raise SessionLostError(error.strerror or str(error)) from error

    def _receive(self) -> bool:
        """Read received bytes; False if there are none."""
        connection, anything = self._connection(), False
        with suppress(*_AGAIN):
            while True:
                try:
                    data = connection.recv(_RECEIVE_BYTES)
                except _AGAIN:
                    raise
                except OSError as error:
                    raise SessionLostError(error.strerror or str(error)) from error
                if not data:
                    raise SessionLostError("the connection was closed")
                anything = True
                self._take(data)
        return anything

    def _take(self, data: bytes) -> None:
        try:
            for message in self._messages.receive(data):
                self._take_message(message)
        except (OvsdbError, AttributeError, KeyError, IndexError, TypeError) as error:
            raise SessionLostError(f"the server does not speak OVSDB: {error}") from error

    def _take_message(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case None if message["id"] == self._lock_request:
                self.has_lock = bool((message["result"] or {}).get("locked"))
            case None:
                reply = {"error": None, "result": None, **message}
                # Applied here, since updates received with the reply are later than the reply.
                if message["id"] == self._monitor_request and reply["error"] is None:
                    self._update(reply["result"])
                self._replies[message["id"]] = reply
            case "update":
                self._update(message["params"][1])
            case "echo":
                self._unsent += _encoded(
                    {"result": message["params"], "error": None, "id": message["id"]}
                )
            case "locked" | "stolen" as method:
                if message["params"] == [self._lock]:
                    self.has_lock = method == "locked"

    def _update(self, tables: dict[str, dict[str, dict[str, Row]]]) -> None:
        """Apply the server's message about watched rows: their present state, or changes."""
        for table, changes in tables.items():
            rows = self.rows[table]
            for uuid, change in changes.items():
                if "new" in change:
                    rows[uuid] = change["new"]
                else:
                    rows.pop(uuid, None)

    def _dial(self, call: Call) -> None:
        scheme, _, rest = self._address.partition(":")
        if scheme == "unix":
            self._socket = socket.socket(socket.AF_UNIX)
            self._reach(rest, call)
            return
        try:
            host, port = parse_endpoint("", rest)
        except DeviceError as error:
            raise SessionLostError(str(error).removeprefix(": ")) from error
        with call.outside():
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self._reach_any(addresses, call)
        if scheme == "ssl":
            self._shake_hands(host, call)

    def _reach_any(self, addresses: Sequence[tuple[Any, ...]], call: Call) -> None:
        """Connect to the first address that answers, with a share of the time left for each."""
        for left, (family, kind, protocol, _, address) in zip(
            range(len(addresses), 0, -1), addresses, strict=True
        ):
            limit_ms = call.remaining_ms() / left
            try:
                self._socket = socket.socket(family, kind, protocol)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._reach(address, call, limit_ms)
            except (SessionLostError, OSError):
                self.close()
                if left == 1:
                    raise
            else:
                return

    def _reach(
        self, address: str | tuple[Any, ...], call: Call, limit_ms: float | None = None
    ) -> None:
        connection = self._connection()
        connection.setblocking(False)
        while error := connection.connect_ex(address):
            poll = select.poll()
            if error == errno.EAGAIN:  # of a Unix socket: many clients are about to connect
                call.wait(poll, _CROWDED_MS)
                continue
            if error == errno.EINPROGRESS:
                poll.register(connection, select.POLLOUT)
                if not call.wait(poll, limit_ms):
                    raise SessionLostError("no answer in time")
                error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise SessionLostError(os.strerror(error))
            return

    def _shake_hands(self, host: str, call: Call) -> None:
        """TLS, with a server whose certificate the machine's authorities have signed."""
        context = ssl.create_default_context()
        try:
            connection = self._socket = context.wrap_socket(
                self._connection(), server_hostname=host, do_handshake_on_connect=False
            )
            while True:
                try:
                    connection.do_handshake()
                except _AGAIN as wanted:
                    writes = isinstance(wanted, ssl.SSLWantWriteError)
                    poll = select.poll()
                    poll.register(connection, select.POLLOUT if writes else select.POLLIN)
                    call.wait(poll)
                else:
                    return
        except OSError as error:
            raise SessionLostError(str(error)) from error


def _encoded(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _said(error: object) -> str:
    """A server's error in words."""
    if isinstance(error, dict):
        return ": ".join(str(error[key]) for key in ("error", "details") if error.get(key))
    return str(error)
