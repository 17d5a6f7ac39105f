"""Faults of the field, each an object that strikes, heals, and says what it cuts by itself.

To add one: a class here, and a line in :data:`FAULTS` that draws its target. What it cuts, touches
and darkens is what the invariants leave out, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from hydra.model import Fabric, Rack, Server
from mininet_scenarios.chaos.readers import Dark, Watch
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.stranger import Stranger
from mininet_scenarios.stage.controller_process import ControllerProcess, ControllerProcessError
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.testbed import links, ovs
from mininet_scenarios.testbed.layout import ocs_interface, server_interface
from mininet_scenarios.testbed.servers import run_in
from mininet_scenarios.testbed.shell import run

SILENT_S: Final = 1.0
"""Longest silence of a pair that a fault touches and does not cut."""
PROBE_INTERVAL_S: Final = 0.4
AUDIT_INTERVAL_S: Final = 2.0
_FAR_PORT: Final = 16
"""A port of each emulated optical switch that nothing is plugged into."""
_BLOCK_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Field:
    """The network that faults strike."""

    stage: Stage
    process: ControllerProcess
    watch: Watch
    dark: Dark
    disk: Path
    """The journal's file system, which is small."""

    @property
    def fabric(self) -> Fabric:
        return self.stage.fabric

    def bridge_of(self, server: Server) -> str:
        """The bridge that steers what a server sends."""
        tor = self.fabric.racks[server.rack].tor
        return tor.bridge if server.vswitch is None else server.vswitch.bridge

    def behind(self, server: Server) -> frozenset[str]:
        """Servers whose frames that bridge steers."""
        some = self.fabric.racks[server.rack].servers if server.vswitch is None else (server,)
        return frozenset(one.name for one in some)


class Fault(ABC):
    """A fault with its target. It strikes once and heals once."""

    name: ClassVar[str]
    longest_silence_s: float = SILENT_S
    """Of pairs that it touches and does not cut."""
    ends_alone: bool = False
    """True if the controller mends it, and :meth:`heal` has nothing to do."""

    def __init__(self, field: Field) -> None:
        self.field = field

    @property
    @abstractmethod
    def target(self) -> str:
        """What it strikes. Two faults at a time strike different targets."""

    @abstractmethod
    def strike(self) -> None: ...

    @abstractmethod
    def heal(self) -> None: ...

    def cuts(self, _source: str, _destination: str) -> bool:
        """True if it cuts this pair of servers off by itself, whatever the controller does."""
        return False

    def touches(self, _source: str, _destination: str) -> bool:
        """True if the pair may lose something, but not for longer than ``longest_silence_s``."""
        return False

    def blinds(self, _source: str, _destination: str) -> bool:
        """True if meanwhile nobody can do anything about other faults that touch this pair."""
        return False

    def darkens(self) -> frozenset[str]:
        """ToR ports that it takes the light from while they are in use."""
        return frozenset()

    def __str__(self) -> str:
        return f"{self.name} ({self.target})"


# -- the controller ----------------------------------------------------------------------------


class ControllerFault(Fault):
    @property
    def target(self) -> str:
        return "controller"


class ControllerAway(ControllerFault):
    def blinds(self, _source: str, _destination: str) -> bool:
        return True


class ControllerKilled(ControllerAway):
    name = "controller killed"

    def strike(self) -> None:
        self.field.process.kill()

    def heal(self) -> None:
        # Other faults may keep it from being ready.
        self.field.process.start(ready=False)


class ControllerKilledInRecovery(ControllerKilled):
    """Killed, started, and killed again before or soon after it is ready."""

    name = "controller killed in recovery"

    def __init__(self, field: Field, lives_s: float) -> None:
        super().__init__(field)
        self._lives_s = lives_s

    def heal(self) -> None:
        process = self.field.process
        starting = threading.Thread(target=self._start)
        starting.start()
        # What comes before recovery is imports, which take seconds and touch nothing.
        deadline_s = time.monotonic() + 30
        began = process.log.stat().st_size
        while "OpenFlow on" not in process.log.read_text()[began:]:
            if time.monotonic() > deadline_s or not starting.is_alive():
                break
            time.sleep(0.02)
        time.sleep(self._lives_s)
        process.kill()
        starting.join()
        super().heal()

    def _start(self) -> None:
        with contextlib.suppress(ControllerProcessError):
            self.field.process.start()


class ControllerStopped(ControllerAway):
    name = "controller stopped (SIGSTOP)"

    def strike(self) -> None:
        os.killpg(self.field.process.pid, signal.SIGSTOP)

    def heal(self) -> None:
        os.killpg(self.field.process.pid, signal.SIGCONT)


class PlannerKilled(ControllerFault):
    name = "planner killed"
    ends_alone = True

    def strike(self) -> None:
        for pid in self.field.process.members():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if b"planner_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def heal(self) -> None:
        return


class DiskFull(Fault):
    name = "disk full"

    @property
    def target(self) -> str:
        return "disk"

    def strike(self) -> None:
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(_BLOCK_BYTES))

    def heal(self) -> None:
        self._filler.unlink()

    @property
    def _filler(self) -> Path:
        return self.field.disk / "filler"


class Strangers(Fault):
    """Connections to the OpenFlow port: with a known datapath id, with garbage, and mute ones."""

    name = "strangers on the OpenFlow port"

    def __init__(self, field: Field, server: Server) -> None:
        super().__init__(field)
        tor = field.fabric.racks[server.rack].tor
        known = tor.datapath_id if server.vswitch is None else server.vswitch.datapath_id
        self._known = known or 0
        self._open: list[Stranger | socket.socket] = []

    @property
    def target(self) -> str:
        return "OpenFlow port"

    def strike(self) -> None:
        address = (
            self.field.process.settings.openflow_host,
            self.field.process.settings.openflow_port,
        )
        with contextlib.suppress(OSError):  # there may be no controller
            self._open.append(Stranger(address, self._known))
            for first in (
                b"",
                b"GET / HTTP/1.1\r\n\r\n",
                bytes(3),
                b"\x04\x00\xff\xff" + bytes(64),
            ):
                one = socket.create_connection(address, timeout=2)
                self._open.append(one)
                one.sendall(first)

    def heal(self) -> None:
        for one in self._open:
            if isinstance(one, Stranger):
                one.leave()
            else:
                one.close()


# -- Open vSwitch ------------------------------------------------------------------------------


class OvsFault(Fault):
    @property
    def target(self) -> str:
        return "Open vSwitch"


class OvsdbKilled(OvsFault):
    name = "ovsdb-server killed"

    def strike(self) -> None:
        ovs.kill("ovsdb-server")

    def heal(self) -> None:
        ovs.ensure_running()


class VswitchdKilled(OvsFault):
    """All bridges at once lose their rules, and nothing is forwarded."""

    name = "ovs-vswitchd killed"

    def strike(self) -> None:
        ovs.kill("ovs-vswitchd")

    def heal(self) -> None:
        ovs.ensure_running()

    def cuts(self, _source: str, _destination: str) -> bool:
        return True


class BridgeFault(OvsFault):
    """A fault of the bridge that steers what a server sends."""

    def __init__(self, field: Field, server: Server) -> None:
        super().__init__(field)
        self.server = server
        self.bridge = field.bridge_of(server)
        self.behind = field.behind(server)

    def __str__(self) -> str:
        return f"{self.name} ({self.bridge})"


class ControllerUnset(BridgeFault):
    """A bridge does without its controller, and forwards as before."""

    name = "bridge's controller unset"

    def strike(self) -> None:
        run(["ovs-vsctl", "--timeout=10", "del-controller", self.bridge])

    def heal(self) -> None:
        settings = self.field.process.settings
        ovs.set_controller(self.bridge, f"tcp:{settings.openflow_host}:{settings.openflow_port}")

    def blinds(self, source: str, destination: str) -> bool:
        return not self.behind.isdisjoint((source, destination))


class FlowsDeleted(BridgeFault):
    """Somebody deletes all rules of a bridge; the audit brings them back."""

    name = "flows deleted by hand"
    ends_alone = True

    def strike(self) -> None:
        run(["ovs-ofctl", "-O", "OpenFlow13", "del-flows", self.bridge])

    def heal(self) -> None:
        return

    def cuts(self, source: str, destination: str) -> bool:
        return not self.behind.isdisjoint((source, destination))


class FlowAdded(FlowsDeleted):
    """Somebody adds a rule by which all of a bridge's frames are dropped."""

    name = "flow added by hand"

    def strike(self) -> None:
        rule = "table=0,priority=60000,actions=drop"
        run(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", self.bridge, rule])


class BridgeDeleted(BridgeFault):
    """A vswitch is deleted, and made again as it was first: without rules."""

    name = "bridge deleted"

    def strike(self) -> None:
        ovs.delete([self.bridge])

    def heal(self) -> None:
        self.field.stage.testbed.make_again(self.bridge)

    def cuts(self, source: str, destination: str) -> bool:
        return not self.behind.isdisjoint((source, destination))


class LearningLost(OvsFault):
    """A learning ToR loses the rule by which it forwards."""

    name = "learning ToR's rule deleted"
    ends_alone = True

    def __init__(self, field: Field, rack: Rack) -> None:
        super().__init__(field)
        self._rack = rack

    def __str__(self) -> str:
        return f"{self.name} ({self._rack.tor.bridge})"

    def strike(self) -> None:
        run(["ovs-ofctl", "-O", "OpenFlow13", "del-flows", self._rack.tor.bridge])

    def heal(self) -> None:
        return

    def cuts(self, source: str, destination: str) -> bool:
        names = {server.name for server in self._rack.servers}
        return not names.isdisjoint((source, destination))


# -- fibres and VLANs --------------------------------------------------------------------------


class PortFault(Fault):
    """A fault of an optical port, which touches whoever has a path through it."""

    def __init__(self, field: Field, port: str) -> None:
        super().__init__(field)
        self.port = port
        (self.wired,) = [one for one in field.fabric.ports if one.tor_port == port]
        plane = field.fabric.planes[self.wired.plane]
        self.fibre = ocs_interface(plane, self.wired)
        self._plane = plane.name
        self._from_s = time.monotonic()

    @property
    def target(self) -> str:
        return self.port

    def strike(self) -> None:
        self._from_s = time.monotonic()
        self.break_it()

    @abstractmethod
    def break_it(self) -> None: ...

    def touches(self, source: str, destination: str) -> bool:
        fabric = self.field.fabric
        racks = {
            fabric.racks[fabric.server_by_name[name].rack].name for name in (source, destination)
        }
        now_s = time.monotonic()
        return frozenset(racks) in self.field.watch.through(self.port, self._from_s - 1.0, now_s)

    def darkens(self) -> frozenset[str]:
        """Both ends of its circuit, whatever that was."""
        return frozenset({self.port})


class FibreCut(PortFault):
    name = "fibre cut"

    def break_it(self) -> None:
        links.set_up(self.fibre, up=False)

    def heal(self) -> None:
        """Mend the fibre; there is light on it if its mirrors say so."""
        counters = self.field.stage.testbed.ocs(self._plane).admin.counters()
        (mirror,) = [one for one in counters.ports if one.egress == self.wired.egress]
        if mirror.lit:
            links.set_up(self.fibre, up=True)


class FibreFlapping(FibreCut):
    name = "fibre flapping"

    def __init__(self, field: Field, port: str, times: int) -> None:
        super().__init__(field, port)
        self._times = times

    def break_it(self) -> None:
        for _ in range(self._times):
            super().break_it()
            time.sleep(0.1)
            self.heal()
            time.sleep(0.2)
        super().break_it()


class FibreOneWay(PortFault):
    """What a rack sends on a plane is lost, and there is light."""

    name = "fibre dead in one direction"
    longest_silence_s = 1.75 * PROBE_INTERVAL_S + SILENT_S
    ends_alone = True

    def break_it(self) -> None:
        # Its mirrors may be moving: then there is nothing to take away.
        command = ["tc", "filter", "del", "dev", self.fibre, "ingress"]
        subprocess.run(command, capture_output=True, check=False)

    def heal(self) -> None:
        return  # the next move of the mirrors


class TrunksChanged(PortFault):
    """Somebody takes an optical port out of its VLANs."""

    name = "trunks changed by hand"
    longest_silence_s = 1.75 * PROBE_INTERVAL_S + SILENT_S
    ends_alone = True

    def break_it(self) -> None:
        run(["ovs-vsctl", "--timeout=10", "set", "port", self.port, "trunks=4001"])

    def heal(self) -> None:
        return


# -- optical switches --------------------------------------------------------------------------


class PlaneFault(Fault):
    def __init__(self, field: Field, plane: str) -> None:
        super().__init__(field)
        self.plane = plane
        self.ocs = field.stage.testbed.ocs(plane)

    @property
    def target(self) -> str:
        return self.plane


class EmulatorKilled(PlaneFault):
    """An optical switch's management dies; its mirrors stay."""

    name = "optical switch dead"

    def strike(self) -> None:
        self.field.dark.plane_ends(self.plane)
        self.ocs.kill()

    def heal(self) -> None:
        self.ocs.start()
        self.ocs.wait_until_ready()


class EmulatorFault(PlaneFault):
    """One of the emulators' own kinds of failure, for as long as it lasts."""

    def __init__(self, field: Field, plane: str, kind: FaultKind, delay_s: float = 0.0) -> None:
        super().__init__(field, plane)
        self._kind = kind
        self._delay_s = delay_s

    def strike(self) -> None:
        self.ocs.admin.fault(self._kind, delay_s=self._delay_s)

    def heal(self) -> None:
        self.ocs.admin.clear()

    def __str__(self) -> str:
        return f"{self.name}: {self._kind.value} ({self.plane})"

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"optical switch: {self._kind.value}"


class ForeignCrossConnect(PlaneFault):
    """Somebody connects a port that no circuit uses."""

    name = "foreign cross-connect"

    def strike(self) -> None:
        self.ocs.admin.block_port(_FAR_PORT)

    def heal(self) -> None:
        self.ocs.admin.unblock()


# -- servers -----------------------------------------------------------------------------------


class ServerFault(Fault):
    def __init__(self, field: Field, server: Server) -> None:
        super().__init__(field)
        self.server = server

    @property
    def target(self) -> str:
        return self.server.name

    def concerns(self, source: str, destination: str) -> bool:
        return self.server.name in (source, destination)


class UplinkDown(ServerFault):
    """Dual-homed servers have another way, except to their own rack."""

    name = "server's uplink down"

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

    name = "neighbour caches flushed"
    ends_alone = True

    def strike(self) -> None:
        host = self.field.stage.testbed.host(self.server.name)
        for version in ("-4", "-6"):
            run_in(host, "ip", version, "neigh", "flush", "dev", server_interface(self.server))

    def heal(self) -> None:
        return


class Flood(ServerFault):
    """A server sends broadcasts and frames to nobody, at a rate that links can carry."""

    name = "server floods"
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


# -- the table ---------------------------------------------------------------------------------

Draw = Callable[[Field, random.Random], Fault | None]
"""Draws a fault with its target; None where the fabric has none, or nothing is in use."""


def _server(field: Field, chance: random.Random) -> Server:
    return chance.choice(field.fabric.servers)


def _plane(field: Field, chance: random.Random) -> str:
    return chance.choice(field.fabric.planes).name


def _port(field: Field, chance: random.Random) -> str:
    """A port that is in use, if there is one."""
    return chance.choice(field.watch.ports_in_use() or [p.tor_port for p in field.fabric.ports])


def _learns(field: Field) -> bool:
    return any(rack.tor.driver != "openflow" for rack in field.fabric.racks)


def _vswitch(field: Field, chance: random.Random) -> Server | None:
    servers = [server for server in field.fabric.servers if server.vswitch is not None]
    return chance.choice(servers) if servers else None


def _trunks_changed(field: Field, chance: random.Random) -> Fault | None:
    return TrunksChanged(field, _port(field, chance)) if _learns(field) else None


def _bridge_deleted(field: Field, chance: random.Random) -> Fault | None:
    server = _vswitch(field, chance)
    return BridgeDeleted(field, server) if server is not None else None


def _learning_lost(field: Field, chance: random.Random) -> Fault | None:
    return LearningLost(field, chance.choice(field.fabric.racks)) if _learns(field) else None


def _device(kind: FaultKind, delay_s: float = 0.0) -> Draw:
    return lambda field, chance: EmulatorFault(field, _plane(field, chance), kind, delay_s)


FAULTS: Final[Mapping[str, Draw]] = {
    "controller-killed": lambda field, _: ControllerKilled(field),
    "controller-killed-in-recovery": lambda field, chance: ControllerKilledInRecovery(
        field, chance.uniform(0.0, 1.5)
    ),
    "controller-stopped": lambda field, _: ControllerStopped(field),
    "planner-killed": lambda field, _: PlannerKilled(field),
    "disk-full": lambda field, _: DiskFull(field),
    "strangers": lambda field, chance: Strangers(field, _server(field, chance)),
    "ovsdb-killed": lambda field, _: OvsdbKilled(field),
    "vswitchd-killed": lambda field, _: VswitchdKilled(field),
    "controller-unset": lambda field, chance: ControllerUnset(field, _server(field, chance)),
    "flows-deleted": lambda field, chance: FlowsDeleted(field, _server(field, chance)),
    "flow-added": lambda field, chance: FlowAdded(field, _server(field, chance)),
    "bridge-deleted": _bridge_deleted,
    "learning-lost": _learning_lost,
    "fibre-cut": lambda field, chance: FibreCut(field, _port(field, chance)),
    "fibre-flapping": lambda field, chance: FibreFlapping(
        field, _port(field, chance), chance.randint(2, 5)
    ),
    "fibre-one-way": lambda field, chance: FibreOneWay(field, _port(field, chance)),
    "trunks-changed": _trunks_changed,
    "ocs-killed": lambda field, chance: EmulatorKilled(field, _plane(field, chance)),
    "ocs-dead": _device(FaultKind.DEAD),
    "ocs-mute": _device(FaultKind.MUTE),
    "ocs-late": _device(FaultKind.SLOW, delay_s=0.7),
    "ocs-refuses": _device(FaultKind.REFUSE),
    "ocs-lies": _device(FaultKind.SILENT),
    "ocs-half-done": _device(FaultKind.PARTIAL),
    "ocs-no-light": _device(FaultKind.NO_LIGHT),
    "ocs-reply-lost": _device(FaultKind.LOSE_REPLY),
    "ocs-killed-in-a-move": _device(FaultKind.KILL),
    "ocs-foreign": lambda field, chance: ForeignCrossConnect(field, _plane(field, chance)),
    "uplink-down": lambda field, chance: UplinkDown(field, _server(field, chance)),
    "neighbours-flushed": lambda field, chance: NeighboursFlushed(field, _server(field, chance)),
    "flood": lambda field, chance: Flood(field, _server(field, chance)),
}
"""All faults, by the name that the command takes and the report counts."""


def names() -> Sequence[str]:
    return tuple(FAULTS)
