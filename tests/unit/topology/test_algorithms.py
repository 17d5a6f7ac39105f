import numpy as np
import pytest
from topology_fabrics import circuit, demand_of, full, path, topology_of

from hydra.errors import UnknownName
from hydra.policy import Policy
from topology.algorithms import ENTRIES, algorithm
from topology.multihop import keep_current, plan_hydra_bfs
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
    assert result.topology == current
    assert np.array_equal(demand, before)
