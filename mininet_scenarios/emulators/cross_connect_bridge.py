"""An Open vSwitch bridge whose only rules are cross-connects, over its local OpenFlow socket.

A dozen rules are set within a millisecond, which starting ``ovs-ofctl`` (10 ms and more on a busy
machine) does not allow; the switching time of an emulated mirror is 25 ms. Messages follow the
OpenFlow Switch Specification 1.3.5, section 7.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_VERSION: Final = 4
_HELLO, _ERROR, _ECHO_REQUEST, _ECHO_REPLY = 0, 1, 2, 3
_FLOW_MOD, _MULTIPART_REQUEST, _MULTIPART_REPLY = 14, 18, 19
_BARRIER_REQUEST, _BARRIER_REPLY = 20, 21
_ADD, _DELETE_STRICT = 0, 4
_MP_FLOW, _MP_PORT_DESC = 1, 13
_MORE: Final = 1
_ANY: Final = 0xFFFFFFFF
_ALL_TABLES: Final = 0xFF
_OXM_IN_PORT: Final = 0x80000004
_FIRST_RESERVED_PORT: Final = 0xFFFFFF00

_HEADER: Final = struct.Struct("!BBHI")
_FLOW_MOD_BODY: Final = struct.Struct("!QQBBHHHIIIHxx")
_MATCH: Final = struct.Struct("!HHIIxxxx")
_OUTPUT: Final = struct.Struct("!HHxxxxHHIHxxxxxx")
_FLOW_STATS: Final = struct.Struct("!HBxIIHHHHxxxxQQQ")
_PORT_DESC: Final = struct.Struct("!Ixxxx6sxx16sIIIIIIII")

_PRIORITY: Final = 10
_TIMEOUT_S: Final = 5.0


class BridgeError(Exception):
    """The bridge does not exist, refuses a rule, or does not answer."""


class CrossConnectBridge:
    """Rules of one bridge, which drops what no rule sends on (``fail_mode=secure``).

    Every call uses a connection of its own, so none goes stale.
    """

    def __init__(self, bridge: str) -> None:
        self._bridge = bridge
        run_dir = Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))
        self._path = run_dir / f"{bridge}.mgmt"

    def port_numbers(self) -> Mapping[str, int]:
        """OpenFlow port numbers by interface name."""
        with self._session() as session:
            ports = session.multipart(_MP_PORT_DESC, b"")
        numbers: dict[str, int] = {}
        for number, _mac, name, *_ in _PORT_DESC.iter_unpack(b"".join(ports)):
            if number < _FIRST_RESERVED_PORT:
                numbers[name.rstrip(b"\0").decode()] = number
        return numbers

    def remove(self, in_ports: Iterable[int]) -> None:
        """Remove the cross-connects of these ports, and return when the tables show it."""
        with self._session() as session:
            for in_port in in_ports:
                session.flow_mod(_DELETE_STRICT, _PRIORITY, in_port, None)
            session.barrier()

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Add cross-connects, (in port, out port) each."""
        with self._session() as session:
            for in_port, out_port in pairs:
                session.flow_mod(_ADD, _PRIORITY, in_port, out_port)
            session.barrier()

    def cross_connects(self) -> Mapping[int, int]:
        """Out port by in port. Raises BridgeError if the bridge has rules of another kind."""
        body = struct.pack("!BxxxIIxxxxQQHHxxxx", _ALL_TABLES, _ANY, _ANY, 0, 0, 1, 4)
        with self._session() as session:
            replies = session.multipart(_MP_FLOW, body)
        found: dict[int, int] = {}
        for priority, match, instructions in _flow_entries(b"".join(replies)):
            is_ours = priority == _PRIORITY and len(instructions) == _OUTPUT.size
            if not is_ours or match[:8] != _MATCH.pack(1, 12, _OXM_IN_PORT, 0)[:8]:
                raise BridgeError(
                    f"bridge {self._bridge} has rules that are no cross-connects; "
                    "set its fail_mode to secure and delete them"
                )
            (in_port,) = struct.unpack_from("!I", match, 8)
            found[in_port] = _OUTPUT.unpack(instructions)[4]
        return found

    @contextmanager
    def _session(self) -> Iterator[_Session]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT_S)
            try:
                connection.connect(str(self._path))
                yield _Session(self._bridge, connection)
            except OSError as error:
                raise BridgeError(f"bridge {self._bridge}: {self._path}: {error}") from error


class _Session:
    def __init__(self, bridge: str, connection: socket.socket) -> None:
        self._bridge = bridge
        self._connection = connection
        self._xids = itertools.count(1)
        self._send(_HELLO, b"")

    def flow_mod(self, command: int, priority: int, in_port: int, out_port: int | None) -> None:
        body = _FLOW_MOD_BODY.pack(0, 0, 0, command, 0, 0, priority, _ANY, _ANY, _ANY, 0)
        body += _MATCH.pack(1, 12, _OXM_IN_PORT, in_port)
        if out_port is not None:
            body += _OUTPUT.pack(4, _OUTPUT.size, 0, 16, out_port, 0)
        self._send(_FLOW_MOD, body)

    def barrier(self) -> None:
        """Raises BridgeError if anything sent before was refused."""
        xid = self._send(_BARRIER_REQUEST, b"")
        self._receive_until(_BARRIER_REPLY, xid)

    def multipart(self, kind: int, body: bytes) -> list[bytes]:
        xid = self._send(_MULTIPART_REQUEST, struct.pack("!HHxxxx", kind, 0) + body)
        parts: list[bytes] = []
        while True:
            reply = self._receive_until(_MULTIPART_REPLY, xid)
            parts.append(reply[8:])
            if not struct.unpack_from("!H", reply, 2)[0] & _MORE:
                return parts

    def _send(self, kind: int, body: bytes, xid: int | None = None) -> int:
        number = next(self._xids) if xid is None else xid
        self._connection.sendall(_HEADER.pack(_VERSION, kind, _HEADER.size + len(body), number))
        self._connection.sendall(body)
        return number

    def _receive_until(self, kind: int, xid: int) -> bytes:
        while True:
            _, got, length, got_xid = _HEADER.unpack(self._read(_HEADER.size))
            body = self._read(length - _HEADER.size)
            if got == _ERROR:
                reason = "type {} code {}".format(*struct.unpack_from("!HH", body))
                raise BridgeError(f"bridge {self._bridge} answers with an OpenFlow error, {reason}")
            if got == _ECHO_REQUEST:
                self._send(_ECHO_REPLY, body, got_xid)
            elif (got, got_xid) == (kind, xid):
                return body

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._connection.recv(count - len(data))
            if not chunk:
                raise BridgeError(f"bridge {self._bridge} closed its OpenFlow connection")
            data += chunk
        return bytes(data)


def _flow_entries(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(priority, match, instructions) of each entry of a flow statistics reply."""
    offset = 0
    while offset < len(data):
        fields = _FLOW_STATS.unpack_from(data, offset)
        length, priority = fields[0], fields[4]
        match_at = offset + _FLOW_STATS.size
        (match_length,) = struct.unpack_from("!H", data, match_at + 2)
        instructions_at = match_at + (match_length + 7) // 8 * 8
        yield (
            priority,
            data[match_at : match_at + match_length],
            data[instructions_at : offset + length],
        )
        offset += length
