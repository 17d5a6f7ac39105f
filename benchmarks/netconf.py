"""Bulk edits over NETCONF and a command line, compared with single ports or cross-connects.

``python -m benchmarks.netconf`` (root). NETCONF goes to netconfd behind sshd; the G8264 is an
emulator behind a real SSH server; both are on this machine. A measurement ends when the driver has
read the device back and found the requested settings.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from lxml import etree
from ncclient import manager

from benchmarks._report import Result, report, run_benchmark
from drivers.optical.polatis_netconf import Options as PolatisOptions
from drivers.optical.polatis_netconf import PolatisNetconf
from drivers.registry import tor_switch
from drivers.transports.netconf import NetconfTransport
from drivers.transports.ssh import SshOptions
from hydra.model import CrossConnect, Login, Rack, RackId, Tor, VlanId
from hydra.roles import PortVlans, TorSwitch
from mininet_scenarios.emulators.netconfd import Netconfd

REPOSITORY = Path(__file__).parents[1]
SIZE = 192
PORTS = 64
VLANS_EACH = 64
RUNS = 9
REQUESTS = 50
TIMEOUT_S = 60.0
LOGIN_VARIABLE = "HYDRA_BENCHMARK_LOGIN"
INTERFACES = [f"Ethernet{number}" for number in range(1, PORTS + 1)]


def time_ms(way: Callable[[int], object], turns: range) -> float:
    """Median time of a turn, without the first turn."""
    times = []
    for turn in turns:
        started = time.perf_counter()
        way(turn)
        times.append((time.perf_counter() - started) * 1000)
    return median(times[1:])


def layout(turn: int) -> list[CrossConnect]:
    return [CrossConnect(n + 1, SIZE + 1 + (n + turn) % SIZE) for n in range(SIZE)]


def cross_connects(server: Netconfd) -> Result:
    options = PolatisOptions(host_key=server.host_key, stream="NETCONF")
    switch = PolatisNetconf("p1", server.address, server.login, options, timeout_s=TIMEOUT_S)
    switch.open()

    def in_bulk(turn: int) -> None:
        switch.change(layout(turn - 1) if turn else [], layout(turn))

    def one_by_one(turn: int) -> None:
        for old in layout(turn - 1):
            switch.change([old], [])
        for new in layout(turn):
            switch.change([], [new])

    ours = time_ms(in_bulk, range(RUNS + 1))
    alone = time_ms(one_by_one, range(RUNS + 1, RUNS + 3))
    switch.close()
    return Result(
        f"polatis-netconf, {SIZE} moved", f"median of {RUNS}", "ms", "lower", ours, alone,
        "one at a time",
    )  # fmt: skip


def memberships(ports: list[str], turn: int) -> dict[str, PortVlans]:
    """VLANs of each port: no two adjacent IDs, all different at each turn."""
    return {
        port: PortVlans(
            frozenset(
                VlanId(100 + (2 * vlan + 7 * number + 131 * turn) % 3900)
                for vlan in range(VLANS_EACH)
            )
        )
        for number, port in enumerate(ports)
    }


def retagging(driver: str, tor: TorSwitch, ports: list[str]) -> Result:
    tor.open()

    def one_by_one(turn: int) -> None:
        for port, vlans in memberships(ports, turn).items():
            tor.set_vlans({port: vlans})

    ours = time_ms(lambda turn: tor.set_vlans(memberships(ports, turn)), range(RUNS + 1))
    alone = time_ms(one_by_one, range(RUNS + 1, RUNS + 3))
    tor.close()
    return Result(
        f"{driver}, {PORTS} ports of {VLANS_EACH} VLANs", f"median of {RUNS}", "ms", "lower",
        ours, alone, "one port at a time",
    )  # fmt: skip


def requests(server: Netconfd) -> Result:
    """Result for waking ncclient's session."""
    options = SshOptions(host_key=server.host_key)
    ours = NetconfTransport("p1", server.address, server.login, options, timeout_s=TIMEOUT_S)
    host, _, port = server.address.partition(":")
    stock = manager.connect_ssh(
        host, int(port), username=server.login.username, key_filename=server.login.key_file,
        hostkey_verify=False, allow_agent=False, look_for_keys=False,
    )  # fmt: skip
    path = etree.Element("{http://www.polatis.com/yang/optical-switch}product-information")
    our_ms = time_ms(lambda _: ours.get(path), range(REQUESTS))
    their_ms = time_ms(lambda _: stock.get(filter=("subtree", path)), range(REQUESTS))
    stock.close_session()
    ours.close()
    return Result(
        "one small get",
        f"median of {REQUESTS - 1}",
        "ms",
        "lower",
        our_ms,
        their_ms,
        "ncclient alone",
    )


def rack(driver: str, address: str, login: Login, options: Mapping[str, object]) -> Rack:
    return Rack(RackId(0), "r1", (), Tor(driver, address, "", None, VlanId(1), login, options), ())


@contextmanager
def g8264() -> Iterator[Callable[[str], TorSwitch]]:
    """An emulated G8264, and drivers for it by name."""
    command = [sys.executable, "-m", "mininet_scenarios.emulators.g8264"]
    command += ["--listen", "127.0.0.1:0", "--password-env", LOGIN_VARIABLE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        _, _, address, _, *key = process.stdout.readline().split()
        cli_port = int(address.rpartition(":")[2])
        login = Login("admin", password_env=LOGIN_VARIABLE)

        def driver(name: str) -> TorSwitch:
            options: dict[str, object] = {"host_key": " ".join(key)}
            if name == "ibm-g8264-netconf":
                options["cli_port"] = cli_port
            return tor_switch(rack(name, address, login, options), TIMEOUT_S)

        try:
            yield driver
        finally:
            process.terminate()


def main() -> int:
    os.environ[LOGIN_VARIABLE] = "of no consequence"
    results = []
    with tempfile.TemporaryDirectory() as directory, Netconfd(Path(directory)) as server:
        server.become_polatis(SIZE)
        server.become_switch(INTERFACES)
        results += [requests(server), cross_connects(server)]
        options = {"host_key": server.host_key}
        wanted = rack("openconfig-vlan", server.address, server.login, options)
        results.append(retagging("openconfig-vlan", tor_switch(wanted, TIMEOUT_S), INTERFACES))
    numbers = [str(number) for number in range(1, PORTS + 1)]
    with g8264() as driver:
        for name in ("ibm-g8264", "ibm-g8264-netconf"):
            results.append(retagging(name, driver(name), numbers))
    return report("netconf", results)


if __name__ == "__main__":
    run_benchmark(main)
