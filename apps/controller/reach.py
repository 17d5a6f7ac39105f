"""Reachable and missing parts of the network, for any thread."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from apps.controller.devices import Devices
from apps.controller.missing_devices import BEING_BROUGHT, MUTE, MissingDevices
from apps.controller.patch_panels import PatchPanels
from apps.controller.quarantine import Quarantine
from apps.controller.record.ledger import Ledger
from apps.openflow.fleet import Fleet
from hydra.errors import DeviceUnavailable
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, PlaneId, PortId, RackId
from hydra.reconfiguration.courses import Courses
from hydra.reconfiguration.plan import pair_of, without
from hydra.reconfiguration.readiness import RenumberedPort
from hydra.reconfiguration.run import Conditions
from hydra.reconfiguration.switches import Announced, reachable_on
from hydra.service import PlanRequest

_IdT = TypeVar("_IdT", bound=int)


class Reach:
    def __init__(
        self,
        *,
        fabric: Fabric,
        fleet: Fleet,
        devices: Devices,
        ledger: Ledger,
        quarantine: Quarantine,
        panels: PatchPanels,
        courses: Courses,
    ) -> None:
        self._fabric, self._fleet, self._devices = fabric, fleet, devices
        self._quarantine, self._panels = quarantine, panels
        self._switches, self._care = courses.switches, courses.care
        self._recovery = courses.recovery
        self._network = ledger.network
        self._writer = ledger.writer
        self._substrate = substrate_of(fabric)
        planes = (plane.id for plane in fabric.planes)
        self._owned_tors = {
            datapath: rack.id
            for datapath, rack in fabric.rack_by_tor_datapath.items()
            if datapath in self._switches.owned
        }
        self._at_plane: dict[PlaneId, list[PortId]] = {}
        self._at_rack: dict[RackId, list[PortId]] = {}
        for port in fabric.ports:
            self._at_plane.setdefault(port.plane, []).append(port.id)
            self._at_rack.setdefault(port.rack, []).append(port.id)
        self._last_blocked: tuple[object, frozenset[PortId]] = None, frozenset()
        """Causes of blocked ports, and these ports, as asked for last."""
        self._by_hand = frozenset(filter(devices.worked_by_people, planes))
        self.absences = MissingDevices(
            fabric=fabric, fleet=fleet, devices=devices, panels=panels, courses=courses
        )
        self.starting = True
        """True from the start until everything is there, or the time to wait is over."""

    # -- switches ---------------------------------------------------------------------------------

    def ready_switches(self) -> frozenset[DatapathId]:
        """Connected switches that hold exactly the intended rules."""
        return self._switches.ready()

    def why_not_ready(self, datapath: DatapathId) -> str:
        name = self._switches.owned[datapath]
        if datapath in self._fleet.connected():
            return f"switch {name} is {BEING_BROUGHT}: ask again"
        if datapath in self._fleet.mute():
            return f"switch {name} is {MUTE}: see what keeps it busy"
        return f"switch {name} is not connected: check its controller setting"

    def soon_ready(self) -> frozenset[DatapathId]:
        """Late switches, soon to be brought to the present state."""
        return self._switches.soon_ready()

    def on_circuits(self) -> frozenset[DatapathId]:
        """Steering switches able to send and receive on circuits now."""
        dead_uplinks = self.dead_uplinks()
        dead = {
            datapath
            for datapath in {self._switches.switch_of[name] for name in dead_uplinks}
            if all(s.name in dead_uplinks for s in self._switches.steering[datapath].servers)
        }
        return self.ready_switches() - dead

    def conditions(self) -> Conditions:
        """The network's condition, for a reconfiguration."""
        switches = self._switches
        return Conditions(
            connected=switches.ready(),
            dead_uplinks=switches.dead_uplinks,
            closed=self._switches.closed,
            diverted=switches.diverted,
            vacated=switches.vacated,
            awaited=self._fleet.mute() | switches.late(),
            by_hand=self._by_hand,
        )

    def announced(self) -> Announced:
        """Every server with the VLANs that lead to it, without paths of moving pairs."""
        state, moving = self._network.standing()
        lost = [path for path in state.topology.paths if pair_of(path) in moving]
        return reachable_on(self._fabric, without(state, (), lost))

    # -- for plans --------------------------------------------------------------------------------

    def blocked_ports(self) -> frozenset[PortId]:
        """Ports out of use for plans: quarantined, in people's hands, missing on the ToR, or on a
        device out of command.
        """
        return self._blocked(*self._out_of_reach())

    def blocked_with_all_planes(self) -> frozenset[PortId]:
        """Ports still blocked if all optical switches could be commanded, and never had failed."""
        planes, racks = self._out_of_reach()
        ports, gone = self._fabric.ports, self._panels.ports() | self._not_there()
        return frozenset(
            port
            for port in self._blocked(frozenset(), racks)
            if ports[port].plane not in planes or ports[port].rack in racks or port in gone
        )

    def _blocked(self, planes: Collection[PlaneId], racks: Collection[RackId]) -> frozenset[PortId]:
        quarantined = self._quarantine.blocked() | self._panels.ports() | self._not_there()
        causes = quarantined, planes, racks
        last, blocked = self._last_blocked
        if last != causes:
            at_planes = (self._at_plane.get(plane, ()) for plane in planes)
            at_racks = (self._at_rack.get(rack, ()) for rack in racks)
            blocked = quarantined.union(*at_planes, *at_racks)
            self._last_blocked = causes, blocked
        return blocked

    def _not_there(self) -> frozenset[PortId]:
        """Ports missing on ToRs."""
        racks, port_by_name = self._fabric.racks, self._fabric.port_by_name
        return frozenset(
            port_by_name[racks[rack].name, name].id
            for rack, names in self._devices.all_missing_ports()
            for name in names
            if (racks[rack].name, name) in port_by_name
        )

    def _out_of_reach(self) -> tuple[frozenset[PlaneId], frozenset[RackId]]:
        """Planes and racks whose devices can't be commanded, or whose VLANs are not known."""
        ready = self.ready_switches()
        planes, racks = self._devices.out_of_command()
        not_ready = {rack for datapath, rack in self._owned_tors.items() if datapath not in ready}
        return planes, racks | not_ready | self._care.uncertain_racks

    def awaited_racks(self) -> frozenset[RackId]:
        """Racks out of reach until their ToR, which has just connected or answered, has its rules.

        A plan made before would treat such racks as racks without free ports.
        """
        awaited = self._switches.awaited()
        if not awaited:
            return frozenset()
        racks = self._fabric.racks
        return frozenset(rack.id for rack in racks if rack.tor.datapath_id in awaited)

    def within_reach(self, request: PlanRequest) -> PlanRequest:
        """The request less planes and racks out of command: circuits there stay unchanged.

        Raises DeviceUnavailable if the request names only such planes.
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
        """Optical switches out of command, with the reason."""
        return [
            f"OCS {plane.name} is down ({problem})"
            for plane in self._fabric.planes
            if (problem := self._devices.plane_problem(plane.id))
        ]

    # -- at the start and after -------------------------------------------------------------------

    def renumbered_ports(self) -> Sequence[RenumberedPort]:
        """Ports whose OpenFlow number may differ from the number in the switch's rules."""
        return self._switches.renumbered_ports()

    def dead_uplinks(self) -> frozenset[str]:
        """Servers with an uplink that is down, or closed to circuits."""
        return self._switches.dead_uplinks | self._switches.closed

    def not_ready(self) -> Sequence[str]:
        """Reasons why no requests are taken; empty when ready, even if devices are missing."""
        reasons = [] if self._recovery.done else ["devices have not been read yet"]
        if self.starting and (missing := self.absences.missing()):
            reasons += [
                "just started, and waits a moment for missing devices and switches",
                *missing,
            ]
        if (failure := self._writer.failure) is not None:
            reasons.append(str(failure[1]))
        return reasons

    def awaits(self, timeout_s: float, began_s: float) -> bool:
        """True if a missing part of the network may be about to come.

        Each part has ``timeout_s`` from its loss or from the earliest possible contact, at the
        latest from ``began_s`` on (:meth:`~apps.openflow.switchboard.Switchboard.expected`).
        Devices, contacted only by a leader, have no more time than switches that never connected.
        """
        owned, connected = self._switches.owned, self._fleet.connected()
        if self._switches.spares_relays or not connected & owned.keys() <= self.ready_switches():
            return True
        if self._fleet.expected(owned, timeout_s, began_s):
            return True
        listening_s = self._fleet.listening_s
        since_s = began_s if listening_s is None else min(began_s, listening_s)
        silent = any(not status.connected for status in self._devices.statuses())
        return silent and time.monotonic() < since_s + timeout_s


def _all_unless(chosen: frozenset[_IdT] | None, every: Iterable[_IdT]) -> frozenset[_IdT]:
    return frozenset(every) if chosen is None else chosen
