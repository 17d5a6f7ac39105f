"""The pipeline: the rules of a steering switch, as data.

A packet from a server traverses seven tables in order; an eighth table serves the controller:

====== ============ =====================================================================
table  name         holds
====== ============ =====================================================================
0      ingress      own unicast in; from a server, its own MAC addresses and no tags
1      account      broadcast, ARP and IPv6 ND electrical; own rack local; one rule per destination
                    prefix: counts the demand, names the rack
2      divert       substep 3-1: affected racks go electrical; splits flows for spilling
3      class        reserved traffic (hydra/sharing/policing.py), with a path if there are several;
                    other traffic that may use circuits
4      best effort  limits traffic beside reservations; spilled traffic goes electrical
5      circuits     destination rack to VLAN and optical uplink; otherwise electrical
6      spread       destination racks with several paths: picks a path and its VLAN
7      rounds       rules whose expiry signals that all cached flows were revalidated
====== ============ =====================================================================

The account table writes the destination rack into the OpenFlow ``metadata`` field, so later tables
need a single rule per rack, however many prefixes the rack has. Ports are symbolic
(:class:`~hydra.forwarding.match_action.Port`, :func:`~hydra.forwarding.match_action.server_port`,
:func:`~hydra.forwarding.match_action.wired_port`): the encoder fills in the numbers of each switch,
so the same rule fits all switches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from hydra.forwarding.match_action import (
    Arg,
    EndOnFin,
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
    ToController,
    Value,
)

PROBE_ETHERTYPE: Final = 0x88B5
"""IEEE 802 local experimental ethertype 1: circuit probes."""
ANNOUNCE_ETHERTYPE: Final = 0x88B6
"""IEEE 802 local experimental ethertype 2: announcements of host addresses."""


class RuleKind(Enum):
    """Every kind of rule; the value is a part of the cookie."""

    __hash__ = object.__hash__  # fast: kinds are keys of most rule dicts; Enum hashes in Python

    UPLINK_PROBE = 1
    UPLINK_TAGGED = 2
    UPLINK_UNTAGGED = 3
    UPLINK_DROP = 4
    ELECTRICAL_ANNOUNCE_DROP = 5
    ELECTRICAL_UNICAST = 6
    ELECTRICAL_GROUP = 7
    HOST_GROUP = 8
    HOST_ARP = 9
    HOST_ND = 10
    OWN_RACK_HOST_V4 = 11
    OWN_RACK_HOST_V6 = 12
    OWN_RACK_GUEST = 90
    OWN_RACK_V4 = 13
    OWN_RACK_V6 = 14
    PORT_ANY = 15
    PORT_MARKED_V4 = 24
    PORT_MARKED_V6 = 25
    PORT_OWN = 26
    PORT_OWN_MARKED_V4 = 27
    PORT_OWN_MARKED_V6 = 28
    PORT_FOREIGN = 29
    PORT_ARP = 35
    PORT_ND_ADVERTISED = 36
    PORT_ND_SOLICITING = 49
    PORT_ARP_FOREIGN = 58
    PORT_ND_FOREIGN = 59
    UPLINK_ANNOUNCE_DROP = 18
    UPLINK_GROUP = 19
    ACCOUNT_V4 = 20
    ACCOUNT_V6 = 21
    ACCOUNT_OTHER = 22
    DIVERT_ALL = 30
    DIVERT_HOST_V4 = 31
    DIVERT_HOST_V6 = 32
    DIVERT_GUEST = 91
    DIVERT = 33
    DIVERT_NONE = 34
    CLASS_ELEPHANT_V4 = 37
    CLASS_ELEPHANT_V6 = 38
    CLASS_MICE = 39
    CLASS_ALL = 40
    SPILL_PICK = 88
    SPILL = 89
    CIRCUIT = 50
    CIRCUIT_NONE = 51
    EMULATED_CIRCUIT = 52
    TOR_CIRCUIT = 53
    SPREAD = 54
    SPREAD_PATH = 55
    SPREAD_NONE = 56
    TOR_SPREAD_PATH = 57
    TOR_NORMAL = 60
    TOR_TAGGED_DROP = 61
    TOR_PROBE = 63
    TOR_ARRIVAL = 64
    TOR_WIRED_DROP = 65
    TOR_LOCAL = 66
    TOR_ELECTRICAL_GROUP = 67
    TOR_ELECTRICAL_DROP = 68
    TOR_GROUP = 69
    RESERVED_V4 = 41
    RESERVED_V6 = 42
    RESERVED_HOST_V4 = 43
    RESERVED_HOST_V6 = 44
    BEST_EFFORT_V4 = 45
    BEST_EFFORT_V6 = 46
    BEST_EFFORT_ELECTRICAL = 47
    BEST_EFFORT_ALL = 48
    TOR_RESERVED_V4 = 81
    TOR_RESERVED_V6 = 82
    TOR_RESERVED_HOST_V4 = 83
    TOR_RESERVED_HOST_V6 = 84
    TOR_BEST_EFFORT_V4 = 85
    TOR_BEST_EFFORT_V6 = 86
    TOR_BEST_EFFORT_ELECTRICAL = 87
    RESERVED_ON_PATH_V4 = 92
    RESERVED_ON_PATH_V6 = 93
    RESERVED_HOST_ON_PATH_V4 = 94
    RESERVED_HOST_ON_PATH_V6 = 95
    TOR_RESERVED_ON_PATH_V4 = 96
    TOR_RESERVED_ON_PATH_V6 = 97
    TOR_RESERVED_HOST_ON_PATH_V4 = 98
    TOR_RESERVED_HOST_ON_PATH_V6 = 99
    # Kinds from 0x70 to 0x7f count the delivered traffic of reservations.
    DELIVERED_V4 = 0x70
    DELIVERED_V6 = 0x71
    DELIVERED_HOST_V4 = 0x72
    DELIVERED_HOST_V6 = 0x73
    TOR_DELIVERED_V4 = 0x74
    TOR_DELIVERED_V6 = 0x75
    TOR_DELIVERED_HOST_V4 = 0x76
    TOR_DELIVERED_HOST_V6 = 0x77
    # The renewal of tables spares kinds from 0x80 on.
    ROUND = 0x80
    TOR_RELAY = 0x81


PATH_REGISTER: Final = "reg0"
IN_PORT: Final = "in_port"
_GROUP_BIT: Final = 0x010000000000
_IPV4: Final = 0x0800
_IPV6: Final = 0x86DD
_ARP: Final = 0x0806
VLAN_PRESENT: Final = 0x1000
"""Set in the ``vlan_vid`` of every tagged frame (OFPVID_PRESENT)."""
_TCP: Final = 6
_ICMPV6: Final = 58
EXPEDITED: Final = 46
"""Code point of expedited forwarding: departures at or above a configured rate (RFC 3246)."""
ND_TYPES: Final = (133, 134, 135, 136, 137)
"""ICMPv6 types of neighbour discovery (RFC 4861)."""
_SOLICITATION: Final = 135
_ADVERTISEMENT: Final = 136
ND_CLAIMS: Final = (_SOLICITATION, _ADVERTISEMENT)
"""Neighbour discovery types from which neighbours learn the location of an address."""

_FROM_PORT: Final = Field(IN_PORT, Arg(0))
_FROM_OPTICAL: Final = Field(IN_PORT, Port.OPTICAL)
_FROM_ELECTRICAL: Final = Field(IN_PORT, Port.ELECTRICAL)
_GROUP: Final = Field("eth_dst", _GROUP_BIT, _GROUP_BIT)
_ANY_VLAN: Final = Field("vlan_vid", VLAN_PRESENT, VLAN_PRESENT)
_UNTAGGED: Final = Field("vlan_vid", 0)
_OWN: Final = (_FROM_PORT, Field("eth_src", Arg(1)), _UNTAGGED)
_IS_IPV4: Final = Field("eth_type", _IPV4)
_IS_IPV6: Final = Field("eth_type", _IPV6)
_EXPEDITED: Final = Field("ip_dscp", EXPEDITED)
_ELECTRICAL: Final = (Output(Port.ELECTRICAL),)
_TO_HOST: Final = (Output(Port.HOST),)


def _nd(icmpv6_type: Value) -> tuple[Field, ...]:
    return _IS_IPV6, Field("ip_proto", _ICMPV6), Field("icmpv6_type", icmpv6_type)


# The comment beside each kind lists the arguments in order. Kinds for IPv6 are derived from the
# kinds for IPv4.
_SHAPES: Final[dict[RuleKind, Shape]] = {
    # From the optical uplink. (mac,)
    RuleKind.UPLINK_PROBE: Shape(
        Table.INGRESS,
        410,
        (_FROM_OPTICAL, Field("eth_dst", Arg(0)), Field("eth_type", PROBE_ETHERTYPE)),
        (ToController(),),
    ),
    # Counts reserved traffic delivered to this server. (mac, address) or (mac, prefix, netmask)
    RuleKind.DELIVERED_HOST_V4: Shape(
        Table.INGRESS,
        406,
        (_FROM_OPTICAL, Field("eth_dst", Arg(0)), _ANY_VLAN, _IS_IPV4, Field("ipv4_src", Arg(1))),
        (PopVlan(), *_TO_HOST),
    ),
    RuleKind.DELIVERED_V4: Shape(
        Table.INGRESS,
        404,
        (
            _FROM_OPTICAL,
            Field("eth_dst", Arg(0)),
            _ANY_VLAN,
            _IS_IPV4,
            Field("ipv4_src", Arg(1), Arg(2)),
        ),
        (PopVlan(), *_TO_HOST),
    ),
    # (mac,)
    RuleKind.UPLINK_TAGGED: Shape(
        Table.INGRESS,
        400,
        (_FROM_OPTICAL, Field("eth_dst", Arg(0)), _ANY_VLAN),
        (PopVlan(), *_TO_HOST),
    ),
    # (mac,)
    RuleKind.UPLINK_UNTAGGED: Shape(
        Table.INGRESS, 390, (_FROM_OPTICAL, Field("eth_dst", Arg(0)), _UNTAGGED), _TO_HOST
    ),
    # A single uplink to both networks: groups come in as on an electrical uplink. ()
    RuleKind.UPLINK_ANNOUNCE_DROP: Shape(
        Table.INGRESS, 388, (_FROM_OPTICAL, Field("eth_type", ANNOUNCE_ETHERTYPE))
    ),
    # ()
    RuleKind.UPLINK_GROUP: Shape(Table.INGRESS, 385, (_FROM_OPTICAL, _GROUP, _UNTAGGED), _TO_HOST),
    # Announcements, and foreign unicast flooded by a ToR. ()
    RuleKind.UPLINK_DROP: Shape(Table.INGRESS, 380, (_FROM_OPTICAL,)),
    # From the electrical uplink. ()
    RuleKind.ELECTRICAL_ANNOUNCE_DROP: Shape(
        Table.INGRESS, 350, (_FROM_ELECTRICAL, Field("eth_type", ANNOUNCE_ETHERTYPE))
    ),
    # (mac,)
    RuleKind.ELECTRICAL_UNICAST: Shape(
        Table.INGRESS, 340, (_FROM_ELECTRICAL, Field("eth_dst", Arg(0))), _TO_HOST
    ),
    # ()
    RuleKind.ELECTRICAL_GROUP: Shape(Table.INGRESS, 330, (_FROM_ELECTRICAL, _GROUP), _TO_HOST),
    # From a server, untagged and with an own MAC address. (port, mac)
    RuleKind.PORT_OWN: Shape(Table.INGRESS, 300, _OWN, goto=Table.ACCOUNT),
    # ARP and neighbour discovery that claim an own address. (port, mac, address, mask)
    RuleKind.PORT_ARP: Shape(
        Table.INGRESS,
        336,
        (*_OWN, Field("eth_type", _ARP), Field("arp_spa", Arg(2), Arg(3))),
        goto=Table.ACCOUNT,
    ),
    RuleKind.PORT_ND_ADVERTISED: Shape(
        Table.INGRESS,
        334,
        (*_OWN, *_nd(_ADVERTISEMENT), Field("ipv6_nd_target", Arg(2), Arg(3))),
        goto=Table.ACCOUNT,
    ),
    RuleKind.PORT_ND_SOLICITING: Shape(
        Table.INGRESS,
        332,
        (*_OWN, *_nd(_SOLICITATION), Field("ipv6_src", Arg(2), Arg(3))),
        goto=Table.ACCOUNT,
    ),
    # Claims of foreign addresses. (port,) and (port, icmpv6 type)
    RuleKind.PORT_ARP_FOREIGN: Shape(Table.INGRESS, 320, (_FROM_PORT, Field("eth_type", _ARP))),
    RuleKind.PORT_ND_FOREIGN: Shape(Table.INGRESS, 322, (_FROM_PORT, *_nd(Arg(1)))),
    # Other frames from the port. (port,)
    RuleKind.PORT_FOREIGN: Shape(Table.INGRESS, 290, (_FROM_PORT,)),
    # Any frame from a port. (port,)
    RuleKind.PORT_ANY: Shape(Table.INGRESS, 280, (_FROM_PORT,), goto=Table.ACCOUNT),
    # These kinds act like PORT_OWN and PORT_ANY. They make the switch distinguish marked frames,
    # with or without reservations: see docs/decisions/0013. (port, mac)
    RuleKind.PORT_OWN_MARKED_V4: Shape(
        Table.INGRESS, 310, (*_OWN, _IS_IPV4, _EXPEDITED), goto=Table.ACCOUNT
    ),
    # (port,)
    RuleKind.PORT_MARKED_V4: Shape(
        Table.INGRESS, 285, (_FROM_PORT, _IS_IPV4, _EXPEDITED), goto=Table.ACCOUNT
    ),
    # Groups, ARP and neighbour discovery are always electrical. ()
    RuleKind.HOST_GROUP: Shape(Table.ACCOUNT, 320, (_GROUP,), _ELECTRICAL),
    # ()
    RuleKind.HOST_ARP: Shape(Table.ACCOUNT, 310, (Field("eth_type", _ARP),), _ELECTRICAL),
    # (icmpv6 type,)
    RuleKind.HOST_ND: Shape(
        Table.ACCOUNT,
        300,
        _nd(Arg(0)),
        _ELECTRICAL,
    ),
    # A neighbour in this rack with a dead optical uplink. (address,)
    RuleKind.OWN_RACK_HOST_V4: Shape(
        Table.ACCOUNT, 260, (_IS_IPV4, Field("ipv4_dst", Arg(0))), _ELECTRICAL
    ),
    # A guest of such a neighbour: the IP addresses are unknown. (mac,)
    RuleKind.OWN_RACK_GUEST: Shape(Table.ACCOUNT, 270, (Field("eth_dst", Arg(0)),), _ELECTRICAL),
    # Own rack: the ToR, or electrical while the own uplink is dead. (prefix, netmask, port)
    RuleKind.OWN_RACK_V4: Shape(
        Table.ACCOUNT, 250, (_IS_IPV4, Field("ipv4_dst", Arg(0), Arg(1))), (Output(Arg(2)),)
    ),
    # (prefix, netmask, destination rack's metadata)
    RuleKind.ACCOUNT_V4: Shape(
        Table.ACCOUNT,
        100,
        (_IS_IPV4, Field("ipv4_dst", Arg(0), Arg(1))),
        goto=Table.DIVERT,
        write_metadata=Arg(2),
    ),
    # Outside every rack, or not IP. ()
    RuleKind.ACCOUNT_OTHER: Shape(Table.ACCOUNT, 0, actions=_ELECTRICAL),
    # The own optical uplink is dead. ()
    RuleKind.DIVERT_ALL: Shape(Table.DIVERT, 300, actions=_ELECTRICAL),
    # A remote host with a dead optical uplink. (address,)
    RuleKind.DIVERT_HOST_V4: Shape(
        Table.DIVERT, 200, (_IS_IPV4, Field("ipv4_dst", Arg(0))), _ELECTRICAL
    ),
    # A guest of such a host. (mac,)
    RuleKind.DIVERT_GUEST: Shape(Table.DIVERT, 210, (Field("eth_dst", Arg(0)),), _ELECTRICAL),
    # Substep 3-1. (destination rack's metadata,)
    RuleKind.DIVERT: Shape(Table.DIVERT, 100, (Field("metadata", Arg(0)),), _ELECTRICAL),
    # Full circuits: of the hash buckets of a rack's flows, the last goes electrical if circuits are
    # allowed at all. With the hash seed of SPREAD, each bucket would use a subset of the paths, and
    # the paths of the spilled bucket would stay idle. (destination rack's metadata, last bucket)
    RuleKind.SPILL_PICK: Shape(
        Table.DIVERT,
        50,
        (Field("metadata", Arg(0)),),
        (PickPath(Arg(1), basis=1),),
        goto=Table.CLASS,
    ),
    RuleKind.SPILL: Shape(
        Table.BEST_EFFORT,
        120,
        (Field("metadata", Arg(0)), Field(PATH_REGISTER, Arg(1))),
        _ELECTRICAL,
    ),
    # ()
    RuleKind.DIVERT_NONE: Shape(Table.DIVERT, 0, goto=Table.CLASS),
    # Reserved for a single remote server. (destination rack's metadata, address, meter)
    RuleKind.RESERVED_HOST_V4: Shape(
        Table.CLASS,
        300,
        (Field("metadata", Arg(0)), _IS_IPV4, Field("ipv4_dst", Arg(1))),
        (SetDscp(EXPEDITED),),
        goto=Table.CIRCUITS,
        meter=Arg(2),
    ),
    # Reserved for a whole rack. (destination rack's metadata, meter)
    RuleKind.RESERVED_V4: Shape(
        Table.CLASS,
        200,
        (Field("metadata", Arg(0)), _IS_IPV4),
        (SetDscp(EXPEDITED),),
        goto=Table.CIRCUITS,
        meter=Arg(1),
    ),
    # Reserved, if the pair has several paths. (…, number of the path from 0)
    RuleKind.RESERVED_HOST_ON_PATH_V4: Shape(
        Table.CLASS,
        310,
        (Field("metadata", Arg(0)), _IS_IPV4, Field("ipv4_dst", Arg(1))),
        (SetDscp(EXPEDITED), SetPath(Arg(3))),
        goto=Table.SPREAD,
        meter=Arg(2),
    ),
    RuleKind.RESERVED_ON_PATH_V4: Shape(
        Table.CLASS,
        210,
        (Field("metadata", Arg(0)), _IS_IPV4),
        (SetDscp(EXPEDITED), SetPath(Arg(2))),
        goto=Table.SPREAD,
        meter=Arg(1),
    ),
    # A connection with exclusive access to circuits. (address, source and target port)
    RuleKind.CLASS_ELEPHANT_V4: Shape(
        Table.CLASS,
        60,
        (
            _IS_IPV4,
            Field("ip_proto", _TCP),
            Field("ipv4_dst", Arg(0)),
            Field("tcp_src", Arg(1)),
            Field("tcp_dst", Arg(2)),
        ),
        goto=Table.BEST_EFFORT,
    ),
    # All other connections, if circuits are for elephants. ()
    RuleKind.CLASS_MICE: Shape(Table.CLASS, 10, actions=_ELECTRICAL),
    RuleKind.CLASS_ALL: Shape(Table.CLASS, 0, goto=Table.BEST_EFFORT),
    # Beside reservations; clears marks of servers. (destination rack's metadata, meter)
    RuleKind.BEST_EFFORT_V4: Shape(
        Table.BEST_EFFORT,
        100,
        (Field("metadata", Arg(0)), _IS_IPV4),
        (SetDscp(0),),
        goto=Table.CIRCUITS,
        meter=Arg(1),
    ),
    # Reservations leave too little circuit capacity. (destination rack's metadata,)
    RuleKind.BEST_EFFORT_ELECTRICAL: Shape(
        Table.BEST_EFFORT, 110, (Field("metadata", Arg(0)),), _ELECTRICAL
    ),
    # ()
    RuleKind.BEST_EFFORT_ALL: Shape(Table.BEST_EFFORT, 0, goto=Table.CIRCUITS),
    # (destination rack's metadata, vlan)
    RuleKind.CIRCUIT: Shape(
        Table.CIRCUITS,
        100,
        (Field("metadata", Arg(0)),),
        (PushVlan(Arg(1)), Output(Port.OPTICAL)),
    ),
    # Several paths: each flow picks a path. (destination rack's metadata, last path number)
    RuleKind.SPREAD: Shape(
        Table.CIRCUITS,
        110,
        (Field("metadata", Arg(0)),),
        (PickPath(Arg(1)),),
        goto=Table.SPREAD,
    ),
    # (destination rack's metadata, number of the path from 0, vlan)
    RuleKind.SPREAD_PATH: Shape(
        Table.SPREAD,
        100,
        (Field("metadata", Arg(0)), Field(PATH_REGISTER, Arg(1))),
        (PushVlan(Arg(2)), Output(Port.OPTICAL)),
    ),
    # ()
    RuleKind.SPREAD_NONE: Shape(Table.SPREAD, 0, actions=_ELECTRICAL),
    # (number,)
    RuleKind.ROUND: Shape(
        Table.ROUNDS,
        1,
        (_IS_IPV4, Field("ip_proto", _TCP), Field("tcp_dst", Arg(0))),
        (EndOnFin(),),
        reports_end=True,
    ),
    # ()
    RuleKind.CIRCUIT_NONE: Shape(Table.CIRCUITS, 0, actions=_ELECTRICAL),
    # Like CIRCUIT, for racks that do not exist (HydRA section V.B). (metadata, vlan)
    RuleKind.EMULATED_CIRCUIT: Shape(
        Table.CIRCUITS,
        90,
        (Field("metadata", Arg(0)),),
        (PushVlan(Arg(1)), Output(Port.OPTICAL)),
    ),
    # An Open vSwitch ToR forwards as a learning switch. ()
    RuleKind.TOR_NORMAL: Shape(Table.INGRESS, 0, actions=(Output(Port.NORMAL),)),
    # --- A ToR that steers traffic of its servers. ---
    # Labels stay between ToRs: servers and the electrical network send no labels. (in port,)
    RuleKind.TOR_TAGGED_DROP: Shape(Table.INGRESS, 430, (Field(IN_PORT, Arg(0)), _ANY_VLAN)),
    # Relay between racks. (in port, VLAN present and label, out port)
    RuleKind.TOR_RELAY: Shape(
        Table.INGRESS,
        420,
        (Field(IN_PORT, Arg(0)), Field("vlan_vid", Arg(1))),
        (PassProtected(), Output(Arg(2))),
    ),
    # At the end of a path. (mac,)
    RuleKind.TOR_PROBE: Shape(
        Table.INGRESS,
        410,
        (Field("eth_dst", Arg(0)), Field("eth_type", PROBE_ETHERTYPE), _ANY_VLAN),
        (ToController(),),
    ),
    # (mac, server's port)
    RuleKind.TOR_ARRIVAL: Shape(
        Table.INGRESS,
        400,
        (Field("eth_dst", Arg(0)), _ANY_VLAN),
        (PopVlan(), Output(Arg(1))),
    ),
    # Other frames from a plane. (in port,)
    RuleKind.TOR_WIRED_DROP: Shape(Table.INGRESS, 395, (Field(IN_PORT, Arg(0)),)),
    # Untagged, from a neighbour or the electrical network. (mac, server's port)
    RuleKind.TOR_LOCAL: Shape(Table.ACCOUNT, 390, (Field("eth_dst", Arg(0)),), (Output(Arg(1)),)),
    # ()
    RuleKind.TOR_ELECTRICAL_GROUP: Shape(
        Table.ACCOUNT, 335, (_FROM_ELECTRICAL, _GROUP), (Output(Port.SERVERS),)
    ),
    # Foreign unicast that the electrical network flooded. ()
    RuleKind.TOR_ELECTRICAL_DROP: Shape(Table.ACCOUNT, 330, (_FROM_ELECTRICAL,)),
    # The remaining frames come from servers. ()
    RuleKind.TOR_GROUP: Shape(
        Table.ACCOUNT, 325, (_GROUP,), (Output(Port.ELECTRICAL), Output(Port.SERVERS))
    ),
    # Like CIRCUIT, by the first port of a path. (destination rack's metadata, label, out port)
    RuleKind.TOR_CIRCUIT: Shape(
        Table.CIRCUITS,
        100,
        (Field("metadata", Arg(0)),),
        (PushVlan(Arg(1)), Output(Arg(2))),
    ),
    # (destination rack's metadata, number of the path from 0, label, out port)
    RuleKind.TOR_SPREAD_PATH: Shape(
        Table.SPREAD,
        100,
        (Field("metadata", Arg(0)), Field(PATH_REGISTER, Arg(1))),
        (PushVlan(Arg(2)), Output(Arg(3))),
    ),
}


def _for_ipv6(shape: Shape) -> Shape:
    """Derive the IPv6 shape from the IPv4 shape."""
    match = tuple(
        _IS_IPV6 if field == _IS_IPV4 else replace(field, name=field.name.replace("ipv4", "ipv6"))
        for field in shape.match
    )
    return replace(shape, match=match)


_SHAPES.update(
    {
        RuleKind[kind.name.removesuffix("4") + "6"]: _for_ipv6(shape)
        for kind, shape in _SHAPES.items()
        if kind.name.endswith("_V4")
    }
)

FOR_ONE_SERVER: Final[Mapping[RuleKind, RuleKind]] = {
    kind: RuleKind[f"TOR_{kind.name}"]
    for kind in RuleKind
    if kind.name.startswith(("RESERVED_", "BEST_EFFORT_V", "BEST_EFFORT_ELEC", "DELIVERED_"))
}
"""Kinds at a vswitch, for its single server, to the corresponding kinds at a ToR, for a server out
of several. The ToR kinds have the server port as an additional last argument.
"""


def _for_one_server(shape: Shape) -> Shape:
    """The shape at a ToR: matches the server port, or, in the ingress table, outputs to the server
    port.
    """
    port = Arg(1 + max(arg.index for arg in _arguments(shape)))
    if shape.table is not Table.INGRESS:
        return replace(shape, match=(Field(IN_PORT, port), *shape.match))
    match = tuple(field for field in shape.match if field != _FROM_OPTICAL)
    actions = tuple(Output(port) if action in _TO_HOST else action for action in shape.actions)
    return replace(shape, match=match, actions=actions)


def _arguments(shape: Shape) -> Iterator[Arg]:
    for field in shape.match:
        yield from (value for value in (field.value, field.mask) if isinstance(value, Arg))
    if isinstance(shape.meter, Arg):
        yield shape.meter
    for action in shape.actions:
        if isinstance(action, SetPath) and isinstance(action.number, Arg):
            yield action.number


SHAPES: Final[Mapping[RuleKind, Shape]] = _SHAPES | {
    here: _for_one_server(_SHAPES[kind]) for kind, here in FOR_ONE_SERVER.items()
}

# --- cookies: tag (8 bits) | kind (8) | epoch (16) | subject (32) ---------------------------

COOKIE_TAG: Final = 0x48 << 56
COOKIE_TAG_MASK: Final = 0xFF << 56
COOKIE_KIND_MASK: Final = 0xFFFF << 48
COOKIE_EPOCH_MASK: Final = 0xFFFF << 32
COOKIE_KIND_EPOCH_MASK: Final = COOKIE_KIND_MASK | COOKIE_EPOCH_MASK
COOKIE_SUBJECT_MASK: Final = 0xFFFF_FFFF
RENEWED: Final = COOKIE_TAG
RENEWED_MASK: Final = COOKIE_TAG_MASK | 0x80 << 48
"""Common part of the cookies of all kinds except ``ROUND`` and ``TOR_RELAY``. Round rules cannot
end before they are 1 s old, and paths of other racks depend on relays.
"""
DELIVERY_COUNTERS: Final = COOKIE_TAG | 0x70 << 48
DELIVERY_COUNTERS_MASK: Final = COOKIE_TAG_MASK | 0xF0 << 48
"""Mask for :data:`DELIVERY_COUNTERS`; selects the rules that count delivered reserved traffic."""


def cookie(kind: RuleKind, epoch: int = 0, subject: int = 0) -> int:
    """A 64-bit cookie with the purpose of a rule, so that rules read from a switch explain
    themselves.
    """
    return COOKIE_TAG | kind.value << 48 | (epoch & 0xFFFF) << 32 | subject


def cookie_subject(value: int) -> int:
    """The rack metadata (or address digest) in a cookie."""
    return value & COOKIE_SUBJECT_MASK
