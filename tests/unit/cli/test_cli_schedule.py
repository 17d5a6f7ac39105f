"""``hydra schedule`` against the real REST API over HTTP."""

import json

from hydra.errors import PlanError
from hydra.model import NetworkState
from hydra.sharing.slots import Week, WeekSlot
from mininet_scenarios import plain_http
from tests.unit.core.fabrics import path_of, state_of


def week_of(fabric):
    states = [state_of(fabric, NetworkState(), path_of(fabric, 0, other)) for other in (1, 2)]
    return Week(tuple(WeekSlot(state, 2.5) for state in states), (), 0.125, 80.0, 0.0, 120.0, 100.0)


def test_there_is_no_schedule(call):
    shown = call("schedule").stdout
    assert "shortest slot  1 s" in shown
    assert "25 for the mirrors of p1, 24 to drain, 76 for all else" in shown
    assert "week           none" in shown


def test_the_week_and_the_slot_that_is_on(call, service):
    service.week = week_of(service.fabric)
    shown = call("schedule").stdout
    assert "slot           2 of 2" in shown
    assert "0.9500 by the formula" in shown
    assert "0.8000 measured" in shown
    rows = [line.split("│") for line in shown.splitlines() if "│ 2500 │" in line]
    assert [[cell.strip() for cell in row[1:-1]] for row in rows] == [
        ["1", "", "2500", "r1-r2"],
        ["2", "now", "2500", "r1-r3"],
    ]


def test_the_document_says_when_each_slot_begins(call, service):
    service.week = week_of(service.fabric)
    document = json.loads(call("schedule", "--json").stdout)
    assert [slot["begins_unix_s"] for slot in document["week"]["slots"]] == [1e9 + 2.5, 1e9]
    assert document["week"]["slots"][0]["circuits"][0]["plane"] == "p1"
    assert document["ahead"] is None


def test_prometheus_sees_it(service, rest):
    service.week = week_of(service.fabric)
    text = plain_http.get(f"{rest.url}/metrics").text
    assert 'hydra_duty_cycle{what="formula"} 0.95' in text
    assert 'hydra_duty_cycle{what="measured"} 0.8' in text
    assert "hydra_slot 2.0" in text


def test_slots_that_are_too_short_are_refused(call, service):
    service.fails_with = PlanError("a slot of 10 ms leaves no day")
    refused = call("sharing", "slotted")
    assert refused.exit_code == 1
    assert "leaves no day" in refused.stderr
