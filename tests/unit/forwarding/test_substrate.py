"""The treatment of servers, ToRs and their ports by each substrate."""

from dataclasses import replace

import pytest

from hydra.forwarding.match_action import Arg, Port, Table
from hydra.forwarding.pipeline import SHAPES, RuleKind
from hydra.forwarding.rules import in_lanes, match_key
from hydra.forwarding.substrate import substrate_of
from hydra.model import NetworkState, RackId, VlanId
from hydra.roles import PortVlans
from tests.unit.core.fabrics import (
    NATIVE_VLAN,
    openflow_only,
    parallel_paths,
    single_homed,
    small_fabric,
    state_of,
)

DUAL = small_fabric(racks=3, planes=2, servers=2)
SINGLE = single_homed(DUAL)
OPENFLOW = openflow_only(DUAL)


def rules_of_h11(fabric, dead=()):
    substrate = substrate_of(fabric)
    (datapath,) = (
        switch.datapath
        for switch in substrate.steering(RackId(0))
        if fabric.servers[0] in switch.servers
    )
    return list(substrate.rules(datapath, NetworkState(), dead))


def kinds(fabric, dead=()):
    return [rule.kind for rule in rules_of_h11(fabric, dead)]


@pytest.mark.parametrize("fabric", [DUAL, SINGLE])
def test_servers_hear_every_circuit_and_their_own_rack(fabric):
    ports = substrate_of(fabric).fixed_ports(fabric.racks[0].id)
    assert {"s1", "s2"} <= set(ports)
    assert ports["s1"].native == NATIVE_VLAN
    assert ports["s1"].tagged == set(range(100, 400))


def test_only_a_single_homed_rack_has_the_electrical_network_behind_its_tor():
    assert set(substrate_of(DUAL).fixed_ports(DUAL.racks[0].id)) == {"s1", "s2"}
    ports = substrate_of(SINGLE).fixed_ports(SINGLE.racks[0].id)
    assert ports["up"] == PortVlans(frozenset({NATIVE_VLAN}))
    assert not any(VlanId(vlan) in ports["up"].tagged for vlan in range(100, 400))


def test_servers_that_share_an_uplink_share_its_rate():
    rates = [substrate_of(fabric).electrical_mbps(fabric.racks[0]) for fabric in (DUAL, SINGLE)]
    assert rates == [2 * DUAL.electrical_rate_mbps, DUAL.electrical_rate_mbps]


def test_one_uplink_is_announced_on_once():
    server, vlans = DUAL.servers[0], (VlanId(100),)
    dual, single = (list(substrate_of(f).announced(server, vlans)) for f in (DUAL, SINGLE))
    assert dual == [(Port.OPTICAL, 100), (Port.OPTICAL, None), (Port.ELECTRICAL, None)]
    assert single == [(Port.OPTICAL, 100), (Port.OPTICAL, None)]


def test_no_two_rules_of_a_single_homed_vswitch_have_one_match():
    rules = rules_of_h11(SINGLE)
    assert len({match_key(rule) for rule in rules}) == len(rules)


def test_nothing_matches_a_port_that_a_single_homed_vswitch_lacks():
    """Both uplinks are the same port: the rules for the two uplinks would conflict."""
    ports = {
        rule.args[field.value.index] if isinstance(field.value, Arg) else field.value
        for rule in rules_of_h11(SINGLE)
        for field in SHAPES[rule.kind].match
        if field.name == "in_port"
    }
    assert ports == {Port.HOST, Port.OPTICAL}


def test_groups_come_in_by_a_single_uplink_and_announcements_do_not():
    ranked = sorted(set(kinds(SINGLE)), key=lambda kind: -SHAPES[kind].priority)
    wanted = [RuleKind.UPLINK_ANNOUNCE_DROP, RuleKind.UPLINK_GROUP, RuleKind.UPLINK_DROP]
    assert [kind for kind in ranked if kind in wanted] == wanted
    assert not set(wanted[:2]) & set(kinds(DUAL))


@pytest.mark.parametrize("fabric", [DUAL, SINGLE])
def test_vswitches_steer_what_their_rack_sends(fabric):
    substrate = substrate_of(fabric)
    assert [switch.name for switch in substrate.steering(RackId(1))] == ["h21", "h22"]
    assert {switch.rack for switch in substrate.steering(RackId(1))} == {1}
    steering = {s.datapath for rack in fabric.racks for s in substrate.steering(rack.id)}
    assert steering == set(substrate.owned())


@pytest.mark.parametrize("fabric", [DUAL, SINGLE])
def test_vswitches_that_share_a_bridge_name_are_told_apart_by_their_servers(fabric):
    def alike(server):
        return replace(server, vswitch=replace(server.vswitch, bridge="vswitch"))

    racks = [
        replace(rack, servers=tuple(alike(server) for server in rack.servers))
        for rack in fabric.racks
    ]
    names = substrate_of(replace(fabric, racks=tuple(racks))).owned()
    assert sorted(names.values()) == sorted(server.name for server in fabric.servers)
    assert all(name.startswith("v-") for name in substrate_of(fabric).owned().values())


@pytest.mark.parametrize("fabric", [DUAL, SINGLE, OPENFLOW])
@pytest.mark.parametrize("count", [1, 2])
def test_a_switch_steers_by_path_and_diverts_by_pair(fabric, count):
    substrate = substrate_of(fabric)
    state = state_of(fabric, NetworkState(), *parallel_paths(fabric)[:count])
    held = {
        switch.name: set(substrate.rules(switch.datapath, state, ()))
        for rack in fabric.racks
        for switch in substrate.steering(rack.id)
    }
    both_ways = in_lanes(state.topology.paths, state.vlans)
    lanes = both_ways[0, 1]
    assert both_ways == {(0, 1): lanes, (1, 0): lanes}
    steer = substrate.steer(RackId(0), RackId(1), lanes, state.epoch)
    assert len(steer) == (1 if count == 1 else 1 + count)
    first = {switch.name for switch in substrate.steering(RackId(0))}
    assert {name for name, rules in held.items() if rules.issuperset(steer)} == first
    assert not any(substrate.divert(RackId(1), state.epoch) in rules for rules in held.values())
    other_ids = [(path, VlanId(vlan + 9)) for path, vlan in lanes]
    elsewhere = substrate.steer(RackId(0), RackId(1), other_ids, state.epoch + 1)
    assert list(map(match_key, elsewhere)) == list(map(match_key, steer))
    assert list(substrate.steer(RackId(0), RackId(1), (), state.epoch)) == []


def test_there_is_no_way_around_a_single_uplink():
    assert kinds(SINGLE, {"h11", "h12", "h21"}) == kinds(SINGLE)
    assert RuleKind.DIVERT_ALL in kinds(DUAL, {"h11"})


@pytest.mark.parametrize("fabric", [DUAL, SINGLE])
def test_every_table_but_the_first_has_a_rule_for_what_is_left(fabric):
    rest = {SHAPES[kind].table for kind in kinds(fabric) if SHAPES[kind].priority == 0}
    assert rest == set(Table) - {Table.INGRESS, Table.ROUNDS}
