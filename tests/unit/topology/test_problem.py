import dataclasses
from ipaddress import IPv4Network

import numpy as np
import pytest
from topology_fabrics import circuit, full, path

from hydra.errors import PlanError
from hydra.model import (
    Fabric,
    OpticalPort,
    Plane,
    PlaneId,
    PortId,
    Rack,
    RackId,
    Tor,
    VlanId,
    VlanRange,
)
from topology.plan_checks import _hash_of_pair
from topology.problem import Budget, FabricArrays, pair_demands, tie_break, validate_demand


def _fabric() -> Fabric:
    racks = tuple(
        Rack(
            RackId(i),
            f"r{i}",
            (IPv4Network(f"10.0.{i}.0/24"),),
            Tor("d", "a", f"tor{i}", None, VlanId(10)),
            (),
        )
        for i in range(3)
    )
    planes = tuple(Plane(PlaneId(i), f"p{i}", "d", "a", 8, 25.0, 100.0) for i in range(2))
    wiring = [(0, 0, 100.0), (0, 1, 10.0), (1, 0, 40.0), (2, 1, 100.0)]
    ports = tuple(
        OpticalPort(PortId(i), RackId(rack), PlaneId(plane), f"t{i}", rack + 1, rack + 9, rate)
        for i, (rack, plane, rate) in enumerate(wiring)
    )
    return Fabric(
        "small",
        racks,
        planes,
        ports,
        VlanRange(VlanId(100), VlanId(199)),
        VlanId(4000),
        10.0,
        100.0,
    )


def test_arrays_of_a_fabric_agree_with_it():
    fabric = _fabric()
    arrays = FabricArrays.of(fabric)
    assert (arrays.n_racks, arrays.n_planes, arrays.n_ports) == (3, 2, 4)
    assert arrays.port_rack.tolist() == [0, 0, 1, 2]
    assert arrays.port_plane.tolist() == [0, 1, 0, 1]
    assert arrays.port_rate_mbps.tolist() == [100.0, 10.0, 40.0, 100.0]
    for ends in ((0, 2), (1, 3)):
        link = circuit(arrays, *ends)
        assert arrays.racks_of(link) == fabric.racks_of(link)
        assert arrays.rate_of(link) == fabric.rate_of(link)


def test_arrays_can_not_be_written():
    with pytest.raises(ValueError, match="read-only"):
        full(2, 1).port_rack[0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"port_rack": np.array([0, 2], dtype=np.int32)}, "port 1 is on rack 2"),
        ({"port_plane": np.array([0, -1], dtype=np.int32)}, "port 1 is on plane -1"),
        ({"port_rate_mbps": np.array([0.0, 1.0])}, "port 0 has a rate of 0.0 Mbps"),
        ({"port_rate_mbps": np.array([1.0, np.nan])}, "port 1 has a rate of nan Mbps"),
        ({"port_rate_mbps": np.array([1.0])}, "equally long"),
    ],
)
def test_arrays_that_contradict_themselves_are_refused(change, message):
    with pytest.raises(PlanError, match=message):
        dataclasses.replace(full(2, 1), **change)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0, float("nan")], [0, 0]], r"demand\[0, 1\] is nan"),
        ([[0, 1], [-2.5, 0]], r"demand\[1, 0\] is -2.5"),
        ([[0, float("inf")], [0, 0]], r"demand\[0, 1\] is inf"),
        ([[0, 1], [0, 3]], r"demand\[1, 1\] is 3"),
        ([[0, 1, 2], [0, 0, 2]], r"shape \(2, 3\): 2 racks need shape \(2, 2\)"),
        ([0, 1], r"shape \(2,\)"),
        ([[0]], r"shape \(1, 1\)"),
        ([[0, 1], [0]], "not a matrix of numbers"),
        ([["a", 1], [0, 0]], "not a matrix of numbers"),
        (None, "shape"),
    ],
)
def test_a_bad_demand_is_named(matrix, message):
    with pytest.raises(PlanError, match=message):
        validate_demand(matrix, 2)


def test_a_good_demand_is_copied():
    mine = np.array([[0.0, 1.0], [2.0, 0.0]])
    checked = validate_demand(mine, 2)
    checked[0, 1] = 9.0
    assert mine[0, 1] == 1.0


def test_pairs_take_the_larger_direction_and_are_ordered_by_size():
    demand = np.array([[0, 1, 7, 0], [5, 0, 0, 0], [2, 0, 0, 4], [0, 0, 0, 0]], dtype=float)
    assert [(p.src, p.dst, p.mbps) for p in pair_demands(demand)] == [
        (0, 2, 7.0),
        (0, 1, 5.0),
        (2, 3, 4.0),
    ]


def test_pairs_of_equal_demands_are_in_the_order_of_a_hash_which_no_rounding_error_changes():
    alike = np.full((40, 40), 0.3) - np.diag(np.full(40, 0.3))
    crumbs = np.triu(np.random.default_rng(1).uniform(0, 1e-9, (40, 40)), k=1)
    order = [(pair.src, pair.dst) for pair in pair_demands(alike)]
    assert [(pair.src, pair.dst) for pair in pair_demands(alike + crumbs)] == order
    assert len(set(order)) == 40 * 39 / 2
    first = order[:60]
    assert (
        len({rack for pair in first for rack in pair}) > 30
    )  # 22, if served in the order of racks
    by_hash = sorted(order, key=lambda pair: _hash_of_pair(np.array([pair[0] << 32 | pair[1]]))[0])
    assert order == by_hash  # the checks' own hash


def test_each_salt_is_another_order():
    src, dst = np.triu_indices(30, k=1)
    ends = src.astype(np.int32), dst.astype(np.int32)
    orders = [np.argsort(tie_break(*ends, salt)).tolist() for salt in range(3)]
    assert len({tuple(order[:20]) for order in orders}) == 3


def test_one_rack_wants_nothing():
    assert list(pair_demands(validate_demand([[0.0]], 1))) == []


def test_a_budget_without_hops_is_refused():
    with pytest.raises(PlanError, match="max_hops is 0"):
        Budget(max_hops=0)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(1, racks=frozenset({RackId(2)})), "rack 2: there are only 2"),
        (Budget(1, planes=frozenset({PlaneId(-1)})), "plane -1: there are only 1"),
        (Budget(1, blocked_ports=frozenset({PortId(5)})), "port 5: there are only 2"),
    ],
)
def test_a_budget_of_unknown_things_is_refused(budget, message):
    with pytest.raises(PlanError, match=message):
        budget.check(full(2, 1))


def test_a_broken_path_is_named():
    fabric = full(4, 1)
    with pytest.raises(PlanError, match="does not start at rack 0"):
        fabric.racks_along(path(0, 2, circuit(fabric, 1, 2)))
    with pytest.raises(PlanError, match="ends at rack 1, not at rack 2"):
        fabric.racks_along(path(0, 2, circuit(fabric, 0, 1)))
