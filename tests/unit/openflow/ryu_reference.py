"""Ryu's encoder and parser of rules and messages, which share no code with HydRA's."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from apps.openflow.package import (
    nicira_ext,
    ofproto_parser,
    ofproto_protocol,
    ofproto_v1_3,
    ofproto_v1_3_parser,
)
from drivers.codecs.openflow.rules import SwitchPorts
from hydra.forwarding.match_action import (
    Action,
    Arg,
    EndOnFin,
    Output,
    PassProtected,
    PickPath,
    Port,
    PushVlan,
    SetDscp,
    SetPath,
    ToController,
    server_port,
    wired_port,
)
from hydra.forwarding.pipeline import PATH_REGISTER, SHAPES
from hydra.forwarding.rules import FlowRule

DATAPATH = ofproto_protocol.ProtocolDesc(version=4)


def split(data: bytes) -> Iterator[bytes]:
    """The OpenFlow messages in ``data``, to the last byte."""
    while data:
        (length,) = struct.unpack_from("!H", data, 2)
        assert 8 <= length <= len(data)
        yield data[:length]
        data = data[length:]


def parse(message: bytes) -> Any:
    """Ryu's object for a message."""
    version, kind, length, xid = ofproto_parser.header(message)
    return ofproto_parser.msg(DATAPATH, version, kind, length, xid, bytearray(message))


def normal(message: Any) -> dict[str, Any]:
    """A parsed message as plain data, its match fields in alphabetical order."""
    fields = message.to_jsondict()
    for body in fields.values():
        if "match" in body:
            body["match"]["OFPMatch"]["oxm_fields"].sort(key=lambda f: f["OXMTlv"]["field"])
            body["match"]["OFPMatch"].pop("length", None)
    return fields


def _human(name: str, value: int) -> int | str:
    if name == "eth_dst":
        return value.to_bytes(6, "big").hex(":")
    if name in {"ipv4_src", "ipv4_dst"}:
        return str(IPv4Address(value))
    if name in {"ipv6_src", "ipv6_dst"}:
        return str(IPv6Address(value))
    return value


def _actions(
    action: Action,
    number: Callable[[int | Arg], int],
    ports: SwitchPorts,
    real: Mapping[int, int],
) -> Iterator[Any]:
    parser, proto = ofproto_v1_3_parser, ofproto_v1_3
    if isinstance(action, Output):
        port = number(action.port)
        for one in ports.servers if port == Port.SERVERS else (real[port],):
            yield parser.OFPActionOutput(one, 0)
    elif isinstance(action, ToController):
        yield parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)
    elif isinstance(action, PushVlan):
        yield parser.OFPActionPushVlan(0x8100)
        yield parser.OFPActionSetField(vlan_vid=number(action.vlan) | proto.OFPVID_PRESENT)
    elif isinstance(action, SetDscp):
        yield parser.OFPActionSetField(ip_dscp=action.codepoint)
    elif isinstance(action, PickPath):
        yield parser.NXActionMultipath(
            fields=2,  # NX_HASH_FIELDS_SYMMETRIC_L3L4, newer than Ryu
            basis=action.basis,
            algorithm=nicira_ext.NX_MP_ALG_HRW,
            max_link=number(action.last),
            arg=0,
            ofs_nbits=nicira_ext.ofs_nbits(0, 31),
            dst=PATH_REGISTER,
        )
    elif isinstance(action, SetPath):
        yield parser.OFPActionSetField(**{PATH_REGISTER: number(action.number)})
    elif isinstance(action, PassProtected):
        if ports.protected:
            yield parser.OFPActionSetField(in_port_nxm=proto.OFPP_CONTROLLER & 0xFFFF)
    elif isinstance(action, EndOnFin):
        yield parser.NXActionFinTimeout(fin_idle_timeout=0, fin_hard_timeout=1)
    else:
        yield parser.OFPActionPopVlan()


def flow_mod(rule: FlowRule, ports: SwitchPorts, command: int) -> Any:
    """The same rule, built from Ryu's own classes and serialised by Ryu."""
    shape, parser, proto = SHAPES[rule.kind], ofproto_v1_3_parser, ofproto_v1_3
    real = {
        Port.HOST: ports.host,
        Port.OPTICAL: ports.optical,
        Port.ELECTRICAL: ports.electrical,
        Port.NORMAL: proto.OFPP_NORMAL,
        **{server_port(place): number for place, number in enumerate(ports.servers)},
        **{wired_port(place): number for place, number in enumerate(ports.wired)},
    }

    def number(value: int | Arg) -> int:
        return rule.args[value.index] if isinstance(value, Arg) else value

    fields: dict[str, Any] = {}
    for field in shape.match:
        value = _human(field.name, number(field.value))
        if field.name == "in_port":
            value = real[number(field.value)]
        mask = None if field.mask is None else _human(field.name, number(field.mask))
        fields[field.name] = value if mask is None else (value, mask)
    actions = [one for action in shape.actions for one in _actions(action, number, ports, real)]
    instructions: list[Any] = []
    if shape.meter is not None:
        instructions.append(parser.OFPInstructionMeter(number(shape.meter)))
    if actions:
        kind = proto.OFPIT_APPLY_ACTIONS
        instructions.append(parser.OFPInstructionActions(kind, actions))
    if shape.write_metadata is not None:
        metadata = number(shape.write_metadata)
        instructions.append(parser.OFPInstructionWriteMetadata(metadata, 2**64 - 1))
    if shape.goto is not None:
        instructions.append(parser.OFPInstructionGotoTable(shape.goto))
    adding = command == proto.OFPFC_ADD
    return parser.OFPFlowMod(
        DATAPATH,
        cookie=rule.cookie if adding else 0,
        table_id=shape.table,
        command=command,
        priority=shape.priority,
        flags=proto.OFPFF_SEND_FLOW_REM if adding and shape.reports_end else 0,
        out_port=proto.OFPP_ANY,
        out_group=proto.OFPG_ANY,
        match=parser.OFPMatch(**fields),
        instructions=instructions if adding else [],
    )


def serialised(message: Any, xid: int) -> bytes:
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)
