"""Bytes waiting in the TCP sockets of a server, from the kernel's sock_diag(7).

Messages are read from their bytes: pyroute2 can parse the messages, but makes an object of every
socket and takes forty times as long, and a busy server has thousands of sockets
(docs/benchmarks.md).
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hydra.demand.backlog import ConnectionKey, Sending, Waiting
from hydra.errors import HydraError

LOG: Final = logging.getLogger("hydra.agent")
_SOCK_DIAG: Final = 4
"""Number of the netlink protocol family."""
_BY_FAMILY: Final = 20
_REQUEST_DUMP: Final = 0x301
_ERROR: Final = 2
_DONE: Final = 3
_ESTABLISHED, _FIN_WAIT1, _CLOSE_WAIT, _LAST_ACK, _LISTEN, _CLOSING = 1, 4, 8, 9, 10, 11
_SENDING: Final = sum(
    1 << state for state in (_ESTABLISHED, _FIN_WAIT1, _CLOSE_WAIT, _LAST_ACK, _CLOSING)
)
"""States in which bytes may wait to be sent, or to be acknowledged."""
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI48x")
"""inet_diag_req_v2: family, protocol, extensions, states, and a wildcard socket id."""
_MPTCP: Final = 262
_RAW: Final = 255
"""Protocol of a request whose attribute names the protocol. A kernel without support for the
attribute (before Linux 5.9) lists raw sockets, without MPTCP information.
"""
_REQUEST_PROTOCOL: Final = struct.Struct("=HHI")
_REQUEST_PROTOCOL_TYPE: Final = 3
_WAITING_AT: Final = _HEADER.size + 60
"""inet_diag_msg: 4 bytes, a socket id of 48, expires, rqueue, and then wqueue."""
_PORTS_AT: Final = _HEADER.size + 4
_DESTINATION_AT: Final = _HEADER.size + 24
_ATTRIBUTES_AT: Final = _HEADER.size + 72
_WAITING: Final = struct.Struct("=I")
_PORTS: Final = struct.Struct("!HH")
_ATTRIBUTE: Final = struct.Struct("=HH")
_INFO: Final = 2
"""Attribute with tcp_info or mptcp_info; as an extension, also has ULP data sent."""
_ASK_FOR_INFO: Final = 1 << (_INFO - 1)
_ACKNOWLEDGED_AT: Final = 120
"""Offset in tcp_info."""
_COUNTER: Final = struct.Struct("=Q")
_MPTCP_INFO: Final = struct.Struct("=8xIIQQ")
"""mptcp_info: flags, token, number of the next byte written, number of the first unacknowledged."""
_MPTCP_FALLBACK: Final = 1
"""Flag: the other end has no MPTCP, so that the only subflow is an ordinary TCP connection."""
_MPTCP_ACKNOWLEDGED_AT: Final = 72
"""Offset in mptcp_info, since Linux 6.5."""
_ULP: Final = 19
"""Attribute of a TCP socket owned by an upper layer, such as a subflow of MPTCP."""
_ULP_MPTCP: Final = 3
_SUBFLOW_TOKEN: Final = 2
"""The token of the MPTCP socket that owns a subflow."""
_TYPE_MASK: Final = 0x3FFF
_NUMBER: Final = struct.Struct("=I")
_ERRNO: Final = struct.Struct("=i")
_MPTCP_ENABLED: Final = Path("/proc/sys/net/mptcp/enabled")
_RECEIVE_BYTES: Final = 1 << 18
_ADDRESS_BYTES: Final = {socket.AF_INET: 4, socket.AF_INET6: 16}


class SocketsUnreadable(HydraError):
    """The kernel does not list sockets."""


class _Stream(NamedTuple):
    """A TCP or MPTCP connection of this host, as the kernel describes it."""

    key: ConnectionKey
    waiting: int
    sent: int
    """Acknowledged bytes; 0 if not requested, or not supported by the kernel."""


class SocketReader:
    """Reads the sockets of the network namespace in which the reader was made; a context
    manager.
    """

    def __init__(self) -> None:
        """Raises SocketsUnreadable if the kernel gives no netlink socket."""
        self._sequence = 0
        self._has_mptcp = True
        """False once the kernel has refused to list MPTCP sockets."""
        try:
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
        except OSError as error:
            raise _unreadable(error) from error

    def __enter__(self) -> SocketReader:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._netlink.close()

    def waiting(self) -> dict[bytes, Waiting]:
        """Waiting bytes, by destination address (4 or 16 bytes). Raises SocketsUnreadable."""
        octets: Counter[bytes] = Counter()
        connections: Counter[bytes] = Counter()
        for stream in self._streams(0):
            octets[stream.key.address] += stream.waiting
            connections[stream.key.address] += 1
        return {to: Waiting(octets[to], connections[to]) for to in octets}

    def sending(self) -> dict[ConnectionKey, Sending]:
        """All connections with waiting bytes. Raises SocketsUnreadable."""
        return {
            stream.key: Sending(stream.waiting, stream.sent)
            for stream in self._streams(_ASK_FOR_INFO)
        }

    def listening(self) -> list[int]:
        """Ports on which TCP sockets accept connections, sorted. Raises SocketsUnreadable."""
        ports = {
            int(_PORTS.unpack_from(message, _PORTS_AT)[0])
            for family in _ADDRESS_BYTES
            for message in self._dump(_request(family, socket.IPPROTO_TCP, 0, 1 << _LISTEN))
        }
        return sorted(ports)

    def _streams(self, extensions: int) -> Iterator[_Stream]:
        """All connections with waiting bytes: each MPTCP connection once, without its subflows.

        Raises SocketsUnreadable.
        """
        tokens: set[int] = set()
        if self._has_mptcp:
            yield from self._mptcp(tokens)
        if tokens:
            extensions |= _ASK_FOR_INFO  # tells which TCP sockets are subflows
        for family, length in _ADDRESS_BYTES.items():
            for message in self._dump(_request(family, socket.IPPROTO_TCP, extensions, _SENDING)):
                (waiting,) = _WAITING.unpack_from(message, _WAITING_AT)
                if waiting and (not tokens or _subflow_token(message) not in tokens):
                    yield _Stream(_key(message, length), waiting, _acknowledged(message))

    def _mptcp(self, tokens: set[int]) -> Iterator[_Stream]:
        """MPTCP connections with waiting bytes; adds the tokens of all MPTCP connections.

        The kernel's own count of waiting bytes is 0 for MPTCP (seen with Linux 6.18), so the bytes
        are counted by sequence numbers. Connections that fell back to TCP are left to TCP.
        """
        for family, length in _ADDRESS_BYTES.items():
            try:
                messages = list(self._dump(_request(family, _MPTCP, _ASK_FOR_INFO, _SENDING)))
            except SocketsUnreadable as error:
                if _errno(error) != errno.ENOENT:
                    raise
                self._has_mptcp = False
                if _MPTCP_ENABLED.exists():
                    LOG.warning(
                        "the kernel has MPTCP and does not list MPTCP sockets: data waiting there "
                        "is not reported; load the kernel's module mptcp_diag, and start the agent "
                        "anew"
                    )
                return
            for message in messages:
                info = _attribute(message, _ATTRIBUTES_AT, _INFO)
                if len(info) < _MPTCP_INFO.size:
                    continue
                flags, token, written, unacknowledged = _MPTCP_INFO.unpack_from(info)
                if flags & _MPTCP_FALLBACK:
                    continue
                tokens.add(token)
                waiting = (written - unacknowledged) % (1 << 64)
                if waiting:
                    yield _Stream(
                        _key(message, length), waiting, _counter(info, _MPTCP_ACKNOWLEDGED_AT)
                    )

    def _dump(self, body: bytes) -> Iterator[bytes]:
        """Messages about all sockets that match a request. Raises SocketsUnreadable."""
        try:
            yield from self._exchange(body)
        except OSError as error:
            raise _unreadable(error) from error

    def _exchange(self, body: bytes) -> Iterator[bytes]:
        self._sequence += 1
        size = _HEADER.size + len(body)
        header = _HEADER.pack(size, _BY_FAMILY, _REQUEST_DUMP, self._sequence, 0)
        self._netlink.send(header + body)
        while True:
            data = self._netlink.recv(_RECEIVE_BYTES)
            at = 0
            while at < len(data):
                length, kind, _flags, sequence, _port = _HEADER.unpack_from(data, at)
                if sequence == self._sequence:
                    if kind in {_DONE, _ERROR}:
                        # A dump refused by the kernel ends with the error in _DONE.
                        (code,) = _ERRNO.unpack_from(data, at + _HEADER.size)
                        if code < 0:
                            raise OSError(-code, os.strerror(-code))
                        return
                    yield data[at : at + length]
                at += (length + 3) & ~3


def _request(family: int, protocol: int, extensions: int, states: int) -> bytes:
    """Body of a request for all sockets of a protocol, also of a protocol above 255."""
    if protocol <= _RAW:
        return _REQUEST.pack(family, protocol, extensions, states)
    attribute = _REQUEST_PROTOCOL.pack(_REQUEST_PROTOCOL.size, _REQUEST_PROTOCOL_TYPE, protocol)
    return _REQUEST.pack(family, _RAW, extensions, states) + attribute


def _key(message: bytes, address_bytes: int) -> ConnectionKey:
    address = message[_DESTINATION_AT : _DESTINATION_AT + address_bytes]
    return ConnectionKey(address, *_PORTS.unpack_from(message, _PORTS_AT))


def _attribute(data: bytes, at: int, wanted: int) -> bytes:
    """Payload of the first attribute of a type from ``at`` on; empty if there is none."""
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if kind & _TYPE_MASK == wanted:
            return data[at + _ATTRIBUTE.size : at + length]
        at += max((length + 3) & ~3, _ATTRIBUTE.size)
    return b""


def _counter(info: bytes, at: int) -> int:
    """A counter of 64 bits; 0 from a kernel whose structure ends before."""
    return int(_COUNTER.unpack_from(info, at)[0]) if len(info) >= at + _COUNTER.size else 0


def _acknowledged(message: bytes) -> int:
    """Number of bytes acknowledged by the other end; 0 if the kernel does not say."""
    return _counter(_attribute(message, _ATTRIBUTES_AT, _INFO), _ACKNOWLEDGED_AT)


def _subflow_token(message: bytes) -> int | None:
    """Token of the MPTCP connection of a subflow; None if the TCP socket is no subflow."""
    ulp = _attribute(message, _ATTRIBUTES_AT, _ULP)
    token = _attribute(_attribute(ulp, 0, _ULP_MPTCP), 0, _SUBFLOW_TOKEN)
    return int(_NUMBER.unpack_from(token)[0]) if len(token) >= _NUMBER.size else None


def _errno(error: SocketsUnreadable) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def _unreadable(error: OSError) -> SocketsUnreadable:
    remedy = (
        "load the kernel's modules tcp_diag and inet_diag"
        if error.errno in {errno.ENOENT, errno.EPROTONOSUPPORT}
        else "the agent needs Linux"
    )
    return SocketsUnreadable(f"the kernel does not list sockets ({error.strerror}): {remedy}")
