"""Commands by which courses act on the network, and the outcomes of commands.

A course (a reconfiguration, a recovery, an audit) is a generator: the course yields a
:class:`Batch` of commands that may run in parallel and receives one :class:`Outcome` per command,
in the same order. A course has no threads, sockets or clock, so real devices and a simulation can
drive the same course.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, TypeVar

from hydra.failures import Failure
from hydra.forwarding.rules import FlowRule, Installation, RuleChange
from hydra.model import DatapathId, Path, PlaneId, RackId, Server, VlanId
from hydra.reconfiguration.drift import RuleDrift
from hydra.reconfiguration.plan import MirrorMove
from hydra.roles import Mirrors, PortVlans

_ValueT = TypeVar("_ValueT")
SwitchFailures = Mapping[DatapathId, Failure | None]
"""Failure of each switch that had to change tables; None: the switch confirmed."""


class Asks(Generic[_ValueT]):
    """A command; the type parameter is the type of the value in the command's answer."""

    __slots__ = ()


Command = Asks[Any]


@dataclass(frozen=True, slots=True)
class ApplyRules(Asks[SwitchFailures]):
    """Change the tables of switches, in one atomic bundle per switch.

    With ``hurries``, skip switches that are far slower than the rest, if few.
    """

    changes: Mapping[DatapathId, tuple[RuleChange, ...]]
    hurries: bool = False


@dataclass(frozen=True, slots=True)
class StageRules(Asks[None]):
    """Stage at switches the changes of a later :class:`ApplyRules` with the same tuples.

    Tables do not change before the later command, which then only has to commit. If a switch
    refuses the staged changes, the later command works without them.
    """

    changes: Mapping[DatapathId, tuple[RuleChange, ...]]


@dataclass(frozen=True, slots=True)
class AwaitRounds(Asks[Collection[DatapathId]]):
    """Wait until switches have revalidated all their cached flows.

    A switch may forward by cached flows although a barrier has confirmed other rules. Value: the
    switches that have not finished within ``timeout_s`` seconds.
    """

    datapaths: tuple[DatapathId, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ReadPortPackets(Asks[Mapping[str, int]]):
    """Read fresh OpenFlow counters of ToR ports; value: frames in + out by port, without ports
    that have no readable counters.
    """

    rack: RackId
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetVlans(Asks[None]):
    rack: RackId
    ports: Mapping[str, PortVlans]


@dataclass(frozen=True, slots=True)
class ReadVlans(Asks[Mapping[str, PortVlans]]):
    """Read the VLANs of ports from the ToR."""

    rack: RackId
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoveMirrors(Asks[None]):
    plane: PlaneId
    move: MirrorMove


@dataclass(frozen=True, slots=True)
class ReadMirrors(Asks[Mirrors]):
    """Read the cross-connects of a plane from the device."""

    plane: PlaneId


@dataclass(frozen=True, slots=True)
class AwaitPortsUp(Asks[Sequence[str]]):
    """Value: the ports still down after ``timeout_s`` seconds."""

    rack: RackId
    ports: tuple[str, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Announce(Asks[None]):
    """Announce the addresses of ``servers`` on the given VLANs, and untagged addresses."""

    servers: tuple[tuple[Server, tuple[VlanId, ...]], ...]
    sent: bool = False
    """Wait until the switches of the servers have sent the announcements."""


@dataclass(frozen=True, slots=True)
class ProbePath(Asks[Sequence[str]]):
    """Send probes between two servers in each direction of the path.

    The first server is at the path's ``src``. Value: names of the directions whose probe failed.
    """

    path: Path
    vlan: VlanId
    ends: tuple[Server, Server]
    _: KW_ONLY
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A frame from one server to another on a path, sent behind the sender's earlier frames."""

    path: Path
    vlan: VlanId
    src: Server
    dst: Server


@dataclass(frozen=True, slots=True)
class PassMarkers(Asks[tuple[Marker, ...]]):
    """Send markers; value: tuple of the markers not received within ``timeout_s`` seconds."""

    markers: tuple[Marker, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Pause(Asks[None]):
    seconds: float


@dataclass(frozen=True, slots=True)
class Record(Asks[None]):
    """Append to the journal; the course goes on when the entry is durable."""

    what: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SaveState(Asks[None]):
    """Write the present state to the journal; the change is over."""

    what: str


@dataclass(frozen=True, slots=True)
class AwaitSwitches(Asks[frozenset[DatapathId]]):
    """Value: the connected switches, when all have connected or after ``timeout_s`` seconds."""

    datapaths: tuple[DatapathId, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class TakeSwitches(Asks[frozenset[DatapathId]]):
    """Become the master of switches, and give them their meters.

    Value: frozenset of the switches whose master this controller now is; leave the rest alone. If
    another controller is at work, the command fails and changes nothing. With ``hurries``, skip
    switches far slower than most.
    """

    datapaths: tuple[DatapathId, ...]
    hurries: bool = False


@dataclass(frozen=True, slots=True)
class CompareRules(Asks[Mapping[DatapathId, RuleDrift]]):
    """Read the tables of switches and compare them with ``intended``, the full list of our rules.

    Switches far slower than the rest, if few, are skipped; a later comparison covers the skipped
    switches. The value leaves out silent switches.
    """

    intended: Mapping[DatapathId, Sequence[Installation]]


@dataclass(frozen=True, slots=True)
class HeldRules:
    """Rules found in switch tables, compared with the intended rules."""

    exact: frozenset[DatapathId] = frozenset()
    """Switches with exactly the intended rules. A rule's cookie may have an earlier epoch."""
    rounds: Mapping[DatapathId, frozenset[int]] = field(default_factory=dict)
    """Cookies of revalidation-round rules in inexact switches; no entry for silent switches."""
    relays: Mapping[DatapathId, Collection[FlowRule]] = field(default_factory=dict)
    """Relay rules in inexact switches, without the rules' actions. A switch with an unreadable
    table has no entry.
    """


@dataclass(frozen=True, slots=True)
class ConfirmRules(Asks[HeldRules]):
    """Read the tables of switches, and find switches that already hold exactly the ``intended``
    rules.
    """

    intended: Mapping[DatapathId, Sequence[Installation]]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[_ValueT]):
    """Outcome of a command; times in seconds on the runner's monotonic clock."""

    value: _ValueT | None = None
    """None: not confirmed, or nothing was asked."""
    failure: Failure | None = None
    """None if the command is confirmed."""
    _: KW_ONLY
    started_s: float = 0.0
    finished_s: float = 0.0

    @property
    def confirmed(self) -> bool:
        return self.failure is None

    def value_or(self, default: _ValueT) -> _ValueT:
        return default if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Batch:
    """Commands to run at the same time."""

    step: str
    commands: tuple[Command, ...]
    _: KW_ONLY
    alone: bool = False
    """True if no other course may change switches during the batch: whole tables are written or
    read.
    """
    beside: bool = False
    """True if other jobs may run during the batch, if the course itself runs between jobs."""


_ResultT = TypeVar("_ResultT")
Course = Generator[Batch, Sequence[Outcome[Any]], _ResultT]
"""A generator: yields batches, is sent outcomes, returns a result."""
Steps = Course[None]


def next_batch(course: Steps, outcomes: Sequence[Outcome[Any]] | None = None) -> Batch | None:
    """Resume a course with the last batch's outcomes (None: start); None at the course's end."""
    try:
        return next(course) if outcomes is None else course.send(outcomes)
    except StopIteration:
        return None


def ask(
    step: str, command: Asks[_ValueT], *, alone: bool = False, beside: bool = False
) -> Course[Outcome[_ValueT]]:
    """Run a single command; ``alone``, ``beside``: see :class:`Batch`."""
    (outcome,) = yield Batch(step, (command,), alone=alone, beside=beside)
    return outcome


def ask_all(step: str, commands: Sequence[Asks[_ValueT]]) -> Course[Sequence[Outcome[_ValueT]]]:
    """Run commands of a kind at the same time; no batch without commands."""
    if not commands:
        return ()
    return (yield Batch(step, tuple(commands)))
