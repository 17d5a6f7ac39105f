"""The forwarding of a vswitch: the whole pipeline, packet by packet, on each substrate."""

import pytest

from hydra.forwarding.class_table import TcpConnection, class_rules, spill_rules
from hydra.forwarding.match_action import Port
from hydra.forwarding.pipeline import ANNOUNCE_ETHERTYPE, PROBE_ETHERTYPE, RuleKind
from hydra.forwarding.rules import constant, mac_as_int, rack_metadata
from hydra.forwarding.substrate import substrate_of
from hydra.model import MacAddress, NetworkState, RackId
from tests.unit.core.fabrics import (
    parallel_paths,
    path_of,
    single_homed,
    small_fabric,
    state_of,
    with_guests,
)
from tests.unit.forwarding.packets import ARP, CONTROLLER, IPV4, IPV6, forward, packet, sent_by

DUAL = small_fabric(racks=3, planes=2, servers=2)
SINGLE = single_homed(DUAL)
BROADCAST = 0xFFFFFFFFFFFF
ANNOUNCEMENT = 0x034879445241
H11, H12, H21, _, H31, _ = range(6)
VLAN = 100
"""VLAN of the only path, r1 to r2."""


class Vswitch:
    """The vswitch of h11."""

    def __init__(self, fabric):
        self.servers = fabric.servers
        self.one_uplink = fabric is SINGLE
        self.substrate = substrate_of(fabric)
        self.state = state_of(fabric, NetworkState(), path_of(fabric, 0, 1))
        self.electrical = Port.OPTICAL if self.one_uplink else Port.ELECTRICAL
        self.rules = self.held()

    def held(self, dead=()):
        return list(self.substrate.rules(self.servers[H11].vswitch.datapath_id, self.state, dead))

    def sends(self, sent):
        return forward(self.rules, sent_by(self.servers[H11], sent), Port.HOST, self.one_uplink)

    def receives(self, sent, port):
        return forward(self.rules, sent, port, self.one_uplink)


@pytest.fixture(params=[DUAL, SINGLE], ids=["dual-homed", "single-homed"])
def vswitch(request):
    return Vswitch(request.param)


@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_a_rack_with_a_circuit_is_reached_tagged_and_others_electrically(vswitch, eth_type):
    to_h21, to_h31 = (packet(vswitch.servers[to], eth_type) for to in (H21, H31))
    assert vswitch.sends(to_h21) == [(Port.OPTICAL, VLAN)]
    assert vswitch.sends(to_h31) == [(vswitch.electrical, None)]


@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_flows_to_a_rack_with_several_paths_are_spread_over_them(vswitch, eth_type):
    paths = parallel_paths(DUAL)
    state = state_of(DUAL, NetworkState(), *paths)
    vlans = sorted(state.vlans.values())
    vswitch.state = state
    vswitch.rules = vswitch.held()
    to_h21 = [packet(vswitch.servers[H21], eth_type, flow=flow) for flow in range(4)]
    assert [vswitch.sends(sent) for sent in to_h21] == [
        [(Port.OPTICAL, vlans[flow % 2])] for flow in range(4)
    ]
    vswitch.rules.append(vswitch.substrate.divert(RackId(1), 7))
    assert vswitch.sends(to_h21[0]) == [(vswitch.electrical, None)]


@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_a_diverted_rack_is_reached_electrically(vswitch, eth_type):
    vswitch.rules.append(vswitch.substrate.divert(RackId(1), 7))
    assert vswitch.sends(packet(vswitch.servers[H21], eth_type)) == [(vswitch.electrical, None)]


@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_where_circuits_are_for_elephants_the_rest_is_electrical(vswitch, eth_type):
    h21, h31 = vswitch.servers[H21], vswitch.servers[H31]
    flow = {"ip_proto": 6, "tcp_src": 40000, "tcp_dst": 5201}
    addresses = [
        interface.ip
        for server in (h21, h31)
        for interface in server.addresses
        if interface.version == (4 if eth_type == IPV4 else 6)
    ]
    vswitch.rules += class_rules([TcpConnection(one, 40000, 5201) for one in addresses])
    assert vswitch.sends(packet(h21, eth_type, **flow)) == [(Port.OPTICAL, VLAN)]
    for other in ({"tcp_src": 40001}, {"tcp_dst": 5202}, {"ip_proto": 17}):
        assert vswitch.sends(packet(h21, eth_type, **flow | other)) == [(vswitch.electrical, None)]
    assert vswitch.sends(packet(h31, eth_type, **flow)) == [(vswitch.electrical, None)]
    vswitch.rules.append(vswitch.substrate.divert(RackId(1), 7))
    assert vswitch.sends(packet(h21, eth_type, **flow)) == [(vswitch.electrical, None)]


@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_one_in_so_many_flows_spills_and_all_do_while_diverted(vswitch, eth_type):
    flows = [packet(vswitch.servers[H21], eth_type, flow=flow) for flow in range(0, 24, 4)]
    circuit, electrical = [(Port.OPTICAL, VLAN)], [(vswitch.electrical, None)]
    pick, spill = spill_rules(RackId(1), 3)
    for alone in (pick, spill):
        vswitch.rules = [*vswitch.held(), alone]
        assert all(vswitch.sends(flow) == circuit for flow in flows), "half-way nothing spills"
    vswitch.rules = [*vswitch.held(), pick, spill]
    assert [vswitch.sends(flow) for flow in flows] == 2 * [circuit, circuit, electrical]
    vswitch.rules.append(vswitch.substrate.divert(RackId(1), 7))
    assert all(vswitch.sends(flow) == electrical for flow in flows)


def test_what_spills_leaves_all_of_several_paths_to_the_rest(vswitch):
    vswitch.state = state_of(DUAL, NetworkState(), *parallel_paths(DUAL))
    vlans = sorted(vswitch.state.vlans.values())
    vswitch.rules = [*vswitch.held(), *spill_rules(RackId(1), 2)]
    flows = [packet(vswitch.servers[H21], flow=flow) for flow in range(8)]
    assert [vswitch.sends(flow)[0][1] for flow in flows] == [*vlans, *vlans, *[None] * 4]


def test_what_is_reserved_does_not_spill(vswitch):
    reserved = constant(RuleKind.RESERVED_V4, rack_metadata(RackId(1)), 1)
    vswitch.rules += [reserved, *spill_rules(RackId(1), 2)]
    flows = [packet(vswitch.servers[H21], flow=flow) for flow in range(8)]
    assert [vswitch.sends(flow) for flow in flows] == [[(Port.OPTICAL, VLAN)]] * 8


@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_the_own_rack_is_reached_untagged_through_the_tor(vswitch, eth_type):
    assert vswitch.sends(packet(vswitch.servers[H12], eth_type)) == [(Port.OPTICAL, None)]


@pytest.mark.parametrize(
    "sent",
    [
        packet(BROADCAST, ARP),
        packet(DUAL.servers[H21], ARP),
        packet(DUAL.servers[H21], IPV6, ip_proto=58, icmpv6_type=136),
        packet(0x3333FF000001, IPV6, ip_proto=58, icmpv6_type=135),
        packet(0x01005E000001, IPV4),
        packet(0x020000000999, 0x88CC),
        packet(0x020000000999, IPV4, ipv4_dst=0x08080808),
    ],
)
def test_what_is_not_unicast_ip_between_racks_is_electrical(vswitch, sent):
    assert vswitch.sends(sent) == [(vswitch.electrical, None)]


@pytest.mark.parametrize("vlan", [None, VLAN])
def test_own_unicast_comes_in_and_foreign_does_not(vswitch, vlan):
    own, foreign = (packet(vswitch.servers[to], IPV4, vlan) for to in (H11, H12))
    assert vswitch.receives(own, Port.OPTICAL) == [(Port.HOST, None)]
    assert vswitch.receives(foreign, Port.OPTICAL) == []


def test_own_unicast_and_groups_come_in_from_the_electrical_network(vswitch):
    own = packet(vswitch.servers[H11])
    assert vswitch.receives(own, vswitch.electrical) == [(Port.HOST, None)]
    assert vswitch.receives(packet(BROADCAST, ARP), vswitch.electrical) == [(Port.HOST, None)]
    assert vswitch.receives(packet(vswitch.servers[H21]), vswitch.electrical) == []


@pytest.mark.parametrize("vlan", [None, VLAN])
def test_announcements_reach_no_host(vswitch, vlan):
    announced = packet(ANNOUNCEMENT, ANNOUNCE_ETHERTYPE, vlan)
    for port in {Port.OPTICAL, vswitch.electrical}:
        assert vswitch.receives(announced, port) == []


def test_groups_never_come_in_by_a_circuit(vswitch):
    assert vswitch.receives(packet(BROADCAST, ARP, VLAN), Port.OPTICAL) == []


def test_probes_for_this_server_are_handed_back(vswitch):
    own, foreign = (packet(vswitch.servers[to], PROBE_ETHERTYPE, VLAN) for to in (H11, H12))
    assert vswitch.receives(own, Port.OPTICAL) == [(CONTROLLER, VLAN)]
    assert vswitch.receives(foreign, Port.OPTICAL) == []


def test_a_dual_homed_server_without_its_optical_uplink_sends_nothing_there():
    vswitch = Vswitch(DUAL)
    vswitch.rules = vswitch.held(dead={"h11"})
    for to in (H12, H21, H31):
        assert vswitch.sends(packet(vswitch.servers[to])) == [(Port.ELECTRICAL, None)]


def test_a_dual_homed_server_reaches_others_without_theirs_electrically():
    vswitch = Vswitch(DUAL)
    vswitch.rules = vswitch.held(dead={"h12", "h21"})
    for to in (H12, H21):
        assert vswitch.sends(packet(vswitch.servers[to])) == [(Port.ELECTRICAL, None)]
    assert vswitch.sends(packet(vswitch.servers[H21 + 1])) == [(Port.OPTICAL, VLAN)]


@pytest.mark.parametrize("sender", [H12, H21], ids=["from their rack", "from elsewhere"])
@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_guests_of_a_dual_homed_server_without_its_optical_uplink_are_reached_as_it_is(
    sender, eth_type
):
    fabric = with_guests(DUAL, MacAddress("52:54:00:00:00:01"))
    server = fabric.servers[sender]
    state = state_of(fabric, NetworkState(), path_of(fabric, 0, 1))
    to_it = packet(fabric.servers[H11], eth_type)
    (guest,) = map(mac_as_int, fabric.servers[H11].guests)
    address = f"ipv{4 if eth_type == IPV4 else 6}_dst"
    to_guest = packet(guest, eth_type, **{address: to_it.fields[address] + 77})
    for dead, port in ((), Port.OPTICAL), ({"h11"}, Port.ELECTRICAL):
        rules = list(substrate_of(fabric).rules(server.vswitch.datapath_id, state, dead))
        for sent in (to_it, to_guest):
            ((way, _),) = forward(rules, sent_by(server, sent), Port.HOST)
            assert way == port
