"""Devices and switches changed by hand, behind the controller's back."""

from __future__ import annotations

import re
import subprocess

import pytest

from drivers.registry import optical_switch
from hydra.model import CrossConnect
from mininet_scenarios.stage.streams import paced_stream
from tests.waiting import PATIENCE_S

from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(50)]


@pytest.fixture
def network(demo_testbed, tmp_path):
    """A controller that looks for drift only on request, and probes no path with drift."""
    with live(demo_testbed, tmp_path, {"audit_interval_s": 0, "probe_interval_s": 0}) as network:
        network.reserve("r1", "r2")
        network.change("r3", "r4", "p2")
        assert network.planes_between("r1", "r2") == ("p1",)
        assert network.planes_between("r3", "r4") == ("p2",)
        yield network


@pytest.fixture
def watchful(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, {"audit_interval_s": 1, "probe_interval_s": 0}) as network:
        network.reserve("r1", "r2")
        yield network


def drift(network):
    return network.get("/v1/drift")["items"]


def reconcile(network):
    answer = network.api("POST", "/v1/reconcile", json={})
    assert answer.status_code == 200, answer.text
    return answer.json()


def change_mirrors(network, plane, disconnect=(), connect=()):
    """A change by a person at the device."""
    device = optical_switch(network.fabric.plane_by_name[plane], PATIENCE_S)
    device.open()
    device.change(disconnect, connect)
    device.close()


def set_trunks(port, vlans):
    subprocess.run(["ovs-vsctl", "set", "port", port, f"trunks={vlans}"], check=True)


def flows(bridge, command, *arguments):
    subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", command, bridge, *arguments], check=True)


def test_a_network_that_nobody_touched_shows_none(network):
    report = network.get("/v1/drift")
    assert report == {"items": [], "silent": []}
    assert reconcile(network)["reconfigurations"] == []


def test_rules_are_compared_and_mended_in_one_bundle(network):
    bridge = network.fabric.server_by_name["h11"].vswitch.bridge
    other = network.fabric.server_by_name["h21"].vswitch.bridge
    flows(bridge, "del-flows", "table=5,metadata=2")
    flows(bridge, "add-flow", "table=0,priority=999,arp,actions=drop")
    flows(other, "mod-flows", "table=2,priority=0,actions=drop")
    items = [(item["device"], item["subject"], item["actual"]) for item in drift(network)]
    assert items == [
        (bridge, "table ingress, priority 999, cookie 0x0", "installed"),
        (bridge, "table circuits, priority 100, circuit", "nothing"),
        (other, "table divert, priority 0, divert-none", "other actions"),
    ]
    done = reconcile(network)
    assert done["left"]["items"] == done["reconfigurations"] == []
    assert network.everyone_reaches_everyone()


def test_a_rule_that_others_have_replaced_is_mended_and_stays(network):
    """A foreign rule has another cookie: its removal by cookie does not remove HydRA's rule in its
    place.

    And the removal of HydRA's rule does not remove a foreign rule with HydRA's cookie.
    """
    bridge = network.fabric.server_by_name["h11"].vswitch.bridge
    held = ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge, "table=5,metadata=2"]
    (line,) = subprocess.run(held, check=True, capture_output=True, text=True).stdout.split("\n")[
        1:-1
    ]
    ours = re.search(r"cookie=\w+", line)[0]
    for other in (
        "cookie=0x123,table=5,priority=100,metadata=2,actions=drop",
        f"{ours},table=5,priority=777,metadata=0x77,actions=drop",
        "table=5,priority=500,metadata=0x2/0xff,actions=drop",
    ):
        flows(bridge, "add-flow", other)
        assert len(drift(network)) == 1, other
        assert reconcile(network)["left"]["items"] == []
        assert drift(network) == []
        assert network.reaches("h11", "h21")


def test_a_learning_tor_that_lost_its_rule_learns_again(network):
    """Foreign rules stay; HydRA's rule comes back, and with it the servers."""
    tor = network.fabric.racks[0].tor.bridge
    flows(tor, "add-flow", "priority=7,udp,udp_dst=9,actions=drop")
    assert drift(network) == []
    flows(tor, "del-flows", "--strict", "priority=0")
    assert not network.reaches("h11", "h12")
    items = [(item["device"], item["subject"], item["actual"]) for item in drift(network)]
    assert items == [("r1", "table ingress, priority 0, tor-normal", "nothing")]
    assert reconcile(network)["left"]["items"] == []
    # Open vSwitch revalidates cached flows of a ToR without the rule within half a second.
    wait_until(lambda: network.reaches("h11", "h12") and network.reaches("h11", "h21"))
    flows(tor, "del-flows", "udp,udp_dst=9")


def test_circuits_that_lost_their_vlans_are_set_up_again_through_the_gate(network):
    before = network.get("/v1/topology")
    set_trunks("hyt-r1-p1", 4000)
    set_trunks("hyt-r3-p2", 4000)
    items = [(item["device"], item["kind"], item["actual"]) for item in drift(network)]
    assert items == [("r1", "vlans", "4000"), ("r3", "vlans", "4000")]
    done = reconcile(network)
    assert done["left"]["items"] == []
    assert len(done["reconfigurations"]) == 2
    states = [network.get(f"/v1/reconfigurations/{i}")["state"] for i in done["reconfigurations"]]
    assert states == ["done", "done"]
    after = network.get("/v1/topology")
    paths = [[(p["src"], p["dst"], p["hops"]) for p in t["paths"]] for t in (before, after)]
    assert paths[0] == paths[1]
    assert network.everyone_reaches_everyone()
    assert drift(network) == []


def test_what_stands_in_the_way_is_cleared_and_what_is_not_ours_is_left(network):
    others = CrossConnect(12, 16 + 12)
    change_mirrors(network, "p2", connect=[CrossConnect(1, 16 + 2), others])
    try:
        (item,) = drift(network)
        assert (item["subject"], item["intended"]) == ("1 to 18", "nothing")
        assert reconcile(network)["left"]["items"] == []
        assert network.testbed.ocs("p2").counters().cross_connects == 2 + 1
    finally:
        change_mirrors(network, "p2", disconnect=[others])


def test_it_is_noticed_and_mended_unasked_and_nobody_else_suffers(watchful):
    watchful.change("r3", "r4", "p2")
    with paced_stream(watchful.stage, "h31", "h41", pps=200, payload_bytes=200) as udp:
        set_trunks("hyt-r1-p1", 4000)
        wait_until(lambda: len(drift(watchful)) == 0 and reconciled(watchful))
        result = udp.stop()
    assert watchful.lost_but_in_queues(result) == 0
    assert watchful.planes_between("r1", "r2") == ("p1",)
    assert watchful.reaches("h11", "h21")
    (reservation,) = watchful.get("/v1/reservations")["reservations"]
    assert reservation["state"] == "active"


def test_a_cross_connect_taken_away_is_a_lost_carrier_first(network):
    """Its reservation moves at once; the remaining half is cleared later.

    An audit in between would set the circuit up again: here audits come on request only.
    """
    change_mirrors(network, "p1", disconnect=[CrossConnect(1, 16 + 2)])
    wait_until(lambda: network.planes_between("r1", "r2") == ("p2",))
    assert reconcile(network)["left"]["items"] == []
    assert network.testbed.ocs("p1").counters().cross_connects == 0
    assert network.reaches("h11", "h21")


def reconciled(network):
    changes = network.get("/v1/reconfigurations")["reconfigurations"]
    return [c["state"] for c in changes if c["trigger"] == "reconcile"] == ["done", "done"]


def test_by_policy_it_is_only_reported(demo_testbed, tmp_path):
    policy = {"audit_interval_s": 0.5, "probe_interval_s": 0, "on_drift": "report"}
    with live(demo_testbed, tmp_path, policy) as network:
        network.reserve("r1", "r2")
        set_trunks("hyt-r1-p1", 4000)
        wait_until(lambda: "changed by somebody else: r1, hyt-r1-p1" in network.process.log_tail())
        assert [item["subject"] for item in drift(network)] == ["hyt-r1-p1"]
        assert reconcile(network)["left"]["items"] == []


def test_a_vswitch_that_lost_all_its_rules_gets_them_as_soon_as_its_probes_are_missed(
    demo_testbed, tmp_path
):
    """For any interval of audits: until the next audit, the vswitch's server is cut off."""
    settings = {"audit_interval_s": 1000, "probe_interval_s": 0.2}
    with live(demo_testbed, tmp_path, settings) as network:
        network.reserve("r1", "r2")
        flows(network.fabric.server_by_name["h11"].vswitch.bridge, "del-flows")
        assert drift(network)
        wait_until(lambda: not drift(network))
        assert network.reaches("h11", "h21")
