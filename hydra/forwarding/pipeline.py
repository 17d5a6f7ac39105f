"""The pipeline: the rules of a switch that steers traffic, as data.

Seven tables, which a packet from a server walks in order, and one for the controller alone:

====== ============ =====================================================================
table  name         holds
====== ============ =====================================================================
0      ingress      own unicast in; from a server, its own MAC addresses and no tags
1      account      broadcast, ARP and IPv6 ND electrical; own rack local; one rule per destination
                    prefix: counts the demand, names the rack
2      divert       substep 3-1: affected destination racks go electrical; flows are parted to spill
3      class        what is reserved (hydra/sharing/policing.py), and its path if there are several;
                    which of the rest may use circuits
4      best effort  what reservations hold the rest to; what spills goes electrical
5      circuits     destination rack to VLAN and optical uplink; otherwise electrical
6      spread       destination racks with several paths: picks one of them, to its VLAN
7      rounds       rules whose end tells that a switch has looked at all its cached flows
====== ============ =====================================================================

The account table writes the destination rack into the OpenFlow ``metadata`` field, so later tables
need one rule per rack however many prefixes the rack has. Ports are symbolic (:class:`Port`,
:func:`server_port`, :func:`wired_port`): the encoder fills in each switch's own numbers, and the
same rule fits them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Final

PROBE_ETHERTYPE: Final = 0x88B5
"""IEEE 802 local experimental ethertype 1: circuit probes."""
ANNOUNCE_ETHERTYPE: Final = 0x88B6
"""IEEE 802 local experimental ethertype 2: announcements of host addresses."""


class Table(IntEnum):
    INGRESS = 0
    ACCOUNT = 1
    DIVERT = 2
    CLASS = 3
    BEST_EFFORT = 4
    CIRCUITS = 5
    SPREAD = 6
    ROUNDS = 7


class Port(IntEnum):
    """A switch's ports by purpose; negative, so that they can't be real port numbers."""

    HOST = -1
    OPTICAL = -2
    """The uplink to the ToR."""
    ELECTRICAL = -3
    """The uplink to the electrical network; single-homed servers have the same uplink, untagged."""
    NORMAL = -4
    """The switch's own learning pipeline (ToRs only)."""
    SERVERS = -5
    """Every server of the rack but the sender of the frame (ToRs only)."""


_FIRST_SERVER: Final = -0x1_0000
_FIRST_WIRED: Final = -0x2_0000


def server_port(place: int) -> int:
    """The ToR port of the server with this place (from 0) in its rack."""
    return _FIRST_SERVER - place


def wired_port(place: int) -> int:
    """The ToR port with this place (from 0) among those that its rack has on planes."""
    return _FIRST_WIRED - place


def place_of_server(port: int) -> int | None:
    """The place that :func:`server_port` was given; None if ``port`` is no server's."""
    return _FIRST_SERVER - port if _FIRST_WIRED < port <= _FIRST_SERVER else None


def place_of_wired(port: int) -> int | None:
    """The place that :func:`wired_port` was given; None if ``port`` is not wired to a plane."""
    return _FIRST_WIRED - port if port <= _FIRST_WIRED else None


# --- the vocabulary of a rule's shape -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arg:
    """A place in a shape that each rule fills from its own ``args``."""

    index: int


Value = int | Arg


@dataclass(frozen=True, slots=True)
class Field:
    """An OXM match field; ``mask`` only where the field is maskable."""

    name: str
    value: Value
    mask: Value | None = None


@dataclass(frozen=True, slots=True)
class Output:
    port: Port | Arg


@dataclass(frozen=True, slots=True)
class ToController:
    pass


@dataclass(frozen=True, slots=True)
class PushVlan:
    vlan: Value
    """VLAN-ID 1..4094; the encoder adds OFPVID_PRESENT."""


@dataclass(frozen=True, slots=True)
class PopVlan:
    pass


@dataclass(frozen=True, slots=True)
class SetDscp:
    """Mark the packet; the shape's match says that it is IPv4 or IPv6."""

    codepoint: int


@dataclass(frozen=True, slots=True)
class PickPath:
    """Write the number of a path, from 0 to ``last``, into :data:`PATH_REGISTER`.

    The path is a hash over addresses and TCP ports, the same in both directions, so that a flow
    stays on its path and comes back on it: ``multipath(symmetric_l3l4, basis, hrw, …)`` of Open
    vSwitch.
    """

    last: Value
    basis: int = 0
    """What the hash starts from: picks of a flow by different ones are independent."""


@dataclass(frozen=True, slots=True)
class SetPath:
    """Write this number of a path into :data:`PATH_REGISTER`."""

    number: Value


@dataclass(frozen=True, slots=True)
class EndOnFin:
    """Let the rule end once a TCP segment with FIN meets it, if it is older than a second:
    ``fin_timeout(hard_timeout=1)`` of Open vSwitch.
    """


Action = Output | ToController | PushVlan | PopVlan | SetDscp | PickPath | SetPath | EndOnFin


@dataclass(frozen=True, slots=True)
class Shape:
    """Table, priority, match and actions that all rules of a kind share."""

    table: Table
    priority: int
    match: tuple[Field, ...] = ()
    actions: tuple[Action, ...] = ()
    goto: Table | None = None
    write_metadata: Value | None = None
    meter: Value | None = None
    """Number of the meter that matching packets pass; it has to exist before the rule."""
    tells_end: bool = False
    """True if the switch tells the controller when the rule ends by itself."""


class RuleKind(Enum):
    """Every kind of rule; the value goes into the cookie."""

    __hash__ = object.__hash__  # the key of most dicts of rules: Enum's own runs Python

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
    TOR_RELAY = 62
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
    # Kinds from 0x70 to 0x7f are those whose counters tell what reservations get.
    DELIVERED_V4 = 0x70
    DELIVERED_V6 = 0x71
    DELIVERED_HOST_V4 = 0x72
    DELIVERED_HOST_V6 = 0x73
    TOR_DELIVERED_V4 = 0x74
    TOR_DELIVERED_V6 = 0x75
    TOR_DELIVERED_HOST_V4 = 0x76
    TOR_DELIVERED_HOST_V6 = 0x77
    # The only kind from 0x80 on: what renews tables spares it.
    ROUND = 0x80


PATH_REGISTER: Final = "reg0"
IN_PORT: Final = "in_port"
_GROUP_BIT: Final = 0x010000000000
_IPV4: Final = 0x0800
_IPV6: Final = 0x86DD
_ARP: Final = 0x0806
VLAN_PRESENT: Final = 0x1000
"""Set in every ``vlan_vid`` of a tagged frame (OFPVID_PRESENT)."""
_TCP: Final = 6
_ICMPV6: Final = 58
EXPEDITED: Final = 46
"""The code point of expedited forwarding: departs at least at the rate set for it (RFC 3246)."""
ND_TYPES: Final = (133, 134, 135, 136, 137)
"""ICMPv6 types of neighbour discovery (RFC 4861)."""
_SOLICITATION: Final = 135
_ADVERTISEMENT: Final = 136
ND_CLAIMS: Final = (_SOLICITATION, _ADVERTISEMENT)
"""Types among them from which neighbours learn where an address is."""

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


# The arguments of each kind stand in the comment beside it, in order. Kinds for IPv4 have one for
# IPv6 beside them, which follows from theirs.
_SHAPES: Final[dict[RuleKind, Shape]] = {
    # From the optical uplink. (mac,)
    RuleKind.UPLINK_PROBE: Shape(
        Table.INGRESS,
        410,
        (_FROM_OPTICAL, Field("eth_dst", Arg(0)), Field("eth_type", PROBE_ETHERTYPE)),
        (ToController(),),
    ),
    # Counts what a reservation brings to this server. (mac, address) or (mac, prefix, netmask)
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
    # Where one uplink leads to both networks: groups come in as on an electrical one. ()
    RuleKind.UPLINK_ANNOUNCE_DROP: Shape(
        Table.INGRESS, 388, (_FROM_OPTICAL, Field("eth_type", ANNOUNCE_ETHERTYPE))
    ),
    # ()
    RuleKind.UPLINK_GROUP: Shape(Table.INGRESS, 385, (_FROM_OPTICAL, _GROUP, _UNTAGGED), _TO_HOST),
    # Announcements, and unicast for others that a ToR flooded. ()
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
    # From a server, untagged and with a MAC address of its own. (port, mac)
    RuleKind.PORT_OWN: Shape(Table.INGRESS, 300, _OWN, goto=Table.ACCOUNT),
    # Of an address of its own: what ARP or neighbour discovery would have others learn.
    # (port, mac, address, mask)
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
    # Of others. (port,) and (port, icmpv6 type)
    RuleKind.PORT_ARP_FOREIGN: Shape(Table.INGRESS, 320, (_FROM_PORT, Field("eth_type", _ARP))),
    RuleKind.PORT_ND_FOREIGN: Shape(Table.INGRESS, 322, (_FROM_PORT, *_nd(Arg(1)))),
    # What else comes from it. (port,)
    RuleKind.PORT_FOREIGN: Shape(Table.INGRESS, 290, (_FROM_PORT,)),
    # Whatever comes in at a port. (port,)
    RuleKind.PORT_ANY: Shape(Table.INGRESS, 280, (_FROM_PORT,), goto=Table.ACCOUNT),
    # These kinds do what PORT_OWN and PORT_ANY do, and make the switch tell marked frames from
    # others, with or without reservations: see docs/decisions/0013.
    # (port, mac)
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
    # A neighbour in this rack whose optical uplink is dead. (address,)
    RuleKind.OWN_RACK_HOST_V4: Shape(
        Table.ACCOUNT, 260, (_IS_IPV4, Field("ipv4_dst", Arg(0))), _ELECTRICAL
    ),
    # A guest of such a neighbour: its IP addresses are not known. (mac,)
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
    # Outside every rack, or no IP. ()
    RuleKind.ACCOUNT_OTHER: Shape(Table.ACCOUNT, 0, actions=_ELECTRICAL),
    # The own optical uplink is dead. ()
    RuleKind.DIVERT_ALL: Shape(Table.DIVERT, 300, actions=_ELECTRICAL),
    # A host elsewhere whose optical uplink is dead. (address,)
    RuleKind.DIVERT_HOST_V4: Shape(
        Table.DIVERT, 200, (_IS_IPV4, Field("ipv4_dst", Arg(0))), _ELECTRICAL
    ),
    # A guest of such a host. (mac,)
    RuleKind.DIVERT_GUEST: Shape(Table.DIVERT, 210, (Field("eth_dst", Arg(0)),), _ELECTRICAL),
    # Substep 3-1. (destination rack's metadata,)
    RuleKind.DIVERT: Shape(Table.DIVERT, 100, (Field("metadata", Arg(0)),), _ELECTRICAL),
    # Circuits that are full: of so many parts of a rack's flows the last is electrical, if circuits
    # are for it at all. By SPREAD's hash each part would keep to paths of its own, and some would
    # be left to the part that spills. (destination rack's metadata, the last part's number)
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
    # Reserved for one server elsewhere. (destination rack's metadata, address, meter)
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
    # The same where the pair has several paths: this one. (…, number of the path from 0)
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
    # A connection that may use circuits where others may not. (address, source and target port)
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
    # All others, where circuits are for elephants. ()
    RuleKind.CLASS_MICE: Shape(Table.CLASS, 10, actions=_ELECTRICAL),
    RuleKind.CLASS_ALL: Shape(Table.CLASS, 0, goto=Table.BEST_EFFORT),
    # Beside reservations; no server marks its own. (destination rack's metadata, meter)
    RuleKind.BEST_EFFORT_V4: Shape(
        Table.BEST_EFFORT,
        100,
        (Field("metadata", Arg(0)), _IS_IPV4),
        (SetDscp(0),),
        goto=Table.CIRCUITS,
        meter=Arg(1),
    ),
    # Reservations leave too little of the circuits. (destination rack's metadata,)
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
    # Several paths: each flow picks one. (destination rack's metadata, the last one's number)
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
        tells_end=True,
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
    # --- A ToR that steers what its servers send. ---
    # Labels are the ToRs' own: none comes in from a server or the electrical network. (in port,)
    RuleKind.TOR_TAGGED_DROP: Shape(Table.INGRESS, 430, (Field(IN_PORT, Arg(0)), _ANY_VLAN)),
    # On the way from one rack to another. (in port, VLAN present and label, out port)
    RuleKind.TOR_RELAY: Shape(
        Table.INGRESS,
        420,
        (Field(IN_PORT, Arg(0)), Field("vlan_vid", Arg(1))),
        (Output(Arg(2)),),
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
    # What else comes from a plane. (in port,)
    RuleKind.TOR_WIRED_DROP: Shape(Table.INGRESS, 395, (Field(IN_PORT, Arg(0)),)),
    # Untagged, from a neighbour or the electrical network. (mac, server's port)
    RuleKind.TOR_LOCAL: Shape(Table.ACCOUNT, 390, (Field("eth_dst", Arg(0)),), (Output(Arg(1)),)),
    # ()
    RuleKind.TOR_ELECTRICAL_GROUP: Shape(
        Table.ACCOUNT, 335, (_FROM_ELECTRICAL, _GROUP), (Output(Port.SERVERS),)
    ),
    # Unicast for others that the electrical network flooded. ()
    RuleKind.TOR_ELECTRICAL_DROP: Shape(Table.ACCOUNT, 330, (_FROM_ELECTRICAL,)),
    # What is left comes from servers. ()
    RuleKind.TOR_GROUP: Shape(
        Table.ACCOUNT, 325, (_GROUP,), (Output(Port.ELECTRICAL), Output(Port.SERVERS))
    ),
    # Like CIRCUIT, by a path's first port. (destination rack's metadata, label, out port)
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
    """The shape for IPv6 of a kind, of the one for IPv4."""
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
"""Kinds at a vswitch, for its one server, to the same kinds at a ToR, for one server of several,
with one more argument: the server's port."""


def _for_one_server(shape: Shape) -> Shape:
    """The shape at a ToR: matches the server's port, or in the ingress table sends to it."""
    port = Arg(1 + max(arg.index for arg in _arguments(shape)))
    if shape.table is not Table.INGRESS:
        return replace(shape, match=(Field(IN_PORT, port), *shape.match))
    match = tuple(field for field in shape.match if field != _FROM_OPTICAL)
    actions = tuple(Output(port) if one in _TO_HOST else one for one in shape.actions)
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
"""What cookies of all kinds but ``ROUND`` have in common."""
DELIVERY_COUNTERS: Final = COOKIE_TAG | 0x70 << 48
DELIVERY_COUNTERS_MASK: Final = COOKIE_TAG_MASK | 0xF0 << 48
"""Together with :data:`DELIVERY_COUNTERS`, picks the rules that count what reservations get."""


def cookie(kind: RuleKind, epoch: int = 0, subject: int = 0) -> int:
    """A 64-bit cookie that says what a rule is for, so that rules read back explain themselves."""
    return COOKIE_TAG | kind.value << 48 | (epoch & 0xFFFF) << 32 | subject


def cookie_subject(value: int) -> int:
    """The rack metadata (or address digest) that a rule is about."""
    return value & COOKIE_SUBJECT_MASK
