"""Class tables: changes go to ready switches, and missing confirmations are reported."""

from ipaddress import ip_address

import pytest

from apps.controller.classifier import Classifier
from hydra.failures import Failure, FailureKind
from hydra.forwarding.class_table import TcpConnection
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import Install, Remove
from hydra.model import RackId
from hydra.policy import CurrentPolicy, Policy, Sharing
from tests.unit.core.fabrics import openflow_only, small_fabric

FABRIC = small_fabric(racks=2, planes=1, servers=2)
SWITCHES = list(FABRIC.server_by_datapath)
FIRST = SWITCHES[0]
FLOW = TcpConnection(ip_address("10.0.2.1"), 40000, 5201)
OTHER = TcpConnection(ip_address("fd00:10:0:2::1"), 40001, 5201)


NO_ANSWER = Failure("openflow", "v-h11", FailureKind.UNKNOWN, "no answer")


class Fleet:
    def __init__(self):
        self.sent = []
        self.broken = set()

    def apply(self, changes, _timeout_s):
        self.sent.append(changes)
        return {dp: NO_ANSWER if dp in self.broken else None for dp in changes}


@pytest.fixture
def fleet():
    return Fleet()


@pytest.fixture
def elephants():
    return {}


@pytest.fixture
def policy():
    return CurrentPolicy(Policy(sharing=Sharing.BY_DEMAND))


@pytest.fixture
def spills():
    return {}


@pytest.fixture
def classifier(fleet, elephants, policy, spills):
    return Classifier(
        fabric=FABRIC,
        fleet=fleet,
        elephants=lambda server: elephants.get(server.name, ()),
        policy=policy,
        spills=lambda: spills,
    )


def kinds(changes):
    return [(type(one), one.rule.kind) for one in changes]


def test_circuits_for_all_need_no_rules(classifier, fleet):
    assert classifier.bring(SWITCHES, SWITCHES) == frozenset()
    assert fleet.sent == []
    assert classifier.rules_for(FIRST) == frozenset()


def test_elephants_come_and_go(classifier, fleet, elephants, policy):
    assert not any(map(classifier.rules_for, SWITCHES))
    policy.now = Policy(sharing=Sharing.ON_DEMAND)
    classifier.bring(SWITCHES, SWITCHES)
    assert set(fleet.sent[-1]) == set(SWITCHES)
    assert kinds(fleet.sent[-1][FIRST]) == [(Install, RuleKind.CLASS_MICE)]
    elephants["h11"] = {FLOW, OTHER}
    classifier.bring([FIRST], SWITCHES)
    assert sorted(kind.name for _, kind in kinds(fleet.sent[-1][FIRST])) == [
        "CLASS_ELEPHANT_V4",
        "CLASS_ELEPHANT_V6",
    ]
    elephants["h11"] = {OTHER}
    classifier.bring([FIRST], SWITCHES)
    assert kinds(fleet.sent[-1][FIRST]) == [(Remove, RuleKind.CLASS_ELEPHANT_V4)]
    count = len(fleet.sent)
    classifier.bring(SWITCHES, SWITCHES)
    assert len(fleet.sent) == count, "nothing has changed"
    policy.now = Policy(sharing=Sharing.UNDIFFERENTIATED)
    classifier.bring(SWITCHES, SWITCHES)
    assert classifier.rules_for(FIRST) == frozenset()


def test_what_is_to_be_held_changes_only_when_it_is_brought(classifier, elephants, policy):
    """An audit reads tables before it compares: reports in between must not look like drift."""
    policy.now = Policy(sharing=Sharing.ON_DEMAND)
    before = classifier.rules_for(FIRST)
    elephants["h11"] = {FLOW}
    assert classifier.rules_for(FIRST) == before
    classifier.bring([FIRST], SWITCHES)
    assert len(classifier.rules_for(FIRST)) == len(before) + 1


def test_who_is_not_ready_is_told_when_it_is_synchronised(classifier, fleet, elephants, policy):
    policy.now = Policy(sharing=Sharing.ON_DEMAND)
    classifier.rules_for(FIRST)
    elephants["h11"] = {FLOW}
    assert classifier.bring([FIRST], ()) == frozenset()
    assert fleet.sent == []
    assert {rule.kind for rule in classifier.rules_for(FIRST)} == {
        RuleKind.CLASS_MICE,
        RuleKind.CLASS_ELEPHANT_V4,
    }


def test_what_is_not_confirmed_is_told(classifier, fleet, elephants, policy, caplog):
    policy.now = Policy(sharing=Sharing.ON_DEMAND)
    classifier.rules_for(FIRST)
    fleet.broken = {FIRST}
    elephants["h11"] = {FLOW}
    assert classifier.bring([FIRST], SWITCHES) == {FIRST}
    assert "is not confirmed: no answer" in caplog.text


def test_a_tor_that_steers_classes_for_all_its_servers(fleet, elephants):
    fabric = openflow_only(FABRIC)
    classifier = Classifier(
        fabric=fabric,
        fleet=fleet,
        elephants=lambda server: elephants.get(server.name, ()),
        policy=CurrentPolicy(Policy(sharing=Sharing.ON_DEMAND)),
        spills=dict,
    )
    elephants |= {"h11": {FLOW}, "h12": {OTHER}, "h21": {FLOW}}
    tor = classifier.switch_of(fabric.servers[0])
    assert tor == classifier.switch_of(fabric.servers[1]) == fabric.racks[0].tor.datapath_id
    assert len(classifier.rules_for(tor)) == 3
    assert len(classifier.switches) == 2


def test_flows_spill_at_the_sending_racks_switches(classifier, fleet, spills):
    assert not any(map(classifier.rules_for, SWITCHES))
    spills[RackId(0), RackId(1)] = 6
    classifier.bring(SWITCHES, SWITCHES)
    assert set(fleet.sent[-1]) == {server.vswitch.datapath_id for server in FABRIC.racks[0].servers}
    assert sorted(kind.name for _, kind in kinds(fleet.sent[-1][FIRST])) == ["SPILL", "SPILL_PICK"]
    spills.clear()
    classifier.bring(SWITCHES, SWITCHES)
    assert {type(one) for one in fleet.sent[-1][FIRST]} == {Remove}
    assert not classifier.rules_for(FIRST)
