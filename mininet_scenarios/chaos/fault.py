"""A fault of the field: an object that strikes, heals, and reports its own effects.

The invariants leave out only pairs and ports cut, touched or darkened by a fault.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from hydra.model import Fabric, Server
from mininet_scenarios.chaos.readers import Dark, Watch
from mininet_scenarios.stage.controller_process import ControllerProcess
from mininet_scenarios.stage.log_reader import LogReader
from mininet_scenarios.stage.preloaded import Preloaded
from mininet_scenarios.stage.stage import Stage

SILENT_S: Final = 1.0
"""Longest silence of a pair that a fault touches and does not cut."""
PROBE_INTERVAL_S: Final = 1.0
FOUND_BY_PROBES_S: Final = 1.75 * PROBE_INTERVAL_S + SILENT_S
"""Longest silence where there is light: three probes in a row, then the change."""
AUDIT_INTERVAL_S: Final = 2.0
OPEN_VSWITCH: Final = "Open vSwitch"
"""Name held by faults that need Open vSwitch's daemons, or end the daemons."""


@dataclass(slots=True)
class Field:
    """The network struck by faults."""

    stage: Stage
    process: ControllerProcess
    watch: Watch
    dark: Dark
    disk: Path
    """The journal's file system, deliberately small."""
    preloaded: Preloaded
    """The controller's time of day, and the delay of its disk."""
    log_reader: LogReader
    start_waits_for_disk: bool = False
    """True after a start that a full disk has refused."""

    @property
    def fabric(self) -> Fabric:
        return self.stage.fabric

    @property
    def disk_is_full(self) -> bool:
        return os.statvfs(self.disk).f_bavail == 0

    @property
    def openflow(self) -> str:
        """The controller in Open vSwitch's notation."""
        return f"tcp:{self.process.settings.openflow_host}:{self.process.settings.openflow_port}"

    def led_through(self, ports: Collection[str], from_s: float, pair: tuple[str, str]) -> bool:
        """True if two servers' racks have had a path through any of the ToR ports since
        ``from_s``.
        """
        racks = {self.fabric.racks[self.fabric.server_by_name[name].rack].name for name in pair}
        now_s = time.monotonic()
        return any(frozenset(racks) in self.watch.through(port, from_s, now_s) for port in ports)

    def bridge_of(self, server: Server) -> str:
        """The bridge that steers a server's outgoing frames."""
        tor = self.fabric.racks[server.rack].tor
        return tor.bridge if server.vswitch is None else server.vswitch.bridge

    def behind(self, server: Server) -> frozenset[str]:
        """Servers whose frames are steered by the same bridge."""
        some = self.fabric.racks[server.rack].servers if server.vswitch is None else (server,)
        return frozenset(server.name for server in some)


CONTROLLER: Final = "controller"
"""Target of faults of the controller."""


class Fault(ABC):
    """A fault with a target. A fault strikes once and heals once."""

    longest_silence_s: float = SILENT_S
    """Longest silence of touched pairs that are not cut."""
    ends_alone: ClassVar[bool] = False
    """True if the controller mends the fault, and so determines the end."""

    bars_starts = False
    """True if a controller started during the fault has to end because another controller is at
    work.
    """

    def __init__(self, field: Field, target: str, holds: str = "") -> None:
        """``holds``: a name that no simultaneous fault may hold, by default ``target``."""
        self.field = field
        self.target = target
        self.holds = holds or target

    @abstractmethod
    def strike(self) -> None: ...

    def heal(self) -> None:
        """End the fault; nothing to do for faults mended by the controller."""
        return

    def cuts(self, _source: str, _destination: str) -> bool:
        """True if the fault alone cuts off the pair of servers, for any reaction of the
        controller.
        """
        return False

    def excludes(self, other: Fault) -> bool:
        """True if the two faults must not occur at the same time."""
        bars = self.bars_starts or other.bars_starts
        return self.holds == other.holds or (bars and CONTROLLER in (self.holds, other.holds))

    def touches(self, _source: str, _destination: str) -> bool:
        """True if the pair may lose something, but not for longer than ``longest_silence_s``."""
        return False

    def blinds(self, _source: str, _destination: str) -> bool:
        """True if meanwhile no repair of other faults that touch the pair is possible."""
        return False

    def darkens(self) -> frozenset[str]:
        """ToR ports in use whose light the fault takes away."""
        return frozenset()
