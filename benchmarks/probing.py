"""Cost of probing 5,120 running circuits to the controller's process.

``python -m benchmarks.probing``. The reference fabric's 320 racks have a circuit on each of their
32 planes, probed in both directions by a process that only probes. The benchmark's own process
plays the switches over TCP, by OpenFlow 1.3, and carries each probe to its receiver. The baseline
is the same process with probing switched off.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from struct import Struct
from typing import Final

from apps.process.configuration import load_configuration
from benchmarks._replies import multipart_reply
from benchmarks._report import Result, report, run_benchmark
from benchmarks._switches import (
    HEADER,
    MULTIPART_REQUEST,
    PACKET_IN,
    PACKET_OUT,
    await_listener,
    converse,
    cpu_s,
    port_descriptions,
)
from hydra.model import Circuit, Fabric, NetworkState, PortId, Topology, VlanId
from hydra.model import Path as NetworkPath

CONFIG: Final = Path(__file__).parents[1] / "configs" / "reference.yaml"
OPENFLOW_PORT: Final = 16653
INTERVAL_S: Final = 2.0
"""The default interval; with this number of circuits, the controller uses a longer interval."""
MEASURED_S: Final = 24.0
_SETTLING_S: Final = 15.0
"""Time until each circuit has been probed once."""
TARGET_PERCENT: Final = 5.0

_PACKET_OUT_FRAME: Final = 40
_PACKET_IN_HEAD: Final = Struct("!IHBBQHHIIxxxxxx")


def standing_state(fabric: Fabric) -> NetworkState:
    """All racks in pairs on each plane, each pair once (the circle method)."""
    racks = len(fabric.racks)
    ports = {(port.rack, port.plane): port.id for port in fabric.ports}
    vlans: dict[NetworkPath, VlanId] = {}
    for plane in fabric.planes:
        ring = [(index + plane.id) % (racks - 1) for index in range(racks - 1)]
        order = [racks - 1, *ring]
        for near, far in zip(order[: racks // 2], reversed(order[racks // 2 :]), strict=True):
            a, b = sorted((fabric.racks[near].id, fabric.racks[far].id))
            ends: list[PortId] = sorted((ports[a, plane.id], ports[b, plane.id]))
            path = NetworkPath(a, b, (Circuit(plane.id, *ends),))
            vlans[path] = VlanId(100 + plane.id)
    circuits = frozenset(circuit for path in vlans for circuit in path.circuits)
    return NetworkState(1, Topology(circuits, tuple(sorted(vlans))), vlans)


class Switches:
    """The first vswitch of every rack."""

    def __init__(self, fabric: Fabric) -> None:
        self._servers = [rack.servers[0] for rack in fabric.racks]
        self._writer_of: dict[bytes, asyncio.StreamWriter] = {}
        self.carried = 0

    async def play(self) -> None:
        async with asyncio.TaskGroup() as group:
            for index in range(len(self._servers)):
                group.create_task(self._switch(index))

    async def _switch(self, index: int) -> None:
        server = self._servers[index]
        reader, writer = await asyncio.open_connection("127.0.0.1", OPENFLOW_PORT)
        self._writer_of[bytes.fromhex(server.mac.replace(":", ""))] = writer
        names = (
            server.vswitch.host_port,
            server.vswitch.optical_port,
            server.vswitch.electrical_port,
        )
        ports = port_descriptions(names)

        def answer(kind: int, xid: int, body: bytes) -> bytes:
            if kind == PACKET_OUT:
                self._carry(body[_PACKET_OUT_FRAME - 8 :])
            elif kind == MULTIPART_REQUEST:
                return multipart_reply(int.from_bytes(body[:2], "big"), [ports], xid)
            return b""

        await converse(reader, writer, server.vswitch.datapath_id, answer)

    def _carry(self, frame: bytes) -> None:
        self.carried += 1
        head = _PACKET_IN_HEAD.pack(0xFFFFFFFF, len(frame), 0, 0, 0, 1, 12, 0x80000004, 2)
        message = HEADER.pack(4, PACKET_IN, 8 + len(head) + len(frame), 0) + head + frame
        self._writer_of[frame[:6]].write(message)


async def measure(fabric: Fabric, interval_s: float) -> tuple[float, float]:
    """(Share of a core in %, probes per second) of a process that probes at this interval."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from apps.openflow.framework import run_manager; import sys; "
         "run_manager(sys.argv[1:])", "benchmarks/_probing_app.py"],
        cwd=CONFIG.parents[1],
        env={**os.environ, "PROBE_INTERVAL_S": str(interval_s), "PYTHONPATH": "."},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        switches = Switches(fabric)
        await await_listener(OPENFLOW_PORT)
        playing = asyncio.create_task(switches.play())
        await asyncio.sleep(_SETTLING_S)
        used_s, carried, started_s = cpu_s(process.pid), switches.carried, time.monotonic()
        await asyncio.sleep(MEASURED_S)
        took_s = time.monotonic() - started_s
        share = (cpu_s(process.pid) - used_s) / took_s * 100
        rate = (switches.carried - carried) / took_s
        playing.cancel()
    finally:
        process.kill()
        output, _ = process.communicate()
    if output.strip():
        raise RuntimeError(f"healthy circuits were given up: {output[:300]!r}")
    return share, rate


def main() -> int:
    fabric = load_configuration(CONFIG).fabric
    idle, _ = asyncio.run(measure(fabric, 0.0))
    share, rate = asyncio.run(measure(fabric, INTERVAL_S))
    circuits = len(standing_state(fabric).topology.circuits)
    if not rate:
        raise RuntimeError("nothing was probed")
    every_s = 2 * circuits / rate
    case = f"{circuits} circuits, both directions every {every_s:.1f} s ({rate:.0f} probes/s)"
    result = Result(
        case, "share of a core", "%", "lower", share, idle, "not probing", TARGET_PERCENT
    )
    return report("probing", [result])


if __name__ == "__main__":
    run_benchmark(main)
