"""The forwarding of OpenFlow ToRs: frames from server to server, ToR by ToR."""

import random
from dataclasses import replace
from itertools import product

import pytest

from hydra.forwarding.match_action import (
    Port,
    place_of_server,
    place_of_wired,
    server_port,
    wired_port,
)
from hydra.forwarding.pipeline import ANNOUNCE_ETHERTYPE, PROBE_ETHERTYPE
from hydra.forwarding.rules import in_lanes, match_key
from hydra.forwarding.substrate import substrate_of
from hydra.model import NetworkState, RackId
from tests.unit.core.fabrics import (
    circuit_between,
    first_state,
    openflow_only,
    path_of,
    random_state,
    small_fabric,
    state_of,
)
from tests.unit.forwarding.packets import (
    ARP,
    CONTROLLER,
    IPV4,
    IPV6,
    Packet,
    forward,
    packet,
    sent_by,
)

FABRIC = openflow_only(small_fabric(racks=4, planes=2, servers=2))
BROADCAST = 0xFFFFFFFFFFFF
H11, H12, H21, H22, H31, *_ = FABRIC.servers
WIRED = [wired_port(0), wired_port(1)]
SERVERS = [server_port(0), server_port(1)]


class Tors:
    """All ToRs of a fabric in a state, and the circuits between them."""

    def __init__(self, fabric, state):
        self.fabric = fabric
        self.substrate = substrate_of(fabric)
        self.rules = {
            rack.id: list(self.substrate.rules(rack.tor.datapath_id, state, ()))
            for rack in fabric.racks
        }
        self.across = {}
        for circuit in state.topology.circuits:
            self.across |= dict(zip(circuit.senders, reversed(circuit.ends), strict=False))

    def forward(self, rack, sent, in_port):
        servers = self.fabric.racks[rack].servers
        place = place_of_server(in_port)
        if place is not None:
            sent = sent_by(servers[place], sent)
        return forward(self.rules[rack], sent, in_port, servers=len(servers))

    def follow(self, rack, sent, in_port):
        """(End of a unicast frame's way, the optical ports of its way)."""
        left_by = []
        while True:
            ((out, vlan),) = self.forward(rack, sent, in_port)
            place = None if out == CONTROLLER else place_of_wired(out)
            if place is None:
                return (rack, out, vlan), left_by
            end = self.fabric.ports_of(rack)[place].id
            left_by.append(end)
            other = self.fabric.ports[self.across[end]]
            rack, sent = other.rack, Packet(sent.fields, vlan)
            in_port = wired_port(self.fabric.place_of_port[other.id])


def place_of(fabric, server):
    return fabric.racks[server.rack].servers.index(server)


def along(fabric, path, src):
    """The optical ports by which a frame from ``src`` leaves racks along ``path``."""
    ends, here = [], src
    for circuit in path.circuits if src == path.src else reversed(path.circuits):
        a, b = fabric.racks_of(circuit)
        ends.append(circuit.a if a == here else circuit.b)
        here = b if a == here else a
    return ends


@pytest.mark.parametrize("seed", range(40))
def test_every_server_reaches_every_other_along_the_paths_of_their_racks(seed):
    rng = random.Random(seed)
    fabric = openflow_only(small_fabric(rng.randint(2, 6), rng.randint(1, 3), rng.choice((1, 2))))
    fabric = replace(fabric, one_way=rng.random() < 0.5)
    state = random_state(fabric, first_state(fabric, rng), rng)
    tors = Tors(fabric, state)
    lanes = in_lanes(state.topology.paths, state.vlans)
    for src in fabric.servers:
        for dst in fabric.servers:
            if src.rack == dst.rack:
                continue
            its = lanes.get((src.rack, dst.rack), ())
            in_port = server_port(place_of(fabric, src))
            for eth_type, flow in product((IPV4, IPV6), range(len(its) or 1)):
                end, left_by = tors.follow(src.rack, packet(dst, eth_type, flow=flow), in_port)
                if its:
                    path, _ = its[flow]
                    assert end == (dst.rack, server_port(place_of(fabric, dst)), None)
                    assert left_by == along(fabric, path, src.rack)
                else:
                    assert (end, left_by) == ((src.rack, Port.ELECTRICAL, None), [])


@pytest.mark.parametrize("seed", range(20))
def test_a_probe_takes_the_way_of_the_traffic_and_is_handed_back_at_its_end(seed):
    rng = random.Random(seed)
    fabric = openflow_only(small_fabric(rng.randint(2, 6), rng.randint(1, 3)))
    fabric = replace(fabric, one_way=rng.random() < 0.5)
    state = random_state(fabric, first_state(fabric, rng), rng)
    tors = Tors(fabric, state)
    for path, vlan in state.vlans.items():
        for here, there in path.directions:
            src, dst = fabric.racks[here].servers[0], fabric.racks[there].servers[-1]
            datapath, port = tors.substrate.launch(src, path)
            assert datapath == fabric.racks[here].tor.datapath_id
            first = fabric.ports_of(here)[place_of_wired(port)].id
            other = fabric.ports[tors.across[first]]
            sent = packet(dst, PROBE_ETHERTYPE, vlan)
            in_port = wired_port(fabric.place_of_port[other.id])
            end, left_by = tors.follow(other.rack, sent, in_port)
            assert end == (there, CONTROLLER, vlan)
            assert [first, *left_by] == along(fabric, path, here)


@pytest.fixture
def tors():
    """r1 and r2 on plane 1, r2 and r3 on plane 2; r1 reaches r3 by way of r2."""
    one, other = circuit_between(FABRIC, 0, 1, 0), circuit_between(FABRIC, 1, 2, 1)
    paths = path_of(FABRIC, 0, 1, one), path_of(FABRIC, 1, 2, other)
    relayed = path_of(FABRIC, 0, 2, one, other)
    return Tors(FABRIC, state_of(FABRIC, NetworkState(), *paths, relayed))


def test_a_diverted_rack_is_reached_electrically(tors):
    tors.rules[0].append(tors.substrate.divert(RackId(2), 7))
    assert tors.forward(0, packet(H31), SERVERS[0]) == [(Port.ELECTRICAL, None)]
    assert tors.forward(0, packet(H21), SERVERS[0]) == [(WIRED[0], 101)]


@pytest.mark.parametrize("eth_type", [ARP, IPV4, IPV6])
def test_a_neighbour_is_reached_in_the_tor(tors, eth_type):
    assert tors.forward(0, packet(H12, eth_type), SERVERS[0]) == [(SERVERS[1], None)]


@pytest.mark.parametrize(
    "sent",
    [
        packet(H31, ARP),
        packet(H31, IPV6, ip_proto=58, icmpv6_type=136),
        packet(0x020000000999, 0x88CC),
        packet(0x020000000999, IPV4, ipv4_dst=0x08080808),
    ],
)
def test_what_is_not_unicast_ip_between_racks_is_electrical(tors, sent):
    assert tors.forward(0, sent, SERVERS[0]) == [(Port.ELECTRICAL, None)]


@pytest.mark.parametrize(
    "sent",
    [
        packet(BROADCAST, ARP),
        packet(0x3333FF000001, IPV6, ip_proto=58, icmpv6_type=135),
        packet(0x01005E000001, IPV4),
    ],
)
def test_groups_leave_to_neighbours_and_electrically_and_come_in_to_all(tors, sent):
    out = tors.forward(0, sent, SERVERS[0])
    assert out == [(Port.ELECTRICAL, None), (SERVERS[1], None)]
    assert tors.forward(0, sent, Port.ELECTRICAL) == [(port, None) for port in SERVERS]


@pytest.mark.parametrize("vlan", [None, 100, 4000])
@pytest.mark.parametrize("port", WIRED)
def test_no_group_comes_in_by_a_circuit_and_nothing_untagged(tors, vlan, port):
    assert tors.forward(0, packet(BROADCAST, ARP, vlan), port) == []
    if vlan is None:
        assert tors.forward(0, packet(H11), port) == []


def test_from_the_electrical_network_comes_in_what_is_for_a_server(tors):
    assert tors.forward(0, packet(H12), Port.ELECTRICAL) == [(SERVERS[1], None)]
    assert tors.forward(0, packet(H21), Port.ELECTRICAL) == []
    announced = packet(0x034879445241, ANNOUNCE_ETHERTYPE)
    assert tors.forward(0, announced, Port.ELECTRICAL) == []


@pytest.mark.parametrize("port", [*SERVERS, Port.ELECTRICAL])
@pytest.mark.parametrize("eth_type", [IPV4, PROBE_ETHERTYPE])
def test_labels_come_from_tors_only(tors, port, eth_type):
    for dst in (H11, H21, H31):
        assert tors.forward(1, packet(dst, eth_type, 100), port) == []


def test_a_spine_relays_and_does_nothing_else():
    spine = replace(FABRIC.racks[1], servers=(), prefixes=(), spine=True)
    racks = (FABRIC.racks[0], spine, *FABRIC.racks[2:])
    fabric = replace(FABRIC, racks=racks)
    one, other = circuit_between(fabric, 0, 1, 0), circuit_between(fabric, 1, 2, 1)
    state = state_of(fabric, NetworkState(), path_of(fabric, 0, 2, one, other))
    tors = Tors(fabric, state)
    assert len(tors.rules[1]) == 2
    assert tors.substrate.steering(RackId(1)) == ()
    assert spine.tor.datapath_id in tors.substrate.owned()
    end, left_by = tors.follow(0, packet(H31), SERVERS[0])
    assert end == (2, SERVERS[0], None)
    assert left_by == [one.a, other.a]


def test_no_two_rules_of_a_tor_have_one_match(tors):
    for rules in tors.rules.values():
        assert len({match_key(rule) for rule in rules}) == len(rules)


def test_places_are_ports_of_one_kind():
    for place in (0, 1, 47):
        assert place_of_server(server_port(place)) == place
        assert place_of_wired(wired_port(place)) == place
        assert place_of_server(wired_port(place)) is place_of_wired(server_port(place)) is None
    assert all(place_of_server(port) is place_of_wired(port) is None for port in Port)
