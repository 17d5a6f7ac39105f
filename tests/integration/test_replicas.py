"""Controllers that share a store take over from each other, under paced traffic."""

from __future__ import annotations

import pytest
import yaml

from mininet_scenarios.replicas import replicas
from mininet_scenarios.stage.etcd_members import EtcdMembers
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import paced_stream

from .live import DEMO_CONFIG, dropped_frames
from .warm import warm

pytestmark = [pytest.mark.ovs, pytest.mark.takes(50)]

LEASE_S = 10
"""Longer than the default: other tests keep the machine busy, and a leader that gets no processor
for as long ends, as it should."""
LOST_LEASE = 75


def test_another_one_leads_and_nothing_is_lost(demo_testbed, tmp_path):
    """After a kill, after a pause past the lease, and when asked to: what was promised stands."""
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    stage = Stage(demo_testbed, demo_testbed.fabric, document, tmp_path)
    options = {"lease_s": LEASE_S, "launch": warm().launch}
    with EtcdMembers(tmp_path / "etcd") as etcd, replicas(stage, etcd, {}, {}, **options) as these:
        http, urls = these.http, {name: one.base_url for name, one in these.processes.items()}

        def circuits(name):
            found = http.get(f"{urls[name]}/v1/topology").json()["circuits"]
            return [(one["plane"], one["a"], one["b"]) for one in found]

        def stands(name):
            found = http.get(urls[name] + promised).json()
            assert (found["state"], found["path"], found["reason"]) == ("active", path, "")
            assert circuits(name) == standing

        refused = http.get(f"{urls['b']}/readyz")
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/standing-by")
        assert refused.json()["detail"].endswith(f"leads: ask at {urls['a']}")

        body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 20}
        reserved = http.post(f"{urls['a']}/v1/reservations", json=body, headers=WAIT, timeout=30)
        assert reserved.json()["state"] == "active"
        promised = f"/v1/reservations/{reserved.json()['id']}"
        path, standing = reserved.json()["path"], circuits("a")
        dark, dropped = dark_frames(demo_testbed), dropped_frames(demo_testbed)
        with paced_stream(stage, "h11", "h21", pps=200, payload_bytes=200, count=20_000) as stream:
            these.kill("a")
            assert these.leader() == "b"
            stands("b")
            these.start("a")
            these.standing_by(1)
            these.freeze("b")
            assert these.leader() == "a"
            assert these.thaw("b") == LOST_LEASE
            assert these.ready() == {"a"}
            stands("a")
            these.start("b")
            these.standing_by(1)
            asked = http.post(f"{urls['a']}/v1/handover", json={})
            assert asked.json() == {"standing_by": [urls["b"]]}
            assert these.leader("a") == "b"
            assert these.await_end("a") == 1
            stands("b")
            result = stream.stop()
        assert dark_frames(demo_testbed) == dark
        assert max(0, result.lost - (dropped_frames(demo_testbed) - dropped)) == 0
        assert result.sent > 200 * LEASE_S


WAIT = {"Prefer": "wait=20"}


def dark_frames(testbed):
    return sum(testbed.ocs(plane.name).dark_frames() for plane in testbed.fabric.planes)
