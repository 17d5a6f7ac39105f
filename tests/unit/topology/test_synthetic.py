import numpy as np
import pytest

from hydra.errors import PlanError, UnknownName
from topology.problem import validate_demand
from topology.synthetic import KINDS, synthetic_demand


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 64])
def test_they_are_demands_of_the_size_asked_for(kind, n):
    demand = validate_demand(synthetic_demand(kind, n, 5, 40.0), n)
    busiest = max(demand.sum(axis=0).max(), demand.sum(axis=1).max())
    assert busiest == pytest.approx(40.0 if n > 1 else 0.0)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"dense"}))
def test_the_seed_decides(kind):
    one, again, other = (synthetic_demand(kind, 20, seed, 1.0) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_sparse_ones_are_sparse_and_skewed():
    partners = (synthetic_demand("sparse", 100, 3, 1.0) > 0).sum(axis=1)
    assert sorted(set(partners.tolist())) == [8, 49]
    assert (partners == 49).sum() == 10


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("spares", 4, 1, 1.0), UnknownName),
        (("dense", 0, 1, 1.0), PlanError),
        (("dense", 4, 1, -1.0), PlanError),
        (("dense", 4, 1, float("nan")), PlanError),
        (("dense", 4, 1, float("inf")), PlanError),
    ],
)
def test_bad_arguments(arguments, error):
    with pytest.raises(error):
        synthetic_demand(*arguments)
