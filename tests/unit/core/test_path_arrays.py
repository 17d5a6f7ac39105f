"""Paths and VLAN-IDs as arrays behave like a tuple of paths and a dict."""

from __future__ import annotations

import copy
import gc
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.model import (
    Circuit,
    NetworkState,
    OneWayCircuit,
    Path,
    PlaneId,
    RackId,
    Topology,
    VlanId,
)
from hydra.path_arrays import Lanes, Pairs, Paths, PathTable, lanes_of, order_by

PORTS = 4
"""Ports by rack: port 4r + p is on plane p."""


def circuit(one: int, other: int, plane: int) -> Circuit:
    a, b = sorted((one, other))
    return Circuit(PlaneId(plane), PORTS * a + plane, PORTS * b + plane)


def some_paths(seed: int, count: int = 60) -> tuple[Path, ...]:
    """Sorted paths of one to three hops; several of some pairs."""
    random = np.random.default_rng(seed)
    found = set()
    for _ in range(count):
        racks = random.choice(7, random.integers(2, 5), replace=False).tolist()
        if racks[0] > racks[-1]:
            racks.reverse()
        along = tuple(
            circuit(one, other, int(random.integers(PORTS))) for one, other in pairwise(racks)
        )
        found.add(Path(racks[0], racks[-1], along))
    return tuple(sorted(found))


def as_arrays(paths: tuple[Path, ...]) -> Paths:
    """The same paths, before any object has been made."""
    return copy.copy(Paths.of(paths))


@pytest.mark.parametrize("seed", range(5))
def test_they_are_equal_to_the_tuple(seed):
    paths = some_paths(seed)
    arrays = as_arrays(paths)
    assert arrays == paths
    assert paths == arrays
    assert hash(arrays) == hash(paths)
    assert Topology(frozenset(), arrays) == Topology(frozenset(), paths)
    assert list(arrays) == list(paths)
    assert arrays[3] == paths[3]
    assert arrays[2:5] == paths[2:5]
    assert paths[7] in arrays
    assert len(arrays) == len(paths)
    assert arrays != paths[1:]
    assert as_arrays(paths[:-1]) != as_arrays(paths[1:])
    assert as_arrays(()) == ()


def test_circuits_of_another_kind_or_plane_make_other_paths():
    duplex = (Path(0, 1, (Circuit(0, 1, 5),)),)
    assert as_arrays(duplex) != as_arrays((Path(0, 1, (OneWayCircuit(0, 1, 5),)),))
    assert as_arrays(duplex) != as_arrays((Path(0, 1, (Circuit(1, 1, 5),)),))


def test_a_few_are_made_without_the_others():
    paths = some_paths(1)
    arrays = as_arrays(paths)
    assert arrays.chosen(np.array([5, 0, 9])) == [paths[5], paths[0], paths[9]]
    assert arrays._made is None
    assert arrays.chosen(np.array([], dtype=int)) == []


def test_a_table_is_the_same_from_objects_and_from_arrays():
    paths = some_paths(2)
    one, other = PathTable.of(paths), PathTable.of(as_arrays(paths))
    for name in ("src", "dst", "start", "hop_a", "hop_b"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("alike", [False, True], ids=["own keys", "all keys alike"])
@pytest.mark.parametrize("seed", range(5))
def test_places_are_those_of_equal_paths(monkeypatch, seed, alike):
    if alike:
        monkeypatch.setattr(Paths, "_hashed", lambda self: np.zeros(len(self), dtype=np.uint64))
    mine, theirs = some_paths(seed), some_paths(seed + 100)
    theirs = tuple(sorted({*theirs, *mine[::3]}))
    place_of = {path: place for place, path in enumerate(theirs)}
    expected = [place_of.get(path, -1) for path in mine]
    assert as_arrays(mine).places_in(as_arrays(theirs)).tolist() == expected
    assert max(expected) >= 0 > min(expected)
    assert as_arrays(mine).places_in(as_arrays(())).tolist() == [-1] * len(mine)


def test_places_in_other_paths_are_searched_anew():
    mine = as_arrays(some_paths(1))
    for seed in (1, 101, 1):
        theirs = some_paths(seed)
        place_of = {path: place for place, path in enumerate(theirs)}
        expected = [place_of.get(path, -1) for path in mine]
        others = as_arrays(theirs)
        for _ in range(2):
            assert mine.places_in(others).tolist() == expected
        del others
        gc.collect()  # the next paths may stand at the same address


def test_places_are_those_in_the_given_paths_while_another_thread_asks_about_others():
    """Between any two lines of the method, another thread gets its answer."""
    mine, one, other = (as_arrays(some_paths(seed)) for seed in (1, 101, 102))
    expected = mine.places_in(one).tolist()
    assert expected != mine.places_in(other).tolist()
    before, busy = sys.gettrace(), False

    def trace(frame, event, _argument):
        nonlocal busy
        if frame.f_code is not Paths.places_in.__code__ or busy:
            return None
        if event == "line":
            busy = True
            mine.places_in(other)
            busy = False
        return trace

    for _ in range(3):
        mine.places_in(one)
        sys.settrace(trace)
        try:
            found = mine.places_in(one)
        finally:
            sys.settrace(before)
        assert found.tolist() == expected


@given(st.lists(st.tuples(st.sampled_from([-1.5, 0.0, 2.0]), st.integers(0, 3)), max_size=12))
def test_the_order_by_two_keys_is_that_of_a_stable_sort(keys):
    first = np.array([key[0] for key in keys])
    then = np.array([key[1] for key in keys], dtype=np.intp)
    expected = np.lexsort((then, first)).tolist()
    assert order_by(first, lambda places: then[places]).tolist() == expected


@pytest.mark.parametrize("seed", range(5))
def test_lanes_are_equal_to_the_dict(seed):
    random = np.random.default_rng(seed)
    paths = some_paths(seed)
    vlans = {
        path: VlanId(int(vlan))
        for path, vlan in zip(paths, random.integers(1, 9, len(paths)), strict=True)
    }
    lanes = copy.copy(Lanes.of(vlans))
    assert lanes == vlans
    assert vlans == lanes
    assert lanes[paths[4]] == vlans[paths[4]]
    assert lanes.get(Path(0, 1, ())) is None
    assert {**lanes} == vlans
    assert lanes.items() - vlans.items() == set()
    assert lanes.ids == set(vlans.values())


@pytest.mark.parametrize("seed", range(5))
def test_differences_of_two_states(seed):
    random = np.random.default_rng(seed)
    old = {path: VlanId(int(random.integers(1, 4))) for path in some_paths(seed)}
    new = {path: VlanId(int(random.integers(1, 4))) for path in some_paths(seed + 7)}
    new |= {path: vlan for path, vlan in old.items() if random.random() < 0.5}
    begun, ended = Lanes.of(new).unlike(Lanes.of(old))
    assert begun.tolist() == [old.get(path) != vlan for path, vlan in new.items()]
    assert ended.tolist() == [new.get(path) != vlan for path, vlan in old.items()]
    pairs = {(path.src, path.dst) for path in list(new)[::2]}
    assert Lanes.of(new).ids_beside(Pairs.of(pairs)) == {
        vlan for path, vlan in new.items() if (path.src, path.dst) not in pairs
    }
    between = [path for path in new if (path.src, path.dst) in pairs]
    assert Lanes.of(new).between(pairs) == between


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_a_set(seed):
    random = np.random.default_rng(seed)
    ones, others = (
        {
            (RackId(low), RackId(low + 1 + step))
            for low, step in random.integers(0, 5, (9, 2)).tolist()
        }
        for _ in range(2)
    )
    pairs = Pairs.of(ones)
    assert pairs == ones
    assert ones == pairs
    assert pairs != others
    assert list(pairs) == sorted(ones)
    assert (len(pairs), copy.copy(pairs)) == (len(ones), ones)
    assert [pair in pairs for pair in others] == [pair in ones for pair in others]
    for both in (others, Pairs.of(others)):
        assert pairs & both == ones & others
        assert pairs | both == ones | others
        assert pairs - both == ones - others
        assert both - pairs == others - ones
    assert not Pairs.of(())


def test_a_state_has_its_vlan_ids_in_the_order_of_its_paths():
    one = Path(0, 1, (circuit(0, 2, 0), circuit(1, 2, 1)))
    two = Path(0, 2, (circuit(0, 2, 0),))
    state = NetworkState(0, Topology(frozenset(), (one, two)), {two: VlanId(8), one: VlanId(7)})
    assert lanes_of(state).vlan.tolist() == [7, 8]
