"""``hydra device`` with an emulated Polatis switch, a separate process on a real socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest
import yaml

from apps.journal.sqlite import SqliteJournal
from apps.process.configuration import load_configuration
from drivers.optical.polatis_scpi import PolatisScpi
from hydra.journal import entry
from hydra.journal_format import INTENDED, save_state, state_record
from hydra.model import Circuit, CrossConnect, NetworkState, PlaneId, PortId, Topology
from mininet_scenarios.emulators.admin import AdminClient
from mininet_scenarios.emulators.faults import FaultKind
from tests.conformance.devices import template as craft_terminal
from tests.waiting import PATIENCE_S

from . import CONFIGS, DEMO


@pytest.fixture(scope="module")
def emulated():
    """(address, admin client) of a switch of 16 by 16 ports."""
    command = [sys.executable, "-m", "mininet_scenarios.emulators.polatis", "--switching-ms", "1"]
    command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--name", "000042"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=CONFIGS.parent
    ) as process:
        words = process.stdout.readline().split()
        host, _, port = words[4].rpartition(":")
        yield words[2], AdminClient(host, int(port))
        process.terminate()


@pytest.fixture
def switch(emulated):
    """Direct access to the switch, without the command; empty and healthy afterwards."""
    address, admin = emulated
    driver = PolatisScpi("p1", address, timeout_s=PATIENCE_S)
    yield driver
    admin.clear()
    admin.unblock()
    driver.change(driver.cross_connects(), [])
    driver.close()


@pytest.fixture
def admin(emulated, switch):
    return emulated[1]


@pytest.fixture
def config(emulated, tmp_path):
    """The demo's fabric: p1 is the emulated switch, p2 does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    document = yaml.safe_load(DEMO.read_text())
    (planes,) = document["planes"]
    document["planes"] = [
        planes | {"names": "p1", "address": emulated[0]},
        planes | {"names": "p2", "address": nobody},
    ]
    document["controller"]["journal"] = str(tmp_path / "journal.db")
    document["policy"]["timeouts"] = {"ocs_s": 2}
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


@pytest.fixture
def device(run, config, switch):
    """``hydra device ARGUMENTS… --config …``"""
    return lambda *arguments: run("device", *arguments, "--config", str(config))


@pytest.fixture
def journal(config):
    """The journal of a controller with the circuit of r1 and r2 on p1."""
    loaded = load_configuration(config)
    held = NetworkState(1, Topology(frozenset({Circuit(PlaneId(0), PortId(0), PortId(2))})))
    assert set(loaded.fabric.cross_connects(*held.topology.circuits)) == HELD
    with closing(SqliteJournal(loaded.controller.journal)) as opened:
        opened.write(save_state(loaded.fabric, held, 0.0, "started"))
        yield opened, loaded.fabric


def pairs(*wanted: tuple[int, int]) -> frozenset[CrossConnect]:
    return frozenset(CrossConnect(a, b) for a, b in wanted)


HELD = pairs((1, 18), (2, 17))


def test_list(device):
    listed = json.loads(device("list", "--json").stdout)
    assert [one["name"] for one in listed] == ["p1", "p2", "r1", "r2", "r3", "r4"]
    assert listed[0]["driver"] == "polatis-scpi"
    assert listed[0]["capabilities"]["bulk"] is True
    assert {one["problem"] for one in listed} == {None}
    table = device("list").stdout
    assert "bulk, one-way" in table
    assert "ovs-ovsdb" in table


def test_list_says_who_does_not_answer(device):
    result = device("list", "--contact", "--json")
    assert result.exit_code == 1
    problems = {one["name"]: one["problem"] for one in json.loads(result.stdout)}
    assert problems["p1"] is None
    assert "can't connect" in problems["p2"]


def test_show(device, switch, journal):
    switch.change([], HELD | pairs((9, 30)))
    document = json.loads(device("show", "p1", "--json").stdout)
    assert document["identity"]["serial"] == "000042"
    assert (document["ingress_ports"], document["egress_ports"]) == (16, 16)
    assert document["port_states"]["32"] == "enabled"
    shown = [tuple(cross.values()) for cross in document["cross_connects"]]
    assert list(document["cross_connects"][0]) == ["ingress", "egress", "from", "to", "controller"]
    assert shown == [
        (1, 18, "r1 hyt-r1-p1", "r2 hyt-r2-p1", True),
        (2, 17, "r2 hyt-r2-p1", "r1 hyt-r1-p1", True),
        (9, 30, None, None, False),
    ]
    words = device("show", "p1").stdout
    assert "ports enabled  1-32" in words
    assert "not the controller's" in words


def test_connect_and_disconnect(device, switch):
    result = device("connect", "p1", "9:25", "10:26")
    assert result.exit_code == 0
    assert "p1: 9 to 25 connected" in result.stdout
    assert switch.cross_connects() == pairs((9, 25), (10, 26))
    again = json.loads(device("connect", "p1", "9:25", "11:27", "--json").stdout)
    assert again == {
        "device": "p1",
        "connected": [{"ingress": 11, "egress": 27}],
        "disconnected": [],
        "already_so": [{"ingress": 9, "egress": 25}],
    }
    result = device("disconnect", "p1", "9:25", "9:29")
    assert result.exit_code == 0
    assert "p1: 9 to 25 disconnected" in result.stdout
    assert "p1: 9 to 29 already so" in result.stdout
    assert device("disconnect", "p1", "--all").exit_code == 0
    assert switch.cross_connects() == frozenset()


def test_a_busy_port_is_refused(device, switch):
    switch.change([], pairs((9, 25)))
    result = device("connect", "p1", "10:25")
    assert result.exit_code == 1
    assert "port 25 is connected to 9" in result.stderr
    assert switch.cross_connects() == pairs((9, 25))


def test_wired_ports_are_warned_of(device):
    result = device("connect", "p1", "1:25")
    assert result.exit_code == 0
    assert "Warning: port 1 is wired to r1 hyt-r1-p1: a running controller" in result.stderr


def test_without_a_journal_it_says_so(device):
    assert "there is no journal at" in device("connect", "p1", "9:25").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("disconnect", "p1", "1:18"),
        ("disconnect", "p1", "2:30"),
        ("disconnect", "p1", "--all"),
        ("connect", "p1", "9:18"),
    ],
)
def test_the_controllers_cross_connects_are_not_touched(device, switch, journal, arguments):
    switch.change([], HELD)
    result = device(*arguments)
    assert result.exit_code == 1
    assert "belongs to the controller, for r1 and r2" in result.stderr
    assert switch.cross_connects() == HELD


def test_unless_forced(device, switch, journal):
    switch.change([], HELD)
    assert device("disconnect", "p1", "1:18", "--force").exit_code == 0
    assert switch.cross_connects() == pairs((2, 17))


def test_what_a_running_change_is_about_counts_as_the_controllers(device, switch, journal):
    opened, fabric = journal
    target = NetworkState(2, Topology(frozenset({Circuit(PlaneId(0), PortId(4), PortId(6))})))
    intent = {
        "current": state_record(fabric, NetworkState()),
        "target": state_record(fabric, target),
    }
    opened.write([entry(0.0, INTENDED, intent)])
    assert "for r3 and r4" in device("connect", "p1", "3:29").stderr
    opened.write([entry(1.0, "reconfiguration finished", {})])
    assert device("connect", "p1", "3:29").exit_code == 0


def test_another_fabrics_journal_is_refused(device, config, tmp_path):
    other = replace(load_configuration(config).fabric, name="other")
    with closing(SqliteJournal(str(tmp_path / "journal.db"))) as opened:
        opened.write(save_state(other, NetworkState(), 0.0, "started"))
    result = device("connect", "p1", "9:25")
    assert result.exit_code == 1
    assert "belongs to fabric 'other'" in result.stderr


def test_a_device_that_does_not_answer(device):
    for command in (("show",), ("connect", "9:25"), ("disconnect", "--all"), ("power",)):
        verb, *rest = command
        result = device(verb, "p2", *rest)
        assert result.exit_code == 3
        assert "p2: can't connect" in result.stderr


def test_a_lost_reply(device, switch, admin):
    admin.fault(FaultKind.LOSE_REPLY, times=1)
    result = device("connect", "p1", "9:25")
    assert result.exit_code == 4
    assert "a change was sent and the reply lost" in result.stderr
    assert switch.cross_connects() == pairs((9, 25))


def test_power(run, config, monkeypatch):
    """On the switch of docs/template-driver.md."""
    with craft_terminal()() as bench:
        document = yaml.safe_load(config.read_text())
        plane = bench.plane
        login = {"username": plane.login.username, "password_env": plane.login.password_env}
        document["planes"][0] |= {
            "driver": "template", "address": plane.address, "login": login, "options": plane.options
        }  # fmt: skip
        config.write_text(yaml.safe_dump(document, sort_keys=False))
        run("device", "connect", "p1", "9:25", "--config", str(config))
        result = run("device", "power", "p1", "9", "25-26", "--json", "--config", str(config))
        assert json.loads(result.stdout)["power_dbm"] == {"9": -3.0, "25": -4.5, "26": None}
        words = run("device", "power", "p1", "1", "26", "--config", str(config)).stdout
        assert "-3.0" in words
        assert "no reading" in words
        assert "r1 hyt-r1-p1" in words
        listed = run("device", "list", "--config", str(config)).stdout
        assert "bulk, one-way, power" in listed


def test_what_the_driver_can_not_read(device):
    result = device("alarms", "p1")
    assert result.exit_code == 1
    assert "driver polatis-scpi has no alarms" in result.stderr


def test_power_is_read_from_the_switch(device, switch):
    switch.change([], pairs((9, 25)))
    result = device("power", "p1", "9", "25")
    assert result.exit_code == 0
    assert "-2.0" in result.stdout
    assert "-3.2" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("connect", "p1"), 2),
        (("connect", "p1", "1-2"), 2),
        (("connect", "p1", "1:²"), 2),
        (("disconnect", "p1"), 2),
        (("disconnect", "p1", "1:17", "--all"), 2),
        (("power", "p1", "1-"), 2),
        (("connect", "p9", "1:17"), 1),
        (("connect", "r1", "1:17"), 1),
        (("show", "x"), 1),
    ],
)
def test_slips(device, arguments, status):
    assert device(*arguments).exit_code == status


def test_self_test(device, switch, admin, journal):
    switch.change([], HELD)
    moves = admin.counters().moves
    result = device("selftest", "p1", "--yes", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert "16 will be connected to 32 and taken down again" in result.stderr
    assert document["passed"] is True
    assert document["round_trip_skipped"] is None
    names = [step["name"] for step in document["steps"]]
    assert names[:6] == ["connect", "identity", "size", "cross-connects", "port states", "wiring"]
    assert names[-2:] == ["read back", "is free again"]
    assert admin.counters().moves == moves + 2
    assert switch.cross_connects() == HELD


def test_self_test_asks_first(run, config, switch, admin):
    moves = admin.counters().moves
    result = run("device", "selftest", "p1", "--config", str(config))
    assert "Go ahead?" in result.stderr
    assert result.exit_code == 1
    assert admin.counters().moves == moves


def test_self_test_that_only_reads(device, admin):
    moves = admin.counters().moves
    result = device("selftest", "p1", "--reads-only")
    assert result.exit_code == 0
    assert "no round trip: reads only" in result.stdout
    assert admin.counters().moves == moves


@pytest.mark.parametrize(
    ("fault", "step"), [(FaultKind.REFUSE, "set up"), (FaultKind.SILENT, "set up")]
)
def test_self_test_finds_faults(device, switch, admin, fault, step):
    admin.fault(fault)
    result = device("selftest", "p1", "--yes", "--json")
    assert result.exit_code == 1
    steps = {one["name"]: one for one in json.loads(result.stdout)["steps"]}
    assert steps[step]["ok"] is False
    assert steps["is free again"]["ok"] is True


def test_self_test_misses_what_the_controller_set_up(device, journal):
    result = device("selftest", "p1", "--yes", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    (failed,) = [step for step in document["steps"] if not step["ok"]]
    assert failed["name"] == "journal"
    assert "2 of the controller's cross-connects are missing: 1 to 18, 2 to 17" in failed["detail"]
    assert document["round_trip_skipped"] == "a read failed"


def test_self_test_of_a_full_switch(device, switch):
    switch.change([], pairs(*((port, 16 + port) for port in range(1, 17))))
    result = device("selftest", "p1", "--yes")
    assert result.exit_code == 0
    assert "no round trip: no free ingress and egress port" in result.stdout


def test_self_test_of_a_dead_switch(device):
    result = device("selftest", "p2", "--yes")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout


def test_as_a_process(config, switch):
    done = subprocess.run(
        [sys.executable, "-m", "apps.cli", "device", "show", "p1", "--json"],
        env={"HYDRA_CONFIG": str(config), "PATH": "/usr/bin:/bin"},
        cwd=CONFIGS.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["name"] == "p1"
