"""The vocabulary of rule shapes: tables, ports, matches and actions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Table(IntEnum):
    INGRESS = 0
    ACCOUNT = 1
    DIVERT = 2
    CLASS = 3
    BEST_EFFORT = 4
    CIRCUITS = 5
    SPREAD = 6
    ROUNDS = 7


class Port(IntEnum):
    """Ports of a switch by purpose; negative to differ from real port numbers."""

    HOST = -1
    OPTICAL = -2
    """The uplink to the ToR."""
    ELECTRICAL = -3
    """The uplink to the electrical network; for a single-homed server the same uplink, untagged."""
    NORMAL = -4
    """The learning pipeline of the switch (ToRs only)."""
    SERVERS = -5
    """All servers of the rack except the sender of the frame (ToRs only)."""


_FIRST_SERVER: Final = -0x1_0000

_FIRST_WIRED: Final = -0x2_0000


def server_port(place: int) -> int:
    """ToR port of the server at ``place`` (from 0) in the rack."""
    return _FIRST_SERVER - place


def wired_port(place: int) -> int:
    """ToR port at ``place`` (from 0) among the ports on planes of the rack."""
    return _FIRST_WIRED - place


def place_of_server(port: int) -> int | None:
    """Inverse of :func:`server_port`; None if ``port`` leads to no server."""
    return _FIRST_SERVER - port if _FIRST_WIRED < port <= _FIRST_SERVER else None


def place_of_wired(port: int) -> int | None:
    """Inverse of :func:`wired_port`; None if ``port`` is not wired to a plane."""
    return _FIRST_WIRED - port if port <= _FIRST_WIRED else None


@dataclass(frozen=True, slots=True)
class Arg:
    """A place in a shape; each rule fills the place from ``args``."""

    index: int


Value = int | Arg


@dataclass(frozen=True, slots=True)
class Field:
    """An OXM match field; ``mask`` only for maskable fields."""

    name: str
    value: Value
    mask: Value | None = None


@dataclass(frozen=True, slots=True)
class Output:
    port: Port | Arg


@dataclass(frozen=True, slots=True)
class ToController:
    pass


@dataclass(frozen=True, slots=True)
class PushVlan:
    vlan: Value
    """VLAN-ID 1..4094; the encoder adds OFPVID_PRESENT."""


@dataclass(frozen=True, slots=True)
class PopVlan:
    pass


@dataclass(frozen=True, slots=True)
class SetDscp:
    """Mark the packet; the shape must match IPv4 or IPv6."""

    codepoint: int


@dataclass(frozen=True, slots=True)
class PickPath:
    """Write a path number from 0 to ``last`` into :data:`~hydra.forwarding.pipeline.PATH_REGISTER`.

    The number is a hash over addresses and TCP ports, equal in both directions, so that a flow
    keeps its path and returns on the same path: ``multipath(symmetric_l3l4, basis, hrw, …)`` of
    Open vSwitch.
    """

    last: Value
    basis: int = 0
    """Seed of the hash: picks with different seeds are independent."""


@dataclass(frozen=True, slots=True)
class SetPath:
    """Write a given path number into the path register."""

    number: Value


@dataclass(frozen=True, slots=True)
class PassProtected:
    """Let a frame from a protected port leave by a protected port; encoded only for switches with
    protected ports (``ovs-vsctl set Port NAME protected=true``).
    """


@dataclass(frozen=True, slots=True)
class EndOnFin:
    """Expire the rule 1 s after its installation once a TCP segment with FIN matches:
    ``fin_timeout(hard_timeout=1)`` of Open vSwitch.
    """


Action = (
    Output
    | ToController
    | PushVlan
    | PopVlan
    | SetDscp
    | PickPath
    | SetPath
    | PassProtected
    | EndOnFin
)


@dataclass(frozen=True, slots=True)
class Shape:
    """Table, priority, match and actions that all rules of a kind share."""

    table: Table
    priority: int
    match: tuple[Field, ...] = ()
    actions: tuple[Action, ...] = ()
    goto: Table | None = None
    write_metadata: Value | None = None
    meter: Value | None = None
    """Number of the meter for matching packets; the meter must exist before the rule."""
    reports_end: bool = False
    """True if the switch notifies the controller when the rule expires."""
