"""Rules as a switch reports them; the real Open vSwitch is asked in tests/integration."""

import struct

import pytest

from drivers.codecs.openflow.rule_tables import (
    TableCheck,
    _read_constant_part,
    decode_rules,
    foreign,
    intended_table,
    rule_drift,
)
from drivers.codecs.openflow.rules import SwitchPorts, encode_changes
from drivers.codecs.openflow.statistics import MalformedReplyError
from hydra.forwarding.rules import Install, InstallAll, emulated_rules
from hydra.forwarding.substrate import substrate_of
from hydra.model import NetworkState, RackId, VlanId
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
            mod[24], 1, 2, *struct.unpack_from("!H", mod, 30), 0, 0, 0,
            rule.cookie if cookie is None else cookie, 7, 700,
        )  # fmt: skip
        entry = head + mod[48:]
        entries += struct.pack("!H", 2 + len(entry)) + entry
    return entries


def drift(rules, held):
    return list(rule_drift("v1", intended_table(map(Install, rules), PORTS), decode_rules(held)))


def test_rules_as_intended_show_no_drift_in_any_order_and_with_any_counters():
    assert drift(RULES, reply(reversed(RULES))) == []


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
    (removal,) = foreign(intended_table(map(Install, RULES), PORTS), decode_rules(held))
    assert (removal.cookie, removal.mask) == (0xBEEF, 2**64 - 1)


def test_the_rules_of_an_experiment_are_none_of_its_business():
    assert drift(RULES, reply([*RULES, *emulated_rules(3, VlanId(100), 2)])) == []


@pytest.mark.parametrize("cut", [1, 40, 60])
def test_a_reply_that_is_cut_short_is_refused(cut):
    with pytest.raises(MalformedReplyError):
        decode_rules(reply(RULES)[:-cut])


COMMON = InstallAll(tuple(RULES[5:]))
OWN = RULES[:5]


def checked(check, held, own=OWN):
    return check.drift("v1", (COMMON, *map(Install, own)), PORTS, held)


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
    check = TableCheck()
    for _ in range(2):  # at first nothing is known, then all that is right
        assert list(checked(check, reply(held)).items) == drift(RULES, reply(held))
        assert checked(check, reply(RULES)).items == ()


def test_a_switch_that_holds_what_another_should_is_found():
    others = [*RULES[5:], *(rule for rule in RULES[:5] if rule != RULES[0])]
    check = TableCheck()
    assert checked(check, reply(others), own=RULES[1:5]).items == ()
    (item,) = checked(check, reply(others)).items
    assert item.actual == "nothing"


def test_rules_in_common_are_known_again_by_their_bytes(monkeypatch):
    check = TableCheck()
    checked(check, reply(RULES))
    read = []
    monkeypatch.setattr(
        "drivers.codecs.openflow.rule_tables._read_constant_part",
        lambda part, real=_read_constant_part: read.append(part) or real(part),
    )
    assert checked(check, reply(reversed(RULES))).items == ()
    assert len(read) == len(OWN)


@pytest.mark.parametrize("cut", [1, 40, 60])
def test_the_quick_look_refuses_what_is_cut_short(cut):
    with pytest.raises(MalformedReplyError):
        checked(TableCheck(), reply(RULES)[:-cut])
