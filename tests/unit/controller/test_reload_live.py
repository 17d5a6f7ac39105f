"""SIGHUP and POST /v1/reload on a running controller."""

import json
import os
import signal

import pytest
import yaml

from tests.unit.controller.test_responsiveness import Controller, controller
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.takes(15)

__all__ = ["controller"]


@pytest.fixture
def change(controller: Controller, tmp_path):
    """Rewrite parts of the policy in the controller's configuration file."""
    path = tmp_path / "fabric.yaml"

    def rewrite(**policy):
        document = yaml.safe_load(path.read_text())
        document["policy"].update(policy)
        path.write_text(yaml.safe_dump(document))

    return rewrite


def reload(controller):
    return controller.http.post("/v1/reload", json={})


def value_of(key, policy):
    """The value of a key, and the ways to change the value."""
    (found,) = (one for one in policy["values"] if one["key"] == key)
    return {name: found[name] for name in ("key", "value", "at_once", "by_request")}


def test_reload_by_rest_and_by_signal(controller, change):
    change(epoch_s=7.5, max_hops=2)
    done = reload(controller).json()
    assert [one["key"] for one in done["applied"]] == ["policy.epoch_s"]
    assert [one["key"] for one in done["waiting"]] == ["policy.max_hops"]

    change(epoch_s="soon")
    refused = reload(controller)
    assert refused.status_code == 409
    assert refused.json()["type"] == "/problems/invalid-configuration"
    assert "policy.epoch_s" in refused.json()["detail"]

    change(epoch_s=8.5)
    os.kill(controller.process.pid, signal.SIGHUP)
    told = "reloaded: policy.epoch_s is 8.5, was 7.5"
    wait_until(lambda: told in controller.log.read_text())

    change(epoch_s="soon")
    os.kill(controller.process.pid, signal.SIGHUP)
    wait_until(lambda: "soon" in controller.log.read_text())
    assert controller.http.get("/healthz").status_code == 200
    change(epoch_s=8.5)
    assert reload(controller).json()["applied"] == []

    refused = controller.http.patch("/v1/policy", json={"slots": {"slot_s": 9, "week_s": 2}})
    assert refused.status_code == 409, refused.text
    assert "holds no slot" in refused.text
    refused = controller.http.patch("/v1/policy", json={"beyond_hours": "night hours"})
    assert refused.status_code == 409, refused.text
    assert "'night hours' has not the form of 02:00-04:30: write two times" in refused.text
    at_once = {"at_once": True, "by_request": True}
    slot = {"key": "policy.slots.slot_s", "value": "1.0", **at_once}
    assert value_of("policy.slots.slot_s", controller.http.get("/v1/policy").json()) == slot
    told = controller.http.patch("/v1/policy", json={"epoch_s": 9.5}).json()
    epoch = {"key": "policy.epoch_s", "value": "9.5", **at_once}
    assert value_of("policy.epoch_s", told) == epoch
    asked = "asked for: policy.epoch_s is 9.5, was 8.5"
    wait_until(lambda: asked in controller.log.read_text())
    back = reload(controller).json()["applied"]
    assert back == [{"key": "policy.epoch_s", "before": "9.5", "after": "8.5"}]
    history = controller.http.get("/v1/history?kind=policy").json()["happenings"]
    assert [one["text"] for one in history if "max_hops" not in one["text"]] == [
        "reloaded: policy.epoch_s is 8.5, was 9.5",
        "asked for: policy.epoch_s is 9.5, was 8.5",
        "reloaded: policy.epoch_s is 8.5, was 7.5",
        "reloaded: policy.epoch_s is 7.5, was 10.0",
    ]
    waits = [one["text"] for one in history if "max_hops" in one["text"]]
    assert waits == ["reloaded: policy.max_hops is 2 after the next start"] * 4


def test_a_controller_without_devices_shows_its_metrics_and_logs_lines(controller):
    text = controller.http.get("/metrics").text
    assert 'hydra_device_connected{device="p1",kind="optical-switch"} 0.0' in text
    assert 'hydra_loop_stage_duration_seconds_count{stage="upkeep"}' in text
    assert 'hydra_device_errors_total{device="p1"}' in text
    assert "process_open_fds" in text
    assert json.loads(controller.http.get("/healthz").text) == {"status": "ok"}


def test_a_plan_tells_which_devices_are_missing_for_it(controller):
    wait_until(
        lambda: "optical-switch-down" in controller.http.get("/v1/conditions").text, PATIENCE_S
    )
    body = {"demand": [{"src": "r1", "dst": "r2", "mbps": 80}]}
    planned = controller.http.post("/v1/plan", json=body)
    assert planned.status_code == 200, planned.text
    (one,) = [risk for risk in planned.json()["at_risk"] if "optical switch p1" in risk]
    assert one.startswith("optical switch p1 is left out: ")
    assert any(risk.startswith("rack r2 is left out") for risk in planned.json()["at_risk"])
    assert not any("rack r3" in risk for risk in planned.json()["at_risk"]), "nothing goes there"


def test_an_explanation_tells_what_is_left_out_and_that_nothing_is_measured(controller):
    wait_until(
        lambda: "optical-switch-down" in controller.http.get("/v1/conditions").text, PATIENCE_S
    )
    lines = controller.http.get("/v1/explanations/circuits/r2/r1").json()["lines"]
    for device in ("optical switch p1", "rack r1", "rack r2"):
        assert any(line.startswith(f"{device} is left out") for line in lines), lines
    assert not any("rack r3" in line or "sends" in line for line in lines), lines
    assert "no traffic has been measured yet: the demand of the two racks is not known" in lines
