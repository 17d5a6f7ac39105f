"""Flow rules that switches hold for a given state of the network."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from ipaddress import IPv4Interface, IPv4Network, IPv6Network, ip_network
from typing import Final

from hydra.forwarding.match_action import Arg, Output, Port
from hydra.forwarding.pipeline import (
    COOKIE_EPOCH_MASK,
    IN_PORT,
    ND_CLAIMS,
    ND_TYPES,
    SHAPES,
    RuleKind,
    cookie,
)
from hydra.model import Fabric, Path, RackId, Server, VlanId
from hydra.policy import SourceCheck

_NOBODYS: Final = (IPv4Network("0.0.0.0/32"), IPv6Network("::/128"), IPv6Network("fe80::/10"))
"""Source addresses without an owner: of an ARP probe (RFC 5227), of duplicate address detection
(RFC 4862), and link-local addresses.
"""
_ROUND_RULES: Final = 12
"""Rules of a switch that signal the end of a revalidation of its cached flows; a change uses
three.
"""
_CLAIMS: Final = {
    4: (RuleKind.PORT_ARP,),
    6: (RuleKind.PORT_ND_ADVERTISED, RuleKind.PORT_ND_SOLICITING),
}


@dataclass(frozen=True, slots=True)
class FlowRule:
    """A rule of a vswitch or ToR. The kind fixes the shape; ``args`` fill the places of the
    shape.
    """

    kind: RuleKind
    args: tuple[int, ...] = ()
    cookie: int = 0


@dataclass(frozen=True, slots=True)
class Install:
    """Add a rule, or replace the rule with the same match."""

    rule: FlowRule


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class InstallAll:
    """Add rules, or replace the rules with the same match.

    Several switches share the object; the identity shows that the switches have equal rules.
    """

    rules: tuple[FlowRule, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the rule with exactly the same match and priority; a missing rule is no error."""

    rule: FlowRule


@dataclass(frozen=True, slots=True)
class RemoveByCookie:
    """Remove every rule whose cookie agrees with ``cookie`` on ``mask``."""

    cookie: int
    mask: int


@dataclass(frozen=True, slots=True)
class RemoveByPort:
    """Remove every rule of HydRA that matches an ingress port."""

    number: int
    """OpenFlow number of the port."""


@dataclass(frozen=True, slots=True)
class Modify:
    """Set the actions of the rule with the same match; never adds a rule."""

    rule: FlowRule


Installation = Install | InstallAll
Removal = Remove | RemoveByCookie | RemoveByPort
RuleChange = Installation | Removal | Modify

Lane = tuple[Path, VlanId]
"""A path and its VLAN-ID."""


@dataclass(frozen=True, slots=True)
class CircuitKinds:
    """Rule kinds that put traffic on the only path to a rack, or on a path out of several."""

    alone: RuleKind
    one_of_several: RuleKind


BY_UPLINK: Final = CircuitKinds(RuleKind.CIRCUIT, RuleKind.SPREAD_PATH)
"""Kinds at a vswitch, where the VLAN selects the path."""
BY_PORT: Final = CircuitKinds(RuleKind.TOR_CIRCUIT, RuleKind.TOR_SPREAD_PATH)
"""Kinds at a ToR, where the label and the first port select the path."""


def installed(installations: Iterable[Installation]) -> Iterator[FlowRule]:
    """The rules that ``installations`` add."""
    for installation in installations:
        if isinstance(installation, InstallAll):
            yield from installation.rules
        else:
            yield installation.rule


def are_alike(before: Sequence[RuleChange], after: Sequence[RuleChange]) -> bool:
    """True if two changes leave the same rules on a switch, apart from the epochs."""
    return before == after or _effect(before) == _effect(after)


def _effect(
    changes: Sequence[RuleChange],
) -> tuple[set[FlowRule], list[Removal | Modify]]:
    """The installed rules with epoch 0, and the removals and modifications."""
    added = (change for change in changes if isinstance(change, Install | InstallAll))
    removed = [change for change in changes if not isinstance(change, Install | InstallAll)]
    return {
        FlowRule(rule.kind, rule.args, rule.cookie & ~COOKIE_EPOCH_MASK)
        for rule in installed(added)
    }, removed


def rack_metadata(rack: RackId) -> int:
    """Metadata that the account table writes for a destination rack; 0 means no rack."""
    return rack + 1


def prefix_args(prefix: IPv4Network | IPv6Network) -> tuple[int, int]:
    return int(prefix.network_address), int(prefix.netmask)


def mac_as_int(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


def constant(kind: RuleKind, *args: int) -> FlowRule:
    """A rule without epoch and rack."""
    return FlowRule(kind, args, _cookie_of(kind))


@cache
def _cookie_of(kind: RuleKind) -> int:
    return cookie(kind)


@lru_cache(maxsize=4096)
def common_constant(kind: RuleKind, *args: int) -> FlowRule:
    """A :func:`constant` that many switches share as the same object."""
    return constant(kind, *args)


def port_rules(
    fabric: Fabric, server: Server, port: int, source_check: SourceCheck
) -> Iterator[FlowRule]:
    """Ingress rules for frames from ``port`` of ``server``."""
    if source_check is SourceCheck.OFF:
        for kind in (RuleKind.PORT_MARKED_V4, RuleKind.PORT_MARKED_V6, RuleKind.PORT_ANY):
            yield common_constant(kind, port)
        return
    for mac in map(mac_as_int, server.macs):
        for kind in (RuleKind.PORT_OWN_MARKED_V4, RuleKind.PORT_OWN_MARKED_V6, RuleKind.PORT_OWN):
            yield constant(kind, port, mac)
    yield common_constant(RuleKind.PORT_FOREIGN, port)
    if source_check is SourceCheck.ADDRESSES:
        yield from _claim_rules(fabric, server, port)


def _claim_rules(fabric: Fabric, server: Server, port: int) -> Iterator[FlowRule]:
    """Rules for the addresses that ARP and neighbour discovery from ``port`` may claim.

    A server may claim its configured addresses, a guest any address of the rack.
    """
    own = [ip_network(interface.ip) for interface in server.addresses]
    for mac in server.macs:
        networks = own if mac == server.mac else fabric.racks[server.rack].prefixes
        for network in (*networks, *_NOBODYS):
            for kind in _CLAIMS[network.version]:
                yield constant(kind, port, mac_as_int(mac), *prefix_args(network))
    yield constant(RuleKind.PORT_ARP_FOREIGN, port)
    for icmpv6_type in ND_CLAIMS:
        yield constant(RuleKind.PORT_ND_FOREIGN, port, icmpv6_type)


def host_rules(
    fabric: Fabric,
    server: Server,
    from_uplinks: Collection[RuleKind],
    source_check: SourceCheck,
) -> Iterator[FlowRule]:
    """Rules for frames to the host, and for frames from the host without a destination rack.

    ``from_uplinks`` are the rule kinds for frames from the uplinks.
    """
    for kind in from_uplinks:
        if match_arguments(kind):
            yield from (constant(kind, mac_as_int(mac)) for mac in server.macs)
        else:
            yield common_constant(kind)
    yield from port_rules(fabric, server, Port.HOST, source_check)
    yield common_constant(RuleKind.HOST_GROUP)
    yield common_constant(RuleKind.HOST_ARP)
    yield from neighbour_discovery_rules()


def neighbour_discovery_rules() -> Iterator[FlowRule]:
    return (common_constant(RuleKind.HOST_ND, icmpv6_type) for icmpv6_type in ND_TYPES)


def default_rules() -> Iterator[FlowRule]:
    """Default rules of the tables behind the account table."""
    for kind in (
        RuleKind.DIVERT_NONE,
        RuleKind.CLASS_ALL,
        RuleKind.BEST_EFFORT_ALL,
        RuleKind.CIRCUIT_NONE,
        RuleKind.SPREAD_NONE,
    ):
        yield constant(kind)


@cache
def round_rule(number: int) -> FlowRule:
    """A rule that Open vSwitch can expire after a revalidation of all cached flows."""
    return FlowRule(RuleKind.ROUND, (number,), cookie(RuleKind.ROUND, subject=number))


ROUND_RULES: Final = InstallAll(tuple(map(round_rule, range(_ROUND_RULES))))
"""All round rules of a switch, by number; used in turn, since a rule cannot end before it is 1 s
old.
"""
_ROUND_NUMBERS: Final = {rule.cookie: number for number, rule in enumerate(ROUND_RULES.rules)}


def round_number(cookie: int) -> int | None:
    """Number of the rule of :data:`ROUND_RULES` with this cookie; None for other rules."""
    return _ROUND_NUMBERS.get(cookie)


def own_rack_rules(fabric: Fabric, server: Server, uplink_dead: bool) -> Iterator[FlowRule]:
    """Own-rack traffic: untagged through the ToR, or electrical if the own uplink is dead."""
    port = Port.ELECTRICAL if uplink_dead else Port.OPTICAL
    for prefix in fabric.racks[server.rack].prefixes:
        yield _own_rack_rule(prefix, port)


@lru_cache(maxsize=1 << 12)
def _own_rack_rule(prefix: IPv4Network | IPv6Network, port: int) -> FlowRule:
    kind = RuleKind.OWN_RACK_V4 if prefix.version == 4 else RuleKind.OWN_RACK_V6
    return constant(kind, *prefix_args(prefix), port)


def account_rules(fabric: Fabric, own: RackId) -> Iterator[FlowRule]:
    """Counting rules for each prefix of every rack except ``own``, sorted by address family.

    Rules for the same prefix are the same objects for all switches.
    """
    for version in (4, 6):
        for rack in fabric.racks:
            if rack.id != own:
                for prefix in rack.prefixes:
                    if prefix.version == version:
                        yield _account_rule(prefix, rack.id)
    yield constant(RuleKind.ACCOUNT_OTHER)


@lru_cache(maxsize=1 << 16)
def _account_rule(prefix: IPv4Network | IPv6Network, rack: RackId) -> FlowRule:
    kind = RuleKind.ACCOUNT_V4 if prefix.version == 4 else RuleKind.ACCOUNT_V6
    metadata = rack_metadata(rack)
    return FlowRule(kind, (*prefix_args(prefix), metadata), cookie(kind, subject=metadata))


def uplink_exceptions(fabric: Fabric, server: Server, dead: Collection[str]) -> Iterator[FlowRule]:
    """Rules that lead ``server`` around dead uplinks: the own uplink, or the uplinks of other
    servers and their guests.
    """
    for name in sorted(dead):
        other = fabric.server_by_name[name]
        if other == server:
            yield constant(RuleKind.DIVERT_ALL)
            continue
        own_rack = other.rack == server.rack
        for interface in other.addresses:
            yield _host_exception(own_rack, isinstance(interface, IPv4Interface), int(interface.ip))
        kind = RuleKind.OWN_RACK_GUEST if own_rack else RuleKind.DIVERT_GUEST
        yield from (constant(kind, mac_as_int(guest)) for guest in other.guests)


def _host_exception(own_rack: bool, ipv4: bool, address: int) -> FlowRule:
    if own_rack:
        kind = RuleKind.OWN_RACK_HOST_V4 if ipv4 else RuleKind.OWN_RACK_HOST_V6
    else:
        kind = RuleKind.DIVERT_HOST_V4 if ipv4 else RuleKind.DIVERT_HOST_V6
    return constant(kind, address)


def divert_rule(destination: RackId, epoch: int) -> FlowRule:
    """Substep 3-1: send all traffic for ``destination`` electrical."""
    metadata = rack_metadata(destination)
    return FlowRule(RuleKind.DIVERT, (metadata,), cookie(RuleKind.DIVERT, epoch, metadata))


def in_lanes(
    paths: Iterable[Path], vlans: Mapping[Path, VlanId]
) -> dict[tuple[RackId, RackId], list[Lane]]:
    """Paths with VLAN-IDs by (from, to), in an order that both ends share.

    The order is by VLAN-ID; paths with equal IDs keep the order of ``paths``, which must be sorted.
    """
    lanes: dict[tuple[RackId, RackId], list[Lane]] = {}
    for path in sorted(paths, key=vlans.__getitem__):
        for direction in path.directions:
            lanes.setdefault(direction, []).append((path, vlans[path]))
    return lanes


def circuit_rules(
    kinds: CircuitKinds, destination: RackId, ways: Sequence[tuple[int, ...]], epoch: int
) -> tuple[FlowRule, ...]:
    """Substep 3-2: rules that reach ``destination`` by a single way, or spread flows over several
    ways.

    Each way holds the arguments after the match arguments of the rule kind.
    """
    metadata = rack_metadata(destination)

    def rule(kind: RuleKind, *args: int) -> FlowRule:
        return FlowRule(kind, (metadata, *args), cookie(kind, epoch, metadata))

    if len(ways) <= 1:
        return tuple(rule(kinds.alone, *way) for way in ways)
    return (
        rule(RuleKind.SPREAD, len(ways) - 1),
        *(rule(kinds.one_of_several, number, *way) for number, way in enumerate(ways)),
    )


def numbered_way(several: Sequence[FlowRule], number: int) -> FlowRule:
    """The first way of a pair with several ways, under another ``number``."""
    way = several[1]
    return FlowRule(way.kind, (way.args[0], number, *way.args[2:]), way.cookie)


def match_key(rule: FlowRule) -> tuple[RuleKind, tuple[int, ...]]:
    """Key of the match of a rule: a table holds a single rule per key."""
    kind, args = rule.kind, rule.args
    return kind, tuple([args[index] for index in _MATCH_ARGS[kind]])


def match_arguments(kind: RuleKind) -> tuple[int, ...]:
    """Indexes of the arguments that the match of a kind uses."""
    return _MATCH_ARGS[kind]


def ports_named(rule: FlowRule) -> Iterator[int]:
    """Ports, mostly symbolic, in the match and actions of a rule."""
    shape = SHAPES[rule.kind]
    matched = (field.value for field in shape.match if field.name == IN_PORT)
    reached = (action.port for action in shape.actions if isinstance(action, Output))
    for value in (*matched, *reached):
        yield rule.args[value.index] if isinstance(value, Arg) else value


def matches_port(rule: FlowRule) -> bool:
    """True if a rule matches an ingress port."""
    return any(field.name == IN_PORT for field in SHAPES[rule.kind].match)


def _match_args() -> dict[RuleKind, tuple[int, ...]]:
    return {
        kind: tuple(
            value.index
            for field in shape.match
            for value in (field.value, field.mask)
            if isinstance(value, Arg)
        )
        for kind, shape in SHAPES.items()
    }


_MATCH_ARGS = _match_args()
