"""Whatever dies, every rack pair keeps a working path, and the operator is told what died."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.stage.controller_client import ControllerError
from mininet_scenarios.stage.controller_process import ALL_THERE
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed.capture import Capture, JointCapture
from tests.waiting import PATIENCE_S

from .live import live, on_each_substrate, silent, wait_until

pytestmark = [pytest.mark.takes(200), pytest.mark.ovs, on_each_substrate]


@pytest.fixture(scope="module")
def running(demo_testbed, tmp_path_factory):
    # No audit: it would mend what tests do to devices, now and then in the middle of one.
    with live(demo_testbed, tmp_path_factory.mktemp("live"), {"audit_interval_s": 0}) as network:
        yield network


@pytest.fixture
def network(running):
    """One controller for all of the module; each test leaves it as it was found."""
    yield running
    for plane in running.fabric.planes:
        running.testbed.ocs(plane.name).admin.clear()
    running.give_everything_back()


@pytest.mark.parametrize(
    ("fault", "metric", "step", "kind"),
    [
        (FaultKind.REFUSE, "step", "mirrors", "refused"),
        (FaultKind.SILENT, "step", "mirrors", "refused"),
        (FaultKind.NO_LIGHT, "gate", "carrier", "no-carrier"),
        (FaultKind.MUTE, "step", "mirrors", "not-connected"),
    ],
)
def test_a_plane_that_fails_is_passed_over(network, fault, metric, step, kind):
    def counted():
        name = f'hydra_{metric}_failures_total{{kind="{kind}",step="{step}"}} '
        lines = network.api("GET", "/metrics").text.splitlines()
        return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    before = counted()
    network.testbed.ocs("p1").admin.fault(fault)
    reservation = network.reserve("r1", "r2")
    assert reservation["state"] == "active"
    assert network.client.path_between("r1", "r2").planes == ("p2",)
    failed = [r for r in network.client.reconfigurations() if r.state == "partial"]
    assert failed and "p1" in failed[0].reason
    told = network.get(f"/v1/reconfigurations/{failed[0].id}")
    assert {(one["step"], one["kind"]) for one in told["troubles"]} == {(step, kind)}
    assert counted() - before == len(told["troubles"]) > 0
    assert network.everyone_reaches_everyone()


def test_both_planes_refuse(network):
    for plane in ("p1", "p2"):
        network.testbed.ocs(plane).admin.fault(FaultKind.REFUSE)
    reservation = network.reserve("r1", "r2")
    assert reservation["state"] == "failed"
    assert "OCS p1" in reservation["reason"]
    assert "OCS p2" in reservation["reason"]
    worst = wrong(network, "reservation-failed")[-1]
    assert worst["reservations"] == [reservation["id"]]
    assert worst["pairs"] == [{"src": "r1", "dst": "r2"}]
    assert network.get("/v1/topology")["circuits"] == []
    assert network.everyone_reaches_everyone()


def test_a_lost_reply_is_settled_by_reading_back(network):
    network.testbed.ocs("p1").admin.fault(FaultKind.LOSE_REPLY, times=1)
    assert network.reserve("r1", "r2")["state"] == "active"
    assert network.reaches("h11", "h21")


def test_planes_that_are_down(network):
    for plane in ("p1", "p2"):
        network.testbed.ocs(plane).admin.fault(FaultKind.DEAD)
    reservation = network.reserve("r1", "r2")
    assert reservation["state"] == "failed"
    again = network.api(
        "POST", "/v1/reservations", json={"src": "r1", "dst": "r2", "bandwidth_mbps": 10}
    )
    assert again.status_code == 503
    assert again.headers["content-type"] == "application/problem+json"
    assert "OCS p1 is down" in again.json()["detail"]
    assert network.everyone_reaches_everyone()


def test_an_ocs_that_dies_with_a_circuit(network):
    """Its mirrors stand, so its circuit stays in use; what is new goes to the other plane."""
    first = network.reserve("r1", "r2")
    assert first["path"]["hops"][0]["plane"] == "p1"
    ocs = network.testbed.ocs("p1")
    ocs.kill()
    try:
        with network.testbed.frames_at("h11", "circuits", expression="vlan and ip") as optical:
            assert network.reaches("h11", "h21", count=5)
        assert len(optical.frames()) >= 10
        assert network.reserve("r3", "r4")["state"] == "active"
        assert network.planes_between("r3", "r4") == ("p2",)
        body = {"demand": [{"src": "r1", "dst": "r3", "mbps": 80}], "use_planes": ["p1"]}
        network.api("POST", "/v1/reconfigurations", json=body, headers={"Prefer": "wait=20"})
        assert network.planes_between("r1", "r3") == ()
        assert network.planes_between("r3", "r4") == ("p2",)
        assert kept_path(network, first) == network.planes_between("r1", "r2") != ()
        assert network.everyone_reaches_everyone()
        (down,) = wrong(network, "optical-switch-down")
        assert down["subjects"] == ["p1"]
        assert wrong(network, "switch-not-connected") == wrong(network, "unconfirmed") == []
        assert {"src": "r1", "dst": "r2"} in down["pairs"]
        assert first["id"] in down["reservations"]
    finally:
        ocs.start()
        ocs.wait_until_ready()

    wait_until(network.devices_are_connected)
    wait_until(lambda: not wrong(network, "optical-switch-down"))
    assert kept_path(network, first) == network.planes_between("r1", "r2") != ()
    assert network.everyone_reaches_everyone()


def test_what_stands_on_silent_devices_is_kept_over_a_restart(network):
    """What the controller can't read at its start is unknown, not gone."""
    first, second = network.reserve("r1", "r2"), network.reserve("r1", "r3")

    def kept():
        assert kept_path(network, first) == network.planes_between("r1", "r2") == ("p1",)
        assert kept_path(network, second) == network.planes_between("r1", "r3") == ("p2",)

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
            assert wrong(network, "optical-switch-down")
            assert wrong(network, "switch-not-connected")
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
    assert not wrong(network, "reservation-failed")


def test_a_switch_without_room_for_the_rules_of_a_circuit(network):
    """It is told in words, promises nothing, and sends electrically; then it has room again."""
    server = network.fabric.server_by_name["h11"]
    tor = network.fabric.racks[server.rack].tor
    name, bridge = ("r1", tor.bridge) if server.vswitch is None else ("h11", server.vswitch.bridge)
    words = f"{name} refuses the rules of r1 - r2 ("
    why = "no room for another rule, table 5 (circuits)"
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
        if server.vswitch is not None:  # a ToR's table fits again once the path is withdrawn
            (refused,) = wrong(network, "rules-refused")
            assert refused["subjects"] == [bridge]
            assert words in refused["what"] and why in refused["what"]
            assert {"src": "r1", "dst": "r2"} in refused["pairs"]
        assert network.everyone_reaches_everyone()
    finally:
        vsctl("remove", "bridge", bridge, "flow_tables", "5")
    wait_until(lambda: not wrong(network, "rules-refused"), 90)
    wait_until(network.everything_is_confirmed)
    assert network.reserve("r1", "r2")["state"] == "active"
    assert network.reaches("h11", "h21")


def test_what_nobody_reserved_stays_on_an_ocs_that_died(network):
    def ask(src, dst, **options):
        body = {"demand": [{"src": src, "dst": dst, "mbps": 80}], **options}
        network.api("POST", "/v1/reconfigurations", json=body, headers={"Prefer": "wait=20"})

    ask("r1", "r2", use_planes=["p1"])
    assert network.planes_between("r1", "r2") == ("p1",)
    ocs = network.testbed.ocs("p1")
    ocs.kill()
    try:
        assert network.get("/v1/drift")["silent"] == ["p1"]
        ask("r3", "r4")
        assert network.planes_between("r3", "r4") == ("p2",)
        assert network.planes_between("r1", "r2") == ("p1",)
        only = network.api("POST", "/v1/plan", json={"demand": [], "planes": ["p1"]})
        assert (only.status_code, "p1" in only.json()["detail"]) == (503, True)
        assert network.everyone_reaches_everyone()
    finally:
        ocs.start()
        ocs.wait_until_ready()


def test_a_fibre_cut_while_the_controller_is_away_is_not_used_after_its_start(network):
    reservation = network.reserve("r1", "r2")
    assert kept_path(network, reservation) == ("p1",)
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


def wrong(network, kind):
    """What is wrong in this way, as the controller tells it; the newest last."""
    conditions = network.get("/v1/conditions")["conditions"]
    return [one for one in conditions if one["kind"] == kind]


def circuits_lost(network):
    (line,) = re.findall(
        "^hydra_circuits_lost_total (.*)$", network.api("GET", "/metrics").text, re.M
    )
    return float(line)


def kept_path(network, reservation):
    """The planes that a reservation says it is on."""
    state, planes = path_of(network, reservation)
    assert state == "active"
    return planes


def path_of(network, reservation):
    """State of a reservation, and the planes that it says it is on."""
    found = network.get(f"/v1/reservations/{reservation['id']}")
    return found["state"], tuple(hop["plane"] for hop in (found["path"] or {"hops": ()})["hops"])


def test_somebody_elses_cross_connect_is_passed_over_and_taken_off_our_port_later(network):
    # A plane that is read again for an earlier test's sake would lose the cross-connect early.
    wait_until(lambda: not wrong(network, "unconfirmed"))
    ocs = network.testbed.ocs("p1").admin
    ocs.block_port(1)
    try:
        assert ocs.counters().cross_connects == 1
        assert network.reserve("r1", "r2")["state"] == "active"
        assert network.planes_between("r1", "r2") == ("p2",), "a change pushes nobody out"
        wait_until(lambda: ocs.counters().cross_connects == 0)
        assert network.everyone_reaches_everyone()
    finally:
        ocs.unblock()


def test_a_cut_fibre_moves_the_reservation(network):
    reservation = network.reserve("r1", "r2")
    assert kept_path(network, reservation) == ("p1",)
    before = circuits_lost(network)
    cut = "hyc-p1-1"
    subprocess.run(["ip", "link", "set", "dev", cut, "down"], check=True)
    wait_until(lambda: network.client.path_between("r1", "r2").planes == ("p2",))
    assert network.reaches("h11", "h21")
    wait_until(lambda: path_of(network, reservation) == ("active", ("p2",)))  # once it is up
    ports = {port["port"]: port for port in network.get("/v1/quarantine")["ports"]}
    assert ports.keys() == {"hyt-r1-p1", "hyt-r2-p1"}
    assert "carrier lost at r1:hyt-r1-p1" in ports["hyt-r1-p1"]["reason"]
    assert circuits_lost(network) == before + 1
    (lost,) = wrong(network, "port-quarantined")
    assert lost["subjects_total"] == 2
    assert "has other paths" in lost["done"]
    network.process.restart()
    assert wrong(network, "port-quarantined") == [lost], "since then, and not since the start"
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
    assert not wrong(network, "port-quarantined")


def test_a_port_that_its_tor_has_lost_leads_nowhere(network):
    """Somebody deletes it from the switch, or pulls the line card: no port is told as down."""
    name = "hyt-r1-p1"
    bridge = vsctl("port-to-br", name)
    number = vsctl("get", "interface", name, "ofport")
    vlans = [f"{key}={vsctl('get', 'port', name, key)}" for key in ("vlan_mode", "trunks", "tag")]
    reservation = network.reserve("r1", "r2")
    assert kept_path(network, reservation) == ("p1",)
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


@pytest.mark.quiet("asks how soon a pair is elsewhere, while a change waits for 5 s", takes_s=35)
def test_a_cut_fibre_does_not_wait_for_a_change_that_waits_for_a_mute_switch(network):
    network.reserve("r1", "r2")
    assert network.planes_between("r1", "r2") == ("p1",)
    network.testbed.ocs("p2").admin.fault(FaultKind.MUTE)
    cut = "hyc-p1-1"
    try:
        with paced_stream(
            network.stage, "h11", "h21", pps=200, payload_bytes=200, count=400
        ) as udp:
            change = network.begin_change("r3", "r4", "p2")
            wait_until(lambda: network.state_of(change) == "moving")
            subprocess.run(["ip", "link", "set", "dev", cut, "down"], check=True)
            result = udp.finish(PATIENCE_S)
            assert network.state_of(change) == "moving"
        assert result.max_gap_ms < 1000
        assert result.lost < 200
        network.testbed.ocs("p2").admin.clear()
        wait_until(lambda: network.planes_between("r1", "r2") == ("p2",))
    finally:
        subprocess.run(["ip", "link", "set", "dev", cut, "up"], check=True)
    assert network.everyone_reaches_everyone()


def test_a_killed_controller_is_not_missed(network):
    """SIGKILL under traffic; the next one adopts what stands and moves nothing."""
    reservation = network.reserve("r1", "r2")
    epoch = network.get("/v1/topology")["epoch"]
    with paced_stream(network.stage, "h11", "h21", pps=500, payload_bytes=200) as udp:
        network.process.kill()
        assert network.reaches("h31", "h41")
        network.process.start()
        result = udp.stop()
    assert network.lost_but_in_queues(result) == 0
    topology = network.get("/v1/topology")
    assert topology["epoch"] == epoch
    assert len(topology["circuits"]) == 1
    assert network.get("/v1/reconfigurations")["reconfigurations"] == []
    assert network.get(f"/v1/reservations/{reservation['id']}")["state"] == "active"


def test_the_data_plane_outlives_a_stopped_controller(network):
    network.reserve("r1", "r2")
    assert network.process.stop() == 0
    assert network.everyone_reaches_everyone()
    network.process.start()


def test_a_switch_that_is_not_connected(network):
    """The one that steers for h11: its own, or its rack's."""
    vswitch = network.fabric.server_by_name["h11"].vswitch
    tor = network.fabric.racks[0].tor
    bridge = tor.bridge if vswitch is None else vswitch.bridge
    name = "r1" if vswitch is None else bridge
    target = subprocess.run(
        ["ovs-vsctl", "get-controller", bridge], check=True, capture_output=True, text=True
    ).stdout.strip()
    # Not del-controller: with its last controller, a bridge loses its rules as well.
    subprocess.run(["ovs-vsctl", "set-controller", bridge, "tcp:127.0.0.1:1"], check=True)
    try:

        def gone():
            return any(
                d["name"] == name and not d["connected"]
                for d in network.get("/v1/devices")["devices"]
            )

        wait_until(gone)
        (away,) = wrong(network, "switch-not-connected")
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


def test_ctrl_c_ends_it_cleanly(network):
    os.kill(network.process.pid, signal.SIGINT)
    wait_until(lambda: not network.process.running)
    assert network.process.stop() == 0
    assert network.everyone_reaches_everyone()
    network.process.start()


@pytest.mark.parametrize("lie", [FaultKind.LOOP, FaultKind.SWAP, FaultKind.ONE_WAY])
def test_a_plane_that_lies_disturbs_no_path_that_stands(network, lie):
    """It says that all is as it was told, and leads the light elsewhere; probes find it."""
    assert network.change("r1", "r3", "p2").state == "done"
    network.testbed.ocs("p1").admin.fault(lie)
    with paced_stream(network.stage, "h11", "h31", pps=500, payload_bytes=200) as udp:
        reservation = network.reserve("r1", "r2")
        result = udp.stop()
    assert reservation["state"] in {"active", "failed"}
    assert network.planes_between("r1", "r2") != ("p1",)
    assert network.planes_between("r1", "r3") == ("p2",)
    assert network.lost_but_in_queues(result) == 0
    assert network.everyone_reaches_everyone()


def test_a_plane_that_broadcasts_disturbs_no_path_that_stands(network):
    """What it is to lead from a to b comes out at c, too, where another path arrives."""
    assert network.change("r3", "r4", "p1").state == "done"
    network.testbed.ocs("p1").admin.fault(FaultKind.BROADCAST)
    with (
        paced_stream(network.stage, "h31", "h41", pps=500, payload_bytes=200) as there,
        paced_stream(network.stage, "h42", "h32", pps=500, payload_bytes=200) as back,
    ):
        change = network.begin_change("r1", "r2", "p1")
        wait_until(lambda: network.state_of(change) == "done")  # its light arrives
        tors = [
            Capture(f"hyt-{rack}-p1", expression="vlan and udp and src host 10.0.1.1")
            for rack in ("r3", "r4")
        ]
        with (
            JointCapture(tors) as copies,
            network.testbed.frames_at("h31", expression="udp and src host 10.0.1.1") as foreign,
            network.testbed.frames_at("h41", expression="udp and src host 10.0.1.1") as others,
            paced_stream(network.stage, "h11", "h21", pps=500, payload_bytes=200, count=500) as own,
        ):
            theirs = own.finish(PATIENCE_S)
        results = there.stop(), back.stop(), theirs
    assert len(copies.frames()) >= 500, "the plane does broadcast"
    assert not foreign.frames() + others.frames(), "what is for others reaches no server"
    assert network.planes_between("r1", "r2") == network.planes_between("r3", "r4") == ("p1",)
    assert network.lost_but_in_queues(*results) == 0
    assert [one.duplicates for one in results] == [0, 0, 0]
    assert network.everyone_reaches_everyone()
