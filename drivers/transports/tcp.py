"""Lines over TCP, for devices that answer one line to one query.

Blocking sockets in native threads: a slow device stalls its own driver and nothing else. Time-outs
cover a whole exchange, not a single ``recv``, so a device that drips bytes can't hold a caller.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError

_RECEIVE_BYTES: Final = 65536
_KEEPALIVE_IDLE_S: Final = 10
_KEEPALIVE_INTERVAL_S: Final = 5
_KEEPALIVE_PROBES: Final = 3


class LineDecoder(Protocol):
    """What a codec offers: bytes in, lines out."""

    def receive(self, data: bytes) -> None: ...

    def next_line(self) -> str | None: ...


class _ConnectionLostError(Exception):
    """The connection broke, timed out, or carried bytes that are not of the protocol."""


def parse_endpoint(device: str, address: str) -> tuple[str, int]:
    """``host:port`` or ``[IPv6]:port`` → (host, port)."""
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise DeviceError(device, f"address {address!r} is not host:port")
    if not 0 < int(port) < 65536:
        raise DeviceError(device, f"address {address!r} has a port outside 1..65535")
    return host, int(port)


class TcpLineTransport:
    """One connection to a device, opened on first use and again after every failure.

    ``decoder`` makes a fresh line decoder per connection; ``decode_error`` is what it raises for
    bytes outside its grammar. ``opening`` says what is sent before anything else on a new
    connection: each line after the device has said something, and before it says something more.
    Used by one thread at a time.
    """

    def __init__(
        self,
        device: str,
        address: str,
        *,
        decoder: Callable[[], LineDecoder],
        decode_error: type[Exception],
        timeout_s: float,
        opening: Callable[[], Sequence[bytes]] | None = None,
    ) -> None:
        self._device = device
        self._address = address
        self._opening = opening
        self._endpoint = parse_endpoint(device, address)
        self._new_decoder = decoder
        self._decode_error = decode_error
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._decoder = decoder()

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def open(self) -> None:
        """Connect, unless connected. Raises DeviceUnavailable."""
        self._connection(self._deadline())

    def close(self) -> None:
        """Drop the connection; safe to repeat."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def query(self, line: bytes) -> str:
        """Send a line that changes nothing and return its reply.

        Raises DeviceUnavailable if the device can't be reached or does not answer in time, and
        ProtocolError if it answers something outside its grammar.
        """
        try:
            return self._exchange(line)
        except _ConnectionLostError as error:
            raise DeviceUnavailable(self._device, f"{error} ({self._address})") from error

    def write(self, line: bytes) -> str:
        """Send a line that changes the device and return its reply.

        Raises DeviceUnavailable if nothing was sent, OutcomeUnknown if the reply got lost.
        """
        try:
            return self._exchange(line)
        except (_ConnectionLostError, ProtocolError) as error:
            raise OutcomeUnknown(
                self._device,
                f"a change was sent and its reply lost: {error} ({self._address}); "
                "read the device back",
            ) from error

    def _exchange(self, line: bytes) -> str:
        deadline = self._deadline()
        connection = self._connection(deadline)
        try:
            connection.settimeout(self._remaining(deadline))
            connection.sendall(line)
            return self._read_line(connection, deadline)
        except OSError as error:
            self.close()
            raise _ConnectionLostError(self._reason(error)) from error
        except self._decode_error as error:
            self.close()
            raise ProtocolError(self._device, str(error)) from error
        except _ConnectionLostError:
            self.close()
            raise

    def _read_line(self, connection: socket.socket, deadline: float) -> str:
        while (line := self._decoder.next_line()) is None:
            connection.settimeout(self._remaining(deadline))
            data = connection.recv(_RECEIVE_BYTES)
            if not data:
                raise _ConnectionLostError("the device closed the connection")
            self._decoder.receive(data)
        return line

    def _connection(self, deadline: float) -> socket.socket:
        if self._socket is not None and self._is_stale(self._socket):
            self.close()
        if self._socket is None:
            lines = None if self._opening is None else self._opening()
            self._socket = self._connect(deadline)
            self._decoder = self._new_decoder()
            if lines is not None:
                self._begin(self._socket, lines, deadline)
        return self._socket

    def _begin(self, connection: socket.socket, lines: Sequence[bytes], deadline: float) -> None:
        """Hold the dialogue that a new connection begins with. Raises DeviceUnavailable."""
        try:
            self._read_line(connection, deadline)
            for line in lines:
                connection.settimeout(self._remaining(deadline))
                connection.sendall(line)
                self._read_line(connection, deadline)
        except (OSError, _ConnectionLostError, self._decode_error) as error:
            self.close()
            reason = self._reason(error) if isinstance(error, OSError) else str(error)
            raise DeviceUnavailable(
                self._device, f"no session with {self._address}: {reason}"
            ) from error

    def _connect(self, deadline: float) -> socket.socket:
        try:
            connection = socket.create_connection(self._endpoint, timeout=self._remaining(deadline))
        except OSError as error:
            raise DeviceUnavailable(
                self._device, f"can't connect to {self._address}: {self._reason(error)}"
            ) from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S),
            (socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S),
            (socket.TCP_KEEPCNT, _KEEPALIVE_PROBES),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        return connection

    def _is_stale(self, connection: socket.socket) -> bool:
        """Whether the peer has gone, or left bytes that would be taken for the next reply."""
        try:
            if self._decoder.next_line() is not None:
                return True
            connection.settimeout(0)
            # A reply ended by CR LF may leave its LF behind.
            return connection.recv(_RECEIVE_BYTES) != b"\n"
        except BlockingIOError:
            return False
        except (OSError, self._decode_error):
            return True

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_s

    def _remaining(self, deadline: float) -> float:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining

    def _reason(self, error: OSError) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        return error.strerror or str(error)
