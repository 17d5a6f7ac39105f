import subprocess
import sys

import numpy as np
import pytest
from topology_fabrics import circuit, demand_of, full, path, topology_of

from hydra.errors import PlanError, UnknownName
from hydra.model import EMPTY_TOPOLOGY
from hydra.policy import Policy
from topology.algorithms import ENTRIES, Product, algorithm
from topology.multihop import keep_current, plan_hydra_bfs
from topology.plan_checks import check_result
from topology.problem import Budget, Reserved


def test_algorithms_by_name():
    assert algorithm("hydra-bfs") is plan_hydra_bfs
    assert algorithm("static") is keep_current
    assert Policy().algorithm in ENTRIES


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownName, match="'dijkstra': choose one of") as refused:
        algorithm("dijkstra")
    assert str(refused.value).endswith(", ".join(sorted(ENTRIES)))


@pytest.mark.parametrize("name", ENTRIES)
def test_all_take_the_same_arguments_and_leave_them_alone(name):
    fabric = full(3, 1)
    current = topology_of(path(0, 1, circuit(fabric, 0, 1)))
    demand = demand_of(3, {(0, 1): 10.0})
    before = demand.copy()
    result = algorithm(name)(fabric, demand, current, Reserved(), Budget(2))
    if ENTRIES[name].product is Product.CIRCUITS:
        assert result.topology == current
    else:
        assert result.served_share == 1.0
    assert np.array_equal(demand, before)


def test_the_registry_is_light():
    """Half a second of scipy and networkx is for bounds and oracles."""
    code = (
        "import sys, topology.algorithms; print(sorted({'scipy', 'networkx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("n_planes", [0, 1, 2])
@pytest.mark.parametrize("n_racks", [1, 2, 3])
def test_the_smallest_fabrics(name, n_racks, n_planes):
    """One rack, no planes, no demand: the obvious result."""
    fabric = full(n_racks, n_planes)
    for mbps in (0.0, 10.0):
        demand = np.full((n_racks, n_racks), mbps)
        np.fill_diagonal(demand, 0.0)
        result = algorithm(name)(fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(3))
        arguments = (fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(3))
        assert check_result(*arguments, result) == []
        if not demand.any():
            assert result.served_share == 1.0
            assert result.unserved == ()
        elif n_planes == 0:
            assert result.served_share == 0.0
        elif n_racks == 2 and name != "static":
            assert result.served_share == 1.0


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bad_demands_are_refused(name, bad):
    demand = demand_of(3, {(0, 1): bad})
    with pytest.raises(PlanError, match=r"demand\[0, 1\] is"):
        algorithm(name)(full(3, 1), demand, EMPTY_TOPOLOGY, Reserved(), Budget(3))
    with pytest.raises(PlanError, match="shape"):
        algorithm(name)(full(3, 1), np.zeros((2, 3)), EMPTY_TOPOLOGY, Reserved(), Budget(3))


@pytest.mark.parametrize("name", ENTRIES)
def test_the_same_input_gives_the_same_plan(name):
    fabric = full(6, 3)
    demand = np.ones((6, 6)) - np.eye(6)  # nothing but ties
    plans = [
        algorithm(name)(fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(3)) for _ in range(2)
    ]
    assert plans[0] == plans[1]
