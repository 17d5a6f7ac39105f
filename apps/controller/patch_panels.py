"""Patch panels: tasks given to people, and paths that wait for people.

The controller asks for a change of a panel and does not wait. Circuits of the change do not count
as set up, the panel's ports are left to people, and everything else goes on. Once people report the
task as done, a separate change brings up the waiting paths, and finds the patches plugged.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from apps.controller.devices import Devices
from hydra.errors import DeviceError, UnknownName
from hydra.model import Circuit, CrossConnect, Fabric, Path, PlaneId, PortId
from hydra.reconfiguration.executor import Execution
from hydra.roles import Task, TaskState
from hydra.service import DeviceStatus

LOG = logging.getLogger("hydra.people")


@dataclass(frozen=True, slots=True)
class Settled:
    """A task settled since the last look."""

    plane: PlaneId
    task: Task
    outcome: str
    """The task's outcome, in words."""


class PatchPanels:
    """Methods under *requests* are for any thread, all other methods for the conductor's."""

    def __init__(self, fabric: Fabric, devices: Devices) -> None:
        self._fabric = fabric
        self._devices = devices
        self._panels = [p.id for p in fabric.planes if devices.worked_by_people(p.id)]
        self._port_at: dict[tuple[PlaneId, int], PortId] = {
            (port.plane, number): port.id
            for port in fabric.ports
            for number in (port.ingress, port.egress)
        }
        self._pending: Mapping[tuple[PlaneId, int], Task] = {}
        """Tasks by panel and number; replaced as a whole, never changed."""
        self._settled: list[Settled] = []
        self._wishes: frozenset[Path] = frozenset()

    # -- requests ---------------------------------------------------------------------------------

    def ports(self) -> frozenset[PortId]:
        """Ports in people's hands."""
        return frozenset(
            port
            for (plane, _), task in self._pending.items()
            for port in self._touched(plane, (*task.disconnect, *task.connect))
        )

    def awaited(self, path: Path | None) -> bool:
        """True if people were asked for a part of the path, and have not answered yet."""
        return path is not None and any(map(self._awaits, path.circuits))

    def tasks(self, device: str) -> Sequence[Task]:
        """Tasks given to people at an optical switch, oldest first. Raises UnknownName."""
        return self._devices.tasks(self._plane(device))

    def settle(self, device: str, task_id: int, state: TaskState, note: str) -> Task:
        """Settle a task, as a person says. Raises UnknownName, LifecycleError."""
        return self._devices.settle_task(self._plane(device), task_id, state, note)

    def _plane(self, name: str) -> PlaneId:
        plane = self._fabric.plane_by_name.get(name)
        if plane is None:
            raise UnknownName(f"there is no optical switch {name!r}")
        return plane.id

    def described(self, status: DeviceStatus) -> DeviceStatus:
        """The status with people's pending tasks at the device, and the racks waiting for them."""
        plane = self._fabric.plane_by_name.get(status.name)
        said = [
            f"task {number} waits for a person{self._for_whom(panel, task)}"
            for (panel, number), task in sorted(self._pending.items())
            if plane is not None and panel == plane.id
        ]
        return replace(status, detail="; ".join(filter(None, (status.detail, *said))))

    def ports_of(self, settled: Settled) -> frozenset[PortId]:
        """Ports to be connected by a task."""
        return frozenset(self._touched(settled.plane, settled.task.connect))

    # -- waiting paths -----------------------------------------------------------------------------

    def waiting(self, execution: Execution) -> frozenset[Circuit]:
        """The circuits that a change could not set up because people still have work to do."""
        if not execution.asked_planes:
            return frozenset()
        self._look()
        return frozenset(
            circuit
            for circuit in execution.failures
            if self._awaits(circuit) or circuit in execution.plan.connect_last
        )

    def wish(self, execution: Execution, *, alone: bool) -> None:
        """Remember the paths that a plan could not bring up because of people.

        ``alone``: the plan was for all racks and planes, so earlier wishes are over.
        """
        waiting = self.waiting(execution)
        earlier = frozenset() if alone else self._wishes
        self._wishes = earlier | frozenset(
            path
            for path in set(execution.wanted.topology.paths) - set(execution.result.topology.paths)
            if execution.asked_planes
            and (
                not waiting.isdisjoint(path.circuits)
                or path not in execution.plan.target.topology.paths
            )
        )

    def settled(self) -> list[Settled]:
        """Tasks settled by people since the last call."""
        self._look()
        settled, self._settled = self._settled, []
        return settled

    def ready(self) -> frozenset[Path]:
        """Wished paths that wait for people no more; each path is returned once."""
        ready = frozenset(path for path in self._wishes if not self.awaited(path))
        self._wishes -= ready
        return ready

    def _look(self) -> None:
        """Read the panels' tasks, as people may have settled tasks at the panel itself."""
        pending: dict[tuple[PlaneId, int], Task] = {}
        for plane in self._panels:
            before = {key: task for key, task in self._pending.items() if key[0] == plane}
            try:
                tasks = {(plane, task.id): task for task in self._devices.tasks(plane)}
            except DeviceError as error:
                LOG.error("%s", error)
                pending |= before
                continue
            pending |= {key: t for key, t in tasks.items() if t.state is TaskState.PENDING}
            self._settled += [
                self._said(plane, tasks.get(key, task))
                for key, task in before.items()
                if key not in pending
            ]
        self._pending = pending

    def _said(self, plane: PlaneId, task: Task) -> Settled:
        note = f" ({task.note})" if task.note else ""
        text = f"{self._fabric.planes[plane].name}: task {task.id} is {task.state.value}{note}"
        LOG.info("%s", text)
        return Settled(plane, task, text)

    def _awaits(self, circuit: Circuit) -> bool:
        wanted = self._fabric.cross_connects(circuit)
        return any(
            plane == circuit.plane and not set(task.connect).isdisjoint(wanted)
            for (plane, _), task in self._pending.items()
        )

    def _touched(
        self, plane: PlaneId, cross_connects: Collection[CrossConnect]
    ) -> Iterator[PortId]:
        for cross in cross_connects:
            for number in (cross.ingress, cross.egress):
                if (plane, number) in self._port_at:
                    yield self._port_at[plane, number]

    def _for_whom(self, plane: PlaneId, task: Task) -> str:
        """The racks joined by a task: `` (r1 - r2, r1 - r3)``."""
        pairs = {
            tuple(
                sorted(
                    self._fabric.racks[self._fabric.ports[port].rack].name
                    for port in self._touched(plane, (cross,))
                )
            )
            for cross in task.connect
        }
        return f" ({', '.join(' - '.join(pair) for pair in sorted(pairs))})" if pairs else ""
