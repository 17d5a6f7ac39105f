"""``hydra shape`` against the real REST API over HTTP."""

import json

import pytest

from hydra.lifecycle import ReservationState as State
from tests.waiting import once

RING = ("shape", "reserve", "ring", "r1", "r2", "r3", "r4")


def test_reserve_list_show_release(call, service):
    made = call(*RING, "--mbps", "most", "--duration", "1h", "--purpose", "job 7")
    assert made.exit_code == 0
    assert "racks      r1 r2 r3 r4" in made.stdout
    assert "100.0 Mb/s or more between each pair" in made.stdout
    (listed,) = json.loads(call("shape", "list", "--json").stdout)["shapes"]
    assert listed["purpose"] == "job 7"
    assert "ring" in call("shape", "list").stdout
    service.settle("v0", State.FAILED, "no light at r2")
    shown = call("shape", "show", listed["id"])
    assert "r1 to r2 is failed (no light at r2)" in shown.stdout
    assert "ask for it again: the same racks fit now" in shown.stdout
    released = json.loads(call("shape", "release", listed["id"], "--json").stdout)
    assert released["state"] == "over"
    assert "none" in call("shape", "list").stdout
    assert "ring" in call("shape", "list", "--all").stdout


def test_wait_tells_what_became_of_it(call, service):
    def fail():
        for one in service.reservations():
            service.settle(one.id, State.FAILED, "no light")

    with once(lambda: len(service.reservations()) == 4, fail):
        result = call(*RING, "--mbps", "10", "--wait")
    assert result.exit_code == 1
    assert "is failed, not ready: r1 to r2 is failed (no light)" in result.stderr


def test_a_matrix(call, service):
    result = call("shape", "reserve", "matrix", "r1:r2=40", "r2:r3=20", "--json")
    rates = [one["bandwidth_mbps"] for one in json.loads(result.stdout)["reservations"]]
    assert rates == [40, 20]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*RING,), "--mbps is missing"),
        (("shape", "reserve", "ring", "--mbps", "1"), "name the racks, or give --any N"),
        (("shape", "reserve", "matrix", "--any", "3"), "--any does not go with a matrix"),
        ((*RING, "--mbps", "all"), "neither a rate in Mb/s, such as 40, nor most"),
        ((*RING, "--mbps", "1", "--duration", "5", "--end", "2099-01-01"), "give either"),
        (("shape", "reserve", "matrix", "r1-r2"), "is not SRC:DST=MBPS"),
    ],
)
def test_wrong_usage(call, arguments, told):
    result = call(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_racks_are_chosen(call):
    made = call("shape", "reserve", "pairs", "--any", "2", "h11", "r3", "--mbps", "5")
    assert "2 of 2 racks, by most free Mb/s" in made.stdout
    assert json.loads(call("shape", "list", "--json").stdout)["shapes"][0]["racks"] == ["h11", "r3"]
    assert (
        len(
            json.loads(
                call("shape", "reserve", "ring", "--any", "3", "--mbps", "5", "--json").stdout
            )["racks"]
        )
        == 3
    )


def test_a_refusal(call):
    assert call("shape", "reserve", "ring", "r1", "r2", "--mbps", "5").exit_code == 1
    refused = call(*RING, "--mbps", "101")
    assert refused.exit_code == 1
    assert "ask for at most 100 Mb/s at each edge" in refused.stderr


def test_constraints_and_protection(call, service):
    made = call(
        *("shape", "reserve", "pairs", "r1", "r2", "--mbps", "5", "--json", "--max-hops", "1"),
        *("--avoid-plane", "p2", "--avoid-relay", "r3", "--priority", "2"),
    )
    (one,) = json.loads(made.stdout)["reservations"]
    assert one["constraints"] == {
        "avoid_planes": ["p2"],
        "require_planes": [],
        "avoid_relays": ["r3"],
        "max_hops": 1,
    }
    assert (one["path"] or one["booked"])["hops"][0]["plane"] == "p1"
    assert one["priority"] == 2
    refused = call(*RING, "--mbps", "5", "--protect", "disjoint", "--only-plane", "p1")
    assert refused.exit_code == 1
    assert "a disjoint path needs a second plane" in refused.stderr
    assert len(service.reservations()) == 1
