"""Every registered algorithm, on input that is invalid, empty or uneven."""

import numpy as np
import pytest
from topology_fabrics import arrays, circuit, demand_of, full, path, topology_of

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, Circuit, Path, PlaneId, PortId, RackId, Topology
from topology.algorithms import ENTRIES, Product
from topology.plan_checks import check_result
from topology.problem import Budget, FabricArrays, Reserved

NAMES = sorted(ENTRIES)
ONE_CIRCUIT = topology_of(path(0, 1, circuit(full(3, 1), 0, 1)))


def plan(name, fabric, demand, current=EMPTY_TOPOLOGY, reserved=None, budget=None):
    """Plan and check; None if the algorithm refuses the fabric."""
    if ENTRIES[name].objection(fabric) is not None:
        return None
    reserved, budget = reserved or Reserved(), budget or Budget(3)
    result = ENTRIES[name].plan(fabric, demand, current, reserved, budget)
    assert check_result(fabric, demand, current, reserved, budget, result) == []
    return result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("demand", "message"),
    [
        ([[0, np.nan, 0], [0, 0, 0], [0, 0, 0]], r"demand\[0, 1\] is nan"),
        ([[0, 0, 0], [0, 0, -1e-9], [0, 0, 0]], r"demand\[1, 2\] is -1e-09"),
        ([[0, 0, 0], [0, 0, 0], [np.inf, 0, 0]], r"demand\[2, 0\] is inf"),
        ([[0, 0, 0], [0, 3, 0], [0, 0, 0]], r"demand\[1, 1\] is 3.0"),
        ([[0, 0, 1e10], [0, 0, 0], [0, 0, 0]], r"demand\[0, 2\] is 1e\+10 .* in Mbps\?"),
        (np.zeros((3, 2)), r"shape \(3, 2\): 3 racks need"),
        (np.zeros((4, 4)), r"shape \(4, 4\): 3 racks need"),
        (np.zeros(9), r"shape \(9,\)"),
        ([["a"] * 3] * 3, "not a matrix of numbers"),
        ([[0, 1], [1]], "not a matrix of numbers"),
        (None, "shape"),
    ],
    ids=[
        "nan",
        "negative",
        "infinite",
        "diagonal",
        "in bit/s",
        "oblong",
        "large",
        "flat",
        "text",
        "ragged",
        "none",
    ],
)
def test_bad_demands_are_refused_with_the_place(name, demand, message):
    with pytest.raises(PlanError, match=message):
        ENTRIES[name].plan(full(3, 1), demand, EMPTY_TOPOLOGY, Reserved(), Budget(2))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "fabric",
    [
        full(1, 0),
        full(1, 1),
        full(1, 3, per_plane=2),
        full(2, 0),
        full(5, 0),
        arrays(4, 3, []),
        full(2, 1),
        full(5, 2),
    ],
    ids=["1x0", "1x1", "1x3 twice", "2x0", "5x0", "no ports", "2x1", "5x2"],
)
def test_no_demand_leaves_nobody_unserved(name, fabric):
    result = plan(name, fabric, np.zeros((fabric.n_racks,) * 2))
    if result is not None:
        assert result.unserved == ()
        assert result.served_share == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_demand_without_planes_is_all_unserved(name):
    for fabric in (full(3, 0), arrays(3, 2, []), arrays(3, 2, [(0, 0), (1, 1)])):
        result = plan(name, fabric, demand_of(3, {(0, 1): 5.0, (2, 0): 7.0}))
        if result is None:
            continue
        assert result.topology.circuits == frozenset()
        assert not any(slot.lightpaths for slot in result.slots)
        directed = ENTRIES[name].product is not Product.CIRCUITS
        assert result.unserved == (((0, 1), (2, 0)) if directed else ((0, 1), (0, 2)))
        assert result.served_share == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_disconnected_parts_are_served_each_by_itself(name):
    ports = [(rack, plane) for plane, racks in enumerate(((0, 1), (2, 3))) for rack in racks]
    fabric = arrays(5, 2, ports)
    result = plan(name, fabric, demand_of(5, {(0, 1): 9.0, (2, 3): 8.0, (0, 3): 7.0, (4, 1): 1.0}))
    if result is None:
        return
    for light in (light for slot in result.slots for light in slot.lightpaths):
        ends = fabric.port_rack[[light.sender, light.receiver]].tolist()
        assert set(ends) in ({0, 1}, {2, 3})
    assert all({path.src, path.dst} in ({0, 1}, {2, 3}) for path in result.topology.paths)


@pytest.mark.parametrize("name", NAMES)
def test_huge_and_tiny_demands_are_no_trouble(name):
    demand = demand_of(3, {(0, 1): 1e-300, (1, 2): 1e9, (0, 2): 5e-324})
    plan(name, full(3, 2), demand)
    plan(name, full(3, 2), np.full((3, 3), 1e9) - np.diag([1e9] * 3))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(1, racks=frozenset({RackId(3)})), "names rack 3: there are only 3"),
        (Budget(1, planes=frozenset({PlaneId(-1)})), "names plane -1"),
        (Budget(1, blocked_ports=frozenset({PortId(99)})), "names port 99"),
    ],
)
def test_budgets_that_name_what_is_not_there(name, budget, message):
    with pytest.raises(PlanError, match=message):
        ENTRIES[name].plan(full(3, 1), np.zeros((3, 3)), EMPTY_TOPOLOGY, Reserved(), budget)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "static"])  # plans nothing
def test_a_pinned_circuit_on_another_plane_than_its_port(name):
    wrong = Path(RackId(0), RackId(1), (Circuit(PlaneId(5), PortId(0), PortId(1)),))
    fabric = full(2, 1)
    with pytest.raises(PlanError, match=r"ends at port 0 of plane 0$"):
        ENTRIES[name].plan(
            fabric, np.zeros((2, 2)), EMPTY_TOPOLOGY, Reserved(((wrong, 1.0),)), Budget(1)
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_budget_of_nothing_changes_nothing(name):
    fabric = full(3, 1)
    for budget in (Budget(2, racks=frozenset()), Budget(2, planes=frozenset())):
        result = plan(name, fabric, demand_of(3, {(1, 2): 50.0}), ONE_CIRCUIT, budget=budget)
        assert result is None or result.topology == ONE_CIRCUIT


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        ([(3, 0)], "port 0 is on rack 3: no such rack"),
        ([(0, 0), (0, -1)], "port 1 is on plane -1"),
        ([(0, 0, 0.0)], "rate of 0.0 Mbps"),
        ([(0, 0, float("nan"))], "rate of nan"),
        ([(0, 0, float("inf"))], "rate of inf"),
    ],
)
def test_fabrics_that_can_not_be(ports, message):
    with pytest.raises(PlanError, match=message):
        arrays(3, 1, ports)


def test_arrays_of_different_length_are_no_fabric():
    with pytest.raises(PlanError, match="equally long"):
        FabricArrays(2, 1, np.zeros(2, dtype=np.int32), np.zeros(1, dtype=np.int32), np.ones(2))


def test_a_circuit_needs_two_ports():
    with pytest.raises(ValueError, match="ordered and distinct"):
        Circuit(PlaneId(0), PortId(4), PortId(4))
    twice = Topology(frozenset({Circuit(PlaneId(0), PortId(0), PortId(1))}))
    assert len(twice.circuits) == 1
