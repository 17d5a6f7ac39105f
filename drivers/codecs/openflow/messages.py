"""OpenFlow 1.3 messages: bytes in, messages out, and the few messages that every user sends.

Layouts: OpenFlow Switch Specification 1.3.5, sections 7.1 to 7.5; bundles: ONF extension EXT-230.
Messages for vswitches' controllers alone are in :mod:`drivers.codecs.openflow.rules`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

VERSION: Final = 4
HEADER: Final = struct.Struct("!BBHI")
"""Version, type, length, xid."""

TYPE_HELLO: Final = 0
TYPE_ERROR: Final = 1
TYPE_ECHO_REQUEST: Final = 2
TYPE_ECHO_REPLY: Final = 3
TYPE_EXPERIMENTER: Final = 4
TYPE_PACKET_OUT: Final = 13
TYPE_FLOW_MOD: Final = 14
TYPE_MULTIPART_REQUEST: Final = 18
TYPE_MULTIPART_REPLY: Final = 19
TYPE_BARRIER_REQUEST: Final = 20
TYPE_BARRIER_REPLY: Final = 21

MULTIPART_DESC: Final = 0
MULTIPART_FLOW: Final = 1
MULTIPART_PORT_STATS: Final = 4
MULTIPART_PORT_DESC: Final = 13
_MULTIPART_MORE: Final = 1
MAX_MULTIPART_BYTES: Final = 64 << 20

FLOW_ADD: Final = 0
FLOW_MODIFY_STRICT: Final = 2
FLOW_DELETE: Final = 3
FLOW_DELETE_STRICT: Final = 4

PORT_MAX: Final = 0xFFFFFF00
PORT_IN_PORT: Final = 0xFFFFFFF8
PORT_NORMAL: Final = 0xFFFFFFFA
PORT_CONTROLLER: Final = 0xFFFFFFFD
PORT_ANY: Final = 0xFFFFFFFF
GROUP_ANY: Final = 0xFFFFFFFF
NO_BUFFER: Final = 0xFFFFFFFF
TABLE_ALL: Final = 0xFF

ONF_EXPERIMENTER: Final = 0x4F4E4600
_BUNDLE_CONTROL: Final = 2300
BUNDLE_ADD: Final = 2301
BUNDLE_OPEN: Final = 0
BUNDLE_COMMIT: Final = 4
BUNDLE_DISCARD: Final = 6
_BUNDLE_ATOMIC_ORDERED: Final = 0b11

_OXM_IN_PORT: Final = 0x80000004
_FLOW_MOD: Final = struct.Struct("!QQBBHHHIIIHxx")
_FLOW_STATS: Final = struct.Struct("!HBxIIHHHHxxxxQQQ")
_PORT_DESC: Final = struct.Struct("!Ixxxx6sxx16sIIIIIIII")
_DESC: Final = struct.Struct("!256s256s256s32s256s")
_IN_PORT_MATCH: Final = struct.Struct("!HHIIxxxx")
_OUTPUT: Final = struct.Struct("!HHxxxxHHIHxxxxxx")
_PORT_IS_DOWN: Final = 1
_PORT_RECEIVES_NOT: Final = 1 << 2
_PORT_FORWARDS_NOT: Final = 1 << 5
PORT_PASSES_NOT: Final = _PORT_IS_DOWN | _PORT_RECEIVES_NOT | _PORT_FORWARDS_NOT
"""Flags of a port's configuration that mean lost frames in a direction or both."""
_LINK_IS_DOWN: Final = 1
_PORT_STATS_REQUEST: Final = struct.Struct("!Ixxxx")
_PORT_STATS: Final = struct.Struct("!Ixxxx6Q6QII")


class OpenFlowError(Exception):
    """Bytes outside OpenFlow 1.3, or lengths that do not add up."""


# --- framing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    type: int
    xid: int
    body: bytes


class MessageDecoder:
    """Cuts a byte stream into messages, however the bytes were split on their way.

    A message has at most 65,535 bytes, by the width of its length field.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._messages: deque[Message] = deque()
        self._error: OpenFlowError | None = None

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the switch; bytes after a bad header are ignored."""
        if self._error is not None:
            return
        self._buffer += data
        start = 0
        while self._error is None and len(self._buffer) - start >= HEADER.size:
            version, kind, length, xid = HEADER.unpack_from(self._buffer, start)
            # A HELLO may name a later version; both sides then speak the older version.
            if length < HEADER.size or (version != VERSION and kind != TYPE_HELLO):
                self._error = OpenFlowError(
                    f"no OpenFlow 1.3 message: version {version}, type {kind}, length {length}"
                )
            elif len(self._buffer) - start < length:
                break
            else:
                body = bytes(self._buffer[start + HEADER.size : start + length])
                self._messages.append(Message(kind, xid, body))
                start += length
        del self._buffer[: start if self._error is None else len(self._buffer)]

    def next_message(self) -> Message | None:
        """The next message; None if more bytes are needed. Raises OpenFlowError, and ever after."""
        if self._messages:
            return self._messages.popleft()
        if self._error is not None:
            raise self._error
        return None


def encode(kind: int, xid: int, body: bytes = b"") -> bytes:
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body


def encode_barrier(xid: int) -> bytes:
    return encode(TYPE_BARRIER_REQUEST, xid)


def describe_error(body: bytes) -> str:
    """An OFPT_ERROR body in words."""
    if len(body) < 4:
        return "an OpenFlow error without a reason"
    kind, code = struct.unpack_from("!HH", body)
    return f"OpenFlow error type {kind} code {code}"


# --- bundles ------------------------------------------------------------------------------------


def encode_bundle_control(bundle_id: int, kind: int, xid: int) -> bytes:
    """Open, commit or discard an atomic, ordered bundle."""
    return encode(TYPE_EXPERIMENTER, xid, _bundle_head(_BUNDLE_CONTROL, bundle_id, kind))


def bundle_add_head(message_bytes: int, bundle_id: int) -> tuple[bytes, bytes]:
    """(bytes before the xid, bytes after) that put a message of the given length into a bundle."""
    body = _bundle_head(BUNDLE_ADD, bundle_id, 0)
    length = HEADER.size + len(body) + message_bytes
    return struct.pack("!BBH", VERSION, TYPE_EXPERIMENTER, length), body


def encode_bundled(message: bytes, bundle_id: int, xid: int) -> bytes:
    """``message`` as a part of an open bundle; both have the same xid."""
    before, after = bundle_add_head(len(message), bundle_id)
    return before + xid.to_bytes(4, "big") + after + message


def _bundle_head(experimenter_type: int, bundle_id: int, kind: int) -> bytes:
    return struct.pack(
        "!IIIHH", ONF_EXPERIMENTER, experimenter_type, bundle_id, kind, _BUNDLE_ATOMIC_ORDERED
    )


# --- multipart ----------------------------------------------------------------------------------


def encode_multipart_request(kind: int, xid: int, body: bytes = b"") -> bytes:
    return encode(TYPE_MULTIPART_REQUEST, xid, struct.pack("!HHxxxx", kind, 0) + body)


def encode_flow_stats_request(table: int, cookie: int, cookie_mask: int, xid: int) -> bytes:
    body = flow_stats_body(table, cookie, cookie_mask)
    return encode_multipart_request(MULTIPART_FLOW, xid, body)


def flow_stats_body(table: int, cookie: int = 0, cookie_mask: int = 0) -> bytes:
    """Body of a request for a table's rules whose cookie is ``cookie`` under the mask."""
    body = struct.pack("!BxxxIIxxxxQQ", table, PORT_ANY, GROUP_ANY, cookie, cookie_mask)
    return body + struct.pack("!HHxxxx", 1, 4)


def split_multipart(body: bytes) -> tuple[int, bool, bytes]:
    """(kind, whether more follows, the part itself) of an OFPT_MULTIPART_REPLY body."""
    if len(body) < 8:
        raise OpenFlowError(f"a multipart reply of {len(body)} bytes")
    kind, flags = struct.unpack_from("!HH", body)
    return kind, bool(flags & _MULTIPART_MORE), body[8:]


@dataclass(frozen=True, slots=True)
class Description:
    """Reply to OFPMP_DESC."""

    manufacturer: str
    hardware: str
    software: str
    serial: str


def decode_description(body: bytes) -> Description:
    if len(body) != _DESC.size:
        raise OpenFlowError(f"a description of {len(body)} bytes, not {_DESC.size}")
    manufacturer, hardware, software, serial, _ = map(_text, _DESC.unpack(body))
    return Description(manufacturer, hardware, software, serial)


@dataclass(frozen=True, slots=True)
class PortDescription:
    number: int
    name: str
    down: bool
    """True if configuration has switched the port off, or one direction of the port."""
    carrier: bool


def encode_port_descriptions_request(xid: int) -> bytes:
    return encode_multipart_request(MULTIPART_PORT_DESC, xid)


def decode_port_descriptions(body: bytes) -> tuple[PortDescription, ...]:
    """Physical and logical ports, without reserved ports."""
    if len(body) % _PORT_DESC.size:
        raise OpenFlowError(f"port descriptions of {len(body)} bytes are not whole entries")
    return tuple(
        PortDescription(
            number, _text(name), bool(config & PORT_PASSES_NOT), not state & _LINK_IS_DOWN
        )
        for number, _mac, name, config, state, *_ in _PORT_DESC.iter_unpack(body)
        if number < PORT_MAX
    )


def port_stats_body() -> bytes:
    """Body of a MULTIPART_PORT_STATS request, for all ports."""
    return _PORT_STATS_REQUEST.pack(PORT_ANY)


def decode_port_counters(body: bytes) -> dict[int, tuple[int, int, int, int, int, int]]:
    """Frames received and sent, octets received and sent, frames dropped either way, by port."""
    if len(body) % _PORT_STATS.size:
        raise OpenFlowError(f"port statistics of {len(body)} bytes are not whole entries")
    return {entry[0]: entry[1:7] for entry in _PORT_STATS.iter_unpack(body)}


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", errors="replace")


# --- cross-connects: light, or frames, from one port to another ---------------------------------


@dataclass(frozen=True, slots=True)
class PortPair:
    """A rule from one port to another, by OpenFlow numbers, for all frames or light."""

    in_port: int
    out_port: int


@dataclass(frozen=True, slots=True)
class RuleAddress:
    """Table and priority of cross-connect rules, and the cookie of the controller's rules."""

    table: int = 0
    priority: int = 100
    cookie: int = 0


def encode_connect(pair: PortPair, where: RuleAddress, xid: int) -> bytes:
    """Flow-mod that adds the pair's rule and replaces a rule for the same ingress port."""
    # A frame leaves by its ingress port only with the name OFPP_IN_PORT.
    out_port = PORT_IN_PORT if pair.out_port == pair.in_port else pair.out_port
    instructions = _OUTPUT.pack(4, _OUTPUT.size, 0, 16, out_port, 0)
    return _flow_mod(FLOW_ADD, pair.in_port, where, xid, instructions)


def encode_disconnect(pair: PortPair, where: RuleAddress, xid: int) -> bytes:
    """Flow-mod that removes the rule of the pair's ingress port, with any cookie."""
    return _flow_mod(FLOW_DELETE_STRICT, pair.in_port, where, xid, b"")


def _flow_mod(
    command: int, in_port: int, where: RuleAddress, xid: int, instructions: bytes
) -> bytes:
    cookie = where.cookie if command == FLOW_ADD else 0
    body = _FLOW_MOD.pack(
        cookie, 0, where.table, command, 0, 0, where.priority, NO_BUFFER, PORT_ANY, GROUP_ANY, 0
    )
    body += _IN_PORT_MATCH.pack(1, 12, _OXM_IN_PORT, in_port)
    return encode(TYPE_FLOW_MOD, xid, body + instructions)


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """A rule in a flow statistics reply."""

    table: int
    priority: int
    cookie: int
    match: bytes
    """OXM fields, without the header and padding."""
    instructions: bytes

    @property
    def drops(self) -> bool:
        return not self.instructions

    @property
    def pair(self) -> PortPair | None:
        """The cross-connect made by this rule; None if the rule is of a different kind."""
        if len(self.match) != 8 or len(self.instructions) != _OUTPUT.size:
            return None
        oxm, in_port = struct.unpack("!II", self.match)
        apply, _, output, _, out_port, _ = _OUTPUT.unpack(self.instructions)
        if oxm != _OXM_IN_PORT or apply != 4 or output != 0:
            return None
        if out_port != PORT_IN_PORT and out_port >= PORT_MAX:
            return None
        return PortPair(in_port, in_port if out_port == PORT_IN_PORT else out_port)


def decode_flow_entries(body: bytes) -> tuple[FlowEntry, ...]:
    """The rules in an OFPMP_FLOW reply body (without the multipart header)."""
    return tuple(_flow_entries(body))


def _flow_entries(body: bytes) -> Iterator[FlowEntry]:
    offset = 0
    while offset < len(body):
        if len(body) - offset < _FLOW_STATS.size + 8:
            raise OpenFlowError(f"flow statistics end inside an entry at byte {offset}")
        length, table, _, _, priority, _, _, _, cookie, _, _ = _FLOW_STATS.unpack_from(body, offset)
        match_at = offset + _FLOW_STATS.size
        (match_bytes,) = struct.unpack_from("!H", body, match_at + 2)
        instructions_at = match_at + (match_bytes + 7) // 8 * 8
        end = offset + length
        if match_bytes < 4 or not match_at < instructions_at <= end <= len(body):
            raise OpenFlowError(f"the flow statistics entry at byte {offset} does not add up")
        match = body[match_at + 4 : match_at + match_bytes]
        yield FlowEntry(table, priority, cookie, match, body[instructions_at:end])
        offset = end


def joined(parts: Iterable[bytes]) -> bytes:
    """The parts of a multipart reply joined. Raises OpenFlowError if they are too long."""
    body = bytearray()
    for part in parts:
        body += part
        if len(body) > MAX_MULTIPART_BYTES:
            raise OpenFlowError(f"a multipart reply of more than {MAX_MULTIPART_BYTES} bytes")
    return bytes(body)
