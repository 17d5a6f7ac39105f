"""Rules of every kind, for the tests of encoders and transports."""

from collections.abc import Iterator
from ipaddress import ip_address

from hydra.forwarding.class_table import TcpConnection, class_rules, spill_rules
from hydra.forwarding.rules import (
    BY_UPLINK,
    FlowRule,
    circuit_rules,
    divert_rule,
    uplink_exceptions,
)
from hydra.forwarding.substrate import substrate_of
from hydra.model import Fabric, MacAddress, NetworkState, RackId, Server, VlanId
from hydra.policy import SourceCheck
from hydra.sharing.policing import Aggregate, Tally, aggregate_rules, electrical_rule, tally_rules
from mininet_scenarios.cycles.orders import emulated_rules
from tests.unit.core.fabrics import (
    circuit_between,
    openflow_only,
    parallel_paths,
    path_of,
    single_homed,
    state_of,
    with_guests,
)


def circuit_rule(destination: RackId, vlan: VlanId, epoch: int) -> FlowRule:
    """``destination`` is reached on ``vlan`` through the optical uplink."""
    (rule,) = circuit_rules(BY_UPLINK, destination, [(vlan,)], epoch)
    return rule


def every_rule(fabric: Fabric) -> Iterator[FlowRule]:
    """At least one rule of every kind that switches hold; many rules are the same on several
    switches.
    """
    one, other = circuit_between(fabric, 0, 1), circuit_between(fabric, 1, 2, 1)
    relayed = path_of(fabric, 0, 1), path_of(fabric, 0, 2, one, other)
    for kind in (fabric, single_homed(fabric), openflow_only(fabric)):
        substrate = substrate_of(kind)
        for paths in (relayed, parallel_paths(fabric)):
            state = state_of(kind, NetworkState(), *paths)
            for datapath in substrate.owned():
                yield from substrate.rules(datapath, state, {"h11", "h31"})
                for source_check in SourceCheck:
                    yield from substrate.rules(datapath, state, (), source_check)
        yield from substrate.tor_rules()
        first = kind.servers[0]
        for rule in reservation_rules(kind, first, 5):
            yield substrate.for_server(rule, first)
    yield from sharing_rules()
    guests = with_guests(fabric, MacAddress("52:54:00:00:00:01"))
    for server in guests.servers:
        yield from uplink_exceptions(guests, server, {"h11"})
    yield divert_rule(RackId(1), 3)
    yield from emulated_rules(3, VlanId(100), 3)


def sharing_rules() -> Iterator[FlowRule]:
    """Rules of every kind for the sharing of circuits, at a steering switch."""
    yield from class_rules(
        [
            TcpConnection(ip_address("10.0.2.1"), 40000, 5201),
            TcpConnection(ip_address("fd00::2"), 1, 2),
        ]
    )
    yield from spill_rules(RackId(1), 6)


def reservation_rules(fabric: Fabric, server: Server, meter: int) -> Iterator[FlowRule]:
    """Rules of every kind for reservations, at a vswitch, for traffic with r2."""
    rack = fabric.racks[1]
    (other, *_) = rack.servers
    yield from aggregate_rules(
        fabric, Aggregate(server.name, rack.id, other.name, reserved=True), meter
    )
    yield from aggregate_rules(fabric, Aggregate(server.name, rack.id, reserved=True), meter)
    for receiver in (other.name, ""):
        reserved = Aggregate(server.name, rack.id, receiver, reserved=True)
        yield from aggregate_rules(fabric, reserved, meter, 1)
    yield from aggregate_rules(fabric, Aggregate(server.name, rack.id), meter)
    yield electrical_rule(Aggregate(server.name, rack.id))
    yield from tally_rules(fabric, Tally(server.name, rack.id, other.name), 1)
    yield from tally_rules(fabric, Tally(server.name, rack.id), 2)
