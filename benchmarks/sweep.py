"""Counters of 320 ToRs and 10,240 vswitches of 320 rules each: processor, memory, interval.

``python -m benchmarks.sweep``. A process that only polls reads the reference fabric, over a TCP
connection for each switch. The benchmark's process plays the switches: they send the replies of
Open vSwitch for these rules, with growing counters. One run polls every 10 s; another run as often
as possible, which shows the shortest possible interval. The baseline is Ryu's parser alone on the
same number of bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

from apps.process.configuration import load_configuration
from benchmarks import _ryu
from benchmarks._replies import account_rules, flow_bodies, flow_entry, multipart_reply
from benchmarks._report import Result, report, run_benchmark
from benchmarks._switches import (
    MULTIPART_REQUEST,
    await_listener,
    converse,
    cpu_s,
    port_descriptions,
)
from drivers.codecs.openflow.messages import MULTIPART_FLOW, MULTIPART_PORT_STATS
from hydra.forwarding.pipeline import RuleKind
from hydra.model import Fabric

CONFIG: Final = Path(__file__).parents[1] / "configs" / "reference.yaml"
OPENFLOW_PORT: Final = 16654
RELAXED_S: Final = 10.0
RELENTLESS_S: Final = 0.5
MEASURED_S: Final = 30.0
RULES: Final = 320
TOR_PORTS: Final = 64
_RYU_REPLIES: Final = 20

_PORT_DESCRIPTION: Final = 13
_PORT_COUNTERS: Final = Struct("!Ixxxx12QII")


class Replies:
    """The switches' replies: the same for all switches, with counters that grow by the second."""

    def __init__(self, fabric: Fabric) -> None:
        rules = account_rules(fabric, fabric.servers[0])
        self._rules = [rule for rule in rules if rule.kind is not RuleKind.ACCOUNT_V6]
        self._second = -1
        self._flows: list[bytes] = []
        self._ports: list[bytes] = []
        """Counters of each port."""

    def flows(self, xid: int) -> bytes:
        self._grow()
        return multipart_reply(MULTIPART_FLOW, self._flows, xid)

    def ports(self, xid: int, count: int) -> bytes:
        self._grow()
        return multipart_reply(MULTIPART_PORT_STATS, [b"".join(self._ports[:count])], xid)

    def _grow(self) -> None:
        second = int(time.monotonic())
        if second == self._second:
            return
        self._second = second
        packets = 1000 * second
        age_ns = second * 10**9
        self._flows = flow_bodies(
            flow_entry(rule, age_ns, packets, 1000 * packets) for rule in self._rules
        )
        self._ports = [
            _PORT_COUNTERS.pack(port, *(1000 * packets,) * 12, second, 0)
            for port in range(1, TOR_PORTS + 1)
        ]


class Switches:
    """Every vswitch and ToR of the fabric."""

    def __init__(self, fabric: Fabric) -> None:
        self._replies = Replies(fabric)
        self._ports_of = {
            server.vswitch.datapath_id: (
                server.vswitch.host_port,
                server.vswitch.optical_port,
                server.vswitch.electrical_port,
            )
            for server in fabric.servers
        }
        self._tors = {
            datapath: tuple(port.tor_port for port in fabric.ports_of(rack.id))
            for datapath, rack in fabric.rack_by_tor_datapath.items()
        }
        self.answered = 0
        self.sent_bytes = 0

    async def play(self) -> None:
        async with asyncio.TaskGroup() as group:
            for datapath, names in {**self._ports_of, **self._tors}.items():
                group.create_task(self._switch(datapath, names))
                await asyncio.sleep(0.001)  # a listening queue has a limited length

    async def _switch(self, datapath: int, names: tuple[str, ...]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", OPENFLOW_PORT)
        ports = port_descriptions(names)

        def answer(kind: int, xid: int, body: bytes) -> bytes:
            if kind != MULTIPART_REQUEST:
                return b""
            count = TOR_PORTS if datapath in self._tors else len(names)
            return self._statistics(int.from_bytes(body[:2], "big"), xid, ports, count)

        await converse(reader, writer, datapath, answer)

    def _statistics(self, kind: int, xid: int, ports: bytes, count: int) -> bytes:
        if kind == _PORT_DESCRIPTION:
            return multipart_reply(kind, [ports], xid)
        flows = kind == MULTIPART_FLOW
        reply = self._replies.flows(xid) if flows else self._replies.ports(xid, count)
        self.answered += 1
        self.sent_bytes += len(reply)
        return reply


@dataclass(frozen=True, slots=True)
class Run:
    answers_per_s: float
    bytes_per_s: float
    cpu_share: float
    peak_mb: float
    grown_mb: float
    """Additional memory, compared with the process with all switches connected."""
    troubles: dict[str, int]


def memory_mb(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


async def measure(config: Path, interval_s: float) -> Run:
    """Poll the fabric of a configuration file, with played switches, for half a minute."""
    fabric = load_configuration(config).fabric
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from apps.openflow.framework import run_manager; import sys; "
        "run_manager(sys.argv[1:])", "benchmarks/_polling_app.py",
        cwd=CONFIG.parents[1],
        env={
            **os.environ,
            "POLL_INTERVAL_S": str(interval_s),
            "POLLED": str(config),
            "PYTHONPATH": ".",
        },
        stdout=subprocess.PIPE,
    )  # fmt: skip
    if process.stdout is None:
        raise RuntimeError("the controller's process has no output")
    switches = Switches(fabric)
    try:
        await await_listener(OPENFLOW_PORT)
        playing = asyncio.create_task(switches.play())
        await process.stdout.readline()  # all switches are connected
        before_mb = memory_mb(process.pid, "VmRSS")
        await asyncio.sleep(2 * RELAXED_S)
        used_s, answered, sent = cpu_s(process.pid), switches.answered, switches.sent_bytes
        started_s = time.monotonic()
        await asyncio.sleep(MEASURED_S)
        took_s = time.monotonic() - started_s
        run = Run(
            answers_per_s=(switches.answered - answered) / took_s,
            bytes_per_s=(switches.sent_bytes - sent) / took_s,
            cpu_share=(cpu_s(process.pid) - used_s) / took_s,
            peak_mb=memory_mb(process.pid, "VmHWM"),
            grown_mb=memory_mb(process.pid, "VmHWM") - before_mb,
            troubles={},
        )
        playing.cancel()
    finally:
        process.kill()
        output, _ = await process.communicate()
    return Run(**{**_fields(run), "troubles": json.loads(output.splitlines()[-1])["troubles"]})


def _fields(run: Run) -> dict[str, object]:
    return {name: getattr(run, name) for name in Run.__slots__}


def ryu_s_per_reply(fabric: Fabric) -> float:
    """Processor time of Ryu's parser for the reply of a vswitch."""
    body = b"".join(Replies(fabric).flows(1)[16:] for _ in range(_RYU_REPLIES))
    started_s = time.process_time()
    _ryu.decode_flow_stats(body)
    return (time.process_time() - started_s) / _RYU_REPLIES


def main() -> int:
    fabric = load_configuration(CONFIG).fabric
    vswitches, tors = len(fabric.servers), len(fabric.racks)
    if tors != RULES:
        raise RuntimeError(f"{tors} rules count IPv4 racks, not {RULES}")
    relaxed = asyncio.run(measure(CONFIG, RELAXED_S))
    relentless = asyncio.run(measure(CONFIG, RELENTLESS_S))
    ryu_s = vswitches * ryu_s_per_reply(fabric)
    answers = 2 * vswitches + tors  # rules and ports of each vswitch, ports of each ToR
    per_sweep_s = relaxed.cpu_share / relaxed.answers_per_s * answers
    case = f"{tors} ToRs, {vswitches} vswitches x {RULES} rules"
    mb = relaxed.bytes_per_s / relaxed.answers_per_s * answers / 1e6
    shortest_s = answers / relentless.answers_per_s
    name = "Ryu's parser alone"
    return report(
        "sweep",
        [
            Result(case, "processor time of a sweep", "s", "lower", per_sweep_s, ryu_s, name,
                   note=f"{mb:.0f} MB a sweep; troubles: {relaxed.troubles}"),
            Result(case, "shortest interval", "s", "lower", shortest_s, ryu_s, name),
            Result(
                case, "memory at its peak, MB", "MB", "lower", relaxed.peak_mb,
                relaxed.peak_mb - relaxed.grown_mb, "connected, before polling"
            ),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    run_benchmark(main)
