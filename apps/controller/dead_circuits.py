"""Dead circuits in use: found, diverted, and their ports quarantined."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from apps.controller.quarantine import Quarantine
from apps.controller.record.network import NetworkRecord
from apps.controller.runner import Runner
from hydra.model import Circuit, Fabric, NetworkState, Path, PortId
from hydra.reconfiguration.courses import Courses
from hydra.reconfiguration.scheduler import carried_out

_Dark = tuple[Circuit, PortId]
"""A circuit, and a port of the circuit without carrier."""


class DeadCircuits:
    """For the conductor's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        network: NetworkRecord,
        quarantine: Quarantine,
        runner: Runner,
        courses: Courses,
    ) -> None:
        self._fabric, self._network, self._quarantine = fabric, network, quarantine
        self._runner, self._switches, self._recovery = runner, courses.switches, courses.recovery
        self._failover = courses.failover
        self.dark: frozenset[_Dark] = frozenset()
        """Circuits dark while a ToR was away, or while a change was under way."""
        self._vacated: frozenset[Circuit] = frozenset()
        """Circuits without light that traffic has left, until they are taken down."""
        self.denied: frozenset[Circuit] = frozenset()
        """Circuits in use that an optical switch lacked when the switch answered again."""

    def keep_to(self, standing: Collection[Circuit]) -> None:
        """Forget circuits taken down by a change: at the next setup, their light is checked
        anew.
        """
        self.dark = frozenset(dark_end for dark_end in self.dark if dark_end[0] in standing)
        self.denied = self.denied.intersection(standing)
        self._vacated = self._vacated.intersection(standing)

    def find(self) -> tuple[frozenset[Circuit], str]:
        """Circuits in use without light, or missing on an optical switch, and the reason in words.

        All ports of a circuit with a dark receiver are quarantined. Ports of a one-way circuit with
        a dark sender alone are not: another circuit should light the sender.
        """
        if not self._recovery.done:
            return frozenset(), "the devices have not been read yet"
        state = self._network.state
        reported, self.dark = self.dark, frozenset()
        denied, self.denied = self.denied & state.topology.circuits, frozenset()
        seen = self._dark_now() | reported
        dark = {end for circuit, end in seen if circuit in state.topology.circuits}
        dead = frozenset(circuit for circuit, _ in seen) & state.topology.circuits
        unlit = {circuit for circuit in dead if not dark.isdisjoint(circuit.receivers)}
        ends = {end for circuit in unlit for end in circuit.ends} & dark
        senders = {end for circuit in dead - unlit for end in circuit.ends} & dark
        reasons = [self._put_out(unlit, ends, state)] if unlit else []
        reasons += [f"carrier lost at the sender {self._places(senders)}"] if senders else []
        reasons += [
            f"{self._fabric.planes[circuit.plane].name} does not have "
            f"{self._fabric.circuit_name(circuit)}"
            for circuit in sorted(denied - dead)
        ]
        return dead | denied, "; ".join(reasons)

    def _dark_now(self) -> frozenset[_Dark]:
        """Ports of circuits in use that are known to have no carrier."""
        circuits = self._network.state.topology.circuits
        ends = {end for circuit in circuits for end in circuit.ends}
        return self.at(set(filter(self._switches.is_dark, ends)))

    def at(self, ends: Collection[PortId]) -> frozenset[_Dark]:
        """Circuits in use with a port of ``ends``, by port."""
        circuits = self._network.state.topology.circuits
        return frozenset(
            (circuit, end) for circuit in circuits for end in circuit.ends if end in ends
        )

    def _places(self, ends: Collection[PortId]) -> str:
        """The names of ToR ports, as in "r1:p1, r2:p1"."""
        ports = (self._fabric.ports[end] for end in sorted(ends))
        return ", ".join(f"{self._fabric.racks[port.rack].name}:{port.tor_port}" for port in ports)

    def divert_meanwhile(
        self, circuits: Collection[Circuit] = (), paths: Collection[Path] = ()
    ) -> None:
        """While a change under way waits, divert the change's unmoved pairs off dead circuits and
        paths: the given circuits and paths, and circuits without light.

        :meth:`find` returns the dark circuits afterwards, even if the light has come back.
        """
        if not self._recovery.done:
            return
        dark = self._dark_now()
        dead = {circuit for circuit, _ in dark}.union(circuits)
        course = self._failover.divert(dead, paths, self._network.under_way)
        diverted = self._runner.run_meanwhile(course)
        self.dark |= {dark_end for dark_end in dark if dark_end[0] in diverted}

    async def leave(self) -> frozenset[Circuit]:
        """Divert the traffic of circuits in use without light, and return these circuits.

        The switches' rules are written at once, before the journal; call :meth:`find` afterwards.
        It returns these circuits, even if the light has come back.
        """
        if not self._recovery.done:
            return frozenset()
        seen = self._dark_now()
        dark = frozenset(circuit for circuit, _ in seen)
        if dark - self._vacated:
            await self.divert(dark - self._vacated, ())
        self.dark |= seen
        self._vacated |= dark
        return self._vacated

    async def divert(self, circuits: Collection[Circuit], paths: Collection[Path]) -> None:
        """Divert the pairs on dead circuits and paths, while no change is under way; restore the
        rules of the switches at the ends of dead ``paths``.
        """
        await carried_out(self._failover.divert(circuits, paths))
        steering = self._switches.substrate.steering
        ends = {rack for path in paths for rack in (path.src, path.dst)}
        switches = {switch.datapath for rack in ends for switch in steering(rack)}
        await carried_out(self._recovery.restore_rules(switches))

    def abandoned_circuits(self, before: NetworkState) -> tuple[frozenset[Circuit], str]:
        """Circuits of ``before`` given up by the recovery, and the places without light.

        Ports of the circuits are quarantined.
        """
        unlit = self._recovery.unlit
        return frozenset(unlit), self._put_out(unlit.keys(), set().union(*unlit.values()), before)

    def _put_out(
        self, unlit: Iterable[Circuit], dark: Collection[PortId], before: NetworkState
    ) -> str:
        """Quarantine the ports of ``unlit`` circuits; returns the reason, which names dark
        ports.
        """
        reason = f"carrier lost at {self._places(dark)}"
        ends = {end for circuit in unlit for end in circuit.ends}
        self._quarantine.put(ends, reason, before.topology.paths)
        return reason
