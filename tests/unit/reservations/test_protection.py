"""Constraints on paths, and second paths on standby."""

from dataclasses import replace

import pytest

from hydra.errors import AdmissionError, NotHitless, QuotaExceeded, UnknownName, WrongRequest
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.constraints import Constraints, planes_of, relays_of
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.protection import shared_by
from hydra.reservations.quotas import Quota
from hydra.reservations.records import read_reservation, reservation_record
from hydra.reservations.reservation import (
    Profile,
    Protect,
    ReservationRequest,
    ServiceClass,
    Transfer,
)
from tests.unit.core.fabrics import small_fabric

NOW = 1000.0
WIDE = small_fabric(racks=5, planes=3)
PROTECTED = ReservationRequest("h11", "h21", 40.0, protect=Protect.DISJOINT)


@pytest.fixture
def book():
    return ReservationBook(WIDE)


def planes(path):
    return {WIDE.planes[plane].name for plane in planes_of(path)}


def ends(path):
    return frozenset(end for circuit in path.circuits for end in circuit.ends)


def constrained(**constraints):
    return ReservationRequest("r1", "r2", 40.0, constraints=Constraints(**constraints))


@pytest.mark.parametrize(
    ("constraints", "allowed"),
    [
        ({"avoid_planes": ("p1",)}, {"p2", "p3"}),
        ({"require_planes": ("p3",)}, {"p3"}),
        ({"require_planes": ("p1", "p2"), "avoid_planes": ()}, {"p1", "p2"}),
        ({"avoid_planes": ("p1", "p2")}, {"p3"}),
    ],
)
def test_a_path_keeps_to_the_planes(book, constraints, allowed):
    made = book.add("a", constrained(**constraints), NOW)
    assert planes(made.booked) <= allowed
    again = book.reroute(made.pair, NOW, AdmissionLimits(blocked=ends(made.booked)))
    for one in again[0]:
        assert planes(one.booked) <= allowed - planes(made.booked)
    assert bool(again[0]) == (len(allowed) > 1)


def busy(book, *racks):
    """Every port of the pair's direct circuits is taken; only paths over other racks are left."""
    for number, (src, dst, plane) in enumerate(racks):
        request = ReservationRequest(
            src, dst, 100.0, constraints=Constraints(require_planes=(plane,), max_hops=1)
        )
        book.add(f"busy{number}", request, NOW)


def test_relays_and_hops_are_kept_to():
    book = ReservationBook(small_fabric(racks=4, planes=3))
    busy(book, ("h11", "h41", "p1"), ("h12", "h42", "p2"), ("r2", "r4", "p3"))
    relayed = book.add("a", ReservationRequest("r1", "r2", 40.0), NOW)
    relays = relays_of(WIDE, relayed.booked)
    assert relays == {2}, "r3 alone has free ports on p3 and p1 or p2"
    book.remove("a")
    with pytest.raises(AdmissionError, match="no relay r3") as refused:
        book.add("a", constrained(avoid_relays=("r3",)), NOW)
    assert "without them, r1 =p3= r3" in str(refused.value)
    with pytest.raises(AdmissionError, match="at most 1 hops"):
        book.add("a", constrained(max_hops=1), NOW)
    assert "a" not in book


@pytest.mark.parametrize(
    ("constraints", "error", "told"),
    [
        ({"avoid_planes": ("p9",)}, UnknownName, "no plane 'p9': did you mean"),
        ({"avoid_relays": ("h11",)}, UnknownName, "no rack 'h11'"),
        ({"avoid_planes": ("p1",), "require_planes": ("p1",)}, WrongRequest, "both avoided and"),
        ({"max_hops": 0}, WrongRequest, "max_hops must be at least 1, got 0"),
        ({"avoid_planes": ("p1", "p2", "p3")}, AdmissionError, "leave r1 no plane: allow one of"),
    ],
)
def test_constraints_that_cannot_be_met_are_one_error(book, constraints, error, told):
    with pytest.raises(error, match=told):
        book.add("a", constrained(**constraints), NOW)
    assert len(book) == 0


def test_the_second_path_shares_no_plane_and_holds_its_bandwidth(book):
    made = book.add("a", PROTECTED, NOW)
    assert planes(made.booked).isdisjoint(planes(made.protection))
    assert shared_by(WIDE, made.booked, made.protection) == ("ToR of r1", "ToR of r2")
    assert {pin.path: pin.bandwidth_mbps for pin in book.pinned()} == dict.fromkeys(made.paths, 40)
    for path in made.paths:
        whole = replace(
            ReservationRequest("h12", "h22", 70.0),
            constraints=Constraints(require_planes=tuple(planes(path)), max_hops=1),
        )
        with pytest.raises(AdmissionError):
            book.add("b", whole, NOW)
    # The servers send on one path at a time: their uplinks hold the bandwidth once.
    assert book.add("c", ReservationRequest("h11", "h31", 60.0), NOW).booked
    book.transition("a", State.RELEASING)
    book.transition("a", State.RELEASED)
    assert {pin.path for pin in book.pinned()} == {book.get("c").booked}


def test_a_busy_second_plane_is_told_and_nothing_is_held():
    narrow = small_fabric(racks=4, planes=2)
    book = ReservationBook(narrow)
    # r3 uses one plane of r1.
    book.add("full", ReservationRequest("r1", "r3", 30.0), NOW)
    with pytest.raises(AdmissionError, match="no disjoint path beside"):
        book.add("a", ReservationRequest("r1", "r2", 80.0, protect=Protect.DISJOINT), NOW)
    assert [one.id for one in book] == ["full"]


@pytest.mark.parametrize(
    ("fabric", "request_", "limits", "error", "told"),
    [
        (small_fabric(planes=1), PROTECTED, AdmissionLimits(), AdmissionError, "a second plane"),
        (
            WIDE,
            replace(PROTECTED, constraints=Constraints(require_planes=("p2",))),
            AdmissionLimits(),
            AdmissionError,
            "leave r1 plane p2 alone",
        ),
        (WIDE, PROTECTED, AdmissionLimits(paths_per_pair=1), AdmissionError, "paths_per_pair"),
        (
            WIDE,
            replace(PROTECTED, service=ServiceClass.BEST_EFFORT),
            AdmissionLimits(),
            WrongRequest,
            "no bandwidth to protect",
        ),
        (
            WIDE,
            replace(PROTECTED, transfer=Transfer(10.0, NOW + 90, Profile.EARLIEST)),
            AdmissionLimits(),
            WrongRequest,
            "planned again after a loss",
        ),
        (
            WIDE,
            replace(PROTECTED, owner="t", quota=Quota(max_mbps=60.0)),
            AdmissionLimits(),
            QuotaExceeded,
            "40 Mb/s on 2 paths exceed the quota of 60",
        ),
    ],
)
def test_what_cannot_be_protected_is_refused_and_nothing_held(
    fabric, request_, limits, error, told
):
    book = ReservationBook(fabric)
    with pytest.raises(error, match=told):
        book.add("a", request_, NOW, limits)
    assert len(book) == 0
    assert book.pinned() == ()


def test_a_quota_counts_both_paths(book):
    quota = Quota(max_reservations=2, max_mbps=80.0)
    book.add("a", replace(PROTECTED, owner="t", quota=quota), NOW)
    usage = book.usage("t", NOW)
    assert (usage.reservations, usage.peak_mbps) == (1, 80.0)


def test_after_a_loss_the_second_path_takes_over_and_another_one_is_booked(book):
    made = book.add("a", PROTECTED, NOW)
    lost = ends(made.booked)
    (moved,), refused = book.reroute(made.pair, NOW, AdmissionLimits(blocked=lost))
    assert refused == {}
    assert moved.booked == made.protection
    assert planes(moved.protection) == {"p1", "p2", "p3"} - planes(made.booked) - planes(
        moved.booked
    )
    lost |= ends(moved.protection)
    alone = book.protect("a", NOW, AdmissionLimits(blocked=lost))
    assert (alone.booked, alone.protection) == (moved.booked, None)
    assert {pin.path for pin in book.pinned()} == {moved.booked}
    again = book.protect("a", NOW, AdmissionLimits())
    assert again.protection is not None
    assert planes(again.protection).isdisjoint(planes(again.booked))


def test_a_change_of_the_rate_needs_room_on_both_paths(book):
    made = book.add("a", PROTECTED, NOW)
    standby = tuple(planes(made.protection))
    beside = ReservationRequest("h12", "h22", 50.0, constraints=Constraints((), standby))
    assert book.add("b", beside, NOW).booked == made.protection
    with pytest.raises(NotHitless, match="circuits of the path on standby"):
        book.modify("a", Modification(bandwidth_mbps=60.0), NOW)
    assert book.get("a") == made
    changed = book.modify("a", Modification(bandwidth_mbps=50.0), NOW)
    assert changed.paths == made.paths


def test_a_higher_rank_displaces_a_protected_reservation_as_a_whole(book):
    made = book.add("a", PROTECTED, NOW)
    full = Constraints(require_planes=tuple(planes(made.protection)), max_hops=1)
    higher = ReservationRequest("h12", "h22", 90.0, priority=5, constraints=full)
    new = book.add("b", higher, NOW)
    (gone,) = book.displaced("b")
    assert gone.preempted_by == new.id
    book.remove("b")
    assert book.get("a") == made
    assert {pin.path for pin in book.pinned()} == set(made.paths)


def test_records_keep_constraints_and_both_paths(book):
    made = book.add("a", replace(PROTECTED, constraints=Constraints(("p3",), max_hops=2)), NOW)
    record = reservation_record(WIDE, made)
    assert read_reservation(WIDE, record) == made
    plain = book.add("b", ReservationRequest("r3", "r4", 1.0), NOW)
    assert not {"constraints", "protect", "protection"} & reservation_record(WIDE, plain).keys()
    smaller = small_fabric(racks=5, planes=1)
    left = read_reservation(smaller, record)
    assert left.protection is None
    assert left.is_protected
