from hypothesis import given
from hypothesis import strategies as st
from topology_fabrics import (
    VLANS,
    arrays,
    budgets,
    circuit,
    demands,
    fabrics,
    full,
    path,
    topology_of,
)

from hydra.model import NetworkState, Topology, VlanId
from tests.unit.core.fabrics import small_fabric
from topology.checks import check_transit
from topology.marks import VlanMarks
from topology.multihop import plan_hydra_bfs
from topology.problem import Reserved
from topology.transit import TransitOrder, transit_order
from topology.vlan import allocate


def state(epoch, vlans, *extra):
    """A state whose topology is the paths of ``vlans`` and some circuits without a path."""
    topology = topology_of(*vlans)
    return NetworkState(
        epoch,
        Topology(topology.circuits | set(extra), topology.paths),
        {p: VlanId(vlan) for p, vlan in vlans.items()},
    )


def test_a_plain_swap_needs_no_order():
    fabric = full(4, 1)
    old = state(1, {path(0, 1, circuit(fabric, 0, 1)): 100, path(2, 3, circuit(fabric, 2, 3)): 100})
    new = state(2, {path(0, 2, circuit(fabric, 0, 2)): 101, path(1, 3, circuit(fabric, 1, 3)): 102})
    assert transit_order(fabric, old, new) == TransitOrder()
    assert check_transit(fabric, old, new) == []


def test_a_new_circuit_between_ports_of_a_vanishing_vlan_comes_last():
    # VLAN 100 is the tree 0-1-2-3-4-5 with outer circuits 0-1 and 4-5 on plane 0. New 1-4 takes
    # the inner ends of both: until racks 1 and 4 are retagged it closes the ring 1-2-3-4.
    fabric = arrays(
        6,
        4,
        [(0, 0), (1, 0), (4, 0), (5, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (4, 3)],
    )
    inner = [circuit(fabric, 4, 5), circuit(fabric, 6, 7), circuit(fabric, 8, 9)]
    stays = path(1, 4, *inner)
    ends = {
        path(0, 1, circuit(fabric, 0, 1)): 100,
        path(4, 5, circuit(fabric, 2, 3)): 100,
    }
    old = state(1, {stays: 100, **ends})
    new = state(2, {stays: 100}, circuit(fabric, 1, 2))
    assert len(check_transit(fabric, old, new)) == 1
    order = transit_order(fabric, old, new)
    assert order == TransitOrder(connect_last=frozenset({circuit(fabric, 1, 2)}))
    assert check_transit(fabric, old, new, connect_last=order.connect_last) == []
    marks = VlanMarks(small_fabric(), fabric)
    assert len(marks.transit_problems(old, new, (), ())) == 1
    assert marks.transit_problems(old, new, (), order.connect_last) == []


def test_an_old_circuit_between_ports_of_a_new_path_goes_first():
    # New path 2-0-1-3 enters 0 and leaves 1 by the very ports that the old circuit 0-1 joins, and
    # crosses from 0 to 1 on a circuit that stays: tagged early, the two would be parallel.
    fabric = arrays(4, 2, [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1)])
    lost = circuit(fabric, 0, 1)
    old = state(1, {}, lost, circuit(fabric, 4, 5))
    new = state(
        2,
        {path(2, 3, circuit(fabric, 0, 2), circuit(fabric, 4, 5), circuit(fabric, 1, 3)): 100},
    )
    assert len(check_transit(fabric, old, new)) == 1
    order = transit_order(fabric, old, new)
    assert order == TransitOrder(disconnect_first=frozenset({lost}))
    assert check_transit(fabric, old, new, disconnect_first=order.disconnect_first) == []


def test_circuits_that_share_a_port_close_no_loop():
    # The new circuit 0-1 takes the port of the old one 1-2: they never exist together.
    fabric = arrays(3, 2, [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1)])
    stays, goes = circuit(fabric, 3, 4), circuit(fabric, 1, 2)
    old = state(1, {path(0, 2, stays): 100, path(1, 2, goes): 100})
    new = state(2, {path(0, 2, stays): 100, path(0, 1, circuit(fabric, 0, 1)): 100})
    assert transit_order(fabric, old, new) == TransitOrder()
    assert check_transit(fabric, old, new) == []


def test_a_circuit_that_is_held_back_for_one_vlan_is_no_obstacle_in_another():
    # Racks 0 and 1 get two new parallel circuits. VLAN 100 forbids the first, beside one that
    # stays; VLAN 101 forbids only both at once.
    fabric = arrays(
        6,
        3,
        [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (0, 2), (1, 2), (4, 2), (5, 2)],
    )
    left, right = circuit(fabric, 0, 2), circuit(fabric, 1, 3)
    stays = path(0, 1, circuit(fabric, 4, 5))
    old = state(
        1,
        {
            stays: 100,
            path(0, 2, left): 100,
            path(1, 3, right): 100,
            path(2, 4, left, circuit(fabric, 6, 8)): 101,
            path(3, 5, right, circuit(fabric, 7, 9)): 101,
        },
    )
    first, second = circuit(fabric, 0, 1), circuit(fabric, 6, 7)
    new = state(2, {stays: 100}, first, second)
    assert transit_order(fabric, old, new) == TransitOrder(connect_last=frozenset({first}))
    assert check_transit(fabric, old, new, connect_last={first}) == []
    assert len(check_transit(fabric, old, new)) == 2


@given(st.data())
def test_with_its_order_no_mixture_ever_loops(data):
    """Every moment of the change, tried one by one."""
    fabric = data.draw(fabrics(max_racks=6, max_planes=3))
    old = NetworkState()
    for _ in range(3):
        budget = data.draw(budgets(fabric))
        demand = data.draw(demands(fabric.n_racks))
        target = plan_hydra_bfs(fabric, demand, old.topology, Reserved(), budget).topology
        new = allocate(fabric, old, target, VLANS)
        order = transit_order(fabric, old, new)
        held = order.disconnect_first | order.connect_last
        assert not _mixture_loops(fabric, old, new, held)
        if not held:
            assert check_transit(fabric, old, new) == []
        if _mixture_loops(fabric, old, new, frozenset()):
            assert held
            assert check_transit(fabric, old, new) != []
        old = new


def _mixture_loops(fabric, old, new, held):
    """Whether some VLAN has a cycle of circuits, no two of which share a port, all up at once."""
    circuits = (old.topology.circuits | new.topology.circuits) - held
    for vlan in {*old.vlans.values(), *new.vlans.values()}:
        ports = {
            port
            for vlans in (old.vlans, new.vlans)
            for path_, its_vlan in vlans.items()
            if its_vlan == vlan
            for c in path_.circuits
            for port in (c.a, c.b)
        }
        links = [
            (int(fabric.port_rack[c.a]), int(fabric.port_rack[c.b]), c)
            for c in circuits
            if {c.a, c.b} <= ports
        ]
        if any(_cycle_from(links, a, b, [c]) for a, b, c in links):
            return True
    return False


def _cycle_from(links, start, here, used, visited=frozenset()):
    """Depth-first: extend the trail of port-disjoint circuits until it is back at ``start``."""
    if here == start:
        return True
    taken = {port for c in used for port in (c.a, c.b)}
    for a, b, c in links:
        if here in (a, b) and taken.isdisjoint((c.a, c.b)):
            there = b if here == a else a
            if there not in visited and _cycle_from(
                links, start, there, [*used, c], visited | {here}
            ):
                return True
    return False
