"""HydRA's heuristic: exponents of its running time, and moving demands."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mininet_scenarios.experiments.hydra_paper import heuristic
from mininet_scenarios.experiments.hydra_paper.heuristic import Followed, Heuristic, Size, Timed
from tests.unit.experiments.judged import agreeing, differing
from topology.problem import FabricArrays


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5])
def test_the_exponent_of_a_power_is_found(power):
    points = [(x, 3.0 * x**power) for x in (1.0, 2.0, 5.0, 10.0)]
    assert heuristic.exponent(points) == pytest.approx(power, abs=1e-9)


def test_every_rack_has_z_ports_on_each_plane():
    fabric = heuristic.fabric(Size(H=1, N=3, K=2, Z=4))
    assert isinstance(fabric, FabricArrays)
    ends = list(zip(fabric.port_rack.tolist(), fabric.port_plane.tolist(), strict=True))
    assert sorted(set(ends)) == [(rack, plane) for rack in range(3) for plane in range(2)]
    assert {ends.count(end) for end in ends} == {4}


def test_a_tenth_of_the_pairs_moves_from_demand_to_demand():
    demands = heuristic.moving(10, 4, 1_000.0, np.random.default_rng(1))
    pairs = [set(zip(*np.nonzero(demand), strict=True)) for demand in demands]
    assert {len(one) for one in pairs} == {40}
    assert {len(one - other) for one, other in pairwise(pairs)} == {4}
    assert np.mean([demand.sum() / 10 for demand in demands]) == pytest.approx(1_000.0, rel=0.2)
    assert not any(np.diag(demand).any() for demand in demands)


def test_standing_circuits_that_reach_all_racks_spare_reconfigurations():
    chance = np.random.default_rng(1)
    fabric = heuristic.fabric(Size(H=3, N=6, K=2, Z=1))
    moved = heuristic.moving(6, 5, 2_000.0, chance)
    always = heuristic._follow(fabric, 0.1, 1, moved, [2.0] * 5)
    never = heuristic._follow(fabric, 0.1, 1, moved, [0.0] * 5)
    assert (always.changes, never.changes, never.circuits) == (4, 0, 0)
    far = heuristic._follow(fabric, 0.1, 3, moved, [0.0] * 5)
    assert far.changes == 0
    assert far.served_share > 1.5 * never.served_share


def results(**changed) -> Heuristic:
    timed = [
        Timed(sweep.variable, value, 1e-3 * value ** changed.get(sweep.variable, 0.9))
        for sweep in heuristic.FULL
        for value in sweep.values
    ]
    followed = [
        Followed(load, hops, 9, changed.get("changes", 2) if hops == 3 else 8, 10, 0.4 + 0.1 * hops)
        for load in heuristic._LOADS
        for hops in heuristic._HOPS
    ]
    return Heuristic(tuple(timed), tuple(followed), 0.64, heuristic.FULL_MATCHING)


def judged_by(run: Heuristic):
    return heuristic.EXPERIMENT.conclude([run]).rows


def test_what_the_paper_says_agrees():
    assert differing(judged_by(results())) == []
    assert set(agreeing(judged_by(results()))) == {
        *(f"hydra/exponent {variable}" for variable in "HNKZ"),
        "hydra/hops changes",
        "hydra/hops served",
        "c-through/edmonds",
    }


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({"H": 1.2}, "hydra/exponent H"),
        ({"N": 3.1}, "hydra/exponent N"),
        ({"K": 1.1}, "hydra/exponent K"),
        ({"Z": 2.2}, "hydra/exponent Z"),
        ({"changes": 9}, "hydra/hops changes"),
    ],
)
def test_a_steeper_rise_and_more_changes_differ(changed, claim):
    assert set(differing(judged_by(results(**changed)))) == {claim}


def test_a_matching_of_fewer_racks_than_the_paper_s_is_not_judged():
    rows = judged_by(replace(results(), matched_racks=100))
    assert "c-through/edmonds" not in {row.claim for row in rows}
