"""Reservations as records: by names, and read with another fabric."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.journal.sqlite import SCHEMA_VERSION
from hydra.errors import HydraError
from hydra.lifecycle import ReservationState as State
from hydra.model import PlaneId, VlanId
from hydra.reservations.book import ReservationBook
from hydra.reservations.records import out_of_date, read_reservation, reservation_record
from hydra.reservations.reservation import (
    BOOKED_STATES,
    GONE,
    ReservationRequest,
    RetryKey,
    ShapeEdge,
)
from tests.unit.core.fabrics import (
    circuit_between,
    path_of,
    physical,
    random_fabric,
    reordered,
    reread,
    small_fabric,
)

FABRIC = small_fabric(racks=4, planes=2)
RELAYED = path_of(
    FABRIC, 0, 2, circuit_between(FABRIC, 0, 3, plane=1), circuit_between(FABRIC, 2, 3)
)


def reservation(state=State.ACTIVE, path=RELAYED):
    """From h11 (r1) to r3, over r4."""
    book = ReservationBook(FABRIC)
    retry = RetryKey("key", "digest")
    book.add("a", ReservationRequest("h11", "r3", 30.0, owner="tina", retry=retry), now=0.0)
    return replace(
        book.get("a"), state=state, booked=path, path=path, vlan=VlanId(101), reason="as it was"
    )


def written(one, fabric=FABRIC):
    return json.loads(json.dumps(reservation_record(fabric, one)))


def renamed(fabric, rack, name):
    racks = list(fabric.racks)
    racks[rack] = replace(racks[rack], name=name)
    return replace(fabric, racks=tuple(racks))


def with_port(fabric, port, **changes):
    ports = tuple(replace(one, **changes) if one.id == port else one for one in fabric.ports)
    return replace(fabric, ports=ports)


def test_it_holds_no_position():
    record = written(reservation())
    assert (record["src_rack"], record["dst_rack"]) == ("r1", "r3")
    assert record["path"] == {
        "src": "r1",
        "dst": "r3",
        "circuits": [[["r1", "o2.1"], ["r4", "o2.1"]], [["r3", "o1.1"], ["r4", "o1.1"]]],
    }
    assert record["booked"] == record["path"]


def test_another_field_is_another_schema():
    """Earlier releases refuse a record with an unknown field, and so do not start."""
    fields = (
        "owner retry minimum_mbps priority service purpose id state src dst bandwidth_mbps "
        "duration_s src_rack dst_rack created_unix_s expires_unix_s starts_unix_s booked "
        "held_until_unix_s group bundle path vlan wanted_mbps preempted_by reason "
        "since_unix_s leaves_path"
    )
    assert (SCHEMA_VERSION, list(written(reservation()))) == (1, fields.split())


def test_a_shape_s_reservation_keeps_its_place():
    edge = ShapeEdge("ring", 2, 0, 3)
    record = written(replace(reservation(), shape=edge))
    assert record["shape"] == {"pattern": "ring", "src": 2, "dst": 0, "racks": 3}
    assert read_reservation(FABRIC, record).shape == edge


@pytest.mark.parametrize("state", State)
def test_what_is_written_is_read_back(state):
    one = reservation(state)
    read = read_reservation(FABRIC, written(one))
    assert read == one
    assert not out_of_date(written(one), read)
    none = replace(one, path=None, booked=None, vlan=None, retry=None)
    assert read_reservation(FABRIC, written(none)) == none


@given(st.integers(0, 2**32))
def test_it_means_the_same_ports_in_any_order(seed):
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    book = ReservationBook(fabric)
    racks = rng.sample(fabric.racks, 2)
    ends = [rng.choice([rack.name, rack.servers[0].name]) for rack in racks]
    try:
        book.add("a", ReservationRequest(*ends, 1.0), now=0.0)
    except HydraError:  # the racks have no plane in common
        return
    other = reordered(fabric, rng)
    again = reread(book, fabric, other)
    one, read = book.get("a"), again.get("a")
    assert physical(other, read.booked, read.src_rack) == physical(fabric, one.booked, one.src_rack)
    assert [other.racks[rack].name for rack in (read.src_rack, read.dst_rack)] == [
        rack.name for rack in racks
    ]
    assert read.booked.src < read.booked.dst
    assert list(reread(again, other, fabric)) == list(book)


LOSSES = {
    "the rack": (renamed(FABRIC, 0, "new"), "fabric small has no rack r1 any more"),
    "the other rack": (renamed(FABRIC, 2, "new"), "fabric small has no rack r3 any more"),
    "a rack on the way": (
        renamed(FABRIC, 3, "new"),
        "fabric small has no optical port r4 o2.1 any more",
    ),
    "the server": (
        replace(
            FABRIC,
            racks=tuple(replace(rack, servers=rack.servers[1:]) for rack in FABRIC.racks),
        ),
        "fabric small has no server h11 any more",
    ),
    "the server's place": (
        replace(
            FABRIC,
            racks=tuple(
                replace(rack, servers=tuple(replace(s, rack=rack.id) for s in others.servers))
                for rack, others in zip(
                    FABRIC.racks, (*FABRIC.racks[1:], FABRIC.racks[0]), strict=True
                )
            ),
        ),
        "h11 is in rack r4 now, and was in rack r1",
    ),
    "a port": (
        with_port(FABRIC, RELAYED.circuits[0].a, tor_port="new"),
        "fabric small has no optical port r1 o2.1 any more",
    ),
    "a port's plane": (
        with_port(FABRIC, RELAYED.circuits[0].a, plane=PlaneId(0)),
        "r1 o2.1 and r4 o2.1 are wired to two planes now",
    ),
}


@pytest.mark.parametrize("what", LOSSES)
@pytest.mark.parametrize("state", State)
def test_what_has_lost_something_has_failed_if_it_was_booked(what, state):
    fabric, reason = LOSSES[what]
    one = reservation(state)
    record = written(one)
    read = read_reservation(fabric, record, 1_700_000_000.0)
    assert read.since_unix_s == (1_700_000_000.0 if state in BOOKED_STATES else one.since_unix_s)
    assert out_of_date(record, read) == (state in BOOKED_STATES)
    assert (read.state, read.reason) == (
        (State.FAILED, reason) if state in BOOKED_STATES else (state, "as it was")
    )
    for rack, name in ((read.src_rack, "r1"), (read.dst_rack, "r3")):
        assert rack == fabric.rack_by_name[name].id if name in fabric.rack_by_name else GONE
    kept = "server" in what  # its path is unchanged
    assert [read.path, read.booked] == ([RELAYED, RELAYED] if kept else [None, None])
    again = written(read, fabric)
    assert read_reservation(fabric, again) == read
    assert read_reservation(FABRIC, again).state is read.state, "what has failed stays so"


def test_a_port_that_is_not_on_the_path_may_go():
    spare = circuit_between(FABRIC, 0, 1).a
    one = reservation()
    assert read_reservation(with_port(FABRIC, spare, tor_port="new"), written(one)) == one


def test_what_holds_duplex_circuits_is_refused_where_they_are_one_way():
    one_way = replace(FABRIC, one_way=True)
    with pytest.raises(
        HydraError, match=r"made for duplex circuits.*release the reservation first"
    ):
        read_reservation(one_way, written(reservation()))
    over = reservation(State.RELEASED)
    assert read_reservation(one_way, written(over)) == replace(over, path=None, booked=None)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record.pop("state"),
        lambda record: record.pop("src_rack"),
        lambda record: record.update(state="asleep"),
        lambda record: record.update(colour="red"),
        lambda record: record.update(path={"src": "r1"}),
        lambda record: record.update(path={"src": "r1", "dst": "r3", "circuits": [[["r1", "o"]]]}),
        lambda record: record.update(booked={"src": 0, "dst": 1, "circuits": [[0, 3, 3]]}),
    ],
)
def test_a_record_that_we_did_not_write_is_refused(spoil):
    record = written(reservation())
    spoil(record)
    with pytest.raises(HydraError, match="not a reservation record"):
        read_reservation(FABRIC, record)
