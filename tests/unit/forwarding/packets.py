"""A model of a vswitch by OpenFlow 1.3, to test rules with single packets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from hydra.forwarding.match_action import (
    Arg,
    Field,
    Output,
    PassProtected,
    PickPath,
    PopVlan,
    Port,
    PushVlan,
    SetDscp,
    SetPath,
    Shape,
    Table,
    server_port,
)
from hydra.forwarding.pipeline import PATH_REGISTER, SHAPES
from hydra.forwarding.rules import FlowRule, mac_as_int
from hydra.model import Server

VLAN_PRESENT = 0x1000
IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806


@dataclass(frozen=True)
class Packet:
    fields: Mapping[str, int]
    vlan: int | None = None

    def value(self, name: str) -> int | None:
        if name == "vlan_vid":
            return 0 if self.vlan is None else VLAN_PRESENT | self.vlan
        return self.fields.get(name)


_FLOWS = 4
"""With another basis, consecutive flows would pick alike: here their hash is the number."""
CONTROLLER = "controller"
Emitted = tuple[int | str, int | None]
"""(port, VLAN)"""


def packet(dst: Server | int, eth_type: int = IPV4, vlan: int | None = None, **fields) -> Packet:
    """To a server, by its first address of the family; or to a MAC address."""
    if isinstance(dst, Server):
        fields |= {"eth_dst": mac_as_int(dst.mac)}
        version = {IPV4: 4, IPV6: 6}.get(eth_type)
        for interface in dst.addresses:
            if interface.version == version:
                fields[f"ipv{version}_dst"] = int(interface.ip)
    else:
        fields["eth_dst"] = dst
    return Packet({"eth_type": eth_type, **fields}, vlan)


def sent_by(server: Server, sent: Packet) -> Packet:
    """The packet, with the server's MAC address as its source unless another is set."""
    return replace(sent, fields={"eth_src": mac_as_int(server.mac), **sent.fields})


def forward(
    rules: Collection[FlowRule],
    sent: Packet,
    in_port: int,
    one_uplink: bool = False,
    servers: int = 0,
    passed: list[FlowRule] | None = None,
) -> list[Emitted]:
    """The frames that leave the switch.

    With ``one_uplink``, both uplink names mean the same port; a ToR has this number of ``servers``.
    Matching rules are added to ``passed``.
    """

    def port(number: int) -> int:
        return Port.OPTICAL if one_uplink and number == Port.ELECTRICAL else number

    out: list[Emitted] = []
    metadata = path = 0
    table: Table | None = Table.INGRESS
    while table is not None:
        known = {**sent.fields, "metadata": metadata, PATH_REGISTER: path, "in_port": port(in_port)}
        rule = _best(rules, table, replace(sent, fields=known), port)
        if rule is None:
            return out
        if passed is not None:
            passed.append(rule)
        shape = SHAPES[rule.kind]
        for action in shape.actions:
            if isinstance(action, PushVlan):
                assert sent.vlan is None, "a second tag"
                sent = replace(sent, vlan=_number(action.vlan, rule))
            elif isinstance(action, PopVlan):
                assert sent.vlan is not None, "no tag to take off"
                sent = replace(sent, vlan=None)
            elif action == Output(Port.SERVERS):
                every = map(server_port, range(servers))
                out += [(number, sent.vlan) for number in every if number != in_port]
            elif isinstance(action, Output):
                number = port(_number(action.port, rule))
                assert number != port(in_port), "back where it came from"
                out.append((number, sent.vlan))
            elif isinstance(action, SetDscp):
                assert sent.fields["eth_type"] in {IPV4, IPV6}, "no IP packet to mark"
                sent = replace(sent, fields={**sent.fields, "ip_dscp": action.codepoint})
            elif isinstance(action, PickPath | SetPath):
                path = _path(action, sent, rule)
            elif not isinstance(action, PassProtected):
                out.append((CONTROLLER, sent.vlan))
        if shape.write_metadata is not None:
            metadata = _number(shape.write_metadata, rule)
        table = shape.goto
    return out


def _path(action: PickPath | SetPath, sent: Packet, rule: FlowRule) -> int:
    if isinstance(action, SetPath):
        return _number(action.number, rule)
    return sent.fields["flow"] // _FLOWS**action.basis % (_number(action.last, rule) + 1)


def _number(value: int | Arg, rule: FlowRule) -> int:
    return rule.args[value.index] if isinstance(value, Arg) else int(value)


def _best(rules, table, seen, port) -> FlowRule | None:
    found = [
        rule
        for rule in rules
        if SHAPES[rule.kind].table is table and _matches(SHAPES[rule.kind], rule, seen, port)
    ]
    if not found:
        return None
    first = max(SHAPES[rule.kind].priority for rule in found)
    (rule,) = (rule for rule in found if SHAPES[rule.kind].priority == first)
    return rule


def _matches(shape: Shape, rule: FlowRule, seen: Packet, port) -> bool:
    return all(_field_matches(field, rule, seen, port) for field in shape.match)


def _field_matches(field: Field, rule: FlowRule, seen: Packet, port) -> bool:
    value = seen.value(field.name)
    wanted = _number(field.value, rule)
    if field.name == "in_port":
        return value == port(wanted)
    if value is None:
        return False
    mask = -1 if field.mask is None else _number(field.mask, rule)
    return value & mask == wanted & mask
