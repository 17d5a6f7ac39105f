"""Retag the optical ports of a ToR: by the driver's single transaction, and by an operator's
commands.

``python -m benchmarks.retag`` (root). A measurement ends when ovs-vswitchd has applied the change:
the driver waits for ``cur_cfg``, as ``ovs-vsctl`` does.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from statistics import median

from benchmarks._report import Result, report, run_benchmark
from drivers.tor.ovs_ovsdb import OvsTor
from hydra.model import VlanId
from hydra.roles import PortVlans
from mininet_scenarios.testbed import open_vswitch
from mininet_scenarios.testbed.bare_tor import PARKING, PORTS, bare_tor, tag_all

RUNS = 25
TARGET_MS = 100.0


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def arguments(port: str, vlan: int) -> list[str]:
    return ["set", "Port", port, "vlan_mode=trunk", "tag=[]", f"trunks={vlan},{PARKING}"]


def by_vsctl_each(vlan: int) -> None:
    for port in PORTS:
        run("ovs-vsctl", *arguments(port, vlan))


def by_vsctl_once(vlan: int) -> None:
    words = [word for port in PORTS for word in ("--", *arguments(port, vlan))]
    run("ovs-vsctl", *words[1:])


def check(driver: OvsTor, vlan: int) -> None:
    """Check that the change was made: a missing change would look fast."""
    expected = PortVlans(frozenset({VlanId(vlan), PARKING}))
    if any(found != expected for found in driver.vlans(PORTS).values()):
        raise RuntimeError(f"VLAN {vlan} is not on every port")


def times_ms(driver: OvsTor, ways: Sequence[Callable[[int], None]], runs: int) -> list[list[float]]:
    """Times by way; ways alternate, so that all have the same conditions."""
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
    with open_vswitch(), bare_tor() as driver:
        ways = (lambda vlan: tag_all(driver, vlan), by_vsctl_each, by_vsctl_once)
        ours, each, once = (median(taken) for taken in times_ms(driver, ways, RUNS))
    case, metric = f"retag {len(PORTS)} ToR ports", f"time until applied, median of {RUNS}"
    results = [
        Result(case, metric, "ms", "lower", ours, each, "one ovs-vsctl per port", TARGET_MS),
        Result(case, metric, "ms", "lower", ours, once, "one ovs-vsctl for all", TARGET_MS),
    ]
    return report("retag", results)


if __name__ == "__main__":
    run_benchmark(main)
