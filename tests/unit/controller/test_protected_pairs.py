"""Protected traffic of several pairs: the ways of each pair, by the tables of switches."""

from __future__ import annotations

import random

import pytest

from apps.controller.policing import Policing
from apps.openflow.fleet import Fleet
from hydra.lifecycle import ReservationState
from hydra.model import NetworkState, VlanId
from hydra.reservations.reservation import Protect, Reservation
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, topology_of

FABRIC = small_fabric(racks=4, planes=2)
SERVERS = {server.name: server.vswitch.datapath_id for server in FABRIC.servers}
LANES = {
    path_of(FABRIC, src, dst, circuit_between(FABRIC, src, dst, plane=plane)): VlanId(vlan)
    for src, dst in ((0, 1), (2, 3))
    for plane, vlan in ((0, 100), (1, 101))
}
"""Two disjoint pairs with two paths each: the pairs' VLAN-IDs are equal."""
STATE = NetworkState(1, topology_of(*LANES), LANES)
FIRST, SECOND, THIRD, FOURTH = LANES


def protected(name, src, dst, working, standby, mbps=40.0):
    racks = (FABRIC.rack_by_name[rack].id for rack in (src, dst))
    head = name, ReservationState.ACTIVE, src, dst, mbps, None, *racks, 0.0, None, 0.0, working
    return Reservation(*head, path=working, protection=standby, protect=Protect.DISJOINT)


ONE = protected("a", "r1", "r2", FIRST, SECOND)
OTHER = protected("b", "r3", "r4", THIRD, FOURTH)


@pytest.fixture
def policing():
    fleet = Fleet(FABRIC, post=lambda function: function())
    return Policing(fabric=FABRIC, fleet=fleet, timeout_s=1.0)  # timed: no switch is connected


def hold(policing, *reservations, vacated=frozenset()):
    policing.hold(STATE, reservations, frozenset(), frozenset(vacated))


def ways_of(policing, server):
    return {path for path, _ in policing._tables[SERVERS[server]].ways.values()}


def test_pairs_with_equal_vlan_ids_switch_over_each_for_itself(policing):
    hold(policing, ONE, OTHER)
    assert (ways_of(policing, "h11"), ways_of(policing, "h31")) == ({FIRST}, {THIRD})
    assert policing.survivors(STATE, {FIRST, THIRD}) == {FIRST: SECOND, THIRD: FOURTH}
    concerned = {datapath for name, datapath in SERVERS.items() if name[:2] in {"h1", "h2"}}
    assert policing.switch_over({FIRST}).keys() == concerned
    assert (ways_of(policing, "h11"), ways_of(policing, "h31")) == ({SECOND}, {THIRD})


def test_traffic_stays_off_a_lost_path_that_stands_whatever_else_is_held(policing):
    hold(policing, ONE)
    policing.switch_over({FIRST})
    hold(policing, ONE, OTHER, vacated={FIRST})
    assert ways_of(policing, "h11") == {SECOND}
    less = protected("a", "r1", "r2", FIRST, SECOND, mbps=7.0)
    hold(policing, less, OTHER, vacated={FIRST})
    assert ways_of(policing, "h11") == {SECOND}
    assert policing.survivors(STATE, {SECOND}) == {}, "the working path is lost as well"


@pytest.mark.parametrize("seed", range(30))
def test_at_any_moment_traffic_is_on_a_path_that_stands_if_there_is_one(policing, seed):
    rng = random.Random(seed)
    lost, held = set(), ()
    for _ in range(12):
        if rng.random() < 0.5:
            held = tuple(one for one in (ONE, OTHER) if rng.random() < 0.7)
            hold(policing, *held, vacated=lost)
        else:
            lost.add(rng.choice(tuple(LANES)))
            policing.switch_over(lost)
        for reservation in held:
            both = {reservation.booked, reservation.protection}
            for end in (reservation.src, reservation.dst):
                ways = ways_of(policing, f"h{end[1]}1")
                assert ways <= both - lost or both <= lost
