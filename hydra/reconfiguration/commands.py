"""Commands by which courses act on the network, and the outcomes that they hear back.

A course (a reconfiguration, a recovery, an audit) is a generator: it yields a :class:`Batch` of
commands that may run in parallel and receives one :class:`Outcome` per command, in the same order.
So it needs no threads, sockets or clock, and can be driven by devices or by a simulation alike.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hydra.failures import Failure
from hydra.forwarding.rules import Installation, RuleChange
from hydra.model import DatapathId, Path, PlaneId, RackId, Server, VlanId
from hydra.reconfiguration.plan import MirrorMove
from hydra.roles import PortVlans


@dataclass(frozen=True, slots=True)
class ApplyRules:
    """Change the tables of switches, one atomic bundle each; value: {datapath: Failure or None}.

    With ``hurries``, few switches that are far later than all others are not waited for.
    """

    changes: Mapping[DatapathId, tuple[RuleChange, ...]]
    hurries: bool = False
    slow: frozenset[DatapathId] = frozenset()
    """Switches known to be slow. Once no other owes an answer, all that is left is to wait."""


@dataclass(frozen=True, slots=True)
class StageRules:
    """Send switches the changes of a later :class:`ApplyRules` with the same tuples, which then
    only has to commit them; nothing changes yet, and nothing is lost if a switch does not take it.
    """

    changes: Mapping[DatapathId, tuple[RuleChange, ...]]


@dataclass(frozen=True, slots=True)
class AwaitRounds:
    """Wait until switches have looked at all their cached flows, by which they may forward although
    a barrier has confirmed other rules; value: the switches that have not within ``timeout_s``.
    """

    datapaths: tuple[DatapathId, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ReadPortPackets:
    """Fresh OpenFlow counters of ToR ports; value: {port: frames in + out}, None if unreadable."""

    rack: RackId
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetVlans:
    rack: RackId
    ports: Mapping[str, PortVlans]


@dataclass(frozen=True, slots=True)
class ReadVlans:
    """Value: {port: VLAN membership}, read from the ToR."""

    rack: RackId
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoveMirrors:
    plane: PlaneId
    move: MirrorMove


@dataclass(frozen=True, slots=True)
class ReadMirrors:
    """Value: :class:`~hydra.roles.Mirrors`, read from the device."""

    plane: PlaneId


@dataclass(frozen=True, slots=True)
class AwaitPortsUp:
    """Value: the ports that did not come up within ``timeout_s``."""

    rack: RackId
    ports: tuple[str, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Announce:
    """Send the announcements of these servers' addresses on these VLANs (and untagged ones)."""

    servers: tuple[tuple[Server, tuple[VlanId, ...]], ...]


@dataclass(frozen=True, slots=True)
class ProbePath:
    """Send probes between two servers, the first at the path's ``src``, in each of its directions;
    value: names of those that failed.
    """

    path: Path
    vlan: VlanId
    ends: tuple[Server, Server]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Marker:
    """A frame that one server sends another over a path, behind all that it sent there before."""

    path: Path
    vlan: VlanId
    src: Server
    dst: Server


@dataclass(frozen=True, slots=True)
class PassMarkers:
    """Send markers; value: those that did not arrive within ``timeout_s``, as a tuple."""

    markers: tuple[Marker, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Record:
    """Write to the journal before going on."""

    what: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SaveState:
    """Write the present state to the journal before going on: the change is over."""

    what: str


@dataclass(frozen=True, slots=True)
class AwaitSwitches:
    """Value: the switches that are connected, once all of these are, or after ``timeout_s``."""

    datapaths: tuple[DatapathId, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class TakeSwitches:
    """Become the master of these switches, and give them their meters.

    Value: those that have this controller as their master now, a frozenset; the others are to be
    left alone until they have. Fails, and leaves all as it is, where another controller is at work.
    """

    datapaths: tuple[DatapathId, ...]


@dataclass(frozen=True, slots=True)
class CompareRules:
    """Read the tables of switches and hold them against these installations, all that they are to
    have from us.

    Switches that are far later than all others are not waited for: another look shows their tables.
    Value: {datapath: :class:`hydra.reconfiguration.drift.RuleDrift`}, without silent switches.
    """

    intended: Mapping[DatapathId, Sequence[Installation]]


@dataclass(frozen=True, slots=True)
class HeldRules:
    """What switches that were read hold of the rules that they should."""

    exact: frozenset[DatapathId] = frozenset()
    """Those that hold just these. A rule's cookie may have an earlier epoch."""
    rounds: Mapping[DatapathId, frozenset[int]] = field(default_factory=dict)
    """Cookies of the rules that tell of rounds, as far as others hold them."""


@dataclass(frozen=True, slots=True)
class ConfirmRules:
    """Read the tables of switches, and find those that hold exactly the rules of these
    installations, as they would be given them now; value: :class:`HeldRules`.
    """

    intended: Mapping[DatapathId, Sequence[Installation]]


Command = (
    ApplyRules
    | AwaitRounds
    | AwaitSwitches
    | TakeSwitches
    | CompareRules
    | ConfirmRules
    | StageRules
    | ReadPortPackets
    | SetVlans
    | ReadVlans
    | MoveMirrors
    | ReadMirrors
    | AwaitPortsUp
    | Announce
    | ProbePath
    | PassMarkers
    | Pause
    | Record
    | SaveState
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one command; times in seconds on the runner's monotonic clock."""

    value: Any = None
    failure: Failure | None = None
    """None if it is confirmed."""
    started_s: float = 0.0
    finished_s: float = 0.0

    @property
    def confirmed(self) -> bool:
        return self.failure is None


@dataclass(frozen=True, slots=True)
class Batch:
    """Commands that run at the same time."""

    step: str
    commands: tuple[Command, ...]
    alone: bool = False
    """True if nobody may change switches meanwhile: whole tables are written, or read."""
    beside: bool = False
    """True if other courses, and changes, may come in between: they leave its switches alone."""


_ResultT = TypeVar("_ResultT")
Course = Generator[Batch, Sequence[Outcome], _ResultT]
"""A generator that yields commands, is sent outcomes, and returns what was found out."""
Steps = Course[None]
