"""Commands that request circuits, with the real REST API over HTTP."""

import json
import re
import time
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from apps.cli.planning import _diverted
from hydra.errors import DeviceUnavailable, PlanError
from hydra.lifecycle import ReservationState as State
from hydra.service import CircuitShares
from tests.waiting import once


def settled_soon(service, state, reason=""):
    """As soon as there is a reservation, bring it to ``state``."""
    return once(service.reservations, lambda: service.settle("v0", state, reason))


def test_reserve_and_release(call, service):
    result = call("reserve", "r1", "h21", "--mbps", "30", "--duration", "60", "--json")
    assert result.exit_code == 0
    reservation = json.loads(result.stdout)
    assert (reservation["bandwidth_mbps"], reservation["duration_s"]) == (30, 60)
    assert reservation["state"] == "activating"
    listed = call("list").stdout
    assert listed == call("reservations").stdout
    assert re.search(r"30\.0 │ +38\.5 │ +│ activating", listed), "of back nothing is known"
    document = json.loads(call("list", "--json").stdout)
    assert document["reservations"] == [reservation]
    assert [one["there_mbps"] for one in document["deliveries"]] == [38.5]
    assert "r1 and h21" in call("reservations", reservation["id"]).stdout
    released = call("release", reservation["id"])
    assert released.exit_code == 0
    assert "releasing" in released.stdout
    assert call("release", reservation["id"]).exit_code == 0
    assert reservation["id"] in call("list").stdout, "it is being released"
    service.settle(reservation["id"], State.RELEASED)
    listed = call("list").stdout
    assert reservation["id"] not in listed
    assert "1 finished reservation left out (--all lists them)" in listed
    assert reservation["id"] in call("list", "--all").stdout
    assert len(json.loads(call("list", "--json").stdout)["reservations"]) == 1


def test_a_reservation_by_the_hour(call, service):
    result = call("reserve", "r1", "h21", "--mbps", "30", "--duration", "1h30m", "--json")
    assert json.loads(result.stdout)["duration_s"] == 5400


def test_reserve_waits_until_it_is_active(call, service):
    with settled_soon(service, State.ACTIVE):
        result = call("reserve", "r1", "r2", "--mbps", "30", "--wait")
    assert result.exit_code == 0
    assert "r1 =p1= r2, VLAN 100" in result.stdout
    assert re.search(r"^end +when released$", result.stdout, re.MULTILINE)
    assert "when released" in call("reservations").stdout


def test_reserve_waits_and_tells_of_failure(call, service):
    with settled_soon(service, State.FAILED, "plane p1 is down"):
        result = call("reserve", "r1", "r2", "--mbps", "30", "--wait")
    assert result.exit_code == 1
    assert "is failed, not active: plane p1 is down" in result.stderr


@pytest.mark.parametrize(
    ("src", "dst", "rate", "words"),
    [
        ("r1", "r9", "10", "r9"),
        ("r1", "r2", "1000", "ask for at most 100"),
        ("r1", "r1", "10", "needs no circuit"),
    ],
)
def test_refused_reservations(call, service, src, dst, rate, words):
    result = call("reserve", src, dst, "--mbps", rate)
    assert result.exit_code == 1
    assert words in result.stderr
    assert service.reservations() == []


def test_a_device_that_is_down_is_named(call, service):
    service.fails_with = DeviceUnavailable("p1", "connection refused")
    result = call("reserve", "r1", "r2", "--mbps", "1")
    assert result.exit_code == 1
    assert "p1: connection refused" in result.stderr


@pytest.mark.parametrize("rate", ["0", "-5", "nan", "inf", "fast", "1e999"])
def test_rates_that_are_none(call, service, rate):
    result = call("reserve", "r1", "r2", f"--mbps={rate}")
    assert result.exit_code == 2
    assert "--mbps" in result.stderr
    assert service.reservations() == []


def test_a_rate_is_required(call):
    assert call("reserve", "r1", "r2").exit_code == 2


def test_plan_sends_what_was_asked_for(call, service):
    result = call("plan", "--demand", "r1:r2=80", "--demand", "r2:r1=1.5", "--plane", "p2")
    assert result.exit_code == 0
    assert "gains 70 Mb/s" in result.stdout
    assert "75.0 %, of at most 87.5 % in any plan" in result.stdout
    assert "r1 =p1= r3 =p2= r2" in result.stdout
    (request,) = service.plan_requests
    wanted = np.zeros((4, 4))
    wanted[0, 1], wanted[1, 0] = 80, 1.5
    np.testing.assert_array_equal(request.demand, wanted)
    assert request.planes == {1}
    assert request.racks is None
    assert request.algorithm is None
    assert request.only_if_it_pays is False


def test_plan_without_demand_uses_the_measured_one(call, service):
    document = json.loads(call("plan", "--json", "--only-if-it-pays").stdout)
    assert document["rules"] == 8
    (request,) = service.plan_requests
    assert request.demand is None
    assert request.only_if_it_pays is True


@pytest.mark.parametrize("demand", ["r1-r2=5", "r1:r2", "r1:r2=", "r1:r2=-1", "r1:r2=nan", ":=1"])
def test_demands_that_are_none(call, service, demand):
    result = call("plan", "--demand", demand)
    assert result.exit_code == 2
    assert "--demand" in result.stderr
    assert service.plan_requests == []


def test_all_wrong_names_are_listed(call):
    result = call("plan", "--demand", "r1:r9=5", "--demand", "r8:r2=5")
    assert result.exit_code == 1
    assert "/demand/0/dst: no rack 'r9'" in result.stderr
    assert "/demand/1/src: no rack 'r8'" in result.stderr


def test_what_is_at_risk_is_told_before_anything_is_done(call, service):
    assert call("plan", "--demand", "r1:r2=80").stderr == ""
    service.away = ["vswitch h42 is not connected"]
    words = "Warning: at risk: vswitch h42 is not connected\n"
    assert call("plan", "--demand", "r1:r2=80").stderr == words
    assert call("reserve", "r1", "r2", "--mbps", "30", "--dry-run").stderr == words
    assert list(service.reservations()) == []
    reserved = call("reserve", "r1", "r2", "--mbps", "30")
    assert (reserved.exit_code, reserved.stderr) == (0, words)
    assert len(service.reservations()) == 1
    again = ("--start", "2099-01-01T02:00Z", "--duration", "60", "--every", "86400", "--times", "2")
    assert call("reserve", "r1", "r2", "--mbps", "30", *again).stderr == words


def test_no_plan(call, service):
    service.fails_with = PlanError("no optical port is free at r1")
    result = call("plan")
    assert result.exit_code == 1
    assert "no optical port is free at r1" in result.stderr


def test_reconfigure(call, service):
    result = call("reconfigure", "--demand", "r1:r2=80", "--algorithm", "hydra-bfs")
    assert result.exit_code == 0
    assert "queued" in result.stdout
    (request,) = service.plan_requests
    assert request.algorithm == "hydra-bfs"
    assert json.loads(call("reconfigure", "--json").stdout)["trigger"] == "operator"


def test_a_later_start_is_scheduled(call):
    span = ["--start", "2033-05-18T03:33:20Z", "--end", "2033-05-18T04:33:20+00:00"]
    result = call("reserve", "r1", "r2", "--mbps", "30", "--json", "--wait", *span)
    assert result.exit_code == 0, result.output
    reservation = json.loads(result.stdout)
    assert reservation["state"] == "scheduled"
    assert (reservation["start_unix_s"], reservation["duration_s"]) == (2e9, 3600.0)
    assert call("release", "v0", "--wait").exit_code == 0


def test_hold_and_commit(call):
    held = call("reserve", "r1", "r2", "--mbps", "30", "--hold", "60", "--json", "--wait")
    assert json.loads(held.stdout)["state"] == "held"
    assert json.loads(call("commit", "v0", "--json").stdout)["state"] == "activating"


def test_what_no_circuit_carries_is_told_by_its_parts(call, service):
    service.divides = True
    wanted = ("reserve", "r1", "r2", "--mbps", "150")
    words = "h11 to r2, 75.0 Mb/s: r1 =p1= r2, not up; h12 to r2, 75.0 Mb/s: r1 =p2= r2, not up"
    assert words in " ".join(call(*wanted, "--dry-run").stdout.split())
    told = " ".join(call(*wanted).stdout.split())
    assert words in told
    assert "r1 and r2" in told
    assert "v0.0" in call("list").stdout
    assert words in " ".join(call("reservations", "v0").stdout.split())


def test_a_refusal_is_printed_as_json_with_its_alternatives(call, service):
    call("reserve", "r1", "r2", "--mbps", "80", "--duration", "60")
    refused = call("reserve", "r1", "r2", "--mbps", "40", "--json")
    assert refused.exit_code == 1
    assert "40 Mb/s between r1 and r2 is too much" in refused.stderr
    problem = json.loads(refused.stdout)
    assert problem["type"] == "/problems/admission-refused"
    assert problem["alternatives"][0] == {"bandwidth_mbps": 20}
    assert call("reserve", "r1", "r2", "--mbps", "40").stdout == ""
    ring = ("shape", "reserve", "ring", "r1", "r2", "r3", "--mbps", "4000", "--json")
    assert json.loads(call(*ring).stdout)["status"] == 409


def test_a_dry_run_reserves_nothing(call, service):
    span = ("--start", "2033-05-18T03:33:20Z", "--end", "2033-05-18T04:33:20Z")
    result = call("reserve", "r1", "r2", "--mbps", "30", "--dry-run", *span)
    assert re.search(r"^start +2033-05-18 .*\nend +2033-05-18 ", result.stdout, re.MULTILINE)
    assert "r1 =p1= r2" in result.stdout
    assert "To connect" in result.stdout
    assert service.reservations() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--start", "tomorrow"), "is no time: write 18:00"),
        (("--duration", "5", "--end", "2033-05-18T03:33:20Z"), "give either"),
    ],
)
def test_times_that_are_none(call, service, arguments, words):
    result = call("reserve", "r1", "r2", "--mbps", "30", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert service.reservations() == []


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("option", ["--start", "--end"])
def test_a_local_time_that_clocks_leave_out_is_refused(call, service, berlin, option):
    result = call("reserve", "r1", "r2", "--mbps", "30", option, "2099-03-29T02:30")
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "there is no 2099-03-29T02:30: clocks are put forward then" in said
    assert "give 2099-03-29T03:30:00" in said
    assert service.reservations() == []


def test_of_a_local_time_that_comes_twice_it_is_told_which_one_was_taken(call, service, berlin):
    span = ("--start", "2099-10-25T02:30", "--duration", "60")
    result = call("reserve", "r1", "r2", "--mbps", "30", *span)
    assert result.exit_code == 0, result.output
    first = datetime.fromisoformat("2099-10-25T02:30:00+02:00")
    assert "2099-10-25T02:30 occurs twice" in result.stderr
    assert f"taking the first, {first.isoformat()}" in result.stderr
    assert [one.starts_unix_s for one in service.reservations()] == [first.timestamp()]
    span = ("--start", "2099-10-25T02:30+01:00", "--duration", "60")
    assert call("reserve", "r1", "r3", "--mbps", "30", *span).stderr == ""
    span = ("--start", "2099-10-25T03:30", "--duration", "60")
    assert call("reserve", "r1", "r3", "--mbps", "30", *span).stderr == ""


def test_less_will_do(call):
    assert call("reserve", "r1", "r2", "--mbps", "80").exit_code == 0
    dry = call("reserve", "r1", "r2", "--mbps", "80", "--at-least", "10", "--dry-run")
    assert "20.0 Mb/s in each direction" in dry.stdout
    made = call("reserve", "r1", "r2", "--mbps", "80", "--at-least", "10")
    assert "20.0 Mb/s in each direction (asked for: 10.0 to 80.0)" in made.stdout
    refused = call("reserve", "r1", "r2", "--mbps", "80", "--at-least", "90")
    assert refused.exit_code == 1
    assert "minimum_mbps 90 is more than bandwidth_mbps 80" in refused.stderr


def test_recurring_times(call, service):
    common = ("reserve", "r1", "r2", "--mbps", "60", "--start", "2030-01-01T02:00Z")
    made = call(*common, "--duration", "3600", "--every", "86400", "--times", "3")
    assert made.exit_code == 0
    assert made.stdout.count("scheduled") == 3
    starts = [one.starts_unix_s for one in service.reservations()]
    assert [later - starts[0] for later in starts] == [0, 86400, 172800]
    clash = call("reserve", "r1", "r2", "--mbps", "60", "--start", "2030-01-02T02:30Z")
    assert clash.exit_code == 1
    assert call(*common, "--every", "86400").exit_code == 2
    endless = call(*common, "--every", "86400", "--times", "2")
    assert "until released" in endless.stderr


def test_priority_makes_others_give_way(call, service):
    call("reserve", "r1", "r2", "--mbps", "80")
    made = call("reserve", "r1", "r2", "--mbps", "60", "--priority", "2")
    assert made.exit_code == 0
    assert "scheduled" in made.stdout
    assert "gives way" in call("reservations", "v0").stdout


def test_a_purpose_is_shown_where_there_is_one(call, service):
    call("reserve", "r1", "r2", "--mbps", "1", "--purpose", "job 42")
    call("reserve", "r1", "r2", "--mbps", "1")
    shown, without = (call("reservations", one).stdout for one in ("v0", "v1"))
    assert "job 42" in shown
    assert "purpose" not in without


def test_a_class_of_service_and_what_it_gets(call, service):
    result = call("reserve", "r1", "r2", "--mbps", "30", "--service", "guaranteed", "--json")
    assert json.loads(result.stdout)["service"] == "guaranteed"
    shown = call("reservations", "v0").stdout
    assert "guaranteed" in shown
    assert "38.5 Mb/s there, not known back; no rate limit at h12" in shown
    assert "are exclusive to v0" in call("reserve", "r1", "r2", "--mbps", "1").stderr


def test_a_reservation_is_modified(call, service):
    call("reserve", "h11", "r2", "--mbps", "30")
    assert "60.0 Mb/s" in call("modify", "v0", "--mbps", "60", "--from", "h12").stdout
    refused = call("modify", "v0", "--to", "r3")
    assert refused.exit_code == 1
    assert "hitless modification not possible" in refused.stderr
    assert call("modify", "v0").exit_code == 2


@pytest.mark.parametrize(
    ("diverted", "courses", "words"),
    [
        ([], 1, "none: traffic on circuits stays on circuits meanwhile (1 round of changes)"),
        ([0, 1], 2, "all of them, to the electrical network for a moment (2 rounds of changes)"),
        ([1], 1, "r1-r3, to the electrical network for a moment (1 round of changes)"),
    ],
)
def test_what_leaves_circuits_is_told_in_a_sentence(diverted, courses, words):
    pairs = [{"src": "r1", "dst": "r2"}, {"src": "r1", "dst": "r3"}]
    document = {"affected_pairs": pairs, "courses": courses}
    assert _diverted(document | {"diverted_pairs": [pairs[i] for i in diverted]}) == words


def test_how_it_would_be_cut_is_told(call):
    said = " ".join(call("plan", "--demand", "r1:r2=80").stdout.split())
    words = (
        "at most 90.0 Mb/s of a rack are diverted at a time, 1 pair waits on other pairs' circuits"
    )
    assert f"stages 1; {words}, more than there is room for at r1 (10.0 Mb/s)" in said


def test_its_stages_are_listed_before_and_nothing_changes(call, service):
    listed = call("reconfigure", "--demand", "r1:r2=80", "--stages")
    cells = " ".join(listed.stdout.replace("│", " ").split())
    assert cells.startswith("Stages ")
    assert " 1 1 90.0 1 r1 (10.0 Mb/s) " in cells
    (one,) = json.loads(call("reconfigure", "--stages", "--json").stdout)["stages"]
    assert one["diverted_mbps"] == 90.0
    assert not service.reconfigurations()
    assert call("reconfigure", "--stages", "--wait").exit_code == 2


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        (CircuitShares(0.75, 0.875), "75.0 %, of at most 87.5 % in any plan"),
        (CircuitShares(0.75, None), "75.0 %"),
        (None, "not known: the planner had no time left; ask again"),
    ],
)
def test_a_dry_run_shows_the_share_on_circuits(call, service, monkeypatch, shares, words):
    plan = service.plan
    monkeypatch.setattr(service, "plan", lambda asked: replace(plan(asked), on_circuits=shares))
    shown = call("plan").stdout
    assert re.search(rf"^on circuits +{re.escape(words)}$", shown, re.MULTILINE)
