"""Mirrors of an emulated optical switch; here in memory (for the kernel see `kernel_mirrors`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

CrossConnects = Mapping[int, int]
"""Egress port by ingress port."""
NO_COPIES: Final[CrossConnects] = MappingProxyType({})


class MirrorError(Exception):
    """The machine can't emulate mirrors: an interface or a kernel feature is missing."""


@dataclass(frozen=True, slots=True)
class FibrePair:
    """The two fibres between a ToR port and the OCS, as one duplex veth pair.

    The pair has carrier exactly when ``egress`` is fed with light. Therefore send-only ToR ports
    can't be emulated: without light on the receiver, the transmitter has no carrier either.
    """

    ingress: int
    egress: int
    ocs_interface: str
    tor_interface: str


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Frames that reached a fibre pair without an onward connection; no frame is counted twice.

    ``at_mirror`` counts frames that reached the OCS without an onward cross-connect; ``at_tor``
    counts frames sent by the ToR while the port had no light.
    """

    ingress: int
    egress: int
    at_mirror: int
    at_tor: int
    lit: bool

    @property
    def dark_frames(self) -> int:
        return self.at_mirror + self.at_tor


@dataclass(frozen=True, slots=True)
class MirrorCounters:
    ports: tuple[PortCounters, ...] = ()
    lost_inside: int = 0
    """Frames that reached lit ports of the OCS and did not leave: in flight at a move, or lost by
    an overloaded machine. Exact when no traffic flows.
    """


class Mirrors(Protocol):
    """Mirrors, called from one thread; each call returns once its effect has occurred."""

    @property
    def blocking(self) -> bool:
        """True if calls take long enough to keep other sessions waiting."""

    def start(self) -> CrossConnects:
        """Return the standing cross-connects: a restarted emulator moves nothing."""

    def close(self) -> None:
        """Let go of the mirrors; the mirrors stay unchanged."""

    def darken(self, ingress: Collection[int], egress: Collection[int]) -> None:
        """Let the ingress ports lead nowhere, and the egress ports give no light."""

    def aim(self, cross_connects: CrossConnects, copies: CrossConnects = NO_COPIES) -> None:
        """Settle the mirrors on the cross-connects, without light yet. For ingress ports in
        ``copies``, light also comes out of the egress port given there.
        """

    def light(self, egress: Collection[int]) -> None:
        """Let light out of the ports."""

    def lit(self) -> frozenset[int]: ...

    def counters(self) -> MirrorCounters: ...


@dataclass(slots=True)
class MemoryMirrors:
    """Mirrors for tests of the protocol: every port is wired, no frame ever flows."""

    aimed: dict[int, int] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    """Copies of the latest cross-connects."""
    _lit: set[int] = field(default_factory=set)

    @property
    def blocking(self) -> bool:
        return False

    def start(self) -> CrossConnects:
        return dict(self.aimed)

    def close(self) -> None:
        return

    def darken(self, ingress: Collection[int], egress: Collection[int]) -> None:
        for port in ingress:
            self.aimed.pop(port, None)
        self._lit.difference_update(egress)

    def aim(self, cross_connects: CrossConnects, copies: CrossConnects = NO_COPIES) -> None:
        self.aimed.update(cross_connects)
        self.copies = dict(copies)

    def light(self, egress: Collection[int]) -> None:
        self._lit.update(egress)

    def lit(self) -> frozenset[int]:
        return frozenset(self._lit)

    def counters(self) -> MirrorCounters:
        return MirrorCounters()
