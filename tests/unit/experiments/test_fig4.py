"""HydRA's Fig. 4: paths that share racks and circuits, in few VLANs without loops."""

from itertools import combinations

import pytest

from hydra.model import Topology
from mininet_scenarios.experiments.hydra_paper import fig4
from tests.unit.experiments.judged import agreeing, differing, missed


def test_seven_paths_take_three_vlans():
    given = fig4.vlans_of(fig4.WALKS)
    assert sorted(walk for walk, _ in given) == sorted(fig4.WALKS)
    assert len({vlan for _, vlan in given}) == 3


def test_paths_between_the_same_racks_are_in_vlans_of_their_own():
    given = dict(fig4.vlans_of(fig4.WALKS))
    between = [vlan for walk, vlan in given.items() if {walk[0], walk[-1]} == {1, 4}]
    assert len(set(between)) == 3


def test_a_path_along_another_one_is_merged_with_it():
    given = dict(fig4.vlans_of(((1, 2, 4), (1, 2), (2, 4))))
    assert len(set(given.values())) == 1


def test_racks_on_a_ring_need_two_vlans():
    ring = [(1, 2), (2, 3), (3, 1)]
    assert len({vlan for _, vlan in fig4.vlans_of(ring)}) == 2
    assert len({vlan for _, vlan in fig4.vlans_of(ring[:2])}) == 1


@pytest.mark.parametrize(
    ("walks", "fewest"),
    [(fig4.WALKS, 3), (((1, 2), (2, 3), (3, 1)), 2), (((1, 2), (2, 3)), 1), (((1, 2),), 1)],
)
def test_the_exhaustive_search_finds_the_fewest(walks, fewest):
    assert fig4.fewest_vlans(*fig4.laid(walks)) == fewest


def test_a_forest_has_no_loop_and_parallel_circuits_have_one():
    fabric, topology = fig4.laid(((1, 2), (2, 3), (3, 1)))
    assert not fig4.loop_free(fabric, topology.circuits)
    assert all(fig4.loop_free(fabric, pair) for pair in combinations(topology.circuits, 2))
    assert fig4.loop_free(fabric, Topology().circuits)


@pytest.mark.parametrize(
    ("vlans", "fewest", "random", "wrong"),
    [
        ((103, 101, 102, 101, 102, 101, 101), 3, ((2, 2), (3, 3)), []),
        ((101, 101, 102, 101, 102, 101, 101), 2, ((2, 2),), ["VLANs with a loop"]),
        ((103, 101, 102, 101, 102, 101, 101), 2, ((2, 2),), ["fewest VLANs of these paths"]),
        ((103, 101, 102, 101, 102, 101, 101), 3, ((3, 2),), ["random plans of seven paths"]),
    ],
)
def test_a_loop_or_a_vlan_too_many_is_told(vlans, fewest, random, wrong):
    found = fig4.EXPERIMENT.conclude([fig4.Allocation(vlans, fewest, random)])
    figures = missed(found.rows)
    assert len(figures) == len(wrong)
    assert all(one.startswith(start) for one, start in zip(figures, wrong, strict=True))
    three = len(set(vlans)) == 3
    assert (agreeing if three else differing)(found.rows) == ["hydra/vlans"]
