"""Reservations of a pair with several paths, and reservations made of parts."""

import time
from dataclasses import replace

import pytest

from apps.controller.record.ledger import Ledger
from hydra.errors import (
    AdmissionError,
    Changed,
    LifecycleError,
    NotHitless,
)
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import ReservationRequest, RetryKey
from tests.unit.core.fabrics import (
    parallel_paths,
    small_fabric,
    state_of,
)

from .stage import Stage

WIDE = small_fabric(racks=4, planes=2)
FIRST, SECOND = parallel_paths(WIDE)
ONE = ReservationRequest("h11", "h21", 90.0)
OTHER = ReservationRequest("h12", "h22", 90.0)


@pytest.fixture
def wide(journal):
    return Stage(journal, WIDE)


def test_server_pairs_of_two_racks_come_up_on_circuits_of_their_own_and_go_one_by_one(wide):
    one = wide.reservations.reserve(ONE)
    wide.conduct()
    preview = wide.reservations.preview(OTHER)
    assert (preview.connect, preview.disconnect) == (set(SECOND.circuits), set())
    other = wide.reservations.reserve(OTHER)
    wide.conduct()
    both = [wide.ledger.bookings.get(reservation.id) for reservation in (one, other)]
    assert [reservation.state for reservation in both] == [State.ACTIVE] * 2
    assert [reservation.path for reservation in both] == [FIRST, SECOND]
    assert wide.ledger.network.state.topology.paths == (FIRST, SECOND)
    wide.reservations.release(one.id)
    wide.conduct()
    assert wide.ledger.bookings.get(one.id).state is State.RELEASED
    assert wide.ledger.network.state.topology.paths == (SECOND,)
    assert wide.ledger.bookings.get(other.id) == both[1]
    wide.reservations.release(other.id)
    wide.conduct()
    assert wide.ledger.network.state.topology.paths == ()
    assert wide.ledger.bookings.leaving() == ()


def test_asked_for_together_they_come_up_in_one_change(wide):
    group = wide.reservations.reserve_all([ONE, OTHER], all_or_nothing=True)
    wide.conduct()
    states = [wide.ledger.bookings.get(one.id).state for one in group.admitted]
    assert states == [State.ACTIVE] * 2
    assert len(wide.ledger.log.reconfigurations()) == 1


def test_of_a_pair_s_circuits_one_fails_and_the_other_stays(wide):
    group = wide.reservations.reserve_all([ONE, OTHER], all_or_nothing=True).admitted
    wide.conduct()
    wide.blocked = frozenset(FIRST.circuits[0].ends)
    wide.ledger.network.settle(
        wide.planning.without_circuits(wide.ledger.network.state, FIRST.circuits)
    )
    wide.placement.restore()
    lost, kept = (wide.ledger.bookings.get(one.id) for one in group)
    assert (lost.state, kept.state) == (State.FAILED, State.ACTIVE)
    assert "no other path" in lost.reason
    assert wide.ledger.network.state.topology.paths == (SECOND,)


def test_a_pair_whose_circuit_was_asked_for_by_itself_keeps_that_and_no_other(wide):
    wide.ledger.network.settle(state_of(WIDE, NetworkState(), FIRST))
    wide.ledger.reservations.keep_standing()
    group = wide.reservations.reserve_all([ONE, OTHER], all_or_nothing=True).admitted
    wide.conduct()
    by_path = {wide.ledger.bookings.get(one.id).path: one.id for one in group}
    wide.reservations.release(by_path[SECOND])
    wide.conduct()
    assert wide.ledger.network.state.topology.paths == (FIRST,)
    wide.reservations.release(by_path[FIRST])
    wide.conduct()
    assert wide.ledger.network.state.topology.paths == (FIRST,)


RACKS = ReservationRequest("r1", "r2", 150.0)


def test_what_no_circuit_carries_is_one_reservation_of_parts(wide):
    admitted = wide.reservations.reserve(RACKS)
    assert (admitted.src, admitted.dst, admitted.bandwidth_mbps) == ("r1", "r2", 150.0)
    assert wide.reservations.reservation(admitted.id) == admitted
    wide.conduct()
    assert len(wide.ledger.log.reconfigurations()) == 1
    up = wide.reservations.reservation(admitted.id)
    assert up.state is State.ACTIVE
    assert [(one.src, one.dst, one.bandwidth_mbps, one.path) for one in up.parts] == [
        ("h11", "r2", 75.0, FIRST),
        ("h12", "r2", 75.0, SECOND),
    ]
    with pytest.raises(LifecycleError, match=f"is a part of reservation {up.id}: name {up.id}"):
        wide.reservations.release(up.parts[0].id)
    with pytest.raises(NotHitless, match="parts of a bundle are promised separately"):
        wide.reservations.modify(up.id, Modification(10.0))
    with pytest.raises(Changed):
        wide.reservations.release(up.id, admitted)
    again = Ledger(fabric=WIDE, journal=wide.journal)
    again.load()
    assert again.bookings.parts(up.id) == up.parts
    wide.reservations.release(up.id, up)
    wide.conduct()
    assert wide.reservations.reservation(up.id).state is State.RELEASED
    assert wide.ledger.network.state.topology.paths == ()
    with pytest.raises(LifecycleError):
        wide.reservations.release(up.id)


def test_a_repeated_request_is_given_the_same_bundle(wide):
    request = replace(RACKS, retry=RetryKey("k", "digest"))
    one = wide.reservations.reserve(request)
    assert wide.reservations.reserve(request) == one
    assert len(wide.ledger.bookings.all()) == 2


def test_a_held_bundle_is_committed_whole(wide):
    held = wide.reservations.reserve(replace(RACKS, hold_s=60.0))
    assert held.state is State.HELD
    assert wide.reservations.commit(held.id).state is State.ACTIVATING
    wide.conduct()
    assert wide.reservations.reservation(held.id).state is State.ACTIVE
    with pytest.raises(LifecycleError):
        wide.reservations.commit(held.id)


def test_a_preview_of_a_bundle_has_all_of_its_circuits_and_leaves_nothing(wide):
    before = wide.told()
    for start_unix_s in (None, time.time() + 1000):
        preview = wide.reservations.preview(replace(RACKS, start_unix_s=start_unix_s))
        assert preview.connect == {*FIRST.circuits, *SECOND.circuits}
        assert preview.reservation.bandwidth_mbps == 150.0
    assert wide.told() == before


@pytest.mark.parametrize(
    ("request_of", "words", "fitting"),
    [
        (("h11", "h21", 150.0), "a server pair never has more than one circuit", [100.0]),
        (("r1", "r2", 250.0), "for 200 Mb/s, which fit in parts", [200.0, 100.0]),
        (
            ("h11", "r2", 150.0),
            "separate servers fits either: 150 Mb/s is too much for server h11: the uplink carries "
            "100 Mb/s$",
            [100.0],
        ),
    ],
)
def test_what_no_parts_carry_is_refused_and_nothing_is_left_of_them(
    wide, request_of, words, fitting
):
    before = wide.told()
    with pytest.raises(AdmissionError, match=words) as refused:
        wide.reservations.reserve(ReservationRequest(*request_of))
    assert [one.bandwidth_mbps for one in refused.value.alternatives] == fitting
    assert wide.told() == before


def test_a_refused_bundle_names_the_port_that_a_part_lacks(wide):
    theirs = wide.reservations.reserve(ReservationRequest("r1", "r3", 60.0, owner="tina"))
    before = wide.told()
    with pytest.raises(AdmissionError) as refused:
        wide.reservations.reserve(RACKS)
    words = f"is held by {theirs.id} (r1-r3, 60 of 100 Mb/s)"
    assert "no division among separate servers fits either" in str(refused.value)
    assert words in str(refused.value)
    assert theirs.id not in refused.value.in_public
    assert wide.told() == before


def test_where_a_pair_may_have_one_path_there_are_no_bundles(journal):
    stage = Stage(journal, WIDE, paths_per_pair=1)
    with pytest.raises(AdmissionError, match="fastest circuit carries 100 Mb/s"):
        stage.reservations.reserve(RACKS)


def test_a_bundle_of_which_a_circuit_is_lost_has_failed_and_goes_whole(wide):
    one = wide.reservations.reserve(RACKS)
    wide.conduct()
    wide.blocked = frozenset(FIRST.circuits[0].ends)
    wide.ledger.network.settle(
        wide.planning.without_circuits(wide.ledger.network.state, FIRST.circuits)
    )
    wide.placement.restore()
    lost = wide.reservations.reservation(one.id)
    assert lost.state is State.FAILED
    assert "h11-r2: " in lost.reason
    assert [part.state for part in lost.parts] == [State.FAILED, State.ACTIVE]
    wide.reservations.release(one.id)
    wide.conduct()
    assert wide.reservations.reservation(one.id).state is State.RELEASED
    assert wide.ledger.network.state.topology.paths == ()
