"""Many emulated planes in one process: ``python -m benchmarks._planes COUNT PORTS SWITCHING_MS``.

Real planes compute on processors of their own. Emulators in a process each share the processors of
this machine, and what it takes to switch between dozens of interpreters is no plane's doing.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from mininet_scenarios.emulators.mirrors import MemoryMirrors
from mininet_scenarios.emulators.ocs import EmulatedOcs, Timing
from mininet_scenarios.emulators.polatis_server import PolatisServer


async def serve(count: int, ports: int, switching_s: float) -> None:
    """Until SIGTERM; prints the planes' addresses in one line once all of them listen."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    servers, addresses = [], []
    for number in range(count):
        ocs = EmulatedOcs(ports, MemoryMirrors(), Timing(switching_s))
        await ocs.start()
        servers.append(PolatisServer(ocs, f"{number}"))
        host, port = await servers[-1].listen("127.0.0.1", 0)
        addresses.append(f"{host}:{port}")
    print(*addresses, flush=True)
    await stop.wait()
    for server in servers:
        await server.die()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000))
