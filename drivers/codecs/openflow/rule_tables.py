"""Rules that switches hold, compared with the rules that they should hold.

Two rules are the same if table, priority, match and instructions agree; cookies and counters may
differ. Layouts: OpenFlow Switch Specification 1.3.5, sections 7.2 and 7.3.5.2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary

from drivers.codecs.openflow import _tables
from drivers.codecs.openflow.rules import SwitchPorts, encode_changes
from drivers.codecs.openflow.statistics import MalformedReplyError
from hydra.forwarding.match_action import Table, wired_port
from hydra.forwarding.pipeline import (
    COOKIE_EPOCH_MASK,
    COOKIE_TAG,
    COOKIE_TAG_MASK,
    SHAPES,
    RuleKind,
)
from hydra.forwarding.rules import FlowRule, Install, InstallAll, Installation, RemoveByCookie
from hydra.reconfiguration.drift import NOTHING, Drift, DriftKind, RuleDrift

_FLOW_MOD: Final = struct.Struct("!8xQ8xB5xH16x")
"""Cookie, table, priority."""
_MESSAGE_LENGTH: Final = struct.Struct("!2xH")
_ENTRY: Final = struct.Struct("!HBx8xH10xQ16x")
"""Length, table, priority, cookie."""
_HEAD_BYTES: Final = 48
"""Before the match, in a flow-mod as in an entry of flow statistics."""
_COOKIE_AT: Final = 24
_IN_PORT_ENTRY: Final = struct.Struct("!HBx8xH10x8xQ8x4xII")
"""Length, table, priority, packets, head of the first field of the match, its value."""
_IN_PORT: Final = 0x80000004
"""OXM head of ``in_port``: class 0x8000, field 0, four bytes."""
_REFUSING: Final = tuple(
    ((COOKIE_TAG | kind.value << 48).to_bytes(8, "big")[:2], SHAPES[kind].priority)
    for kind in (RuleKind.PORT_FOREIGN, RuleKind.TOR_TAGGED_DROP)
)
"""First bytes of the cookies, and priorities, of rules that drop frames a server may not send."""
_IN_PORT_HEAD: Final = _IN_PORT.to_bytes(4, "big")
_VLAN_VID_HEAD: Final = 0x80000C02.to_bytes(4, "big")
"""OXM head of ``vlan_vid``: field 6, two bytes."""
_RELAY: Final = (COOKIE_TAG | RuleKind.TOR_RELAY.value << 48).to_bytes(8, "big")[:2]
"""How cookies of relay rules begin."""
_MATCH_HEAD: Final = struct.Struct("!HH")
_OXM: Final = struct.Struct("!HBB")
_EVERY_BIT: Final = 2**64 - 1
_COUNTED_COOKIE_BITS: Final = _EVERY_BIT & ~COOKIE_EPOCH_MASK
"""All but the epoch: rules of pairs that a change left alone have an earlier epoch."""
_KIND_BY_NUMBER: Final = {kind.value: kind for kind in RuleKind}

RuleKey = tuple[int, int, frozenset[bytes]]
"""(table, priority, match): a unique key of a switch's rules."""


@dataclass(frozen=True, slots=True)
class HeldRule:
    cookie: int
    instructions: bytes

    @property
    def ours(self) -> bool:
        return self.cookie & COOKIE_TAG_MASK == COOKIE_TAG


RuleTable = Mapping[RuleKey, HeldRule]


@lru_cache(maxsize=65536)
def _match_fields(match: bytes) -> frozenset[bytes]:
    """The fields as a set; a mask of ones is the same as none."""
    fields: set[bytes] = set()
    offset = 0
    while offset < len(match):
        oxm_class, code, length = _OXM.unpack_from(match, offset)
        value = match[offset + 4 : offset + 4 + length]
        half = length // 2
        if code & 1 and value[half:] == b"\xff" * half:
            code, value = code & ~1, value[:half]
        fields.add(_OXM.pack(oxm_class, code, len(value)) + value)
        offset += 4 + length
    return frozenset(fields)


def _split(message: bytes, match_at: int, end: int) -> tuple[frozenset[bytes], bytes]:
    """(match, instructions) of the message's part from ``match_at`` to ``end``."""
    _, length = _MATCH_HEAD.unpack_from(message, match_at)
    padded = (length + 7) // 8 * 8
    fields = _match_fields(message[match_at + 4 : match_at + length])
    return fields, message[match_at + padded : end]


def intended_table(installations: Iterable[Installation], ports: SwitchPorts) -> RuleTable:
    """The table of a switch with the given ports after the given installations."""
    table: dict[RuleKey, HeldRule] = {}
    messages = encode_changes(installations, ports, 0, None)
    start = 0
    while start < len(messages):
        (length,) = _MESSAGE_LENGTH.unpack_from(messages, start)
        cookie, number, priority = _FLOW_MOD.unpack_from(messages, start)
        end = start + length
        fields, instructions = _split(messages, start + _HEAD_BYTES, end)
        table[number, priority, fields] = HeldRule(cookie, instructions)
        start = end
    return table


def decode_rules(body: bytes) -> RuleTable:
    """The entries of an OFPMP_FLOW reply body. Raises MalformedReplyError."""
    table: dict[RuleKey, HeldRule] = {}
    offset = 0
    try:
        while offset < len(body):
            length, number, priority, cookie = _ENTRY.unpack_from(body, offset)
            if not _HEAD_BYTES < length <= len(body) - offset:
                raise MalformedReplyError(f"flow entry at byte {offset} has length {length}")
            fields, instructions = _split(body, offset + _HEAD_BYTES, offset + length)
            table[number, priority, fields] = HeldRule(cookie, instructions)
            offset += length
    except struct.error as error:
        raise MalformedReplyError(f"flow entry at byte {offset} is cut short") from error
    return table


def cookies_among(wanted: Iterable[int], body: bytes) -> Iterator[int]:
    """The ``wanted`` cookies that occur in an OFPMP_FLOW reply body.

    Only for our own cookies: nothing else in a table looks like them.
    """
    return (cookie for cookie in wanted if cookie.to_bytes(8, "big") in body)


_ALL_COMMON: Final[WeakKeyDictionary[InstallAll, dict[SwitchPorts, _tables.Table]]] = (
    WeakKeyDictionary()
)
"""Tables of rules in common, kept as long as the installation is in use."""


def is_exact(intended: Sequence[Installation], ports: SwitchPorts, body: bytes) -> bool:
    """True if an OFPMP_FLOW reply body lists the ``intended`` rules, each once, and no further
    rules.

    Table, priority, match, instructions, flags, time-outs and cookie of each rule agree, apart from
    the cookie's epoch. False also for a malformed body, and if an intended rule replaces another.
    """
    if len(body) < sum(
        len(command.rules) if isinstance(command, InstallAll) else 1 for command in intended
    ):
        return False  # a switch without rules: nothing has to be encoded
    several = [command for command in intended if isinstance(command, InstallAll)]
    common = _common(several[0], ports) if several else _table((), ports)
    own = _table([command for command in intended if command not in several[:1]], ports)
    return common.held_with(own, body)


def _common(several: InstallAll, ports: SwitchPorts) -> _tables.Table:
    tables = _ALL_COMMON.setdefault(several, {})
    if ports not in tables:
        tables[ports] = _table(map(Install, several.rules), ports)
    return tables[ports]


def _table(installations: Iterable[Installation], ports: SwitchPorts) -> _tables.Table:
    return _tables.Table(encode_changes(installations, ports, 0, None), _COUNTED_COOKIE_BITS)


def table_drift(
    name: str,
    intended: Sequence[Installation],
    ports: SwitchPorts,
    body: bytes,
    *,
    alone: bool = True,
) -> RuleDrift:
    """Differences between the table in an OFPMP_FLOW reply body and the ``intended`` table.

    ``alone``: the table is to hold no other rules. Raises MalformedReplyError.
    """
    refused = refused_frames(ports, body)
    if alone and is_exact(intended, ports, body):
        return RuleDrift((), (), refused)
    wanted, held = intended_table(intended, ports), decode_rules(body)
    if not alone:
        held = {key: rule for key, rule in held.items() if key in wanted}
    return RuleDrift(tuple(rule_drift(name, wanted, held)), tuple(foreign(wanted, held)), refused)


def refused_frames(ports: SwitchPorts, body: bytes) -> dict[int, int]:
    """Frames dropped by the source check, by the server's place, from an OFPMP_FLOW reply body.

    Such frames have a tag, or a MAC address other than the server's. Only the rules of the source
    check are read: a table has thousands of other rules.
    """
    place = {number: place for place, number in enumerate(ports.servers)} | {ports.host: 0}
    found: dict[int, int] = {}
    for cookie, priority in _REFUSING:
        at = body.find(cookie)
        while at >= 0:
            start = at - _COOKIE_AT
            if start >= 0 and len(body) >= start + _IN_PORT_ENTRY.size:
                _, table, own_priority, packets, field, port = _IN_PORT_ENTRY.unpack_from(
                    body, start
                )
                here = (table, own_priority, field) == (Table.INGRESS, priority, _IN_PORT)
                if here and port in place:
                    found[place[port]] = found.get(place[port], 0) + packets
            at = body.find(cookie, at + 1)
    return found


def _of_an_experiment(rule: HeldRule) -> bool:
    return _kind(rule) is RuleKind.EMULATED_CIRCUIT


def _kind(rule: HeldRule) -> RuleKind | None:
    return _KIND_BY_NUMBER.get(rule.cookie >> 48 & 0xFF) if rule.ours else None


def held_relays(ports: SwitchPorts, body: bytes) -> list[FlowRule]:
    """Relay rules in an OFPMP_FLOW reply body, with their matches, without their actions.

    A port without a plane appears by its number. Raises MalformedReplyError.
    """
    if _RELAY not in body:
        return []
    found: list[FlowRule] = []
    for (_, _, fields), rule in decode_rules(body).items():
        if _kind(rule) is RuleKind.TOR_RELAY:
            values = {head[:4]: int.from_bytes(head[4:], "big") for head in fields}
            number, label = values.get(_IN_PORT_HEAD, 0), values.get(_VLAN_VID_HEAD, 0)
            wired = number in ports.wired
            port = wired_port(ports.wired.index(number)) if wired else number
            found.append(FlowRule(RuleKind.TOR_RELAY, (port, label, 0)))
    return found


def rule_drift(device: str, intended: RuleTable, held: RuleTable) -> Iterator[Drift]:
    """Missing rules, surplus rules, and rules with other instructions."""
    for key in sorted(intended.keys() | held.keys(), key=lambda key: (*key[:2], sorted(key[2]))):
        want, have = intended.get(key), held.get(key)
        if have is None and want is not None:
            yield Drift(
                kind=DriftKind.RULE,
                device=device,
                subject=_subject(key, want),
                intended="installed",
                actual=NOTHING,
            )
        elif want is None and have is not None and not _of_an_experiment(have):
            yield Drift(
                kind=DriftKind.RULE,
                device=device,
                subject=_subject(key, have),
                intended=NOTHING,
                actual="installed",
            )
        elif want is not None and have is not None and want.instructions != have.instructions:
            yield Drift(
                kind=DriftKind.RULE,
                device=device,
                subject=_subject(key, want),
                intended="installed",
                actual="other actions",
            )


def foreign(intended: RuleTable, held: RuleTable) -> list[RemoveByCookie]:
    """Changes that remove rules added by other programs."""
    cookies = {rule.cookie for key, rule in held.items() if key not in intended and not rule.ours}
    return [RemoveByCookie(cookie, _EVERY_BIT) for cookie in sorted(cookies)]


def _subject(key: RuleKey, rule: HeldRule) -> str:
    number, priority, _ = key
    names = {table.value: table.name.lower() for table in Table}
    kind = _kind(rule)
    what = f"cookie {rule.cookie:#x}" if kind is None else kind.name.lower().replace("_", "-")
    return f"table {names.get(number, number)}, priority {priority}, {what}"
