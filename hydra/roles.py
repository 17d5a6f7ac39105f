"""Roles of devices: what the core asks of them. Drivers implement these, and nothing else talks to
hardware.

Methods block, are called from one thread at a time per device, and raise only
:class:`~hydra.errors.DeviceError` and its kinds. A write whose reply was lost raises
:class:`~hydra.errors.OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from hydra.model import CrossConnect, VlanId


class PortState(StrEnum):
    ENABLED = "enabled"
    DISABLED = "disabled"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OpticalCapabilities:
    """Abilities of an optical switch beyond the mandatory role."""

    bulk: bool = False
    """Any number of cross-connects change in one command."""
    unidirectional: bool = False
    power_readings: bool = False
    alarms: bool = False


class Severity(StrEnum):
    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"
    WARNING = "warning"
    CLEARED = "cleared"
    """The condition reported before has ended."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A device's complaint, in its own words."""

    severity: Severity
    port: int | None
    """Port that the alarm is about; None: the device as a whole."""
    code: str
    """The device's name for the condition, e.g. ``LOS``."""
    text: str


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    vendor: str
    model: str
    serial: str
    firmware: str


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Cross-connects of an optical switch, as read at one time."""

    present: frozenset[CrossConnect] = frozenset()
    """All that exist: their ports are taken."""
    dark: frozenset[CrossConnect] = frozenset()
    """Those among them that pass no light, by the device's word: half made, half removed, broken.

    They are no circuits, and their ports are not free before they have been disconnected.
    """

    @property
    def lit(self) -> frozenset[CrossConnect]:
        return self.present - self.dark


class OpticalSwitch(Protocol):
    """An optical circuit switch."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> OpticalCapabilities: ...

    def open(self) -> None:
        """Connect and log in; a second call on an open device does nothing."""

    def close(self) -> None:
        """Drop the connection; safe to repeat."""

    def identity(self) -> DeviceIdentity: ...

    def size(self) -> tuple[int, int]:
        """Numbers of (ingress, egress) ports."""

    def cross_connects(self) -> frozenset[CrossConnect]:
        """All that exist, read from the device, never from memory."""

    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Tear down, then set up; return once the device says that it is done.

        Repeating a change is harmless. A port that is taken by a cross-connect which is not in
        ``disconnect`` raises ``DeviceError`` and moves nothing.
        """

    def port_states(self, ports: Collection[int]) -> Mapping[int, PortState]: ...


@runtime_checkable
class LightTeller(Protocol):
    """An optical switch on which a cross-connect may exist and, by its own word, not work.

    Its ``change`` makes anew what it is asked to connect and is dark.
    """

    def mirrors(self) -> Mirrors:
        """Read from the device, in one go."""


@runtime_checkable
class PowerMeter(Protocol):
    """An optical switch with ``capabilities.power_readings``."""

    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        """Optical power at these ports, in dBm; None where the device has no reading."""


@runtime_checkable
class AlarmSource(Protocol):
    """An optical switch with ``capabilities.alarms``."""

    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms that stand now, read from the device."""

    def reports(self) -> tuple[Alarm, ...]:
        """Alarms that the device reported of its own accord since the last call, oldest first.

        Never waits. Reports made while there was no connection are lost.
        """


class TaskState(StrEnum):
    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Task:
    """A device's request to the people who work it: first unplug, then plug."""

    id: int
    created_unix_s: float
    disconnect: tuple[CrossConnect, ...]
    connect: tuple[CrossConnect, ...]
    state: TaskState = TaskState.PENDING
    settled_unix_s: float | None = None
    note: str = ""
    """The person's remark on settling the task."""


@runtime_checkable
class TaskBoard(Protocol):
    """An optical switch whose changes people make. Usable from any thread, during a change too."""

    def tasks(self) -> tuple[Task, ...]:
        """All pending tasks and the latest settled ones, oldest first."""

    def settle(self, task_id: int, state: TaskState, note: str) -> Task:
        """Take a person's word that a task is done, or can't be done. Repeating it is harmless.

        Raises UnknownName for a task that does not exist, LifecycleError for one that ended the
        other way.
        """

    def ask(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> Task | None:
        """Ask people for a change without waiting for them.

        Returns the task that has to be settled first: a new one, a pending one that asks for the
        same, or a pending one about its ports. None if the change is made already.
        """


@dataclass(frozen=True, slots=True)
class PortVlans:
    """VLAN membership of one ToR port."""

    tagged: frozenset[VlanId]
    native: VlanId | None = None
    """Sent and received untagged; None for a pure trunk."""


@dataclass(frozen=True, slots=True)
class TorCapabilities:
    bulk: bool = False
    """Any number of ports are retagged in one transaction."""
    counters: bool = False
    """Frames and octets per port can be read."""
    claims: bool = False
    """True if it can be held against other controllers."""
    labels: bool = False
    """True if its rules tell paths apart by labels: its ports have no VLANs to read or set."""
    counters_age_s: float = 0.0
    """Greatest age of counters; a port that stood still for less may be sending."""


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Counts since the device started counting."""

    rx_frames: int
    tx_frames: int
    rx_octets: int
    tx_octets: int
    rx_dropped: int
    tx_dropped: int


class TorSwitch(Protocol):
    """A top-of-rack switch as the controller needs it: VLANs per port, and link state."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> TorCapabilities: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def ports(self) -> tuple[str, ...]:
        """Names of all ports that the device has, in its own order."""

    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """VLAN membership of these ports, read from the device."""

    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Replace the membership of these ports, apply it, and check by reading back."""

    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]: ...


@runtime_checkable
class CounterReader(Protocol):
    """A ToR switch with ``capabilities.counters``."""

    def counters(self, ports: Collection[str]) -> Mapping[str, PortCounters]:
        """Counters of these ports, read from the device."""


@runtime_checkable
class Askable(Protocol):
    """A ToR switch with a question that costs less than any other."""

    def ask(self) -> None:
        """Return once it has answered. Raises DeviceUnavailable."""


@runtime_checkable
class Claimable(Protocol):
    """A ToR switch with ``capabilities.claims``."""

    def claim(self, generation: int | None = None) -> None:
        """Open the switch, and hold it against other controllers from now on, whenever it is open.

        ``generation`` is that of a leader (:class:`apps.process.term.Term`), who takes the switch
        from every controller of a lower one; a controller with a lower one is refused by the
        switch from then on, whatever becomes of sessions. None: a controller that has no store; it
        takes the switch from nobody, and the switch lets go when the session ends.

        Raises HeldElsewhere if another controller has the switch.
        """

    def keep(self) -> None:
        """Keep an open session, and with it the claim, alive: call it every few seconds.

        Never waits.
        """
