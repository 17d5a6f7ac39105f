"""Retag the optical ports of a ToR, in the driver's one transaction and by an operator's commands.

``python -m benchmarks.retag`` (root). Every way ends when ovs-vswitchd has
applied the change: the driver waits for ``cur_cfg``, and so does ``ovs-vsctl`` by itself.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from benchmarks._report import Result, report, run_benchmark
from drivers.tor.ovs_ovsdb import OvsTor
from hydra.model import VlanId
from hydra.roles import PortVlans
from mininet_scenarios.testbed import open_vswitch

ADDRESS = "unix:/var/run/openvswitch/db.sock"
BRIDGE = "hyBtor"
PORTS = [f"hyBp{number}" for number in range(32)]
PARKING = VlanId(4000)
RUNS = 25
TARGET_MS = 100.0


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def tor() -> Iterator[OvsTor]:
    """The driver of a bridge with 32 ports."""
    try:
        for port in PORTS:
            run("ip", "link", "add", port, "type", "veth", "peer", "name", f"{port}x")
        ports = [word for port in PORTS for word in ("--", "add-port", BRIDGE, port)]
        options = ["--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
        run("ovs-vsctl", "add-br", BRIDGE, *options, *ports)
        driver = OvsTor("bench", ADDRESS, BRIDGE, timeout_s=10)
        driver.open()
        yield driver
        driver.close()
    finally:
        run("ovs-vsctl", "--if-exists", "del-br", BRIDGE)
        for port in PORTS:
            subprocess.run(["ip", "link", "del", port], capture_output=True, check=False)


def arguments(port: str, vlan: int) -> list[str]:
    return ["set", "Port", port, "vlan_mode=trunk", "tag=[]", f"trunks={vlan},{PARKING}"]


def by_driver(driver: OvsTor, vlan: int) -> None:
    driver.set_vlans({port: PortVlans(frozenset({VlanId(vlan), PARKING})) for port in PORTS})


def by_vsctl_each(vlan: int) -> None:
    for port in PORTS:
        run("ovs-vsctl", *arguments(port, vlan))


def by_vsctl_once(vlan: int) -> None:
    words = [word for port in PORTS for word in ("--", *arguments(port, vlan))]
    run("ovs-vsctl", *words[1:])


def check(driver: OvsTor, vlan: int) -> None:
    """Check that the change was made: one that was not would look fast."""
    expected = PortVlans(frozenset({VlanId(vlan), PARKING}))
    if any(found != expected for found in driver.vlans(PORTS).values()):
        raise RuntimeError(f"VLAN {vlan} is not on every port")


def times_ms(driver: OvsTor, ways: Sequence[Callable[[int], None]], runs: int) -> list[list[float]]:
    """Times by way, taken in turns so that all ways meet the same machine."""
    taken: list[list[float]] = [[] for _ in ways]
    for turn in range(runs):
        for number, way in enumerate(ways):
            vlan = 100 + (turn * len(ways) + number) % 1000
            started = time.perf_counter()
            way(vlan)
            taken[number].append((time.perf_counter() - started) * 1000)
            check(driver, vlan)
    return taken


def main() -> int:
    with open_vswitch(), tor() as driver:
        ways = (lambda vlan: by_driver(driver, vlan), by_vsctl_each, by_vsctl_once)
        ours, each, once = (median(taken) for taken in times_ms(driver, ways, RUNS))
    case, metric = f"retag {len(PORTS)} ToR ports", f"time until applied, median of {RUNS}"
    results = [
        Result(case, metric, "ms", "lower", ours, each, "one ovs-vsctl per port", TARGET_MS),
        Result(case, metric, "ms", "lower", ours, once, "one ovs-vsctl for all", TARGET_MS),
    ]
    return report("retag", results)


if __name__ == "__main__":
    run_benchmark(main)
