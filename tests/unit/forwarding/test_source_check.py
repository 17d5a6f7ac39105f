"""What servers may send: frames with their own MAC addresses and no tags, on each substrate."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.forwarding.pipeline import Port, RuleKind, server_port
from hydra.forwarding.rules import mac_as_int
from hydra.forwarding.substrate import substrate_of
from hydra.model import MacAddress, NetworkState, VlanId
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
FRAMES = st.builds(
    packet,
    st.sampled_from(DESTINATIONS),
    st.sampled_from([IPV4, IPV6, ARP, 0x88CC, 0x88B5, 0x88B6]),
    st.sampled_from([None, None, 0, 100, 4000]),
    eth_src=st.sampled_from(SOURCES),
    ip_dscp=st.sampled_from([0, 46]),
    ip_proto=st.sampled_from([6, 17, 58]),
    icmpv6_type=st.sampled_from([128, 133, 135, 136]),
)


class Switch:
    """The one that takes in what ``server`` sends."""

    def __init__(self, name, server):
        fabric = FABRICS[name]
        self.server, self.one_uplink = fabric.servers[server], name == "single"
        substrate = substrate_of(fabric)
        rack = fabric.racks[self.server.rack]
        (switch,) = (s for s in substrate.steering(rack.id) if self.server in s.servers)
        state = state_of(fabric, NetworkState(), path_of(fabric, 0, 1), path_of(fabric, 1, 2))
        self.checked, self.unchecked = (
            list(substrate.rules(switch.datapath, state, (), source_check))
            for source_check in (True, False)
        )
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


@given(st.sampled_from(SWITCHES), FRAMES)
def test_what_comes_from_elsewhere_is_taken_alike(switch, sent):
    port = Port.OPTICAL if switch.one_uplink else Port.ELECTRICAL
    checked, unchecked = (
        switch.takes(rules, sent, port) for rules in (switch.checked, switch.unchecked)
    )
    assert checked == unchecked


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
