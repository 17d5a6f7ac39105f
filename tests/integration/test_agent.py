"""hydra agent on emulated servers: what waits in sockets brings circuits, and lies do not."""

from __future__ import annotations

import pytest
import yaml

from mininet_scenarios.agents import agent_stage
from mininet_scenarios.stage import Stage, tcp_transfer

from .live import DEMO_CONFIG, wait_until

pytestmark = pytest.mark.ovs

POLICY = {
    "mode": "periodic",
    "epoch_s": 1.0,
    "poll_interval_s": 0.5,
    "demand_window_s": 1.0,
    "minimum_circuit_life_s": 0.0,
    "elephant_mbps": 20.0,  # twice what the electrical network lets through
}


def test_what_waits_brings_a_circuit_and_a_lie_does_not(demo_testbed, tmp_path):
    config = yaml.safe_load(DEMO_CONFIG.read_text())
    stage = Stage(demo_testbed, demo_testbed.fabric, config, tmp_path)
    with agent_stage(stage, ["h11", "h31"], POLICY) as agents:

        def pair(src, dst):
            entries = agents.ask("GET", "/v1/demand").json()["entries"]
            return next((one for one in entries if (one["src"], one["dst"]) == (src, dst)), None)

        def joined():
            return {
                (path["src"], path["dst"])
                for path in agents.ask("GET", "/v1/topology").json()["paths"]
            }

        with agents.agent("h11", "--socket-buffer-mb", "40") as job:
            wait_until(lambda: "reports to the controller" in job.text())
            lie = {"backlog_mb": {"r4": 900.0}}
            said = agents.ask("PUT", "/v1/agents/h31/backlog", who="h31", json=lie)
            assert said.status_code == 200
            with tcp_transfer(stage, "h11", "h21", 5201, 20):
                wait_until(lambda: (pair("r1", "r2") or {}).get("backlog_mbps", 0) > 20)
                wait_until(lambda: joined() == {("r1", "r2")}, 20)
            for answer in (
                agents.ask("PUT", "/v1/agents/h11/backlog", who="h31", json=lie),
                agents.ask("PUT", "/v1/agents/h31/backlog", who="h31", json=[]),
            ):
                assert not answer.is_success
        assert "stopped" in job.text()
        demand = agents.ask("GET", "/v1/demand").json()
        assert demand["troubles"]["agent speaks for another server"] == 1
        assert demand["troubles"]["agent report malformed"] == 1
        assert pair("r3", "r4") is None
        assert joined() == {("r1", "r2")}
    host = demo_testbed.host("h11")
    assert host.cmd("cat /proc/sys/net/ipv4/tcp_wmem").split()[1] != "40000000", "restored"
