"""Read-only commands, with the real REST API over HTTP."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from hydra.model import NetworkState, Topology, VlanId
from hydra.policy import DemandBasis
from hydra.service import PlanRequest
from tests.unit.rest.fake_service import relay_path
from tests.waiting import once

LOOKING = ["status", "topology", "demand", "reconfigurations", "reservations"]


def test_status_when_ready_and_healthy(call, service):
    service.quarantined.clear()
    result = call("status")
    assert result.exit_code == 0
    assert result.stdout.startswith("ready\nhealthy\n")
    assert "polatis-scpi" in result.stdout
    assert "never connected" in result.stdout


def test_status_says_first_what_is_wrong(call, service):
    service.trouble = {"planes_down": {0: "no answer"}}
    service.network = NetworkState(3, Topology(frozenset(relay_path().circuits), (relay_path(),)))
    result = call("status")
    assert result.exit_code == 5
    lines = result.stdout.splitlines()
    assert lines[:2] == ["ready", "not healthy: 3 things are wrong"]
    assert lines[3].startswith("optical-switch-down, since ")
    assert lines[4:6] == [
        "  optical switch p1 can't be commanded: no answer",
        "  affects pairs r1-r2",
    ]
    assert lines[7] == (
        "  to do: repair the device; the controller restores the intended state at the device's "
        "next answer: hydra device show p1"
    )
    document = json.loads(call("status", "--json").stdout)
    assert (document["ready"], document["healthy"]) == (True, False)
    assert [one["kind"] for one in document["conditions"]] == [
        "optical-switch-down",
        "port-quarantined",
        "port-on-trial",
    ]


def test_status_when_not_ready(call, service):
    service.unready = ["vswitch h42 is not connected", "ToR r1: no answer"]
    result = call("status")
    assert result.exit_code == 1
    assert "not ready: vswitch h42 is not connected; ToR r1: no answer" in result.stdout
    document = json.loads(call("status", "--json").stdout)
    assert (document["ready"], document["missing"]) == (False, service.unready)
    assert {device["name"] for device in document["devices"]} == {"p1", "h42"}


def test_status_tells_which_changes_wait(call, service):
    entry = service.reconfigure(PlanRequest(), "operator")
    reason = "waits for 02:00-05:00: no room now at r1 by 30 Mb/s"
    service.change(entry.id, stages_done=2, stages_expected=7, paused=True, reason=reason)
    said = " ".join(call("status").stdout.replace("│", " ").split())
    for words in (f" {entry.id} operator queued ", " 2 of about ", " paused ", " waits for "):
        assert words in said
    (one,) = json.loads(call("status", "--json").stdout)["changes"]
    assert one["id"] == entry.id
    service.finish(entry.id)
    assert entry.id not in call("status").stdout


@pytest.mark.parametrize("of", ["unready", "quarantined"])
def test_status_waits_until_ready_and_healthy(call, service, of, monkeypatch):
    if of == "unready":
        service.unready = ["rack r1"]
        service.quarantined.clear()
    asked, conditions = [], service.conditions
    monkeypatch.setattr(service, "conditions", lambda: asked.append(None) or conditions())
    with once(lambda: len(asked) > 1, getattr(service, of).clear):
        result = call("status", "--wait", "60")
    assert result.exit_code == 0
    assert result.stdout.startswith("ready\n")


def test_who_am_i(call):
    assert call("whoami").stdout.split() == ["name", "local", "role", "operator"]
    document = json.loads(call("whoami", "--json").stdout)
    assert document == {"name": "local", "role": "operator"}


def test_status_waits_no_longer_than_told(call, service):
    service.unready = ["rack r1"]
    assert call("status", "--wait", "0.3").exit_code == 1


def test_status_waits_for_a_controller_that_starts(run):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        result = run(
            "status", "--wait", "0.3", "--url", f"http://127.0.0.1:{unused.getsockname()[1]}"
        )
    assert result.exit_code == 3


def test_topology(call, service):
    path = relay_path()
    service.network = NetworkState(
        epoch=7, topology=Topology(frozenset(path.circuits), (path,)), vlans={path: VlanId(123)}
    )
    result = call("topology")
    assert result.exit_code == 0
    assert "r1 =p1= r3 =p2= r2" in result.stdout
    assert "123" in result.stdout
    assert "hyt-r1-p1" in result.stdout
    document = json.loads(call("topology", "--json").stdout)
    assert (document["epoch"], document["paths"][0]["vlan"]) == (7, 123)


def test_an_empty_topology_says_so(call):
    assert "Circuits: none" in call("topology").stdout


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        (DemandBasis.ESTIMATE, {"constrained", "measured"}),
        (DemandBasis.RATE, {"as sent"}),
        (DemandBasis.BACKLOG, {"waits"}),
    ],
)
def test_demand_tells_how_it_is_known(call, service, basis, words):
    service.amendments["demand"] = basis
    shown = call("demand").stdout
    every = {"constrained", "measured", "as sent", "waits"}
    entries = [line for line in shown.splitlines() if "r2" in line or "r4" in line]
    assert {word for word in every for line in entries if word in line} == words
    spills = [line for line in entries if "25% of flows electrical" in line]
    assert spills == entries[:1] * (basis is DemandBasis.ESTIMATE)


def test_demand_shows_what_plans_count_on_where_that_is_less(call, service):
    table = call("demand").stdout
    constrained, measured = (line for line in table.splitlines() if "r2" in line or "r4" in line)
    assert ("25.0" in constrained, "20.0" in constrained) == (True, True)
    assert measured.count("6.0") == 2, "estimated and planned for"
    entries = json.loads(call("demand", "--json").stdout)["entries"]
    assert [one["expected_mbps"] for one in entries] == [20.0, 6.0]
    service.amendments["demand"] = DemandBasis.RATE
    assert "20.0" not in call("demand").stdout, "what is sent is no guess"


def test_demand_shows_the_largest_first(call):
    result = call("demand")
    assert result.exit_code == 0
    assert "counters are late from h42" in result.stdout
    assert "readings not used: no answer, 3 times" in result.stdout
    assert result.stdout.index("12.5") < result.stdout.index("3.0")
    assert len(json.loads(call("demand", "--json").stdout)["entries"]) == 2


def test_reconfigurations(call, service):
    first = service.reconfigure(PlanRequest(), "operator").id
    service.finish(first)
    service.reconfigure(PlanRequest(), "periodic")
    listed = call("reconfigurations")
    assert listed.exit_code == 0
    assert "partial" in listed.stdout
    assert "queued" in listed.stdout
    one = call("reconfigurations", first)
    assert "r2 =p2= r3: no light at r3" in one.stdout
    assert "2 rules" in one.stdout
    assert json.loads(call("reconfigurations", first, "--json").stdout)["rules_pushed"] == 8


def test_an_unknown_id_is_refused_in_words(call):
    result = call("reconfigurations", "c9/../x")
    assert result.exit_code == 1
    assert "Unknown name" in result.stderr or "the API has no path" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["reconfigurations", "reservations", "history", "release"])
@pytest.mark.parametrize(
    ("name", "words"),
    [("", "an empty name"), (".", "Unknown name"), ("..", "'..'")],
)
def test_no_name_leads_to_another_resource(call, command, name, words):
    result = call(command, name)
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", LOOKING)
def test_nothing_listens(run, command):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        result = run(command, "--url", f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert result.exit_code == 3
    assert "no controller answers" in result.stderr
    assert "HYDRA_URL" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "", "http://[::1"])
def test_urls_that_are_none(run, url):
    result = run("status", "--url", url)
    assert result.exit_code == 2
    assert "--url" in result.stderr


def test_the_url_may_come_from_the_environment(run, service, rest, monkeypatch):
    service.quarantined.clear()
    monkeypatch.setenv("HYDRA_URL", rest.url + "/")
    assert run("status").exit_code == 0


class _SomethingElse(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<html>a printer</html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


def test_something_else_answers(run):
    server = HTTPServer(("127.0.0.1", 0), _SomethingElse)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        result = run("topology", "--url", f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert result.exit_code == 1
    assert "not like a HydRA controller" in result.stderr
