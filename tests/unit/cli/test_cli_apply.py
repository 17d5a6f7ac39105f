"""``hydra apply``: the dry run, the question, and the course to the end."""

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from apps.cli.client import ControllerClient
from tests.waiting import PATIENCE_S


@pytest.fixture
def carried_out(service):
    """Queued work is over 0.2 s later."""
    stop = threading.Event()

    def work():
        while not stop.wait(0.02):
            for one in service.reconfigurations():
                if not one.is_over:
                    time.sleep(0.2)
                    service.finish(one.id)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_the_dry_run_comes_first_and_nothing_happens_without_a_yes(call, service):
    result = call("apply", "--demand", "r1:r2=80")  # and no answer to the question
    assert result.exit_code == 1
    assert "gains 70 Mb/s" in result.stdout
    assert "Apply the changes? [y/N]" in result.stderr
    assert service.reconfigurations() == []


@pytest.mark.parametrize("options", [(), ("--yes",), ("--json",)])
def test_a_plan_that_changes_nothing_is_not_asked_about_nor_carried_out(
    call, service, monkeypatch, options
):
    post = ControllerClient.post

    def nothing(client, path, body, **more):
        document = post(client, path, body, **more)
        nothing = {"connect": [], "disconnect": [], "affected_pairs": []}
        return {**document, **nothing, "retagged_ports": 0, "rules": 0}

    monkeypatch.setattr(ControllerClient, "post", nothing)
    result = call("apply", "--demand", "r1:r2=80", *options)
    assert result.exit_code == 0, result.output
    assert "nothing" in result.stdout
    assert "Apply the changes?" not in result.stderr
    assert service.reconfigurations() == []


def test_it_asks_again_if_the_network_has_changed_meanwhile(
    call, service, carried_out, monkeypatch
):
    asked = []

    def agree(*_arguments, **_options):
        asked.append(len(service.plan_requests))
        if len(asked) == 1:
            service.network = replace(service.network, epoch=service.network.epoch + 1)
            service.away = ["vswitch h42 is not connected"]
        return True

    monkeypatch.setattr("click.confirm", agree)
    result = call("apply", "--demand", "r1:r2=80")
    assert result.exit_code == 0, result.output
    assert asked == [1, 2]
    assert "at risk: vswitch h42 is not connected" in result.stderr
    assert "the network has changed meanwhile" in result.stderr
    assert len(service.reconfigurations()) == 1


def test_it_does_not_ask_again_where_the_plan_is_the_same(call, service, carried_out, monkeypatch):
    asked = []

    def agree(*_arguments, **_options):
        asked.append(len(service.plan_requests))
        service.network = replace(service.network, epoch=service.network.epoch + 1)
        return True

    monkeypatch.setattr("click.confirm", agree)
    result = call("apply", "--demand", "r1:r2=80")
    assert result.exit_code == 0, result.output
    assert asked == [1]
    assert "changed meanwhile" not in result.stderr
    assert len(service.reconfigurations()) == 1


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_what_was_measured_for_the_dry_run_is_what_the_change_is_for(
    call, service, carried_out, monkeypatch, options
):
    before = service.demand()

    def agree(*_arguments, **_options):
        return True

    def later():
        return replace(before, rate_mbps=before.rate_mbps * 7)

    measured = iter([before])
    monkeypatch.setattr("click.confirm", agree)
    monkeypatch.setattr(service, "demand", lambda: next(measured, None) or later())
    result = call("apply", *options)
    assert result.exit_code == 0, result.output
    shown, made = service.plan_requests
    for request in (shown, made):
        assert request.demand == pytest.approx(before.planned_mbps)
        assert request.weights == pytest.approx(before.counted_on_mbps)


def test_it_waits_for_the_end(call, service, carried_out):
    result = call("apply", "--demand", "r1:r2=80", "--yes")
    assert result.exit_code == 0, result.output
    assert "partial" in result.stdout
    assert "no light at r3" in result.stdout
    dry_run, checked = service.plan_requests
    assert dry_run.demand[0, 1] == checked.demand[0, 1] == 80


def test_json_is_the_reconfiguration_alone(call, service, carried_out):
    result = call("apply", "--yes", "--json")
    assert json.loads(result.stdout)["state"] == "partial"


def test_a_terminal_gets_a_bar_of_the_substeps(rest, service, carried_out):
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "apps.cli", "apply", "--yes", "--json", "--url", rest.url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # Linux: the other end was closed
        while part := os.read(master, 4096):
            shown += part
    os.close(master)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert json.loads(out)["state"] == "partial"
    assert "queued" in shown.decode()
    assert "partial" in shown.decode()
    assert "━" in shown.decode()


def test_stop(call, service):
    call("reconfigure", "--demand", "r1:r2=80")
    (one,) = service.reconfigurations()
    stopped = call("stop", one.id)
    assert (stopped.exit_code, stopped.stdout) == (0, f"{one.id} ends after the stage under way\n")
    assert json.loads(call("stop", one.id, "--json").stdout)["reason"] == "stopped by operator"
    service.finish(one.id)
    refused = call("stop", one.id)
    assert refused.exit_code == 1
    assert "no stage ahead" in refused.stderr


def test_pause_and_resume(call, service):
    call("reconfigure", "--demand", "r1:r2=80")
    (one,) = service.reconfigurations()
    paused = call("pause", one.id)
    assert (paused.exit_code, paused.stdout) == (0, f"{one.id} waits after the stage under way\n")
    assert service.reconfiguration(one.id).paused
    assert json.loads(call("resume", one.id, "--json").stdout)["paused"] is False
    service.finish(one.id)
    refused = call("pause", one.id)
    assert refused.exit_code == 1
    assert "no stage ahead" in refused.stderr


def test_circuits_in_a_file_are_asked_for_by_name(call, service, carried_out, tmp_path):
    wanted = tmp_path / "circuits.yaml"
    wanted.write_text("circuits:\n  p1: [[r1, r2]]\n  p2: [[r2, r3]]\npaths: [[r1, r2, r3]]\n")
    result = call("apply", "--topology", str(wanted), "--yes")
    assert result.exit_code == 0, result.output
    for request in service.plan_requests:
        assert sorted(map(service.fabric.circuit_name, request.topology.circuits)) == [
            "r1 =p1= r2",
            "r2 =p2= r3",
        ]
        assert [path.hops for path in request.topology.paths] == [1, 2, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- r1", "has no circuits: write circuits: {PLANE"),
        ("circuits: {p1: [[r1]]}", "the circuit ['r1'] of p1 is not [RACK, RACK]"),
        ("circuits: {p1: r1}", "the circuits of p1 are no list"),
        ("circuits: {}\ncircuit: 3", "has the unknown key 'circuit'"),
        ("circuits: {}\nslots: 3", "a schedule is a list of slots alone"),
        ("slots: []", "a schedule is a list of slots alone"),
        ("slots: [{circuits: {}}]", "slot 1 has no length in s"),
        ("slots: [{length_s: 1, circuits: {p1: r1}}]", "the circuits of p1 are no list"),
        ("slots: [{length_s: 0, circuits: {p1: []}}]", "/slots/0/length_s"),
        (
            "slots: [{length_s: 1, circuits: {}}, {length_s: 1, circuits: {p1: [[r1, r9]]}}]",
            "/slots/1/topology/circuits/0/b: no rack 'r9' in fabric demo",
        ),
        ("circuits: [", "is neither YAML nor JSON"),
        ("circuits: {p1: [[r1, r9]]}", "no rack 'r9' in fabric demo"),
    ],
)
def test_a_file_of_circuits_with_a_mistake_changes_nothing(call, service, tmp_path, text, told):
    wanted = tmp_path / "circuits.yaml"
    wanted.write_text(text)
    result = call("apply", "--topology", str(wanted), "--yes")
    assert result.exit_code != 0
    assert told in " ".join(result.output.split())
    assert service.reconfigurations() == []
    assert service.given is None


def test_slots_in_a_file_are_shown_asked_about_and_followed_until_they_are_ended(
    call, service, tmp_path
):
    wanted = tmp_path / "slots.yaml"
    wanted.write_text(
        "slots:\n- {length_s: 2, circuits: {p1: [[r1, r2]]}}\n"
        "- {length_s: 1.5, circuits: {p1: [[r1, r3]], p2: [[r3, r4]]}, paths: [[r1, r3, r4]]}\n"
    )
    result = call("apply", "--topology", str(wanted))  # and no answer to the question
    assert result.exit_code == 1
    assert "Follow this schedule? [y/N]" in result.stderr
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines()]
    assert ["1", "", "2000", "r1-r2"] in rows
    assert ["2", "", "1500", "r1-r3, r1-r4, r3-r4"] in rows
    told = re.search(r"duty cycle (\S+): of each slot, a night of (\d+) ms", result.stdout)
    assert told is not None
    # 2 nights in 3.5 s
    assert float(told[1]) == pytest.approx(1 - 2 * int(told[2]) / 3500, abs=0.01)
    assert service.given is None
    result = call("apply", "--topology", str(wanted), "--yes")
    assert result.exit_code == 0, result.output
    assert [slot.length_s for slot in service.given.slots] == [2.0, 1.5]
    assert "given          listed" in call("schedule").stdout
    sharing = " ".join(call("sharing").stdout.split())
    assert sharing.startswith("by-demand: slotted, since the schedule listed is given")
    assert "given          no: planned" in call("schedule", "--end").stdout
    assert service.given is None


def test_a_schedule_by_name_has_the_policy_s_slots_or_others(call, service):
    assert call("apply", "--schedule", "rotornet", "--yes").exit_code == 0
    assert (service.given.name, len(service.given.slots)) == ("rotornet", 2)
    assert {slot.length_s for slot in service.given.slots} == {service.policy.slots.slot_s}
    document = json.loads(
        call("apply", "--schedule", "round-robin", "--slot-s", "3", "--yes", "--json").stdout
    )
    assert [slot["length_s"] for slot in document["slots"]] == [3.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--schedule", "opera"], "opera needs 3 planes"),
        (["--schedule", "opera", "--demand", "r1:r2=80"], "leave out --demand"),
        (["--schedule", "opera", "--use-plane", "p1"], "leave out --use-plane"),
        (["--slot-s", "2"], "add --schedule"),
        (["--schedule", "rotor"], "'rotor' is not one of"),
    ],
)
def test_a_schedule_that_can_not_be_is_one_error(call, service, options, told):
    result = call("apply", *options, "--yes")
    assert result.exit_code != 0
    assert told in result.output
    assert (service.given, service.reconfigurations()) == (None, [])
