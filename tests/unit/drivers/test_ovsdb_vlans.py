"""VLANs in the replica of an OVSDB, against what the library itself makes of the same."""

import ovs.db.data
import ovs.db.error
import ovs.db.types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.tor import ovs_ovsdb, ovsdb_vlans  # the driver has the library use it
from drivers.tor.ovsdb_vlans import VlanSet

assert ovs_ovsdb.OvsTor

Datum = ovs.db.data.Datum
KEY = {"type": "integer", "minInteger": 0, "maxInteger": 4095}
VLANS = ovs.db.types.Type.from_json({"key": KEY, "min": 0, "max": 4096})
NAMES = ovs.db.types.Type.from_json({"key": "string", "min": 0, "max": 4096})
sets = st.frozensets(st.integers(0, 4095), max_size=200)


def as_json(vlans):
    return next(iter(vlans)) if len(vlans) == 1 else ["set", sorted(vlans)]


def unchanged(value):
    return value


def theirs(json):
    return ovsdb_vlans._from_json(VLANS, json)


@given(sets, sets)
def test_it_is_read_written_and_changed_as_by_the_library(before, change):
    ours = Datum.from_json(VLANS, as_json(before))
    assert isinstance(ours, VlanSet)
    assert ours.to_python(None) == set(theirs(as_json(before)).as_list())
    assert ours == Datum.from_python(VLANS, before, unchanged)
    assert ours == Datum.from_json(VLANS, ours.to_json())
    kept = ours.copy()
    after = ours.diff(Datum.from_json(VLANS, as_json(change)))
    wanted = theirs(as_json(before)).diff(theirs(as_json(change)))
    assert after.to_python(None) == set(wanted.as_list())
    assert kept.to_python(None) == before
    assert (after != kept) == bool(change)


def test_a_column_that_was_not_told_is_empty():
    assert Datum.default(VLANS).to_python(None) == frozenset()
    assert Datum.default(VLANS) == Datum.from_json(VLANS, ["set", []])


@pytest.mark.parametrize("wrong", [["set", [1, 4096]], ["set", ["1"]], ["set", [1, 1]], -1, 1.5])
def test_what_the_library_refuses_is_refused(wrong):
    for read in (theirs, lambda json: Datum.from_json(VLANS, json)):
        with pytest.raises(ovs.db.error.Error):
            read(wrong)


def test_ports_with_the_same_vlans_share_them():
    one, other = (Datum.from_json(VLANS, ["set", list(range(100, 4000))]) for _ in range(2))
    assert one.vlans is other.vlans


def test_other_columns_are_the_librarys():
    assert type(Datum.from_json(NAMES, ["set", ["a", "b"]])) is Datum
