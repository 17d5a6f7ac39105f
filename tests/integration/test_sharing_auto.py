"""``sharing: auto`` on real switches: slots begin when several pairs want one port, and end."""

from __future__ import annotations

import pytest

from mininet_scenarios.stage.streams import paced_connection

from .live import Live, live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(40)]

POLICY = {
    "mode": "periodic",
    "sharing": "auto",
    "epoch_s": 1.0,
    "poll_interval_s": 0.5,
    "demand_window_s": 1.0,
    "minimum_gain_mbps": 1.0,
    "minimum_circuit_life_s": 0.0,
    "max_hops": 1,
    "slots": {"slot_s": 3.0, "week_s": 9.0},
}
PACE = {"per_s": 200.0, "write_bytes": 10_000}
"""16 Mb/s: more than the electrical network's 10."""
SECONDS = 120
"""Time limit: more than a busy machine needs until the awaited result."""


def test_slots_begin_and_end_with_the_demand_and_nothing_is_lost(demo_testbed, tmp_path):
    """Rack 1 has one port left. A single pair uses the port all the time; three pairs take turns,
    as they want more than a circuit for one of them and the electrical network for two carry.
    """
    with live(demo_testbed, tmp_path, POLICY) as network:
        aside = network.api("PUT", "/v1/quarantine/r1/hyt-r1-p2", json={"reason": "to share one"})
        assert aside.is_success, aside.text
        with paced_connection(network.stage, "h11", "h21", **PACE) as first:
            wait_until(lambda: decisions(network), SECONDS)
            assert in_force(network) == "by-demand"
            with (
                paced_connection(network.stage, "h12", "h31", **PACE) as second,
                paced_connection(network.stage, "h11", "h41", **PACE) as third,
            ):
                seen: set[str] = set()

                def all_had_it() -> bool:
                    seen.update(partners(network))
                    return in_force(network) == "slotted" and {"r2", "r3", "r4"} <= seen

                wait_until(all_had_it, SECONDS)
                reason = network.get("/v1/sharing")["reason"]
                assert " slots in 9 s" in reason
                assert "a standing topology" in reason
                others = second.stop(), third.stop()
            wait_until(lambda: in_force(network) == "by-demand", SECONDS)
            arrived = first.stop(), *others
        assert all(connection.intact for connection in arrived)
        assert network.dark_frames() == 0
        told = [one["text"] for one in network.get("/v1/history")["happenings"]]
        assert any("circuits are shared slotted: a standing" in words for words in told)
        assert any("circuits are shared by-demand: " in words for words in told)


def in_force(network: Live) -> str:
    sharing = network.get("/v1/sharing")
    assert sharing["sharing"] == "auto"
    return str(sharing["in_force"])


def decisions(network: Live) -> int:
    return len(network.get("/v1/decisions")["decisions"])


def partners(network: Live) -> set[str]:
    """The racks reached from rack 1 by a path."""
    paths = network.get("/v1/topology")["paths"]
    return {one["dst"] for one in paths if one["src"] == "r1"}
