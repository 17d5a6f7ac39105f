"""The API description agrees with the server."""

import json
import re

import pytest
from openapi_spec_validator import validate

from apps.rest.app import create_app

ROUTES = {
    ("GET", "/v1/reservations"),
    ("POST", "/v1/reservations"),
    ("POST", "/v1/reservations/preview"),
    ("GET", "/v1/reservations/{reservation_id}"),
    ("DELETE", "/v1/reservations/{reservation_id}"),
    ("POST", "/v1/reservations/{reservation_id}/commit"),
    ("GET", "/v1/reservations/{reservation_id}/delivery"),
    ("GET", "/v1/deliveries"),
    ("GET", "/v1/availability"),
    ("PATCH", "/v1/reservations/{reservation_id}"),
    ("POST", "/v1/groups"),
    ("GET", "/v1/groups/{group_id}"),
    ("DELETE", "/v1/groups/{group_id}"),
    ("POST", "/v1/shapes"),
    ("GET", "/v1/shapes"),
    ("GET", "/v1/shapes/{shape_id}"),
    ("DELETE", "/v1/shapes/{shape_id}"),
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
    ("GET", "/v1/explanations/circuits/{rack}/{other_rack}"),
    ("GET", "/v1/sharing"),
    ("PUT", "/v1/sharing"),
    ("GET", "/v1/schedule"),
    ("PUT", "/v1/schedule"),
    ("DELETE", "/v1/schedule"),
    ("GET", "/v1/agents"),
    ("GET", "/v1/agents/{server_name}"),
    ("GET", "/v1/agents/{server_name}/circuits"),
    ("PUT", "/v1/agents/{server_name}/backlog"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/problems/{slug}"),
}


STREAMS = {"/v1/events", "/v1/agents/{server_name}/circuits"}


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
    """Or fields that are counts or numbers (an HTTP status, a VLAN-ID, a port of a panel, a task, a
    day), or parts of a whole.
    """
    plain = {"status", "vlan", "epoch", "current_epoch", "rules", "rules_pushed"}
    plain |= {"retagged_ports", "ports_retagged", "courses", "ingress", "egress", "port", "id"}
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
        "served_share",
        "served_share_bound",
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
        "ports",
        "any",
        "max_hops",
    }
    for name, schema in description["components"]["schemas"].items():
        for field, kind in schema.get("properties", {}).items():
            kinds = {kind.get("type"), *(one.get("type") for one in kind.get("anyOf", ()))}
            if kinds & {"number", "integer"} and field not in plain:
                assert re.search(r"_(mbps|mbit|mb|ms|s)$|^mbps$|megabytes$", field), (name, field)


def schemas_in(node):
    """Every object in ``node`` with a type."""
    if isinstance(node, dict):
        if isinstance(node.get("type"), str):
            yield node
        for child in node.values():
            yield from schemas_in(child)
    elif isinstance(node, list):
        for child in node:
            yield from schemas_in(child)


def test_it_is_valid(description):
    """Checked by another implementation of the specification."""
    validate(description)


def test_numbers_are_wide_enough_for_unix_seconds_and_counters(description):
    """A generator uses float32 and int32 for a number without a format."""
    kinds = {"number": "double", "integer": "int64"}
    numbers = [one for one in schemas_in(description) if one["type"] in kinds]
    assert len(numbers) > 100
    assert [one for one in numbers if one.get("format") != kinds[one["type"]]] == []


def test_no_default_is_a_list_or_an_object(description):
    """openapi-generator copies such a default into Go unchanged: the client does not compile."""
    defaults = [one["default"] for one in schemas_in(description) if "default" in one]
    assert defaults
    assert [one for one in defaults if isinstance(one, list | dict)] == []


def test_what_is_required_is_described(description):
    """Also a field with the name of a keyword of the schema language, such as ``default``."""
    schemas = description["components"]["schemas"]
    assert "default" in schemas["PolicyValue"]["properties"]
    for name, schema in schemas.items():
        assert set(schema.get("required", ())) <= schema.get("properties", {}).keys(), name


def test_parameters_have_names_that_generators_do_not_use_themselves(description):
    taken = {"server", "client", "body", "params", "request", "response", "ctx", "url", "path"}
    for path, _method, operation in operations(description):
        for parameter in operation.get("parameters", ()):
            name = parameter["name"]
            assert name not in taken, path
            assert len(name) > 1, f"{path}: {name} is a receiver's name in Go"


def test_operations_go_by_the_names_of_what_they_do(description):
    names = [operation["operationId"] for *_, operation in operations(description)]
    assert len(set(names)) == len(names)
    assert {"create_reservation", "preview_reservation", "follow_events"} <= set(names)
    assert [name for name in names if re.search(r"v1|_(get|put|post|patch|delete)$", name)] == []


def test_an_operation_answers_with_one_kind_of_document(description):
    """A generated client uses the lowest status' document for all statuses."""
    for path, method, operation in operations(description):
        answers = [
            content["schema"]
            for status, response in operation["responses"].items()
            if status.startswith("2")
            for content in response["content"].values()
        ]
        assert all(one == answers[0] for one in answers), (method, path)


def test_streams_name_the_documents_in_their_events(description):
    for path, documents in (
        ("/v1/events", {"Event", "Gap"}),
        ("/v1/agents/{server_name}/circuits", {"AgentCircuits"}),
    ):
        content = description["paths"][path]["get"]["responses"]["200"]["content"]
        (stream,) = content.values()
        assert stream["schema"]["type"] == "string"
        named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(stream)))
        assert named == documents
        assert documents <= description["components"]["schemas"].keys()


def test_whoever_reads_it_learns_where_and_how_to_ask(description):
    """Requirements of Spectral's default rules, with and without tokens."""
    assert description["servers"][0]["url"] == "/"
    assert description["info"].keys() >= {"title", "version", "description", "contact", "license"}
    assert description["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    tags = {tag["name"] for tag in description["tags"] if tag["description"]}
    for path, method, operation in operations(description):
        assert operation["description"], (method, path)
        assert set(operation["tags"]) <= tags, (method, path)


def test_two_apps_do_not_share_anything(service):
    one, other = create_app(service), create_app(service)
    assert one.openapi() == other.openapi()
    assert one.state.closing is not other.state.closing
