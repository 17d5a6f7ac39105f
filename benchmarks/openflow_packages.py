"""OpenFlow by os-ken compared with Ryu, both on HydRA's event loop.

``python -m benchmarks.openflow_packages``. A process of each package in turn, with SWITCHES
switches played over TCP without TLS: processor time of a handshake and of a barrier reply, and
memory. The times do not include the start of the process.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Final

from apps.openflow.package import OS_KEN, RYU, VARIABLE
from benchmarks._replies import multipart_reply
from benchmarks._report import Result, report, run_benchmark
from benchmarks._switches import HEADER, await_listener, converse, cpu_s, port_descriptions

OPENFLOW_PORT: Final = 16654
SWITCHES: Final = 400
BARRIERS: Final = 500
"""Number of barriers from each switch."""
ROUNDS: Final = 3
_BARRIER_REPLY: Final = 21
_TCP_PORTS: Final = port_descriptions(["eth0", "eth1", "eth2"])
_LOOK_S: Final = 0.2


async def until(process: subprocess.Popen[str], count: int) -> None:
    """Return once the process has counted this number of switches and barriers."""
    while (
        process.stdout is not None and int(await asyncio.to_thread(process.stdout.readline)) < count
    ):
        await asyncio.sleep(_LOOK_S)


async def measure(package: str) -> tuple[float, float, float]:
    """(ms per handshake, microseconds per barrier reply, MB at the end) of a process."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("ryu-manager"), "benchmarks/_hearing_app.py"],
        cwd=Path(__file__).parents[1],
        env={**os.environ, VARIABLE: package, "PYTHONPATH": "."},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        await await_listener(OPENFLOW_PORT)
        await until(process, 0)
        writers: list[asyncio.StreamWriter] = []

        async def switch(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", OPENFLOW_PORT)
            writers.append(writer)
            await converse(
                reader,
                writer,
                number,
                lambda _kind, xid, body: multipart_reply(
                    int.from_bytes(body[:2], "big"), [_TCP_PORTS], xid
                ),
            )

        before_s = cpu_s(process.pid)
        playing = [asyncio.create_task(switch(number + 1)) for number in range(SWITCHES)]
        await until(process, SWITCHES)
        connected_s = cpu_s(process.pid)
        for _ in range(BARRIERS):
            for writer in writers:
                writer.write(HEADER.pack(4, _BARRIER_REPLY, 8, 7))
            await asyncio.sleep(0)
        await until(process, SWITCHES * (1 + BARRIERS))
        heard_s = cpu_s(process.pid)
        status = Path(f"/proc/{process.pid}/status").read_text()
        for task in playing:
            task.cancel()
    finally:
        process.terminate()
        process.communicate()
    (resident,) = re.findall(r"VmRSS:\s+(\d+)", status)
    return (
        (connected_s - before_s) / SWITCHES * 1e3,
        (heard_s - connected_s) / SWITCHES / BARRIERS * 1e6,
        int(resident) / 1e3,
    )


def main() -> int:
    rounds = [
        {package: asyncio.run(measure(package)) for package in (RYU, OS_KEN)} for _ in range(ROUNDS)
    ]
    results = []
    for place, (metric, unit) in enumerate(
        [("a handshake", "ms"), ("a barrier's reply", "µs"), ("memory", "MB")]
    ):
        ours, ryus = (
            median(round_[package][place] for round_ in rounds) for package in (OS_KEN, RYU)
        )
        case = f"{SWITCHES} switches, median of {ROUNDS}"
        results.append(Result(case, metric, unit, "lower", ours, ryus, "Ryu"))
    return report("openflow_packages", results)


if __name__ == "__main__":
    run_benchmark(main)
