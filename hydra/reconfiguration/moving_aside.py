"""Moving aside: onto a spare circuit, over standing circuits, or off circuits.

A pair can't go over in the light while another pair's circuit has a port that the new path needs.
If pairs need each other's ports, a pair has to move aside first.

A :class:`Board` looks ahead quickly, with pairs as pieces.
:func:`hydra.reconfiguration.shifting.in_light` checks whether devices and VLAN-IDs allow a course.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hydra.model import Circuit, DemandMatrix, Fabric, Pair, Path, PlaneId, PortId, Topology
from hydra.reconfiguration.detours import DetourRoom, Detours


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Spare:
    """Room for pairs that move aside."""

    detours: Detours
    blocked: frozenset[PortId] = frozenset()
    """Ports that no spare circuit may use."""
    sent_mbps: DemandMatrix | None = None
    """Mbps from rack to rack, shape (N, N); None: not measured, and no detours."""
    share: float = 1.0
    """Part of the rate left on circuits that detours may take, 0 to 1."""

    def mbps(self, pair: Pair) -> float:
        """Traffic of a pair, both directions summed; 1 for each pair if traffic is not measured."""
        sent, (src, dst) = self.sent_mbps, pair
        return 1.0 if sent is None else float(sent[src, dst] + sent[dst, src])

    def sum_mbps(self, pairs: Iterable[Pair]) -> float:
        """Traffic of ``pairs``, summed."""
        return sum(map(self.mbps, sorted(pairs)))


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """The places of a board's pairs."""

    paths: Mapping[Pair, tuple[Path, ...]]
    """Paths of pairs on circuits."""
    circuits: AbstractSet[Circuit]
    """All standing circuits, including circuits of unmoved pairs."""
    taken: Mapping[PortId, Circuit]
    """The standing circuit of each taken port."""

    @classmethod
    def of(cls, paths: Mapping[Pair, tuple[Path, ...]], circuits: AbstractSet[Circuit]) -> Position:
        taken = {circuit.a: circuit for circuit in circuits}
        taken.update((circuit.b, circuit) for circuit in circuits)
        return cls(paths, circuits, taken)


class Board:
    """The moving pairs of a change, circuits needed by new paths, and circuits in the way."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        spare: Spare,
        goal: Mapping[Pair, tuple[Path, ...]],
        able: Collection[Pair],
        movable: Collection[Pair],
        still: Topology,
        wanted: AbstractSet[Circuit],
        by_hand: Collection[PlaneId],
    ) -> None:
        """``goal``: new paths by pair; ``able``: pairs that can reach the goal in the light once
        ports are free; ``movable``: pairs able to reach any other path in the light. ``still``:
        circuits that stay up throughout, and paths of unmoved pairs; ``wanted``: the target's
        circuits.
        """
        self._fabric = fabric
        self._spare = spare
        self._goal = goal
        self._needs = {
            pair: [circuit for path in goal[pair] for circuit in path.circuits]
            for pair in sorted(able)
        }
        """Circuits of the new paths, by able pair in order."""
        self._movable = frozenset(movable)
        self._still = still
        self._needed = {end for circuit in wanted - still.circuits for end in circuit.ends}
        self._wanted = wanted
        self._usable = {
            rack.id: [
                port
                for port in fabric.ports_of(rack.id)
                if port.id not in spare.blocked and port.plane not in by_hand
            ]
            for rack in fabric.racks
        }

    def arrived(self, position: Position, pair: Pair) -> bool:
        return position.paths.get(pair, ()) == self._goal.get(pair, ())

    def gone_over(self, position: Position) -> Position | None:
        """The position after a course in which all able pairs with free ports go over; None if no
        pair can.
        """
        paths, goal, standing, taken = position.paths, self._goal, position.circuits, position.taken
        going = {}
        for pair, circuits in self._needs.items():
            if paths.get(pair, ()) == goal[pair]:
                continue
            for circuit in circuits:
                if (circuit.a in taken or circuit.b in taken) and circuit not in standing:
                    break
            else:
                going[pair] = goal[pair]
        return self.after(position, going) if going else None

    def after(
        self,
        position: Position,
        moved: Mapping[Pair, tuple[Path, ...]],
        off: Collection[Pair] = (),
    ) -> Position:
        """The position with ``moved`` pairs on new paths, and ``off`` pairs off circuits."""
        paths = {**position.paths, **moved}
        for pair in off:
            paths.pop(pair, None)
        used = {
            circuit for members in paths.values() for path in members for circuit in path.circuits
        }
        return Position.of(paths, self._still.circuits | used)

    # -- in the way -------------------------------------------------------------------------------

    def in_the_way(self, position: Position) -> list[frozenset[Circuit]]:
        """For each waiting pair, the circuits on ports needed by the pair's new paths; each set
        once.
        """
        taken = position.taken
        found = dict[frozenset[Circuit], None]()
        for pair, circuits in self._needs.items():
            if not self.arrived(position, pair):
                before = frozenset(
                    taken[end]
                    for circuit in circuits
                    if circuit not in position.circuits
                    for end in circuit.ends
                    if end in taken
                )
                if before:
                    found[before] = None
        return list(found)

    def users(self, position: Position) -> Mapping[Circuit, frozenset[Pair]]:
        """Pairs on each circuit outside the target, in the circuits' order."""
        users: dict[Circuit, set[Pair]] = {}
        for pair, paths in position.paths.items():
            for path in paths:
                for circuit in path.circuits:
                    if circuit not in self._wanted:
                        users.setdefault(circuit, set()).add(pair)
        return {circuit: frozenset(users[circuit]) for circuit in sorted(users)}

    # -- aside ------------------------------------------------------------------------------------

    def places(
        self,
        position: Position,
        circuits: Collection[Circuit],
        users: Mapping[Circuit, frozenset[Pair]],
        room: Callable[[], DetourRoom | None],
    ) -> Mapping[Pair, tuple[Path, ...]]:
        """Paths by which pairs can leave ``circuits`` in one course: a spare circuit between the
        same racks, or a detour where there is ``room``.
        """
        taken = set(position.taken)
        spare: dict[Circuit, Circuit] = {}
        homeless = set[Pair]()
        for circuit in sorted(circuits):
            members = users.get(circuit, frozenset())
            if not members or not all(self._may_move(position, pair) for pair in members):
                continue
            if (other := self._spare_circuit(circuit, taken)) is None:
                homeless |= members
            else:
                taken.update(other.ends)
                spare[circuit] = other
        moved = {
            pair: tuple(sorted(_over(path, spare) for path in position.paths[pair]))
            for pair in sorted(frozenset[Pair]().union(*(users[circuit] for circuit in spare)))
        }
        return {**moved, **self._detours(sorted(homeless), circuits, room)}

    def _may_move(self, position: Position, pair: Pair) -> bool:
        closed = self._spare.detours.closed  # by reservations
        return pair in self._movable and all(
            closed.isdisjoint(path.circuits) for path in position.paths[pair]
        )

    def _detours(
        self,
        pairs: Collection[Pair],
        but: Collection[Circuit],
        room: Callable[[], DetourRoom | None],
    ) -> Mapping[Pair, tuple[Path, ...]]:
        """Detours for pairs, avoiding the circuits of ``but``, as far as there is room."""
        there = room() if pairs else None
        if there is None:
            return {}
        shut = there.numbers(but)
        taken = ((pair, there.take(pair, shut)) for pair in pairs)
        found = {pair: path for pair, path in taken if path is not None}
        for path in found.values():
            there.give_back(path)
        return {pair: (path,) for pair, path in found.items()}

    def room(self, position: Position) -> DetourRoom | None:
        """Room for detours; None if traffic is not measured."""
        spare = self._spare
        if spare.sent_mbps is None:
            return None
        paths = [path for members in position.paths.values() for path in members]
        return DetourRoom(
            detours=spare.detours,
            topology=Topology(position.circuits, (*self._still.paths, *paths)),
            sent_mbps=spare.sent_mbps,
            share=spare.share,
            leaving=position.circuits - self._wanted,
        )

    def _spare_circuit(self, circuit: Circuit, taken: Collection[PortId]) -> Circuit | None:
        """A circuit between free ports of the same racks, no slower than ``circuit``; preferably at
        ports no path of the target needs.
        """
        fabric = self._fabric
        a, b = (
            [port for port in self._usable[rack] if port.id not in taken]
            for rack in fabric.racks_of(circuit)
        )
        found = [
            fabric.circuit(optical_port.id, other.id)
            for optical_port in a
            for other in b
            if optical_port.plane == other.plane
        ]
        rate_mbps = fabric.rate_of(circuit)
        return min(
            (circuit for circuit in found if fabric.rate_of(circuit) >= rate_mbps),
            key=lambda circuit: (len(self._needed.intersection(circuit.ends)), circuit),
            default=None,
        )


def _over(path: Path, spare: Mapping[Circuit, Circuit]) -> Path:
    """The path over spare circuits, for the circuits with a spare."""
    return Path(path.src, path.dst, tuple(spare.get(circuit, circuit) for circuit in path.circuits))
