"""The vswitch pipeline: which rules a server's switch holds, as data.

Five tables; a packet from the host walks them in order:

====== ============ =====================================================================
table  name         holds
====== ============ =====================================================================
0      ingress      own unicast in; broadcast, ARP and IPv6 ND electrical; own rack local
1      account      one rule per destination prefix: counts the demand, names the rack
2      divert       substep 3-1: affected destination racks go electrical
3      class        which traffic may use circuits
4      circuits     destination rack to VLAN and optical uplink; otherwise electrical
====== ============ =====================================================================

The account table writes the destination rack into the OpenFlow ``metadata`` field, so later tables
need one rule per rack however many prefixes the rack has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from ipaddress import IPv4Interface, IPv4Network, IPv6Network
from typing import Final

from hydra.model import Fabric, NetworkState, RackId, Server, VlanId

PROBE_ETHERTYPE: Final = 0x88B5
"""IEEE 802 local experimental ethertype 1: circuit probes."""
ANNOUNCE_ETHERTYPE: Final = 0x88B6
"""IEEE 802 local experimental ethertype 2: announcements of host addresses."""

COOKIE_TAG: Final = 0x48  # 'H': the top byte of every cookie that is ours
COOKIE_TAG_MASK: Final = 0xFF << 56


class Table(IntEnum):
    INGRESS = 0
    ACCOUNT = 1
    DIVERT = 2
    CLASS = 3
    CIRCUITS = 4


# --- the vocabulary of a rule's shape -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arg:
    """A place in a shape that each rule fills from its own ``args``."""

    index: int


Value = int | Arg


@dataclass(frozen=True, slots=True)
class Field:
    """One OXM match field; ``mask`` only where the field is maskable."""

    name: str
    value: Value
    mask: Value | None = None


@dataclass(frozen=True, slots=True)
class Output:
    port: Value


@dataclass(frozen=True, slots=True)
class ToController:
    max_len: int = 0xFFFF


@dataclass(frozen=True, slots=True)
class PushVlan:
    vlan: Value
    """VLAN-ID 1..4094; the encoder adds OFPVID_PRESENT."""


@dataclass(frozen=True, slots=True)
class PopVlan:
    pass


Action = Output | ToController | PushVlan | PopVlan


@dataclass(frozen=True, slots=True)
class Shape:
    """What all rules of one kind have in common."""

    table: Table
    priority: int
    match: tuple[Field, ...] = ()
    actions: tuple[Action, ...] = ()
    goto: Table | None = None
    write_metadata: Value | None = None


class RuleKind(Enum):
    """Every kind of rule there is; the value goes into the cookie."""

    UPLINK_TAGGED = 1
    UPLINK_UNTAGGED = 2
    UPLINK_PROBE = 3
    UPLINK_DROP = 4
    ELECTRICAL_UNICAST = 5
    ELECTRICAL_ANNOUNCE_DROP = 6
    ELECTRICAL_GROUP = 7
    HOST_GROUP = 8
    HOST_ARP = 9
    HOST_ND = 10
    OWN_RACK_V4 = 11
    OWN_RACK_V6 = 12
    OWN_RACK_HOST_V4 = 13
    OWN_RACK_HOST_V6 = 14
    HOST_V4 = 15
    HOST_V6 = 16
    HOST_OTHER = 17
    ACCOUNT_V4 = 20
    ACCOUNT_V6 = 21
    ACCOUNT_OTHER = 22
    DIVERT = 30
    DIVERT_HOST_V4 = 31
    DIVERT_HOST_V6 = 32
    DIVERT_ALL = 33
    DIVERT_NONE = 34
    CLASS_ALL = 40
    CIRCUIT = 50
    CIRCUIT_NONE = 51


_GROUP_BIT = 0x010000000000
_IPV4, _IPV6, _ARP = 0x0800, 0x86DD, 0x0806
_VLAN_PRESENT = 0x1000
_ND_ICMPV6 = 58

# Arguments are documented beside each shape, in order.
SHAPES: Final[Mapping[RuleKind, Shape]] = {
    # -- from the optical uplink: (uplink, mac, host)
    RuleKind.UPLINK_PROBE: Shape(
        Table.INGRESS,
        410,
        # (uplink, mac)
        (Field("in_port", Arg(0)), Field("eth_dst", Arg(1)), Field("eth_type", PROBE_ETHERTYPE)),
        (ToController(),),
    ),
    RuleKind.UPLINK_TAGGED: Shape(
        Table.INGRESS,
        400,
        (
            Field("in_port", Arg(0)),
            Field("eth_dst", Arg(1)),
            Field("vlan_vid", _VLAN_PRESENT, _VLAN_PRESENT),
        ),
        (PopVlan(), Output(Arg(2))),
    ),
    RuleKind.UPLINK_UNTAGGED: Shape(
        Table.INGRESS,
        390,
        (Field("in_port", Arg(0)), Field("eth_dst", Arg(1)), Field("vlan_vid", 0)),
        (Output(Arg(2)),),
    ),
    RuleKind.UPLINK_DROP: Shape(Table.INGRESS, 380, (Field("in_port", Arg(0)),)),  # (uplink,)
    # -- from the electrical uplink
    RuleKind.ELECTRICAL_ANNOUNCE_DROP: Shape(
        Table.INGRESS,
        350,
        (Field("in_port", Arg(0)), Field("eth_type", ANNOUNCE_ETHERTYPE)),  # (electrical,)
    ),
    RuleKind.ELECTRICAL_UNICAST: Shape(
        Table.INGRESS,
        340,
        (Field("in_port", Arg(0)), Field("eth_dst", Arg(1))),  # (electrical, mac, host)
        (Output(Arg(2)),),
    ),
    RuleKind.ELECTRICAL_GROUP: Shape(
        Table.INGRESS,
        330,
        (Field("in_port", Arg(0)), Field("eth_dst", _GROUP_BIT, _GROUP_BIT)),  # (electrical, host)
        (Output(Arg(1)),),
    ),
    # -- from the host: (host, electrical)
    RuleKind.HOST_GROUP: Shape(
        Table.INGRESS,
        320,
        (Field("in_port", Arg(0)), Field("eth_dst", _GROUP_BIT, _GROUP_BIT)),
        (Output(Arg(1)),),
    ),
    RuleKind.HOST_ARP: Shape(
        Table.INGRESS,
        310,
        (Field("in_port", Arg(0)), Field("eth_type", _ARP)),
        (Output(Arg(1)),),
    ),
    # (host, icmpv6 type, electrical)
    RuleKind.HOST_ND: Shape(
        Table.INGRESS,
        300,
        (
            Field("in_port", Arg(0)),
            Field("eth_type", _IPV6),
            Field("ip_proto", _ND_ICMPV6),
            Field("icmpv6_type", Arg(1)),
        ),
        (Output(Arg(2)),),
    ),
    # a neighbour in this rack whose optical uplink is dead: (host, address, electrical)
    RuleKind.OWN_RACK_HOST_V4: Shape(
        Table.INGRESS,
        260,
        (Field("in_port", Arg(0)), Field("eth_type", _IPV4), Field("ipv4_dst", Arg(1))),
        (Output(Arg(2)),),
    ),
    RuleKind.OWN_RACK_HOST_V6: Shape(
        Table.INGRESS,
        260,
        (Field("in_port", Arg(0)), Field("eth_type", _IPV6), Field("ipv6_dst", Arg(1))),
        (Output(Arg(2)),),
    ),
    # (host, prefix, netmask, port): the ToR, or electrical while the own uplink is dead
    RuleKind.OWN_RACK_V4: Shape(
        Table.INGRESS,
        250,
        (Field("in_port", Arg(0)), Field("eth_type", _IPV4), Field("ipv4_dst", Arg(1), Arg(2))),
        (Output(Arg(3)),),
    ),
    RuleKind.OWN_RACK_V6: Shape(
        Table.INGRESS,
        250,
        (Field("in_port", Arg(0)), Field("eth_type", _IPV6), Field("ipv6_dst", Arg(1), Arg(2))),
        (Output(Arg(3)),),
    ),
    RuleKind.HOST_V4: Shape(
        Table.INGRESS,
        200,
        (Field("in_port", Arg(0)), Field("eth_type", _IPV4)),  # (host,)
        goto=Table.ACCOUNT,
    ),
    RuleKind.HOST_V6: Shape(
        Table.INGRESS,
        200,
        (Field("in_port", Arg(0)), Field("eth_type", _IPV6)),  # (host,)
        goto=Table.ACCOUNT,
    ),
    RuleKind.HOST_OTHER: Shape(
        Table.INGRESS,
        100,
        (Field("in_port", Arg(0)),),  # (host, electrical)
        (Output(Arg(1)),),
    ),
    # -- account: (prefix, netmask, destination rack)
    RuleKind.ACCOUNT_V4: Shape(
        Table.ACCOUNT,
        100,
        (Field("eth_type", _IPV4), Field("ipv4_dst", Arg(0), Arg(1))),
        goto=Table.DIVERT,
        write_metadata=Arg(2),
    ),
    RuleKind.ACCOUNT_V6: Shape(
        Table.ACCOUNT,
        100,
        (Field("eth_type", _IPV6), Field("ipv6_dst", Arg(0), Arg(1))),
        goto=Table.DIVERT,
        write_metadata=Arg(2),
    ),
    # outside every rack: (electrical,)
    RuleKind.ACCOUNT_OTHER: Shape(Table.ACCOUNT, 0, actions=(Output(Arg(0)),)),
    # -- divert
    # the own optical uplink is dead: (electrical,)
    RuleKind.DIVERT_ALL: Shape(Table.DIVERT, 300, actions=(Output(Arg(0)),)),
    # a remote host whose optical uplink is dead: (address, electrical)
    RuleKind.DIVERT_HOST_V4: Shape(
        Table.DIVERT,
        200,
        (Field("eth_type", _IPV4), Field("ipv4_dst", Arg(0))),
        (Output(Arg(1)),),
    ),
    RuleKind.DIVERT_HOST_V6: Shape(
        Table.DIVERT,
        200,
        (Field("eth_type", _IPV6), Field("ipv6_dst", Arg(0))),
        (Output(Arg(1)),),
    ),
    # substep 3-1: (rack metadata, electrical)
    RuleKind.DIVERT: Shape(
        Table.DIVERT, 100, (Field("metadata", Arg(0)),), (Output(Arg(1)),)
    ),
    RuleKind.DIVERT_NONE: Shape(Table.DIVERT, 0, goto=Table.CLASS),
    # -- class
    RuleKind.CLASS_ALL: Shape(Table.CLASS, 0, goto=Table.CIRCUITS),
    # -- circuits: (rack metadata, vlan, uplink) and (electrical,)
    RuleKind.CIRCUIT: Shape(
        Table.CIRCUITS,
        100,
        (Field("metadata", Arg(0)),),
        (PushVlan(Arg(1)), Output(Arg(2))),
    ),
    RuleKind.CIRCUIT_NONE: Shape(Table.CIRCUITS, 0, actions=(Output(Arg(0)),)),
}
