"""Flow rules to OpenFlow 1.3 bytes; no sockets and no Ryu.

A rule's shape (:data:`hydra.forwarding.pipeline.SHAPES`) is compiled once per switch port layout
into a message with holes. Each rule then only fills the holes; long runs of rules of the same kind
are filled column by column. Layouts: OpenFlow Switch Specification 1.3.5, sections 7.2 and 7.3;
bundles: ONF extension EXT-230.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Final, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from drivers.codecs.openflow.messages import (
    BUNDLE_COMMIT,
    BUNDLE_OPEN,
    FLOW_ADD,
    FLOW_DELETE,
    FLOW_DELETE_STRICT,
    FLOW_MODIFY_STRICT,
    GROUP_ANY,
    MULTIPART_PORT_STATS,
    NO_BUFFER,
    PORT_ANY,
    PORT_CONTROLLER,
    PORT_NORMAL,
    TABLE_ALL,
    TYPE_FLOW_MOD,
    TYPE_PACKET_OUT,
    VERSION,
    bundle_add_head,
    encode,
    encode_bundle_control,
    encode_bundled,
    encode_multipart_request,
    port_stats_body,
)
from hydra.forwarding.match_action import (
    Arg,
    EndOnFin,
    Field,
    Output,
    PassProtected,
    PickPath,
    Port,
    PushVlan,
    SetDscp,
    SetPath,
    Shape,
    Table,
    ToController,
    place_of_server,
    place_of_wired,
)
from hydra.forwarding.pipeline import (
    COOKIE_TAG,
    COOKIE_TAG_MASK,
    IN_PORT,
    PATH_REGISTER,
    SHAPES,
    RuleKind,
)
from hydra.forwarding.rules import (
    FlowRule,
    Install,
    InstallAll,
    Modify,
    RemoveByCookie,
    RemoveByPort,
    RuleChange,
    round_rule,
)

TAKEN_OVER: Final = "another controller has taken this switch over: stop one of the two"
"""Meaning of a switch's refusal of a controller that is no longer its master."""
NO_BUNDLES: Final = "this switch knows no bundles (ONF extension 230)"
"""Meaning of a refused experimenter message: the only such messages sent are bundles'."""
ROLE_NO_CHANGE: Final = 0
ROLE_MASTER: Final = 2
ROLE_SLAVE: Final = 3
NO_GENERATION: Final = 2**64 - 1
"""Generation reported by a switch that never had a master."""
TYPE_ROLE_REQUEST: Final = 24
_VLAN_PRESENT: Final = 0x1000
_SEND_FLOW_REMOVED: Final = 1
_IN_PORT: Final = 0xFFF8
"""Port number that makes the action ``resubmit`` use a packet's own ingress port."""
_AS_IF_FROM_CONTROLLER: Final = struct.pack("!HHHBBH6x", 25, 16, 0, 0, 2, PORT_CONTROLLER & 0xFFFF)
"""The action that sets Open vSwitch's field ``in_port``; the controller is no protected port."""
_FIN: Final = 0x01


_FIELDS: Final[Mapping[int, str]] = {
    Port.HOST: "host",
    Port.OPTICAL: "optical",
    Port.ELECTRICAL: "electrical",
}
"""Of :class:`SwitchPorts`, by symbolic port."""


@dataclass(frozen=True, slots=True)
class SwitchPorts:
    """A switch's OpenFlow port numbers for the symbolic ports; 0: no such port."""

    host: int = 0
    optical: int = 0
    electrical: int = 0
    servers: tuple[int, ...] = ()
    wired: tuple[int, ...] = ()
    protected: bool = False
    """True if wired ports and the electrical port are protected ports of Open vSwitch."""

    def number(self, port: int) -> int:
        """A symbolic port's number; a real number stays unchanged."""
        if port >= 0:
            return port
        if (name := _FIELDS.get(port)) is not None:
            number: int = getattr(self, name)
            return number
        if (place := place_of_server(port)) is not None:
            return self.servers[place]
        if (place := place_of_wired(port)) is not None:
            return self.wired[place]
        return {Port.NORMAL: PORT_NORMAL}[Port(port)]


# --- compiling shapes ------------------------------------------------------------------------

_OXM: Final[Mapping[str, tuple[int, int]]] = {  # name: (field code, bytes)
    IN_PORT: (0, 4),
    "metadata": (2, 8),
    "eth_dst": (3, 6),
    "eth_src": (4, 6),
    "eth_type": (5, 2),
    "vlan_vid": (6, 2),
    "ip_dscp": (8, 1),
    "ip_proto": (10, 1),
    "ipv4_src": (11, 4),
    "ipv4_dst": (12, 4),
    "tcp_src": (13, 2),
    "tcp_dst": (14, 2),
    "arp_spa": (22, 4),
    "ipv6_src": (26, 16),
    "ipv6_dst": (27, 16),
    "icmpv6_type": (29, 1),
    "ipv6_nd_target": (31, 16),
    PATH_REGISTER: (0, 4),
}
_OXM_CLASS: Final = 0x8000
_NXM_1: Final = 0x0001
"""The class of Open vSwitch's registers, each of 4 bytes (ovs-fields(7))."""
_HOLE_FORMAT: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_COOKIE: Final = -1
_XID: Final = -2
_LONG_RUN: Final = 16
"""Length of a run of the same kind above which filling columns is quicker than filling messages."""


@dataclass(frozen=True, slots=True)
class _Hole:
    """A place filled for each message: from ``args[index]``, the cookie or the xid."""

    index: int
    size: int
    offset: int = 0
    """Added to the value (OFPVID_PRESENT)."""
    is_port: bool = False


_Piece = bytes | _Hole


def _length(pieces: Iterable[_Piece]) -> int:
    return sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces)


def _padded(pieces: list[_Piece]) -> list[_Piece]:
    return [*pieces, bytes(-_length(pieces) % 8)]


def _value(value: int | Arg, size: int, *, is_port: bool = False, offset: int = 0) -> _Piece:
    if isinstance(value, Arg):
        return _Hole(value.index, size, offset, is_port)
    return (value + offset).to_bytes(size, "big")


def _oxm(field: Field, ports: SwitchPorts) -> list[_Piece]:
    code, size = _OXM[field.name]
    masked = field.mask is not None
    header = struct.pack("!HBB", _class_of(field.name), code << 1 | masked, size * (1 + masked))
    value = field.value
    is_port = field.name == IN_PORT
    if is_port and isinstance(value, int):
        value = ports.number(value)
    pieces: list[_Piece] = [header, _value(value, size, is_port=is_port)]
    if field.mask is not None:
        pieces.append(_value(field.mask, size))
    return pieces


def _class_of(field: str) -> int:
    return _NXM_1 if field == PATH_REGISTER else _OXM_CLASS


def _match(fields: Sequence[Field], ports: SwitchPorts) -> list[_Piece]:
    body = [piece for field in fields for piece in _oxm(field, ports)]
    return _padded([struct.pack("!HH", 1, 4 + _length(body)), *body])


def _output(action: Output, ports: SwitchPorts) -> list[_Piece]:
    if isinstance(action.port, Arg):
        return [struct.pack("!HH", 0, 16), _Hole(action.port.index, 4, is_port=True), bytes(8)]
    every = ports.servers if action.port is Port.SERVERS else (ports.number(action.port),)
    # Never back to the ingress port: for that, OpenFlow has a port of its own (OFPP_IN_PORT).
    return [struct.pack("!HHI8x", 0, 16, number) for number in every]


def _push_vlan(action: PushVlan) -> list[_Piece]:
    push = struct.pack("!HHHxx", 17, 8, 0x8100)
    return [push, *_set_field("vlan_vid", action.vlan, offset=_VLAN_PRESENT)]


def _set_field(name: str, value: int | Arg, *, offset: int = 0) -> list[_Piece]:
    """Set-field action for a field of up to 8 bytes."""
    code, size = _OXM[name]
    header = struct.pack("!HHHBB", 25, 16, _class_of(name), code << 1, size)
    return [header, _value(value, size, offset=offset), bytes(8 - size)]


_SYMMETRIC_L3L4: Final = 2
_HIGHEST_RANDOM_WEIGHT: Final = 2


def _pick_path(action: PickPath) -> list[_Piece]:
    """The action ``multipath`` of Open vSwitch, into all bits of the register (nicira-ext.h)."""
    code, size = _OXM[PATH_REGISTER]
    return [
        struct.pack(
            "!HHIHHHxxH",
            0xFFFF,
            32,
            0x2320,
            10,
            _SYMMETRIC_L3L4,
            action.basis,
            _HIGHEST_RANDOM_WEIGHT,
        ),
        _value(action.last, 2),
        struct.pack("!IxxHHBB", 0, 8 * size - 1, _NXM_1, code << 1, size),
    ]


def _end_on_fin() -> bytes:
    """The action ``fin_timeout`` of Open vSwitch, without an idle time-out (nicira-ext.h)."""
    return struct.pack("!HHIHHHxx", 0xFFFF, 16, 0x2320, 19, 0, 1)


def _actions(shape: Shape, ports: SwitchPorts) -> list[_Piece]:
    pieces: list[_Piece] = []
    for action in shape.actions:
        if isinstance(action, Output):
            pieces += _output(action, ports)
        elif isinstance(action, ToController):
            pieces.append(struct.pack("!HHIH6x", 0, 16, PORT_CONTROLLER, 0xFFFF))
        elif isinstance(action, PushVlan):
            pieces += _push_vlan(action)
        elif isinstance(action, SetDscp):
            pieces += _set_field("ip_dscp", action.codepoint)
        elif isinstance(action, PickPath):
            pieces += _pick_path(action)
        elif isinstance(action, SetPath):
            pieces += _set_field(PATH_REGISTER, action.number)
        elif isinstance(action, PassProtected):
            pieces += [_AS_IF_FROM_CONTROLLER] * ports.protected
        elif isinstance(action, EndOnFin):
            pieces.append(_end_on_fin())
        else:
            pieces.append(struct.pack("!HHxxxx", 18, 8))
    return pieces


def _instructions(shape: Shape, ports: SwitchPorts) -> list[_Piece]:
    pieces: list[_Piece] = []
    if shape.meter is not None:
        pieces += [struct.pack("!HH", 6, 8), _value(shape.meter, 4)]
    actions = _actions(shape, ports)
    if actions:
        pieces += [struct.pack("!HHxxxx", 4, 8 + _length(actions)), *actions]
    if shape.write_metadata is not None:
        pieces += [struct.pack("!HHxxxx", 2, 24), _value(shape.write_metadata, 8), b"\xff" * 8]
    if shape.goto is not None:
        pieces.append(struct.pack("!HHBxxx", 1, 8, shape.goto))
    return pieces


def _flow_mod_pieces(kind: RuleKind, ports: SwitchPorts, command: int) -> list[_Piece]:
    shape = SHAPES[kind]
    flags = _SEND_FLOW_REMOVED if shape.reports_end and command == FLOW_ADD else 0
    fixed = struct.pack(
        "!QBBHHHIIIHxx", 0, shape.table, command, 0, 0, shape.priority,
        NO_BUFFER, PORT_ANY, GROUP_ANY, flags,
    )  # fmt: skip
    body = [_Hole(_COOKIE, 8), fixed, *_match(shape.match, ports)]
    if command in (FLOW_ADD, FLOW_MODIFY_STRICT):
        body += _instructions(shape, ports)
    header = struct.pack("!BBH", VERSION, TYPE_FLOW_MOD, 8 + _length(body))
    return [header, _Hole(_XID, 4), *body]


def _bundled(bundle_id: int, message: list[_Piece]) -> list[_Piece]:
    before, after = bundle_add_head(_length(message), bundle_id)
    return [before, _Hole(_XID, 4), after, *message]


def _merge(pieces: Iterable[_Piece]) -> list[_Piece]:
    """Join neighbouring constants."""
    merged: list[_Piece] = []
    for piece in pieces:
        if merged and isinstance(piece, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += piece
        elif piece:
            merged.append(piece)
    return merged


class _Packer:
    """Messages of a shape: constants written down, holes filled from each rule."""

    def __init__(self, pieces: Iterable[_Piece], ports: SwitchPorts) -> None:
        self._pieces = _merge(pieces)
        self._ports = ports
        layout = (
            f"{len(p)}s" if isinstance(p, bytes) else _HOLE_FORMAT.get(p.size, f"{p.size}s")
            for p in self._pieces
        )
        self._layout = struct.Struct("!" + "".join(layout))
        self._holes: list[tuple[str, _Hole]] = []
        names, formats, offsets, at = ["bytes"], [f"V{self._layout.size}"], [0], 0
        for piece in self._pieces:
            if isinstance(piece, _Hole):
                self._holes.append((f"hole{at}", piece))
                names.append(f"hole{at}")
                wide = piece.size not in _HOLE_FORMAT
                formats.append(f"V{piece.size}" if wide else f">u{piece.size}")
                offsets.append(at)
            at += _length([piece])
        self._rows = np.dtype({"names": names, "formats": formats, "offsets": offsets})
        blank = [p if isinstance(p, bytes) else bytes(p.size) for p in self._pieces]
        self._template = np.void(b"".join(blank))

    def encode(self, rule: FlowRule, xid: int) -> bytes:
        values: list[int | bytes] = []
        for piece in self._pieces:
            if isinstance(piece, bytes):
                values.append(piece)
            elif piece.index == _XID:
                values.append(xid)
            elif piece.index == _COOKIE:
                values.append(rule.cookie)
            else:
                number = rule.args[piece.index] + piece.offset
                if piece.is_port:
                    number = self._ports.number(number)
                narrow = piece.size in _HOLE_FORMAT
                values.append(number if narrow else number.to_bytes(piece.size, "big"))
        return self._layout.pack(*values)

    def many(self, rules: Sequence[FlowRule], xid: int) -> bytes:
        """Messages of many rules, as by :meth:`encode`, filled a column of all rules at a time."""
        rows = np.empty(len(rules), self._rows)
        rows["bytes"] = self._template
        columns = tuple(zip(*map(_ARGS, rules), strict=True))
        for name, hole in self._holes:
            if hole.index == _XID:
                rows[name] = xid
            elif hole.index == _COOKIE:
                rows[name] = np.fromiter(map(_COOKIE_OF, rules), np.uint64, len(rules))
            else:
                rows[name] = self._column(columns[hole.index], hole)
        return rows.tobytes()

    def _column(self, values: Iterable[int], hole: _Hole) -> NDArray[np.generic]:
        if hole.is_port:
            values = map(self._ports.number, values)
        if hole.offset:
            values = map(hole.offset.__add__, values)
        if hole.size in _HOLE_FORMAT:
            return np.fromiter(values, f"u{hole.size}")
        wide = b"".join(value.to_bytes(hole.size, "big") for value in values)
        return np.frombuffer(wide, f"V{hole.size}")


_ARGS: Final = attrgetter("args")
_COOKIE_OF: Final = attrgetter("cookie")
_KIND: Final = attrgetter("kind")
_RULE: Final = attrgetter("rule")


@lru_cache(maxsize=4096)
def _compiled(kind: RuleKind, ports: SwitchPorts, command: int, bundle_id: int | None) -> _Packer:
    pieces = _flow_mod_pieces(kind, ports, command)
    return _Packer(pieces if bundle_id is None else _bundled(bundle_id, pieces), ports)


# --- encoding --------------------------------------------------------------------------------


class _Shared:
    """Messages for several switches, different only in their transaction ids."""

    def __init__(self, encode: Callable[[int], bytes]) -> None:
        """``encode`` makes the messages with a transaction id."""

        def encoded(xid: int) -> NDArray[np.uint8]:
            return np.frombuffer(encode(xid), np.uint8)

        self._bytes = encoded(0)
        self._xids_at = np.flatnonzero(self._bytes != encoded(0xFFFF_FFFF)).reshape(-1, 4)

    def with_xid(self, xid: int) -> bytes:
        """The messages with the given transaction id."""
        message = self._bytes.copy()
        message[self._xids_at] = np.frombuffer(xid.to_bytes(4, "big"), np.uint8)
        return message.tobytes()


_ALL_SHARED: Final[WeakKeyDictionary[InstallAll, dict[tuple[SwitchPorts, int | None], _Shared]]] = (
    WeakKeyDictionary()
)
"""Encodings, kept as long as the installation is in use."""


def _shared(several: InstallAll, ports: SwitchPorts, bundle_id: int | None) -> _Shared:
    encoded = _ALL_SHARED.setdefault(several, {})
    key = ports, bundle_id
    if key not in encoded:
        encoded[key] = _Shared(
            lambda xid: b"".join(_flow_mods(several.rules, ports, FLOW_ADD, xid, bundle_id))
        )
    return encoded[key]


def _delete(removal: RemoveByCookie | RemoveByPort, xid: int) -> bytes:
    """Removal of all rules, in any table, that agree with a cookie or match a port."""
    match: tuple[Field, ...] = ()
    if isinstance(removal, RemoveByCookie):
        cookie, mask = removal.cookie, removal.mask
    else:
        cookie, mask, match = COOKIE_TAG, COOKIE_TAG_MASK, (Field(IN_PORT, removal.number),)
    body = struct.pack(
        "!QQBBHHHIIIHxx", cookie, mask, TABLE_ALL, FLOW_DELETE, 0, 0, 0,
        NO_BUFFER, PORT_ANY, GROUP_ANY, 0,
    )  # fmt: skip
    pieces = _merge(_match(match, SwitchPorts()))
    return encode(TYPE_FLOW_MOD, xid, b"".join((body, *cast(list[bytes], pieces))))


def _with_any_cookie(rule: FlowRule) -> FlowRule:
    """The rule with cookie and mask zero, which removes the installed rule with any cookie."""
    return FlowRule(rule.kind, rule.args)


def _flow_mods(
    rules: Iterable[FlowRule], ports: SwitchPorts, command: int, xid: int, bundle_id: int | None
) -> Iterator[bytes]:
    for kind, alike in groupby(rules, _KIND):
        packer = _compiled(kind, ports, command, bundle_id)
        run = list(alike)
        if len(run) < _LONG_RUN:
            yield from (packer.encode(rule, xid) for rule in run)
        else:
            yield packer.many(run, xid)


def encode_changes(
    changes: Iterable[RuleChange], ports: SwitchPorts, xid: int, bundle_id: int | None
) -> bytes:
    """Flow-mods for ``changes``, all with transaction id ``xid``.

    With ``bundle_id`` they are one atomic, ordered bundle: if the table lacks room for any of them,
    none takes effect. But if Open vSwitch refuses a member while it is added (unknown action, port
    or group), Open vSwitch leaves out the member, answers with an error, and commits the rest
    (``findings/ovs_bundle_refused_member.sh``).
    """
    if bundle_id is None:
        return b"".join(_flow_mods_of(changes, ports, xid, None))
    commit = encode_bundle_control(bundle_id, BUNDLE_COMMIT, xid)
    return encode_open_bundle(changes, ports, xid, bundle_id) + commit


def encode_open_bundle(
    changes: Iterable[RuleChange], ports: SwitchPorts, xid: int, bundle_id: int
) -> bytes:
    """The bundle of :func:`encode_changes` without its commit, so that no table changes yet."""
    opening = encode_bundle_control(bundle_id, BUNDLE_OPEN, xid)
    return b"".join((opening, *_flow_mods_of(changes, ports, xid, bundle_id)))


class EncodedOnce:
    """Encodes changes once for consecutive switches that get the same object, such as the switches
    of a rack. Not for several threads.
    """

    def __init__(self, encode: Callable[[Sequence[RuleChange], SwitchPorts, int], bytes]) -> None:
        """``encode`` makes messages of changes, with a transaction id wherever needed."""
        self._encode = encode
        self._last: tuple[Sequence[RuleChange], SwitchPorts] | None = None
        self._shared: _Shared | None = None

    def __call__(self, changes: Sequence[RuleChange], ports: SwitchPorts, xid: int) -> bytes:
        last = self._last
        if last is None or last[0] is not changes or last[1] != ports:
            self._last, self._shared = (changes, ports), None
            return self._encode(changes, ports, xid)
        if self._shared is None:
            self._shared = _Shared(lambda some: self._encode(changes, ports, some))
        return self._shared.with_xid(xid)


def _flow_mods_of(
    changes: Iterable[RuleChange], ports: SwitchPorts, xid: int, bundle_id: int | None
) -> list[bytes]:
    parts: list[bytes] = []
    for change, alike in groupby(changes, type):
        if change is RemoveByCookie or change is RemoveByPort:
            for removal in cast(Iterator[RemoveByCookie | RemoveByPort], alike):
                message = _delete(removal, xid)
                parts.append(
                    message if bundle_id is None else encode_bundled(message, bundle_id, xid)
                )
        elif change is Install:
            parts += _flow_mods(map(_RULE, alike), ports, FLOW_ADD, xid, bundle_id)
        elif change is Modify:
            rules = map(_with_any_cookie, map(_RULE, alike))
            parts += _flow_mods(rules, ports, FLOW_MODIFY_STRICT, xid, bundle_id)
        elif change is InstallAll:
            for several in cast(Iterator[InstallAll], alike):
                parts.append(_shared(several, ports, bundle_id).with_xid(xid))
        else:
            rules = map(_with_any_cookie, map(_RULE, alike))
            parts += _flow_mods(rules, ports, FLOW_DELETE_STRICT, xid, bundle_id)
    return parts


def encode_role_request(role: int, generation: int, xid: int) -> bytes:
    body = struct.pack("!IxxxxQ", role, generation & 2**64 - 1)
    return encode(TYPE_ROLE_REQUEST, xid, body)


def encode_packet_out(frame: bytes, port: int, xid: int) -> bytes:
    """Send ``frame`` (with its own tags) out of a port, as if from the controller."""
    action = struct.pack("!HHIH6x", 0, 16, port, 0)
    body = struct.pack("!IIH6x", NO_BUFFER, PORT_CONTROLLER, len(action)) + action + frame
    return encode(TYPE_PACKET_OUT, xid, body)


def encode_round_again(number: int, xid: int) -> bytes:
    """Install the rule with this number (:func:`hydra.forwarding.rules.round_rule`) again."""
    return _with_xid(_round_again(number), xid)


@cache  # messages go to thousands of switches at once
def _round_again(number: int) -> bytes:
    return encode_changes((Install(round_rule(number)),), SwitchPorts(), 0, None)


def encode_end_of_round(number: int, xid: int) -> bytes:
    """End the rule with this number once Open vSwitch has looked at all its cached flows.

    The message is a TCP segment with FIN, for the table of rounds alone.
    """
    return _with_xid(_end_of_round(number), xid)


@cache
def _end_of_round(number: int) -> bytes:
    action = struct.pack("!HHIHHBxxx", 0xFFFF, 16, 0x2320, 14, _IN_PORT, Table.ROUNDS)
    ethernet = struct.pack("!12xH", 0x0800)
    ip = struct.pack("!BxHxxxxBBxx8x", 0x45, 40, 64, 6)
    tcp = struct.pack("!HHIIBBHxxxx", 0, number, 0, 0, 0x50, _FIN, 0)
    body = struct.pack("!IIH6x", NO_BUFFER, PORT_CONTROLLER, len(action)) + action
    return encode(TYPE_PACKET_OUT, 0, body + ethernet + ip + tcp)


def _with_xid(message: bytes, xid: int) -> bytes:
    return message[:4] + xid.to_bytes(4, "big") + message[8:]


def encode_port_stats_request(xid: int) -> bytes:
    return encode_multipart_request(MULTIPART_PORT_STATS, xid, port_stats_body())
