"""Probes, markers and port counters of the simulated network."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hydra.failures import FailureKind
from hydra.model import Circuit, Fabric, NetworkState, PortId, RackId
from hydra.reconfiguration.commands import Marker, PassMarkers, ProbePath, ReadPortPackets
from tests.unit.reconfiguration.simulation.faults import Doing, failure_of
from tests.unit.reconfiguration.simulation.forwarding import Forwarding
from tests.unit.reconfiguration.simulation.wiring import Way


class Probes(Forwarding):
    """Frames of the controller, and counts of the frames of servers."""

    def __init__(self, fabric: Fabric, state: NetworkState, rng: random.Random) -> None:
        super().__init__(fabric, state, rng)
        self._counters = dict.fromkeys((port.id for port in fabric.ports), 0)
        self.restless: dict[PortId, int] = {}
        """Reads of a port for which its counter still moves."""
        self._uncounted: set[RackId] = set()
        """Racks whose ToR has no counters."""

    def probe(self, command: ProbePath) -> Doing:
        yield
        if self.hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        a, b = command.ends
        lost = tuple(
            f"{src.name} to {dst.name}"
            for src, dst in (((a, b),) if command.path.one_way else ((a, b), (b, a)))
            if not self._arrives(Marker(path=command.path, vlan=command.vlan, src=src, dst=dst))
            or self.hit(self.faults.probe)
        )
        return lost, None

    def pass_markers(self, command: PassMarkers) -> Doing:
        """They wait where ToRs stand still, like the frames before them."""
        until_s = self.now_s + command.timeout_s
        while waiting := [one for one in command.markers if self.stands_still(one.src.rack)]:
            if self.now_s >= until_s:
                break
            self.now_s += 0.01
            yield
        yield
        lost = [
            one
            for one in command.markers
            if one in waiting or not self._arrives(one) or self.hit(self.faults.probe)
        ]
        if lost:
            self.now_s = max(self.now_s, until_s)
        return tuple(lost), None

    def _arrives(self, marker: Marker) -> bool:
        _, port = self.substrate.launch(marker.src, marker.path)
        if not self.closed.isdisjoint((marker.src.name, marker.dst.name)):
            return False
        return self.arrives((marker.vlan, port), marker.src.rack, marker.dst.rack)

    def unsettle(self, circuits: Sequence[Circuit], *, beside: bool = False) -> None:
        """Circuits with frames in flight: most drain after some reads, some never do.

        ``beside``: others are being drained, by the counters that there are.
        """
        if not beside:
            self._uncounted = {
                rack.id for rack in self.fabric.racks if self.rng.random() < self.faults.no_counters
            }
        for circuit in circuits:
            stays = self.rng.random() < self.faults.busy_circuit
            self.restless[circuit.a] = 10**9 if stays else self.rng.randint(0, 5)

    def seen_busy(self, circuit: Circuit) -> bool:
        """Whether frames are in flight on a circuit whose counters can be read throughout."""
        racks = self.fabric.racks_of(circuit)
        untold = self._uncounted | self.still_until_s.keys()
        readable = self.faults.read == 0 and untold.isdisjoint(racks)
        return readable and self.restless.get(circuit.a, 0) > 0

    def read_packets(self, command: ReadPortPackets) -> Doing:
        counts: dict[str, int] = {}
        still = self.stands_still(command.rack)
        for name in command.ports:
            port = self.port_named[command.rack, name].id
            if still:
                pass
            elif self.restless.get(port, 0) > 0:
                self.restless[port] -= 1
                self._counters[port] += self.rng.randint(1, 100)
            elif self._is_sent_to(port):
                self._counters[port] += self.rng.randint(1, 100)
            if command.rack not in self._uncounted:
                counts[name] = self._counters[port]
        yield
        mute = still and command.rack not in self.still_and_telling
        if mute or self.hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        return counts, None

    def _is_sent_to(self, end: PortId) -> bool:
        """Whether a switch still sends to this port, by rules that it has replaced."""
        return bool(self.stale) and any(
            self._passes(way, server.rack, end)
            for server in self.fabric.servers
            if self.cached(self.switch_of[server.name].datapath)
            for _, way in self.sent(server)
        )

    def _passes(self, way: Way, here: RackId, end: PortId) -> bool:
        if self.substrate.retags:
            return way[0] in self.vlans[end].tagged
        return end in self.followed(way, here)[:-1]
