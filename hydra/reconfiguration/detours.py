"""Detours: pairs wait for their new paths over circuits of other pairs with room.

If the old circuit of a pair is taken down before the new circuit is set up, the pair would use the
electrical network meanwhile. Standing circuits of other pairs may have room, at the cost of an
extra hop. A detour is an ordinary path of an ordinary state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, Pair, Path, RackId, Topology
from hydra.reconfiguration.plan import pair_of, paths_by_pair


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Detours:
    """The circuits and limits of detours, and how a topology with detours becomes a state."""

    fabric: Fabric
    max_hops: int
    closed: frozenset[Circuit]
    """Circuits closed to detours: circuits with reservations, and circuits of other changes."""
    toward: Callable[[NetworkState, Topology], NetworkState]
    """The state that follows a given state, with the given topology. Raises HydraError if
    impossible.
    """
    expired: Callable[[], bool] = _never
    """True once the search must end; detours found by then are used."""


class DetourRoom:
    """Room for detours on the circuits of a topology.

    Circuits go by number n. Each circuit has two lanes: 2n, and 2n + 1 for the way back.
    """

    def __init__(
        self,
        *,
        detours: Detours,
        topology: Topology,
        sent_mbps: DemandMatrix,
        share: float,
        leaving: Collection[Circuit] = (),
    ) -> None:
        """``share``: part of the rate left on circuits for detours, 0 to 1; ``leaving``: circuits
        that few detours should use.
        """
        self._max_hops = detours.max_hops
        self._sent_mbps = sent_mbps
        self._circuits = sorted(topology.circuits)
        self._numbers = {circuit: number for number, circuit in enumerate(self._circuits)}
        self._costs = [int(circuit in leaving) for circuit in self._circuits]
        self._from: list[RackId] = []
        """By lane: the rack at the start."""
        rates_mbps: list[float] = []
        for circuit in self._circuits:
            self._from += detours.fabric.racks_of(circuit)
            rates_mbps += [detours.fabric.rate_of(circuit)] * 2
        self._ways: dict[RackId, list[tuple[int, RackId]]] = {}
        """By rack: (lane, rack at the lane's end) of the lanes from there."""
        for lane, here in enumerate(self._from):
            if self._circuits[lane >> 1] in detours.closed:
                continue
            self._ways.setdefault(here, []).append((lane, self._from[lane ^ 1]))
        load_mbps = [0.0] * len(self._from)
        for pair, pair_paths in paths_by_pair(NetworkState(topology=topology)).items():
            there_mbps, back_mbps = self._mbps(pair)
            for path in pair_paths:
                for lane in self._lanes(path):
                    load_mbps[lane] += there_mbps / len(pair_paths)
                    load_mbps[lane ^ 1] += back_mbps / len(pair_paths)
        self._remaining_mbps = [
            share * max(0.0, rate - load) for rate, load in zip(rates_mbps, load_mbps, strict=True)
        ]

    def numbers(self, circuits: Iterable[Circuit]) -> frozenset[int]:
        """Numbers of the given circuits, without circuits outside the topology."""
        return frozenset(self._numbers[circuit] for circuit in circuits if circuit in self._numbers)

    def take(self, pair: Pair, shut: Collection[int] = ()) -> Path | None:
        """Reserve a path of the fewest hops with room for all traffic of the pair; None if none has
        room.

        Prefers paths over few leaving circuits; avoids the ``shut`` circuits, given by
        :meth:`numbers`.
        """
        src, dst = pair
        there_mbps, back_mbps = self._mbps(pair)
        remaining_mbps, costs = self._remaining_mbps, self._costs
        reached = {src}
        frontier: dict[RackId, tuple[int, tuple[int, ...]]] = {src: (0, ())}
        """By rack: number of leaving circuits on the way there, and the lanes of the way."""
        for hop in range(1, self._max_hops + 1):
            # Seen from the end, the last hop has few lanes to choose from.
            found = [
                (frontier[here][0] + costs[lane >> 1], lane ^ 1, here)
                for lane, here in self._ways.get(dst, ())
                if here in frontier
                and remaining_mbps[lane ^ 1] >= there_mbps
                and remaining_mbps[lane] >= back_mbps
                and lane >> 1 not in shut
            ]
            if found:
                _, last, here = min(found)
                lanes = (*frontier[here][1], last)
                self._take(lanes, there_mbps, back_mbps)
                return Path(src, dst, tuple(self._circuits[lane >> 1] for lane in lanes))
            if hop == self._max_hops:
                break
            following: dict[RackId, tuple[int, tuple[int, ...]]] = {}
            for here, (so_far, way) in frontier.items():
                for lane, there in self._ways.get(here, ()):
                    if (
                        there in reached
                        or remaining_mbps[lane] < there_mbps
                        or remaining_mbps[lane ^ 1] < back_mbps
                        or lane >> 1 in shut
                    ):
                        continue
                    cost = so_far + costs[lane >> 1]
                    if there not in following or cost < following[there][0]:
                        following[there] = cost, (*way, lane)
            reached.update(following)
            frontier = following
        return None

    def _mbps(self, pair: Pair) -> tuple[float, float]:
        """Mbps sent by a pair, there and back."""
        src, dst = pair
        return float(self._sent_mbps[src, dst]), float(self._sent_mbps[dst, src])

    def _lanes(self, path: Path) -> Iterator[int]:
        """Lanes of a path in its own direction."""
        here = path.src
        for circuit in path.circuits:
            lane = 2 * self._numbers[circuit]
            if self._from[lane] != here:
                lane += 1
            yield lane
            here = self._from[lane ^ 1]

    def _take(self, lanes: Iterable[int], there_mbps: float, back_mbps: float) -> None:
        for lane in lanes:
            self._remaining_mbps[lane] -= there_mbps
            self._remaining_mbps[lane ^ 1] -= back_mbps

    def give_back(self, path: Path) -> None:
        """Undo :meth:`take`."""
        there_mbps, back_mbps = self._mbps((path.src, path.dst))
        self._take(self._lanes(path), -there_mbps, -back_mbps)


def rerouted(topology: Topology, paths: Iterable[Path], gone: Collection[Circuit]) -> Topology:
    """``topology`` without ``gone`` circuits, with ``paths`` in place of the present paths of their
    pairs.
    """
    added = tuple(paths)
    pairs = {pair_of(path) for path in added}
    kept = [path for path in topology.paths if pair_of(path) not in pairs]
    return Topology(topology.circuits - set(gone), tuple(sorted([*kept, *added])))
