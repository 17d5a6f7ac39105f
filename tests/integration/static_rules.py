"""Manual rules, in place of a controller, for tests of the testbed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from hydra.model import Fabric, OpticalPort, Server, VlanId
from mininet_scenarios.stage.stage import listens
from mininet_scenarios.testbed import Testbed, ovs
from mininet_scenarios.testbed.shell import run
from tests.waiting import PATIENCE_S

from .live import wait_until
from .pings import all_answered, ping_command

HOST, OPTICAL, ELECTRICAL = 1, 2, 3  # OpenFlow port numbers, in the testbed's order
GROUP = "01:00:00:00:00:00/01:00:00:00:00:00"
TAGGED = "vlan_tci=0x1000/0x1000"
_IPERF3_PORT = 5201


def install(fabric: Fabric, vlan: VlanId | None = None) -> None:
    """All traffic over the electrical network; with ``vlan``, unicast tagged to the ToR."""
    for server in fabric.servers:
        ovs.set_flows(server.vswitch.bridge, _rules(server, vlan))


def _rules(server: Server, vlan: VlanId | None) -> list[str]:
    up = f"output:{ELECTRICAL}"
    if vlan is not None:
        up = f"push_vlan:0x8100,set_field:{0x1000 | vlan}->vlan_vid,output:{OPTICAL}"
    return [
        f"priority=9,in_port={OPTICAL},dl_dst={server.mac},{TAGGED},actions=pop_vlan,output:{HOST}",
        f"priority=8,in_port={OPTICAL},dl_dst={server.mac},actions=output:{HOST}",
        f"priority=9,in_port={ELECTRICAL},dl_dst={server.mac},actions=output:{HOST}",
        f"priority=8,in_port={ELECTRICAL},dl_dst={GROUP},actions=output:{HOST}",
        f"priority=7,in_port={HOST},dl_dst={GROUP},actions=output:{ELECTRICAL}",
        f"priority=6,in_port={HOST},actions={up}",
    ]


def tag(ports: tuple[OpticalPort, ...], vlan: VlanId) -> None:
    """Make optical ToR ports members of one VLAN, and of no other."""
    arguments: list[str] = []
    for port in ports:
        arguments += ["--", "set", "port", port.tor_port, f"trunks={vlan}"]
    run(["ovs-vsctl", *arguments])


def address(fabric: Fabric, server: str, version: int = 4) -> str:
    wanted = fabric.server_by_name[server].addresses
    return next(str(one.ip) for one in wanted if one.version == version)


def reaches(testbed: Testbed, source: str, destination: str, version: int = 4) -> bool:
    target = address(testbed.fabric, destination, version)
    ping = testbed.host(source).popen(ping_command(target, 2), stdout=subprocess.PIPE, text=True)
    printed, _ = ping.communicate(timeout=PATIENCE_S)
    return all_answered(printed, 2)


def iperf3(
    testbed: Testbed, source: str, destination: str, *options: str, version: int = 4
) -> dict[str, Any]:
    """The ``end`` part of the sender's JSON report."""
    server = testbed.host(destination).popen(["iperf3", "-s", "-1"])
    sockets = Path(f"/proc/{testbed.host(destination).pid}/net/tcp6")
    try:
        wait_until(lambda: listens(sockets.read_text(), _IPERF3_PORT))
        target = address(testbed.fabric, destination, version)
        client = testbed.host(source).popen(
            ["iperf3", "-J", "-c", target, *options], stdout=subprocess.PIPE
        )
        report, _ = client.communicate(timeout=60)
        server.wait(PATIENCE_S)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    end: dict[str, Any] = json.loads(report)["end"]
    return end
