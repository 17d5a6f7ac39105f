"""Conditions: fault, start, affected pairs, actions of the controller, next steps."""

from dataclasses import replace

import pytest

from hydra.faults.condition import ConditionKind, over
from hydra.faults.diagnosis import Watch
from hydra.faults.facts import Facts, MissingSwitch, RefusedSwitch, RefusedWorker, TakeoverRisk
from hydra.faults.quarantine import Quarantined
from hydra.faults.server_links import LinkDirection
from hydra.journal import JournalError, JournalTaken
from hydra.lifecycle import ReservationState
from hydra.model import NetworkState, PlaneId, RackId
from hydra.reconfiguration.drift import Drift, DriftKind
from hydra.reconfiguration.readiness import RenumberedPort
from hydra.reservations.book import ReservationBook
from hydra.reservations.reservation import GONE, ReservationRequest, ServiceClass, Transfer
from hydra.roles import Alarm, Severity
from tests.unit.core.fabrics import path_of, small_fabric, state_of

FABRIC = small_fabric(racks=4, planes=2)
PATH = path_of(FABRIC, 0, 1)
STANDING = state_of(FABRIC, NetworkState(), PATH)
(CIRCUIT,) = PATH.circuits
NOW_S = 10_000.0
PAIR = (RackId(0), RackId(1))


@pytest.fixture
def watch():
    return Watch()


def facts(state=STANDING, now_s=NOW_S, **more):
    return Facts(FABRIC, state, now_s, **more)


def failed(now_s=NOW_S - 60, **request):
    book = ReservationBook(FABRIC)
    book.add("v1", ReservationRequest("r1", "r2", 40.0, **request), now_s - 60)
    return book.transition("v1", ReservationState.FAILED, "no other path", now=now_s)


def only(watch, some):
    (one,) = watch.conditions(some)
    return one


def test_nothing_is_wrong(watch):
    assert watch.conditions(facts()) == ()


def test_a_reservation_that_failed_is_listed_with_what_to_do(watch):
    one = only(watch, facts(NetworkState(), reservations=[failed()]))
    assert one.kind is ConditionKind.RESERVATION_FAILED
    assert one.what == "reservation v1 (r1 to r2, 40 Mb/s) has failed: no other path"
    assert (one.since_unix_s, one.pairs, one.reservations) == (NOW_S - 60, (PAIR,), ("v1",))
    assert one.command == "hydra reserve r1 r2 --mbps 40 --dry-run"
    assert one.done == "the traffic goes electrically, without a promise"
    joined = only(watch, facts(reservations=[failed()]))
    assert joined.done == "the traffic has a path of circuits, without a promise"


@pytest.mark.parametrize(
    ("request_", "fitting_mbps", "command"),
    [
        ({}, 40.0, "hydra reserve r1 r2 --mbps 40"),
        ({}, 25.0, "hydra reserve r1 r2 --mbps 40 --at-least 25"),
        ({}, None, "hydra reserve r1 r2 --mbps 40 --dry-run"),
        (
            {"duration_s": 3600.0, "priority": 3, "service": ServiceClass.GUARANTEED},
            40.0,
            "hydra reserve r1 r2 --mbps 40 --end 1970-01-01T03:44:40Z --priority 3 "
            "--service guaranteed",
        ),
        (
            {"start_unix_s": NOW_S + 100, "duration_s": 100.0},
            40.0,
            "hydra reserve r1 r2 --mbps 40 --start 1970-01-01T02:48:20Z --end 1970-01-01T02:50:00Z",
        ),
        (
            {"service": ServiceClass.BEST_EFFORT},
            0.0,
            "hydra reserve r1 r2 --mbps 40 --service best-effort",
        ),
    ],
)
def test_what_to_do_asks_for_what_fits_now(watch, request_, fitting_mbps, command):
    def fitting(some):
        return {} if fitting_mbps is None else {one.id: fitting_mbps for one in some}

    one = only(watch, facts(reservations=[failed(**request_)], fitting=fitting))
    assert one.command == command
    assert "`hydra release v1` if the reservation is not needed" in one.to_do
    assert ("no part of the reservation fits" in one.to_do) == (fitting_mbps is None)
    assert ("25 of 40 Mb/s" in one.to_do) == (fitting_mbps == 25.0)


def test_a_transfer_whose_bytes_do_not_arrive_in_time_is_at_risk(watch):
    book = ReservationBook(FABRIC)
    wish = ReservationRequest("r1", "r2", 0.0, transfer=Transfer(125.0, NOW_S + 100))
    made = book.add("v1", wish, NOW_S)
    assert watch.conditions(facts(reservations=[made])) == ()
    slower = replace(made, bandwidth_mbps=40.0)
    one = only(watch, facts(reservations=[slower]))
    assert one.kind is ConditionKind.TRANSFER_AT_RISK
    assert one.what == "75 MB of reservation v1 (r1 to r2) will not arrive by the deadline"
    assert one.command == "hydra reserve r1 r2 --megabytes 75 --end TIME"
    assert (one.pairs, one.reservations, one.since_unix_s) == ((PAIR,), ("v1",), NOW_S)
    ended = replace(slower, state=ReservationState.EXPIRED)
    assert watch.conditions(facts(reservations=[ended])) == ()


def test_a_failed_transfer_is_asked_for_again_by_its_bytes(watch):
    book = ReservationBook(FABRIC)
    wish = ReservationRequest("r1", "r2", 0.0, transfer=Transfer(125.0, NOW_S + 100))
    book.add("v1", wish, NOW_S - 4)
    lost = book.transition("v1", ReservationState.FAILED, "no other path", now=NOW_S)
    one = only(watch, facts(reservations=[lost]))
    assert one.command == "hydra reserve r1 r2 --megabytes 75 --end 1970-01-01T02:48:20Z"


def test_whoever_failed_has_to_be_told(watch):
    one = replace(failed(), owner="spark")
    found = only(watch, facts(reservations=[one], fitting=lambda _: {"v1": 40.0}))
    assert found.to_do.startswith("as the owner spark, reserve anew")


@pytest.mark.parametrize("gone", [{"src_rack": GONE}, {"src": "h99"}, {"src": "r3"}])
def test_what_nobody_can_ask_for_any_more_is_to_be_released(watch, gone):
    asked = []

    def fitting(some):
        asked.extend(some)
        return {}

    one = only(watch, facts(reservations=[replace(failed(), **gone)], fitting=fitting))
    assert one.command == "hydra release v1"
    assert asked == []


def test_it_is_listed_until_its_time_is_up_or_another_one_was_made(watch):
    ends = failed(duration_s=3600.0)
    assert watch.conditions(facts(reservations=[ends]))
    assert not watch.conditions(facts(now_s=NOW_S + 3600, reservations=[ends]))
    open_end = failed()
    assert watch.conditions(facts(now_s=NOW_S + 80_000, reservations=[open_end]))
    assert not watch.conditions(facts(now_s=NOW_S + 90_000, reservations=[open_end]))
    book = ReservationBook(FABRIC)
    anew = book.add("v2", ReservationRequest("r2", "r1", 20.0), NOW_S)
    assert not watch.conditions(facts(reservations=[open_end, anew]))
    over = replace(anew, state=ReservationState.RELEASED)
    assert not watch.conditions(facts(reservations=[open_end, over])), "it does not come back"
    others = replace(anew, owner="somebody else")
    assert watch.conditions(facts(reservations=[open_end, others]))


def test_a_lost_circuit_is_one_condition_whatever_the_number_of_its_ports(watch):
    entries = [
        Quarantined(end, "carrier lost at r1:o1.1", NOW_S - 5, NOW_S + 55, (PAIR,))
        for end in CIRCUIT.ends
    ]
    lost = replace(failed(), booked=PATH)
    without = NetworkState()
    reservation, ports = watch.conditions(facts(without, quarantine=entries, reservations=[lost]))
    assert reservation.kind is ConditionKind.RESERVATION_FAILED
    assert ports.kind is ConditionKind.PORT_QUARANTINED
    assert ports.what.startswith("carrier lost at r1:o1.1 (r1:")
    assert (len(ports.subjects), ports.pairs, ports.reservations) == (2, (PAIR,), ("v1",))
    assert ports.since_unix_s == NOW_S - 5
    assert "goes electrically" in ports.done
    assert ports.to_do == "repair the devices, and clear the ports"
    ends = [subject.replace(":", " ") for subject in ports.subjects]
    assert ports.command == (
        f"hydra quarantine clear {ends[0]} && hydra quarantine clear {ends[1]}"
    )
    elsewhere = only(watch, facts(quarantine=entries))
    assert elsewhere.pairs == ()
    assert "has other paths" in elsewhere.done
    later = only(watch, facts(without, NOW_S + 60, quarantine=entries))
    assert later.kind is ConditionKind.PORT_ON_TRIAL
    assert later.since_unix_s == NOW_S - 5
    assert "on trial" in later.done
    assert later.to_do == ("repair the devices; clearing the ports ends the trial now")


def test_circuits_on_an_optical_switch_that_is_down_belong_to_its_condition(watch):
    plane = CIRCUIT.plane
    name = FABRIC.planes[plane].name
    active = replace(failed(), state=ReservationState.ACTIVE, booked=PATH)
    one = only(watch, facts(planes_down={plane: f"{name}: refused"}, reservations=[active]))
    assert one.what == f"optical switch {name} can't be commanded: refused"
    assert "present circuits on the device (1) go on" in one.done
    assert (one.pairs, one.reservations) == ((PAIR,), ("v1",))
    other = PlaneId(1 - plane)
    assert only(watch, facts(planes_down={other: "refused"}, reservations=[active])).pairs == ()


def test_a_tor_that_is_down_affects_what_leads_through_its_rack(watch):
    one = only(watch, facts(tors_down={RackId(1): "no answer"}))
    assert (one.kind, one.pairs) == (ConditionKind.TOR_DOWN, (PAIR,))
    assert only(watch, facts(tors_down={RackId(2): "no answer"})).pairs == ()


def test_when_it_was_seen_first_is_remembered_until_it_is_over(watch):
    down = {"planes_down": {PlaneId(0): "refused"}}
    assert only(watch, facts(**down)).since_unix_s == NOW_S
    assert only(watch, facts(now_s=NOW_S + 9, **down)).since_unix_s == NOW_S
    assert not watch.conditions(facts(now_s=NOW_S + 10))
    assert only(watch, facts(now_s=NOW_S + 20, **down)).since_unix_s == NOW_S + 20


def test_switches_that_are_connected_and_do_not_answer_are_a_condition_of_their_own(watch):
    mute = [MissingSwitch("v1", "h1", RackId(0))]
    one = only(watch, facts(switches_mute=mute, stale=["h1"]))
    assert one.kind is ConditionKind.SWITCH_NOT_ANSWERING
    assert one.what == "switch v1 is connected, and not answering"
    assert one.done.startswith("no commands until the switches answer")


def test_switches_that_a_setting_keeps_out_are_named_with_the_remedy(watch):
    why = "the switch speaks OpenFlow 1.0, and not 1.3: set 1.3 on the bridge"
    kept_out = [
        RefusedSwitch("v1", why),
        RefusedSwitch("v2", why),
        RefusedSwitch("10.0.0.3", "TLS"),
    ]
    one, other = watch.conditions(facts(switches_refused=kept_out))
    assert one.kind is other.kind is ConditionKind.SWITCH_REFUSED
    assert (one.subjects, one.what) == (("v1", "v2"), f"v1, v2: {why}")
    assert (other.subjects, other.what) == (("10.0.0.3",), "10.0.0.3: TLS")
    assert over(one.kind, ["v1"]) == "v1 is accepted again"


def test_switches_that_refuse_rules_or_meters_are_told_with_their_words(watch):
    switch, sentence = (
        MissingSwitch("v1", "h1", RackId(0)),
        "h1 refuses the rules of r1 - r2 (full)",
    )
    one = only(watch, facts(rules_refused={switch: sentence}))
    assert (one.kind, one.subjects, one.what) == (ConditionKind.RULES_REFUSED, ("v1",), sentence)
    assert one.pairs == (PAIR,)
    assert one.done.startswith("traffic of h1 is electrical")
    one = only(watch, facts(meters_refused={switch: "no room for a further meter, meter 5"}))
    assert one.kind is ConditionKind.RULES_REFUSED
    assert one.what == "v1 refuses meters (no room for a further meter, meter 5)"
    assert "no limit holds h1 back" in one.done


def test_switches_that_are_away_are_one_condition_and_so_are_their_late_counters(watch):
    away = [MissingSwitch(f"v{n}", f"h{n}", RackId(n % 4)) for n in range(10_240)]
    one = only(watch, facts(switches_away=away, stale=[f"h{n}" for n in range(10_240)]))
    assert one.what == "10,240 switches are not connected: v0, v1, v2, v3, v4 and 10,235 more"
    assert one.pairs == (PAIR,)
    kinds = [c.kind for c in watch.conditions(facts(switches_away=away[1:], stale=["h0"]))]
    assert kinds == [ConditionKind.SWITCH_NOT_CONNECTED, ConditionKind.STALE_COUNTERS]


def test_a_switch_that_is_new_has_the_time_of_some_readings(watch):
    late = {"stale": ["h11"], "patience_s": 3.0}
    assert watch.conditions(facts(**late)) == ()
    assert watch.conditions(facts(now_s=NOW_S + 2, **late)) == ()
    one = only(watch, facts(now_s=NOW_S + 3, **late))
    assert (one.kind, one.since_unix_s) == (ConditionKind.STALE_COUNTERS, NOW_S)


def test_counters_that_are_late_are_told_though_the_clock_is_set_back(watch):
    late = {"stale": ["h11"], "patience_s": 3.0}
    watch.conditions(facts(**late))
    assert only(watch, facts(now_s=NOW_S + 3, **late)).since_unix_s == NOW_S
    set_back_s = NOW_S - 3600
    watch.conditions(facts(now_s=set_back_s, **late))
    assert only(watch, facts(now_s=set_back_s + 3, **late)).since_unix_s == set_back_s


def test_of_many_alike_the_oldest_are_told_apart_and_the_others_counted(watch):
    many = [replace(failed(now_s=NOW_S - n), id=f"v{n}", src=f"h{n}", dst="r2") for n in range(300)]
    found = watch.conditions(facts(reservations=many))
    assert len(found) == 21
    assert found[0].subjects == ("v299",)
    assert found[-1].what.startswith("280 more of the same kind: v279, ")
    assert len(found[-1].reservations) == 280


def test_the_others_have_their_words_too(watch):
    drift = [
        Drift(
            kind=DriftKind.CROSS_CONNECT,
            device="p1",
            subject="1 to 18",
            intended="connected",
            actual="nothing",
        )
    ]
    alarm = Alarm(Severity.MAJOR, 3, "LOS", "no light")
    found = watch.conditions(
        facts(
            unconfirmed=["r3"],
            workers_refused=[RefusedWorker("w2", "w2 speaks"), RefusedWorker("w1", "w1 speaks")],
            takeover_risks=[TakeoverRisk("b", "b is apart"), TakeoverRisk("b", "b differs")],
            dead_uplinks={"h12", "h11"},
            alarms={"p1": [alarm]},
            drift=drift,
            journal_failure=(NOW_S - 7, JournalError("can't write the journal")),
        )
    )
    assert [(one.kind, one.what) for one in found] == [
        (ConditionKind.JOURNAL_FAILED, "can't write the journal"),
        (ConditionKind.UNCONFIRMED, "device r3 is yet to confirm the present state"),
        (ConditionKind.WORKER_REFUSED, "w2 speaks; w1 speaks"),
        (ConditionKind.TAKEOVER_AT_RISK, "b is apart; b differs"),
        (
            ConditionKind.UPLINK_DEAD,
            "2 servers are without an uplink for circuits: h11, h12",
        ),
        (ConditionKind.ALARM, "optical switch p1 complains: major LOS at port 3, no light"),
        (
            ConditionKind.DRIFT,
            "changed by somebody else: p1, 1 to 18: nothing instead of connected",
        ),
    ]
    assert found[0].since_unix_s == NOW_S - 7
    assert all(one.done and one.to_do and one.command for one in found)


def test_a_port_that_is_renumbered_is_told_with_its_numbers_and_its_switch_not_again(watch):
    ports = [RenumberedPort(switch="v-h11", port="optical", old=(2,), now=41, rack=RackId(0))]
    ports += [RenumberedPort(switch="v-h31", port="host", old=(0, 5), now=0, rack=RackId(2))]
    found = only(watch, facts(unconfirmed=["v-h11", "v-h31"], renumbered_ports=ports))
    assert found.kind is ConditionKind.PORT_RENUMBERED
    assert found.subjects == ("v-h11:optical", "v-h31:host")
    assert found.what == (
        "port optical of switch v-h11 has OpenFlow number 41, was 2; "
        "port host of switch v-h31 has OpenFlow number 0, was none or 5"
    )
    assert found.pairs == ((0, 1),)


def test_an_uplink_that_is_dead_in_one_direction_is_told_with_that(watch):
    dead = {"h11": frozenset({LinkDirection.RECEIVING})}
    found = only(watch, facts(dead_uplinks={"h11", "h21"}, one_way_uplinks=dead))
    assert found.subjects == ("h11", "h21")
    assert found.what == (
        "2 servers are without an uplink for circuits: "
        "h11 (incoming traffic is lost in spite of carrier), h21"
    )


def test_what_to_do_about_the_journal_depends_on_what_is_wrong_with_it(watch):
    full, taken = JournalError("the disk is full"), JournalTaken("another controller has it")
    assert only(watch, facts(journal_failure=(NOW_S, full))).command == "df -h"
    found = only(watch, facts(journal_failure=(NOW_S, taken)))
    assert "disk" not in found.to_do
    assert found.command == "pgrep -af hydra"


def test_servers_that_send_what_is_not_theirs_are_named():
    one = only(Watch(), facts(sending_foreign={"h12", "h11"}))
    assert (one.kind, one.subjects) == (ConditionKind.FOREIGN_FRAMES, ("h11", "h12"))
    assert "guests" in one.to_do
