"""Schedules independent of demand: pairs, planes and order of the matchings."""

from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.errors import PlanError
from hydra.policy import Rotation
from tests.unit.core.fabrics import small_fabric
from topology.rotors import rotation_topologies


def matchings(rotation, racks, planes, ports_per_plane=1):
    """The matching on each plane in each slot: sets of pairs of racks."""
    fabric = small_fabric(racks=racks, planes=planes, ports_per_plane=ports_per_plane)
    slots = []
    for topology in rotation_topologies(rotation, fabric):
        assert {path.circuits for path in topology.paths} == {(c,) for c in topology.circuits}
        on_plane = [
            frozenset(fabric.racks_of(c) for c in topology.circuits if c.plane == plane.id)
            for plane in fabric.planes
        ]
        for pairs in on_plane:
            assert max(Counter(rack for pair in pairs for rack in pair).values(), default=0) <= 1
        slots.append([frozenset(tuple(sorted(pair)) for pair in pairs) for pairs in on_plane])
    return slots


def meetings(slots):
    return Counter(pair for slot in slots for pairs in slot for pair in pairs)


def joined(pairs, racks):
    """True if the pairs join all racks, by contraction."""
    group = list(range(racks))
    for a, b in pairs:
        old, new = group[a], group[b]
        group = [new if one == old else one for one in group]
    return len(set(group)) == 1


RACKS = st.integers(2, 17)


@given(racks=RACKS, planes=st.integers(1, 6))
def test_all_pairs_meet_in_a_round_robin_for_the_same_time(racks, planes):
    met = meetings(matchings(Rotation.ROUND_ROBIN, racks, planes))
    assert set(met) == set(combinations(range(racks), 2))
    assert len(set(met.values())) == 1


@given(racks=RACKS, planes=st.integers(1, 6))
def test_each_rotor_has_a_share_of_the_matchings_of_its_own(racks, planes):
    slots = matchings(Rotation.ROTORNET, racks, planes)
    shares = [set(share) - {frozenset()} for share in zip(*slots, strict=True)]
    assert sum(map(len, shares)) == len(set().union(*shares)) == racks - 1 + racks % 2
    assert set(meetings(slots)) == set(combinations(range(racks), 2))
    assert len(slots) == max(map(len, shares))


@given(racks=RACKS, planes=st.integers(3, 6))
def test_planes_of_opera_change_in_turn_while_the_others_join_all_racks(racks, planes):
    slots = matchings(Rotation.OPERA, racks, planes)
    assert set(meetings(slots)) == set(combinations(range(racks), 2))
    for before, after in pairwise([*slots, slots[0]]):
        changing = [plane for plane in range(planes) if before[plane] != after[plane]]
        assert len(changing) <= 1
        stays = [pairs for plane, pairs in enumerate(after) if plane not in changing]
        if changing:
            assert joined([pair for pairs in stays for pair in pairs], racks)
    shares = [set(share) - {frozenset()} for share in zip(*slots, strict=True)]
    assert sum(map(len, shares)) == len(set().union(*shares)), "as in RotorNet"


def test_a_rack_uses_one_port_of_several_on_a_plane():
    assert matchings(Rotation.ROTORNET, 4, 2, ports_per_plane=2) == matchings(
        Rotation.ROTORNET, 4, 2
    )


@pytest.mark.parametrize(
    ("rotation", "racks", "planes", "told"),
    [
        (Rotation.OPERA, 8, 2, "opera needs 3 planes, .* the fabric has 2: choose rotornet"),
        (
            Rotation.ROTORNET,
            1,
            2,
            "rotornet joins racks in turn, and fabric small has a single rack",
        ),
    ],
)
def test_what_a_fabric_can_not_have_is_said(rotation, racks, planes, told):
    with pytest.raises(PlanError, match=told):
        rotation_topologies(rotation, small_fabric(racks=racks, planes=planes))
