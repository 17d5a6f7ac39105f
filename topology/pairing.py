"""Direct circuits by matchings: each plane joins its racks in pairs (c-Through)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.model import Circuit, Path, PlaneId, PortId, RackId, Topology
from topology.bmatching import heaviest_b_matching
from topology.layers import Layer, free_layers, whole_units
from topology.matching import Matching, heaviest_matching
from topology.problem import (
    Budget,
    FabricArrays,
    PairDemands,
    PlanResult,
    Reserved,
    measure,
    pair_demands,
    validate_demand,
)
from topology.standing import Standing, standing_part

_Pair = tuple[int, int]


def plan_edmonds(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Circuits of one maximum-weight matching per plane, each on the remaining demand.

    c-Through (Wang et al., SIGCOMM 2010, section 3.2) for one plane; for several, Edmonds'
    algorithm on each in turn. ``demand`` has shape (N, N), Mbps from row to column. The weight of a
    pair of racks is the larger demand of its two directions, at most the circuit's rate. Once a
    pair has a path (of one hop), the pair's weight is 0; if ``budget.paths_per_pair`` allows more
    paths, the weight is the remaining demand. With ``budget.boolean`` false, demands above a
    circuit's rate have weight 0, and each pair has one path.

    Choices that the paper leaves open: the fastest planes come first, equally fast planes by
    number; a rack with several ports on a plane takes part in as many matchings; among equally
    heavy matchings :func:`~topology.matching.heaviest_matching` decides. If a circuit in use has
    ports that may change, its pair weighs ``budget.disturbance_mbps`` more on the same plane, and
    the circuit keeps its ports if the plane joins the pair again. Circuits and paths that must stay
    are in the plan (:mod:`topology.standing`).

    ``gap``: with one plane, the gap proven by the matching, mostly 0. With several planes, the
    distance from the best set of circuits in a bipartite relaxation, an upper bound for any order
    of planes.

    When time is up, planes not yet planned stay dark. The same input gives the same result.

    Raises PlanError for a bad demand entry, an impossible budget, or pinned paths that do not fit.
    """
    return _plan(fabric, demand, current, reserved, budget, perfect=False)


def plan_edmonds_perfect(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """The heaviest of the matchings that join the most racks, as c-Through asks for.

    Like :func:`plan_edmonds`, but every plane joins as many racks as possible, if need be pairs
    without a demand. ``gap``: with one plane, as of :func:`plan_edmonds`; None with several planes.
    """
    return _plan(fabric, demand, current, reserved, budget, perfect=True)


def _plan(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
    *,
    perfect: bool,
) -> PlanResult:
    budget = budget.as_published()
    pairs = pair_demands(validate_demand(demand, fabric.n_racks))
    budget.check(fabric)
    standing = standing_part(fabric, pairs, current, reserved, budget)
    layers = free_layers(fabric, budget, standing.ports())
    work = _Work.of(pairs, fabric.n_racks, standing, reserved, layers, budget)
    work.favour(circuits_in_use(current), fabric)
    everything, open_paths = work.remaining.copy(), work.open_paths.copy()
    proofs = work.match_in_turn(perfect=perfect)
    circuits = circuits_between(fabric, work.joined, layers, circuits_in_use(current))
    paths = [Path(*ends, (circuit,)) for ends, circuit in circuits]
    topology = Topology(
        standing.circuits | {circuit for _, circuit in circuits},
        tuple(sorted([*standing.paths, *paths])),
    )
    gap = _gap(everything, work, layers, proofs, open_paths, perfect=perfect)
    return replace(measure(fabric, pairs, topology, reserved), gap=gap)


def circuits_in_use(current: Topology) -> frozenset[Circuit]:
    """The circuits used by paths."""
    return frozenset(circuit for path in current.paths for circuit in path.circuits)


@dataclass(slots=True, eq=False)
class _Work:
    """An unfinished plan."""

    layers: tuple[Layer, ...]
    budget: Budget
    remaining: NDArray[np.int64]
    """Shape (N, N), symmetric, bit/s: demands of pairs without a path."""
    open_paths: NDArray[np.int64]
    """Shape (N, N), symmetric: number of paths that two racks may get."""
    favoured: dict[PlaneId, set[_Pair]] = field(default_factory=dict)
    """Pairs with a circuit in use, by plane."""
    joined: dict[PlaneId, list[_Pair]] = field(default_factory=dict)
    """Pairs with a new circuit, by plane."""
    value: int = 0
    """Demand carried by the new circuits, bit/s."""

    @classmethod
    def of(
        cls,
        pairs: PairDemands,
        n: int,
        standing: Standing,
        reserved: Reserved,
        layers: tuple[Layer, ...],
        budget: Budget,
    ) -> _Work:
        open_paths = standing.open_paths(n, reserved, budget)
        remaining = np.zeros((n, n), dtype=np.int64)
        remaining[pairs.src, pairs.dst] = whole_units(standing.remaining_mbps)
        remaining += remaining.T
        return cls(layers, budget, np.where(open_paths > 0, remaining, 0), open_paths)

    def favour(self, circuits: Iterable[Circuit], fabric: FabricArrays) -> None:
        """Prefer running circuits whose ports are free."""
        free = {int(port) for layer in self.layers for port in layer.port}
        for circuit in circuits:
            if circuit.a in free and circuit.b in free:
                a, b = fabric.racks_of(circuit)
                self.favoured.setdefault(circuit.plane, set()).update({(a, b), (b, a)})

    def match_in_turn(self, *, perfect: bool) -> list[Matching]:
        """Matchings, plane by plane: as many on each plane as join any pair, until time is up."""
        matchings = []
        for plane, rates_mbps in _rates_by_plane(self.layers).items():
            used = np.zeros(rates_mbps.shape[1], dtype=np.int64)
            while not self.budget.expired():
                next_mbps = rates_mbps[used, np.arange(len(used))]
                capacity = whole_units(np.minimum(next_mbps[:, None], next_mbps))
                weight = self._weight(plane, capacity, perfect=perfect)
                if not weight.any():
                    break
                matching, pairs = _match(weight, single=perfect)
                matchings.append(matching)
                for a, b in pairs:
                    self._join(plane, a, b, capacity)
                    used[[a, b]] += 1
        return matchings

    def _weight(
        self, plane: PlaneId, capacity: NDArray[np.int64], *, perfect: bool
    ) -> NDArray[np.int64]:
        possible = (self.open_paths > 0) & (capacity > 0)
        if not self.budget.boolean:
            possible &= self.remaining <= capacity
        weight = np.where(possible, np.minimum(self.remaining, capacity), 0)
        favour = int(whole_units(np.asarray(self.budget.disturbance_mbps)))
        for pair in self.favoured.get(plane, ()):
            weight[pair] += favour * possible[pair]
        if perfect:
            # Add a weight so large that a matching of more pairs is always heavier.
            weight[possible] += int(weight.max(initial=0)) * (len(weight) // 2) + 1
        return weight

    def _join(self, plane: PlaneId, a: int, b: int, capacity: NDArray[np.int64]) -> None:
        self.joined.setdefault(plane, []).append((a, b))
        self.favoured.get(plane, set()).difference_update({(a, b), (b, a)})
        carried = int(min(self.remaining[a, b], capacity[a, b]))
        self.value += carried
        self.open_paths[[a, b], [b, a]] -= 1
        more = self.open_paths[a, b] > 0
        self.remaining[[a, b], [b, a]] = self.remaining[a, b] - carried if more else 0


def _rates_by_plane(layers: tuple[Layer, ...]) -> dict[PlaneId, NDArray[np.float64]]:
    """Shape (Z + 1, N) by plane: the rates of each rack's ports, fastest first, then 0."""
    rates: dict[PlaneId, list[NDArray[np.float64]]] = {}
    for layer in layers:
        rates.setdefault(layer.plane, []).append(layer.rate_mbps)
    return {plane: np.stack([*rows, np.zeros_like(rows[0])]) for plane, rows in rates.items()}


def _match(weight: NDArray[np.int64], *, single: bool) -> tuple[Matching, list[_Pair]]:
    """The heaviest matching of the racks with any weight. With ``single``, all racks are matched,
    except one rack if their number is odd.
    """
    racks = np.flatnonzero(weight.any(axis=1))
    weight = weight[np.ix_(racks, racks)]
    if single and len(racks) % 2:
        # One rack gets no partner: an additional node is matched with this rack.
        weight = np.pad(weight, (0, 1), constant_values=int(weight.max()))
        weight[-1, -1] = 0
    matching = heaviest_matching(weight)
    return matching, [
        (int(racks[a]), int(racks[b]))
        for a, b in enumerate(matching.mate[: len(racks)].tolist())
        if a < b < len(racks)
    ]


def circuits_between(
    fabric: FabricArrays,
    joined: Mapping[PlaneId, Sequence[_Pair]],
    layers: Sequence[Layer],
    in_use: frozenset[Circuit],
) -> list[tuple[tuple[RackId, RackId], Circuit]]:
    """Circuits for the pairs, each from the fastest free port of both racks in the order of the
    matchings: a pair's present circuit if its ports are as fast, or else a circuit of the ports
    with the lowest numbers.

    ``joined``: by plane, pairs (lower rack, higher rack) in the order of the matchings; ``layers``
    have the free ports.
    """
    free: dict[tuple[PlaneId, int], list[PortId]] = {}
    for layer in layers:
        for rack in layer.racks.tolist():
            free.setdefault((layer.plane, rack), []).append(PortId(int(layer.port[rack])))
    rates = {key: [fabric.port_rate_mbps[port] for port in ports] for key, ports in free.items()}
    standing: dict[tuple[PlaneId, _Pair], list[tuple[PortId, PortId]]] = {}
    for circuit in sorted(in_use, reverse=True):
        ends = sorted((int(fabric.port_rack[port]), port) for port in (circuit.a, circuit.b))
        if all(port in free.get((circuit.plane, rack), ()) for rack, port in ends):
            (a, first), (b, second) = ends
            standing.setdefault((circuit.plane, (a, b)), []).append((first, second))
    found: list[tuple[PlaneId, _Pair, tuple[PortId, PortId]]] = []
    fresh: list[tuple[PlaneId, _Pair, list[float]]] = []
    for plane, pairs in joined.items():
        for pair in pairs:
            wanted = [rates[plane, rack].pop(0) for rack in pair]
            kept = standing.get((plane, pair), [])
            alike = [ports for ports in kept if [*fabric.port_rate_mbps[list(ports)]] == wanted]
            if alike:
                kept.remove(alike[-1])
                found.append((plane, pair, alike[-1]))
            else:
                fresh.append((plane, pair, wanted))
    for plane, pair, ports in found:
        for rack, port in zip(pair, ports, strict=True):
            free[plane, rack].remove(port)
    for plane, pair, wanted in fresh:
        chosen: list[PortId] = []
        for rack, rate in zip(pair, wanted, strict=True):
            some = free[plane, rack]
            chosen.append(next(port for port in some if fabric.port_rate_mbps[port] == rate))
            some.remove(chosen[-1])
        found.append((plane, pair, (chosen[0], chosen[1])))
    return [
        ((RackId(pair[0]), RackId(pair[1])), Circuit(plane, min(ports), max(ports)))
        for plane, pair, ports in found
    ]


def _gap(
    everything: NDArray[np.int64],
    work: _Work,
    layers: tuple[Layer, ...],
    proofs: list[Matching],
    open_paths: NDArray[np.int64],
    *,
    perfect: bool,
) -> float | None:
    if not work.value:
        return 0.0 if not everything.any() or not layers else None
    if len(layers) == 1:
        return sum(proof.bound - proof.weight for proof in proofs) / work.value
    if perfect:
        return None
    rate = np.max([layer.rate_mbps for layer in layers], axis=0)
    capacity = whole_units(np.minimum(rate[:, None], rate))
    ports = np.sum([layer.rate_mbps > 0 for layer in layers], axis=0)
    most = np.minimum(everything, capacity * open_paths)
    bound = heaviest_b_matching(most, capacity, ports, ports).bound // 2
    return max(0, bound - work.value) / work.value
