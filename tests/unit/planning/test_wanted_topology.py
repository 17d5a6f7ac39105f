"""Circuits given by a request: made beside staying circuits, and within limits."""

import numpy as np
import pytest

from apps.planning.engine import Planning
from hydra.errors import PlanError
from hydra.model import NetworkState, PlaneId, RackId, Topology
from hydra.policy import Policy
from hydra.reservations.reservation import Pin
from hydra.service import PlanRequest
from tests.unit.core.fabrics import circuit_between, parallel_paths, path_of, small_fabric, state_of

FABRIC = small_fabric(racks=6, planes=1)
PLANNING = Planning(FABRIC, Policy(max_hops=2))
NOTHING = np.zeros((6, 6))
A, B, C = path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3), path_of(FABRIC, 4, 5)
ACROSS = path_of(FABRIC, 1, 2)


def of(*paths):
    return Topology(frozenset(one for path in paths for one in path.circuits), paths)


def after(before, wanted, pins=(), blocked=(), **limits):
    request = PlanRequest(topology=wanted, **limits)
    change = PLANNING.propose(before, request, NOTHING, pins, blocked)
    assert not PLANNING.diff(before, change.target).empty
    return change.target.topology


def pin(path):
    return Pin(path.src, path.dst, path, 10.0, ("one",))


def test_the_wanted_circuits_stand_afterwards_and_no_others():
    assert after(state_of(FABRIC, NetworkState(), A, B), of(C)) == of(C)


def test_circuits_that_may_not_change_stay():
    before = state_of(FABRIC, NetworkState(), A, B)
    racks = frozenset({RackId(2), RackId(3), RackId(4), RackId(5)})
    assert after(before, of(C), racks=racks) == of(A, C)


def test_a_reservation_stays_and_what_needs_its_ports_is_refused():
    before = state_of(FABRIC, NetworkState(), A, B)
    assert after(before, of(C), pins=[pin(A)]) == of(A, C)
    with pytest.raises(PlanError, match=r"r3 needs a port of r1 =p1= r2.*release the reservation"):
        after(before, of(ACROSS), pins=[pin(A)])


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"planes": frozenset({PlaneId(1)})}, r"r5 =p1= r6 can't be made: the plane"),
        ({"racks": frozenset({RackId(4)})}, r"r5 =p1= r6 can't be made: the plane or a rack"),
        ({"blocked": C.circuits[0].ends}, r"r5 =p1= r6 .*port .* of r5 is out of use"),
    ],
)
def test_a_circuit_that_can_not_be_made_is_named(limits, told):
    with pytest.raises(PlanError, match=told):
        after(state_of(FABRIC, NetworkState(), A, B), of(C), **limits)


def test_limits_of_the_policy_hold():
    fabric = small_fabric(racks=4, planes=2)
    one_hop = Planning(fabric, Policy(max_hops=1, paths_per_pair=1))
    far = path_of(fabric, 0, 2, circuit_between(fabric, 0, 1), circuit_between(fabric, 1, 2, 1))
    with pytest.raises(PlanError, match=r"r1 - r3 has 2 hops: policy\.max_hops allows 1"):
        one_hop.propose(NetworkState(), PlanRequest(topology=of(far)), np.zeros((4, 4)), (), ())
    twice = of(*parallel_paths(fabric))
    with pytest.raises(PlanError, match=r"r1 - r2 has 2 paths: policy\.paths_per_pair allows 1"):
        one_hop.propose(NetworkState(), PlanRequest(topology=twice), np.zeros((4, 4)), (), ())
