"""``hydra doctor``: findings of a configuration, its devices, the controller and this machine."""

import ctypes
import json
import resource
from types import SimpleNamespace

import pytest
import yaml

from apps.cli import doctor
from mininet_scenarios.emulators.ports import free_port
from tests.conformance.devices import emulated

from . import DEMO

pytestmark = pytest.mark.takes(15)


@pytest.fixture
def configuration(tmp_path):
    """Writes the demo's configuration with one plane, and free ports."""

    def write(address: str, **controller: object):
        document = yaml.safe_load(DEMO.read_text())
        document["controller"] = {
            "journal": str(tmp_path / "journal.db"),
            "rest": f"127.0.0.1:{free_port()}",
            "openflow": f"127.0.0.1:{free_port()}",
            **controller,
        }
        document["planes"][0] |= {"names": "p1", "address": address}
        document["wiring"][0]["planes"] = "p1"
        for rack in document["racks"]:
            rack["tor"]["address"] = f"unix:{tmp_path}/no-ovsdb"
        path = tmp_path / "fabric.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@pytest.fixture
def examined(run):
    """Findings by subject, and the exit status."""

    def examine(*arguments):
        done = run("doctor", "--json", *map(str, arguments))
        found = {}
        for one in json.loads(done.stdout):
            found.setdefault(one["what"], []).append(one)
        return found, done.exit_code

    return examine


def states(found, what):
    return [one["state"] for one in found[what]]


def test_devices_that_answer_are_told_from_those_that_do_not(configuration, examined):
    with emulated("polatis-scpi")() as bench:
        path = configuration(bench.plane.address)
        found, status = examined(path)
    assert status == 1
    assert states(found, "configuration") == ["ok"]
    assert states(found, "plane p1") == ["ok"]
    assert states(found, "ToR r1") == states(found, "ToR r4") == ["PROBLEM"]
    assert found["ToR r1"][0]["remedy"].endswith(f"hydra device show r1 --config {path}")
    assert states(found, "controller") == ["warning"]
    assert found["controller"][0]["remedy"] == f"hydra run --config {path}"
    free = [name for name in found if name.startswith("port ")]
    assert [states(found, name) for name in free] == [["ok"], ["ok"]]


def test_a_file_that_can_not_be_used_is_told_with_all_its_problems(tmp_path, run, examined):
    path = tmp_path / "fabric.yaml"
    path.write_text(
        DEMO.read_text()
        .replace("max_hops: 3", "max_hpos: 3")
        .replace("driver: polatis-scpi", "driver: polatis")
    )
    found, status = examined(path)
    assert status == 1
    assert len(states(found, "configuration")) == 2
    assert {"clock", "memory", "configuration"} == found.keys()
    listed = run("doctor", str(path))
    assert "max_hpos" in listed.stdout
    assert "correct the problems in" in listed.stdout


def test_files_that_a_start_would_refuse_are_problems(tmp_path, configuration, examined):
    path = configuration("127.0.0.1:1", tokens=str(tmp_path / "no-tokens.json"))
    found, status = examined(path)
    assert (status, states(found, "configuration")) == (1, ["PROBLEM"])
    assert "no-tokens.json" in found["configuration"][0]["finding"]


def test_a_controller_is_asked_what_is_wrong(configuration, examined, rest, service):
    found, _ = examined(configuration("127.0.0.1:1"), "--url", rest.url)
    assert "PROBLEM" in states(found, "controller")
    assert any("hydra" in one["remedy"] for one in found["controller"])
    assert not [name for name in found if name.startswith("port ")]


def test_a_port_that_is_taken_is_a_problem(configuration, examined, rest):
    """Another program's REST: the controller's own port for OpenFlow."""
    taken = rest.url.partition("://")[2]
    found, _ = examined(configuration("127.0.0.1:1", openflow=taken))
    (port,) = found[f"port {taken.rpartition(':')[2]}"]
    assert port["state"] == "PROBLEM"
    assert "change controller.openflow" in port["finding"]


def test_few_descriptors_and_a_short_queue_are_told(monkeypatch, tmp_path, configuration, examined):
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (64, 64))
    (tmp_path / "somaxconn").write_text("3\n")
    monkeypatch.setattr(doctor, "_SOMAXCONN", tmp_path / "somaxconn")
    found, _ = examined(configuration("127.0.0.1:1"))
    assert states(found, "descriptors") == ["PROBLEM"]
    assert "raise LimitNOFILE" in found["descriptors"][0]["finding"]
    assert states(found, "listen queue") == ["warning"]
    assert found["listen queue"][0]["remedy"] == "sysctl -w net.core.somaxconn=12"


@pytest.mark.parametrize(("told", "state"), [(0, "ok"), (5, "warning"), (-1, "warning")])
def test_a_clock_that_nothing_keeps_right_is_told(monkeypatch, told, state):
    monkeypatch.setattr(
        ctypes, "CDLL", lambda *_, **__: SimpleNamespace(adjtimex=lambda _buffer: told)
    )
    assert doctor._clock().state == state
