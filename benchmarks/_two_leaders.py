"""Whether a switch took writes of two controllers: judged by their connections, as captured.

A reader of its own, which shares no code with the controller. Roles are those that a switch has
told in its answers: a connection is its master's from the reply to a role request, until another
one has the reply to a request with a later generation. A write that is sent on any other connection
has to be refused. Writes are flow-mods, group-mods, meter-mods, port-mods, table-mods, commits of
bundles, and requests for mastership with a generation of the past. A switch refuses a slave's by
itself, and takes an equal's: so connections are counted as well that were told of ports, and lived
for :data:`_ROLE_S` after that, without being a slave's or a master's, where another controller was
the switch's master.

Layouts: OpenFlow Switch Specification 1.3.5, sections 7.1 to 7.3; bundles: EXT-230, and for later
versions 1.4.0, section 7.3.9. Segments may come twice and in any order. The time of a message is
when its last byte reached the other side's socket: what a controller sends after a switch's answer
to another one is read by the switch after that answer.
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
"""The same before OpenFlow 1.4."""
_COMMIT: Final = 4
_WRITES: Final = {
    14: "a flow-mod",
    15: "a group-mod",
    16: "a port-mod",
    17: "a table-mod",
    29: "a meter-mod",
}
_REPLIES: Final = {2: 3, 5: 6, 7: 8, 18: 19, 20: 21, 22: 23, _ROLE_REQUEST: _ROLE_REPLY, 26: 27}
"""Types of the replies to what asks for one, by its type; bundles are beside."""
_ETHERNET: Final = 14
_IPV4: Final = b"\x08\x00"
_TCP: Final = 6
_SYN, _ACK = 0x02, 0x10
_HALF: Final = 1 << 31
_SEQUENCE: Final = 1 << 32
_GENERATION: Final = 1 << 64


def expression(ports: Iterable[int]) -> str:
    """tcpdump's, for what the judge reads of connections to these ports of controllers."""
    ours = " or ".join(f"tcp port {port}" for port in ports)
    holds = "ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2) != 0"
    return f"({ours}) and (({holds}) or tcp[tcpflags] & tcp-syn != 0)"


@dataclass(slots=True, eq=False)
class _Write:
    name: str
    data: bytes
    number: int
    """Place among the messages of its connection."""
    by_master: bool
    """True if it was sent as the switch's master."""
    claim: _Write | None
    """The request for mastership that was under way then."""
    generation: int | None
    """Of a request for mastership; None for others."""
    has_reply: bool
    """True if the switch confirms this very message."""
    won: bool = False
    """True for a request for mastership after which its connection was the master's."""


class _Stream:
    """One direction of a connection: segments in, whole messages out."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._ahead: dict[int, bytes] = {}
        self._buffer = bytearray()
        self.is_lost = False
        """True if bytes are no OpenFlow, or the beginning is missing."""

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
        """Bytes from ``wanted`` on, out of what came ahead; what is older is thrown away."""
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
    """Writes of which it is not known yet what came of them, in order."""
    asked: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Places of messages that get an answer, by its type, what it says of a bundle, and its xid."""
    claim: _Write | None = None
    described_s: float | None = None
    """When the switch first told of its ports: from then on the controller knows it."""
    has_role: bool = False
    """True once it has told that it has this connection as a slave's or its master's."""
    stands_aside: bool = False
    """True if the controller has asked to be a slave, and for no mastership since."""
    was_slave: bool = False
    last_s: float = 0.0
    """When something was last said."""

    @property
    def is_master(self) -> bool:
        return self.switch is not None and self.switch.master is self


@dataclass(slots=True, eq=False)
class _Switch:
    datapath: int
    master: _Connection | None = None
    led_by: str | None = None
    """The controller that was its master last."""
    generation: int = 0


@dataclass(slots=True)
class Verdict:
    """What a conversation of controllers and switches came to."""

    switches: int = 0
    by_masters: int = 0
    """Writes that a switch took of its master."""
    taken_over: int = 0
    """Times that a switch got another controller as its master."""
    accepted: list[str] = field(default_factory=list)
    """Writes that a switch took of another one, in words."""
    refused: int = 0
    """Writes of others that a switch refused."""
    unanswered: int = 0
    """Writes of others before the end of their connection, of which the switch said nothing."""
    unread: int = 0
    """Connections that were captured in part."""
    slaves: int = 0
    """Connections that were a slave's at some time."""
    equals: list[str] = field(default_factory=list)
    """Connections that were neither a slave's nor a master's in time, in words."""
    longest_equal_s: float = 0.0
    """Longest time from a switch's ports to its first role."""


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
        """Judge the time in which a connection had no role, where another controller led."""
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
        # A switch answers in order: it has done what came before, and said so if it did not.
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
        """``quoted``: the beginning of the message, 64 bytes of it at least."""
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
        """True for a write that the switch had to refuse, by what it has answered before."""
        if write.generation is not None or write.has_reply:
            return not connection.is_master
        return not write.by_master and not (write.claim is not None and write.claim.won)


def _bundle_control(kind: int, message: bytes) -> int | None:
    """What is asked or said of a bundle; None for other messages."""
    body = message[_HEADER.size :]
    if kind == _EXPERIMENTER and body.startswith(_ONF_BUNDLE_CONTROL):
        body = body[len(_ONF_BUNDLE_CONTROL) :]
    elif kind != _BUNDLE_CONTROL:
        return None
    return int.from_bytes(body[4:6], "big")


def judged(frames: Iterable[Frame], controllers: Mapping[int, str]) -> Verdict:
    """Judge what was captured of a loopback, from before the first connection on.

    ``controllers``: their names, by the TCP ports at which they wait for switches.
    """
    judge = _Judge(controllers)
    for frame in frames:
        judge.take(frame)
    return judge.verdict()
