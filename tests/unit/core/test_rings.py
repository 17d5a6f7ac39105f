"""Rings of one-way circuits: the sources of light, and circuits that go dark together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.faults.roll_call import RollCall
from hydra.faults.surveillance import Surveillance
from hydra.forwarding.substrate import substrate_of
from hydra.journal_format import read_state, state_record
from hydra.model import (
    Circuit,
    CrossConnect,
    NetworkState,
    OneWayCircuit,
    Path,
    PlaneId,
    PortId,
    RackId,
    Topology,
)
from hydra.reconfiguration.plan import diff, hold
from hydra.reconfiguration.reconcile import Actual, reconcile
from hydra.rings import closing, rings_of, whole_rings
from hydra.roles import Mirrors
from tests.unit.core.fabrics import order_of, small_fabric, state_of, with_one_way_circuits
from topology.checks import check_topology

FABRIC = with_one_way_circuits(small_fabric(racks=5, planes=1))


def beam(sender: int, receiver: int) -> OneWayCircuit:
    """Circuits of racks with one port each."""
    return OneWayCircuit(PlaneId(0), PortId(sender), PortId(receiver))


def ring(*racks: int) -> set[Circuit]:
    return {beam(a, b) for a, b in zip(racks, [*racks[1:], racks[0]], strict=True)}


def along(*circuits: Circuit) -> list[Path]:
    return [Path(*FABRIC.racks_of(circuit), (circuit,)) for circuit in circuits]


def state(*rings: set[Circuit], before: NetworkState | None = None) -> NetworkState:
    circuits = sorted(set().union(*rings))
    return state_of(FABRIC, before or NetworkState(), *along(*circuits))


def test_a_ring_without_one_of_its_circuits_is_dark():
    circuits = ring(0, 1, 2) | ring(3, 4)
    assert whole_rings(circuits) == circuits
    assert whole_rings(circuits - {beam(1, 2)}) == ring(3, 4)
    assert rings_of([beam(2, 0)], circuits) == ring(0, 1, 2)
    assert rings_of([beam(0, 4)], circuits) == frozenset(), "it is not among them"


def test_a_duplex_circuit_is_a_ring_of_its_own():
    circuits = {Circuit(PlaneId(0), PortId(a), PortId(b)) for a, b in ((0, 1), (2, 3))}
    one, _ = sorted(circuits)
    assert whole_rings(circuits) == circuits
    assert rings_of([one], circuits) == {one}
    assert one != OneWayCircuit(PlaneId(0), PortId(0), PortId(1))


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)), st.data())
def test_closing_makes_rings_of_whatever_is_no_ring(order, kept, data):
    edges = [(a, b) for a, b in enumerate(order) if a in kept and a != b]
    added = closing(edges)
    circuits = {beam(a, b) for a, b in (*edges, *added)}
    assert whole_rings(circuits) == circuits
    assert {end for edge in added for end in edge} <= {end for edge in edges for end in edge}
    assert len(circuits) == len(edges) + len(added)


def test_a_circuit_takes_one_half_of_each_port():
    assert FABRIC.cross_connects(beam(3, 1)) == (CrossConnect(4, 7),)
    assert set(beam(3, 1).halves) == {(3, True), (1, False)}
    with pytest.raises(ValueError, match="must be distinct"):
        beam(2, 2)


def test_what_cannot_stand_is_named():
    def problems(*circuits: Circuit, paths: list[Path] | None = None) -> str:
        found = along(*circuits) if paths is None else paths
        return "; ".join(check_topology(FABRIC, Topology(frozenset(circuits), tuple(found)), 1))

    assert problems(*sorted(ring(0, 1, 2))) == ""
    assert "port 0 sends and has no light" in problems(beam(0, 1), beam(1, 2))
    assert "port 1 serves 2 circuits" in problems(*sorted(ring(0, 1) | ring(2, 1)))
    backwards = [Path(RackId(1), RackId(0), (beam(0, 1),))]
    assert "breaks at rack 1" in problems(*sorted(ring(0, 1)), paths=backwards)


def test_what_shares_a_ring_with_a_mirror_that_moves_is_diverted():
    old = state(ring(0, 1, 2), ring(3, 4))
    new = state({beam(0, 1), beam(1, 0)}, ring(3, 4), before=old)
    plan = diff(FABRIC, old, new, order_of(FABRIC))
    assert plan.affected == {(0, 1), (1, 2), (0, 2)}, "0 to 1 stays, and goes dark meanwhile"
    assert plan.disconnect == {beam(1, 2), beam(2, 0)}


def test_who_cannot_be_diverted_keeps_its_whole_ring():
    old = state(ring(0, 1, 2))
    new = state(ring(0, 1), ring(2, 3), before=old)
    plan = diff(FABRIC, old, new, order_of(FABRIC))
    held = hold(plan.current, plan.target, [(1, 2)], [])
    assert held.topology.circuits == ring(0, 1, 2)
    assert set(held.vlans) == set(old.vlans)


def test_each_rack_steers_its_own_direction():
    substrate = substrate_of(FABRIC)
    standing = state(ring(0, 1, 2))
    rules = {
        rack.name: [
            rule.args[0] - 1 for rule in substrate.path_rules(rack.tor.datapath_id, standing)
        ]
        for rack in FABRIC.racks
    }
    assert rules == {"r1": [1], "r2": [2], "r3": [0], "r4": [], "r5": []}, "by destination rack"


def test_a_path_is_watched_in_its_direction():
    # timed: on a clock of the test's own
    watch = Surveillance(FABRIC, interval_s=1.0, timeout_s=0.1, roll=RollCall())
    watch.watch(state(ring(0, 1, 2)), (), 0.0)
    ready, lost = watch.due(2.0)
    assert sorted((way.src, way.dst) for way in ready) == [(0, 1), (1, 2), (2, 0)]
    assert not lost


def test_the_journal_gives_back_what_it_was_given():
    standing = state(ring(2, 1, 0), ring(4, 3))
    assert read_state(FABRIC, state_record(FABRIC, standing)) == standing
    four = with_one_way_circuits(small_fabric(racks=4, planes=1))
    assert read_state(four, state_record(FABRIC, standing)).topology.circuits == ring(2, 1, 0)


def test_after_a_crash_what_is_left_of_a_ring_is_taken_down():
    standing = state(ring(0, 1, 2), ring(3, 4))
    lit = {cross for one in standing.topology.circuits for cross in FABRIC.cross_connects(one)}
    missing = FABRIC.cross_connects(beam(1, 2))[0]
    found = reconcile(
        FABRIC, standing, Actual({PlaneId(0): Mirrors(frozenset(lit - {missing}))}, {})
    )
    assert found.state.topology.circuits == ring(3, 4)
    assert found.mirrors[PlaneId(0)].disconnect == {
        cross for one in (beam(0, 1), beam(2, 0)) for cross in FABRIC.cross_connects(one)
    }
