"""The description says what the server does."""

import re

import pytest

from apps.rest.app import create_app

ROUTES = {
    ("GET", "/v1/reservations"),
    ("POST", "/v1/reservations"),
    ("GET", "/v1/reservations/{reservation_id}"),
    ("DELETE", "/v1/reservations/{reservation_id}"),
    ("POST", "/v1/reservations/{reservation_id}/commit"),
    ("GET", "/v1/reservations/{reservation_id}/delivery"),
    ("GET", "/v1/deliveries"),
    ("PATCH", "/v1/reservations/{reservation_id}"),
    ("POST", "/v1/groups"),
    ("GET", "/v1/groups/{group_id}"),
    ("DELETE", "/v1/groups/{group_id}"),
    ("GET", "/v1/events"),
    ("GET", "/v1/quotas"),
    ("GET", "/v1/whoami"),
    ("GET", "/v1/replicas"),
    ("GET", "/v1/workers"),
    ("POST", "/v1/handover"),
    ("GET", "/v1/servers"),
    ("GET", "/v1/webhooks"),
    ("POST", "/v1/webhooks"),
    ("GET", "/v1/webhooks/{webhook_id}"),
    ("PUT", "/v1/webhooks/{webhook_id}"),
    ("DELETE", "/v1/webhooks/{webhook_id}"),
    ("GET", "/v1/topology"),
    ("GET", "/v1/demand"),
    ("GET", "/v1/load"),
    ("POST", "/v1/plan"),
    ("GET", "/v1/reconfigurations"),
    ("POST", "/v1/reconfigurations"),
    ("GET", "/v1/reconfigurations/{reconfiguration_id}"),
    ("DELETE", "/v1/reconfigurations/{reconfiguration_id}"),
    ("PATCH", "/v1/reconfigurations/{reconfiguration_id}"),
    ("GET", "/v1/drift"),
    ("POST", "/v1/reconcile"),
    ("POST", "/v1/reload"),
    ("GET", "/v1/quarantine"),
    ("PUT", "/v1/quarantine/{rack}/{port}"),
    ("DELETE", "/v1/quarantine/{rack}/{port}"),
    ("GET", "/v1/policy"),
    ("PATCH", "/v1/policy"),
    ("GET", "/v1/devices"),
    ("GET", "/v1/devices/{name}/tasks"),
    ("POST", "/v1/devices/{name}/tasks/{task_id}"),
    ("GET", "/v1/decisions"),
    ("GET", "/v1/conditions"),
    ("GET", "/v1/history"),
    ("GET", "/v1/explanations/circuits/{a}/{b}"),
    ("GET", "/v1/sharing"),
    ("PUT", "/v1/sharing"),
    ("GET", "/v1/schedule"),
    ("GET", "/v1/agents"),
    ("GET", "/v1/agents/{server}"),
    ("GET", "/v1/agents/{server}/circuits"),
    ("PUT", "/v1/agents/{server}/backlog"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/problems/{slug}"),
}


STREAMS = {"/v1/events", "/v1/agents/{server}/circuits"}


@pytest.fixture
def description(service):
    return create_app(service).openapi()


def operations(description):
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_it_is_openapi_3_1_and_served(client, description):
    assert description["openapi"].startswith("3.1")
    assert client.get("/openapi.json").json() == description


def test_every_route_is_there(description):
    assert {(method.upper(), path) for path, method, _ in operations(description)} == ROUTES


def test_errors_are_problem_documents(description):
    for path, method, operation in operations(description):
        for status, response in operation["responses"].items():
            if status == "304":
                assert "content" not in response
                continue
            schemas = response["content"]
            if status.startswith("2"):
                kind = "text/event-stream" if path in STREAMS else "application/json"
                assert list(schemas) == [kind], (path, method, status)
            else:
                assert schemas == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                }, (path, method, status)


def test_requests_refuse_unknown_fields(description):
    for name in (
        "ReservationBody",
        "GroupBody",
        "MatrixEntry",
        "PlanBody",
        "DemandEntry",
        "TaskBody",
        "WebhookBody",
        "Repeat",
    ):
        assert description["components"]["schemas"][name]["additionalProperties"] is False


def test_numbers_carry_their_unit(description):
    """Or count something, or name one: an HTTP status, a VLAN-ID, a port of a panel, a task, a day;
    or are parts of a whole.
    """
    plain = {"status", "vlan", "epoch", "current_epoch", "rules", "rules_pushed"}
    plain |= {"retagged_ports", "ports_retagged", "ingress", "egress", "port", "id"}
    plain |= {
        "gain_factor",
        "max_reservations",
        "reservations",
        "waiting",
        "behind",
        "delivered",
        "refused",
        "missed",
    }
    plain |= {"times", "priority", "max_priority", "src_port", "dst_port", "optical_share"}
    plain |= {"slot", "duty_cycle", "measured_duty_cycle", "confirmed_times", "reads"}
    plain |= {
        "electrical_share",
        "divert_share",
        "replan_share",
        "stages_done",
        "switches",
        "serves",
        "stages_expected",
        "prediction_error",
        "subjects_total",
        "pairs_total",
        "reservations_total",
    }
    for name, schema in description["components"]["schemas"].items():
        for field, kind in schema.get("properties", {}).items():
            kinds = {kind.get("type"), *(one.get("type") for one in kind.get("anyOf", ()))}
            if kinds & {"number", "integer"} and field not in plain:
                assert re.search(r"_(mbps|mbit|mb|ms|s)$|^mbps$", field), (name, field)


def test_two_apps_do_not_share_anything(service):
    one, other = create_app(service), create_app(service)
    assert one.openapi() == other.openapi()
    assert one.state.closing is not other.state.closing
