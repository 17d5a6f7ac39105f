"""Reconfigurations of paths relayed by OpenFlow ToRs: the relays' commands, and their order."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hydra.failures import FailureKind
from hydra.forwarding.match_action import wired_port
from hydra.forwarding.pipeline import VLAN_PRESENT, RuleKind
from hydra.forwarding.rules import FlowRule, Install, InstallAll, Remove, installed, match_key
from hydra.lifecycle import ReconfigurationState
from hydra.model import NetworkState, VlanId
from hydra.reconfiguration.commands import ApplyRules, MoveMirrors
from hydra.reconfiguration.drift import standing_cross_connects
from hydra.reconfiguration.plan import Unsettled, without
from hydra.reconfiguration.reconcile import Actual, reconcile
from hydra.roles import Mirrors
from tests.unit.core.fabrics import circuit_between, openflow_only, path_of, small_fabric, state_of
from tests.unit.reconfiguration.simulation.faults import Faults, failure_of
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.test_executor import Scripted, execution_of, refused
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep
from tests.unit.reconfiguration.watch import Watch

FABRIC = openflow_only(small_fabric(racks=4, planes=2, servers=1))
R1, R2, R3, R4 = (rack.tor.datapath_id for rack in FABRIC.racks)
VIA_R2 = path_of(FABRIC, 0, 2, circuit_between(FABRIC, 0, 1), circuit_between(FABRIC, 1, 2, 1))
VIA_R4 = path_of(FABRIC, 0, 2, circuit_between(FABRIC, 0, 3), circuit_between(FABRIC, 2, 3, 1))
EMPTY = NetworkState()


def relay_changes(network, step, datapath):
    return [
        type(change)
        for command in network.commands(ApplyRules, step)
        for change in command.changes.get(datapath, ())
        if getattr(change, "rule", None) and change.rule.kind is RuleKind.TOR_RELAY
    ]


def held_relays(network, datapath):
    return [r for r in network.tables[datapath].values() if r.kind is RuleKind.TOR_RELAY]


def deaf(datapath):
    """Outcomes in which a switch does not accept its rules."""

    def outcome(command, true):
        refused = failure_of(command, FailureKind.REFUSED)
        return replace(true, value={**true.value, datapath: refused})

    return outcome


def test_old_relays_are_told_before_mirrors_move_and_new_ones_beside_them():
    old = state_of(FABRIC, EMPTY, VIA_R2)
    target = state_of(FABRIC, old, VIA_R4)
    network = Scripted(FABRIC, old)
    execution = Watch(network, execution_of(network, old, target)).run()
    assert execution.state is ReconfigurationState.DONE
    steps = [batch.step for batch in network.batches]
    first_move = next(
        index
        for index, batch in enumerate(network.batches)
        if any(isinstance(command, MoveMirrors) for command in batch.commands)
    )
    assert steps.index("unrelay") < first_move == steps.index("move")
    assert relay_changes(network, "unrelay", R2) == [Remove, Remove]
    assert relay_changes(network, "move", R4) == [Install, Install]
    assert held_relays(network, R2) == []
    assert len({match_key(rule) for rule in held_relays(network, R4)}) == 2


def test_paths_without_relays_need_no_step_of_their_own():
    old = state_of(FABRIC, EMPTY, path_of(FABRIC, 0, 1))
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    network = Scripted(FABRIC, old)
    Watch(network, execution_of(network, old, target)).run()
    assert "unrelay" not in [batch.step for batch in network.batches]


def test_a_relay_that_does_not_take_its_rules_costs_the_paths_over_it_and_no_others():
    beside = path_of(FABRIC, 1, 2)
    target = state_of(FABRIC, EMPTY, beside, VIA_R4)
    network = Scripted(FABRIC, EMPTY)
    network.instead["move", ApplyRules] = deaf(R4)
    execution = Watch(network, execution_of(network, EMPTY, target)).run()
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.result.topology.paths == (beside,)
    assert execution.failures == {}, "its circuits are not to blame"
    assert "r1 - r3 stays electrical: r4 does not relay the traffic (refused)" in execution.reason
    assert execution.unconfirmed == {"r4"}


def test_no_path_is_led_over_a_relay_that_is_not_connected():
    target = state_of(FABRIC, EMPTY, VIA_R4)
    network = Scripted(FABRIC, EMPTY)
    network.connected.discard(R4)
    execution = Watch(network, execution_of(network, EMPTY, target)).run()
    assert execution.result.topology.paths == ()
    assert "r4 does not relay the traffic (not ready for rules)" in execution.reason


def test_a_relay_that_does_not_forget_is_named():
    old = state_of(FABRIC, EMPTY, VIA_R2)
    target = state_of(FABRIC, old, VIA_R4)
    network = Scripted(FABRIC, old)
    network.instead["unrelay", ApplyRules] = deaf(R2)
    execution = Watch(network, execution_of(network, old, target)).run()
    assert execution.result.topology.paths == (VIA_R4,)
    assert execution.unconfirmed == {"r2"}


def test_relays_of_a_path_that_failed_are_told_at_the_end():
    target = state_of(FABRIC, EMPTY, VIA_R4)
    network = Scripted(FABRIC, EMPTY)
    network.instead["move", MoveMirrors] = lambda command, true: (
        refused(command, true) if command.plane == 1 else true
    )
    network.mirrors[1] = set()
    network.move_mirrors = refusing(network.move_mirrors)
    execution = Watch(network, execution_of(network, EMPTY, target)).run()
    assert execution.result.topology.paths == ()
    assert relay_changes(network, "tidy", R4) == [Remove, Remove]
    assert held_relays(network, R4) == []


def refusing(move):
    """Plane 2 ignores its commands."""

    def moved(command):
        if command.plane == 1:
            yield
            return None, failure_of(command, FailureKind.REFUSED)
        return (yield from move(command))

    return moved


@pytest.mark.parametrize("unsettled", [(), (VIA_R2,)])
def test_after_a_crash_a_relayed_path_that_was_being_given_up_is_not_trusted(unsettled):
    direct = path_of(FABRIC, 0, 1)
    state = state_of(FABRIC, EMPTY, VIA_R2, direct)
    lit = {
        plane.id: Mirrors(standing_cross_connects(FABRIC, state, plane.id))
        for plane in FABRIC.planes
    }
    found = reconcile(FABRIC, state, Actual(lit, {}), Unsettled(frozenset({*unsettled, direct})))
    kept = (direct,) if unsettled else tuple(sorted((VIA_R2, direct)))
    assert found.state.topology.paths == kept
    assert found.retag == {}


LABELS = {VIA_R2: 101, VIA_R4: 102}
STANDING = replace(
    state_of(FABRIC, EMPTY, VIA_R2, VIA_R4), vlans={path: VlanId(v) for path, v in LABELS.items()}
)
"""A standing path over r2, and a given-up path over r4."""
KEPT = without(STANDING, (), [VIA_R4])


@pytest.fixture
def upkeep():
    """The controller knows that the path over r4 has been given up; r4 does not know yet."""
    network = Network(FABRIC, STANDING, random.Random(1))
    upkeep = SimulatedUpkeep.at_work(network, STANDING)
    upkeep.memory.settle(KEPT)
    return upkeep


def written(upkeep, course):
    """Changes of rules by a course, by switch."""
    found, perform = {}, upkeep.network.perform

    def performed(batch, look):
        for command in batch.commands:
            for datapath, changes in getattr(command, "changes", {}).items():
                found.setdefault(datapath, []).extend(changes)
        return perform(batch, look)

    upkeep.network.perform = performed
    upkeep.run(course)
    return found


def test_what_is_left_of_relays_is_removed_and_what_stands_is_not_touched(upkeep):
    upkeep.switches.spares_relays = True
    stale = held_relays(upkeep.network, R4)
    standing = held_relays(upkeep.network, R2)
    assert len(stale) == len(standing) == 2
    changes = written(upkeep, upkeep.courses.synchronisation.tidy_relays())
    assert {dp: [type(one) for one in some] for dp, some in changes.items()} == {
        R4: [Remove, Remove]
    }
    assert held_relays(upkeep.network, R4) == []
    assert held_relays(upkeep.network, R2) == standing
    assert not upkeep.switches.spares_relays
    assert upkeep.switches.all_ready


def test_a_whole_table_whose_relay_rules_are_refused_leaves_the_standing_ones(upkeep):
    """The switch carries out the rest of the bundle: a removal of all relays would take effect."""
    network, switches = upkeep.network, upkeep.switches
    standing = held_relays(network, R2)
    strange = FlowRule(RuleKind.TOR_RELAY, (wired_port(0), VLAN_PRESENT | 199, wired_port(1)))
    network.tables[R2][match_key(strange)] = strange
    network.faults = Faults(vswitch=1.0)
    kinds = []

    def without_relays(changes):
        kinds.append({rule.kind for rule in installed(c for c in changes if is_installation(c))})
        return [c for c in changes if not is_installation(c)]

    network.without_members = without_relays
    network.rng = Refusing()
    upkeep.run(upkeep.courses.synchronisation.synchronise([R2]))
    assert any(RuleKind.TOR_RELAY in some for some in kinds)
    assert held_relays(network, R2) == standing
    assert R2 not in switches.ready()


def is_installation(change):
    return isinstance(change, Install | InstallAll)


class Refusing(random.Random):
    """Have every rule refused that a switch may refuse, with the rest of the bundle carried out."""

    def random(self):
        return 0.0

    def choice(self, some):
        return FailureKind.REFUSED if FailureKind.REFUSED in some else some[0]


@pytest.mark.parametrize("spares", [True, False])
def test_a_relay_whose_table_could_not_be_read_has_its_rules_and_stays_in_doubt(upkeep, spares):
    """Unless relays are spared: all are read again before any removal."""
    network, switches = upkeep.network, upkeep.switches
    switches.spares_relays = spares
    network.faults = Faults(read=1.0)
    upkeep.run(upkeep.courses.synchronisation.synchronise([R4]))
    assert (R4 in switches.ready()) is spares
    assert len(held_relays(network, R4)) == 2
    if spares:
        upkeep.run(upkeep.courses.synchronisation.tidy_relays())
        assert switches.ready() == set()
    network.faults = Faults()
    upkeep.run(upkeep.courses.synchronisation.synchronise([R1, R2, R3, R4]))
    assert held_relays(network, R4) == []
    assert switches.all_ready


def test_relays_that_a_state_of_meanwhile_has_no_more_go_with_it(upkeep):
    """While a slow switch is synchronised, the state changes."""
    upkeep.memory.settle(STANDING)
    for relay in held_relays(upkeep.network, R4):
        del upkeep.network.tables[R4][match_key(relay)]
    upkeep.switches.doubt([R4])
    course = upkeep.courses.synchronisation.bring_beside([R4])
    batch = next(course)
    while batch.step != "synchronise":
        batch = course.send(upkeep.perform(batch))
    outcomes = upkeep.perform(batch)
    assert len(held_relays(upkeep.network, R4)) == 2
    upkeep.memory.settle(KEPT)
    batch = course.send(outcomes)
    with pytest.raises(StopIteration) as end:
        course.send(upkeep.perform(batch))
    assert end.value.value == {R4}
    assert held_relays(upkeep.network, R4) == []
