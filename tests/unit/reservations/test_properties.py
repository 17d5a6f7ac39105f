"""For any use of a book, its states follow the table and its sums are right."""

import math

from hypothesis import given
from hypothesis import strategies as st

from hydra.errors import AdmissionError, LifecycleError, WrongRequest
from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState
from hydra.reservations.admission import fastest_circuit_mbps
from hydra.reservations.book import ReservationBook
from hydra.reservations.reservation import FINAL_STATES, HOLDING_STATES, ReservationRequest
from tests.unit.core.fabrics import reread

from .test_book import direct_path

NAMES = ["r1", "r2", "r3", "h11", "h12", "h21", "h31"]
adds = st.tuples(
    st.just("add"),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.floats(min_value=0.1, max_value=120, allow_nan=False),
    st.none() | st.floats(min_value=0.1, max_value=100),
)
transitions = st.tuples(
    st.just("transition"),
    st.integers(0, 15),
    st.sampled_from(ReservationState),
    st.none() | st.integers(0, 1),
    st.none() | st.integers(100, 199),
)
operations = st.lists(adds | transitions, max_size=40)


def run(fabric, steps):
    """Plays the steps; yields the book before and after each as dicts by id."""
    book = ReservationBook(fabric)
    for now, (kind, *rest) in enumerate(steps):
        before = {r.id: r for r in book}
        if kind == "add":
            src, dst, bandwidth, duration = rest
            try:
                book.add(
                    f"id{len(book)}",
                    ReservationRequest(src, dst, bandwidth, duration),
                    float(now),
                )
            except (AdmissionError, WrongRequest):
                assert {r.id: r for r in book} == before
        else:
            number, state, plane, vlan = rest
            if (old := before.get(f"id{number}")) is None:
                continue
            path = None if plane is None else direct_path(fabric, *old.pair, plane)
            allowed = state in RESERVATION_TRANSITIONS[old.state]
            try:
                book.transition(old.id, state)
            except LifecycleError:
                assert not allowed
                assert {r.id: r for r in book} == before
            else:
                assert allowed
                if path is not None:
                    book.place(path, vlan)
        yield book, before


@given(steps=operations)
def test_states_only_change_as_the_table_says(fabric, steps):
    for book, before in run(fabric, steps):
        for reservation in book:
            if (old := before.get(reservation.id)) is None:
                assert reservation.state is ReservationState.ACTIVATING
            elif old.state is not reservation.state:
                assert reservation.state in RESERVATION_TRANSITIONS[old.state]
        assert {r.id for r in book.active()} == {r.id for r in book if r.state in HOLDING_STATES}


@given(steps=operations)
def test_pins_hold_what_is_active_and_never_exceed_a_circuit(fabric, steps):
    for book, _ in run(fabric, steps):
        pins = book.pinned()
        assert sorted(i for pin in pins for i in pin.reservations) == sorted(
            r.id for r in book.active()
        )
        assert len({(pin.src, pin.dst, pin.path) for pin in pins}) == len(pins)
        for pin in pins:
            members = [book.get(i) for i in pin.reservations]
            assert math.isclose(pin.bandwidth_mbps, sum(r.bandwidth_mbps for r in members))
            assert pin.bandwidth_mbps <= fastest_circuit_mbps(fabric, pin.src, pin.dst) + 1e-5
            assert {r.path for r in members} <= {pin.path, None}
            assert all(r.pair == (pin.src, pin.dst) for r in members)


@given(steps=operations)
def test_records_survive_json(fabric, steps):
    for book, _ in run(fabric, steps):
        assert list(reread(book, fabric)) == list(book)


@given(steps=operations, keep=st.integers(0, 5))
def test_pruning_never_touches_what_is_not_over(fabric, steps, keep):
    for book, _ in run(fabric, steps):
        held = [r for r in book if r.state not in FINAL_STATES]
        over = [r for r in book if r.state in FINAL_STATES]
        pruned = ReservationBook(fabric, book)
        pruned.prune(keep)
        assert [r for r in pruned if r.state not in FINAL_STATES] == held
        ended = sorted(over, key=lambda r: r.since_unix_s)
        left = ended[max(0, len(over) - keep) :]
        assert [r for r in pruned if r.state in FINAL_STATES] == [r for r in over if r in left]
