"""A pair with several paths: from one path to two and back, and failures of a path."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hydra.failures import FailureKind
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import Install, Remove
from hydra.forwarding.substrate import substrate_of
from hydra.lifecycle import ReconfigurationState
from hydra.model import RackId
from hydra.reconfiguration.commands import ApplyRules, Outcome, ProbePath
from hydra.reconfiguration.plan import changed_pairs, diff, without
from tests.unit.core.fabrics import (
    openflow_only,
    order_of,
    parallel_paths,
    path_of,
    single_homed,
    small_fabric,
    state_of,
)
from tests.unit.reconfiguration.simulation.faults import failure_of
from tests.unit.reconfiguration.simulation.switches import ABOUT_PATHS
from tests.unit.reconfiguration.test_executor import Scripted, execution_of, start
from tests.unit.reconfiguration.upkeep import mend
from tests.unit.reconfiguration.watch import Watch

FABRIC = small_fabric(racks=4, planes=2, servers=1)
FIRST, SECOND = parallel_paths(FABRIC)
H11 = FABRIC.racks[0].servers[0]
R2 = RackId(1)
PAIR = (RackId(0), R2)


@pytest.fixture(
    params=[FABRIC, single_homed(FABRIC), openflow_only(FABRIC)],
    ids=lambda one: one.substrate.value,
)
def fabric(request):
    return request.param


def steering(fabric):
    """The switch that steers for h11."""
    (switch,) = substrate_of(fabric).steering(RackId(0))
    return switch.datapath


def carried_out(network, current, target):
    execution = Watch(network, execution_of(network, current, target)).run()
    mend(network, execution)
    assert list(network.differing_rules(steering(network.fabric), execution.result)) == []
    return execution


def sends(network):
    """The VLAN-IDs by which h11 sends to r2, one for each path."""
    return sorted(vlan for vlan, _port in network.sends_on(H11, R2))


def test_a_second_circuit_is_used_beside_the_first(fabric):
    one = start(FIRST, fabric=fabric)
    two = state_of(fabric, one, FIRST, SECOND)
    assert changed_pairs(one, two) == {PAIR}
    network = Scripted(fabric, one)
    execution = carried_out(network, one, two)
    assert execution.state is ReconfigurationState.DONE
    assert execution.result == two
    assert len(network.commands(ProbePath)) == 2
    assert sends(network) == sorted(two.vlans.values())


@pytest.mark.parametrize("left", [FIRST, SECOND])
def test_when_one_goes_its_pair_uses_the_other_alone(fabric, left):
    two = start(FIRST, SECOND, fabric=fabric)
    one = state_of(fabric, two, left)
    network = Scripted(fabric, two)
    execution = carried_out(network, two, one)
    assert execution.result == one
    assert sends(network) == [two.vlans[left]]


def test_a_path_that_no_probe_comes_through_leaves_the_pair_the_other(fabric):
    one = start(FIRST, fabric=fabric)
    two = state_of(fabric, one, FIRST, SECOND)
    network = Scripted(fabric, one)

    def lose(command: ProbePath, true: Outcome) -> Outcome:
        return replace(true, value=("h11 to h21",)) if command.path == SECOND else true

    network.instead["probe", ProbePath] = lose
    execution = carried_out(network, one, two)
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.result.topology.paths == (FIRST,)
    assert sends(network) == [two.vlans[FIRST]]
    without_lost, activating = (
        command.changes[steering(fabric)] for command in network.commands(ApplyRules, "activate")
    )
    removed = [change.rule.kind for change in without_lost if isinstance(change, Remove)]
    assert len(removed) == 3
    assert RuleKind.SPREAD in removed
    (installed,) = (change.rule.kind for change in without_lost if isinstance(change, Install))
    assert installed in {RuleKind.CIRCUIT, RuleKind.TOR_CIRCUIT}
    (ended,) = activating
    assert isinstance(ended, Remove)
    assert ended.rule.kind is RuleKind.DIVERT


def test_both_go(fabric):
    two = start(FIRST, SECOND, fabric=fabric)
    network = Scripted(fabric, two)
    execution = carried_out(network, two, state_of(fabric, two))
    assert execution.state is ReconfigurationState.DONE
    assert sends(network) == []
    held = network.tables[steering(fabric)].values()
    assert not [rule for rule in held if rule.kind in ABOUT_PATHS]


def test_what_does_not_drain_keeps_all_of_its_pair_s_paths(fabric):
    two = start(FIRST, SECOND, fabric=fabric)
    network = Scripted(fabric, two)
    network.faults = replace(network.faults, busy_circuit=1.0)
    network.unsettle(list(FIRST.circuits))
    execution = carried_out(network, two, state_of(fabric, two, SECOND))
    assert execution.result.topology == two.topology
    assert sends(network) == sorted(two.vlans.values())


def test_a_pair_beside_it_is_left_alone(fabric):
    other = path_of(fabric, 2, 3)
    one = start(FIRST, other, fabric=fabric)
    two = state_of(fabric, one, FIRST, SECOND, other)
    assert diff(fabric, one, two, order_of(fabric)).affected == {PAIR}


def test_a_switch_that_is_silent_keeps_both_where_they_are(fabric):
    two = start(FIRST, SECOND, fabric=fabric)
    network = Scripted(fabric, two)

    def deaf(command: ApplyRules, true: Outcome) -> Outcome:
        failure = failure_of(command, FailureKind.UNKNOWN)
        return replace(true, value={**true.value, steering(fabric): failure})

    network.instead["divert", ApplyRules] = deaf
    execution = execution_of(network, two, without(two, FIRST.circuits))
    Watch(network, execution).run()
    assert execution.result.topology == two.topology
