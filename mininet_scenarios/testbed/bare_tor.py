"""A ToR with many ports and nothing behind them: Open vSwitch, through the controller's driver."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from drivers.tor.ovs_ovsdb import OvsTor
from hydra.model import VlanId
from hydra.roles import PortVlans
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.testbed.ovs import DATABASE
from mininet_scenarios.testbed.shell import run

BRIDGE: Final = "hyBtor"
PORTS: Final = tuple(f"hyBp{number}" for number in range(32))
PARKING: Final = VlanId(4000)


@contextmanager
def bare_tor() -> Iterator[OvsTor]:
    """The driver of a bridge with 32 ports, which end with the block."""
    try:
        for port in PORTS:
            run(["ip", "link", "add", port, "type", "veth", "peer", "name", f"{port}x"])
        ports = [word for port in PORTS for word in ("--", "add-port", BRIDGE, port)]
        options = ["--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
        run(["ovs-vsctl", "add-br", BRIDGE, *options, *ports])
        driver = OvsTor("bare", f"unix:{DATABASE}", BRIDGE, timeout_s=PATIENCE_S)
        driver.open()
        yield driver
        driver.close()
    finally:
        run(["ovs-vsctl", "--if-exists", "del-br", BRIDGE])
        for port in PORTS:
            subprocess.run(["ip", "link", "del", port], capture_output=True, check=False)


def tag_all(driver: OvsTor, vlan: int) -> None:
    """Tag all ports with ``vlan``; returns once ovs-vswitchd has applied the change."""
    driver.set_vlans({port: PortVlans(frozenset({VlanId(vlan), PARKING})) for port in PORTS})


def tagging_s(times: int) -> float:
    """Longest of ``times`` taggings of all ports, each with another VLAN."""
    longest_s = 0.0
    with bare_tor() as driver:
        for vlan in range(100, 100 + times):
            begun_s = time.monotonic()
            tag_all(driver, vlan)
            longest_s = max(longest_s, time.monotonic() - begun_s)
    return longest_s
