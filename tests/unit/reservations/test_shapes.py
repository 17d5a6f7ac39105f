"""Shapes: admitted whole or refused with what would fit, and their state."""

from dataclasses import replace

import pytest

from hydra.errors import AdmissionError, DeviceMissing, QuotaExceeded, UnknownName
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.quotas import Quota
from hydra.reservations.reservation import ReservationRequest, ServiceClass
from hydra.reservations.shape_search import admit_shape
from hydra.reservations.shapes import (
    ShapeState,
    matrix_request,
    pattern_request,
    shape_of,
    shapes_among,
)
from tests.unit.core.fabrics import small_fabric

WISH = ReservationRequest("", "", 0.0)
FOUR = ("r1", "r2", "r3", "r4")


class Shaped:
    """A book that admits shapes, as the controller does, at the time 0."""

    def __init__(self, fabric):
        self.fabric, self.book, self.number = fabric, ReservationBook(fabric), 0
        self.reserved = []
        """The racks of each attempt to reserve."""

    def add(self, *wishes, group=None):
        entered = []
        try:
            for wish in wishes:
                self.number += 1
                entered.append(self.book.add(f"v{self.number}", wish, 0.0, group=group))
        except AdmissionError:
            self._take_back(entered)
            raise
        return entered

    def _take_back(self, entered):
        for one in reversed(entered):
            self.book.remove(one.id)

    def trial(self, requests, most):
        refused, entered = {}, []
        for place, request in enumerate(requests):
            try:
                entered += self.add(request)
            except AdmissionError as error:
                refused[place] = error
                if len(refused) == most:
                    break
        self._take_back(entered)
        return refused

    def reserve(self, requests):
        self.reserved.append([(one.src, one.dst) for one in requests])
        return self.add(*requests, group="s")

    def admit(self, shape):
        admitted = admit_shape(self.fabric, shape, self.reserve, self.trial)
        return shape_of(self.fabric, admitted)

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

    def trial(requests, _most):
        return only_if_the_last_goes_first(requests)

    made = admit_shape(fabric, pattern_request("ring", FOUR, 10.0, WISH), reserve, trial)
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
        admit_shape(shaped.fabric, pattern_request("ring", FOUR, 1.0, WISH), missing, shaped.trial)


def test_names_that_occur_twice():
    with pytest.raises(AdmissionError, match="rack r1 is named twice"):
        pattern_request("ring", ("r1", "r2", "r1"), 1.0, WISH)
    with pytest.raises(AdmissionError, match="the pair r1 and r2 is named twice"):
        matrix_request([("r1", "r2", 1.0), ("r2", "r1", 2.0)], WISH)


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
    assert shape.instead == ("r1", "r3", "r4")
    assert shape.to_do.startswith("release the shape and ask for it again, without r2; until then")
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


def test_a_torus_is_not_offered_without_a_rack(shaped):
    shaped.admit(pattern_request("torus:2x2", FOUR, 50.0, WISH))
    members = [replace(one, state=State.FAILED) for one in shaped.book]
    shape = shape_of(shaped.fabric, members)
    assert (shape.state, shape.instead) == (ShapeState.FAILED, ())


def test_another_group_is_no_shape(shaped):
    (one,) = shaped.add(ReservationRequest("r1", "r2", 1.0), group="g")
    assert shapes_among(shaped.fabric, [one]) == []
    with pytest.raises(UnknownName, match="group g is no shape"):
        shape_of(shaped.fabric, [one])
