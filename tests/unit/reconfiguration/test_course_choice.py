"""The courses of a change, and the pairs that leave the light."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hydra.model import NetworkState, PlaneId
from hydra.reconfiguration.course_choice import MOST_COURSES, onward
from hydra.reconfiguration.detours import Detours
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import diff
from hydra.reconfiguration.run import all_ready
from hydra.reconfiguration.stages import Traffic, next_stage, stages
from tests.unit.core.fabrics import (
    circuit_between,
    first_state,
    order_of,
    path_of,
    random_fabric,
    random_state,
    small_fabric,
    state_of,
)
from tests.unit.reconfiguration.courses import ways
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.upkeep import POLICY
from tests.unit.reconfiguration.watch import Watch
from topology.marks import marks_of

EMPTY = NetworkState()


def state(fabric, before, *ends):
    """The state after ``before`` with a circuit for each (rack, rack, plane)."""
    circuits = [(a, b, circuit_between(fabric, a, b, plane)) for a, b, plane in ends]
    return state_of(fabric, before, *(path_of(fabric, a, b, one) for a, b, one in circuits))


def sent(fabric, **mbps):
    """Traffic in both directions, as in ``r12=90``."""
    found = np.zeros((len(fabric.racks),) * 2)
    for name, value in mbps.items():
        a, b = int(name[1]) - 1, int(name[2]) - 1
        found[a, b] = found[b, a] = value
    return found


def swap(planes, **more):
    """Two pairs with a common rack exchange planes."""
    fabric = small_fabric(racks=4, planes=planes, servers=1, **more)
    before = state(fabric, EMPTY, (0, 1, 0), (0, 2, 1))
    return fabric, before, state(fabric, before, (0, 1, 1), (0, 2, 0))


def way(fabric, current, target, conditions=None, **spare):
    return ways(fabric, conditions or all_ready(fabric), **spare).way(current, target)


def shape(found):
    return [(course.in_light, set(course.away)) for course in found.courses]


def test_pairs_whose_ports_are_free_take_one_course():
    fabric = small_fabric(racks=4, planes=2, servers=1)
    before = state(fabric, EMPTY, (0, 1, 0), (2, 3, 0))
    found = way(fabric, before, state(fabric, before, (0, 1, 1), (2, 3, 1)))
    assert shape(found) == [(True, set())]


def test_a_circle_is_opened_by_a_spare_circuit():
    fabric, before, after = swap(planes=3)
    found = way(fabric, before, after)
    assert shape(found) == [(True, set())] * 3
    aside = found.courses[0].target
    assert aside.topology.circuits.isdisjoint(after.topology.circuits)
    assert {circuit.plane for circuit in aside.topology.circuits} & {PlaneId(2)}
    assert found.courses[-1].target.topology == after.topology


@pytest.mark.parametrize("change", ["blocked", "by hand"])
def test_no_spare_circuit_is_on_ports_that_are_not_to_be_had(change):
    fabric, before, after = swap(planes=3)
    third = [port.id for port in fabric.ports if port.plane == 2]
    if change == "blocked":
        found = way(fabric, before, after, blocked=frozenset(third))
    else:
        by_hand = replace(all_ready(fabric), by_hand=frozenset({PlaneId(2)}))
        found = way(fabric, before, after, by_hand)
    assert found.away


def test_a_circle_is_opened_by_a_detour_where_circuits_have_room():
    fabric = small_fabric(racks=5, planes=4, servers=1)
    stay = (0, 3, 2), (1, 3, 3), (0, 4, 3)
    before = state(fabric, EMPTY, (0, 1, 0), (0, 2, 1), *stay)
    after = state(fabric, before, (0, 1, 1), (0, 2, 0), *stay)
    change = {"r12": 50.0, "r13": 50.0}
    found = way(fabric, before, after, sent_mbps=sent(fabric, **change))
    assert shape(found) == [(True, set())] * 3
    (detour,) = (path for path in found.courses[0].target.topology.paths if path.hops > 1)
    assert (detour.src, detour.dst) == (0, 1)
    full = sent(fabric, **change, r14=90.0, r24=90.0)
    assert way(fabric, before, after, sent_mbps=full).away == {(0, 1), (0, 2)}


def test_circuits_with_reservations_are_for_no_detour_and_their_pairs_stay():
    fabric, before, after = swap(planes=3)
    detours = Detours(
        fabric=fabric,
        max_hops=3,
        closed=before.topology.circuits,
        toward=marks_of(fabric).state,
    )
    assert way(fabric, before, after, detours=detours).away == {(0, 1), (0, 2)}


def test_the_pair_with_the_least_traffic_is_diverted_if_that_lets_others_stay():
    fabric, before, after = swap(planes=2)
    found = way(fabric, before, after, sent_mbps=sent(fabric, r12=90, r13=10))
    assert found.away == {(0, 2)}
    assert not found.courses[0].in_light
    assert found.courses[0].away == {(0, 2)}
    assert found.courses[1].in_light, "the other one goes over to ports that are free now"
    other = way(fabric, before, after, sent_mbps=sent(fabric, r12=10, r13=90))
    assert other.away == {(0, 1)}


def test_nobody_waits_off_circuits_if_that_keeps_more_traffic_off():
    """Three courses of 80 Mb/s are more than one of 80 + 90."""
    fabric, before, after = swap(planes=2)
    found = way(fabric, before, after, sent_mbps=sent(fabric, r12=90, r13=80))
    assert shape(found) == [(False, {(0, 1), (0, 2)})]


def test_a_pair_that_only_loses_its_path_goes_first_if_others_need_its_ports():
    fabric = small_fabric(racks=4, planes=2, servers=1)
    before = state(fabric, EMPTY, (0, 1, 0), (1, 2, 1))
    after = state(fabric, before, (0, 1, 1))
    found = way(fabric, before, after, sent_mbps=sent(fabric, r12=90, r23=10))
    assert shape(found) == [(False, {(1, 2)}), (True, {(1, 2)})]


def test_a_pair_without_traffic_is_diverted_without_ado():
    fabric, before, after = swap(planes=3)
    found = way(fabric, before, after, sent_mbps=sent(fabric))
    assert len(found.courses) == 1


def test_pairs_whose_paths_have_died_cost_nothing_and_are_not_moved_aside():
    fabric, before, after = swap(planes=3)
    dead = replace(all_ready(fabric), diverted=frozenset({(0, 1)}))
    found = way(fabric, before, after, dead, sent_mbps=sent(fabric, r12=90, r13=90))
    assert not found.away & {(0, 1)}


def test_who_diverts_first_diverts_all():
    fabric, before, after = swap(planes=3)
    ours = ways(fabric, all_ready(fabric))
    assert shape(replace(ours, in_light=False).way(before, after)) == [(False, {(0, 1), (0, 2)})]


def test_without_time_nobody_moves_aside():
    fabric, before, after = swap(planes=3)
    late = Detours(
        fabric=fabric,
        max_hops=3,
        closed=frozenset(),
        toward=marks_of(fabric).state,
        expired=lambda: True,
    )
    assert shape(way(fabric, before, after, detours=late)) == [(False, {(0, 1), (0, 2)})]


def test_paths_that_share_an_id_of_the_target_get_others_where_they_come_later():
    fabric, before, after = swap(planes=3)
    one, other = after.topology.paths
    shared = replace(after, vlans=dict.fromkeys(after.vlans, after.vlans[one]))
    there = replace(before, vlans={**before.vlans, one: after.vlans[one]})
    onwards = onward(fabric, there, shared)
    assert onwards.vlans[one] == after.vlans[one]
    assert onwards.vlans[other] not in {*there.vlans.values(), after.vlans[one]}


# -- stages ---------------------------------------------------------------------------------------


def test_what_stays_in_the_light_needs_no_room_and_is_not_cut():
    fabric, before, after = swap(planes=3)
    mbps = sent(fabric, r12=90, r13=90)
    nowhere = Traffic(mbps, np.zeros(4), 0.8)
    light = ways(fabric, all_ready(fabric), sent_mbps=mbps)
    stage = next_stage(before, after, nowhere, ways=light)
    assert (stage.target, stage.last) == (after, True)
    assert (stage.diverted_mbps, stage.beyond) == (0.0, {})
    assert next_stage(before, after, nowhere).beyond, "as it is where all are diverted"


def test_what_can_stay_in_the_light_goes_before_others_that_have_no_room():
    fabric = small_fabric(racks=6, planes=2, servers=1)
    before = state(fabric, EMPTY, (0, 1, 0), (0, 2, 1), (3, 4, 0))
    after = state(fabric, before, (0, 1, 1), (0, 2, 0), (3, 4, 1))
    mbps = sent(fabric, r12=90, r13=90, r45=90)
    light = ways(fabric, all_ready(fabric), sent_mbps=mbps)
    nowhere = Traffic(mbps, np.zeros(6), 0.8)
    first, *others = stages(before, after, nowhere, ways=light)
    assert (first.pairs, first.diverted_mbps, first.beyond) == ({(3, 4)}, 0.0, {})
    assert frozenset().union(*(stage.pairs for stage in others)) == {(0, 1), (0, 2)}
    assert any(stage.beyond for stage in others)
    assert others[-1].target.topology == after.topology


def test_a_stage_tells_what_leaves_the_light_and_no_more():
    fabric = small_fabric(racks=6, planes=2, servers=1)
    before = state(fabric, EMPTY, (0, 1, 0), (0, 2, 1), (3, 4, 0))
    after = state(fabric, before, (0, 1, 1), (0, 2, 0), (3, 4, 1))
    mbps = sent(fabric, r12=20, r13=10, r45=90)
    light = ways(fabric, all_ready(fabric), sent_mbps=mbps)
    stage = next_stage(before, after, Traffic(mbps, np.full(6, 1000.0), 0.8), ways=light)
    assert stage.last
    assert stage.diverted_mbps == 30.0


@cache
def drawn(seed):
    """(Fabric, state, another state, the way between both), all drawn from ``seed``."""
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    current = first_state(fabric, rng)
    target = random_state(fabric, current, rng)
    racks = len(fabric.racks)
    numbers = np.random.default_rng(seed)
    mbps = 90.0 * numbers.random((racks, racks)) ** 8 if seed % 3 else None
    return fabric, current, target, way(fabric, current, target, sent_mbps=mbps)


@pytest.mark.parametrize("seed", range(150))
def test_every_way_leads_to_the_target_and_each_course_is_sound(seed):
    """And each way is carried out on devices, with every rack reachable at any moment."""
    fabric, current, target, found = drawn(seed)
    assert seed % 5 or found == drawn.__wrapped__(seed)[-1], "the same change takes the same way"
    assert len(found.courses) <= MOST_COURSES
    network = Network(fabric, current, random.Random(seed))
    for course in found.courses:
        plan = diff(fabric, current, course.target, order_of(fabric))
        order = plan.disconnect_first, plan.connect_last
        assert marks_of(fabric).problems(course.target) == []
        assert marks_of(fabric).transit_problems(current, course.target, *order) == []
        execution = Execution(
            fabric=fabric,
            policy=POLICY,
            plan=plan,
            conditions=all_ready(fabric),
            order_of=order_of(fabric),
            in_light=course.in_light,
        )
        assert Watch(network, execution).run().result.vlans == course.target.vlans
        current = course.target
    assert current.topology == target.topology


def test_the_seeds_reach_every_corner():
    found = [drawn(seed) for seed in range(150)]
    courses = [(course, one[-1].courses[-1], one[2]) for one in found for course in one[-1].courses]
    assert any(not course.in_light and course is not last for course, last, _ in courses)
    aside = [
        path
        for course, _, target in courses
        if course.in_light
        for path in course.target.vlans.keys() - target.vlans.keys()
    ]
    began = {path for one in found for path in one[1].vlans}
    assert any(path.hops == 1 for path in aside if path not in began)
    assert any(path.hops > 1 for path in aside if path not in began)
