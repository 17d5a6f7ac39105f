"""What an emulated optical switch moves: nothing but memory, or an Open vSwitch bridge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mininet_scenarios.emulators.cross_connect_bridge import BridgeError, CrossConnectBridge
from mininet_scenarios.emulators.fibre_links import FibreLinks, FibrePair

CrossConnects = Mapping[int, int]
"""Egress port by ingress port."""


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Frames that reached one fibre pair while it led nowhere; the two never count a frame twice.

    ``at_mirror``: they entered the OCS, and no cross-connect led on. ``at_tor``: the ToR was made
    to send them while its port had no light.
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
    """Frames that entered the OCS and neither left nor were dropped as dark: those in flight at a
    move, and those that an overloaded emulation lost. Exact when no traffic flows."""


class Mirrors(Protocol):
    """Called from one thread, in order; each call returns when the effect is there."""

    def start(self) -> CrossConnects:
        """The cross-connects that stand already: a restarted emulator moves nothing."""

    def close(self) -> None:
        """Let go of the mirrors; they stay as they are."""

    def darken(self, ingress: Collection[int], egress: Collection[int]) -> None:
        """These ingress ports lead nowhere, these egress ports give no light."""

    def aim(self, cross_connects: CrossConnects) -> None:
        """Mirrors have settled here; no light yet."""

    def light(self, egress: Collection[int]) -> None:
        """Light comes out of these ports."""

    def lit(self) -> frozenset[int]: ...

    def counters(self) -> MirrorCounters: ...


@dataclass(slots=True)
class MemoryMirrors:
    """Mirrors for tests of the protocol: every port is wired, no frame ever flows."""

    aimed: dict[int, int] = field(default_factory=dict)
    _lit: set[int] = field(default_factory=set)

    def start(self) -> CrossConnects:
        return dict(self.aimed)

    def close(self) -> None:
        return

    def darken(self, ingress: Collection[int], egress: Collection[int]) -> None:
        for port in ingress:
            self.aimed.pop(port, None)
        self._lit.difference_update(egress)

    def aim(self, cross_connects: CrossConnects) -> None:
        self.aimed.update(cross_connects)

    def light(self, egress: Collection[int]) -> None:
        self._lit.update(egress)

    def lit(self) -> frozenset[int]:
        return frozenset(self._lit)

    def counters(self) -> MirrorCounters:
        return MirrorCounters()


class OvsMirrors:
    """Mirrors made of a bridge's rules and of the carrier of the veth pairs plugged into it.

    OCS ports without a fibre pair are real ports of the switch with nothing plugged in.
    """

    def __init__(self, bridge: str, pairs: Iterable[FibrePair]) -> None:
        self._pairs = tuple(pairs)
        self._bridge = CrossConnectBridge(bridge)
        self._links = FibreLinks(self._pairs)
        self._wired = {pair.egress for pair in self._pairs}
        numbers = self._bridge.port_numbers()
        missing = [p.ocs_interface for p in self._pairs if p.ocs_interface not in numbers]
        if missing:
            raise BridgeError(f"bridge {bridge} has no port {', '.join(missing)}")
        self._in_port = {pair.ingress: numbers[pair.ocs_interface] for pair in self._pairs}
        self._out_port = {pair.egress: numbers[pair.ocs_interface] for pair in self._pairs}
        self._flow_before = (0, 0)
        self._unconnected_since: dict[int, int] = {}
        """By ingress port that leads nowhere: frames that its interface had received by then."""
        self._lost_before = dict.fromkeys(self._in_port, 0)

    def start(self) -> CrossConnects:
        ingress = {number: port for port, number in self._in_port.items()}
        egress = {number: port for port, number in self._out_port.items()}
        rules = self._bridge.rules()
        standing = {ingress[a]: egress[b] for a, b in rules.items() if a in ingress and b in egress}
        self._bridge.set_dark_rules(self._in_port.values())
        self._links.prepare(set(standing.values()))
        self._flow_before = self._links.received_and_sent()
        self._mark_unconnected(self._in_port.keys() - standing.keys())
        return standing

    def _mark_unconnected(self, ingress: Iterable[int]) -> None:
        for port in ingress:
            if port not in self._unconnected_since:
                self._unconnected_since[port] = self._links.received(port)

    def _lost_at_mirror(self, port: int) -> int:
        """Frames that came in while the port led nowhere.

        Taken from the interface: Open vSwitch credits frames that a cached flow forwarded to
        whatever rule matches when it next looks, so its counter of a dark rule includes frames
        that had passed before the mirror moved.
        """
        since = self._unconnected_since.get(port)
        return self._lost_before[port] + (
            0 if since is None else self._links.received(port) - since
        )

    def close(self) -> None:
        self._links.close()

    def darken(self, ingress: Collection[int], egress: Collection[int]) -> None:
        # Rules first: a frame that is on its way when the carrier drops must not be led to a port
        # that is already down.
        gone = [self._in_port[port] for port in ingress if port in self._in_port]
        if gone:
            self._bridge.remove(gone)
            self._mark_unconnected(port for port in ingress if port in self._in_port)
        self._links.darken(self._wired & set(egress))

    def aim(self, cross_connects: CrossConnects) -> None:
        rules = [
            (self._in_port[a], self._out_port[b])
            for a, b in cross_connects.items()
            if a in self._in_port and b in self._out_port
        ]
        for port in cross_connects.keys() & self._unconnected_since.keys():
            self._lost_before[port] = self._lost_at_mirror(port)
            del self._unconnected_since[port]
        if rules:
            self._bridge.add(rules)

    def light(self, egress: Collection[int]) -> None:
        self._links.light(self._wired & set(egress))

    def lit(self) -> frozenset[int]:
        return self._links.lit()

    def counters(self) -> MirrorCounters:
        at_tor = self._links.lost_in_the_dark()
        received, sent = (
            now - before
            for now, before in zip(self._links.received_and_sent(), self._flow_before, strict=True)
        )
        lit = self._links.lit()
        ports = tuple(
            PortCounters(
                pair.ingress,
                pair.egress,
                at_mirror=self._lost_at_mirror(pair.ingress),
                at_tor=at_tor[pair.egress],
                lit=pair.egress in lit,
            )
            for pair in self._pairs
        )
        return MirrorCounters(ports, received - sent - sum(port.at_mirror for port in ports))
