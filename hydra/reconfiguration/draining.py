"""Draining: a circuit is empty when repeated readings of its ports' counters stand still.

Frames queued in front of a ToR are in none of the ToR's counters. So markers follow the last frames
on the paths left: once a marker arrives, so have all frames before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hydra.model import Circuit, Fabric, NetworkState, Pair, Path, PortId, RackId, Server, VlanId
from hydra.policy import DrainPolicy
from hydra.reconfiguration.commands import (
    Batch,
    Command,
    Marker,
    Outcome,
    PassMarkers,
    Pause,
    ReadPortPackets,
    Steps,
)
from hydra.reconfiguration.plan import Plan, pair_of


def markers(
    paths: Mapping[Path, VlanId],
    hidden: Collection[Path],
    senders: Mapping[RackId, Sequence[Server]],
    receivers: Mapping[RackId, Sequence[Server]],
) -> tuple[Marker, ...]:
    """Markers to prove that no frame is under way on ``paths``, the paths that racks leave.

    ``senders``: by rack, one server of each leaving switch. Each switch has a queue of its own and
    so sends a marker, and markers pass each path in all directions. Over ``hidden`` paths, which no
    counter shows, every switch sends a marker. A path to a rack without ``receivers`` gets no
    marker.
    """
    ways: dict[RackId, list[tuple[Path, Server]]] = {}
    for path in sorted(paths):
        for here, there in path.directions:
            if receivers.get(there):
                ways.setdefault(here, []).append((path, receivers[there][0]))
    found: list[Marker] = []
    for rack, rack_ways in sorted(ways.items()):
        switches = senders.get(rack, ())
        turns = range(max(len(rack_ways), len(switches)) if switches else 0)
        chosen = {(turn % len(rack_ways), turn % len(switches)) for turn in turns}
        for way, (path, _) in enumerate(rack_ways):
            if path in hidden:
                chosen |= {(way, sender) for sender in range(len(switches))}
        for way, sender in sorted(chosen):
            path, dst = rack_ways[way]
            found.append(Marker(path=path, vlan=paths[path], src=switches[sender], dst=dst))
    return tuple(found)


def unshown(paths: Iterable[Path], sent: Iterable[Marker], missing: Iterable[Marker]) -> set[Path]:
    """The ``paths`` on which frames may be under way, given the ``missing`` markers.

    If all markers of a server are missing, the server's other frames may be queued, too, for any
    path its rack leaves, even a path without a marker.
    """
    sent, missing = tuple(sent), frozenset(missing)
    reached = {marker.src.name for marker in sent if marker not in missing}
    stuck = {marker.src.rack for marker in missing if marker.src.name not in reached}
    lost = {marker.path for marker in missing}
    return {path for path in paths if path in lost or stuck.intersection((path.src, path.dst))}


class Readings:
    """Readings of the counters at both ends of draining circuits."""

    def __init__(self, fabric: Fabric, circuits: Iterable[Circuit], reads: int) -> None:
        """``reads``: the number of equal readings in a row that prove a circuit empty."""
        self._fabric = fabric
        self._unchanged = dict.fromkeys(sorted(circuits), 0)
        self._last: dict[Circuit, int | None] = {}
        self._enough = reads - 1
        self._late = False
        """True if the last reading began after the bound."""
        self._busy: set[Circuit] = set()

    def commands(self, circuits: Collection[Circuit]) -> tuple[ReadPortPackets, ...]:
        """Commands for a single reading of the ports at both ends of ``circuits``."""
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
        outcomes: Sequence[Outcome[Mapping[str, int]]],
        *,
        late: bool,
    ) -> None:
        """Note a reading of these circuits; ``late`` if the reading began after the bound."""
        frames: dict[tuple[RackId, str], int] = {}
        for command, outcome in zip(commands, outcomes, strict=True):
            for name, counted in outcome.value_or({}).items():
                frames[command.rack, name] = counted

        def at(end: PortId) -> int | None:
            port = self._fabric.ports[end]
            return frames.get((port.rack, port.tor_port))

        for circuit in self._unchanged.keys() & circuits:
            a, b = at(circuit.a), at(circuit.b)
            count = None if a is None or b is None else a + b
            before = self._last.get(circuit)
            unchanged = count is not None and before == count
            self._unchanged[circuit] = self._unchanged[circuit] + 1 if unchanged else 0
            self._last[circuit] = count
            if self._late and None not in (before, count) and not unchanged:
                self._busy.add(circuit)
        self._late = late

    def let_go(self, circuits: Iterable[Circuit]) -> None:
        """Stop reading ``circuits``: another change drains them."""
        for circuit in circuits:
            self._unchanged.pop(circuit, None)
            self._busy.discard(circuit)

    @property
    def settled(self) -> bool:
        """True if all circuits are empty."""
        return not self.unseen(self._unchanged)

    def unseen(self, circuits: Iterable[Circuit]) -> list[Circuit]:
        """The ``circuits`` not proven empty by counters."""
        return [
            circuit
            for circuit in circuits
            if self._unchanged.get(circuit, self._enough) < self._enough
        ]

    def undecided(self) -> list[Circuit]:
        """Circuits with too few readings to prove them empty.

        If readings are slow, the bound may come after few readings, or before the first. A ToR
        without counters, or without an answer, gives no readings.
        """
        return [
            circuit
            for circuit, count in self._unchanged.items()
            if count < self._enough
            and self._last.get(circuit) is not None
            and circuit not in self._busy
        ]

    def busy(self) -> list[Circuit]:
        """Circuits that carried frames between two readings after the bound."""
        return sorted(self._busy)


def circuits_to_drain(
    current: NetworkState, leaving: Collection[Path], disconnect: Collection[Circuit]
) -> tuple[set[Circuit], set[Path]]:
    """(circuits to drain, hidden paths) of the ``leaving`` paths and the circuits to
    ``disconnect``.

    A hidden path shares all its circuits with other paths, so no counter would stand still. If no
    marker passes the path, the drain waits until the bound.
    """
    gone = frozenset(leaving)
    busy = {
        circuit for path in current.topology.paths if path not in gone for circuit in path.circuits
    }
    left = set(disconnect)
    hidden: set[Path] = set()
    for path in gone:
        own = set(path.circuits) - busy
        left |= own
        if not own:
            hidden.add(path)
    return left, hidden


class Draining:
    """The course that lets paths run empty.

    Markers follow the last frames, and the counters at both ends of the circuits have to stand
    still. OpenFlow port counters lag by at most 12 ms in Open vSwitch, so three equal reads a few
    milliseconds apart prove a circuit empty. The drain also waits for a circuit that stays up,
    because its ports leave the VLAN of frames that may be under way. Slow readings go on after the
    bound, to find the circuits that still carry frames.

    After :meth:`run`, :meth:`busy` and :meth:`unproven` name circuits and paths not empty.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        paths: Mapping[Path, VlanId],
        to_drain: tuple[Collection[Circuit], Collection[Path]],
        policy: DrainPolicy,
        cache_report: bool,
    ) -> None:
        """``paths``: the paths to drain; ``to_drain``: the result of :func:`circuits_to_drain`.
        ``cache_report``: switches have confirmed that no earlier cached flow forwards frames, so
        markers alone prove paths empty.
        """
        self._policy = policy
        self._cache_reported = cache_report
        self._to_drain, self._hidden = set(to_drain[0]), set(to_drain[1])
        self._readings = Readings(fabric, self._to_drain, policy.reads)
        self._paths = paths
        self._lost: set[Path] = set()
        self._let_go: set[Path] = set()
        self.missing: tuple[Marker, ...] = ()
        """Markers that did not arrive."""
        self.outcomes: list[Outcome[Any]] = []
        self.bound_reached = False

    @classmethod
    def of(
        cls,
        fabric: Fabric,
        plan: Plan,
        dead: frozenset[Pair],
        policy: DrainPolicy,
        *,
        cache_report: bool,
    ) -> Draining:
        """Draining of the paths and circuits left by a plan's diverted pairs, without paths of
        ``dead`` pairs: their traffic is already electrical.
        """
        vlans = plan.current.vlans
        moved = [path for path in vlans if pair_of(path) in plan.affected]
        return cls(
            fabric=fabric,
            paths={path: vlans[path] for path in moved if pair_of(path) not in dead},
            to_drain=circuits_to_drain(plan.current, moved, plan.disconnect),
            policy=policy,
            cache_report=cache_report,
        )

    def let_go(self, pairs: Collection[Pair], ports: Collection[PortId]) -> None:
        """Stop waiting for paths of ``pairs`` and circuits at ``ports``: another change waits."""
        gone = {
            circuit for circuit in self._to_drain if not frozenset(ports).isdisjoint(circuit.ends)
        }
        self._readings.let_go(gone)
        self._to_drain -= gone
        self._let_go.update(path for path in self._paths if pair_of(path) in pairs)
        self._lost -= self._let_go

    @property
    def ends(self) -> set[RackId]:
        """Racks at the ends of the paths to drain."""
        return {rack for path in self._paths for rack in pair_of(path)}

    def run(
        self,
        senders: Mapping[RackId, Sequence[Server]],
        receivers: Mapping[RackId, Sequence[Server]],
        beside: tuple[Command, ...],
    ) -> Steps:
        """Run the drain. ``senders``, ``receivers``: as in :func:`markers`; ``beside``: commands to
        carry out meanwhile.
        """
        bound_s = self._policy.bound_ms / 1000
        found = markers(self._paths, self._hidden, senders, receivers)
        passing = (PassMarkers(found, bound_s),) if found else ()
        waiting = set(self._hidden)  # hidden paths that only the bound can prove empty
        if self._cache_reported:  # else older cached flows may send frames after the markers
            waiting -= {marker.path for marker in found}
        over_s: float | None = None
        asked: Collection[Circuit] = self._to_drain
        while asked or passing:
            reads = self._readings.commands(asked)
            outcomes = yield Batch("drain", (*reads, *passing, *beside))
            outcomes = outcomes[: len(reads) + len(passing)]
            for command, outcome in zip(passing, outcomes[len(reads) :], strict=True):
                self.missing = outcome.value_or(command.markers)
                expected = [marker for marker in command.markers if marker.path not in self._let_go]
                left = self._paths.keys() - self._let_go
                self._lost |= unshown(left, expected, set(self.missing).intersection(expected))
            waiting = (waiting | self._hidden & self._lost) - self._let_go
            beside, passing = (), ()
            self.outcomes += outcomes
            began_s = min(outcome.started_s for outcome in outcomes)
            if over_s is None:
                over_s = began_s + bound_s
            self._readings.take(asked, reads, outcomes[: len(reads)], late=began_s >= over_s)
            settled = self._readings.settled and not waiting
            if max(outcome.finished_s for outcome in outcomes) >= over_s:
                asked = self._readings.undecided()
            if settled or not asked:
                self.bound_reached = not settled
                break
            yield Batch("drain", (Pause(self._policy.interval_ms / 1000),))
            asked = [circuit for circuit in asked if circuit in self._to_drain]
        if waiting - self._lost - self._let_go and not self._to_drain:
            yield Batch("drain", (Pause(bound_s), *beside))

    def busy(self) -> list[Circuit]:
        """Circuits that carried frames even after the bound."""
        return self._readings.busy()

    def unproven(self, *, probed: bool) -> list[Path]:
        """Paths not proven empty: no marker arrived.

        ``probed``: paths are probed all the time. Without probes, a path may have died for good
        unnoticed; then counters standing still prove the path empty.
        """
        busy = set(self._readings.busy())
        return [
            path
            for path in sorted(self._lost)
            if probed
            or not (own := self._to_drain & set(path.circuits))
            or self._readings.unseen(own - busy)
        ]
