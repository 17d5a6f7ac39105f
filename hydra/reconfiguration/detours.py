"""Detours: pairs that wait for their new paths do so over circuits of others that have room.

A pair whose circuit goes before its next one comes would be electrical all that time. Circuits that
stand meanwhile have room, too: one hop more is better than none of light. A detour is a path like
any other, of a state like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, Path, RackId, Topology
from hydra.reconfiguration.plan import Pair, pair_of, paths_by_pair

_Lane = tuple[Circuit, RackId]
"""A direction of a circuit, by the rack that it comes from."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Detours:
    """What detours may use, and how a topology that has some becomes a state."""

    fabric: Fabric
    max_hops: int
    reserved: frozenset[Circuit]
    """Circuits with reservations: nobody's detour shares them."""
    toward: Callable[[NetworkState, Topology], NetworkState]
    """The state after another with this topology. Raises HydraError if there is none."""
    expired: Callable[[], bool] = _never
    """True once no more are to be looked for: what has been found by then is used."""


class Room:
    """Room for detours on the circuits of a topology."""

    def __init__(
        self, detours: Detours, topology: Topology, sent_mbps: DemandMatrix, share: float
    ) -> None:
        """``share``: part of what circuits have left that detours may take."""
        self._max_hops = detours.max_hops
        self._sent_mbps = sent_mbps
        self._ways: dict[RackId, list[tuple[Circuit, RackId]]] = {}
        """By rack: circuits there, and where they lead."""
        self._left_mbps: dict[_Lane, float] = {}
        paths = paths_by_pair(NetworkState(topology=topology))
        load: dict[_Lane, float] = {}
        for its in paths.values():
            for path in its:
                for lane, mbps in _lanes(detours.fabric, path, sent_mbps).items():
                    load[lane] = load.get(lane, 0.0) + mbps / len(its)
        for circuit in sorted(topology.circuits - detours.reserved):
            a, b = detours.fabric.racks_of(circuit)
            rate_mbps = detours.fabric.rate_of(circuit)
            for here, there in ((a, b), (b, a)):
                self._ways.setdefault(here, []).append((circuit, there))
                left_mbps = rate_mbps - load.get((circuit, here), 0.0)
                self._left_mbps[circuit, here] = share * max(0.0, left_mbps)

    def take(
        self, pair: Pair, avoided: Collection[Circuit], leaving: Collection[Circuit]
    ) -> Path | None:
        """A path of the fewest hops with room for all that the pair sends, which takes it; or None.

        Of several, one over few circuits that are ``leaving``.
        """
        src, dst = pair
        there_mbps, back_mbps = float(self._sent_mbps[src, dst]), float(self._sent_mbps[dst, src])
        reached: dict[RackId, tuple[Circuit, ...]] = {src: ()}
        frontier = reached
        for _ in range(self._max_hops):
            found: dict[RackId, tuple[int, tuple[Circuit, ...]]] = {}
            for here, so_far in frontier.items():
                for circuit, there in self._ways.get(here, ()):
                    if (
                        there in reached
                        or circuit in avoided
                        or self._left_mbps[circuit, here] < there_mbps
                        or self._left_mbps[circuit, there] < back_mbps
                    ):
                        continue
                    way = (*so_far, circuit)
                    cost = sum(one in leaving for one in way)
                    if there not in found or cost < found[there][0]:
                        found[there] = cost, way
            frontier = {rack: way for rack, (_, way) in found.items()}
            reached = reached | frontier
            if dst in frontier:
                path = Path(src, dst, frontier[dst])
                self._take(path, there_mbps, back_mbps)
                return path
        return None

    def _take(self, path: Path, there_mbps: float, back_mbps: float) -> None:
        here = path.src
        for circuit in path.circuits:
            there = next(rack for one, rack in self._ways[here] if one == circuit)
            self._left_mbps[circuit, here] -= there_mbps
            self._left_mbps[circuit, there] -= back_mbps
            here = there

    def give_back(self, path: Path) -> None:
        """Undo :meth:`take`."""
        src, dst = path.src, path.dst
        self._take(path, -float(self._sent_mbps[src, dst]), -float(self._sent_mbps[dst, src]))


def _lanes(fabric: Fabric, path: Path, sent_mbps: DemandMatrix) -> Mapping[_Lane, float]:
    """Mbps that a pair with this path alone has in each direction of its circuits."""
    found: dict[_Lane, float] = {}
    here = path.src
    for circuit in path.circuits:
        ends = fabric.racks_of(circuit)
        there = ends[1] if ends[0] == here else ends[0]
        found[circuit, here] = float(sent_mbps[path.src, path.dst])
        found[circuit, there] = float(sent_mbps[path.dst, path.src])
        here = there
    return found


def rerouted(topology: Topology, paths: Iterable[Path], gone: Collection[Circuit]) -> Topology:
    """``topology`` without these circuits, and with these paths in place of their pairs' present
    ones.
    """
    added = tuple(paths)
    pairs = {pair_of(path) for path in added}
    kept = [path for path in topology.paths if pair_of(path) not in pairs]
    return Topology(topology.circuits.difference(gone), tuple(sorted([*kept, *added])))
