"""The three steps as captured on the wire, and their losses: none."""

from __future__ import annotations

import pytest

from hydra.policy import Transition
from mininet_scenarios.stage.streams import paced_stream

from .live import live, on_each_substrate

pytestmark = [pytest.mark.ovs, pytest.mark.takes(25)]

ORDER = ["divert", "drain", "move", "carrier", "announce", "probe", "activate"]


HYDRA = {"transition": Transition.DIVERT_FIRST.value}


@pytest.fixture(scope="module")
def running(demo_testbed, tmp_path_factory):
    with live(demo_testbed, tmp_path_factory.mktemp("live"), HYDRA) as network:
        yield network


@pytest.fixture
def network(running):
    """One controller for the whole module; each test restores its state."""
    yield running
    running.give_everything_back()


@on_each_substrate
def test_order_on_the_wire_and_no_loss(network):
    """A paced stream of the affected pair, at 64 % of the electrical rate, over six changes."""
    network.change("r1", "r2", "p1")
    dark = network.dark_frames()
    with (
        network.testbed.frames_at(
            "h11", "circuits", expression="vlan and udp", direction="out"
        ) as optical,
        network.testbed.frames_at(
            "h11", "electrical", expression="udp and not vlan", direction="out"
        ) as electrical,
        paced_stream(network.stage, "h11", "h21", pps=1000, payload_bytes=750) as udp,
    ):
        records = [network.change("r1", "r2", plane) for plane in ("p2", "p1") * 3]
        result = udp.stop()
    assert (network.lost_but_in_queues(result), result.duplicates) == (0, 0)
    assert network.dark_frames() == dark
    diverted = []
    for record in records:
        names = [step.step for step in record.timeline if step.device is None]
        assert [name for name in names if name in ORDER] == ORDER
        starts = {step.step: step.started_ms for step in record.timeline if step.device is None}
        began = record.started_unix_s
        moving = [step for step in record.timeline if step.step == "mirrors"]
        first_move_s = began + min(step.started_ms for step in moving) / 1000
        last_move_s = began + max(step.finished_ms for step in moving) / 1000
        in_between = [f for f in optical.frames() if first_move_s < f.time_s < last_move_s]
        assert in_between == [], "nothing on a circuit's VLAN while mirrors move"
        diverted += [f for f in electrical.frames() if first_move_s < f.time_s < last_move_s]
        assert starts["divert"] < starts["move"] < starts["activate"]
    # A busy machine may stop the sender for the duration of a change's moves.
    assert diverted, "the pair is on the electrical network meanwhile"
    # After each change, the new circuit carries the stream on a VLAN of its own.
    vlans = [int.from_bytes(f.data[14:16], "big") & 0xFFF for f in optical.frames()]
    runs = [vlan for index, vlan in enumerate(vlans) if index == 0 or vlan != vlans[index - 1]]
    assert len(runs) == 1 + len(records), runs


@on_each_substrate
def test_an_unaffected_pair_loses_nothing(network):
    assert network.reserve("r3", "r4")["state"] == "active"
    network.change("r1", "r2", "p1")
    before = network.client.path_between("r3", "r4")
    with paced_stream(network.stage, "h31", "h41", pps=1000, payload_bytes=200) as udp:
        for plane in ("p2", "p1", "p2"):
            network.change("r1", "r2", plane)
        result = udp.stop()
    assert (network.lost_but_in_queues(result), result.duplicates) == (0, 0)
    assert network.client.path_between("r3", "r4") == before


def test_rules_beyond_the_fabric_are_pushed_and_removed(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, HYDRA, rules=400) as network:
        for plane in ("p1", "p2", "p1"):
            assert network.change("r1", "r2", plane).rules_pushed == 400
        assert network.reaches("h11", "h21")
