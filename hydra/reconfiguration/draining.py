"""Draining: circuits are empty when their ports' counters, read again and again, stand still.

Frames that wait in front of a ToR are in no counter of it. So markers go over the paths that are
left, behind all that was sent there before: where a marker has come out, so have the frames.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from hydra.model import Circuit, Fabric, Path, PortId, RackId, Server, VlanId
from hydra.reconfiguration.commands import Marker, Outcome, ReadPortPackets


def markers(
    paths: Mapping[Path, VlanId],
    hidden: Collection[Path],
    senders: Mapping[RackId, Sequence[Server]],
    receivers: Mapping[RackId, Sequence[Server]],
) -> tuple[Marker, ...]:
    """Markers that show that nothing is under way any more on ``paths``, which racks leave.

    ``senders``: one server of each switch that leaves them, by rack. Each switch sends one, since
    its frames wait in a queue of their own, and each path is passed in each of its directions. Over
    ``hidden`` paths, of which no counter tells, every switch sends one. There is none over a path
    to a rack without ``receivers``.
    """
    ways: dict[RackId, list[tuple[Path, Server]]] = {}
    for path in sorted(paths):
        for here, there in path.directions:
            if receivers.get(there):
                ways.setdefault(here, []).append((path, receivers[there][0]))
    found: list[Marker] = []
    for rack, its in sorted(ways.items()):
        mine = senders.get(rack, ())
        turns = range(max(len(its), len(mine)) if mine else 0)
        chosen = {(turn % len(its), turn % len(mine)) for turn in turns}
        for way, (path, _) in enumerate(its):
            if path in hidden:
                chosen |= {(way, sender) for sender in range(len(mine))}
        for way, sender in sorted(chosen):
            path, dst = its[way]
            found.append(Marker(path, paths[path], mine[sender], dst))
    return tuple(found)


def unshown(sent: Iterable[Marker], missing: Iterable[Marker]) -> set[Path]:
    """The paths on which frames may be under way, since markers are ``missing``.

    Where none of a server's markers came through, its other frames may wait as well, for whichever
    path that its rack leaves.
    """
    sent, missing = tuple(sent), frozenset(missing)
    heard = {one.src.name for one in sent if one not in missing}
    stuck = {one.src.rack for one in missing if one.src.name not in heard}
    paths = {one.path for one in missing}
    return paths | {one.path for one in sent if stuck.intersection((one.path.src, one.path.dst))}


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
        return not self.unseen(self._unchanged)

    def unseen(self, circuits: Iterable[Circuit]) -> list[Circuit]:
        """Those of ``circuits`` whose counters do not show that they are empty."""
        return [one for one in circuits if self._unchanged.get(one, self._enough) < self._enough]

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
