"""Orders of substeps for experiments, on a simulated network."""

from dataclasses import replace

import pytest

from apps.openflow.interface import PortInfo
from hydra.errors import HydraError
from hydra.forwarding.pipeline import COOKIE_KIND_EPOCH_MASK, RuleKind, cookie
from hydra.forwarding.rules import RemoveByCookie, match_key, rack_metadata
from hydra.lifecycle import ReconfigurationState
from hydra.model import NetworkState, VlanId
from hydra.policy import Policy, Transition
from hydra.reconfiguration.commands import ApplyRules, Pause, StageRules
from hydra.reconfiguration.substeps import OWN_CYCLE
from mininet_scenarios.cycles.application import refuse_real_switches
from mininet_scenarios.cycles.names import (
    CYCLE_VARIABLE,
    RULES_VARIABLE,
    CycleName,
    cycle_in_environment,
    cycle_of,
    environment_for,
    learns_of_ports,
)
from mininet_scenarios.cycles.orders import emulated_rules
from mininet_scenarios.cycles.unaware import Unaware
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of
from tests.unit.reconfiguration.test_executor import Scripted, execution_of
from tests.unit.reconfiguration.watch import Violation, Watch

FABRIC = small_fabric(racks=4, planes=2, servers=1)
OLD = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1))
"""r1 - r2."""
NEW = state_of(FABRIC, OLD, path_of(FABRIC, 0, 2))
"""r1 - r3, over r1's former port to r2."""
BESIDE = state_of(FABRIC, OLD, path_of(FABRIC, 0, 1, circuit_between(FABRIC, 0, 1, plane=1)))
"""r1 - r2 on the other plane."""


class _Indulgent(Watch):
    """Checks the end only."""

    def _mirrors_may_move(self, command):
        pass

    def look(self, command):
        pass

    def _all_new_paths_passed(self):
        pass


def course(name, *, rules=0, current=OLD, target=NEW, network=None):
    network = network or Scripted(FABRIC, current)
    execution = execution_of(network, current, target)
    execution.cycle = cycle_of(name, rules)
    return network, execution


def steps(network):
    return list(dict.fromkeys(batch.step for batch in network.batches))


@pytest.mark.parametrize(
    ("name", "order"),
    [
        (CycleName.AS_PUBLISHED, ["intent", "divert", "move", "activate"]),
        (CycleName.PROTOTYPE, ["intent", "divert", "move", "activate"]),
        (CycleName.UNDIVERTED, ["intent", "move", "carrier", "announce", "probe", "activate"]),
    ],
)
def test_a_cycle_gets_there_by_its_own_substeps(name, order):
    network, execution = course(name)
    _Indulgent(network, execution).run()
    assert execution.state is ReconfigurationState.DONE
    assert execution.result == NEW
    assert steps(network) == order


def test_as_published_takes_traffic_off_first_and_then_tries_nothing():
    """All invariants hold, except that traffic uses paths before their gate."""
    with pytest.raises(Violation, match="is in use and was not probed"):
        Watch(*course(CycleName.AS_PUBLISHED)).run()


@pytest.mark.parametrize(("rules", "seconds"), [(0, 1.2), (100, 1.2), (5000, 2.2)])
def test_the_prototype_takes_as_long_as_the_paper_s(rules, seconds):
    network, execution = course(CycleName.PROTOTYPE, rules=rules)
    _Indulgent(network, execution).run()
    (pause,) = network.commands(Pause, "move")
    assert pause.seconds == pytest.approx(seconds)


def test_undiverted_moves_mirrors_under_the_traffic():
    with pytest.raises(Violation, match=r"a mirror moves under .* may still use"):
        Watch(*course(CycleName.UNDIVERTED)).run()


@pytest.mark.parametrize("name", [CycleName.AS_PUBLISHED, CycleName.UNDIVERTED])
def test_vswitches_that_are_away_are_told_of_and_left_alone(name):
    network, execution = course(name)
    away = FABRIC.racks[0].servers[0]
    connected = execution.conditions.connected - {away.vswitch.datapath_id}
    execution.conditions = replace(execution.conditions, connected=connected)
    _Indulgent(network, execution).run()
    assert execution.unconfirmed == {away.name}
    assert all(away.vswitch.datapath_id not in c.changes for c in network.commands(ApplyRules))


@pytest.mark.parametrize("name", [CycleName.AS_PUBLISHED, CycleName.UNDIVERTED])
def test_other_changes_have_their_turn(name):
    _, execution = course(name)
    execution.enter(ReconfigurationState.DIVERTING)
    assert not execution.admits_other_changes
    execution.cycle = OWN_CYCLE
    assert execution.admits_other_changes


# -- pushes that are filled up --------------------------------------------------------------------


def test_a_push_is_filled_up_and_was_sent_ahead_as_it_is():
    network, execution = course(CycleName.DIVERT_FIRST, rules=100)
    Watch(network, execution).run()
    (staged,) = network.commands(StageRules)
    (pushed,) = network.commands(ApplyRules, "move")
    assert staged.changes.keys() == pushed.changes.keys()
    # The fleet recognizes earlier commands by identity.
    assert all(staged.changes[dp] is mine for dp, mine in pushed.changes.items())
    assert sum(map(len, pushed.changes.values())) == execution.rules_pushed == 100
    assert not execution.admits_other_changes


@pytest.mark.parametrize("name", list(CycleName))
def test_rules_of_the_last_change_go_and_this_one_s_stay(name):
    network, execution = course(name, rules=100)
    _Indulgent(network, execution).run()
    assert execution.rules_pushed == 100
    back = state_of(FABRIC, NEW, path_of(FABRIC, 0, 1))
    _, execution = course(name, rules=100, current=execution.result, target=back, network=network)
    _Indulgent(network, execution).run()
    emulated = {
        rule.cookie >> 32 & 0xFFFF
        for table in network.tables.values()
        for rule in table.values()
        if rule.kind is RuleKind.EMULATED_CIRCUIT
    }
    assert emulated == {back.epoch}
    assert any(
        isinstance(change, RemoveByCookie)
        for command in network.commands(ApplyRules, "tidy")
        for changes in command.changes.values()
        for change in changes
    )


def test_in_the_light_rules_are_pushed_before_the_pair_goes_over():
    network, execution = course(CycleName.HITLESS, rules=100, target=BESIDE)
    execution.in_light, execution.moving = True, frozenset()
    Watch(network, execution).run()
    (push,) = network.commands(ApplyRules, "make")
    assert sum(map(len, push.changes.values())) == 100
    assert not any(command.changes for command in network.commands(ApplyRules, "break"))
    assert steps(network)[-1] == "tidy"
    assert execution.rules_pushed == 102
    assert execution.result == BESIDE


def test_emulated_rules_of_successive_epochs_are_about_other_racks():
    odd, even = (emulated_rules(5000, VlanId(100), epoch) for epoch in (1, 2))
    assert not {match_key(rule) for rule in odd} & {match_key(rule) for rule in even}
    assert not {r.args[0] for r in (*odd, *even)} & {rack_metadata(r.id) for r in FABRIC.racks}
    one, other = cookie(RuleKind.EMULATED_CIRCUIT, 1), cookie(RuleKind.EMULATED_CIRCUIT, 2)
    assert {rule.cookie & COOKIE_KIND_EPOCH_MASK for rule in odd} == {one}
    assert {rule.cookie & COOKIE_KIND_EPOCH_MASK for rule in even} == {other}


# -- names ----------------------------------------------------------------------------------------


def test_the_controller_s_own_cycles_are_its_transitions():
    assert {name.value for name in CycleName if name.own} == set(Transition)
    assert all(cycle_of(name) is OWN_CYCLE for name in CycleName if name.own)
    for name in CycleName:
        policy = Policy(**name.policy)
        assert policy.transition in set(Transition)
        assert bool(policy.probe_interval_s) == name.own


def test_a_controller_is_told_its_cycle_by_its_environment(monkeypatch):
    for name, value in environment_for(CycleName.UNDIVERTED).items():
        monkeypatch.setenv(name, value)
    assert cycle_in_environment() is cycle_of(CycleName.UNDIVERTED)


@pytest.mark.parametrize(("name", "rules"), [("published", "0"), ("undiverted", "some")])
def test_a_cycle_that_there_is_not_is_refused(monkeypatch, name, rules):
    monkeypatch.setenv(CYCLE_VARIABLE, name)
    monkeypatch.setenv(RULES_VARIABLE, rules)
    with pytest.raises(HydraError, match="hitless, divert-first, as-published, undiverted"):
        cycle_in_environment()


@pytest.mark.parametrize("address", ["10.9.9.9:5025", "ocs.example:5025", "/dev/ttyUSB0"])
def test_what_loses_packets_is_for_emulated_mirrors_only(address):
    emulated = [replace(FABRIC.planes[0], address=one) for one in ("127.0.0.1:5025", "unix:/a")]
    refuse_real_switches(emulated)
    with pytest.raises(HydraError, match=rf"{address} may be a real switch"):
        refuse_real_switches([*emulated, replace(FABRIC.planes[1], address=address)])


class _Heard:
    """Receiver that keeps reports of ports."""

    def __init__(self):
        self.up = {}

    def knows(self, datapath):
        return datapath == 7

    def switch_connected(self, datapath, _connection, ports):
        self.up |= {(datapath, port.name): port.up for port in ports.values()}

    def port_changed(self, datapath, _connection, port, *, deleted):
        self.up[datapath, port.name] = port.up and not deleted


def test_a_published_prototype_does_not_learn_that_optical_ports_are_down():
    heard = _Heard()
    events = Unaware(heard, {"o1"})
    events.switch_connected(7, None, {1: PortInfo(1, "o1", False), 2: PortInfo(2, "s1", False)})
    assert heard.up == {(7, "o1"): True, (7, "s1"): False}
    events.port_changed(7, None, PortInfo(1, "o1", False), deleted=False)
    events.port_changed(7, None, PortInfo(2, "s1", True), deleted=False)
    assert heard.up == {(7, "o1"): True, (7, "s1"): True}
    events.port_changed(7, None, PortInfo(1, "o1", False), deleted=True)
    assert heard.up[7, "o1"] is False
    assert events.knows(7)
    assert not events.knows(8)


@pytest.mark.parametrize("rules", [0, 100])
@pytest.mark.parametrize("name", CycleName)
def test_all_other_cycles_learn_of_ports(name, rules):
    assert learns_of_ports(cycle_of(name, rules)) is (
        name not in {CycleName.AS_PUBLISHED, CycleName.PROTOTYPE}
    )
