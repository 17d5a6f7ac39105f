"""Shards are distributed evenly, with few moves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from apps.workers.ownership import assigned, shard_of_switches
from tests.unit.core.fabrics import small_fabric

NAMES = st.sets(st.sampled_from("abcdef"))


@given(st.integers(1, 40), NAMES, NAMES)
def test_all_are_owned_evenly_and_no_more_move_than_have_to(shards, before, now):
    owners = assigned(shards, {}, before)
    after = assigned(shards, owners, now)
    if not now:
        assert after == {}
        return
    assert after.keys() == set(range(shards))
    counts = Counter(after.values())
    assert counts.keys() <= now
    assert max(counts.values()) - min(counts.get(name, 0) for name in now) <= 1
    moved = sum(owners.get(shard) != name for shard, name in after.items())
    gone = sum(owners.get(shard) not in now for shard in range(shards))
    had = Counter(name for name in owners.values() if name in now)
    too_many = sum(max(0, had[name] - shards // len(now)) for name in now)
    assert moved <= gone + too_many


def test_who_stays_keeps_all_that_it_may():
    owners = assigned(8, {}, {"a", "b"})
    after = assigned(8, owners, {"b"})
    assert all(after[shard] == "b" for shard in range(8))
    back = assigned(8, after, {"a", "b"})
    assert Counter(back.values()) == {"a": 4, "b": 4}


def test_switches_of_a_rack_are_of_one_shard():
    fabric = small_fabric(racks=5, planes=1, servers=2)
    shards = shard_of_switches(fabric, 3)
    for rack in fabric.racks:
        mine = {shards[one.vswitch.datapath_id] for one in rack.servers if one.vswitch}
        assert mine == {rack.id % 3}
