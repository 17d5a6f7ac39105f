"""The slotted mode on real switches: two pairs that want one port use it in turn."""

from __future__ import annotations

import pytest
import yaml

from mininet_scenarios.stage.streams import paced_stream

from .live import Live, live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(20)]

POLICY = {
    "mode": "periodic",
    "poll_interval_s": 0.5,
    "demand_window_s": 1.0,
    "minimum_gain_mbps": 1000.0,
    "slots": {"slot_s": 0.1, "week_s": 2.4},
}
SECONDS = 60
"""Time limit: more than a busy machine needs until the awaited result."""
SLOTTED = {"sharing": "slotted"}


def test_they_share_and_all_their_traffic_arrives(demo_testbed, tmp_path):
    """6 Mb/s each, from two servers of rack 1; one of its two ports is set aside."""
    with live(demo_testbed, tmp_path, POLICY) as network:
        refused = network.api("PUT", "/v1/sharing", json=SLOTTED)
        assert refused.status_code == 409
        assert "100 ms leaves no day after its night of 300 ms" in refused.json()["detail"]
        assert network.get("/v1/sharing")["in_force"] == "by-demand"

        lengthen_slots(tmp_path / "fabric.yaml")
        assert network.api("POST", "/v1/reload", json={}).is_success
        aside = network.api("PUT", "/v1/quarantine/r1/hyt-r1-p2", json={"reason": "to share one"})
        assert aside.is_success, aside.text
        rate = {"pps": 540, "payload_bytes": 1400, "count": SECONDS * 540}
        with (
            paced_stream(network.stage, "h11", "h21", **rate) as one,
            paced_stream(network.stage, "h12", "h31", **rate) as other,
        ):
            assert network.api("PUT", "/v1/sharing", json=SLOTTED).is_success
            seen: set[str] = set()

            def both_had_it() -> bool:
                seen.update(partners(network))
                return {"r2", "r3"} <= seen and slots_begun(network) > 2

            wait_until(both_had_it, SECONDS)
            schedule = network.get("/v1/schedule")
            arrived = one.stop(), other.stop()
        assert [len(slot["circuits"]) for slot in schedule["week"]["slots"]] == [1, 1]
        assert 0 < schedule["measured_duty_cycle"] < 1
        assert network.lost_but_in_queues(*arrived) == 0
        assert network.dark_frames() == 0


def lengthen_slots(config) -> None:
    document = yaml.safe_load(config.read_text())
    document["policy"]["slots"]["slot_s"] = 1.0
    config.write_text(yaml.safe_dump(document, sort_keys=False))


def partners(network: Live) -> set[str]:
    """The racks reached from rack 1 by a path."""
    paths = network.get("/v1/topology")["paths"]
    return {one["dst"] for one in paths if one["src"] == "r1"}


def slots_begun(network: Live) -> int:
    changes = network.get("/v1/reconfigurations")["reconfigurations"]
    return sum((one["trigger"], one["state"]) == ("slotted", "done") for one in changes)
