"""Single courses of changes that make before they break, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hydra.failures import FailureKind
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import Install, Remove
from hydra.lifecycle import ReconfigurationState
from hydra.model import NetworkState, PlaneId
from hydra.policy import Policy
from hydra.reconfiguration.commands import (
    ApplyRules,
    AwaitPortsUp,
    AwaitRounds,
    MoveMirrors,
    PassMarkers,
    ProbePath,
    ReadPortPackets,
    SetVlans,
)
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import diff
from hydra.reconfiguration.shifting import in_light
from tests.unit.core.fabrics import circuit_between, order_of, path_of, small_fabric, state_of
from tests.unit.reconfiguration.courses import first_course
from tests.unit.reconfiguration.simulation.faults import failure_of
from tests.unit.reconfiguration.simulation.network import conditions_of
from tests.unit.reconfiguration.test_executor import Scripted
from tests.unit.reconfiguration.watch import DIVERTED, IN_LIGHT, Watch, in_order

FABRIC = small_fabric(racks=4, planes=2, servers=1)


def on(plane, src, dst, fabric=FABRIC):
    """The path over one circuit on this plane."""
    return path_of(fabric, src, dst, circuit_between(fabric, src, dst, plane))


HERE, THERE = on(0, 0, 1), on(1, 0, 1)
OTHER, OTHER_THERE = on(0, 2, 3), on(1, 2, 3)
H11, H21 = (FABRIC.racks[rack].servers[0] for rack in (0, 1))


EMPTY = NetworkState()


def state(*paths, before=EMPTY):
    return state_of(FABRIC, before, *paths)


def course(network, current, target, policy=None, **conditions):
    known = replace(conditions_of(network, current), **conditions)
    return first_course(FABRIC, policy or Policy(), current, target, known, order_of(FABRIC))


def played(current, target, policy=None, **instead):
    """The network and the finished course; ``instead`` as in Scripted, by step."""
    network = Scripted(FABRIC, current)
    for step, (kind, outcome) in instead.items():
        network.instead[step, kind] = outcome
    execution = course(network, current, target, policy)
    assert execution.in_light
    return network, Watch(network, execution).run()


def refuses(*datapaths):
    """Have these switches refuse all changes."""

    def outcome(command, true):
        value = dict(true.value)
        for datapath in value.keys() & set(datapaths):
            value[datapath] = failure_of(command, FailureKind.REFUSED)
        return replace(true, value=value)

    return outcome


def test_a_pair_goes_from_plane_to_plane_and_is_never_diverted():
    current = state(HERE)
    target = state(THERE, before=current)
    network, execution = played(current, target)
    assert list(dict.fromkeys(batch.step for batch in network.batches)) == [
        *("intent", "make", "carrier", "announce", "probe", "shift", "drain", "break"),
    ]
    assert execution.state is ReconfigurationState.DONE
    assert execution.result == target
    rules = [
        rule
        for command in network.commands(ApplyRules)
        for changes in command.changes.values()
        for rule in changes
    ]
    assert not any(one.rule.kind is RuleKind.DIVERT for one in rules)
    assert execution.rules_pushed == 2  # one at each end
    assert execution.plan.connect == set(THERE.circuits)
    assert execution.plan.disconnect == set(HERE.circuits)


def test_mirrors_and_tags_of_the_old_path_stay_until_it_is_empty():
    current = state(HERE)
    network, _ = played(current, state(THERE, before=current))
    made, broken = network.commands(MoveMirrors, "make"), network.commands(MoveMirrors, "break")
    assert all(not command.move.disconnect for command in made)
    assert all(not command.move.connect for command in broken)
    new, old = current.vlans[HERE] + 1, current.vlans[HERE]
    tags = [
        {vlan for ports in command.ports.values() for vlan in ports.tagged}
        for command in network.commands(SetVlans, "make")
    ]
    assert tags == [{new}, {new}]
    steps = [batch.step for batch in network.batches]
    markers = network.commands(PassMarkers, "drain")
    assert {one.vlan for command in markers for one in command.markers} == {old}
    assert steps.index("shift") < steps.index("drain") < steps.index("break")


def test_each_switch_goes_over_in_one_bundle():
    current = state(HERE, OTHER)
    network, _ = played(current, state(THERE, OTHER, before=current))
    (shift,) = network.commands(ApplyRules, "shift")
    assert shift.changes.keys() == {H11.vswitch.datapath_id, H21.vswitch.datapath_id}
    for changes in shift.changes.values():
        (change,) = changes
        assert isinstance(change, Install)
        assert change.rule.kind is RuleKind.CIRCUIT


def test_switches_have_looked_at_their_cached_flows_before_it_drains():
    current = state(HERE)
    network, _ = played(current, state(THERE, before=current))
    (awaited,) = network.commands(AwaitRounds)
    assert set(awaited.datapaths) == {H11.vswitch.datapath_id, H21.vswitch.datapath_id}
    first = next(batch for batch in network.batches if batch.step == "drain")
    assert first.commands == (awaited,)


def test_a_pair_that_gets_one_path_more_keeps_the_one_that_it_has():
    current = state(HERE)
    target = state(HERE, THERE, before=current)
    network, execution = played(current, target)
    assert execution.result == target
    assert "drain" not in {batch.step for batch in network.batches}, "nothing is left"


def test_a_pair_that_gives_up_one_path_of_several_is_not_diverted_for_it():
    current = state(HERE, THERE)
    target = state(HERE, before=current)
    network, execution = played(current, target)
    assert execution.result == target
    assert not network.commands(ProbePath), "nothing is made"
    assert network.commands(ApplyRules, "shift")


@pytest.mark.parametrize("kind", [AwaitPortsUp, ProbePath])
def test_a_pair_whose_new_path_fails_stays_where_it_was(kind):
    current = state(HERE, OTHER)
    step = {AwaitPortsUp: "carrier", ProbePath: "probe"}[kind]

    def fails(command, true):
        return replace(true, value=command.ports if kind is AwaitPortsUp else ("h11 to h21",))

    _, execution = played(current, state(THERE, OTHER, before=current), **{step: (kind, fails)})
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.result.vlans == current.vlans
    assert execution.failures.keys() == set(THERE.circuits)


def test_a_pair_with_a_switch_that_does_not_confirm_keeps_both_paths():
    current = state(HERE)
    target = state(THERE, before=current)
    deaf = H21.vswitch.datapath_id
    network, execution = played(current, target, shift=(ApplyRules, refuses(deaf)))
    assert execution.result.vlans == {**current.vlans, **target.vlans}
    assert "h21 did not confirm the new path" in execution.reason
    (keep,) = network.commands(ApplyRules, "keep")
    assert keep.changes.keys() == {H11.vswitch.datapath_id}, "the other one sends over both"
    assert not network.commands(MoveMirrors, "break")


def test_every_pair_with_a_switch_that_does_not_confirm_keeps_both_paths():
    current = state(HERE, OTHER)
    target = state(THERE, OTHER_THERE, before=current)
    deaf = (FABRIC.racks[rack].servers[0].vswitch.datapath_id for rack in (1, 3))
    network, execution = played(current, target, shift=(ApplyRules, refuses(*deaf)))
    assert execution.result.vlans == {**current.vlans, **target.vlans}
    assert not network.commands(MoveMirrors, "break")


def test_a_pair_whose_old_path_is_never_empty_keeps_both():
    current = state(HERE)
    target = state(THERE, before=current)
    count = iter(range(10_000))

    def busy(command, true):
        return replace(true, value={name: next(count) for name in command.ports})

    network, execution = played(current, target, drain=(ReadPortPackets, busy))
    assert execution.result.vlans == {**current.vlans, **target.vlans}
    assert "still carried frames after the drain bound" in execution.reason
    assert network.commands(ApplyRules, "keep")


def test_a_pair_whose_old_path_dies_meanwhile_comes_back_on_the_new_one():
    current = state(HERE)
    target = state(THERE, before=current)
    network = Scripted(FABRIC, current)
    execution = course(network, current, target)

    def dies(_command, true):
        execution.keep_electrical(frozenset({(0, 1)}))  # and another course diverts the pair
        return true

    network.instead["probe", ProbePath] = dies
    Watch(network, execution).run()
    (shift,) = network.commands(ApplyRules, "shift")
    for changes in shift.changes.values():
        assert [one.rule.kind for one in changes if isinstance(one, Remove)] == [RuleKind.DIVERT]
    assert execution.activated == {(0, 1)}
    assert not network.commands(PassMarkers), "nobody waits for markers on a dead path"


def test_a_pair_that_dies_as_it_goes_over_has_left_its_old_path_before_that_breaks():
    """Its switches may forward by cached flows, even if the death of its path is known."""
    current = state(HERE)
    network = Scripted(FABRIC, current)
    execution = course(network, current, state(THERE, before=current))

    def dies(_command, true):
        execution.keep_electrical(frozenset({(0, 1)}))
        return true

    network.instead["shift", ApplyRules] = dies
    Watch(network, execution).run()
    (awaited,) = network.commands(AwaitRounds)
    assert set(awaited.datapaths) == {H11.vswitch.datapath_id, H21.vswitch.datapath_id}
    assert network.commands(PassMarkers, "drain"), "and the last frames may be under way"


def test_until_it_goes_over_a_pair_is_where_the_record_says():
    current = state(HERE)
    network = Scripted(FABRIC, current)
    execution = course(network, current, state(THERE, before=current))
    unsteady = {}
    perform = network.perform

    def noting(batch, watch):
        unsteady[batch.step] = execution.unsteady
        return perform(batch, watch)

    network.perform = noting
    Watch(network, execution).run()
    assert not unsteady["make"] | unsteady["probe"]
    assert unsteady["shift"] == unsteady["break"] == {(0, 1)}


# -- which pairs can ------------------------------------------------------------------------------


def near(current, target, **conditions):
    network = Scripted(FABRIC, current)
    return in_light(FABRIC, current, target, replace(conditions_of(network, current), **conditions))


def test_only_pairs_whose_ports_are_free_go_first():
    current = state(HERE, OTHER, on(1, 1, 2))
    target = state(THERE, OTHER_THERE, before=current)
    assert near(current, target) is None, "r2 and r3 need the ports of the third pair"
    partly = state(HERE, OTHER, on(1, 2, 3))
    moved = near(partly, state(THERE, OTHER, on(1, 2, 3), before=partly))
    assert set(moved.vlans) == {THERE, OTHER, on(1, 2, 3)}


def test_a_pair_that_waits_for_the_ports_of_another_goes_in_the_next_course():
    fabric = small_fabric(racks=3, planes=2, servers=1)
    first, second = on(0, 0, 1, fabric), on(1, 1, 2, fabric)
    current = state_of(fabric, NetworkState(), first, second)
    target = state_of(fabric, current, on(1, 0, 1, fabric), on(0, 1, 2, fabric))
    network = Scripted(fabric, current)
    assert in_light(fabric, current, target, conditions_of(network, current)) is None


@pytest.mark.parametrize(
    "conditions",
    [
        {"connected": frozenset({H11.vswitch.datapath_id})},
        {"diverted": frozenset({(0, 1)})},
        {"by_hand": frozenset({PlaneId(1)})},
    ],
    ids=["a switch away", "its path has died", "people plug circuits"],
)
def test_others_are_diverted(conditions):
    current = state(HERE)
    target = state(THERE, before=current)
    assert near(current, target) == target
    assert near(current, target, **conditions) is None


def test_nobody_goes_first_for_whom_it_is_of_no_use():
    current = state(OTHER)
    assert near(current, state(OTHER, HERE, before=current)) is None, "r1 - r2 is electrical"


def test_a_path_that_only_changes_its_vlan_can_not_stand_beside_itself():
    current = state(HERE)
    target = replace(state(HERE, before=current), vlans={HERE: current.vlans[HERE] + 1}, epoch=9)
    assert near(current, target) is None


def test_the_plan_of_those_that_go_first_is_one_that_could_be_diverted_as_well():
    current = state(HERE, OTHER)
    target = state(THERE, OTHER, before=current)
    plan = diff(FABRIC, current, near(current, target), order_of(FABRIC))
    assert plan.affected == {(0, 1)}
    network = Scripted(FABRIC, current)
    conditions = conditions_of(network, current)
    execution = Execution(
        fabric=FABRIC, policy=Policy(), plan=plan, conditions=conditions, order_of=order_of(FABRIC)
    )
    assert Watch(network, execution).run().result == target


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        (DIVERTED, "divert drain move isolate activate tidy"),
        (IN_LIGHT, "make isolate shift keep drain keep break"),
    ],
)
def test_the_watch_takes_relearn_after_isolate_and_at_the_end(order, steps):
    usual = steps.split()
    places = {usual.index("isolate") + 1, len(usual)}
    for place in range(len(usual) + 1):
        tried = [*usual[:place], "relearn", *usual[place:]]
        assert in_order(tried, order) == (place in places), tried


@pytest.mark.parametrize("steps", ["keep shift drain", "shift drain break keep", "shift unheard"])
def test_the_watch_takes_no_step_out_of_its_place(steps):
    assert not in_order(steps.split(), IN_LIGHT)
