"""The exact search with which benchmarks.optimum compares plans."""

import numpy as np
import pytest

from benchmarks._demands import RATE_MBPS, full_fabric
from benchmarks._rules import GAP, optimum_by_rules, topologies
from benchmarks.optimum import instances, optimum, served_by_rules
from hydra.model import EMPTY_TOPOLOGY
from topology.anytime import plan_anytime
from topology.problem import Budget, Reserved


def _between(racks: int, wanted: dict[tuple[int, int], float]) -> np.ndarray:
    demand = np.zeros((racks, racks))
    for ends, mbps in wanted.items():
        demand[ends] = mbps
    return demand


def test_every_union_of_matchings_is_tried() -> None:
    assert list(topologies(4, 1)) == [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    assert len(list(topologies(4, 2))) == 6


@pytest.mark.parametrize(
    ("wanted", "racks", "planes", "paths", "share"),
    [
        pytest.param({(0, 1): 150.0}, 2, 2, 1, 2 / 3, id="one path fills one circuit"),
        pytest.param({(0, 1): 150.0}, 2, 2, 2, 1.0, id="two paths fill two"),
        pytest.param(
            {(0, 1): 50.0, (2, 3): 80.0, (1, 2): 60.0}, 4, 1, 1, 130 / 190, id="the best matching"
        ),
        pytest.param(
            {(0, 1): 100.0, (1, 2): 100.0, (2, 3): 100.0, (0, 2): 10.0}, 4, 2, 1, 300 / 310,
            id="a detour takes what the circuits on the way lose",
        ),
        pytest.param(
            {(0, 1): 240.0, (0, 2): 100.0}, 4, 3, 3, 300 / 340, id="three ports of a rack",
        ),
    ],
)  # fmt: skip
def test_optimum_of_small_cases(
    wanted: dict[tuple[int, int], float], racks: int, planes: int, paths: int, share: float
) -> None:
    found = optimum_by_rules(_between(racks, wanted), planes, 100.0, 3, paths, reached=0.0)
    assert found == pytest.approx(share, rel=2 * GAP)


@pytest.mark.parametrize("paths", [1, 2])
def test_no_plan_serves_more(paths: int) -> None:
    fabric = full_fabric(4, 2)
    for instance in instances(20, 4, 2):
        plan = plan_anytime(
            fabric, instance.demand, EMPTY_TOPOLOGY, Reserved(), Budget(3, paths_per_pair=paths)
        )
        served = served_by_rules(fabric, instance.demand, plan.topology)
        most = optimum_by_rules(instance.demand, 2, RATE_MBPS, 3, paths, reached=0.0)
        assert served <= most * (1 + 2 * GAP)
        assert most <= optimum(instance.demand, 2) * (1 + 2 * GAP)
        assert optimum_by_rules(
            instance.demand, 2, RATE_MBPS, 3, paths, reached=served
        ) == pytest.approx(max(served, most), rel=2 * GAP)
