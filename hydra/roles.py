"""Roles of devices: the interfaces that the core uses. Drivers implement the roles, and only
drivers access hardware.

Methods block, are called from a single thread at a time per device, and raise only
:class:`~hydra.errors.DeviceError` and its subclasses. A write whose reply was lost raises
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
    """A single command changes any number of cross-connects."""
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
    """An alarm of a device, in the device's words."""

    severity: Severity
    port: int | None
    """Port of the alarm; None: the whole device."""
    code: str
    """Device name of the condition, e.g. ``LOS``."""
    text: str


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    vendor: str
    model: str
    serial: str
    firmware: str


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Cross-connects of an optical switch, from a single read."""

    present: frozenset[CrossConnect] = frozenset()
    """All existing cross-connects; their ports are occupied."""
    dark: frozenset[CrossConnect] = frozenset()
    """Cross-connects in ``present`` that pass no light, as reported by the device: half made, half
    removed, broken.

    They are no circuits, and occupy their ports until disconnected.
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
        """Connect and log in; no effect on an open device."""

    def close(self) -> None:
        """Drop the connection; safe to repeat."""

    def identity(self) -> DeviceIdentity: ...

    def size(self) -> tuple[int, int]:
        """Numbers of (ingress, egress) ports."""

    def cross_connects(self) -> frozenset[CrossConnect]:
        """All cross-connects, read from the device, never from memory."""

    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Tear down, then set up; return once the device reports completion.

        Repeating a change is harmless. If a port is occupied by a cross-connect outside
        ``disconnect``, the call raises ``DeviceError`` and moves nothing.
        """

    def port_states(self, ports: Collection[int]) -> Mapping[int, PortState]: ...


@runtime_checkable
class LightTeller(Protocol):
    """An optical switch that reports existing cross-connects without light.

    ``change`` makes requested cross-connects anew if they are dark.
    """

    def mirrors(self) -> Mirrors:
        """Read all mirrors from the device at once."""


@runtime_checkable
class PowerMeter(Protocol):
    """An optical switch with ``capabilities.power_readings``."""

    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        """Optical power at the ports, in dBm; None without a reading."""


@runtime_checkable
class AlarmSource(Protocol):
    """An optical switch with ``capabilities.alarms``."""

    def alarms(self) -> tuple[Alarm, ...]:
        """Present alarms, read from the device."""

    def reports(self) -> tuple[Alarm, ...]:
        """Alarms reported by the device unasked since the last call, oldest first.

        Never waits. Reports during a lost connection are lost.
        """


class TaskState(StrEnum):
    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Task:
    """A request of a device to its staff: first unplug, then plug."""

    id: int
    created_unix_s: float
    disconnect: tuple[CrossConnect, ...]
    connect: tuple[CrossConnect, ...]
    state: TaskState = TaskState.PENDING
    settled_unix_s: float | None = None
    note: str = ""
    """Remark of the person who settled the task."""


@runtime_checkable
class TaskBoard(Protocol):
    """An optical switch operated by people. Usable from any thread, also during a change."""

    def tasks(self) -> tuple[Task, ...]:
        """All pending tasks and the latest settled tasks, oldest first."""

    def settle(self, task_id: int, state: TaskState, note: str) -> Task:
        """Record a person's report that a task is done, or is impossible. Repeating is harmless.

        Raises UnknownName for a task that does not exist, LifecycleError for a task settled
        differently.
        """

    def ask(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> Task | None:
        """Ask people for a change without waiting.

        Returns the task to be settled first: a new task, a pending task with the same content, or a
        pending task at the same ports. None if the change is already made.
        """


@dataclass(frozen=True, slots=True)
class PortVlans:
    """VLAN membership of a ToR port."""

    tagged: frozenset[VlanId]
    native: VlanId | None = None
    """Sent and received untagged; None for a pure trunk."""


@dataclass(frozen=True, slots=True)
class TorCapabilities:
    bulk: bool = False
    """A single transaction retags any number of ports."""
    counters: bool = False
    """Frames and octets per port can be read."""
    claims: bool = False
    """True if the switch can be held against other controllers."""
    labels: bool = False
    """True if rules distinguish paths by labels: ports have no VLANs to read or set."""
    counters_age_s: float = 0.0
    """Greatest age of counters in s; a port with unchanged counters for a shorter time may be
    sending.
    """


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
    """A top-of-rack switch: VLANs per port, and link state."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> TorCapabilities: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def ports(self) -> tuple[str, ...]:
        """Names of all ports of the device, in device order."""

    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """VLAN membership of the ports, read from the device."""

    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Replace the membership of the ports, apply, and verify by reading back."""

    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]: ...


@runtime_checkable
class CounterReader(Protocol):
    """A ToR switch with ``capabilities.counters``."""

    def counters(self, ports: Collection[str]) -> Mapping[str, PortCounters]:
        """Counters of the ports, read from the device."""


@runtime_checkable
class Askable(Protocol):
    """A ToR switch with a cheap query for liveness."""

    def ask(self) -> None:
        """Return after an answer. Raises DeviceUnavailable."""


@runtime_checkable
class Claimable(Protocol):
    """A ToR switch with ``capabilities.claims``."""

    def claim(self, generation: int | None = None) -> None:
        """Open the switch, and hold the switch against other controllers whenever the session is
        open.

        ``generation`` is the generation of a leader (:class:`apps.process.term.Term`). The leader
        takes the switch from every controller with a lower generation; the switch refuses lower
        generations from then on, independent of sessions. None: a controller without a store; the
        claim takes the switch from no other controller, and ends with the session.

        Raises HeldElsewhere if another controller has the switch.
        """

    def keep(self) -> None:
        """Keep an open session, and so the claim, alive: call every few seconds. Never waits."""
