"""Parts touched by simultaneous changes, and the merge of their states."""

from functools import partial

from hydra.model import NetworkState, RackId
from hydra.reconfiguration.plan import diff, pair_of
from hydra.reconfiguration.touched import Touched, rebased, state_beside, target_without
from tests.unit.core.fabrics import order_of, path_of, small_fabric, state_of

FABRIC = small_fabric(racks=6, planes=1)
HERE, THERE, FAR = path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3), path_of(FABRIC, 4, 5)
EMPTY = NetworkState()
PLAN = partial(diff, FABRIC, order_of=order_of(FABRIC))


def touched(current, target):
    return Touched.by(FABRIC, PLAN(current, target))


def test_a_new_path_joins_no_vlan_that_another_change_takes():
    standing = state_of(FABRIC, EMPTY, FAR)
    first = state_of(FABRIC, standing, FAR, HERE)
    assert first.vlans[HERE] != standing.vlans[FAR], "a path under test has a VLAN-ID of its own"
    assert touched(standing, first).meets(touched(standing, state_of(FABRIC, standing, FAR, THERE)))
    beside = state_of(FABRIC, state_beside(standing, touched(standing, first)), FAR, THERE)
    assert not touched(standing, first).meets(touched(standing, beside))


def test_what_a_change_under_way_takes_is_nobody_else_s_however_few_there_are():
    standing = state_of(FABRIC, EMPTY, FAR)
    under_way = touched(standing, state_of(FABRIC, standing, HERE))
    start = state_beside(standing, under_way)
    assert under_way.taken and under_way.vlans <= start.pool.closed
    assert start.pool.spare(start.vlans.values()).isdisjoint(under_way.vlans)


def test_ports_of_circuits_that_only_carry_a_moving_pair_are_touched():
    current = NetworkState(
        0, state_of(FABRIC, EMPTY, HERE).topology, {HERE: FABRIC.circuit_vlans.first}
    )
    target = NetworkState(1, current.topology, {HERE: FABRIC.circuit_vlans.first + 1})
    assert touched(current, target).ports == set(HERE.circuits[0].ends)
    assert touched(current, target).pairs == {(RackId(0), RackId(1))}


def test_one_that_goes_on_has_what_the_other_made():
    standing = state_of(FABRIC, EMPTY, HERE, FAR)
    slow = state_of(FABRIC, standing, FAR, THERE)
    quick = state_of(FABRIC, state_beside(standing, touched(standing, slow)), HERE)
    found = rebased(slow, standing, quick)
    assert found.topology == state_of(FABRIC, EMPTY, THERE).topology
    assert found.vlans == {THERE: slow.vlans[THERE]}
    assert found.epoch == slow.epoch
    assert found.pool.resting.isdisjoint(found.vlans.values())
    both = {standing.vlans[HERE], standing.vlans[FAR]} - set(found.vlans.values())
    assert both <= found.pool.resting, "what either has freed rests"
    assert rebased(quick, standing, slow).topology == found.topology, "whichever ends first"


def test_an_id_that_both_leave_is_no_matter_and_one_that_either_takes_is():
    leaves, takes = (
        Touched(vlans=frozenset({1})),
        Touched(vlans=frozenset({1}), taken=frozenset({1})),
    )
    assert not leaves.meets(leaves)
    assert leaves.meets(takes)
    assert takes.meets(leaves)
    assert takes.meets(takes)


def test_what_is_left_to_another_stays_and_nothing_comes_there():
    standing = state_of(FABRIC, EMPTY, HERE, THERE)
    crossed = path_of(FABRIC, 0, 2), path_of(FABRIC, 1, 3)
    goal = state_of(FABRIC, standing, *crossed, FAR)
    theirs = Touched(ports=frozenset(HERE.circuits[0].ends), pairs=frozenset({pair_of(HERE)}))
    found = target_without(theirs, standing, goal)
    assert set(found.topology.paths) == {HERE, FAR}, "crossed needs a port of each"
    beside = Touched.by(FABRIC, PLAN(standing, found))
    assert not beside.meets(theirs)
    free = Touched(ports=frozenset(FAR.circuits[0].ends))
    assert set(target_without(free, standing, goal).topology.paths) == set(crossed)
