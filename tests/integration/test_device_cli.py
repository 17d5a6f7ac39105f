"""``hydra device`` on a ToR that is a real Open vSwitch bridge."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml
from click.testing import CliRunner

from apps.cli import hydra
from drivers.tor.ovs_ovsdb import OvsTor
from hydra.roles import PortVlans
from tests.waiting import PATIENCE_S

from .conftest import CONFIGS, DEMO_CONFIG
from .live import wait_until

pytestmark = pytest.mark.ovs

ADDRESS = "unix:/var/run/openvswitch/db.sock"
BRIDGE = "hytor-r1"
SERVERS, OPTICAL = ["hys-h11", "hys-h12"], ["hyt-r1-p1", "hyt-r1-p2"]
ELECTRICAL = "hyl-r1"
"""ToR of the single-homed fabric, whose ToRs otherwise have the demo's names and numbers."""
PARKED = PortVlans(frozenset({4000}))


@pytest.fixture(scope="module")
def bridge(switches):
    """The demo's first ToR alone: with its ports, but without connected devices."""
    ports = []
    for port in [*SERVERS, *OPTICAL, ELECTRICAL]:
        ports += ["--", "add-port", BRIDGE, port]
        ports += ["--", "set", "interface", port, "type=internal"]
    options = ["--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
    subprocess.run(["ovs-vsctl", "--timeout=120", "add-br", BRIDGE, *options, *ports], check=True)
    yield BRIDGE
    subprocess.run(["ovs-vsctl", "--timeout=120", "del-br", BRIDGE], check=True)


@pytest.fixture
def tor(bridge):
    driver = OvsTor("r1", ADDRESS, BRIDGE, timeout_s=PATIENCE_S)
    driver.set_vlans(
        {port: PortVlans(frozenset({100}), 10) for port in SERVERS}
        | {OPTICAL[0]: PortVlans(frozenset({100, 199, 4000})), OPTICAL[1]: PARKED}
    )
    yield driver
    driver.close()


@pytest.fixture
def device(tor, tmp_path):
    return commands(DEMO_CONFIG, tmp_path)


def commands(shipped, tmp_path):
    """``hydra device …`` on a shipped fabric."""
    document = yaml.safe_load(shipped.read_text())
    document["controller"]["journal"] = str(tmp_path / "journal.db")
    config = tmp_path / "fabric.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    return lambda *arguments: CliRunner().invoke(
        hydra, ["device", *arguments, "--config", str(config)]
    )


def test_show(device):
    ports = json.loads(device("show", "r1", "--json").stdout)["ports"]
    assert [port["port"] for port in ports] == SERVERS + OPTICAL
    assert [port["to"] for port in ports] == ["h11", "h12", "p1", "p2"]
    assert ports[0]["native"] == 10
    assert ports[2]["tagged"] == [100, 199, 4000]
    assert "100,199,4000" in device("show", "r1").stdout


def test_show_of_a_tor_with_the_electrical_network_behind_it(tor, tmp_path):
    tor.set_vlans({ELECTRICAL: PortVlans(frozenset({10}))})
    device = commands(CONFIGS / "single-homed.yaml", tmp_path)
    ports = json.loads(device("show", "r1", "--json").stdout)["ports"]
    assert [(port["port"], port["to"], port["tagged"]) for port in ports[2:3]] == [
        (ELECTRICAL, "electrical", [10])
    ]
    assert "of 5 ports" in device("selftest", "r1", "--yes").stdout


def test_a_tor_that_openflow_controls(bridge, tmp_path):
    """Links and counters can be read; there are no VLANs to set."""
    device = commands(CONFIGS / "openflow-only.yaml", tmp_path)
    document = json.loads(device("show", "r1", "--json").stdout)
    ports = {port["port"]: port for port in document["ports"]}
    assert list(ports) == [*SERVERS, ELECTRICAL, *OPTICAL]
    assert document["capabilities"]["labels"] is True
    assert {(port["native"], tuple(port["tagged"])) for port in ports.values()} == {(None, ())}
    before = ports[SERVERS[0]]["counters"]
    up = subprocess.run(["ip", "link", "set", "dev", SERVERS[0], "up"], check=False)
    assert up.returncode == 0
    frame = ["in_port=controller", f"packet={'ff' * 12}08060000{'00' * 46}"]
    action = f"actions=output:{SERVERS[0]}"
    send = ["ovs-ofctl", "-O", "OpenFlow13", "packet-out", bridge, ",".join([*frame, action])]
    subprocess.run(send, check=True)
    wait_until(lambda: frames_out(device) == before["tx_frames"] + 1)
    assert json.loads(device("show", "r1", "--json").stdout)["ports"][0]["up"] is True
    result = device("selftest", "r1", "--yes", "--json")
    assert result.exit_code == 0, result.output
    tested = json.loads(result.stdout)
    steps = {step["name"]: step["detail"] for step in tested["steps"]}
    assert list(steps) == ["connect", "ports", "as configured", "links", "counters"]
    assert steps["as configured"] == f"{len(ports)} ports"
    assert tested["round_trip_skipped"] == "the ports have no VLANs"
    absent = device("show", "r2")
    assert absent.exit_code != 0
    assert "hytor-r2.mgmt" in absent.stderr


def frames_out(device):
    port = json.loads(device("show", "r1", "--json").stdout)["ports"][0]
    return port["counters"]["tx_frames"]


def test_self_test(device, tor):
    before = tor.vlans(SERVERS + OPTICAL)
    result = device("selftest", "r1", "--yes", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["passed"] is True
    assert document["round_trip_skipped"] is None
    assert f"port {OPTICAL[1]}, which carries only the parking VLAN" in result.stderr
    assert "VLAN 198" in result.stderr  # 199 is in use
    assert [step["name"] for step in document["steps"]][-6:] == [
        "tag", "read back", "as written", "untag", "read back", "as written"
    ]  # fmt: skip
    assert tor.vlans(SERVERS + OPTICAL) == before


def test_self_test_of_a_tor_without_a_free_port(device, tor):
    tor.set_vlans({OPTICAL[1]: PortVlans(frozenset({101, 4000}))})
    result = device("selftest", "r1", "--yes")
    assert result.exit_code == 0
    assert "no round trip: no optical port without a circuit" in result.stdout


def test_a_bridge_that_does_not_exist(device):
    result = device("show", "r2")
    assert result.exit_code == 1
    assert "there is no bridge hytor-r2" in result.stderr
    assert device("selftest", "r2", "--yes").exit_code == 1
