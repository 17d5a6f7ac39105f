"""The same messages by Ryu's own classes, for comparison."""

from __future__ import annotations

from collections.abc import Sequence

from apps.openflow.package import ofproto_protocol
from apps.openflow.package import ofproto_v1_3 as proto
from apps.openflow.package import ofproto_v1_3_parser as parser
from hydra.forwarding.pipeline import SHAPES
from hydra.forwarding.rules import FlowRule

DATAPATH = ofproto_protocol.ProtocolDesc(version=proto.OFP_VERSION)


def encode_circuit_rules(rules: Sequence[FlowRule], optical_port: int, xid: int) -> bytes:
    """Flow-mods for rules of a kind; the arguments are a rack's metadata and a VLAN."""
    parts = []
    for rule in rules:
        shape = SHAPES[rule.kind]
        metadata, vlan = rule.args
        actions = [
            parser.OFPActionPushVlan(),
            parser.OFPActionSetField(vlan_vid=vlan | proto.OFPVID_PRESENT),
            parser.OFPActionOutput(optical_port, 0),
        ]
        message = parser.OFPFlowMod(
            DATAPATH,
            cookie=rule.cookie,
            table_id=shape.table,
            priority=shape.priority,
            out_port=proto.OFPP_ANY,
            out_group=proto.OFPG_ANY,
            match=parser.OFPMatch(metadata=metadata),
            instructions=[parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, actions)],
        )
        message.set_xid(xid)
        message.serialize()
        parts.append(bytes(message.buf))
    return b"".join(parts)


def decode_flow_stats(body: bytes) -> list[tuple[int, int, int]]:
    """(cookie, packets, bytes) of every entry of a reply."""
    counters = []
    offset = 0
    while offset < len(body):
        entry = parser.OFPFlowStats.parser(body, offset)
        counters.append((entry.cookie, entry.packet_count, entry.byte_count))
        offset += entry.length
    return counters
