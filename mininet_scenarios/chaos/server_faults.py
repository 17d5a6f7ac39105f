"""Faults of servers: uplinks, neighbour caches, and malicious senders."""

from __future__ import annotations

import json
import subprocess
from abc import abstractmethod
from contextlib import suppress
from typing import ClassVar, Final

from hydra.model import Server
from mininet_scenarios.chaos.fault import FOUND_BY_PROBES_S, Fault, Field
from mininet_scenarios.testbed.layout import server_interface
from mininet_scenarios.testbed.servers import run_in
from mininet_scenarios.testbed.shell import TestbedError, run

_EVERYBODY: Final = b"\xff" * 6
_ETHERTYPE: Final = b"\x88\xb7"
"""Ethertype of experiments (IEEE 802, OUI extended), ignored by every kernel."""
_FRAME_BYTES: Final = 214


class ServerFault(Fault):
    def __init__(self, field: Field, server: Server) -> None:
        super().__init__(field, server.name)
        self.server = server

    def concerns(self, source: str, destination: str) -> bool:
        return self.server.name in (source, destination)


class UplinkDown(ServerFault):
    """A server's uplink goes down. Dual-homed servers have a second way, except within the rack."""

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


class UplinkOneWay(UplinkDown):
    """A server's uplink passes nothing in one direction, and both ends have carrier."""

    longest_silence_s = FOUND_BY_PROBES_S

    def __init__(self, field: Field, server: Server, *, sends: bool) -> None:
        """``sends``: frames from the server are lost; otherwise frames from the ToR."""
        super().__init__(field, server)
        vswitch = server.vswitch
        own = server.tor_port if vswitch is None else vswitch.optical_port
        self._loses = own if sends else server.tor_port

    def strike(self) -> None:
        run(["tc", "qdisc", "add", "dev", self._loses, "clsact"])
        into_nothing = ["action", "mirred", "egress", "redirect", "dev", "lo"]
        every = ["protocol", "all", "u32", "match", "u32", "0", "0", *into_nothing]
        run(["tc", "filter", "add", "dev", self._loses, "egress", *every])

    def heal(self) -> None:
        # Other faults may have made the port anew.
        command = ["tc", "qdisc", "del", "dev", self._loses, "clsact"]
        subprocess.run(command, capture_output=True, check=False)


class NeighboursFlushed(ServerFault):
    """A server forgets all its neighbours. The kernel keeps frames that can't be sent meanwhile.

    Each entry is deleted once: ``ip neigh flush`` goes over the entries again until none is left,
    and so drops the frames that new entries keep.
    """

    ends_alone = True

    def strike(self) -> None:
        host = self.field.stage.testbed.host(self.server.name)
        interface = server_interface(self.server)
        for version in ("-4", "-6"):
            neighbours = json.loads(
                run_in(host, "ip", "-json", version, "neigh", "show", "dev", interface)
            )
            deletions = (f"neigh del {entry['dst']} dev {interface}\n" for entry in neighbours)
            with suppress(TestbedError):  # an entry may have gone meanwhile
                run_in(host, "ip", "-force", version, "-batch", "-", stdin="".join(deletions))


class Sender(ServerFault):
    """A server sends crafted frames, at a rate that links can carry."""

    _FRAMES_PER_S: ClassVar[float] = 200.0

    def __init__(self, field: Field, server: Server) -> None:
        super().__init__(field, server)
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def frames(self) -> list[bytes]: ...

    def strike(self) -> None:
        frames = [frame.ljust(_FRAME_BYTES, b"\0") for frame in self.frames()]
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


class Flood(Sender):
    """Broadcasts, and frames to an unused address."""

    def frames(self) -> list[bytes]:
        return [target + _mac(self.server) + _ETHERTYPE for target in (_EVERYBODY, b"\x02\xee" * 3)]


class Spoof(Sender):
    """Broadcast frames, and frames to each server, with the MAC address of a different server."""

    def __init__(self, field: Field, server: Server, victim: Server) -> None:
        super().__init__(field, server)
        self._victim = victim

    def frames(self) -> list[bytes]:
        targets = [_EVERYBODY, *map(_mac, self.field.fabric.servers)]
        return [target + _mac(self._victim) + _ETHERTYPE for target in targets]


class Tags(Sender):
    """Frames with the tags of circuits: broadcast, to each server, and to an unused address."""

    _VLANS: ClassVar[int] = 8

    def frames(self) -> list[bytes]:
        first = self.field.fabric.circuit_vlans.first
        tags = [b"\x81\x00" + vlan.to_bytes(2, "big") for vlan in range(first, first + self._VLANS)]
        targets = [_EVERYBODY, b"\x02\xee" * 3, *map(_mac, self.field.fabric.servers)]
        own = _mac(self.server)
        return [target + own + tag + _ETHERTYPE for tag in tags for target in targets]


def _mac(server: Server) -> bytes:
    return bytes.fromhex(server.mac.replace(":", ""))
