"""Reservations while devices are down or out of reach, or refuse rules."""

import time
from dataclasses import replace

import pytest

from hydra.errors import (
    AdmissionError,
    DeviceMissing,
    NoRoom,
    WrongRequest,
)
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState, RackId
from hydra.reservations.reservation import ReservationRequest
from tests.unit.core.fabrics import (
    path_of,
    small_fabric,
)

from .stage import FABRIC, TO_R3, Stage

DOWN = "OCS p2 is down (10.1.2.3:3083: connection refused)"


@pytest.fixture
def without_p2(journal):
    """r1 and r2 have another reservation of 60 of 100 Mb/s, and one of three optical switches is
    down; r1's port on the last switch is in quarantine.
    """
    stage = Stage(journal, small_fabric(racks=4, planes=3))
    out = {port.id for port in stage.fabric.ports_of(RackId(0)) if port.plane == 2}
    down = {port.id for port in stage.fabric.ports if port.plane == 1}
    stage.blocked, stage.blocked_with_all_planes = frozenset(out | down), frozenset(out)
    stage.reservations.reserve(ReservationRequest("r1", "r2", 60.0, owner="tina"))
    stage.reach.down_planes = lambda: [DOWN]
    return stage


@pytest.mark.parametrize("ask", ["reserve", "preview"])
def test_a_refusal_beside_a_switch_that_is_down_is_as_discreet_and_helpful_as_any(without_p2, ask):
    (theirs,) = without_p2.ledger.bookings.all()
    with pytest.raises(DeviceMissing) as refused:
        getattr(without_p2.reservations, ask)(ReservationRequest("r1", "r3", 50.0))
    assert DOWN in str(refused.value)
    assert theirs.id in str(refused.value)
    assert [one.bandwidth_mbps for one in refused.value.alternatives] == [40.0]
    told = refused.value.discreet()
    assert isinstance(told, DeviceMissing)
    assert told.alternatives == refused.value.alternatives
    assert str(told) == (
        "optical switches are down: a path with 50 Mb/s between r1 and r3 does not fit beside the "
        "promised reservations and ports out of use; ask for at most 40 Mb/s"
    )


def test_a_switch_that_is_down_is_not_blamed_where_it_would_give_no_room(without_p2):
    """A pair has one path, and r1's only port on that switch is in quarantine."""
    told = without_p2.told()
    request = ReservationRequest("r1", "r3", 50.0)
    with pytest.raises(NoRoom):
        without_p2.reservations.reserve(ReservationRequest("r1", "r2", 50.0))
    with pytest.raises(DeviceMissing, match="OCS p2 is down"):
        without_p2.reservations.reserve(request)
    without_p2.blocked_with_all_planes |= {p.id for p in without_p2.fabric.ports_of(RackId(0))}
    with pytest.raises(NoRoom) as refused:
        without_p2.reservations.reserve(request)
    assert "OCS" not in str(refused.value)
    assert without_p2.told() == told


@pytest.mark.parametrize(
    ("request_of", "kind"),
    [
        (lambda: ReservationRequest("r1", "r2", 5000.0), AdmissionError),
        (lambda: ReservationRequest("r1", "r2", 1.0, end_unix_s=time.time() - 1), WrongRequest),
    ],
    ids=["beyond any circuit", "in the past"],
)
def test_a_switch_that_is_down_is_not_blamed_for_what_never_fits(without_p2, request_of, kind):
    with pytest.raises(kind) as refused:
        without_p2.reservations.reserve(request_of())
    assert type(refused.value) is kind


def test_those_that_fit_are_admitted_while_an_optical_switch_is_down(without_p2):
    matrix = [ReservationRequest("r3", "r4", 80.0), ReservationRequest("r1", "r3", 50.0)]
    outcome = without_p2.reservations.reserve_all(matrix, all_or_nothing=False)
    assert [(one.src, one.dst) for one in outcome.admitted] == [("r3", "r4")]
    (refused,) = outcome.refused
    assert isinstance(refused.error, DeviceMissing)
    with pytest.raises(DeviceMissing, match="no entry fits: OCS p2 is down"):
        without_p2.reservations.reserve_all(matrix[1:], all_or_nothing=False)


def test_those_that_fit_are_admitted_while_a_switch_of_another_is_away(stage):
    away = FABRIC.server_by_name["h41"].vswitch.datapath_id
    ready = stage.reach.ready_switches()
    stage.reach.ready_switches = lambda: ready - {away}
    stage.reach.why_not_ready = lambda _switch: "switch vs-h41 is not connected"
    matrix = [ReservationRequest("h11", "h21", 9.0), ReservationRequest("h12", "h41", 9.0)]
    outcome = stage.reservations.reserve_all(matrix, all_or_nothing=False)
    assert [(one.src, one.dst) for one in outcome.admitted] == [("h11", "h21")]
    (refused,) = outcome.refused
    assert str(refused.error) == "h41: switch vs-h41 is not connected"
    assert "vs-h41" not in refused.error.in_public


def test_a_reservation_waits_for_a_rack_that_is_about_to_be_in_reach(journal):
    """Its circuit is dead, and until its ToR has its rules no port of the rack is free."""
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    reservation = stage.reservations.reserve(TO_R3)
    stage.conduct()
    (dead,) = stage.ledger.bookings.get(reservation.id).booked.circuits
    stage.ledger.network.settle(NetworkState())
    rack = [port.id for port in stage.fabric.ports if port.rack == RackId(0)]
    stage.blocked, stage.awaited = frozenset(rack), frozenset({RackId(0)})
    stage.placement.restore()
    assert stage.ledger.bookings.get(reservation.id).state is State.ACTIVE
    assert stage.placement.awaits_racks
    stage.blocked, stage.awaited = frozenset(dead.ends), frozenset()
    stage.placement.restore()
    (circuit,) = stage.ledger.bookings.get(reservation.id).path.circuits
    assert circuit.plane != dead.plane
    assert not stage.placement.awaits_racks


REFUSAL = "h11 refuses the rules of r1 - r3 (no room for another rule, table 5 (circuits))"


def test_a_reservation_whose_rules_a_switch_refuses_fails_and_leaves_no_path(stage):
    stage.ledger.network.settle(NetworkState())
    stage.refusal = REFUSAL
    reservation = stage.reservations.reserve(replace(TO_R3, src="r1"))
    stage.conduct()
    failed = stage.ledger.bookings.get(reservation.id)
    assert (failed.state, failed.reason) == (State.FAILED, REFUSAL)
    stage.care.keep_time()
    assert path_of(FABRIC, 0, 2) not in stage.ledger.network.state.topology.paths


def test_an_active_reservation_fails_where_a_switch_comes_to_refuse_its_rules(stage):
    """The switch has connected anew, with less room than before."""
    stage.ledger.network.settle(NetworkState())
    requests = (replace(TO_R3, src="r1"), replace(TO_R3, src="r2", dst="r4"))
    refused, other = map(stage.reservations.reserve, requests)
    stage.conduct()
    assert stage.ledger.bookings.get(refused.id).state is State.ACTIVE
    stage.refusal = REFUSAL
    stage.care.keep_time()
    failed = stage.ledger.bookings.get(refused.id)
    assert (failed.state, failed.reason) == (State.FAILED, REFUSAL)
    assert stage.ledger.bookings.get(other.id).state is State.ACTIVE
    stage.care.keep_time()
    assert path_of(FABRIC, 0, 2) not in stage.ledger.network.state.topology.paths
