"""The table of faults, and the drawing of targets.

To add a fault: a class in one of the files imported here, and a line in :data:`FAULTS`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Final

from hydra.model import Server
from mininet_scenarios.chaos.controller_faults import (
    ClockStepped,
    ControllerKilled,
    ControllerKilledInRecovery,
    ControllerKilledInStages,
    ControllerStopped,
    DiskFull,
    DiskSlow,
    JournalCut,
    JournalRolledBack,
    LogUnread,
    PlannerKilled,
    Storm,
    Strangers,
)
from mininet_scenarios.chaos.fault import Fault, Field
from mininet_scenarios.chaos.optical_faults import (
    EmulatorFault,
    EmulatorKilled,
    FibreCut,
    FibreFlapping,
    FibreOneWay,
    ForeignCrossConnect,
    SmallFrames,
    TrunksChanged,
)
from mininet_scenarios.chaos.server_faults import (
    Flood,
    NeighboursFlushed,
    Spoof,
    Tags,
    UplinkDown,
    UplinkOneWay,
)
from mininet_scenarios.chaos.switch_faults import (
    BridgeDeleted,
    BridgeRobbed,
    ControllerMisset,
    ControllerUnset,
    DaemonKilled,
    FlowAdded,
    FlowsDeleted,
    PortsRenumbered,
)
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.storms import kinds
from mininet_scenarios.testbed import ovs

Draw = Callable[[Field, random.Random], Fault | None]
"""Draws a fault with a target; None if the fabric has no target, or none is in use."""
_DAY_S: Final = 86_400
_HALF: Final = 0.5


def _server(field: Field, chance: random.Random) -> Server:
    return chance.choice(field.fabric.servers)


def _plane(field: Field, chance: random.Random) -> str:
    return chance.choice(field.fabric.planes).name


def _port(field: Field, chance: random.Random) -> str:
    """A port in use, if any; else any port."""
    return chance.choice(field.watch.ports_in_use() or [p.tor_port for p in field.fabric.ports])


def _learns(field: Field) -> bool:
    return any(rack.tor.driver != "openflow" for rack in field.fabric.racks)


def _vswitch(field: Field, chance: random.Random) -> Server | None:
    servers = [server for server in field.fabric.servers if server.vswitch is not None]
    return chance.choice(servers) if servers else None


def _spoof(field: Field, chance: random.Random) -> Fault:
    server, victim = chance.sample(field.fabric.servers, 2)
    return Spoof(field, server, victim)


def _trunks_changed(field: Field, chance: random.Random) -> Fault | None:
    return TrunksChanged(field, _port(field, chance)) if _learns(field) else None


def _bridge_deleted(field: Field, chance: random.Random) -> Fault | None:
    server = _vswitch(field, chance)
    return BridgeDeleted.steering(field, server) if server is not None else None


def _bridge_robbed(field: Field, chance: random.Random) -> Fault | None:
    racks = [rack for rack in field.fabric.racks if rack.tor.driver == "ovs-ovsdb"]
    return BridgeRobbed.of_tor(field, chance.choice(racks)) if racks else None


def _learning_lost(field: Field, chance: random.Random) -> Fault | None:
    if not _learns(field):
        return None
    return FlowsDeleted.of_tor(field, chance.choice(field.fabric.racks))


def _killed_in_stages(field: Field, chance: random.Random) -> Fault:
    pairs = list(combinations([rack.name for rack in field.fabric.racks], 2))
    return ControllerKilledInStages(
        field, chance.sample(pairs, len(pairs)), chance.uniform(0.1, 2.0)
    )


def _storm(field: Field, chance: random.Random) -> Fault:
    name = chance.choice(sorted(kinds(0)))
    return Storm(field, _server(field, chance), name, known=chance.random() < 0.5)


def _foreign(field: Field, chance: random.Random) -> Fault:
    used = field.watch.ports_in_use()
    idle = [port for port in field.fabric.ports if port.tor_port not in used]
    port = chance.choice(idle or field.fabric.ports)
    name = field.fabric.planes[port.plane].name
    return ForeignCrossConnect(field, name, chance.choice([port.ingress, port.egress]))


def _daemon(name: str) -> Draw:
    return lambda field, _: DaemonKilled(field, name) if ovs.is_ours() else None


def _device(kind: FaultKind, delay_s: float = 0.0) -> Draw:
    return lambda field, chance: EmulatorFault(field, _plane(field, chance), kind, delay_s)


FAULTS: Final[Mapping[str, Draw]] = {
    "controller-killed": lambda field, _: ControllerKilled(field),
    "controller-killed-in-recovery": lambda field, chance: ControllerKilledInRecovery(
        field, chance.uniform(0.0, 1.5)
    ),
    "controller-killed-in-stages": _killed_in_stages,
    "journal-cut": lambda field, chance: JournalCut(field, chance.random()),
    "journal-rolled-back": lambda field, _: JournalRolledBack(field),
    "controller-stopped": lambda field, _: ControllerStopped(field),
    "planner-killed": lambda field, _: PlannerKilled(field),
    "log-unread": lambda field, _: LogUnread(field),
    "disk-full": lambda field, _: DiskFull(field),
    "disk-slow": lambda field, chance: DiskSlow(field, chance.uniform(0.02, 0.2)),
    "clock-stepped": lambda field, chance: ClockStepped(field, chance.randint(-_DAY_S, _DAY_S)),
    "storm": _storm,
    "strangers": lambda field, chance: Strangers(field, _server(field, chance)),
    "ovsdb-killed": _daemon("ovsdb-server"),
    "vswitchd-killed": _daemon("ovs-vswitchd"),
    "controller-unset": lambda field, chance: ControllerUnset.steering(
        field, _server(field, chance)
    ),
    "controller-misset": lambda field, chance: ControllerMisset.steering(
        field, _server(field, chance)
    ),
    "flows-deleted": lambda field, chance: FlowsDeleted.steering(field, _server(field, chance)),
    "flow-added": lambda field, chance: FlowAdded.steering(field, _server(field, chance)),
    "bridge-deleted": _bridge_deleted,
    "tor-deleted": lambda field, chance: BridgeDeleted.of_tor(
        field, chance.choice(field.fabric.racks)
    ),
    "tor-robbed": _bridge_robbed,
    "learning-lost": _learning_lost,
    "ports-renumbered": lambda field, chance: PortsRenumbered.steering(
        field, _server(field, chance)
    ).drawn_by(chance),
    "fibre-cut": lambda field, chance: FibreCut(field, _port(field, chance)),
    "fibre-flapping": lambda field, chance: FibreFlapping(
        field, _port(field, chance), chance.randint(2, 5)
    ),
    "fibre-one-way": lambda field, chance: FibreOneWay(field, _port(field, chance)),
    "small-frames": lambda field, chance: SmallFrames(field, _port(field, chance)),
    "trunks-changed": _trunks_changed,
    "ocs-killed": lambda field, chance: EmulatorKilled(field, _plane(field, chance)),
    "ocs-dead": _device(FaultKind.DEAD),
    "ocs-mute": _device(FaultKind.MUTE),
    "ocs-late": _device(FaultKind.SLOW, delay_s=0.7),
    "ocs-garbled": _device(FaultKind.GARBLED),
    "ocs-half-a-line": _device(FaultKind.HALF_A_LINE),
    "ocs-steals": _device(FaultKind.STEAL),
    "ocs-refuses": _device(FaultKind.REFUSE),
    "ocs-lies": _device(FaultKind.SILENT),
    "ocs-loops": _device(FaultKind.LOOP),
    "ocs-swaps": _device(FaultKind.SWAP),
    "ocs-one-way": _device(FaultKind.ONE_WAY),
    "ocs-broadcasts": _device(FaultKind.BROADCAST),
    "ocs-aims-late": _device(FaultKind.LATE, delay_s=3.0),
    "ocs-half-done": _device(FaultKind.PARTIAL),
    "ocs-no-light": _device(FaultKind.NO_LIGHT),
    "ocs-reply-lost": _device(FaultKind.LOSE_REPLY),
    "ocs-killed-in-a-move": _device(FaultKind.KILL),
    "ocs-foreign": _foreign,
    "uplink-down": lambda field, chance: UplinkDown(field, _server(field, chance)),
    "uplink-one-way": lambda field, chance: UplinkOneWay(
        field, _server(field, chance), sends=chance.random() < _HALF
    ),
    "neighbours-flushed": lambda field, chance: NeighboursFlushed(field, _server(field, chance)),
    "flood": lambda field, chance: Flood(field, _server(field, chance)),
    "spoof": _spoof,
    "tags": lambda field, chance: Tags(field, _server(field, chance)),
}
"""All faults, by the name in the command and in the report."""
