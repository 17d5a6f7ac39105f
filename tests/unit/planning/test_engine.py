"""Circuits without a path, left by a change in stages: their use by other plans."""

from dataclasses import replace

import numpy as np
import pytest

from apps.planning.engine import Planning
from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, NetworkState, Topology
from hydra.policy import Policy
from hydra.reconfiguration.touched import Touched
from hydra.reservations.reservation import Pin
from hydra.service import PlanRequest
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of
from topology.bounds import served_share_bound
from topology.problem import FabricArrays

FABRIC = small_fabric(racks=6, planes=1)
PLANNING = Planning(FABRIC, Policy())
HERE, THERE = path_of(FABRIC, 0, 1), path_of(FABRIC, 4, 5)
READY = circuit_between(FABRIC, 2, 3)
"""A circuit whose pair gets it in the next stage."""


def between(*paths):
    """The state with these paths, and a ready circuit without a path."""
    state = state_of(FABRIC, NetworkState(topology=EMPTY_TOPOLOGY), *paths)
    topology = Topology(state.topology.circuits | {READY}, state.topology.paths)
    return replace(state, topology=topology)


def pin(path):
    return Pin(path.src, path.dst, path, 10.0, ("one",))


def test_a_reservation_leaves_a_circuit_without_a_path_whose_ports_it_does_not_need():
    before = between(HERE)
    after, gone = PLANNING.with_pins(before, [pin(THERE)], ())
    assert after.topology == Topology(before.topology.circuits | set(THERE.circuits), (HERE, THERE))
    assert gone == ()
    touched = Touched.by(FABRIC, PLANNING.diff(before, after))
    assert touched.ports == set(THERE.circuits[0].ends), "a stage that goes on needs not wait"


def ring_of_three(racks):
    demand = np.zeros((racks, racks))
    demand[[0, 1, 2], [1, 2, 0]] = 60.0
    return demand


def test_shares_on_circuits_come_from_the_bound_of_offline_plans():
    """On one plane, one of three pairs gets a circuit; the ports could carry half of the ring."""
    demand = ring_of_three(6)
    planned = PLANNING.propose(NetworkState(), PlanRequest(), demand, (), ())
    shares = PLANNING.shares(planned.target.topology, PlanRequest(), demand, ())
    arrays = FabricArrays.of(FABRIC)
    most = served_share_bound(arrays, demand, max_hops=Policy().max_hops)
    assert (shares.served_share, shares.served_share_bound) == (pytest.approx(1 / 3), most)
    assert shares.served_share <= most < 1


def test_paths_that_stay_set_no_bound_of_hops():
    demand = ring_of_three(6)
    pinned = PLANNING.shares(EMPTY_TOPOLOGY, PlanRequest(), demand, [pin(HERE)])
    assert pinned.served_share_bound == served_share_bound(FabricArrays.of(FABRIC), demand)


@pytest.mark.parametrize("wanted", [path_of(FABRIC, 2, 4), path_of(FABRIC, 2, 3)])
def test_a_reservation_has_the_ports_of_a_circuit_without_a_path(wanted):
    after, _ = PLANNING.with_pins(between(HERE), [pin(wanted)], ())
    assert after.topology.circuits == {*HERE.circuits, *wanted.circuits}


def test_what_is_lost_or_let_go_takes_no_other_circuit_along():
    before = between(HERE, THERE)
    lost = PLANNING.without_circuits(before, THERE.circuits)
    let_go = PLANNING.reduced(before, (), [THERE])
    assert lost.topology == let_go.topology == Topology(frozenset({*HERE.circuits, READY}), (HERE,))
    assert PLANNING.without_circuits(before, [READY]).topology.circuits == {
        *HERE.circuits,
        *THERE.circuits,
    }


def test_what_gives_way_to_a_reservation_finds_other_ports_than_those_of_a_circuit_without_a_path():
    fabric = small_fabric(racks=6, planes=2)
    here = path_of(fabric, 0, 1, circuit_between(fabric, 0, 1, 0))
    ready = circuit_between(fabric, 2, 3, 0)
    wanted = path_of(fabric, 0, 4, circuit_between(fabric, 0, 4, 0))
    state = state_of(fabric, NetworkState(topology=EMPTY_TOPOLOGY), here)
    before = replace(state, topology=Topology(frozenset({*here.circuits, ready}), (here,)))
    after = Planning(fabric, Policy()).for_pins(before, [pin(wanted)], ())
    moved = path_of(fabric, 0, 1, circuit_between(fabric, 0, 1, 1))
    assert after.topology.paths == (moved, wanted)
    assert after.topology.circuits == {*moved.circuits, *wanted.circuits, ready}


def test_pairs_that_lost_their_paths_leave_a_circuit_without_a_path_whose_ports_they_do_not_need():
    before = between(HERE)
    after = PLANNING.rejoined(before, [(4, 5)], (), ())
    assert after.topology == Topology(before.topology.circuits | set(THERE.circuits), (HERE, THERE))
    touched = Touched.by(FABRIC, PLANNING.diff(before, after))
    assert touched.ports == set(THERE.circuits[0].ends), "a stage that goes on needs not wait"


def test_pairs_that_lost_their_paths_have_the_ports_of_a_circuit_without_a_path():
    after = PLANNING.rejoined(between(HERE), [(2, 4)], (), ())
    assert after.topology.circuits == {*HERE.circuits, circuit_between(FABRIC, 2, 4)}


def test_a_path_that_is_longer_than_the_policy_allows_since_may_stand_and_none_may_come():
    fabric = small_fabric(racks=4, planes=2)
    ways = circuit_between(fabric, 0, 1, 0), circuit_between(fabric, 1, 2, 1)
    long, other = path_of(fabric, 0, 2, *ways), path_of(fabric, 2, 3)
    planning = Planning(fabric, replace(Policy(), max_hops=1))
    alone = state_of(fabric, NetworkState(), other)
    both = state_of(fabric, NetworkState(), long, other)
    left = planning.reduced(both, other.circuits, ())
    assert planning.diff(both, left).target.topology.paths == (long,)
    with pytest.raises(PlanError, match="path 0-2 has 2 hops, more than 1"):
        planning.diff(alone, both)
