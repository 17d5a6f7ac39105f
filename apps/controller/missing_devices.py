"""Missing, late and refusing devices and switches: as data, and in words for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from apps.controller.devices import Devices
from apps.controller.patch_panels import PatchPanels
from apps.openflow.fleet import Fleet
from hydra.failures import Failure
from hydra.faults.facts import MissingSwitch, RefusedSwitch
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, Pair, PlaneId, RackId
from hydra.reconfiguration.courses import Courses
from hydra.roles import Alarm
from hydra.service import DeviceStatus

BEING_BROUGHT: Final = "being brought to the present state"


MUTE: Final = "connected, and not answering"


_NAMED: Final = 5
"""Largest number of named switches or devices of a kind; further elements are counted."""


_ONE: Final = {"vswitch": "vswitch", "tor": "ToR", "optical-switch": "optical switch"}


_MANY: Final = {"vswitch": "vswitches", "tor": "ToRs", "optical-switch": "optical switches"}


class MissingDevices:
    """For any thread; never waits for a device."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        fleet: Fleet,
        devices: Devices,
        panels: PatchPanels,
        courses: Courses,
    ) -> None:
        self._fabric, self._fleet, self._devices = fabric, fleet, devices
        self._panels, self._substrate = panels, substrate_of(fabric)
        self._switches, self._care = courses.switches, courses.care
        self._recovery = courses.recovery

    def planes_down(self) -> Mapping[PlaneId, str]:
        """Optical switches out of command, with the reason; empty until recovery is done."""
        if not self._recovery.done:
            return {}
        problems = {
            plane.id: self._devices.plane_problem(plane.id) for plane in self._fabric.planes
        }
        return {plane: str(problem) for plane, problem in problems.items() if problem}

    def tors_down(self) -> Mapping[RackId, str]:
        """ToRs that can't be commanded by a driver, as :meth:`planes_down`."""
        if not self._recovery.done:
            return {}
        problems = {rack.id: self._devices.tor_problem(rack.id) for rack in self._fabric.racks}
        return {rack: str(problem) for rack, problem in problems.items() if problem}

    def switches_away(self) -> Sequence[MissingSwitch]:
        """Own switches that are not connected."""
        there = self._fleet.connected() | self._fleet.mute()
        return self._missing(self._switches.owned.keys() - there)

    def switches_mute(self) -> Sequence[MissingSwitch]:
        """Own switches that are connected, and do not answer."""
        return self._missing(self._switches.owned.keys() & self._fleet.mute())

    def rules_refused(self) -> Mapping[MissingSwitch, str]:
        """Own switches that refuse rules of circuits, with the refusal in a sentence."""
        return self.described(self._switches.refused)

    def described(self, refused: Mapping[DatapathId, Failure]) -> Mapping[MissingSwitch, str]:
        """Own switches with the refused rules, in words."""
        return {
            switch: str(refused[datapath])
            for switch, datapath in zip(self._missing(refused), sorted(refused), strict=True)
        }

    def switches_refused(self) -> Sequence[RefusedSwitch]:
        """Switches that try to connect and are kept out by a setting."""
        return [RefusedSwitch(refusal.name, refusal.why) for refusal in self._fleet.refused()]

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
            return []  # nothing has been asked yet
        planes, racks = self._care.uncertain_planes, self._care.uncertain_racks
        names = [self._fabric.planes[p].name for p in sorted(planes - self.planes_down().keys())]
        names += [self._fabric.racks[r].name for r in sorted(racks - self.tors_down().keys())]
        late = sorted(self._switches.late() & self._switches.owned.keys())
        return names + [self._switches.owned[datapath] for datapath in late]

    def alarms(self) -> Mapping[str, Sequence[Alarm]]:
        """Standing alarms, by optical switch; switches without alarms are left out."""
        return {status.name: status.alarms for status in self._devices.statuses() if status.alarms}

    def devices(self) -> Sequence[DeviceStatus]:
        connected, mute = self._fleet.connected(), self._fleet.mute()
        switches = [
            DeviceStatus(
                name,
                self._kind(dp),
                "openflow",
                dp in connected or dp in mute,
                "; ".join(filter(None, (MUTE if dp in mute else "", self._dead_uplinks(dp)))),
                answers=dp not in mute,
            )
            for dp, name in self._switches.owned.items()
        ]
        return [*map(self._panels.described, self._devices.statuses()), *switches]

    def _kind(self, owned: DatapathId) -> str:
        return "tor" if owned in self._fabric.rack_by_tor_datapath else "vswitch"

    def _dead_uplinks(self, owned: DatapathId) -> str:
        """Dead or closed uplinks of the switch's servers, in words."""
        steering = self._switches.steering
        servers = steering[owned].servers if owned in steering else ()
        if any(server.name in self._switches.closed for server in servers):
            return "silent: the ToR port is closed to circuits"
        dead = [server.name for server in servers if server.name in self._switches.dead_uplinks]
        if not dead:
            return ""
        label = self._substrate.dead_uplink
        return label if self._kind(owned) == "vswitch" else f"{', '.join(dead)}: {label}"

    def missing(self) -> Sequence[str]:
        """Missing or late parts of the network, in words; empty when all are there."""
        missing = []
        if self._switches.spares_relays:
            missing.append("relays of an earlier state are still there")
        missing += self._behind(self._switches.owned)
        down: dict[str, list[DeviceStatus]] = {}
        for status in self._devices.statuses():
            if not status.connected:
                down.setdefault(status.kind, []).append(status)
        for kind, some in down.items():
            missing += [
                f"{_ONE[kind]} {device_status.name}: {device_status.detail}"
                for device_status in some[:_NAMED]
            ]
            if (more := len(some) - _NAMED) > 0:
                missing.append(f"{more:,} more {(_ONE if more == 1 else _MANY)[kind]}")
        return missing

    def _behind(self, datapaths: Iterable[DatapathId]) -> list[str]:
        """The given switches that are away or differ from the present state, in words."""
        connected, ready = self._fleet.connected(), self._switches.ready()
        mute = self._fleet.mute()
        away = "not connected"
        behind: dict[str, dict[str, list[str]]] = {away: {}, MUTE: {}, BEING_BROUGHT: {}}
        for datapath in datapaths:
            if datapath not in ready:
                state = MUTE if datapath in mute else away
                of_kind = behind[BEING_BROUGHT if datapath in connected else state]
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
        """Devices and switches missing for new paths of ``pairs``, in words.

        Optical switches of ``planes`` (None: of all planes) and ToRs of ``racks`` that can't be
        commanded are listed as left out.
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
    """A sentence about the state of switches of a kind."""
    if len(names) == 1:
        return f"{_ONE[kind]} {names[0]} is {state}"
    others = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{len(names):,} {_MANY[kind]} are {state}: {', '.join(names[:_NAMED])}{others}"
