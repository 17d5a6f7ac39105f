"""Patch panels: a change is a task for a person, who says when the task is done.

Also for a robotic panel without an interface supported here: whoever works the panel confirms the
tasks. Circuits over such a panel come up in minutes rather than milliseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drivers.exclusive import exclusive
from drivers.optical.changes import (
    Difference,
    check_numbers,
    check_ports,
    difference,
    unconfirmed,
)
from drivers.optical.panel_store import PanelError, PanelStore, PendingError, TakenError
from hydra.config.devices import no_login_problems, option_problems
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, Problem
from hydra.model import CrossConnect, Plane
from hydra.roles import (
    DeviceIdentity,
    OpticalCapabilities,
    OpticalSwitch,
    PortState,
    Task,
    TaskState,
)

CAPABILITIES: Final = OpticalCapabilities(bulk=True, unidirectional=True)

_PREFIX: Final = "panel:"
_LOOK_S: Final = 0.05
"""Pause between looks for a person's word, which may come by another process."""


class ManualOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    state: Annotated[str, Field(pattern="^/")]
    """File with plugged cross-connects and tasks; ``{name}`` stands for the plane's name."""
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1800.0
    """Time for a person to settle a change."""
    vendor: str = "unknown"
    model: str = "patch panel"


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``; ``timeout_s`` is for machines, people have ``options.timeout_s``."""
    del timeout_s
    try:
        options = ManualOptions.model_validate(dict(plane.options))
    except ValidationError as error:
        raise DeviceError(plane.name, f"options of the manual driver: {error}") from error
    return ManualPanel(plane.name, plane.ports, options)


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, login and options."""
    place = plane.address.removeprefix(_PREFIX).strip()
    if plane.address and (not plane.address.startswith(_PREFIX) or not place):
        yield Problem(
            "address",
            f"{plane.address!r} has no place in the address, as in `panel: row 3, rack 12`",
        )
    yield from no_login_problems(plane.login)
    yield from option_problems(ManualOptions, plane.options)


class ManualPanel:
    """An :class:`~hydra.roles.OpticalSwitch` and its :class:`~hydra.roles.TaskBoard`.

    The panel's cross-connects are the confirmed cross-connects. If nobody confirms a change in
    time, the outcome is unknown; the task stays, and its ports can't be changed until a person
    settles the task. Asking for the same change again waits for the same task.
    """

    def __init__(self, name: str, ports: int, options: ManualOptions) -> None:
        self._name = name
        self._ports = ports
        self._options = options
        self._lock = threading.RLock()
        self._store = PanelStore(options.state.replace("{name}", name))

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> OpticalCapabilities:
        return CAPABILITIES

    def open(self) -> None:
        """Check that the file can be used. Raises DeviceUnavailable if not."""
        with self._file():
            self._store.cross_connects()

    def close(self) -> None:
        """Does nothing: nothing is held open between calls."""

    def identity(self) -> DeviceIdentity:
        return DeviceIdentity(self._options.vendor, self._options.model, "", "")

    def size(self) -> tuple[int, int]:
        """Numbers of (ingress, egress) ports, from the configuration."""
        return self._ports, self._ports

    def cross_connects(self) -> frozenset[CrossConnect]:
        """Cross-connects confirmed by people."""
        with self._file():
            return self._store.cross_connects()

    @exclusive
    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Ask a person to unplug, then plug; return once the person has confirmed.

        Raises DeviceError if the person says that the change can't be made, OutcomeUnknown if
        nobody answers in time.
        """
        change = self._difference(disconnect, connect)
        if not change:
            return
        try:
            with self._file():
                task = self._store.ask(change.removed, change.added, time.time())
        except (PendingError, TakenError) as error:
            raise DeviceError(self._name, str(error)) from error
        if task is None:
            return
        try:
            task = self._await(task)
        except DeviceUnavailable as error:
            raise unconfirmed(self._name, error) from error
        if task.state is TaskState.FAILED:
            raise DeviceError(
                self._name, f"task {task.id} could not be done: {task.note or 'no reason given'}"
            )

    def ask(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> Task | None:
        change = self._difference(disconnect, connect)
        if not change:
            return None
        try:
            with self._file():
                return self._store.ask(change.removed, change.added, time.time())
        except PendingError as error:
            return error.task
        except TakenError as error:
            raise DeviceError(self._name, str(error)) from error

    def port_states(self, ports: Collection[int]) -> Mapping[int, PortState]:
        """UNKNOWN for each port: the controller can't look into a panel."""
        check_numbers(self._name, ports, 1, sum(self.size()))
        return dict.fromkeys(ports, PortState.UNKNOWN)

    def tasks(self) -> tuple[Task, ...]:
        with self._file():
            return self._store.tasks()

    def settle(self, task_id: int, state: TaskState, note: str) -> Task:
        with self._file():
            return self._store.settle(task_id, state, note, time.time())

    def _difference(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> Difference:
        check_ports(self._name, self.size(), {*disconnect, *connect})
        return difference(self._name, self.cross_connects(), disconnect, connect)

    def _await(self, task: Task) -> Task:
        deadline = time.monotonic() + self._options.timeout_s
        while task.state is TaskState.PENDING:
            if time.monotonic() > deadline:
                raise OutcomeUnknown(
                    self._name,
                    f"task {task.id} is not confirmed, {self._options.timeout_s:g} s have passed: "
                    f"see `hydra device tasks {self._name}`",
                )
            time.sleep(_LOOK_S)
            with self._file():
                task = self._store.task(task.id)
        return task

    @contextmanager
    def _file(self) -> Iterator[None]:
        try:
            yield
        except PanelError as error:
            raise DeviceUnavailable(self._name, str(error)) from error
