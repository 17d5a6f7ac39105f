"""Reserved bandwidth at steering ToRs: each ToR limits its servers, port by port."""

from __future__ import annotations

import pytest

from .live import wait_until
from .reserved import RESERVED_MBPS, kept_against_greedy_tcp, ofctl, release, slow

pytestmark = [pytest.mark.ovs, pytest.mark.takes(15)]


def test_a_reservation_is_kept_against_greedy_tcp_from_another_port(machine, tmp_path):
    with slow("openflow-only", tmp_path) as network:
        reservation = network.reserve("h11", "h21", RESERVED_MBPS)
        assert reservation["state"] == "active", reservation["reason"]
        kept_against_greedy_tcp(network, reservation)
        release(network, reservation)
        bridge = network.fabric.rack_by_name["r1"].tor.bridge
        wait_until(lambda: "rate=" not in ofctl("dump-meters", bridge))
