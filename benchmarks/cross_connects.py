"""Time to set cross-connects with every optical driver, in bulk and singly; many planes at once.

``python -m benchmarks.cross_connects [DRIVER…]`` (root); with names: only these drivers. Devices
are emulators on loopback sockets, whose mirrors take 25 ms; for ``openflow-xc``, a bridge of Open
vSwitch, whose rules take no such time. A measurement ends when the driver has read the device back
and found the requested cross-connects.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from types import MappingProxyType

import yaml

from benchmarks._choice import chosen
from benchmarks._report import Result, report, run_benchmark
from drivers.registry import OPTICAL, optical_switch
from hydra.model import CrossConnect, Login, Plane, PlaneId
from hydra.roles import OpticalSwitch
from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.certificate import CA
from mininet_scenarios.testbed import open_vswitch

REPOSITORY = Path(__file__).parents[1]
PORTS = 192
SWITCHING_MS = 25.0
RUNS = 5
PLANES = 32
PLANE_RUNS = 30
TIMEOUT_S = 60.0
PARALLEL_TARGET = 1.5


def options(driver: str, folder: str) -> dict[str, object]:
    """Options of the documented example, and trusted certificates, for drivers that need these."""
    if EMULATORS[driver].has_directory:
        return {"ca_file": f"{folder}/{CA}"}
    if driver != "template":
        return {}
    page = (REPOSITORY / "docs" / "template-driver.md").read_text()
    (plane,) = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])["planes"]
    return plane["options"]


@contextmanager
def driven(
    driver: str,
    number: int,
    address: str,
    login: Login | None = None,
    options: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[OpticalSwitch]:
    """An open driver of the device at ``address``."""
    plane = Plane(
        PlaneId(number),
        f"p{number}",
        driver,
        address,
        PORTS,
        SWITCHING_MS,
        1.0,
        login,
        options,
    )
    switch = optical_switch(plane, TIMEOUT_S)
    switch.open()
    try:
        yield switch
    finally:
        switch.close()


@contextmanager
def emulated(
    driver: str,
    number: int = 0,
    *,
    serial: bool = False,
    more: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[OpticalSwitch]:
    """A driver with a new emulator; ``more``: options of the driver."""
    emulator = EMULATORS[driver]
    variable = f"HYDRA_BENCHMARK_{emulator.module.upper()}"
    os.environ[variable] = emulator.password
    login = None if emulator.user is None else Login(emulator.user, password_env=variable)
    line = f"{tempfile.gettempdir()}/hydra-benchmark-{os.getpid()}-{number}"
    command = [sys.executable, "-m", emulator.path]
    command += ["--listen", "127.0.0.1:0", "--ports", f"{PORTS}"]
    command += ["--switching-ms", f"{SWITCHING_MS:g}", *(["--serial", line] if serial else [])]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [*command, *(["--directory", folder] if emulator.has_directory else [])],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        ) as process,
    ):
        address = process.stdout.readline().split()[2]
        where = f"serial:{line}" if serial else address
        try:
            with driven(driver, number, where, login, {**options(driver, folder), **more}) as found:
                yield found
        finally:
            process.terminate()


@contextmanager
def bridge() -> Iterator[OpticalSwitch]:
    """An Open vSwitch bridge as a cross-connect, with unconnected ports."""
    name = "hyBxc"
    made = ["--", "set", "bridge", name, "datapath_type=netdev", "fail_mode=secure"]
    for port in range(1, PORTS + 1):
        made += ["--", "add-port", name, f"hyBx{port}", "--", "set", "interface", f"hyBx{port}"]
        made += ["type=internal", f"ofport_request={port}"]
    with open_vswitch():
        subprocess.run(["ovs-vsctl", "add-br", name, *made], check=True)
        try:
            with driven("openflow-xc", 0, f"unix:/var/run/openvswitch/{name}.mgmt") as switch:
                yield switch
        finally:
            subprocess.run(["ovs-vsctl", "del-br", name], check=True)


def layout(turn: int, size: int) -> list[CrossConnect]:
    """``size`` cross-connects, all different from the cross-connects of the previous turn."""
    return [CrossConnect(n + 1, PORTS + 1 + (n + turn) % size) for n in range(size)]


def in_bulk(switch: OpticalSwitch, before: Sequence[CrossConnect], after: Sequence[CrossConnect]):
    switch.change(before, after)


def one_by_one(
    switch: OpticalSwitch, before: Sequence[CrossConnect], after: Sequence[CrossConnect]
):
    for cross_connect in before:
        switch.change([cross_connect], [])
    for cross_connect in after:
        switch.change([], [cross_connect])


def time_ms(way, switch: OpticalSwitch, turns: range, size: int) -> float:
    """Median time of a change from one layout to the next, without the first change."""
    times = []
    for turn in turns:
        started = time.perf_counter()
        way(switch, layout(turn - 1, size) if turn else [], layout(turn, size))
        times.append((time.perf_counter() - started) * 1000)
        if switch.cross_connects() != set(layout(turn, size)):
            raise RuntimeError(f"{switch.name} has not what was asked for")
    return median(times[1:])


def driver_results(named: Sequence[str]) -> list[Result]:
    devices = {driver: emulated(driver) for driver in OPTICAL if driver in EMULATORS}
    devices["polatis-scpi on a pseudo-terminal"] = emulated("polatis-scpi", serial=True)
    devices["calient-tl1 with options.bulk"] = emulated("calient-tl1", more={"bulk": True})
    devices["openflow-xc"] = bridge()
    names, _ = chosen("cross_connects", "device", devices, named)
    results = []
    for name in names:
        with devices[name] as switch:
            ours = time_ms(in_bulk, switch, range(RUNS + 1), PORTS)
            alone = time_ms(one_by_one, switch, range(RUNS, RUNS + 2), PORTS)
        case = f"{name}, {PORTS} moved"
        results.append(
            Result(case, f"median of {RUNS}", "ms", "lower", ours, alone, "one at a time")
        )
    return results


@contextmanager
def planes_in_one_process() -> Iterator[list[OpticalSwitch]]:
    """All planes, in a single separate process, which uses little processor time: real planes do
    not share the machine.
    """
    command = [sys.executable, "-m", "benchmarks._planes", f"{PLANES}", f"{PORTS}"]
    command += [f"{SWITCHING_MS:g}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        try:
            addresses = process.stdout.readline().split()
            with ExitStack() as stack:
                yield [
                    stack.enter_context(driven("polatis-scpi", number, address))
                    for number, address in enumerate(addresses)
                ]
        finally:
            process.terminate()


@contextmanager
def planes_apart() -> Iterator[list[OpticalSwitch]]:
    """All planes, each emulated by a separate process."""
    with ExitStack() as stack:
        yield [stack.enter_context(emulated("polatis-scpi", n)) for n in range(PLANES)]


def at_once(switches: Sequence[OpticalSwitch], size: int) -> tuple[float, float]:
    """Median time in ms of a change of one plane, and of all planes, with a thread for each plane,
    as in the controller.
    """
    alone, together = [], []
    with ThreadPoolExecutor(len(switches)) as pool:
        for switch in switches:
            switch.change(switch.cross_connects(), layout(0, size))
        for turn in range(1, PLANE_RUNS + 1):
            before, after = layout(turn - 1, size), layout(turn, size)
            started = time.perf_counter()
            switches[0].change(before, after)
            alone.append((time.perf_counter() - started) * 1000)
            switches[0].change(after, before)
            started = time.perf_counter()
            list(pool.map(lambda s, b=before, a=after: s.change(b, a), switches))
            together.append((time.perf_counter() - started) * 1000)
    return median(alone), median(together)


def plane_results() -> list[Result]:
    """Compare all planes at once with a single plane."""
    results = []
    for emulators, where, sizes in (
        (planes_in_one_process, "one process", (8, PORTS)),
        (planes_apart, "a process each", (8,)),
    ):
        with emulators() as switches:
            for size in sizes:
                alone, together = at_once(switches, size)
                counts = emulators is planes_in_one_process
                results.append(
                    Result(
                        f"{PLANES} planes at once ({where}), {size} moved in each",
                        f"median of {PLANE_RUNS}",
                        "ms",
                        "lower",
                        together,
                        alone,
                        "one plane",
                        PARALLEL_TARGET * alone if counts else None,
                    )
                )
    return results


def main(named: Sequence[str] = ()) -> int:
    results = [*driver_results(named), *([] if named else plane_results())]
    return report("cross_connects", results)


if __name__ == "__main__":
    run_benchmark(main)
