"""Upkeep of optical switches and ToRs: repair of devices, and the intervals of attempts."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Final

from apps.controller.dead_circuits import DeadCircuits
from apps.controller.devices import Devices
from apps.controller.retries import Retries
from hydra.errors import DeviceUnavailable
from hydra.model import Fabric, PlaneId, RackId
from hydra.reconfiguration.courses import Courses
from hydra.reconfiguration.plan import Plan, pair_named, pair_of
from hydra.reconfiguration.scheduler import carried_out

LOG = logging.getLogger("hydra.upkeep")


HELD_S: Final = 60.0
"""Time for switches to come back, before paths possibly in use by them are taken down."""


_LONGEST_GAP_S: Final = 5.0
"""Longest wait between looks for missing ports of a ToR, which answers at once, unlike a lost
device.
"""


class DeviceUpkeep:
    """For the conductor's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        devices: Devices,
        courses: Courses,
        dead: DeadCircuits,
    ) -> None:
        self._fabric, self._devices = fabric, devices
        self._care, self._dead = courses.care, dead
        names = [plane.name for plane in fabric.planes]
        self._device_names = frozenset([*names, *(rack.name for rack in fabric.racks)])
        self._held_until_s = 0.0
        """End of the time for which paths stand after a recovery, for switches that may send
        there.
        """
        self._retries = Retries()
        """By the name of a device."""
        self._gap_retries = Retries(longest_s=_LONGEST_GAP_S)
        self._port_retries = Retries()

    def hold(self) -> None:
        """Note that a recovery has left paths standing: keep them for ``HELD_S``."""
        self._held_until_s = time.monotonic() + HELD_S

    async def release(self) -> None:
        """Take down paths left by a recovery, once no switch sends there, or after ``HELD_S``."""
        care = self._care
        held = care.beside[1].lanes
        if held and time.monotonic() >= self._held_until_s:
            pairs = sorted({pair_named(self._fabric, pair_of(path)) for path, _ in held})
            LOG.warning(
                "%s: switches that may send on earlier paths have not answered for %g s: the "
                "paths are taken down, and packets sent there are lost until these switches "
                "answer",
                ", ".join(pairs),
                HELD_S,
            )
            care.let_go()
        if care.releases:
            await self._mend((), care.held_racks)

    async def mend(self) -> None:
        """Reopen lost devices, and bring uncertain devices to the present state."""
        care, devices, fabric = self._care, self._devices, self._fabric
        planes = {
            plane.id for plane in fabric.planes if devices.plane_problem(plane.id) is not None
        }
        racks = {rack.id for rack in fabric.racks if devices.tor_problem(rack.id) is not None}
        care.uncertain_planes |= planes
        care.uncertain_racks |= racks
        names = [
            fabric.planes[uncertain_plane].name for uncertain_plane in sorted(care.uncertain_planes)
        ]
        names += [
            fabric.racks[uncertain_rack].name for uncertain_rack in sorted(care.uncertain_racks)
        ]
        self._retries.forget(self._device_names.difference(names))
        due = self._retries.due(names)
        lacking = self._gap_retries.due(self._lacking() - care.uncertain_racks)
        await self._mend(
            [
                uncertain_plane
                for uncertain_plane in care.uncertain_planes
                if fabric.planes[uncertain_plane].name in due
            ],
            [
                *lacking,
                *(
                    uncertain_rack
                    for uncertain_rack in care.uncertain_racks
                    if fabric.racks[uncertain_rack].name in due
                ),
            ],
        )
        failed = {fabric.planes[uncertain_plane].name for uncertain_plane in care.uncertain_planes}
        self._retries.note(
            due,
            failed | {fabric.racks[uncertain_rack].name for uncertain_rack in care.uncertain_racks},
        )
        self._gap_retries.note(lacking, self._lacking())

    async def open_ports(self) -> None:
        """Open ports closed to circuits, for switches that answer again."""
        racks = self._port_retries.due(self._care.closed_racks)
        self._port_retries.note(racks, await carried_out(self._care.open_ports(racks)))

    async def read_uncertain(self) -> None:
        """Mend uncertain devices that can be commanded, without a pause after earlier attempts.
        Plans leave out the ports of an uncertain device until the device is mended.
        """
        care, devices = self._care, self._devices
        await self._mend(
            [
                uncertain_plane
                for uncertain_plane in care.uncertain_planes
                if devices.plane_problem(uncertain_plane) is None
            ],
            [
                uncertain_rack
                for uncertain_rack in care.uncertain_racks
                if devices.tor_problem(uncertain_rack) is None
            ],
        )

    async def make_certain(self, plan: Plan) -> None:
        """Mend uncertain devices before circuits are set up there.

        A plan that only takes circuits down does not wait. Raises DeviceUnavailable if the state of
        a device can't be read.
        """
        if not plan.connect:
            return
        await self.read_uncertain()
        care, fabric = self._care, self._fabric
        planes = {circuit.plane for circuit in plan.connect} & care.uncertain_planes
        racks = {fabric.ports[end].rack for circuit in plan.connect for end in circuit.ends}
        names = [fabric.planes[plane].name for plane in sorted(planes)]
        names += [fabric.racks[rack].name for rack in sorted(racks & care.uncertain_racks)]
        if names:
            raise DeviceUnavailable(
                ", ".join(names), "the device's state is not known yet: ask again"
            )

    def _lacking(self) -> set[RackId]:
        """Racks whose ToR lacks ports. A port that comes back has unknown VLANs."""
        return {rack.id for rack in self._fabric.racks if self._devices.missing_ports(rack.id)}

    async def _mend(self, planes: Collection[PlaneId], racks: Collection[RackId]) -> None:
        if planes or racks:
            denied = await carried_out(self._care.mend(planes, racks))
            self._dead.denied |= denied
            back = set(racks) - self._care.uncertain_racks
            ends = await carried_out(self._care.dark_ports(back))
            self._dead.dark |= self._dead.at(ends)  # dead.dark may have grown meanwhile
