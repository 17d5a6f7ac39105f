"""After any failure, every rack pair keeps a working path, and the operator gets a report."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from mininet_scenarios.stage.controller_client import ControllerError
from mininet_scenarios.stage.controller_process import ALL_THERE
from mininet_scenarios.stage.streams import paced_stream

from .live import on_each_substrate, on_one_substrate, silent, wait_until

pytestmark = [pytest.mark.takes(120), pytest.mark.ovs]


@on_each_substrate
def test_what_stands_on_silent_devices_is_kept_over_a_restart(network):
    """A device that can't be read at the start is unknown, not gone."""
    first, second = network.reserve("r1", "r2"), network.reserve("r1", "r3")

    def kept():
        assert network.kept_path(first) == network.planes_between("r1", "r2") == ("p1",)
        assert network.kept_path(second) == network.planes_between("r1", "r3") == ("p2",)

    kept()
    ocs, server = network.testbed.ocs("p2"), network.fabric.server_by_name["h11"]
    tor = network.fabric.racks[server.rack].tor
    bridge = tor.bridge if server.vswitch is None else server.vswitch.bridge
    ocs.kill()
    try:
        with silent(bridge):
            network.process.kill()
            network.process.start(ready=False)
            wait_until(lambda: network.api("GET", "/readyz").status_code == 200)
            assert network.conditions("optical-switch-down")
            assert network.conditions("switch-not-connected")
            kept()
            with network.testbed.frames_at("h11", "circuits", expression="vlan and ip") as optical:
                assert network.reaches("h11", "h31", count=5)
            assert len(optical.frames()) >= 10
            assert network.everyone_reaches_everyone()
    finally:
        ocs.start()
        ocs.wait_until_ready()
    wait_until(network.devices_are_connected, 60)
    wait_until(network.everything_is_confirmed, 70)
    kept()
    assert not network.conditions("reservation-failed")


@on_each_substrate
def test_a_switch_without_room_for_the_rules_of_a_circuit(network):
    """The switch's refusal is reported, its server gets no promises, and sends electrically; then
    the switch has room again.
    """
    server = network.fabric.server_by_name["h11"]
    tor = network.fabric.racks[server.rack].tor
    name, bridge = ("r1", tor.bridge) if server.vswitch is None else ("h11", server.vswitch.bridge)
    words = f"{name} refuses the rules of r1 - r2 ("
    why = "no room for a further rule, table 5 (circuits)"
    command = ("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge, "table=5")
    held = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    size = f"flow_limit={held.count('cookie=')}"
    limit = ["--", "--id=@t", "create", "Flow_Table", size, "overflow_policy=refuse"]
    vsctl(*limit, "--", "set", "bridge", bridge, "flow_tables:5=@t")
    try:
        reservation = network.reserve("r1", "r2")
        assert reservation["state"] == "failed"
        assert words in reservation["reason"] and why in reservation["reason"]
        wait_until(lambda: network.planes_between("r1", "r2") == ())
        # Until an OpenFlow ToR is confirmed, plans leave its ports out.
        wait_until(network.everything_is_confirmed)
        with pytest.raises(ControllerError, match=re.escape(words)):
            network.change("r1", "r2")
        if server.vswitch is not None:  # the ToR's table fits again once the path is withdrawn
            (refused,) = network.conditions("rules-refused")
            assert refused["subjects"] == [bridge]
            assert words in refused["what"] and why in refused["what"]
            assert {"src": "r1", "dst": "r2"} in refused["pairs"]
        assert network.everyone_reaches_everyone()
    finally:
        vsctl("remove", "bridge", bridge, "flow_tables", "5")
    wait_until(lambda: not network.conditions("rules-refused"), 90)
    wait_until(network.everything_is_confirmed)
    assert network.reserve("r1", "r2")["state"] == "active"
    assert network.reaches("h11", "h21")


@on_each_substrate
def test_a_fibre_cut_while_the_controller_is_away_is_not_used_after_its_start(network):
    reservation = network.reserve("r1", "r2")
    assert network.kept_path(reservation) == ("p1",)
    assert network.process.stop() == 0
    cut = "hyc-p1-1"
    subprocess.run(["ip", "link", "set", "dev", cut, "down"], check=True)
    try:
        told = len(network.process.log.read_text())
        network.process.start()
        wait_until(lambda: network.planes_between("r1", "r2") == ("p2",))
        assert "carrier lost at r1:hyt-r1-p1" in network.process.log.read_text()[told:], (
            "it was no probe that found it"
        )
        assert network.everyone_reaches_everyone()
    finally:
        subprocess.run(["ip", "link", "set", "dev", cut, "up"], check=True)


def circuits_lost(network):
    (line,) = re.findall(
        "^hydra_circuits_lost_total (.*)$", network.api("GET", "/metrics").text, re.M
    )
    return float(line)


@on_each_substrate
def test_a_cut_fibre_moves_the_reservation(network):
    reservation = network.reserve("r1", "r2")
    assert network.kept_path(reservation) == ("p1",)
    before = circuits_lost(network)
    cut = "hyc-p1-1"
    subprocess.run(["ip", "link", "set", "dev", cut, "down"], check=True)
    wait_until(lambda: network.client.path_between("r1", "r2").planes == ("p2",))
    assert network.reaches("h11", "h21")
    wait_until(lambda: network.path_of(reservation) == ("active", ("p2",)))  # once the path is up
    ports = {port["port"]: port for port in network.get("/v1/quarantine")["ports"]}
    assert ports.keys() == {"hyt-r1-p1", "hyt-r2-p1"}
    assert "carrier lost at r1:hyt-r1-p1" in ports["hyt-r1-p1"]["reason"]
    assert circuits_lost(network) == before + 1
    (lost,) = network.conditions("port-quarantined")
    assert lost["subjects_total"] == 2
    assert "has other paths" in lost["done"]
    network.process.restart()
    assert network.conditions("port-quarantined") == [lost], "since then, and not since the start"
    told = [one["text"] for one in network.get("/v1/history")["happenings"]]
    assert any(one.startswith("carrier lost at r1:hyt-r1-p1: ") for one in told)
    assert any("asked for by circuit lost, is done" in one for one in told)
    why = network.get("/v1/explanations/circuits/r1/r2")["lines"]
    assert any("carrier lost at r1:hyt-r1-p1" in line for line in why)
    kept = network.get("/v1/quarantine")["ports"]
    assert [port["since_unix_s"] for port in kept] == [p["since_unix_s"] for p in ports.values()]
    for port in ports:
        cleared = network.api("DELETE", f"/v1/quarantine/{port[4:6]}/{port}")
        assert cleared.status_code == 200
    assert network.get("/v1/quarantine")["ports"] == []
    assert not network.conditions("port-quarantined")


@on_each_substrate
def test_a_port_that_its_tor_has_lost_leads_nowhere(network):
    """A person deletes the port from the switch, or pulls the line card: no port is reported as
    down.
    """
    name = "hyt-r1-p1"
    bridge = vsctl("port-to-br", name)
    number = vsctl("get", "interface", name, "ofport")
    vlans = [f"{key}={vsctl('get', 'port', name, key)}" for key in ("vlan_mode", "trunks", "tag")]
    reservation = network.reserve("r1", "r2")
    assert network.kept_path(reservation) == ("p1",)
    vsctl("del-port", bridge, name)
    try:
        wait_until(lambda: network.planes_between("r1", "r2") == ("p2",))
        wait_until(lambda: network.reaches("h11", "h21"))
        reasons = {one["port"]: one["reason"] for one in network.get("/v1/quarantine")["ports"]}
        assert "carrier lost at r1:hyt-r1-p1" in reasons[name]
    finally:
        again = ["add-port", bridge, name, "--", "set", "port", name, *vlans]
        vsctl(*again, "--", "set", "interface", name, f"ofport_request={number}")
    network.api("DELETE", f"/v1/quarantine/r1/{name}")
    body = {"demand": [{"src": "r1", "dst": "r3", "mbps": 80}], "use_planes": ["p1"]}
    wait_until(lambda: network.api("POST", "/v1/plan", json=body).json()["connect"])


def vsctl(*arguments):
    done = subprocess.run(["ovs-vsctl", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def ids_of(listed):
    return [one["id"] for one in listed["reconfigurations"]]


@on_one_substrate
def test_a_killed_controller_is_not_missed(network):
    """SIGKILL under traffic; the next controller adopts the standing circuits and moves nothing."""
    reservation = network.reserve("r1", "r2")
    epoch = network.get("/v1/topology")["epoch"]
    made = ids_of(network.get("/v1/reconfigurations"))
    with paced_stream(network.stage, "h11", "h21", pps=200, payload_bytes=200) as udp:
        network.process.kill()
        assert network.reaches("h31", "h41")
        network.process.start()
        result = udp.stop()
    assert network.lost_but_in_queues(result) == 0
    topology = network.get("/v1/topology")
    assert topology["epoch"] == epoch
    assert len(topology["circuits"]) == 1
    assert ids_of(network.get("/v1/reconfigurations")) == made
    assert network.get(f"/v1/reservations/{reservation['id']}")["state"] == "active"


@on_one_substrate
def test_the_data_plane_outlives_a_stopped_controller(network):
    network.reserve("r1", "r2")
    assert network.process.stop() == 0
    assert network.everyone_reaches_everyone()
    network.process.start()


@on_each_substrate
def test_a_switch_that_is_not_connected(network):
    """The switch that steers for h11: its vswitch, or its rack's ToR."""
    vswitch = network.fabric.server_by_name["h11"].vswitch
    tor = network.fabric.racks[0].tor
    bridge = tor.bridge if vswitch is None else vswitch.bridge
    name = "r1" if vswitch is None else bridge
    target = subprocess.run(
        ["ovs-vsctl", "get-controller", bridge], check=True, capture_output=True, text=True
    ).stdout.strip()
    # Not del-controller: without any controller, a bridge loses its rules as well.
    subprocess.run(["ovs-vsctl", "set-controller", bridge, "tcp:127.0.0.1:1"], check=True)
    try:

        def gone():
            return any(
                d["name"] == name and not d["connected"]
                for d in network.get("/v1/devices")["devices"]
            )

        wait_until(gone)
        (away,) = network.conditions("switch-not-connected")
        assert away["subjects"] == [name]
        body = {"src": "h11", "dst": "h21", "bandwidth_mbps": 10}
        answer = network.api("POST", "/v1/reservations", json=body)
        assert answer.status_code == 503
        assert f"switch {name} is not connected" in answer.json()["detail"]
        assert network.get("/v1/topology")["circuits"] == []
        assert network.everyone_reaches_everyone()
    finally:
        subprocess.run(["ovs-vsctl", "set-controller", bridge, target], check=True)
    wait_until(lambda: not gone() and network.api("GET", ALL_THERE).status_code == 200)
    assert network.reserve("h11", "h21")["state"] == "active"


@on_one_substrate
def test_ctrl_c_ends_it_cleanly(network):
    os.kill(network.process.pid, signal.SIGINT)
    wait_until(lambda: not network.process.running)
    assert network.process.stop() == 0
    assert network.everyone_reaches_everyone()
    network.process.start()
