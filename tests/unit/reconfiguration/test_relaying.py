"""Reconfigurations of paths that OpenFlow ToRs relay: what relays are told, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hydra.failures import FailureKind
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import Install, Remove, match_key
from hydra.lifecycle import ReconfigurationState
from hydra.model import NetworkState
from hydra.reconfiguration.commands import ApplyRules, MoveMirrors
from hydra.reconfiguration.drift import standing_cross_connects
from hydra.reconfiguration.plan import Unsettled
from hydra.reconfiguration.reconcile import Actual, reconcile
from hydra.roles import Mirrors
from tests.unit.core.fabrics import circuit_between, openflow_only, path_of, small_fabric, state_of
from tests.unit.reconfiguration.simulation import failure_of
from tests.unit.reconfiguration.test_executor import Scripted, execution_of, refused
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
    """Outcomes in which a switch does not take its rules."""

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
    assert "r1 - r3 stays electrical: r4 does not relay it (refused)" in execution.reason
    assert execution.unconfirmed == {"r4"}


def test_no_path_is_led_over_a_relay_that_is_not_connected():
    target = state_of(FABRIC, EMPTY, VIA_R4)
    network = Scripted(FABRIC, EMPTY)
    network.connected.discard(R4)
    execution = Watch(network, execution_of(network, EMPTY, target)).run()
    assert execution.result.topology.paths == ()
    assert "r4 does not relay it (not ready for rules)" in execution.reason


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
    network._move_mirrors = refusing(network._move_mirrors)
    execution = Watch(network, execution_of(network, EMPTY, target)).run()
    assert execution.result.topology.paths == ()
    assert relay_changes(network, "tidy", R4) == [Remove, Remove]
    assert held_relays(network, R4) == []


def refusing(move):
    """Plane 2 does nothing."""

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
