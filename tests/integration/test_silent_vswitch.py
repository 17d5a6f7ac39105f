"""A silent vswitch that still forwards, with the policy that closes its port; a switch with
nonsensical answers.
"""

from __future__ import annotations

import pytest

from mininet_scenarios.emulators.stranger import Stranger
from mininet_scenarios.stage.controller_process import ALL_THERE
from tests.waiting import HANGS_S, PATIENCE_S

from .live import live, silent, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(25)]

POLICY = {"on_silent_vswitch": "close", "audit_interval_s": 0.5}
CLOSED = "silent: the ToR port is closed to circuits"


def status_of(network, name):
    (found,) = [d for d in network.get("/v1/devices")["devices"] if d["name"] == name]
    return found


@pytest.mark.parametrize("shipped", ["demo", "single-homed"], indirect=True, scope="module")
def test_its_port_is_closed_circuits_move_and_it_comes_back(demo_testbed, tmp_path):
    bridge = demo_testbed.fabric.server_by_name["h11"].vswitch.bridge
    with live(demo_testbed, tmp_path, POLICY) as network:
        network.change("r1", "r2", "p1")
        dark = network.dark_frames()
        with silent(bridge):
            wait_until(lambda: not status_of(network, bridge)["connected"])
            network.change("r1", "r2", "p2")
            assert network.planes_between("r1", "r2") == ("p2",)
            assert status_of(network, bridge)["detail"] == CLOSED
            assert network.reaches("h12", "h22")
            assert network.reaches("h11", "h31"), "electrically, as ever"
            assert not network.reaches("h11", "h21", count=1)
            assert network.dark_frames() == dark
            assert network.get("/v1/drift")["items"] == []
        wait_until(lambda: network.api("GET", ALL_THERE).is_success)
        wait_until(lambda: status_of(network, bridge)["detail"] == "")
        wait_until(lambda: network.reaches("h11", "h21"))
        wait_until(lambda: network.get("/v1/drift")["items"] == [])
        assert network.planes_between("r1", "r2") == ("p2",)


def test_a_switch_that_answers_nonsense_holds_no_other_rack_up(demo_testbed, tmp_path):
    """The stranger has a vswitch's datapath id, says hello, answers echoes, and repeatedly sends
    unrequested messages.
    """
    vswitch = demo_testbed.fabric.server_by_name["h41"].vswitch
    policy = {"timeouts": {"vswitch_s": PATIENCE_S, "probe_s": 5.0}}
    with live(demo_testbed, tmp_path, policy) as network, silent(vswitch.bridge):
        settings = network.process.settings
        wait_until(lambda: not status_of(network, vswitch.bridge)["connected"])
        for plane in ("p1", "p2", "p1"):
            address = settings.openflow_host, settings.openflow_port
            stranger = Stranger(address, vswitch.datapath_id, nonsense=True)
            try:
                assert stranger.is_switch.wait(PATIENCE_S)
                wait_until(lambda: status_of(network, vswitch.bridge)["connected"])
                change = network.begin_change("r1", "r2", plane)
                wait_until(lambda it=change: network.state_of(it) == "done", HANGS_S)
            finally:
                stranger.leave()
        assert network.reaches("h11", "h21")
