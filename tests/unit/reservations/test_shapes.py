"""Shapes: admitted whole or refused with alternatives, and their state."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from hydra.errors import AdmissionError, DeviceMissing, QuotaExceeded, UnknownName, WrongRequest
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.quotas import Quota
from hydra.reservations.reservation import ReservationRequest, ServiceClass
from hydra.reservations.shape_search import admit_shape, with_remedy
from hydra.reservations.shapes import (
    ShapeState,
    chosen_request,
    matrix_request,
    pattern_request,
    shape_of,
    shapes_among,
)
from tests.unit.core.fabrics import small_fabric

WISH = ReservationRequest("", "", 0.0)
FOUR = ("r1", "r2", "r3", "r4")


class Shaped:
    """A book that admits shapes, like the controller, at the time 0."""

    def __init__(self, fabric):
        self.fabric, self.book, self.number = fabric, ReservationBook(fabric), 0
        self.limits = AdmissionLimits()
        self.reserved = []
        """The racks of each attempt to reserve."""

    def add(self, *wishes, group=None):
        entered = []
        try:
            for wish in wishes:
                self.number += 1
                name = f"v{self.number}"
                entered.append(self.book.add(name, wish, 0.0, self.limits, group))
        except AdmissionError:
            for one in reversed(entered):
                self.book.remove(one.id)
            raise
        return entered

    def trial(self, requests, most, _brief=True, apart=()):
        refused = {}
        book = ReservationBook(self.fabric, [one for one in self.book if one not in apart])
        for place, request in enumerate(requests):
            try:
                book.add(f"t{place}", request, 0.0, self.limits)
            except AdmissionError as error:
                refused[place] = error
                if len(refused) == most:
                    break
        return refused

    def rooms(self, request):
        return self.book.rooms_mbps(request, 0.0)

    def reserve(self, requests):
        self.reserved.append([(one.src, one.dst) for one in requests])
        return self.add(*requests, group="s")

    def admit(self, shape):
        admitted = admit_shape(self.fabric, shape, self.reserve, self.trial, self.rooms)
        return shape_of(self.fabric, admitted)

    def remedied(self):
        """The only shape, with its remedy."""
        before = list(self.book)
        members = self.book.members("s")
        as_if_released = partial(self.trial, apart=members)
        found = with_remedy(self.fabric, shape_of(self.fabric, members), as_if_released)
        assert list(self.book) == before, "a trial leaves nothing"
        return found

    def refusal(self, shape):
        before = list(self.book)
        with pytest.raises(AdmissionError) as refused:
            self.admit(shape)
        assert list(self.book) == before, "nothing is held"
        return refused.value


@pytest.fixture
def shaped(fabric):
    return Shaped(fabric)


def rates(shape):
    return {(one.src, one.dst): one.bandwidth_mbps for one in shape.edges}


def racks_of(error):
    return [one.racks for one in error.alternatives if one.racks]


# --- admission ------------------------------------------------------------------------------------


def test_a_ring_has_a_circuit_for_each_pair(shaped):
    shape = shaped.admit(pattern_request("ring", FOUR, 100.0, WISH))
    ends = [("r1", "r2"), ("r2", "r3"), ("r3", "r4"), ("r4", "r1")]
    assert rates(shape) == dict.fromkeys(ends, 100.0)
    assert {one.booked.hops for one in shape.edges} == {1}
    assert (shape.pattern, shape.racks, shape.state) == ("ring", FOUR, ShapeState.ACTIVATING)


@pytest.mark.parametrize(
    ("pattern", "planes", "mbps"),
    [
        ("ring", 2, 100.0),
        ("torus:2x2", 2, 100.0),
        ("all-to-all", 3, 100.0),
        ("all-to-all", 2, 100.0 / 3),  # both diagonals over two circuits, one of them shared
        ("tree", 2, 100.0),
    ],
)
def test_the_most_is_what_circuits_can_keep(pattern, planes, mbps):
    shaped = Shaped(small_fabric(racks=4, planes=planes))
    shape = shaped.admit(pattern_request(pattern, FOUR, None, WISH))
    assert list(rates(shape).values()) == pytest.approx([mbps] * len(shape.edges))


@pytest.mark.parametrize("most_mbps", [100.0 / 128, 25.0])
def test_an_order_refused_early_has_further_orders(most_mbps):
    """Eight pairs fit only before all others. Far above the fitting rate, two orders suffice."""
    names, tried = tuple(f"r{number + 1}" for number in range(40)), Counter()
    late = set(names[2:18:2])

    def trial(requests, most, brief=True):
        tried[mbps := requests[0].bandwidth_mbps] += brief
        if mbps > most_mbps:
            return dict.fromkeys(range(most), AdmissionError("no room"))
        others = [place for place, one in enumerate(requests) if one.src not in late]
        refused = [place for place, one in enumerate(requests) if one.src in late]
        refused = [place for place in refused if place > others[0]]
        return dict.fromkeys(refused[:most], AdmissionError("no room"))

    def reserve(requests):
        if trial(requests, 1, False):
            raise AdmissionError("no room")
        return requests

    shape = pattern_request("pairs", names, None, WISH)
    fabric = small_fabric(racks=40, planes=2)
    admitted = admit_shape(fabric, shape, reserve, trial, None)
    assert {one.bandwidth_mbps for one in admitted} == {most_mbps}
    assert set(tried.values()) == {2}


def test_the_most_is_beside_what_is_promised_already(shaped):
    shaped.add(ReservationRequest("r1", "r2", 37.0))
    shape = shaped.admit(pattern_request("ring", FOUR, None, WISH))
    assert set(rates(shape).values()) == {63.0}


def test_a_matrix_has_its_rates_or_the_most_in_proportion(shaped):
    pairs = [("r2", "r3", 15.0), ("r1", "r2", 60.0)]
    assert rates(shaped.admit(matrix_request(pairs, WISH))) == {
        ("r2", "r3"): 15.0,
        ("r1", "r2"): 60.0,
    }
    most = Shaped(shaped.fabric).admit(matrix_request(pairs, WISH, most=True))
    assert rates(most) == {("r2", "r3"): 25.0, ("r1", "r2"): 100.0}


def test_refused_pairs_go_first_in_another_order(fabric):
    shaped, tries = Shaped(fabric), []

    def only_if_the_last_goes_first(requests):
        tries.append([(one.src, one.dst) for one in requests])
        good = tries[-1][0] == ("r4", "r1")
        return {} if good else {tries[-1].index(("r4", "r1")): AdmissionError("no room")}

    def reserve(requests):
        if only_if_the_last_goes_first(requests):
            raise AdmissionError("no room")
        return shaped.reserve(requests)

    def trial(requests, _most, _brief):
        return only_if_the_last_goes_first(requests)

    ring = pattern_request("ring", FOUR, 10.0, WISH)
    made = admit_shape(fabric, ring, reserve, trial, shaped.rooms)
    assert [len(order) for order in tries] == [4, 4, 4, 4]
    assert len(made) == 4


def test_a_refusal_names_the_highest_rate_and_the_racks_that_fit(shaped):
    shaped.add(ReservationRequest("r1", "r2", 60.0))
    error = shaped.refusal(pattern_request("pairs", FOUR, 80.0, WISH))
    assert "the shape pairs of 4 racks does not fit: 80 Mb/s between r1 and r2" in str(error)
    assert "; ask for at most 40 Mb/s at each edge, or leave out r1, r2" in str(error)
    assert str(error).count("ask for at most") == 1
    assert [one.bandwidth_mbps for one in error.alternatives] == [40.0, 80.0]
    assert racks_of(error) == [("r3", "r4")]
    assert shaped.admit(pattern_request("pairs", ("r3", "r4"), 80.0, WISH))


def test_a_refusal_names_the_time_at_which_it_fits(shaped):
    shaped.add(ReservationRequest("r1", "r2", 60.0, duration_s=100.0))
    wish = replace(WISH, duration_s=10.0)
    error = shaped.refusal(pattern_request("ring", FOUR, 80.0, wish))
    (later,) = (one for one in error.alternatives if one.start_unix_s)
    assert (later.bandwidth_mbps, later.start_unix_s) == (80.0, 100.0)
    assert "start at 1970-01-01T00:01:40Z" in str(error)


def test_what_no_rate_fits_is_refused_also_as_the_most(shaped):
    shaped.add(ReservationRequest("r1", "r2", 100.0, service=ServiceClass.GUARANTEED))
    error = shaped.refusal(pattern_request("pairs", FOUR, None, WISH))
    assert "exclusive to v1; leave out r1, r2" in str(error)
    assert [(one.bandwidth_mbps, one.racks) for one in error.alternatives] == [
        (100.0, ("r3", "r4"))
    ]


def test_a_rack_without_optical_ports_is_named():
    fabric = small_fabric(racks=4, planes=1)
    ports = tuple(port for port in fabric.ports if port.rack != 3)
    error = Shaped(replace(fabric, ports=ports)).refusal(pattern_request("ring", FOUR, None, WISH))
    assert "between r3 and r4 is too much: the fastest circuit carries 0 Mb/s" in str(error)


def test_errors_keep_their_kind(shaped):
    wish = replace(WISH, owner="tina", quota=Quota(max_reservations=3))
    assert isinstance(shaped.refusal(pattern_request("ring", FOUR, 1.0, wish)), QuotaExceeded)
    with pytest.raises(UnknownName, match="r9"):
        shaped.admit(pattern_request("pairs", ("r1", "r9"), 1.0, WISH))

    def missing(_requests):
        raise DeviceMissing("p1 is down")

    with pytest.raises(DeviceMissing):
        ring = pattern_request("ring", FOUR, 1.0, WISH)
        admit_shape(shaped.fabric, ring, missing, shaped.trial, shaped.rooms)


def test_names_that_occur_twice():
    with pytest.raises(AdmissionError, match="rack r1 is named twice"):
        pattern_request("ring", ("r1", "r2", "r1"), 1.0, WISH)
    with pytest.raises(AdmissionError, match="the pair r1 and r2 is named twice"):
        matrix_request([("r1", "r2", 1.0), ("r2", "r1", 2.0)], WISH)


# --- choice of racks ------------------------------------------------------------------------------


@pytest.fixture
def six():
    return Shaped(small_fabric(racks=6, planes=2))


def test_racks_with_most_room_are_chosen(six):
    six.add(ReservationRequest("r1", "r2", 10.0))
    shape = six.admit(chosen_request("ring", 4, (), 100.0, WISH))
    assert shape.racks == ("r3", "r4", "r5", "r6")
    assert shape.choice == (
        "4 of 6 racks, by most free Mb/s at their ports during the time; each chosen rack has 200 "
        "Mb/s or more free"
    )


def test_racks_of_a_list_are_chosen_for_the_highest_rate(six):
    six.add(ReservationRequest("r3", "r4", 70.0))
    shape = six.admit(chosen_request("pairs", 2, ("r3", "r4", "h51", "r1"), None, WISH))
    assert shape.racks == ("h51", "r1")
    assert {one.bandwidth_mbps for one in shape.edges} == {100.0}


def test_a_rack_where_the_shape_does_not_fit_is_replaced():
    """r1 has the most room, on planes that no other rack has."""
    fabric = small_fabric(racks=4, planes=3)
    kept = [one for one in fabric.ports if (one.rack == 0) == (one.plane != 2)]
    ports = tuple(replace(one, id=place) for place, one in enumerate(kept))
    shape = Shaped(replace(fabric, ports=ports)).admit(chosen_request("pairs", 2, (), 50.0, WISH))
    assert shape.racks == ("r3", "r2")
    assert "; not r1, where the shape did not fit at this rate; 2 sets of racks" in shape.choice


def test_too_few_racks_that_fit_are_a_refusal_with_a_smaller_number(six):
    alone = replace(WISH, bandwidth_mbps=100.0, service=ServiceClass.GUARANTEED)
    six.add(replace(alone, src="r1", dst="r2"))
    error = six.refusal(chosen_request("pairs", 2, ("r1", "r2"), 50.0, WISH))
    assert "the shape pairs of 2 of 2 racks does not fit" in str(error)
    error = six.refusal(chosen_request("all-to-all", 6, (), 100.0, WISH))
    assert re.search(r"; ask for \d racks", str(error))


def test_wrong_choices(six):
    with pytest.raises(WrongRequest, match="9 racks are asked for, and the network has 6"):
        six.admit(chosen_request("ring", 9, (), 1.0, WISH))
    with pytest.raises(WrongRequest, match="h11 and h12 are in rack r1: name each rack once"):
        six.admit(chosen_request("pairs", 2, ("h11", "h12"), 1.0, WISH))
    with pytest.raises(UnknownName, match="r9"):
        six.admit(chosen_request("pairs", 2, ("r1", "r9"), 1.0, WISH))
    with pytest.raises(AdmissionError, match="4 racks of 2 are asked for: name more racks"):
        chosen_request("pairs", 4, ("r1", "r2"), 1.0, WISH)
    with pytest.raises(AdmissionError, match="rack r1 is named twice"):
        chosen_request("pairs", 2, ("r1", "r2", "r1"), 1.0, WISH)


# --- state ----------------------------------------------------------------------------------------


@pytest.fixture
def ring(shaped):
    """The ring's reservations, active."""
    shaped.admit(pattern_request("ring", FOUR, 50.0, WISH))
    for one in shaped.book:
        shaped.book.place(one.booked, 100)
        shaped.book.transition(one.id, State.ACTIVE)
    return shaped


def now(shaped):
    (shape,) = shapes_among(shaped.fabric, shaped.book)
    return shape


def test_ready_until_a_pair_is_lost(ring):
    assert (now(ring).state, now(ring).reason, now(ring).to_do) == (ShapeState.READY, "", "")
    (lost,) = (one.id for one in ring.book if (one.src, one.dst) == ("r2", "r3"))
    ring.book.transition(lost, State.FAILED, "no light at r3")
    shape = now(ring)
    assert shape.state is ShapeState.DEGRADED
    assert shape.reason == "r2 to r3 is failed (no light at r3)"
    assert shape.to_do.startswith("release the shape and ask for it again; until then")
    for one in ring.book:
        if one.id != lost:
            ring.book.transition(one.id, State.FAILED, "it is dark")
    assert now(ring).state is ShapeState.FAILED
    assert "r1 to r2 is failed" in now(ring).reason


def test_degraded_while_a_pair_gets_another_path(ring):
    one = next(iter(ring.book))
    members = [replace(r, booked=None) if r.id == one.id else r for r in ring.book]
    shape = shape_of(ring.fabric, members)
    assert shape.state is ShapeState.DEGRADED
    assert "gets another path" in shape.reason
    assert (shape.instead, shape.to_do[:4]) == ((), "wait")


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([State.ACTIVE, State.ACTIVE, State.ACTIVE, State.ACTIVATING], ShapeState.ACTIVATING),
        ([State.SCHEDULED] * 4, ShapeState.SCHEDULED),
        ([State.HELD] * 4, ShapeState.HELD),
        ([State.HELD] * 3 + [State.COMMITTED], ShapeState.HELD),
        ([State.ACTIVE] * 3 + [State.RELEASED], ShapeState.DEGRADED),
        ([State.RELEASING] * 4, ShapeState.OVER),
        ([State.EXPIRED] * 3 + [State.FAILED], ShapeState.OVER),
        ([State.FAILED, State.PREEMPTED] * 2, ShapeState.FAILED),
    ],
)
def test_the_state_follows_from_those_of_its_reservations(ring, states, expected):
    members = [replace(one, state=state) for one, state in zip(ring.book, states, strict=True)]
    assert shape_of(ring.fabric, members).state is expected


def lose(shaped, *ends):
    for one in shaped.book:
        if (one.src, one.dst) in ends:
            shaped.book.transition(one.id, State.FAILED, "no light")


def test_the_same_racks_are_offered_if_the_shape_fits_again(ring):
    lose(ring, ("r2", "r3"))
    shape = ring.remedied()
    assert shape.instead == FOUR
    assert shape.to_do.startswith("release the shape and ask for it again: the same racks fit now;")


def block(shaped, rack):
    """Take the ports of a rack out of use."""
    ports = shaped.fabric.ports_of(shaped.fabric.rack_by_name[rack].id)
    blocked = shaped.limits.blocked | {port.id for port in ports}
    shaped.limits = replace(shaped.limits, blocked=blocked)


def test_racks_are_offered_only_if_they_fit(ring):
    lose(ring, ("r2", "r3"))
    block(ring, "r2")
    shape = ring.remedied()
    assert shape.instead == ("r1", "r3", "r4")
    assert shape.to_do.startswith("release the shape and ask for it again, without r2; until then")
    block(ring, "r3")
    shape = ring.remedied()
    assert shape.instead == ()
    assert "neither its racks nor a part of its racks were found to fit now" in shape.to_do


def test_the_offer_that_was_made_is_admitted_after_the_release(ring):
    lose(ring, ("r2", "r3"))
    block(ring, "r2")
    shape = ring.remedied()
    for one in shape.edges:
        ring.book.remove(one.id)
    assert ring.admit(pattern_request("ring", shape.instead, 50.0, WISH)).racks == shape.instead


def test_a_torus_is_not_offered_without_a_rack(shaped):
    shaped.admit(pattern_request("torus:2x2", FOUR, 50.0, WISH))
    for one in shaped.book:
        shaped.book.transition(one.id, State.FAILED)
    shaped.add(ReservationRequest("r1", "r2", 100.0, service=ServiceClass.GUARANTEED))
    shape = shaped.remedied()
    assert (shape.state, shape.instead) == (ShapeState.FAILED, ())


def test_another_group_is_no_shape(shaped):
    (one,) = shaped.add(ReservationRequest("r1", "r2", 1.0), group="g")
    assert shapes_among(shaped.fabric, [one]) == []
    with pytest.raises(UnknownName, match="group g is no shape"):
        shape_of(shaped.fabric, [one])
