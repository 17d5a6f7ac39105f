"""hydra agent on emulated servers: backlog in sockets brings circuits, and false reports do not."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack

import pytest
import yaml

from mininet_scenarios.stage.agents import AgentStage, agent_stage
from mininet_scenarios.stage.stage import ScenarioError, Stage, tcp_transfer
from mininet_scenarios.testbed import Testbed
from mininet_scenarios.testbed.shell import run
from tests.waiting import PATIENCE_S

from .live import DEMO_CONFIG, PATIENT, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(60)]

POLICY = {
    **PATIENT,
    "mode": "periodic",
    "epoch_s": 1.0,
    "poll_interval_s": 0.5,
    "demand_window_s": 1.0,
    "minimum_circuit_life_s": 0.0,
    "elephant_mbps": 20.0,  # twice the electrical rate
    "agents": {"optical_share": 0.9},
}
LONG_S = 90
"""More than the longest time to the awaited result on a busy machine."""
OPTICAL, OTHERS = "5:10", "5:20"


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

        options = ("--socket-buffer-mb", "40", "--interface", "h11-eth0")
        with agents.agent("h11", *options) as job:
            wait_until(lambda: "reports to the controller" in job.text())
            lie = {"backlog_mb": {"r4": 900.0}}
            said = agents.ask("PUT", "/v1/agents/h31/backlog", caller="h31", json=lie)
            assert said.status_code == 200
            with tcp_transfer(stage, "h11", "h21", 5201, LONG_S):
                wait_until(lambda: (pair("r1", "r2") or {}).get("backlog_mbps", 0) > 20)
                wait_until(lambda: joined() == {("r1", "r2")})
                wait_until(lambda: sent_bytes(demo_testbed, OPTICAL) > 5_000_000)
                before = sent_bytes(demo_testbed, OTHERS)
                demo_testbed.host("h11").cmd("ping -c 3 -i 0.1 -s 1000 10.0.3.1")
                assert 3000 < sent_bytes(demo_testbed, OTHERS) - before < 100_000
            for answer in (
                agents.ask("PUT", "/v1/agents/h11/backlog", caller="h31", json=lie),
                agents.ask("PUT", "/v1/agents/h31/backlog", caller="h31", json=[]),
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
    assert "htb" not in host.cmd("tc qdisc show dev h11-eth0"), "restored"


def test_circuits_go_where_most_waits(demo_testbed, tmp_path):
    """Three pairs load their uplinks equally, and r1 can have two circuits (c-Through, 4.1)."""
    config = yaml.safe_load(DEMO_CONFIG.read_text())
    stage = Stage(demo_testbed, demo_testbed.fabric, config, tmp_path)
    policy = {**POLICY, "demand": "backlog", "algorithm": "edmonds", "agents": {}}
    buffers_mb = {"h11": 30, "h12": 3}
    flows = (("h11", "h21", 5201), ("h12", "h31", 5202), ("h11", "h41", 5203))
    with agent_stage(stage, ["h11", "h12"], policy) as agents, ExitStack() as stack:
        for server, mb in buffers_mb.items():
            job = stack.enter_context(agents.agent(server, "--socket-buffer-mb", str(mb)))
            wait_until(lambda job=job: "reports to the controller" in job.text())
        for src, dst, port in flows:
            stack.enter_context(tcp_transfer(stage, src, dst, port, LONG_S))

        def wanted():
            demand = agents.ask("GET", "/v1/demand").json()
            assert demand["basis"] == "backlog"
            return {
                one["dst"]: one["estimated_mbps"]
                for one in demand["entries"]
                if one["src"] == "r1" and one["estimated_mbps"]
            }

        def joined():
            paths = agents.ask("GET", "/v1/topology").json()["paths"]
            return {path["dst"] for path in paths if path["src"] == "r1"}

        wait_until(lambda: joined() == {"r2", "r4"})
        told = wanted()
        assert min(told["r2"], told["r4"]) > 3 * told.get("r3", 0.0)
        explained = agents.ask("GET", "/v1/explanations/circuits/r1/r2").json()["lines"]
        assert any(
            re.match("r1 to r2 wants .* to send the waiting traffic; gets", one)
            for one in explained
        )


def test_on_demand_only_elephants_take_circuits(demo_testbed, tmp_path):
    """The class table agrees with the table that an audit expects."""
    config = yaml.safe_load(DEMO_CONFIG.read_text())
    stage = Stage(demo_testbed, demo_testbed.fabric, config, tmp_path)
    policy = {**POLICY, "elephant_mbps": 2.0, "agents": {"elephant_mb": 1.0}}
    with agent_stage(stage, ["h11"], policy) as agents, agents.agent("h11"):
        assert agents.ask("PUT", "/v1/sharing", json={"sharing": "on-demand"}).status_code == 200
        with tcp_transfer(stage, "h11", "h21", 5201, LONG_S):
            wait_until(lambda: optical_mbps(agents, "r1", "r2") > 12)
            wait_until(lambda: (counted("hyv-h11", "tcp") or 0) > 100)
            before = counted("hyv-h11", "electrical")
            demo_testbed.host("h11").cmd("ping -c 5 -i 0.1 10.0.2.1")
            wait_until(lambda: counted("hyv-h11", "electrical") >= before + 5)  # mice
            assert agents.ask("GET", "/v1/drift").json()["items"] == []
        wait_until(lambda: counted("hyv-h11", "tcp") is None)


def test_queues_of_somebody_elses_are_left_alone(demo_testbed, tmp_path):
    stage = Stage(demo_testbed, demo_testbed.fabric, {}, tmp_path)
    host = demo_testbed.host("h12")
    host.cmd("tc qdisc add dev h12-eth0 root handle 7: htb")
    program = "from apps.agent.scheduler import OutputScheduler; OutputScheduler('h12-eth0', {})"
    with (
        stage.job("h12", "scheduler", [sys.executable, "-c", program]) as job,
        pytest.raises(ScenarioError, match="queues of its own"),
    ):
        job.finish(PATIENCE_S)
    assert "htb 7:" in host.cmd("tc qdisc show dev h12-eth0")
    host.cmd("tc qdisc del dev h12-eth0 root")


def test_queues_of_an_agent_that_was_killed_are_made_anew_or_go(demo_testbed, tmp_path):
    stage = Stage(demo_testbed, demo_testbed.fabric, {}, tmp_path)
    host = demo_testbed.host("h12")
    made = (
        "from apps.agent.scheduler import OutputScheduler; "
        "one = OutputScheduler('h12-eth0', {'r1': ['10.0.1.0/24'], 'r2': ['10.0.2.0/24']}); "
    )
    # These ends clean up nothing.
    for rack, present, absent in (("r1", "0a000100", "0a000200"), ("r2", "0a000200", "0a000100")):
        program = made + f"one.apply(1000.0, 0.5, ['{rack}'])"
        with stage.job("h12", "scheduler", [sys.executable, "-c", program]) as job:
            job.finish(PATIENCE_S)
        shown = host.cmd("tc filter show dev h12-eth0")
        assert present in shown
        assert absent not in shown
    program = made + "one.apply(1000.0, 0.0, [])"
    with stage.job("h12", "scheduler", [sys.executable, "-c", program]) as job:
        job.finish(PATIENCE_S)
    assert "htb" not in host.cmd("tc qdisc show dev h12-eth0")


def sent_bytes(testbed: Testbed, name: str) -> int:
    """Bytes of a class of h11's queues."""
    shown = testbed.host("h11").cmd("tc -s class show dev h11-eth0")
    found = re.search(rf"class htb {name} .*?Sent (\d+) bytes", shown, re.DOTALL)
    return int(found[1]) if found else 0


def optical_mbps(agents: AgentStage, src: str, dst: str) -> float:
    """Bytes from a rack to another rack over their circuits."""
    circuits = agents.ask("GET", "/v1/topology").json()["circuits"]
    return sum(
        (one["a_to_b_mbps"] or 0.0) + (one["b_to_a_mbps"] or 0.0)
        for one in circuits
        if {one["a"]["rack"], one["b"]["rack"]} == {src, dst}
    )


def counted(bridge: str, which: str) -> int | None:
    """Packets of the class table's rule for elephants (TCP), or of the rule for other traffic."""
    flows = run(["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge, "table=3"])
    priority = {"tcp": "priority=60,tcp", "electrical": "priority=10 "}[which]
    for line in flows.splitlines():
        if priority in line:
            return int(line.split("n_packets=")[1].split(",")[0])
    return None
