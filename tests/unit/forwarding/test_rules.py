from dataclasses import replace
from itertools import pairwise

import pytest

from hydra.forwarding.match_action import Arg, Output, PickPath, Port, PushVlan, SetPath, Table
from hydra.forwarding.pipeline import (
    COOKIE_TAG,
    COOKIE_TAG_MASK,
    ND_TYPES,
    SHAPES,
    RuleKind,
    cookie,
    cookie_subject,
)
from hydra.forwarding.rules import (
    BY_UPLINK,
    FlowRule,
    Install,
    InstallAll,
    RemoveByCookie,
    account_rules,
    are_alike,
    circuit_rules,
    divert_rule,
    match_key,
    own_rack_rules,
    rack_metadata,
    uplink_exceptions,
)
from hydra.forwarding.substrate import substrate_of
from hydra.model import NetworkState, RackId, VlanId
from tests.unit.core.fabrics import parallel_paths, path_of, small_fabric, state_of
from tests.unit.forwarding.sample_rules import circuit_rule, every_rule

FABRIC = small_fabric(racks=3, planes=2, servers=2)
SUBSTRATE = substrate_of(FABRIC)


def rules_of(server, dead=()):
    return list(SUBSTRATE.rules(server.vswitch.datapath_id, NetworkState(), dead))


def path_rules(state, server):
    return list(SUBSTRATE.path_rules(server.vswitch.datapath_id, state))


H11, H12, H21 = FABRIC.servers[0], FABRIC.servers[1], FABRIC.servers[2]


def kinds(rules):
    return [rule.kind for rule in rules]


def arguments(kind):
    """Number of places for arguments in the shape of a kind."""
    shape = SHAPES[kind]
    values = [value for field in shape.match for value in (field.value, field.mask)]
    values += [shape.write_metadata, shape.meter]
    values += [action.port for action in shape.actions if isinstance(action, Output)]
    values += [action.vlan for action in shape.actions if isinstance(action, PushVlan)]
    values += [action.last for action in shape.actions if isinstance(action, PickPath)]
    values += [action.number for action in shape.actions if isinstance(action, SetPath)]
    return {value.index for value in values if isinstance(value, Arg)}


def test_every_kind_has_a_shape_and_is_used():
    assert set(SHAPES) == set(RuleKind)
    assert set(kinds(every_rule(FABRIC))) == set(RuleKind)


@pytest.mark.parametrize("kind", RuleKind)
def test_rules_bring_exactly_what_their_shape_asks_for(kind):
    places = arguments(kind)
    assert places == set(range(len(places)))
    rules = [rule for rule in every_rule(FABRIC) if rule.kind is kind]
    assert {len(rule.args) for rule in rules} == {len(places)}


def test_every_cookie_says_whose_and_what_it_is():
    for rule in every_rule(FABRIC):
        assert rule.cookie & COOKIE_TAG_MASK == COOKIE_TAG
        assert rule.cookie >> 48 & 0xFF == rule.kind.value


def test_packets_go_on_to_later_tables_only():
    for shape in SHAPES.values():
        assert shape.goto is None or shape.goto > shape.table
        assert not (shape.goto and any(isinstance(one, Output) for one in shape.actions))


def test_every_table_but_the_first_has_a_rule_for_what_is_left():
    tables = {shape.table for shape in SHAPES.values() if shape.priority == 0 and not shape.match}
    assert tables == set(Table) - {Table.ROUNDS}, "which no server's packet comes to"
    for server in FABRIC.servers:
        rest = {
            SHAPES[rule.kind].table for rule in rules_of(server) if SHAPES[rule.kind].priority == 0
        }
        assert rest == set(Table) - {Table.INGRESS, Table.ROUNDS}


def test_no_two_kinds_of_a_table_compete_at_one_priority():
    tor = {kind for kind in RuleKind if kind.name.startswith("TOR_")}
    shared = {RuleKind.ELECTRICAL_ANNOUNCE_DROP}
    shared |= {kind for kind in RuleKind if kind.name.startswith(("ACCOUNT", "DIVERT", "CLASS"))}
    for kinds in (set(RuleKind) - tor, tor | shared | {RuleKind.CIRCUIT_NONE}):
        shapes = {kind: SHAPES[kind] for kind in kinds}
        ranked = sorted(shapes.items(), key=lambda item: (item[1].table, -item[1].priority))
        for (one, first), (other, second) in pairwise(ranked):
            if (first.table, first.priority) == (second.table, second.priority):
                versions = {one.name[-2:], other.name[-2:]}
                assert versions == {"V4", "V6"}  # these never match the same packet


@pytest.mark.parametrize("dead", [(), ("h11",), ("h12", "h21"), ("h21", "h22", "h31")])
def test_no_two_rules_of_a_vswitch_have_one_match(dead):
    for server in FABRIC.servers:
        keys = [match_key(rule) for rule in rules_of(server, dead)]
        assert len(keys) == len(set(keys))


def test_the_match_and_only_the_match_tells_rules_apart():
    assert match_key(circuit_rule(RackId(1), VlanId(100), 1)) == match_key(
        circuit_rule(RackId(1), VlanId(200), 9)
    )
    assert match_key(circuit_rule(RackId(1), VlanId(100), 1)) != match_key(
        circuit_rule(RackId(2), VlanId(100), 1)
    )
    local = next(own_rack_rules(FABRIC, H11, uplink_dead=False))
    assert match_key(local) == match_key(next(own_rack_rules(FABRIC, H11, uplink_dead=True)))
    assert match_key(divert_rule(RackId(1), 1)) != match_key(circuit_rule(RackId(1), VlanId(1), 1))


def test_every_foreign_prefix_is_counted_towards_its_rack():
    rules = list(account_rules(FABRIC, H11.rack))
    assert [rule.args[2] for rule in rules[:-1]] == [2, 3, 2, 3]
    assert [rule.kind for rule in rules[:-1]] == 2 * [RuleKind.ACCOUNT_V4] + 2 * [
        RuleKind.ACCOUNT_V6
    ]
    assert rules[-1].kind is RuleKind.ACCOUNT_OTHER
    assert {cookie_subject(rule.cookie) for rule in rules[:-1]} == {2, 3}
    prefix = FABRIC.racks[1].prefixes[0]
    assert rules[0].args[:2] == (int(prefix.network_address), int(prefix.netmask))


def test_neighbour_discovery_is_electrical():
    types = [r.args[0] for r in rules_of(H11) if r.kind is RuleKind.HOST_ND]
    assert tuple(types) == ND_TYPES


def test_own_rack_traffic_leaves_a_dead_uplink_alone():
    alive = {rule.args[2] for rule in own_rack_rules(FABRIC, H11, uplink_dead=False)}
    dead = {rule.args[2] for rule in own_rack_rules(FABRIC, H11, uplink_dead=True)}
    assert (alive, dead) == ({Port.OPTICAL}, {Port.ELECTRICAL})


def test_servers_with_dead_uplinks_are_reached_electrically():
    assert kinds(uplink_exceptions(FABRIC, H11, {"h11"})) == [RuleKind.DIVERT_ALL]
    beside = list(uplink_exceptions(FABRIC, H12, {"h11"}))
    assert kinds(beside) == [RuleKind.OWN_RACK_HOST_V4, RuleKind.OWN_RACK_HOST_V6]
    elsewhere = list(uplink_exceptions(FABRIC, H21, {"h11"}))
    assert kinds(elsewhere) == [RuleKind.DIVERT_HOST_V4, RuleKind.DIVERT_HOST_V6]
    addresses = tuple(int(interface.ip) for interface in H11.addresses)
    assert tuple(rule.args[0] for rule in elsewhere) == addresses
    assert list(uplink_exceptions(FABRIC, H21, ())) == []


def test_each_end_of_a_path_has_a_rule_for_the_other():
    path = path_of(FABRIC, 0, 1)
    state = replace(state_of(FABRIC, NetworkState(), path), epoch=5)
    assert path_rules(state, H11) == [circuit_rule(RackId(1), VlanId(100), 5)]
    assert path_rules(state, H21) == [circuit_rule(RackId(0), VlanId(100), 5)]
    assert path_rules(state, FABRIC.racks[2].servers[0]) == []


def test_both_ends_number_several_paths_alike():
    state = state_of(FABRIC, NetworkState(), *parallel_paths(FABRIC))
    for server, other in ((H11, RackId(1)), (H21, RackId(0))):
        rules = path_rules(state, server)
        assert rules == list(circuit_rules(BY_UPLINK, other, [(100,), (101,)], state.epoch))
        assert len({match_key(rule) for rule in rules}) == 3


def test_a_rack_and_its_metadata():
    assert [rack_metadata(rack.id) for rack in FABRIC.racks] == [1, 2, 3]


def test_epochs_beyond_the_cookie_wrap_and_spill_into_nothing():
    assert cookie(RuleKind.CIRCUIT, 0x1_0005, 7) == cookie(RuleKind.CIRCUIT, 5, 7)
    assert cookie_subject(cookie(RuleKind.CIRCUIT, 0xFFFF, 0xFFFF_FFFF)) == 0xFFFF_FFFF


def test_changes_are_alike_that_differ_in_epochs_alone():
    early, late = (circuit_rules(BY_UPLINK, RackId(1), [(100,)], epoch) for epoch in (1, 2))
    (rule,) = early
    held = [Install(rule)]
    assert are_alike(held, [InstallAll(late)])
    assert not are_alike(held, [Install(*circuit_rules(BY_UPLINK, RackId(1), [(101,)], 1))])
    assert not are_alike(held, [Install(FlowRule(rule.kind, rule.args, cookie(rule.kind, 1, 7)))])
    assert not are_alike(held, [RemoveByCookie(rule.cookie, COOKIE_TAG_MASK), *held])
