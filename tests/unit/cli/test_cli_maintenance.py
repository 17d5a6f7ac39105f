"""Commands after failures, with the real REST API over HTTP."""

import json

from hydra.service import DriftReport


def test_quarantine_lists_ports_with_reason_and_end(call):
    text = call("quarantine").stdout
    assert "hyt-r1-p1" in text and "no carrier at r1" in text and "on trial" in text
    assert "cleared" in text
    document = json.loads(call("quarantine", "--json").stdout)
    assert [port["rack"] for port in document["ports"]] == ["r1", "r2"]


def test_quarantine_clear(call):
    result = call("quarantine", "clear", "r2", "hyt-r2-p2")
    assert result.exit_code == 0
    assert (
        result.stdout
        == "r2 hyt-r2-p2 may be used again; the reason to set the port aside was: no light\n"
    )
    assert [p["rack"] for p in json.loads(call("quarantine", "--json").stdout)["ports"]] == ["r1"]
    refused = call("quarantine", "clear", "r2", "hyt-r2-p2")
    assert refused.exit_code == 1
    assert "not in quarantine" in refused.stderr


def test_options_before_the_name_of_a_command_are_the_commands(call, run, rest):
    nowhere = ("--url", "http://127.0.0.1:1")
    assert run("quarantine", *nowhere, "clear", "r2", "hyt-r2-p2").exit_code == 3
    assert call("quarantine", *nowhere, "--json", "clear", "r2", "hyt-r2-p2").exit_code == 0
    port = ("r3", "hyt-r3-p1", "--reason", "cleaning")
    added = run("quarantine", "--url", rest.url, "--json", "add", *port)
    assert json.loads(added.stdout)["rack"] == "r3"


def test_an_empty_quarantine(call, service):
    service.quarantined.clear()
    assert call("quarantine").stdout == "Quarantine: none\n"


def test_reconcile_dry_run_changes_nothing(call, service):
    before = list(service.drifting)
    result = call("reconcile", "--dry-run")
    assert result.exit_code == 1
    assert "1 to 18" in result.stdout and "hyt-r1-p1" in result.stdout
    assert "no answer from h42" in result.stderr
    assert service.drifting == before
    items = json.loads(call("reconcile", "--dry-run", "--json").stdout)["items"]
    assert [item["kind"] for item in items] == ["cross-connect", "vlans"]


def test_reconcile_mends(call, service):
    result = call("reconcile")
    assert result.exit_code == 3, "of one device nothing is known"
    assert "Found" in result.stdout and "Left: none" in result.stdout
    again = call("reconcile")
    assert (again.exit_code, again.stdout) == (3, "Found: none where devices answer\n")


def test_only_where_all_devices_answer_there_is_no_drift(call, service, monkeypatch):
    service.drifting = []
    assert call("reconcile", "--dry-run").stdout == "Drift: none where devices answer\n"
    monkeypatch.setattr(service, "drift", lambda: DriftReport((), ()))
    result = call("reconcile", "--dry-run")
    assert (result.exit_code, result.stdout) == (0, "Drift: none\n")


def test_reconcile_tells_what_it_could_not_mend(call, service):
    service.unmendable = service.drifting[1:]
    assert call("reconcile").exit_code == 1


def test_quarantine_add(call):
    result = call("quarantine", "add", "r3", "hyt-r3-p1", "--reason", "cleaning")
    assert (result.exit_code, result.stdout) == (
        0,
        "r3 hyt-r3-p1 is set aside until cleared\n",
    )
    refused = call("quarantine", "add", "r3", "nothing", "--reason", "x", "--json")
    assert refused.exit_code == 1
    assert "no optical port r3 nothing" in refused.stderr
