"""Stages lead to the target; each is a valid state, and diverts no more than the room."""

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hydra.model import NetworkState
from hydra.reconfiguration.detours import Detours
from hydra.reconfiguration.plan import changed_pairs, diff, paths_by_pair
from hydra.reconfiguration.stages import Traffic, next_stage, stages
from tests.unit.core.fabrics import (
    circuit_between,
    order_of,
    path_of,
    random_change,
    small_fabric,
    state_of,
)
from topology.checks import check_topology
from topology.marks import marks_of

SEEDS = st.integers(0, 2**32)
EMPTY = NetworkState()


def drawn(seed):
    """A fabric, two successive states, and traffic that its electrical network may carry."""
    rng = random.Random(seed)
    fabric, old, new = random_change(rng)
    numbers = np.random.default_rng(seed)
    shape = (len(fabric.racks),) * 2
    sent = numbers.random(shape) * (numbers.random(shape) < 0.7) * rng.choice([1.0, 50.0, 1000.0])
    np.fill_diagonal(sent, 0.0)
    electrical = numbers.random(shape[0]) * rng.choice([1.0, 50.0, 1000.0])
    return fabric, old, new, Traffic(sent, electrical, rng.choice([0.5, 0.8, 1.0]))


@given(SEEDS)
def test_stages_lead_to_the_target_and_each_is_sound(seed):
    fabric, old, new, traffic = drawn(seed)
    found = list(stages(old, new, traffic))
    states = [old, *(stage.target for stage in found)]
    assert states[-1] == new
    assert [stage.last for stage in found] == [False] * (len(found) - 1) + [True]
    wanted = set(new.topology.paths)
    for before, after in pairwise(states):
        plan = diff(fabric, before, after, order_of(fabric))
        order = plan.disconnect_first, plan.connect_last
        assert marks_of(fabric).transit_problems(before, after, *order) == []
        assert marks_of(fabric).problems(after) == []
        assert check_topology(fabric, after.topology, max_hops=3, paths_per_pair=99) == []
        had, has = set(before.topology.paths), set(after.topology.paths)
        assert has - had <= wanted, "it goes no way round"
        assert not wanted & had - has, "what has arrived stays"


def detours_of(fabric, reserved=()):
    return Detours(
        fabric=fabric, max_hops=3, closed=frozenset(reserved), toward=marks_of(fabric).state
    )


def busiest(fabric, state, traffic):
    """Mbps in each direction of each circuit."""
    load = Counter()
    paths = paths_by_pair(state)
    for path in state.topology.paths:
        here = path.src
        for circuit in path.circuits:
            a, b = fabric.racks_of(circuit)
            there = b if a == here else a
            share = len(paths[path.src, path.dst])
            load[circuit, here] += traffic.sent_mbps[path.src, path.dst] / share
            load[circuit, there] += traffic.sent_mbps[path.dst, path.src] / share
            here = there
    return load


@given(SEEDS)
def test_detours_are_sound_and_have_room_and_end_at_the_target(seed):
    fabric, old, new, traffic = drawn(seed)
    assume(not fabric.one_way)
    kept = frozenset(sorted(old.topology.circuits)[:1])
    found = list(stages(old, new, traffic, detours_of(fabric, kept)))
    states = [old, *(stage.target for stage in found)]
    assert states[-1].topology == new.topology
    wanted = set(new.topology.paths)
    for stage, (before, after) in zip(found, pairwise(states), strict=True):
        plan = diff(fabric, before, after, order_of(fabric))
        order = plan.disconnect_first, plan.connect_last
        assert marks_of(fabric).transit_problems(before, after, *order) == []
        assert marks_of(fabric).problems(after) == []
        assert check_topology(fabric, after.topology, max_hops=3, paths_per_pair=99) == []
        had, has = set(before.topology.paths), set(after.topology.paths)
        assert not wanted & had - has, "what has arrived stays"
        detours = has - had - wanted
        assert {(path.src, path.dst) for path in detours} == stage.detoured
        load = busiest(fabric, after, traffic)
        for path in detours:
            assert kept.isdisjoint(path.circuits)
            for circuit in path.circuits:
                rate_mbps = fabric.rate_of(circuit) + 1e-6
                assert all(load[circuit, rack] <= rate_mbps for rack in fabric.racks_of(circuit))
        assert plan.affected <= stage.pairs


@given(SEEDS)
def test_no_stage_diverts_more_than_there_is_room_for_but_one_move_at_a_rack(seed):
    _, old, new, traffic = drawn(seed)
    state = old
    for stage in stages(old, new, traffic):
        room = np.array(traffic.electrical_mbps)
        out, into = room.copy(), room.copy()
        diverted_out, diverted_into = np.zeros_like(out), np.zeros_like(into)
        on_circuits = set()
        for path in state.topology.paths:
            on_circuits.add((path.src, path.dst))
            if not path.one_way:
                on_circuits.add((path.dst, path.src))
        for (src, dst), mbps in np.ndenumerate(traffic.sent_mbps):
            if (src, dst) not in on_circuits:
                out[src] -= mbps
                into[dst] -= mbps
            elif (min(src, dst), max(src, dst)) in stage.pairs:
                diverted_out[src] += mbps
                diverted_into[dst] += mbps
        most = traffic.share * np.minimum(
            np.maximum(out, 0) - diverted_out / traffic.share,
            np.maximum(into, 0) - diverted_into / traffic.share,
        )
        beyond = {rack for rack in range(len(room)) if most[rack] < -1e-6}
        assert beyond == stage.beyond.keys()
        assert changed_pairs(state, stage.target) <= stage.pairs
        assert stage.diverted_mbps == pytest.approx(max([*diverted_out, *diverted_into]))
        state = stage.target


@given(SEEDS)
def test_what_fits_is_one_stage(seed):
    _, old, new, traffic = drawn(seed)
    plenty = Traffic(traffic.sent_mbps, np.full(len(traffic.electrical_mbps), 1e9), 0.8)
    [stage] = stages(old, new, plenty)
    assert (stage.target, stage.last, stage.beyond) == (new, True, {})


FABRIC = small_fabric(racks=4, planes=3)


def joined(current, **planes):
    """The state after ``current`` with circuits from r1 to these racks, by plane."""
    paths = []
    for name, plane in planes.items():
        rack = int(name.removeprefix("r")) - 1
        paths.append(path_of(FABRIC, 0, rack, circuit_between(FABRIC, 0, rack, plane)))
    return state_of(FABRIC, current, *paths)


def sent(**mbps):
    """Traffic of r1 to these racks; each has 100 Mb/s electrically, of which a share of 0.8."""
    matrix = np.zeros((4, 4))
    for name, rate_mbps in mbps.items():
        matrix[0, int(name.removeprefix("r")) - 1] = rate_mbps
    return Traffic(matrix, np.full(4, 100.0), 0.8)


BEFORE = joined(NetworkState(), r2=0, r3=1, r4=2)
TURNED = joined(BEFORE, r2=1, r3=2, r4=0)


def pairs_of(found):
    return [{racks[1] + 1 for racks in stage.pairs} for stage in found]


def test_a_circle_is_opened_by_one_that_waits():
    found = list(stages(BEFORE, TURNED, sent(r2=30, r3=30, r4=30)))
    assert [len(pairs) for pairs in pairs_of(found)] == [2, 2]
    assert [stage.beyond for stage in found] == [{}, {}]
    assert [stage.diverted_mbps for stage in found] == [60, 30]
    waiting = paths_by_pair(BEFORE).keys() - paths_by_pair(found[0].target).keys()
    assert len(waiting) == 1
    assert waiting <= found[1].pairs


def test_the_circle_is_opened_where_least_is_sent():
    first, *_ = stages(BEFORE, TURNED, sent(r2=40, r3=10, r4=60))
    assert paths_by_pair(BEFORE).keys() - paths_by_pair(first.target).keys() == {(0, 2)}


def test_too_much_for_a_rack_goes_by_itself_and_is_named():
    found = list(stages(BEFORE, NetworkState(), sent(r2=90, r3=10, r4=95)))
    assert [stage.last for stage in found] == [True], "pairs that only lose their paths"
    gone = joined(BEFORE, r2=1)  # r3 has to leave, r4 leaves
    found = list(stages(BEFORE, gone, sent(r2=90, r3=10, r4=95)))
    assert pairs_of(found) == [{3}, {2}, {4}]
    assert [stage.beyond for stage in found] == [{}, {0: 18.0, 1: 10.0}, {0: 23.0, 3: 15.0}]


def test_who_is_electrical_and_finds_free_ports_goes_first():
    before = joined(NetworkState(), r2=0, r3=1)
    after = joined(before, r2=1, r3=0, r4=2)
    first, *others = stages(before, after, sent(r2=50, r3=60, r4=25))
    assert pairs_of([first]) == [{4}]
    assert first.diverted_mbps == 0
    assert pairs_of(others) == [{2, 3}]
    assert others[0].beyond == {0: 30.0}


def test_a_pair_of_which_only_the_vlan_changes_is_named_and_has_its_turn():
    vlans = dict(zip(BEFORE.topology.paths, (201, 202, 203), strict=True))
    retagged = replace(BEFORE, vlans=vlans)
    found = list(stages(BEFORE, retagged, sent(r2=50, r3=50, r4=20)))
    assert pairs_of(found) == [{2, 4}, {3}]
    assert [stage.diverted_mbps for stage in found] == [70, 50]
    assert [stage.last for stage in found] == [False, True]
    assert found[-1].target == retagged
    assert found[0].target.vlans[BEFORE.topology.paths[1]] == BEFORE.vlans[BEFORE.topology.paths[1]]


def test_a_circle_that_no_rack_has_room_for_is_opened_over_circuits_of_others():
    fabric = small_fabric(racks=4, planes=3)
    before = round_robin(fabric, 0)
    after = round_robin(fabric, 1, before)
    everywhere = Traffic(20.0 * (1 - np.eye(4)), np.full(4, 40.0), 0.8)  # room for one pair a rack
    [whole] = stages(before, after, everywhere)
    assert whole.beyond.keys() == {0, 1, 2, 3}
    found = list(stages(before, after, everywhere, detours_of(fabric)))
    assert [stage.beyond for stage in found] == [{}] * len(found)
    assert max(stage.diverted_mbps for stage in found) == 20
    joined = [len(paths_by_pair(stage.target)) for stage in found]
    assert joined == [6] * len(found), "each pair has a path all the time"
    assert found[0].detoured
    assert found[-1].target.topology == after.topology


def test_a_detour_shares_no_circuit_that_is_reserved():
    fabric = small_fabric(racks=4, planes=3)
    before = round_robin(fabric, 0)
    after = round_robin(fabric, 1, before)
    everywhere = Traffic(20.0 * (1 - np.eye(4)), np.full(4, 40.0), 0.8)
    [whole] = stages(before, after, everywhere, detours_of(fabric, before.topology.circuits))
    assert (whole.detoured, whole.last) == (frozenset(), True)


def round_robin(fabric, turn, current=EMPTY):
    """The state with circuits between all of four racks, a matching on each plane."""
    matchings = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    paths = [
        path_of(fabric, a, b, circuit_between(fabric, a, b, (number + turn) % 3))
        for number, pairs in enumerate(matchings)
        for a, b in pairs
    ]
    return state_of(fabric, current, *paths)


def test_nothing_is_one_stage_that_moves_nobody():
    stage = next_stage(BEFORE, BEFORE, sent(r2=30))
    assert (stage.target, stage.pairs, stage.last) == (BEFORE, frozenset(), True)
