"""Circuits without a path, as a change in stages leaves them: what others make of them."""

from dataclasses import replace

import pytest

from apps.planning.engine import Planning
from hydra.model import EMPTY_TOPOLOGY, NetworkState, Topology
from hydra.policy import Policy
from hydra.reconfiguration.beside import Touched
from hydra.reservations.reservation import Pin
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of

FABRIC = small_fabric(racks=6, planes=1)
PLANNING = Planning(FABRIC, Policy())
HERE, THERE = path_of(FABRIC, 0, 1), path_of(FABRIC, 4, 5)
READY = circuit_between(FABRIC, 2, 3)
"""A circuit whose pair comes to it in the next stage."""


def between(*paths):
    """The state with these paths, and a circuit that is ready."""
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


@pytest.mark.parametrize("wanted", [path_of(FABRIC, 2, 4), path_of(FABRIC, 2, 3)])
def test_a_reservation_has_the_ports_of_a_circuit_without_a_path(wanted):
    after, _ = PLANNING.with_pins(between(HERE), [pin(wanted)], ())
    assert after.topology.circuits == {*HERE.circuits, *wanted.circuits}


def test_what_is_lost_or_let_go_takes_no_other_circuit_along():
    before = between(HERE, THERE)
    lost = PLANNING.without_circuits(before, THERE.circuits)
    let_go = PLANNING.without_pair(before, (4, 5))
    assert lost.topology == let_go.topology == Topology(frozenset({*HERE.circuits, READY}), (HERE,))
    assert PLANNING.without_circuits(before, [READY]).topology.circuits == {
        *HERE.circuits,
        *THERE.circuits,
    }
