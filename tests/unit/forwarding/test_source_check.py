"""Frames permitted from servers: own MAC addresses and no tags, on each substrate."""

from collections import Counter
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.forwarding.match_action import Port, server_port
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import mac_as_int
from hydra.forwarding.substrate import substrate_of
from hydra.model import MacAddress, NetworkState, VlanId
from hydra.policy import SourceCheck
from tests.unit.core.fabrics import (
    openflow_only,
    path_of,
    single_homed,
    small_fabric,
    state_of,
    with_guests,
)
from tests.unit.forwarding.packets import ARP, IPV4, IPV6, forward, packet

GUESTS = (MacAddress("52:54:00:00:00:01"), MacAddress("52:54:00:00:00:02"))


DUAL = with_guests(small_fabric(racks=3, planes=2, servers=2), *GUESTS)
FABRICS = {"dual": DUAL, "single": single_homed(DUAL), "openflow": openflow_only(DUAL)}
DESTINATIONS = [*DUAL.servers[1:], 0xFFFFFFFFFFFF, 0x01005E000001, 0x3333FF000001, 0x020000000999]
SOURCES = sorted(
    {0, 0x020000000999, *(mac_as_int(mac) for server in DUAL.servers for mac in server.macs)}
)
ADDRESSES = [interface.ip for server in DUAL.servers for interface in server.addresses]
CLAIMED = {
    version: [
        *(int(address) for address in ADDRESSES if address.version == version),
        *(int(ip_address(text)) for text in texts),
    ]
    for version, texts in {
        4: ("0.0.0.0", "10.0.1.77", "10.0.2.77"),
        6: ("::", "fe80::1", "febf::1", "fec0::1", "fd00:10:0:1::77", "fd00:10:0:2::77"),
    }.items()
}
FRAMES = st.builds(
    packet,
    st.sampled_from(DESTINATIONS),
    st.sampled_from([IPV4, IPV6, ARP, 0x88CC, 0x88B5, 0x88B6]),
    st.sampled_from([None, None, 0, 100, 4000]),
    eth_src=st.sampled_from(SOURCES),
    ip_dscp=st.sampled_from([0, 46]),
    ip_proto=st.sampled_from([6, 17, 58]),
    icmpv6_type=st.sampled_from([128, 133, 135, 136]),
    arp_spa=st.sampled_from(CLAIMED[4]),
    ipv6_src=st.sampled_from(CLAIMED[6]),
    ipv6_nd_target=st.sampled_from(CLAIMED[6]),
)


class Switch:
    """The switch that receives the frames of ``server``."""

    def __init__(self, name, server):
        fabric = FABRICS[name]
        self.server, self.one_uplink = fabric.servers[server], name == "single"
        substrate = substrate_of(fabric)
        rack = fabric.racks[self.server.rack]
        (switch,) = (s for s in substrate.steering(rack.id) if self.server in s.servers)
        state = state_of(fabric, NetworkState(), path_of(fabric, 0, 1), path_of(fabric, 1, 2))
        self.checked, self.unchecked, self.by_address = (
            list(substrate.rules(switch.datapath, state, (), source_check))
            for source_check in SourceCheck
        )
        self.prefixes = rack.prefixes
        self.servers = len(switch.servers)
        place = rack.servers.index(self.server)
        self.port = server_port(place) if name == "openflow" else Port.HOST

    def takes(self, rules, sent, port=None):
        where = self.port if port is None else port
        return forward(rules, sent, where, self.one_uplink, servers=self.servers)


SWITCHES = [Switch(name, server) for name in FABRICS for server in (0, 1, 2)]


@given(st.sampled_from(SWITCHES), FRAMES)
def test_own_untagged_frames_go_where_they_went_and_no_others_go_anywhere(switch, sent):
    own = sent.fields["eth_src"] in map(mac_as_int, switch.server.macs)
    checked = switch.takes(switch.checked, sent)
    if own and sent.vlan is None:
        assert checked == switch.takes(switch.unchecked, sent) != []
    else:
        assert checked == []


def claimed(sent):
    """The address that a frame announces to neighbours, if any."""
    match sent.fields:
        case {"eth_type": 0x0806, "arp_spa": number}:
            return IPv4Address(number)
        case {"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": 136, "ipv6_nd_target": number}:
            return IPv6Address(number)
        case {"eth_type": 0x86DD, "ip_proto": 58, "icmpv6_type": 135, "ipv6_src": number}:
            return IPv6Address(number)
    return None


@given(st.sampled_from(SWITCHES), FRAMES)
def test_by_address_none_is_claimed_but_own_ones(switch, sent):
    address, mac = claimed(sent), sent.fields["eth_src"]
    known = address is None or address.is_unspecified or address.is_link_local
    if mac == mac_as_int(switch.server.mac):
        known |= address in {interface.ip for interface in switch.server.addresses}
    elif not known:
        known = any(address in prefix for prefix in switch.prefixes)
    expected = switch.takes(switch.checked, sent) if known else []
    assert switch.takes(switch.by_address, sent) == expected


@given(st.sampled_from(SWITCHES), FRAMES)
def test_what_comes_from_elsewhere_is_taken_alike(switch, sent):
    port = Port.OPTICAL if switch.one_uplink else Port.ELECTRICAL
    checked, unchecked, by_address = (
        switch.takes(rules, sent, port)
        for rules in (switch.checked, switch.unchecked, switch.by_address)
    )
    assert checked == unchecked == by_address


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("mac", [DUAL.servers[0].mac, *GUESTS])
def test_guests_are_reached_as_their_server_is(name, mac):
    switch = Switch(name, 0)
    electrical = Port.OPTICAL if name == "single" else Port.ELECTRICAL
    assert switch.takes(switch.checked, packet(mac_as_int(mac)), electrical) == [
        (switch.port, None)
    ]
    if name != "openflow":
        by_circuit = packet(mac_as_int(mac), vlan=VlanId(100))
        assert switch.takes(switch.checked, by_circuit, Port.OPTICAL) == [(switch.port, None)]


@pytest.mark.parametrize("switch", SWITCHES)
def test_it_costs_a_rule_for_each_server_and_three_for_each_guest(switch):
    of_guests = 3 * len(switch.server.guests)
    servers = switch.servers
    if servers > 1 and not of_guests:  # h12's ToR is h11's, too
        of_guests = 3 * len(GUESTS) if switch.server.rack == 0 else 0
    assert len(switch.checked) - len(switch.unchecked) == servers + of_guests
    differ = Counter(rule.kind for rule in set(switch.checked) ^ set(switch.unchecked))
    assert all(kind.name.startswith("PORT_") for kind in differ)
    assert differ[RuleKind.PORT_FOREIGN] == servers


def test_addresses_cost_eleven_rules_for_a_server_with_one_of_each_family():
    for switch in (Switch("dual", 2), Switch("openflow", 2)):
        assert len(switch.by_address) - len(switch.checked) == 11 * switch.servers
