"""From one-way plans to topologies that can stand: whole rings, on the planes of their present
circuits.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.planning.engine import Planning
from hydra.errors import PlanError
from hydra.model import NetworkState, PlaneId, PortId, RackId
from hydra.policy import Policy
from hydra.reservations.reservation import Pin
from hydra.rings import whole_rings
from hydra.service import PlanRequest
from tests.unit.core.fabrics import small_fabric, with_one_way_circuits


def planning(algorithm="helios", **size):
    fabric = with_one_way_circuits(small_fabric(**size))
    return fabric, Planning(fabric, Policy(algorithm=algorithm))


def demand(fabric, entries):
    wanted = np.zeros((len(fabric.racks),) * 2)
    for ends, mbps in entries.items():
        wanted[ends] = mbps
    return wanted


def ends(fabric, state):
    return sorted(
        (int(circuit.plane), *map(int, fabric.racks_of(circuit)))
        for circuit in state.topology.circuits
    )


def test_a_ring_of_demands_is_three_circuits_and_no_more():
    fabric, planner = planning(racks=3, planes=1)
    wanted = demand(fabric, {(0, 1): 90, (1, 2): 80, (2, 0): 70})
    found = planner.propose(NetworkState(), PlanRequest(), wanted, (), ())
    assert ends(fabric, found.target) == [(0, 0, 1), (0, 1, 2), (0, 2, 0)]
    assert found.served_then_mbps == pytest.approx(240)
    assert found.served_now_mbps == pytest.approx(10 * 3), "electrical, 10 Mb/s a rack"


def test_a_chain_is_closed_and_the_closing_circuit_carries_too():
    fabric, planner = planning(racks=4, planes=1)
    wanted = demand(fabric, {(0, 1): 90, (1, 2): 80, (2, 0): 5})
    target = planner.for_demand(NetworkState(), PlanRequest(), wanted, (), ())
    assert ends(fabric, target) == [(0, 0, 1), (0, 1, 2), (0, 2, 0)]
    assert {(p.src, p.dst) for p in target.topology.paths} == {(0, 1), (1, 2), (2, 0)}


def test_asymmetric_demand_gets_twice_what_duplex_circuits_bring():
    fabric, planner = planning(racks=4, planes=1)
    shift = demand(fabric, {(i, (i + 1) % 4): 100 for i in range(4)})
    one_way = planner.propose(NetworkState(), PlanRequest(), shift, (), ())
    duplex = Planning(small_fabric(racks=4, planes=1), Policy(algorithm="edmonds"))
    both = duplex.propose(NetworkState(), PlanRequest(), shift, (), ())
    assert one_way.served_then_mbps == pytest.approx(400)
    assert both.served_then_mbps == pytest.approx(200 + 2 * 20), "electrical: two servers"


def test_several_planes_join_two_racks_several_times():
    fabric, planner = planning(racks=3, planes=3)
    wanted = demand(fabric, {(0, 1): 250, (1, 0): 10})
    found = planner.propose(NetworkState(), PlanRequest(), wanted, (), ())
    assert [e for e in ends(fabric, found.target) if e[1:] == (0, 1)] == [
        (0, 0, 1),
        (1, 0, 1),
        (2, 0, 1),
    ]
    assert found.served_then_mbps == pytest.approx(260)


def test_what_stands_keeps_its_plane():
    fabric, planner = planning(racks=4, planes=3)
    shift = {(i, (i + 1) % 4): 100 for i in range(4)}
    back = {(i, (i + 3) % 4): 60 for i in range(4)}
    first = planner.for_demand(NetworkState(), PlanRequest(), demand(fabric, shift | back), (), ())
    more = dict.fromkeys(back, 70) | dict.fromkeys(shift, 50)
    second = planner.for_demand(first, PlanRequest(), demand(fabric, more), (), ())
    assert second.topology.circuits == first.topology.circuits, "in another order, at most"


def test_what_is_outside_the_budget_stays_with_its_ring():
    fabric, planner = planning(racks=4, planes=1)
    shift = demand(fabric, {(i, (i + 1) % 4): 100 for i in range(4)})
    first = planner.for_demand(NetworkState(), PlanRequest(), shift, (), ())
    only = PlanRequest(racks=frozenset({RackId(0), RackId(1)}))
    swap = demand(fabric, {(0, 1): 100, (1, 0): 100})
    second = planner.for_demand(first, only, swap, (), ())
    assert second.topology.circuits == first.topology.circuits, "r3 and r4 would lose theirs"


def test_a_dead_circuit_takes_its_ring_along():
    fabric, planner = planning(racks=4, planes=2)
    shift = demand(fabric, {(i, (i + 1) % 4): 200 for i in range(4)})
    first = planner.for_demand(NetworkState(), PlanRequest(), shift, (), ())
    lost = min(first.topology.circuits)
    left = planner.without_circuits(first, [lost])
    assert {circuit.plane for circuit in left.topology.circuits} == {PlaneId(1)}
    again = planner.restored(left, first.topology, [lost.a])
    assert again.topology.circuits == left.topology.circuits, "its port is not to be used"
    joined = planner.joined(left, first.topology.paths, [])
    assert joined.topology.circuits == first.topology.circuits


def test_what_is_lost_is_joined_again_beside_what_stands():
    fabric, planner = planning(racks=4, planes=2)
    pair = demand(fabric, {(0, 3): 80, (3, 0): 80})
    standing = planner.for_demand(NetworkState(), PlanRequest(), pair, (), ())
    (plane,) = {circuit.plane for circuit in standing.topology.circuits}
    lost = [(RackId(1), RackId(2)), (RackId(0), RackId(1))]
    dead = [port.id for port in fabric.ports if port.rack == 0 and port.plane != plane]
    again = planner.ringed(standing, lost, dead)
    assert standing.topology.circuits < again.topology.circuits
    new = again.topology.circuits - standing.topology.circuits
    assert {fabric.racks_of(circuit) for circuit in new} == {(1, 2), (2, 1)}, "r1 has no port left"


def test_a_circuit_that_is_pinned_keeps_its_ring():
    fabric, planner = planning(racks=4, planes=1)
    around = demand(fabric, {(0, 1): 90, (1, 2): 80, (2, 0): 70})
    standing = planner.for_demand(NetworkState(), PlanRequest(), around, (), ())
    held = next(path for path in standing.topology.paths if path.src == 0)
    pins = [Pin(RackId(0), RackId(1), held, 0.0, ())]
    other = demand(fabric, {(3, 2): 90, (0, 1): 90})
    target = planner.for_demand(standing, PlanRequest(), other, pins, ())
    assert target.topology == standing.topology


def test_other_algorithms_are_refused():
    fabric, planner = planning(algorithm="hydra-bfs+", racks=3, planes=1)
    with pytest.raises(
        PlanError, match="this fabric has one-way circuits: choose b-matching or helios"
    ):
        planner.for_demand(NetworkState(), PlanRequest(), demand(fabric, {(0, 1): 9}), (), ())


@settings(deadline=None)
@given(st.data())
def test_whatever_is_asked_for_stands_in_whole_rings(data):
    """Planning itself checks topology, labels and claims, and raises PlanError."""
    algorithm = data.draw(st.sampled_from(["helios", "b-matching"]))
    size = {
        name: data.draw(st.integers(1, most))
        for name, most in (("racks", 6), ("planes", 3), ("ports_per_plane", 2))
    }
    fabric, planner = planning(algorithm, **size)
    state = NetworkState()
    for _ in range(3):
        n = len(fabric.racks)
        wanted = np.array(
            data.draw(
                st.lists(
                    st.sampled_from([0.0, 0.0, 5.0, 80.0, 250.0]), min_size=n * n, max_size=n * n
                )
            )
        ).reshape(n, n)
        np.fill_diagonal(wanted, 0)
        some = st.sets(st.sampled_from(range(n)), min_size=1)
        racks = data.draw(st.none() | some)
        planes = data.draw(st.none() | st.sets(st.sampled_from(range(size["planes"]))))
        standing = {end for circuit in state.topology.circuits for end in circuit.ends}
        blocked = data.draw(st.sets(st.sampled_from([p.id for p in fabric.ports]))) - standing
        request = PlanRequest(
            racks=None if racks is None else frozenset(map(RackId, racks)),
            planes=None if planes is None else frozenset(map(PlaneId, planes)),
        )
        found = planner.propose(state, request, wanted, (), list(map(PortId, blocked)))
        circuits = found.target.topology.circuits
        assert whole_rings(circuits) == circuits
        assert not {end for circuit in circuits for end in circuit.ends} & blocked
        state = found.target
