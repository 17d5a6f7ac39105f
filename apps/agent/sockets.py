"""Bytes that wait in the TCP sockets of a server, from the kernel's sock_diag(7).

Messages are read from their bytes: pyroute2, which knows them too, makes an object of every socket
and takes forty times as long, and a busy server has thousands of sockets (docs/benchmarks.md).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Final

from hydra.demand.backlog import ConnectionKey, Sending, Waiting
from hydra.errors import HydraError

_SOCK_DIAG: Final = 4
"""Number of the netlink protocol family."""
_BY_FAMILY: Final = 20
_REQUEST_DUMP: Final = 0x301
_ERROR: Final = 2
_DONE: Final = 3
_ESTABLISHED, _FIN_WAIT1, _CLOSE_WAIT, _LAST_ACK, _CLOSING = 1, 4, 8, 9, 11
_SENDING: Final = sum(
    1 << state for state in (_ESTABLISHED, _FIN_WAIT1, _CLOSE_WAIT, _LAST_ACK, _CLOSING)
)
"""States in which bytes may wait to be sent, or to be acknowledged."""
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI48x")
"""inet_diag_req_v2: family, protocol, extensions, states, and a socket id that matches any."""
_WAITING_AT: Final = _HEADER.size + 60
"""inet_diag_msg: 4 bytes, a socket id of 48, expires, rqueue, and then wqueue."""
_PORTS_AT: Final = _HEADER.size + 4
_DESTINATION_AT: Final = _HEADER.size + 24
_ATTRIBUTES_AT: Final = _HEADER.size + 72
_WAITING: Final = struct.Struct("=I")
_PORTS: Final = struct.Struct("!HH")
_ATTRIBUTE: Final = struct.Struct("=HH")
_TCP_INFO: Final = 2
_ASK_FOR_TCP_INFO: Final = 1 << (_TCP_INFO - 1)
_ACKNOWLEDGED_AT: Final = 120
"""Offset in tcp_info."""
_ACKNOWLEDGED: Final = struct.Struct("=Q")
_ERRNO: Final = struct.Struct("=i")
_RECEIVE_BYTES: Final = 1 << 18
_ADDRESS_BYTES: Final = {socket.AF_INET: 4, socket.AF_INET6: 16}


class SocketsUnreadable(HydraError):
    """The kernel does not tell of sockets."""


class SocketReader:
    """Reads the sockets of the network namespace that it was made in; a context manager."""

    def __init__(self) -> None:
        """Raises SocketsUnreadable if the kernel gives no netlink socket."""
        self._sequence = 0
        try:
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
        except OSError as error:
            raise _unreadable(error) from error

    def __enter__(self) -> SocketReader:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._netlink.close()

    def waiting(self) -> dict[bytes, Waiting]:
        """Bytes that wait, by destination address (4 or 16 bytes). Raises SocketsUnreadable."""
        octets: Counter[bytes] = Counter()
        connections: Counter[bytes] = Counter()
        for message, address in self._messages(0):
            (waiting,) = _WAITING.unpack_from(message, _WAITING_AT)
            if waiting:
                octets[message[address]] += waiting
                connections[message[address]] += 1
        return {to: Waiting(octets[to], connections[to]) for to in octets}

    def sending(self) -> dict[ConnectionKey, Sending]:
        """All connections with waiting bytes. Raises SocketsUnreadable."""
        found: dict[ConnectionKey, Sending] = {}
        for message, address in self._messages(_ASK_FOR_TCP_INFO):
            (waiting,) = _WAITING.unpack_from(message, _WAITING_AT)
            if waiting:
                key = ConnectionKey(message[address], *_PORTS.unpack_from(message, _PORTS_AT))
                found[key] = Sending(waiting, _acknowledged(message))
        return found

    def _messages(self, extensions: int) -> Iterator[tuple[bytes, slice]]:
        """(message, place of the destination) of every socket. Raises SocketsUnreadable."""
        for family, length in _ADDRESS_BYTES.items():
            address = slice(_DESTINATION_AT, _DESTINATION_AT + length)
            try:
                for message in self._dump(family, extensions):
                    yield message, address
            except OSError as error:
                raise _unreadable(error) from error

    def _dump(self, family: int, extensions: int) -> Iterator[bytes]:
        self._sequence += 1
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, extensions, _SENDING)
        size = _HEADER.size + len(body)
        header = _HEADER.pack(size, _BY_FAMILY, _REQUEST_DUMP, self._sequence, 0)
        self._netlink.send(header + body)
        while True:
            data = self._netlink.recv(_RECEIVE_BYTES)
            at = 0
            while at < len(data):
                length, kind, _flags, sequence, _port = _HEADER.unpack_from(data, at)
                if sequence == self._sequence:
                    if kind == _DONE:
                        return
                    if kind == _ERROR:
                        (code,) = _ERRNO.unpack_from(data, at + _HEADER.size)
                        raise OSError(-code, os.strerror(-code))
                    yield data[at : at + length]
                at += (length + 3) & ~3


def _acknowledged(message: bytes) -> int:
    """Number of bytes that the other end has acknowledged; 0 if the kernel does not say."""
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == _TCP_INFO and length >= _ATTRIBUTE.size + _ACKNOWLEDGED_AT + 8:
            place = at + _ATTRIBUTE.size + _ACKNOWLEDGED_AT
            return int(_ACKNOWLEDGED.unpack_from(message, place)[0])
        at += max((length + 3) & ~3, _ATTRIBUTE.size)
    return 0


def _unreadable(error: OSError) -> SocketsUnreadable:
    remedy = (
        "load the kernel's modules tcp_diag and inet_diag"
        if error.errno in {errno.ENOENT, errno.EPROTONOSUPPORT}
        else "the agent needs Linux"
    )
    return SocketsUnreadable(f"the kernel does not list sockets ({error.strerror}): {remedy}")
