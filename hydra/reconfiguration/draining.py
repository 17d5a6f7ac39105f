"""Draining: circuits are empty when their ports' counters, read again and again, stand still."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from hydra.model import Circuit, Fabric, PortId, RackId
from hydra.reconfiguration.commands import Outcome, ReadPortPackets


class Drain:
    """Circuits that are being drained, and the readings of them so far."""

    def __init__(self, fabric: Fabric, circuits: Iterable[Circuit], reads: int) -> None:
        """``reads``: the number of equal readings in a row that show that a circuit is empty."""
        self._fabric = fabric
        self._unchanged = dict.fromkeys(sorted(circuits), 0)
        self._last: dict[Circuit, int | None] = {}
        self._enough = reads - 1
        self._late = False
        """True if the last reading began after the bound."""
        self._busy: set[Circuit] = set()

    def commands(self, circuits: Collection[Circuit]) -> tuple[ReadPortPackets, ...]:
        """Commands for one reading of the ports at both ends of these circuits."""
        ports: dict[RackId, set[str]] = {}
        for circuit in circuits:
            for end in circuit.ends:
                port = self._fabric.ports[end]
                ports.setdefault(port.rack, set()).add(port.tor_port)
        return tuple(ReadPortPackets(rack, tuple(sorted(ports[rack]))) for rack in sorted(ports))

    def take(
        self,
        circuits: Collection[Circuit],
        commands: Sequence[ReadPortPackets],
        outcomes: Sequence[Outcome],
        *,
        late: bool,
    ) -> None:
        """Note a reading of these circuits; ``late`` if it began after the bound."""
        frames: dict[tuple[RackId, str], int] = {}
        for command, outcome in zip(commands, outcomes, strict=True):
            if outcome.confirmed:
                for name, count in outcome.value.items():
                    frames[command.rack, name] = count

        def at(end: PortId) -> int | None:
            port = self._fabric.ports[end]
            return frames.get((port.rack, port.tor_port))

        for circuit in circuits:
            a, b = at(circuit.a), at(circuit.b)
            count = None if a is None or b is None else a + b
            before = self._last.get(circuit)
            unchanged = count is not None and before == count
            self._unchanged[circuit] = self._unchanged[circuit] + 1 if unchanged else 0
            self._last[circuit] = count
            if self._late and None not in (before, count) and not unchanged:
                self._busy.add(circuit)
        self._late = late

    @property
    def settled(self) -> bool:
        """True if all circuits are empty."""
        return all(count >= self._enough for count in self._unchanged.values())

    def undecided(self) -> list[Circuit]:
        """Circuits that were read, but not often enough to know whether they are empty.

        Readings that take long may be few before the bound, or none. At a ToR without counters, or
        one that does not answer, nothing is seen.
        """
        return [
            circuit
            for circuit, count in self._unchanged.items()
            if count < self._enough
            and self._last.get(circuit) is not None
            and circuit not in self._busy
        ]

    def busy(self) -> Collection[Circuit]:
        """Circuits that carried frames between two readings after the bound."""
        return sorted(self._busy)
