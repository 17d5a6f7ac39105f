"""A one-way flow to a host that never answers does not reach third servers."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from hydra.policy import Transition
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed import Testbed

from .live import live

pytestmark = [
    pytest.mark.takes(35),
    pytest.mark.ovs,
    # ToRs controlled by OpenFlow alone learn no address, forget none, and never flood.
    pytest.mark.parametrize("shipped", ["demo", "single-homed"], indirect=True, scope="module"),
]

PACKETS_PER_S = 200
FDB_AGE_S = 10
"""Servers are announced three times per ageing time, and up to 3 s late on a busy machine."""
AGES = 2


def test_one_way_flow_outlives_the_fdb(machine, shipped, tmp_path):
    """Duration: several times the ToRs' ageing time."""
    packets = PACKETS_PER_S * FDB_AGE_S * AGES
    with (
        Testbed(shipped.fabric, shipped.controller, fdb_age_s=FDB_AGE_S) as testbed,
        live(testbed, tmp_path, {"fdb_age_s": FDB_AGE_S}) as network,
    ):
        # Three racks in one VLAN or next to it: a flood could reach all third servers.
        for pair in (("r1", "r2"), ("r2", "r3")):
            assert network.reserve(*pair)["state"] == "active"
        thirds = ["h12", "h22", "h31", "h32", "h41", "h42"]
        with ExitStack() as stack:
            watched = [
                stack.enter_context(
                    testbed.frames_at(name, where, expression="udp or (vlan and udp)")
                )
                for name in thirds
                for where in ("host", "optical", "electrical")
            ]
            receiver = stack.enter_context(
                testbed.frames_at("h21", "circuits", expression="vlan and udp", direction="in")
            )
            stream = stack.enter_context(
                paced_stream(
                    network.stage, "h11", "h21", pps=PACKETS_PER_S, payload_bytes=200, count=packets
                )
            )
            result = stream.finish(90)
        assert result.sent == packets
        assert network.lost_but_in_queues(result) == 0
        # The frame came by circuit, where the same filter sees it; the other links would show a
        # flood.
        assert len(receiver.frames()) >= result.received
        assert sum(len(capture.frames()) for capture in watched) == 0


@pytest.mark.parametrize("transition", Transition)
def test_a_standing_one_way_flow_is_flooded_by_no_change_of_its_ports(
    machine, shipped, tmp_path, transition
):
    """If a VLAN is added to a port or removed, a ToR may forget all addresses learned at the port
    (``findings/ovs_trunk_change_forgets.sh``).
    """
    with (
        Testbed(shipped.fabric, shipped.controller) as testbed,
        live(testbed, tmp_path, {"transition": transition.value}) as network,
    ):
        network.client.apply({"p1": [("r1", "r2")]})
        with paced_stream(
            network.stage, "h11", "h21", pps=PACKETS_PER_S, payload_bytes=200
        ) as stream:
            for planes, paths in (
                ({"p1": [("r1", "r2")], "p2": [("r2", "r3")]}, [["r1", "r2", "r3"]]),
                ({"p1": [("r1", "r2")]}, []),
            ):
                network.client.apply(planes, paths=paths)
                assert frames_at_others(network) == 0
            assert network.lost_but_in_queues(stream.stop()) == 0


def frames_at_others(network):
    """Frames on links of servers other than h11 and h21, while another flow lasts."""
    with ExitStack() as stack:
        watched = [
            stack.enter_context(
                network.testbed.frames_at(name, where, expression="udp or (vlan and udp)")
            )
            for name in ("h12", "h22", "h31", "h32")
            for where in ("host", "optical", "electrical")
        ]
        with paced_stream(
            network.stage, "h41", "h42", pps=PACKETS_PER_S, payload_bytes=200, count=40
        ) as clock:
            clock.finish(90)
    return sum(len(capture.frames()) for capture in watched)
