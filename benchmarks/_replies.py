"""Statistics replies in the form of Open vSwitch, made from HydRA's rules.

``tests/integration/test_statistics_replies.py`` compares the replies with a real switch's, byte for
byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from drivers.codecs.openflow.messages import MULTIPART_FLOW, TYPE_MULTIPART_REPLY, encode
from drivers.codecs.openflow.rules import SwitchPorts, encode_changes
from hydra.forwarding.match_action import Table
from hydra.forwarding.pipeline import SHAPES
from hydra.forwarding.rules import FlowRule, Install
from hydra.forwarding.substrate import substrate_of
from hydra.model import Fabric, NetworkState, Server

PORTS: Final = SwitchPorts(host=1, optical=2, electrical=3)
_ENTRY: Final = struct.Struct("!HBxIIHHHHxxxxQQQ")
_FLOW_MOD_HEAD: Final = 48
"""OpenFlow header and fixed part of a flow-mod; match and instructions follow, as in an entry."""
_FLAGS: Final = struct.Struct("!H")
_FLAGS_AT: Final = 44
"""Offset in a flow-mod."""
_LARGEST_MESSAGE: Final = 0xFFFF
_MULTIPART_HEAD: Final = 16
_MORE: Final = 1


def account_rules(fabric: Fabric, server: Server) -> list[FlowRule]:
    """Rules of a vswitch that count by destination rack; rules with the same mask are adjacent."""
    rules = substrate_of(fabric).rules(server.vswitch.datapath_id, NetworkState(), ())
    counting = [rule for rule in rules if SHAPES[rule.kind].table == Table.ACCOUNT]
    return sorted(counting, key=lambda rule: rule.kind.value)


def flow_entry(rule: FlowRule, age_ns: int, packets: int, octets: int) -> bytes:
    """The entry of a rule in a flow statistics reply."""
    shape = SHAPES[rule.kind]
    mod = encode_changes([Install(rule)], PORTS, 0, None)
    (flags,) = _FLAGS.unpack_from(mod, _FLAGS_AT)
    tail = mod[_FLOW_MOD_HEAD:]
    seconds, nanoseconds = divmod(age_ns, 10**9)
    head = _ENTRY.pack(
        _ENTRY.size + len(tail), shape.table, seconds, nanoseconds, shape.priority, 0, 0, flags,
        rule.cookie, packets, octets,
    )  # fmt: skip
    return head + tail


def flow_bodies(entries: Iterable[bytes]) -> list[bytes]:
    """Bodies of the messages: each has as many entries as fit."""
    bodies = [bytearray()]
    for entry in entries:
        if _MULTIPART_HEAD + len(bodies[-1]) + len(entry) > _LARGEST_MESSAGE:
            bodies.append(bytearray())
        bodies[-1] += entry
    return [bytes(body) for body in bodies]


def multipart_reply(kind: int, bodies: Sequence[bytes], xid: int) -> bytes:
    """All messages of a reply."""
    last = len(bodies) - 1
    return b"".join(
        encode(
            TYPE_MULTIPART_REPLY, xid, struct.pack("!HHxxxx", kind, _MORE * (part < last)) + body
        )
        for part, body in enumerate(bodies)
    )


def flow_reply(entries: Iterable[bytes], xid: int) -> bytes:
    return multipart_reply(MULTIPART_FLOW, flow_bodies(entries), xid)
