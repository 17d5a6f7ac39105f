"""The parts that the controller can reach now, and those missing: for any thread."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Final, TypeVar

from apps.controller.devices import Devices
from apps.controller.patch_panels import PatchPanels
from apps.controller.quarantine import Quarantine
from apps.controller.record.ledger import Ledger
from apps.openflow.fleet import Fleet
from hydra.errors import DeviceUnavailable
from hydra.failures import Failure
from hydra.faults.conditions import MissingSwitch, RefusedSwitch
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, PlaneId, PortId, RackId
from hydra.reconfiguration.device_care import DeviceCare
from hydra.reconfiguration.plan import Pair, pair_of, without
from hydra.reconfiguration.readiness import MovedPort
from hydra.reconfiguration.recovery import Recovery
from hydra.reconfiguration.run import Conditions
from hydra.reconfiguration.switches import Announced, Switches, reachable_on
from hydra.roles import Alarm
from hydra.service import DeviceStatus, PlanRequest

_IdT = TypeVar("_IdT", bound=int)
_NAMED: Final = 5
"""Most switches or devices of one kind that are named; others are counted."""
_ONE: Final = {"vswitch": "vswitch", "tor": "ToR", "optical-switch": "optical switch"}
_MANY: Final = {"vswitch": "vswitches", "tor": "ToRs", "optical-switch": "optical switches"}
_BEING_BROUGHT: Final = "being brought to the present state"
_MUTE: Final = "connected, and not answering"


@dataclass(eq=False, repr=False)
class Reach:
    _fabric: Fabric
    _fleet: Fleet
    _devices: Devices
    ledger: InitVar[Ledger]
    _quarantine: Quarantine
    _panels: PatchPanels
    _switches: Switches
    _care: DeviceCare
    _recovery: Recovery
    starting: bool = field(default=True, init=False)
    """True from the start until everything is there, or has had its time to come."""

    def __post_init__(self, ledger: Ledger) -> None:
        self._network = ledger.network
        self._writer = ledger.writer
        self._substrate = substrate_of(self._fabric)

    # -- switches ---------------------------------------------------------------------------------

    def ready_switches(self) -> frozenset[DatapathId]:
        """Switches that are connected and hold exactly the rules that they should."""
        return self._switches.ready()

    def why_not_ready(self, datapath: DatapathId) -> str:
        name = self._switches.owned[datapath]
        if datapath in self._fleet.connected():
            return f"switch {name} is {_BEING_BROUGHT}: ask again"
        if datapath in self._fleet.mute():
            return f"switch {name} is {_MUTE}: see what keeps it busy"
        return f"switch {name} is not connected: check its controller setting"

    def soon_ready(self) -> frozenset[DatapathId]:
        """Switches that were late, and are about to be brought to the present state."""
        return self._switches.soon_ready()

    def on_circuits(self) -> frozenset[DatapathId]:
        """Steering switches that can send and receive on circuits now."""
        dead_uplinks = self.dead_uplinks()
        dead = {
            datapath
            for datapath in {self._switches.switch_of[name] for name in dead_uplinks}
            if all(s.name in dead_uplinks for s in self._switches.steering[datapath].servers)
        }
        return self.ready_switches() - dead

    def conditions(self) -> Conditions:
        """The network's condition, as a reconfiguration has to know it."""
        switches = self._switches
        return Conditions(
            switches.ready(),
            switches.dead_uplinks,
            self._switches.closed,
            switches.diverted,
            self._fleet.mute() | switches.late(),
        )

    def announced(self) -> Announced:
        """Every server with the VLANs that lead to it, without paths that are being moved."""
        state, moving = self._network.standing()
        lost = [path for path in state.topology.paths if pair_of(path) in moving]
        return reachable_on(self._fabric, without(state, (), lost))

    # -- for plans --------------------------------------------------------------------------------

    def blocked_ports(self) -> frozenset[PortId]:
        """Ports that no plan may use: quarantined, in people's hands, gone from their ToR, or on a
        device that can't be commanded.
        """
        return self._blocked(*self._out_of_reach())

    def blocked_with_all_planes(self) -> frozenset[PortId]:
        """Those that no plan could use if all optical switches could be commanded, and had not
        failed before.
        """
        planes, racks = self._out_of_reach()
        ports, gone = self._fabric.ports, self._panels.ports() | self._not_there()
        return frozenset(
            port
            for port in self._blocked(frozenset(), racks)
            if ports[port].plane not in planes or ports[port].rack in racks or port in gone
        )

    def _blocked(self, planes: Collection[PlaneId], racks: Collection[RackId]) -> frozenset[PortId]:
        quarantined = self._quarantine.blocked() | self._panels.ports() | self._not_there()
        if not (quarantined or planes or racks):
            return frozenset()
        return frozenset(
            port.id
            for port in self._fabric.ports
            if port.id in quarantined or port.plane in planes or port.rack in racks
        )

    def _not_there(self) -> frozenset[PortId]:
        """Ports that their ToRs do not have."""
        return frozenset(
            self._fabric.port_by_name[rack.name, name].id
            for rack in self._fabric.racks
            for name in self._devices.missing_ports(rack.id)
            if (rack.name, name) in self._fabric.port_by_name
        )

    def _out_of_reach(self) -> tuple[frozenset[PlaneId], frozenset[RackId]]:
        """Planes and racks whose devices can't be commanded, or whose VLANs are not known."""
        owned, ready = self._switches.owned, self.ready_switches()
        planes = {p.id for p in self._fabric.planes if self._devices.plane_problem(p.id)}
        racks = {
            rack.id
            for rack in self._fabric.racks
            if self._devices.tor_problem(rack.id)
            or (rack.tor.datapath_id in owned and rack.tor.datapath_id not in ready)
        }
        return frozenset(planes), frozenset(racks | self._care.uncertain_racks)

    def awaited_racks(self) -> frozenset[RackId]:
        """Racks out of reach until their ToR, which has just connected or answered, has its rules.

        A plan that is made before takes such racks for racks without free ports.
        """
        awaited = self._switches.awaited()
        if not awaited:
            return frozenset()
        racks = self._fabric.racks
        return frozenset(rack.id for rack in racks if rack.tor.datapath_id in awaited)

    def within_reach(self, request: PlanRequest) -> PlanRequest:
        """The request less planes and racks out of command: circuits there stay as they are.

        Raises DeviceUnavailable if only such planes were asked for.
        """
        planes, racks = self._out_of_reach()
        if planes:
            asked = _all_unless(request.planes, (plane.id for plane in self._fabric.planes))
            if request.planes and request.planes <= planes:
                down = [self._fabric.planes[plane].name for plane in sorted(request.planes)]
                raise DeviceUnavailable(", ".join(down), "down: wait, or name other planes")
            request = replace(request, planes=asked - planes)
        if racks:
            asked_racks = _all_unless(request.racks, (rack.id for rack in self._fabric.racks))
            request = replace(request, racks=asked_racks - racks)
        return request

    def down_planes(self) -> list[str]:
        """Optical switches that can't be commanded, with the reason."""
        return [
            f"OCS {plane.name} is down ({problem})"
            for plane in self._fabric.planes
            if (problem := self._devices.plane_problem(plane.id))
        ]

    # -- for people -------------------------------------------------------------------------------

    def planes_down(self) -> Mapping[PlaneId, str]:
        """Optical switches that can't be commanded, with the reason; none before the first try."""
        if not self._recovery.done:
            return {}
        problems = {
            plane.id: self._devices.plane_problem(plane.id) for plane in self._fabric.planes
        }
        return {plane: str(problem) for plane, problem in problems.items() if problem}

    def tors_down(self) -> Mapping[RackId, str]:
        """ToRs that can't be commanded by their driver, as :meth:`planes_down`."""
        if not self._recovery.done:
            return {}
        problems = {rack.id: self._devices.tor_problem(rack.id) for rack in self._fabric.racks}
        return {rack: str(problem) for rack, problem in problems.items() if problem}

    def switches_away(self) -> Sequence[MissingSwitch]:
        """Switches of ours that are not connected."""
        there = self._fleet.connected() | self._fleet.mute()
        return self._missing(self._switches.owned.keys() - there)

    def switches_mute(self) -> Sequence[MissingSwitch]:
        """Switches of ours that are connected, and do not answer."""
        return self._missing(self._switches.owned.keys() & self._fleet.mute())

    def rules_refused(self) -> Mapping[MissingSwitch, str]:
        """Switches of ours that refuse rules of their circuits, with the refusal in a sentence."""
        return self.described(self._switches.refused)

    def described(self, refused: Mapping[DatapathId, Failure]) -> Mapping[MissingSwitch, str]:
        """Switches of ours and what they refuse, in words."""
        return {
            switch: str(refused[datapath])
            for switch, datapath in zip(self._missing(refused), sorted(refused), strict=True)
        }

    def switches_refused(self) -> Sequence[RefusedSwitch]:
        """Switches that try to connect and are kept out by a setting."""
        return [RefusedSwitch(one.name, one.why) for one in self._fleet.refused()]

    def _missing(self, datapaths: Iterable[DatapathId]) -> Sequence[MissingSwitch]:
        owned, steering = self._switches.owned, self._switches.steering
        return [
            MissingSwitch(owned[dp], steering[dp].name, steering[dp].rack)
            if dp in steering
            else MissingSwitch(owned[dp], owned[dp], None)
            for dp in sorted(datapaths)
        ]

    def unconfirmed(self) -> list[str]:
        """Devices and switches that answer, and may differ from the present state."""
        if not self._recovery.done:
            return []  # nothing has been asked of them yet
        planes, racks = self._care.uncertain_planes, self._care.uncertain_racks
        names = [self._fabric.planes[p].name for p in sorted(planes - self.planes_down().keys())]
        names += [self._fabric.racks[r].name for r in sorted(racks - self.tors_down().keys())]
        late = sorted(self._switches.late() & self._switches.owned.keys())
        return names + [self._switches.owned[datapath] for datapath in late]

    def moved_ports(self) -> Sequence[MovedPort]:
        """Ports with other OpenFlow numbers than their switches' rules may name."""
        return self._switches.moved_ports()

    def dead_uplinks(self) -> frozenset[str]:
        """Servers whose uplink to their ToR is down, or closed to circuits."""
        return self._switches.dead_uplinks | self._switches.closed

    def alarms(self) -> Mapping[str, Sequence[Alarm]]:
        """Alarms that stand, by optical switch that has any."""
        return {one.name: one.alarms for one in self._devices.statuses() if one.alarms}

    def devices(self) -> Sequence[DeviceStatus]:
        connected, mute = self._fleet.connected(), self._fleet.mute()
        switches = [
            DeviceStatus(
                name,
                self._kind(dp),
                "openflow",
                dp in connected or dp in mute,
                "; ".join(filter(None, (_MUTE if dp in mute else "", self._dead_uplinks(dp)))),
                answers=dp not in mute,
            )
            for dp, name in self._switches.owned.items()
        ]
        return [*map(self._panels.described, self._devices.statuses()), *switches]

    def _kind(self, owned: DatapathId) -> str:
        return "tor" if owned in self._fabric.rack_by_tor_datapath else "vswitch"

    def _dead_uplinks(self, owned: DatapathId) -> str:
        """Uplinks of the switch's servers that are down or closed, in words."""
        steering = self._switches.steering
        servers = steering[owned].servers if owned in steering else ()
        if any(server.name in self._switches.closed for server in servers):
            return "silent: its ToR port is closed to circuits"
        dead = [server.name for server in servers if server.name in self._switches.dead_uplinks]
        if not dead:
            return ""
        what = self._substrate.dead_uplink
        return what if self._kind(owned) == "vswitch" else f"{', '.join(dead)}: {what}"

    def not_ready(self) -> Sequence[str]:
        """Reasons why no requests are taken; empty when ready, whatever devices are away."""
        reasons = [] if self._recovery.done else ["devices have not been read yet"]
        if self.starting and (missing := self.missing()):
            reasons += ["just started, and waits a moment for what is missing", *missing]
        if (failure := self._writer.failure) is not None:
            reasons.append(str(failure[1]))
        return reasons

    def awaits(self, timeout_s: float, began_s: float) -> bool:
        """True if a part of the network that is missing may be about to come.

        Each has ``timeout_s``, from when it was lost or could have been found, at the latest from
        ``began_s`` on (:meth:`~apps.openflow.switchboard.Switchboard.expected`). Devices, which a
        controller speaks to once it leads, have no more time than switches that never connected.
        """
        owned, connected = self._switches.owned, self._fleet.connected()
        if self._switches.spares_relays or not connected & owned.keys() <= self.ready_switches():
            return True
        if self._fleet.expected(owned, timeout_s, began_s):
            return True
        listening_s = self._fleet.listening_s
        since_s = began_s if listening_s is None else min(began_s, listening_s)
        silent = any(not one.connected for one in self._devices.statuses())
        return silent and time.monotonic() < since_s + timeout_s

    def missing(self) -> Sequence[str]:
        """Parts of the network that are away or behind, in words; empty when all are there."""
        missing = []
        if self._switches.spares_relays:
            missing.append("relays of an earlier state are still there")
        missing += self._behind(self._switches.owned)
        down: dict[str, list[DeviceStatus]] = {}
        for status in self._devices.statuses():
            if not status.connected:
                down.setdefault(status.kind, []).append(status)
        for kind, some in down.items():
            missing += [f"{_ONE[kind]} {one.name}: {one.detail}" for one in some[:_NAMED]]
            if (more := len(some) - _NAMED) > 0:
                missing.append(f"{more:,} more {(_ONE if more == 1 else _MANY)[kind]}")
        return missing

    def _behind(self, datapaths: Iterable[DatapathId]) -> list[str]:
        """Switches among these that are away or differ from the present state, in words."""
        connected, ready = self._fleet.connected(), self.ready_switches()
        mute = self._fleet.mute()
        away = "not connected"
        behind: dict[str, dict[str, list[str]]] = {away: {}, _MUTE: {}, _BEING_BROUGHT: {}}
        for datapath in datapaths:
            if datapath not in ready:
                state = _MUTE if datapath in mute else away
                of_kind = behind[_BEING_BROUGHT if datapath in connected else state]
                name = self._switches.owned[datapath]
                of_kind.setdefault(self._kind(datapath), []).append(name)
        return [
            _in_one(kind, names, state)
            for state, some in behind.items()
            for kind, names in some.items()
        ]

    def at_risk(
        self,
        pairs: Iterable[Pair],
        planes: Collection[PlaneId] | None = (),
        racks: Collection[RackId] = (),
    ) -> tuple[str, ...]:
        """Devices and switches that are missing for new paths of these pairs, in words.

        Those of ``planes`` (None: of all) and ``racks`` that can't be commanded are left out.
        """
        ends = sorted({rack for pair in pairs for rack in pair})
        needed = (switch.datapath for end in ends for switch in self._substrate.steering(end))
        out = [
            f"optical switch {self._fabric.planes[plane].name} is left out: {reason}"
            for plane, reason in self.planes_down().items()
            if planes is None or plane in planes
        ]
        out += [
            f"rack {self._fabric.racks[rack].name} is left out, for its ToR: {reason}"
            for rack, reason in self.tors_down().items()
            if rack in racks
        ]
        return (*self._behind(needed), *out)


def _in_one(kind: str, names: Sequence[str], state: str) -> str:
    """A sentence that says of switches of one kind what state they are in."""
    if len(names) == 1:
        return f"{_ONE[kind]} {names[0]} is {state}"
    others = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{len(names):,} {_MANY[kind]} are {state}: {', '.join(names[:_NAMED])}{others}"


def _all_unless(chosen: frozenset[_IdT] | None, every: Iterable[_IdT]) -> frozenset[_IdT]:
    return frozenset(every) if chosen is None else chosen
