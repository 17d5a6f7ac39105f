"""Quarantine over HTTP."""

from dataclasses import replace

import pytest

from apps.rest.app import create_app
from hydra.errors import DeviceUnavailable
from hydra.model import PortId


def test_what_is_in_quarantine_and_until_when(client):
    timed, untimed = client.get("/v1/quarantine").json()["ports"]
    assert timed == {
        "rack": "r1",
        "port": "hyt-r1-p1",
        "plane": "p1",
        "reason": "no carrier at r1",
        "since_unix_s": 1_700_000_000.0,
        "until_unix_s": 1_700_000_060.0,
        "on_trial": True,
    }
    assert (untimed["port"], untimed["until_unix_s"]) == ("hyt-r2-p2", None)


def test_clearing_a_port(client):
    answer = client.delete("/v1/quarantine/r2/hyt-r2-p2")
    assert (answer.status_code, answer.json()["reason"]) == (200, "no light")
    assert [p["rack"] for p in client.get("/v1/quarantine").json()["ports"]] == ["r1"]
    again = client.delete("/v1/quarantine/r2/hyt-r2-p2")
    assert again.status_code == 404
    assert again.json()["type"] == "/problems/unknown-name"


def test_port_names_with_a_slash(client, service, fabric):
    ports = list(fabric.ports)
    ports[3] = replace(ports[3], tor_port="xe-0/0/1")
    service._fabric = replace(fabric, ports=tuple(ports))
    assert service.quarantined[1].entry.port == PortId(3)
    assert client.delete("/v1/quarantine/r2/xe-0%2F0%2F1").status_code == 200
    paths = create_app(service).openapi()["paths"]
    assert "/v1/quarantine/{rack}/{port}" in paths


def test_drift_is_shown_and_mended(client, service):
    shown = client.get("/v1/drift").json()
    assert shown["silent"] == ["h42"]
    assert shown["items"][0] == {
        "kind": "cross-connect",
        "device": "p1",
        "subject": "1 to 18",
        "intended": "connected",
        "actual": "nothing",
    }
    done = client.post("/v1/reconcile", json={}).json()
    assert done["found"] == shown
    assert done["left"]["items"] == []
    assert done["reconfigurations"] == ["c0", "c1"]
    assert client.get("/v1/drift").json()["items"] == []


def test_a_reconcile_needs_a_body_and_takes_no_options(client):
    assert client.post("/v1/reconcile").status_code == 422
    assert client.post("/v1/reconcile", json={"dry_run": True}).status_code == 422


def test_a_controller_that_is_busy_for_long_says_so(client, service):
    service.fails_with = DeviceUnavailable("controller", "busy with other changes for 60 s")
    answer = client.get("/v1/drift")
    assert answer.status_code == 503
    assert "busy with other changes" in answer.json()["detail"]


def test_a_port_is_set_aside_by_hand(client):
    done = client.put("/v1/quarantine/r3/hyt-r3-p1", json={"reason": "fibre is cleaned"})
    assert done.status_code == 200
    assert (done.json()["reason"], done.json()["until_unix_s"]) == ("fibre is cleaned", None)
    assert "r3" in {port["rack"] for port in client.get("/v1/quarantine").json()["ports"]}
    unknown = client.put("/v1/quarantine/r3/nothing", json={"reason": "x"})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/unknown-name")
    assert client.put("/v1/quarantine/r3/hyt-r3-p1", json={"reason": ""}).status_code == 422


def test_a_dry_run_of_a_reload_takes_nothing_over(client, service):
    told = client.post("/v1/reload", json={"dry_run": True}).json()
    assert service.reloads == 0
    assert client.post("/v1/reload", json={}).json() == told
    assert service.reloads == 1


def test_the_policy_can_be_changed_at_run_time(client, service):
    changed = client.patch("/v1/policy", json={"epoch_s": 5, "mode": "periodic"})
    assert changed.status_code == 200
    assert changed.json() == client.get("/v1/policy").json()
    values = {one["key"]: one["value"] for one in changed.json()["values"]}
    assert (values["policy.epoch_s"], values["policy.mode"]) == ("5.0", "periodic")
    before = service.policy
    for body in ({"max_hops": 2}, {"epoch_s": 0}, {"mode": "often"}, {"quarantine_s": -1}):
        assert client.patch("/v1/policy", json={"epoch_s": 9, **body}).status_code == 422
    assert service.policy == before
    client.patch("/v1/policy", json={"quarantine_s": None})
    assert service.policy.quarantine_s is None


def test_a_part_of_a_section_leaves_the_rest_of_it(client, service):
    before = service.policy
    answer = client.patch("/v1/policy", json={"drain": {"reads": 5}, "slots": {"week_s": 20}})
    values = {one["key"]: one["value"] for one in answer.json()["values"]}
    assert (values["policy.drain.reads"], values["policy.slots.week_s"]) == ("5", "20.0")
    assert service.policy.drain == replace(before.drain, reads=5)
    assert service.policy.slots == replace(before.slots, week_s=20.0)
    assert service.policy.agents == before.agents
    for wrong in ({"reads": 0}, {"pauses": 1}, {"bound_ms": None}):
        refused = client.patch("/v1/policy", json={"drain": wrong})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == f"/drain/{next(iter(wrong))}"


def test_the_policy_in_force_says_what_a_reload_changes(client):
    values = {one["key"]: one for one in client.get("/v1/policy").json()["values"]}
    assert values["policy.mode"] == {
        "key": "policy.mode",
        "value": "on-request",
        "default": "on-request",
        "allowed": "on-request, periodic",
        "choices": ["on-request", "periodic"],
        "meaning": "With periodic, circuits also change every epoch_s, from measured demand, "
        "if the change pays.",
        "at_once": True,
        "by_request": True,
    }
    sharing = values["policy.sharing"]["meaning"]
    assert sharing.endswith("circuits in periodic mode: sharing."), "links are words"
    assert values["policy.drain.reads"]["value"] == "3"
    assert not values["policy.max_hops"]["at_once"]
    ways = {key: (one["at_once"], one["by_request"]) for key, one in values.items()}
    assert ways["policy.source_check"] == (True, False)
    assert ways["policy.timeouts.tor_s"] == (False, False)


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"max_hops": 2}, "/max_hops", "change the key there, then start again"),
        ({"timeouts": {"tor_s": 2}}, "/timeouts", "change the key there, then start again"),
        ({"source_check": "off"}, "/source_check", "change the key there, then reload"),
        ({"epohc_s": 2}, "/epohc_s", "is an unknown key; did you mean 'epoch_s'?"),
        ({"drain": {"raeds": 2}}, "/drain/raeds", "is an unknown key; did you mean 'reads'?"),
        ({"epoch_s": 0}, "/epoch_s", "must be greater than or equal to 0.001, not 0"),
    ],
)
def test_a_key_that_no_request_can_change_is_refused_with_the_way(client, body, pointer, words):
    refused = client.patch("/v1/policy", json={"gain_factor": 1, **body})
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["pointer"] == pointer
    assert error["detail"].endswith(words)


def test_of_many_unknown_keys_all_are_counted(client):
    refused = client.patch("/v1/policy", json={f"key{number}": 1 for number in range(3000)})
    assert "(and 2999 more)" in refused.json()["detail"]


def test_devices_show_their_alarms(client):
    switch, vswitch = client.get("/v1/devices").json()["devices"]
    assert switch["alarms"] == [
        {"severity": "major", "port": 3, "code": "LOS", "text": "no light at the input"}
    ]
    assert vswitch["alarms"] == []
