"""Sockets to devices: TCP, and Unix sockets for programs on the same machine."""

from __future__ import annotations

import select
import socket
import time
from abc import ABC, abstractmethod
from typing import Final

from drivers.transports.permit import about_to_send
from drivers.transports.stream import ConnectionLostError, Deadline
from hydra.errors import DeviceError, DeviceUnavailable

UNIX_PREFIX: Final = "unix:"
_RECEIVE_BYTES: Final = 65536
_KEEPALIVE_IDLE_S: Final = 10
_KEEPALIVE_INTERVAL_S: Final = 5
_KEEPALIVE_PROBES: Final = 3
_AT_ONCE_S: Final = 0.001
"""Time for a connection if none is left: 0 would mean no wait at all."""


def parse_endpoint(device: str, address: str) -> tuple[str, int]:
    """``host:port`` or ``[IPv6]:port`` → (host, port)."""
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise DeviceError(device, f"address {address!r} is not host:port")
    if not 0 < int(port) < 65536:
        raise DeviceError(device, f"address {address!r} has a port outside 1..65535")
    try:
        host.encode("idna")
    except UnicodeError:  # otherwise the resolver raises UnicodeError, no OSError
        raise DeviceError(
            device,
            f"address {address!r} is no name: between dots are 1 to 63 characters; correct the "
            "address",
        ) from None
    return host, int(port)


def reach(endpoint: tuple[str, int], timeout_s: float) -> socket.socket:
    """A TCP connection to the first of a name's addresses that answers. Raises OSError.

    Each address has its share of the time left, so a silent address leaves time for the rest.
    """
    give_up_at = time.monotonic() + timeout_s
    addresses = socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM)
    for left, (family, kind, protocol, _, address) in zip(
        range(len(addresses), 0, -1), addresses, strict=True
    ):
        try:
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(max(_AT_ONCE_S, (give_up_at - time.monotonic()) / left))
                connection.connect(address)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                connection.close()
                raise
        except OSError:  # also if this machine lacks such addresses: IPv6 may be off
            if left == 1:
                raise
        else:
            return connection
    raise OSError(f"the name {endpoint[0]} has no address")


class SocketStream(ABC):
    """A :class:`~drivers.transports.stream.Stream` over a stream socket."""

    def __init__(self, device: str, address: str) -> None:
        self._device = device
        self._address = address
        self._socket: socket.socket | None = None

    @abstractmethod
    def _dial(self, timeout_s: float) -> socket.socket:
        """A connected socket. Raises OSError; DeviceError for an invalid address."""

    @property
    def address(self) -> str:
        return self._address

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def connect(self, deadline: Deadline) -> None:
        if self._socket is not None:
            return
        try:
            self._socket = self._dial(deadline.remaining())
        except OSError as error:
            raise DeviceUnavailable(
                self._device, f"can't connect to {self._address}: {deadline.reason(error)}"
            ) from error
        self._socket.setblocking(False)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, data: bytes, deadline: Deadline) -> None:
        connection = self._connection()
        left = memoryview(data)
        try:
            while left:
                about_to_send(connection)
                try:
                    left = left[connection.send(left) :]
                except BlockingIOError:
                    _wait(connection, select.POLLOUT, deadline)
        except OSError as error:
            self.close()
            raise ConnectionLostError(deadline.reason(error)) from error

    def receive(self, deadline: Deadline) -> bytes:
        connection = self._connection()
        try:
            _wait(connection, select.POLLIN, deadline)
            data = connection.recv(_RECEIVE_BYTES)
        except OSError as error:
            self.close()
            raise ConnectionLostError(deadline.reason(error)) from error
        return self._not_empty(data)

    def waiting(self) -> bytes:
        connection = self._connection()
        try:
            data = connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            self.close()
            raise ConnectionLostError(error.strerror or str(error)) from error
        return self._not_empty(data)

    def _connection(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLostError("there is no connection")
        return self._socket

    def _not_empty(self, data: bytes) -> bytes:
        if not data:
            self.close()
            raise ConnectionLostError("the device closed the connection")
        return data


def _wait(connection: socket.socket, event: int, deadline: Deadline) -> None:
    """Wait for ``event``. Raises TimeoutError.

    The wait is a single system call. A socket with a time-out of its own makes two for each read or
    write, and threads of other devices wait for the interpreter after each.
    """
    poll = select.poll()
    poll.register(connection, event)
    if not poll.poll(deadline.remaining() * 1000):
        raise TimeoutError


class TcpStream(SocketStream):
    """A stream to ``host:port``; notices if the peer vanishes."""

    def _dial(self, timeout_s: float) -> socket.socket:
        connection = reach(parse_endpoint(self._device, self._address), timeout_s)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S),
            (socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S),
            (socket.TCP_KEEPCNT, _KEEPALIVE_PROBES),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        return connection


class UnixStream(SocketStream):
    """A stream to ``unix:/path``."""

    def _dial(self, timeout_s: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout_s)
        try:
            connection.connect(self._address.removeprefix(UNIX_PREFIX))
        except OSError:
            connection.close()
            raise
        return connection
