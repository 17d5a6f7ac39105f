"""Bundles: the division of a request beyond any circuit, and the combination of its parts."""

from dataclasses import replace
from itertools import permutations

import pytest

from hydra.lifecycle import ReservationState as State
from hydra.model import MacAddress
from hydra.reservations.book import ReservationBook
from hydra.reservations.bundle import bundle_of, divisions
from hydra.reservations.reservation import ReservationRequest
from tests.unit.core.fabrics import small_fabric, with_guests

WIDE = small_fabric(racks=3, planes=4, servers=3)


def shares(request, fabric=WIDE, paths=16):
    return [
        [(one.src, one.dst, round(one.bandwidth_mbps, 3)) for one in parts]
        for parts in divisions(fabric, request, paths)
    ]


def test_few_circuits_come_first_and_each_has_the_same(fabric):
    ways = shares(ReservationRequest("r1", "r2", 150.0))
    assert ways[0] == [("h12", "r2", 75.0), ("h11", "r2", 37.5), ("h13", "r2", 37.5)]
    assert ways[1] == [("r1", "h22", 75.0), ("r1", "h21", 37.5), ("r1", "h23", 37.5)]
    assert ways[2] == [("h11", "r2", 50.0), ("h12", "r2", 50.0), ("h13", "r2", 50.0)]
    assert len(ways) == 4, "there are three servers in a rack"


@pytest.mark.parametrize("mbps", [101.0, 200.0, 250.0, 300.0])
def test_the_parts_are_all_of_it_and_none_beyond_a_circuit(mbps):
    request = ReservationRequest("r1", "r2", mbps, minimum_mbps=mbps - 0.5)
    found = list(divisions(WIDE, request, 16))
    assert found
    for parts in found:
        assert sum(one.bandwidth_mbps for one in parts) == pytest.approx(mbps)
        assert sum(one.minimum_mbps for one in parts) == pytest.approx(mbps - 0.5)
        assert max(one.bandwidth_mbps for one in parts) <= 100.0


def test_one_server_pair_is_never_divided():
    assert shares(ReservationRequest("h11", "h21", 150.0)) == []
    ways = shares(ReservationRequest("h11", "r2", 150.0))
    assert {(len(way), {src for src, _, _ in way} == {"h11"}) for way in ways} == {(3, True)}


def test_nor_is_what_has_one_path_or_more_circuits_than_servers():
    assert shares(ReservationRequest("r1", "r2", 150.0), paths=1) == []
    assert shares(ReservationRequest("r1", "r2", 301.0)) == []


def test_racks_with_guests_are_not_divided_by_servers():
    """Guests may have any address of the rack, so their traffic can't be distinguished."""
    fabric = with_guests(WIDE, MacAddress("52:54:00:00:00:01"))
    racks = {server.rack for server in fabric.servers if server.guests}
    names = {fabric.racks[rack].name for rack in racks}
    for way in shares(ReservationRequest("r1", "r2", 150.0), fabric):
        divided = {"r1", "r2"} - {name for part in way for name in part[:2]}
        assert divided.isdisjoint(names)


def parts_of(fabric):
    book = ReservationBook(fabric)
    for number, one in enumerate(next(divisions(fabric, ReservationRequest("r1", "r2", 150.0), 2))):
        book.add(f"p{number}", one, float(number), bundle="b")
    return book


def test_parts_are_one_with_their_sums(fabric):
    book = parts_of(fabric)
    whole = bundle_of(fabric, book.parts("b"))
    assert (whole.id, whole.src, whole.dst, whole.bandwidth_mbps) == ("b", "r1", "r2", 150.0)
    assert (whole.bundle, whole.booked, whole.state) == (None, None, State.ACTIVATING)
    assert [one.booked.circuits[0].plane for one in whole.parts] == [0, 1]
    assert (whole.created_unix_s, whole.starts_unix_s, whole.expires_unix_s) == (0.0, 0.0, None)
    assert book.parts("c") == ()
    first, *others = book.parts("b")
    book.remove(first.id)
    assert book.parts("b") == tuple(others), "one that was not to be kept"
    for one in others:
        book.remove(one.id)
    assert book.parts("b") == ()


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ((State.ACTIVE, State.ACTIVATING), State.ACTIVATING),
        ((State.ACTIVE, State.FAILED), State.FAILED),
        ((State.ACTIVE, State.PREEMPTED), State.PREEMPTED),
        ((State.RELEASED, State.RELEASING), State.RELEASING),
        ((State.RELEASED, State.CANCELLED), State.CANCELLED),
        ((State.ACTIVE, State.EXPIRED), State.ACTIVE),
    ],
)
def test_their_state_is_the_worst_of_them(fabric, states, state):
    parts = parts_of(fabric).parts("b")
    for order in permutations(states):
        changed = [
            replace(one, state=its, reason=f"it is {its.value}")
            for one, its in zip(parts, order, strict=True)
        ]
        whole = bundle_of(fabric, changed)
        assert whole.state is state
        assert whole.reason.count("it is") == 1
        assert f"-r2: it is {state.value}" in whole.reason


def test_every_state_has_its_place(fabric):
    parts = parts_of(fabric).parts("b")
    for state in State:
        assert bundle_of(fabric, [replace(one, state=state) for one in parts]).state is state
