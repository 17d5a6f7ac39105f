"""Faults of servers: their uplinks, their neighbour caches, and what they send."""

from __future__ import annotations

import subprocess
from typing import ClassVar

from hydra.model import Server
from mininet_scenarios.chaos.fault import Fault, Field
from mininet_scenarios.testbed.layout import server_interface
from mininet_scenarios.testbed.servers import run_in


class ServerFault(Fault):
    def __init__(self, field: Field, server: Server) -> None:
        super().__init__(field, server.name)
        self.server = server

    def concerns(self, source: str, destination: str) -> bool:
        return self.server.name in (source, destination)


class UplinkDown(ServerFault):
    """Dual-homed servers have another way, except to their own rack."""

    def strike(self) -> None:
        self.field.stage.testbed.kill_uplink(self.server.name)

    def heal(self) -> None:
        self.field.stage.testbed.restore_uplink(self.server.name)

    def touches(self, source: str, destination: str) -> bool:
        return self.concerns(source, destination)

    def cuts(self, source: str, destination: str) -> bool:
        vswitch = self.server.vswitch
        other_way = vswitch is not None and vswitch.electrical_port != vswitch.optical_port
        return not other_way and self.concerns(source, destination)


class NeighboursFlushed(ServerFault):
    """A server forgets all its neighbours. Its kernel keeps what it can't send meanwhile."""

    ends_alone = True

    def strike(self) -> None:
        host = self.field.stage.testbed.host(self.server.name)
        for version in ("-4", "-6"):
            run_in(host, "ip", version, "neigh", "flush", "dev", server_interface(self.server))


class Flood(ServerFault):
    """A server sends broadcasts and frames to nobody, at a rate that links can carry."""

    _FRAMES_PER_S: ClassVar[float] = 200.0

    def __init__(self, field: Field, server: Server) -> None:
        super().__init__(field, server)
        self._process: subprocess.Popen[bytes] | None = None

    def strike(self) -> None:
        own = bytes.fromhex(self.server.mac.replace(":", ""))
        frames = [
            target + own + b"\x88\xb7" + bytes(200) for target in (b"\xff" * 6, b"\x02\xee" * 3)
        ]
        script = (
            "import socket, time\n"
            f"s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n"
            f"s.bind(({server_interface(self.server)!r}, 0))\n"
            "while True:\n"
            f"    for frame in {frames!r}:\n"
            "        s.send(frame)\n"
            f"    time.sleep({len(frames) / self._FRAMES_PER_S})\n"
        )
        host = self.field.stage.testbed.host(self.server.name)
        self._process = host.popen(["python3", "-c", script])

    def heal(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
