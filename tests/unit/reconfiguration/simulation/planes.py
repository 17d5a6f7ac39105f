"""Simulated optical switches: cross-connects, moves that break off, and light."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from hydra.failures import FailureKind
from hydra.model import CrossConnect, Fabric, NetworkState, OpticalPort, PlaneId
from hydra.reconfiguration.commands import MoveMirrors, ReadMirrors
from hydra.roles import Mirrors
from tests.unit.reconfiguration.simulation.clock import Clock
from tests.unit.reconfiguration.simulation.faults import Doing, failure_of
from tests.unit.reconfiguration.simulation.wiring import Link


class Planes(Clock):
    """Cross-connects of every plane, and where their light comes out."""

    def __init__(self, fabric: Fabric, state: NetworkState, rng: random.Random) -> None:
        super().__init__(fabric, state, rng)
        self.mirrors: dict[PlaneId, set[CrossConnect]] = {
            plane.id: set() for plane in fabric.planes
        }
        """Cross-connects that pass light."""
        for circuit in state.topology.circuits:
            self.mirrors[circuit.plane] |= set(fabric.cross_connects(circuit))
        self.halves: dict[PlaneId, set[CrossConnect]] = {plane.id: set() for plane in fabric.planes}
        """Cross-connects that exist and pass no light."""
        self.in_two = {plane.id for plane in fabric.planes[::2]}
        """Planes on which a cross-connect exists without light before it is there, and before it is
        gone: a move that breaks off leaves such halves.
        """
        self.port_fed = {(p.plane, p.egress): p for p in fabric.ports}
        self.port_feeding = {(p.plane, p.ingress): p for p in fabric.ports}

    def lit(self, port: OpticalPort) -> bool:
        return any(cross.egress == port.egress for cross in self.mirrors[port.plane])

    def far_end(self, port: OpticalPort) -> OpticalPort | None:
        """Where the light of a port comes out now; a port in the dark sends nothing."""
        lit, out = False, None
        for cross in self.mirrors[port.plane]:
            lit = lit or cross.egress == port.egress
            if out is None and cross.ingress == port.ingress:
                out = cross.egress
        return self.port_fed[port.plane, out] if lit and out is not None else None

    def links(self) -> list[Link]:
        """Pairs of ports that light joins, once each."""
        found: list[Link] = []
        for plane, lit in self.mirrors.items():
            for cross in lit:
                a = self.port_feeding.get((plane, cross.ingress))
                b = self.port_fed.get((plane, cross.egress))
                if a is None or b is None or a is b:
                    continue
                back = CrossConnect(b.ingress, a.egress) in lit
                if not back or a.id < b.id:
                    found.append((a, b, back))
        return found

    def move_mirrors(self, command: MoveMirrors) -> Doing:
        if command.plane in self.away:
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        lit, halves = self.mirrors[command.plane], self.halves[command.plane]
        new = command.move.connect - (lit - command.move.disconnect)
        staying = (lit | halves) - command.move.disconnect - new
        ends = {cross.ingress for cross in staying} | {cross.egress for cross in staying}
        for cross in sorted(new):
            if cross.ingress in ends or cross.egress in ends:
                return None, failure_of(command, FailureKind.REFUSED, f"port of {cross} is taken")

        def darken(cross: CrossConnect) -> None:
            if cross in lit:
                lit.discard(cross)
                halves.add(cross)

        def delete(cross: CrossConnect) -> None:
            lit.discard(cross)
            halves.discard(cross)

        def light(cross: CrossConnect) -> None:
            halves.discard(cross)
            lit.add(cross)

        in_two = command.plane in self.in_two
        steps: list[tuple[Callable[[CrossConnect], None], CrossConnect]] = []
        for action, crosses in (
            (darken, command.move.disconnect if in_two else ()),
            (delete, command.move.disconnect),
            (halves.add, new if in_two else ()),
            (light, new),
        ):
            some = self.rng.sample(sorted(crosses), len(crosses))
            steps += [(action, cross) for cross in some]
        extent, failure = self.extent(command, self.faults.mirrors, len(steps))
        if failure is None and self.hit(self.faults.lie):
            extent -= self.rng.randint(0, len(new))
            self.unreliable.add(command.plane)
        for action, cross in steps[:extent]:
            action(cross)
            yield
        if failure and failure.kind is FailureKind.UNKNOWN:
            self.postpone(
                command.plane, [partial(action, cross) for action, cross in steps[extent:]]
            )
        return None, failure

    def read_mirrors(self, command: ReadMirrors) -> Doing:
        yield
        if command.plane in self.away or self.hit(self.faults.read):
            return None, failure_of(command, FailureKind.NOT_CONNECTED)
        lit, halves = self.mirrors[command.plane], self.halves[command.plane]
        return Mirrors(frozenset(lit | halves), frozenset(halves)), None
