"""Rules in switches' replies; tests/integration uses the real Open vSwitch."""

import itertools
import struct
from dataclasses import replace

import pytest

from drivers.codecs.openflow import _tables
from drivers.codecs.openflow.messages import encode_bundle_control
from drivers.codecs.openflow.rule_tables import (
    decode_rules,
    foreign,
    held_relays,
    intended_table,
    is_exact,
    refused_frames,
    rule_drift,
    table_drift,
)
from drivers.codecs.openflow.rules import SwitchPorts, encode_changes, encode_open_bundle
from drivers.codecs.openflow.statistics import MalformedReplyError
from hydra.forwarding.match_action import wired_port
from hydra.forwarding.pipeline import VLAN_PRESENT, RuleKind, cookie
from hydra.forwarding.rules import (
    FlowRule,
    Install,
    InstallAll,
    Remove,
    common_constant,
    constant,
    match_key,
)
from hydra.forwarding.substrate import substrate_of
from hydra.model import NetworkState, RackId, VlanId
from mininet_scenarios.cycles.orders import emulated_rules
from tests.unit.core.fabrics import small_fabric
from tests.unit.forwarding.sample_rules import circuit_rule

FABRIC = small_fabric(racks=3, planes=1)
PORTS = SwitchPorts(host=4, optical=5, electrical=6)
SERVER = FABRIC.servers[0]
RULES = [
    *substrate_of(FABRIC).rules(SERVER.vswitch.datapath_id, NetworkState(), ()),
    circuit_rule(RackId(1), VlanId(104), 3),
]


def reply(rules, ports=PORTS, cookie=None):
    """The flow statistics of a switch that holds ``rules``."""
    entries = b""
    for rule in rules:
        mod = encode_changes([Install(rule)], ports, 0, None)
        head = struct.pack(
            "!BxIIHHHHxxxxQQQ",
            mod[24], 1, 2, *struct.unpack_from("!H", mod, 30), 0, 0, mod[45],
            rule.cookie if cookie is None else cookie, 7, 700,
        )  # fmt: skip
        entry = head + mod[48:]
        entries += struct.pack("!H", 2 + len(entry)) + entry
    return entries


def drift(rules, held):
    return list(rule_drift("v1", intended_table(map(Install, rules), PORTS), decode_rules(held)))


def test_rules_as_intended_show_no_drift_in_any_order_and_with_any_counters():
    assert drift(RULES, reply(reversed(RULES))) == []


def test_frames_that_the_source_check_has_dropped_are_counted():
    held = reply(RULES)
    assert refused_frames(PORTS, held) == {0: 7}
    assert table_drift("v1", tuple(map(Install, RULES)), PORTS, held).refused == {0: 7}
    others = [rule for rule in RULES if rule.kind is not RuleKind.PORT_FOREIGN]
    assert refused_frames(PORTS, reply(others)) == {}
    assert refused_frames(SwitchPorts(host=9), held) == {}, "another port's"


def test_at_a_tor_they_are_counted_by_server():
    ports = SwitchPorts(servers=(11, 12, 13))
    rules = [common_constant(RuleKind.PORT_FOREIGN, number) for number in (12, 13)]
    rules.append(common_constant(RuleKind.TOR_TAGGED_DROP, 13))
    assert refused_frames(ports, reply(rules, ports)) == {1: 7, 2: 14}


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_of_a_reply_that_is_cut_short_no_count_is_made_up(cut):
    rule = common_constant(RuleKind.PORT_FOREIGN, 4)
    assert refused_frames(PORTS, reply([rule])[:-cut]) in ({}, {0: 7})


def test_epochs_do_not_count():
    assert drift(RULES, reply([*RULES[:-1], circuit_rule(RackId(1), VlanId(104), 1)])) == []


def test_a_rule_that_is_gone():
    (item,) = drift(RULES, reply(RULES[:-1]))
    assert (item.device, item.subject) == ("v1", "table circuits, priority 100, circuit")
    assert (item.intended, item.actual) == ("installed", "nothing")


def test_a_rule_with_other_actions():
    (item,) = drift(RULES, reply([*RULES[:-1], circuit_rule(RackId(1), VlanId(105), 3)]))
    assert item.actual == "other actions"


def test_somebody_elses_rule_is_named_by_its_cookie_and_removed_by_it():
    other = reply([circuit_rule(RackId(2), VlanId(9), 0)], cookie=0xBEEF)
    held = reply(RULES) + other
    (item,) = drift(RULES, held)
    assert item.subject == "table circuits, priority 100, cookie 0xbeef"
    assert (item.device, item.intended, item.actual) == ("v1", "nothing", "installed")
    (removal,) = foreign(intended_table(map(Install, RULES), PORTS), decode_rules(held))
    assert (removal.cookie, removal.mask) == (0xBEEF, 2**64 - 1)
    (item,) = drift(RULES, reply(RULES) + other[:2] + bytes([77]) + other[3:])
    assert item.subject == "table 77, priority 100, cookie 0xbeef"


def test_the_rules_of_an_experiment_are_none_of_its_business():
    assert drift(RULES, reply([*RULES, *emulated_rules(3, VlanId(100), 2)])) == []


@pytest.mark.parametrize("cut", [1, 40, 60])
def test_a_reply_that_is_cut_short_is_refused(cut):
    with pytest.raises(MalformedReplyError):
        decode_rules(reply(RULES)[:-cut])


COMMON = InstallAll(tuple(RULES[5:]))
OWN = RULES[:5]


def checked(held, own=OWN):
    return table_drift("v1", (COMMON, *map(Install, own)), PORTS, held)


def exact(held, own=OWN):
    return is_exact((COMMON, *map(Install, own)), PORTS, held)


@pytest.mark.parametrize(
    "held",
    [
        RULES[:-1],
        RULES[1:],
        [*RULES, circuit_rule(RackId(2), VlanId(9), 0)],
        [*RULES[:-1], circuit_rule(RackId(1), VlanId(105), 3)],
        [*RULES[:-2], circuit_rule(RackId(1), VlanId(104), 3)],
        [],
    ],
    ids=["common gone", "own gone", "one more", "other actions", "one of common gone", "none"],
)
def test_the_quick_look_finds_what_the_slow_one_finds(held):
    assert not exact(reply(held))
    assert list(checked(reply(held)).items) == drift(RULES, reply(held))
    assert exact(reply(reversed(RULES)))
    assert checked(reply(RULES)).items == ()


def test_a_rule_twice_in_place_of_another_is_not_exact():
    assert not exact(reply([*RULES[:-1], RULES[0]]))
    assert not exact(reply([*RULES[:5], *RULES[6:], RULES[7]]))


def test_a_switch_that_holds_what_another_should_is_found():
    others = [*RULES[5:], *(rule for rule in RULES[:5] if rule != RULES[0])]
    assert exact(reply(others), own=RULES[1:5])
    (item,) = checked(reply(others)).items
    assert item.actual == "nothing"


def test_epochs_are_not_looked_at_but_all_else_of_a_cookie_is():
    assert exact(reply([*RULES[:-1], circuit_rule(RackId(1), VlanId(104), 1)]))
    last = RULES[-1]
    for bit in (0, 31, 48, 55, 63):
        assert not exact(reply([*RULES[:-1], replace(last, cookie=last.cookie ^ 1 << bit)]))


@pytest.mark.parametrize("at", [2, 12, 14, 16, 18, 60, -1])
def test_a_bit_of_anything_but_counters_and_age_is_seen(at):
    """Table, priority, time-outs, flags, match and instructions of the last rule."""
    first = reply(RULES[:-1])
    last = bytearray(reply(RULES[-1:]))
    for counter in (4, 8, 32, 40):  # age, packets and bytes
        last[counter] ^= 1
    assert exact(first + last)
    last[at] ^= 1
    assert not exact(first + last)


def test_masks_of_ones_and_the_order_of_fields_do_not_count():
    rule = next(one for one in RULES if one.kind is RuleKind.ACCOUNT_V4)
    mod = encode_changes([Install(rule)], PORTS, 0, None)
    table = _tables.Table(mod, 2**64 - 1)
    nothing = _tables.Table(b"", 2**64 - 1)
    (held,) = [reply([rule])]
    _, match_bytes = struct.unpack_from("!HH", held, 48)
    fields, at = [], 52
    while at < 48 + match_bytes:
        size = 4 + held[at + 3]
        fields.append(held[at : at + size])
        at += size
    assert len(fields) > 1
    other = held[:52] + b"".join(reversed(fields)) + held[at:]
    assert table.held_with(nothing, other)
    plain = next(one for one in fields if not one[2] & 1)
    size = plain[3]
    masked = plain[:2] + bytes([plain[2] | 1, 2 * size]) + plain[4:] + b"\xff" * size
    match = b"".join(masked if one == plain else one for one in fields)
    whole = held[48:50] + struct.pack("!H", 4 + len(match)) + match + bytes(-(4 + len(match)) % 8)
    entry = held[:48] + whole + held[48 + (match_bytes + 7) // 8 * 8 :]
    assert table.held_with(nothing, struct.pack("!H", len(entry)) + entry[2:])


@pytest.mark.parametrize("cut", [1, 40, 60])
def test_the_quick_look_refuses_what_is_cut_short(cut):
    assert not exact(reply(RULES)[:-cut])
    with pytest.raises(MalformedReplyError):
        checked(reply(RULES)[:-cut])


def test_lengths_that_lie_are_survived():
    """A reply with each byte changed in turn, as no switch would send it."""
    table = _tables.Table(encode_changes(map(Install, RULES), PORTS, 0, None), 0)
    nothing, held = _tables.Table(b"", 0), bytearray(reply(RULES))
    assert table.held_with(nothing, held)
    for at, value in itertools.product(range(len(held)), (0, 1, 0x7F, 0xFF)):
        lying = held.copy()
        lying[at] = value
        table.held_with(nothing, bytes(lying))


@pytest.mark.parametrize("cut", [1, 30, 50])
def test_only_flow_mods_that_add_make_a_table(cut):
    mods = encode_changes(map(Install, RULES), PORTS, 0, None)
    assert len(_tables.Table(mods, 0)) == len(RULES)
    for other in (mods[:-cut], encode_changes([Remove(RULES[0])], PORTS, 0, None), bytes(64)):
        with pytest.raises(ValueError, match="no flow-mods"):
            _tables.Table(other, 0)
    bundle = encode_open_bundle([InstallAll(tuple(RULES))], PORTS, 7, 1)
    opening = len(encode_bundle_control(1, 0, 7))
    assert len(_tables.Table(bundle[opening:], 0)) == len(RULES)


def test_relay_rules_are_told_by_what_they_match():
    ports = SwitchPorts(wired=(11, 12))
    here, there = wired_port(0), wired_port(1)
    relays = [
        FlowRule(RuleKind.TOR_RELAY, args, cookie(RuleKind.TOR_RELAY, 3, 7))
        for args in ((here, VLAN_PRESENT | 101, there), (there, VLAN_PRESENT | 101, here))
    ]
    elsewhere = FlowRule(RuleKind.TOR_RELAY, (40, VLAN_PRESENT | 9, here), relays[0].cookie)
    body = reply([*relays, elsewhere, constant(RuleKind.TOR_WIRED_DROP, here)], ports)
    found = held_relays(ports, body)
    assert {match_key(rule) for rule in found} == {match_key(r) for r in (*relays, elsewhere)}
    removals = [encode_changes([Remove(rule)], ports, 0, None) for rule in (*relays, elsewhere)]
    assert {encode_changes([Remove(rule)], ports, 0, None) for rule in found} == set(removals)
    assert held_relays(ports, reply(RULES, ports)) == []
    with pytest.raises(MalformedReplyError):
        held_relays(ports, body[:-8])
