"""Finds writes of two controllers that a switch accepted, from captured connections.

An independent parser, without code of the controller. Roles follow from the switches' replies: a
connection is master from the reply to its role request until another connection gets the reply to a
request with a later generation. A switch has to refuse a write on any other connection. Writes are
flow-mods, group-mods, meter-mods, port-mods, table-mods, commits of bundles, and requests for
mastership with an outdated generation. A switch itself refuses writes of a slave, and accepts
writes of an equal. So the parser also counts connections that had a port description, and lived for
:data:`_ROLE_S` afterwards as neither slave nor master, while another controller was the switch's
master.

Layouts: OpenFlow Switch Specification 1.3.5, sections 7.1 to 7.3; bundles: EXT-230, and for later
versions 1.4.0, section 7.3.9. Segments may be duplicated and in any order. The time of a message is
the arrival of its last byte at the receiver's socket: a message that a controller sends after a
switch's reply to another controller is read by the switch after that reply.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mininet_scenarios.testbed.capture import Frame

_LEAST_VERSION: Final = 4
_HEADER: Final = struct.Struct("!BBHI")
_ERROR, _EXPERIMENTER, _FEATURES_REPLY, _MULTIPART_REPLY = 1, 4, 6, 19
_ROLE_REQUEST, _ROLE_REPLY = 24, 25
_MASTER, _SLAVE = 2, 3
_ROLE_S: Final = 1.0
_BUNDLE_CONTROL: Final = 33
_ONF_BUNDLE_CONTROL: Final = struct.pack("!II", 0x4F4E4600, 2300)
"""The experimenter message of bundles before OpenFlow 1.4."""
_COMMIT: Final = 4
_WRITES: Final = {
    14: "a flow-mod",
    15: "a group-mod",
    16: "a port-mod",
    17: "a table-mod",
    29: "a meter-mod",
}
_REPLIES: Final = {2: 3, 5: 6, 7: 8, 18: 19, 20: 21, 22: 23, _ROLE_REQUEST: _ROLE_REPLY, 26: 27}
"""Reply types by the type of the request, except bundles."""
_ETHERNET: Final = 14
_IPV4: Final = b"\x08\x00"
_TCP: Final = 6
_SYN, _ACK = 0x02, 0x10
_HALF: Final = 1 << 31
_SEQUENCE: Final = 1 << 32
_GENERATION: Final = 1 << 64


def expression(ports: Iterable[int]) -> str:
    """Capture filter of tcpdump for the connections to these ports of controllers."""
    ours = " or ".join(f"tcp port {port}" for port in ports)
    holds = "ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2) != 0"
    return f"({ours}) and (({holds}) or tcp[tcpflags] & tcp-syn != 0)"


@dataclass(slots=True, eq=False)
class _Write:
    name: str
    data: bytes
    number: int
    """Position among the messages of the connection."""
    by_master: bool
    """True if the sender was the switch's master."""
    claim: _Write | None
    """The pending request for mastership at the time of the write."""
    generation: int | None
    """Generation of a request for mastership; None for other messages."""
    has_reply: bool
    """True if the switch confirms this message individually."""
    won: bool = False
    """True for a request for mastership that succeeded."""


class _Stream:
    """One direction of a connection: takes segments, returns whole messages."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._ahead: dict[int, bytes] = {}
        self._buffer = bytearray()
        self.is_lost = False
        """True if the bytes are not OpenFlow, or the start of the stream is missing."""

    @property
    def unread(self) -> bool:
        return self.is_lost or bool(self._ahead)

    def begin(self, sequence: int) -> None:
        self._next = (sequence + 1) % _SEQUENCE

    def take(self, sequence: int, payload: bytes) -> Iterator[bytes]:
        if self._next is None or self.is_lost:
            self.is_lost = True
            return
        self._ahead[sequence] = max(self._ahead.get(sequence, b""), payload, key=len)
        while (found := self._following(self._next)) is not None:
            self._buffer += found
            self._next = (self._next + len(found)) % _SEQUENCE
        yield from self._messages()

    def _following(self, wanted: int) -> bytes | None:
        """Bytes from ``wanted`` on among the buffered segments; drops older bytes."""
        for sequence in list(self._ahead):
            known = (wanted - sequence) % _SEQUENCE
            if known < _HALF:
                payload = self._ahead.pop(sequence)[known:]
                if payload:
                    return payload
        return None

    def _messages(self) -> Iterator[bytes]:
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            version, kind, length, _ = _HEADER.unpack_from(self._buffer, start)
            if length < _HEADER.size or (version < _LEAST_VERSION and kind != 0):
                self.is_lost = True
                break
            if len(self._buffer) - start < length:
                break
            yield bytes(self._buffer[start : start + length])
            start += length
        del self._buffer[:start]


@dataclass(slots=True, eq=False)
class _Connection:
    controller: str
    to_switch: _Stream = field(default_factory=_Stream)
    to_controller: _Stream = field(default_factory=_Stream)
    switch: _Switch | None = None
    sent: int = 0
    pending: list[_Write] = field(default_factory=list)
    """Writes without a known outcome yet, in order."""
    asked: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Positions of messages with expected replies, by reply type, bundle detail, and xid."""
    claim: _Write | None = None
    described_s: float | None = None
    """Time of the switch's first port description: from then on the controller knows the switch."""
    has_role: bool = False
    """True once a reply of the switch has shown the connection as a slave or a master."""
    stands_aside: bool = False
    """True if the controller has asked to be a slave, and has not asked for mastership since."""
    was_slave: bool = False
    last_s: float = 0.0
    """Time of the last message."""

    @property
    def is_master(self) -> bool:
        return self.switch is not None and self.switch.master is self


@dataclass(slots=True, eq=False)
class _Switch:
    datapath: int
    master: _Connection | None = None
    led_by: str | None = None
    """The last controller that was the switch's master."""
    generation: int = 0


@dataclass(slots=True)
class Verdict:
    """Result of a captured conversation between controllers and switches."""

    switches: int = 0
    by_masters: int = 0
    """Number of writes that a switch accepted from its master."""
    taken_over: int = 0
    """Number of changes of a switch's master to another controller."""
    accepted: list[str] = field(default_factory=list)
    """Writes that a switch accepted from a controller that was not its master, in words."""
    refused: int = 0
    """Number of refused writes of such controllers."""
    unanswered: int = 0
    """Number of such writes before the end of their connection, without a reply of the switch."""
    unread: int = 0
    """Number of partly captured connections."""
    slaves: int = 0
    """Number of connections that were a slave at some time."""
    equals: list[str] = field(default_factory=list)
    """Connections that became neither slave nor master in time, in words."""
    longest_equal_s: float = 0.0
    """Longest time from a switch's port description to its controller's first role."""


class _Judge:
    def __init__(self, controllers: Mapping[int, str]) -> None:
        self._controllers = controllers
        self._open: dict[tuple[int, int], _Connection] = {}
        self._switches: dict[int, _Switch] = {}
        self._verdict = Verdict()

    def verdict(self) -> Verdict:
        for connection in self._open.values():
            self._end(connection)
        self._open.clear()
        self._verdict.switches = len(self._switches)
        return self._verdict

    def take(self, frame: Frame) -> None:
        data = frame.data
        tcp = _ETHERNET + (data[_ETHERNET] & 15) * 4
        if data[12:14] != _IPV4 or data[23] != _TCP:
            return
        source, destination, sequence = struct.unpack_from("!HHI", data, tcp)
        flags = data[tcp + 13]
        end = _ETHERNET + (int.from_bytes(data[16:18], "big") or len(data))
        payload = data[tcp + (data[tcp + 12] >> 4) * 4 : end]
        to_controller = destination in self._controllers
        if not to_controller and source not in self._controllers:
            return
        place = (destination, source) if to_controller else (source, destination)
        if flags & _SYN and not flags & _ACK and place in self._open:
            self._end(self._open.pop(place))
        connection = self._open.setdefault(place, _Connection(self._controllers[place[0]]))
        stream = connection.to_controller if to_controller else connection.to_switch
        if flags & _SYN:
            stream.begin(sequence)
        if not payload:
            return
        connection.last_s = frame.time_s
        for message in stream.take(sequence, payload):
            if to_controller:
                self._answered(connection, message, frame.time_s)
            else:
                self._sent(connection, message)

    def _end(self, connection: _Connection) -> None:
        if connection.to_switch.unread or connection.to_controller.unread:
            self._verdict.unread += 1
        for write in connection.pending:
            self._verdict.unanswered += self._is_of_another(connection, write)
        self._judge_role(connection, connection.last_s)

    def _judge_role(self, connection: _Connection, now_s: float) -> None:
        """Judge the time of a connection without a role while another controller led."""
        switch, since_s = connection.switch, connection.described_s
        if switch is None or since_s is None or connection.has_role:
            return
        took_s = now_s - since_s
        if switch.led_by in {None, connection.controller}:
            return
        self._verdict.longest_equal_s = max(self._verdict.longest_equal_s, took_s)
        if took_s >= _ROLE_S:
            self._verdict.equals.append(
                f"switch {switch.datapath:#x} had {connection.controller} as an equal for "
                f"{took_s:.2f} s"
            )

    # -- what a controller sends ------------------------------------------------------------------

    def _sent(self, connection: _Connection, message: bytes) -> None:
        _, kind, _, xid = _HEADER.unpack_from(message)
        connection.sent += 1
        bundle = _bundle_control(kind, message)
        if bundle is not None:
            connection.asked[kind, bundle + 1, xid] = connection.sent
        elif kind in _REPLIES:
            connection.asked[_REPLIES[kind], 0, xid] = connection.sent
        generation = None
        if kind in _WRITES:
            name = _WRITES[kind]
        elif bundle == _COMMIT:
            name = "a commit"
        elif kind == _ROLE_REQUEST:
            role, generation = struct.unpack_from("!I4xQ", message, _HEADER.size)
            if role in {_MASTER, _SLAVE}:
                connection.stands_aside = role == _SLAVE
            if role != _MASTER:
                return
            name = f"a claim of generation {generation:#x}"
        else:
            return
        write = _Write(
            name,
            message,
            connection.sent,
            connection.is_master and not connection.stands_aside,
            connection.claim,
            generation,
            has_reply=kind not in _WRITES,
        )
        connection.pending.append(write)
        if generation is not None:
            connection.claim = write

    # -- what a switch answers --------------------------------------------------------------------

    def _answered(self, connection: _Connection, message: bytes, time_s: float) -> None:
        _, kind, _, xid = _HEADER.unpack_from(message)
        if kind == _ERROR:
            self._refused(connection, message[_HEADER.size + 4 :])
            return
        if kind == _FEATURES_REPLY:
            (datapath,) = struct.unpack_from("!Q", message, _HEADER.size)
            connection.switch = self._switches.setdefault(datapath, _Switch(datapath))
        if kind == _MULTIPART_REPLY and connection.described_s is None:
            connection.described_s = time_s
        if kind == _ROLE_REPLY:
            self._told_of_role(connection, int.from_bytes(message[8:12], "big"), time_s)
        bundle = _bundle_control(kind, message) or 0
        number = connection.asked.pop((kind, bundle, xid), None)
        if number is None:
            return
        # A switch answers in order: earlier messages without an error were carried out.
        while connection.pending and (
            connection.pending[0].number < number
            or (connection.pending[0].number == number and connection.pending[0].has_reply)
        ):
            self._accepted(connection, connection.pending.pop(0), time_s)

    def _told_of_role(self, connection: _Connection, role: int, time_s: float) -> None:
        if role in {_MASTER, _SLAVE}:
            self._judge_role(connection, time_s)
            connection.has_role = True
        if role == _SLAVE:
            self._verdict.slaves += not connection.was_slave
            connection.was_slave = True
            if connection.switch is not None and connection.is_master:
                connection.switch.master = None

    def _refused(self, connection: _Connection, quoted: bytes) -> None:
        """``quoted``: at least the first 64 bytes of the message."""
        for write in connection.pending:
            length = min(len(quoted), len(write.data))
            if length >= _HEADER.size and write.data[:length] == quoted[:length]:
                self._verdict.refused += self._is_of_another(connection, write)
                connection.pending.remove(write)
                if connection.claim is write:
                    connection.claim = None
                return

    def _accepted(self, connection: _Connection, write: _Write, time_s: float) -> None:
        switch = connection.switch
        if switch is None:
            self._verdict.accepted.append(
                f"{write.name} of {connection.controller}'s at a switch that has not said its name"
            )
            return
        if write.generation is not None:
            if connection.claim is write:
                connection.claim = None
            if self._becomes_master(connection, switch, write.generation):
                write.won = True
                return
        elif not self._is_of_another(connection, write):
            self._verdict.by_masters += 1
            return
        holder = "nobody" if switch.master is None else switch.master.controller
        moment = datetime.fromtimestamp(time_s)
        self._verdict.accepted.append(
            f"{moment:%H:%M:%S.%f}: switch {switch.datapath:#x}, whose master is {holder}, took "
            f"{write.name} of {connection.controller}'s"
        )

    def _becomes_master(self, connection: _Connection, switch: _Switch, generation: int) -> bool:
        before = switch.led_by
        ahead = (generation - switch.generation) % _GENERATION
        is_other = before is not None and before != connection.controller
        if before is not None and (ahead >= _GENERATION // 2 or (ahead == 0 and is_other)):
            return False
        switch.master, switch.led_by = connection, connection.controller
        switch.generation = generation
        self._verdict.taken_over += is_other
        return True

    def _is_of_another(self, connection: _Connection, write: _Write) -> bool:
        """True for a write that the switch had to refuse, judging by its earlier replies."""
        if write.generation is not None or write.has_reply:
            return not connection.is_master
        return not write.by_master and not (write.claim is not None and write.claim.won)


def _bundle_control(kind: int, message: bytes) -> int | None:
    """The request or reply about a bundle; None for other messages."""
    body = message[_HEADER.size :]
    if kind == _EXPERIMENTER and body.startswith(_ONF_BUNDLE_CONTROL):
        body = body[len(_ONF_BUNDLE_CONTROL) :]
    elif kind != _BUNDLE_CONTROL:
        return None
    return int.from_bytes(body[4:6], "big")


def judged(frames: Iterable[Frame], controllers: Mapping[int, str]) -> Verdict:
    """Judge a capture of loopback, which must begin before the first connection.

    ``controllers``: names of controllers, by the TCP ports on which they listen for switches.
    """
    judge = _Judge(controllers)
    for frame in frames:
        judge.take(frame)
    return judge.verdict()
