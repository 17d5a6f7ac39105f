"""The HydRA heuristic on Python integers: the oracle of the compiled one, with all its limits.

The nodes of the auxiliary graph are racks. Two racks are linked if they have free ports on a common
plane (a circuit could be set up) or if a circuit between them has capacity left (Christodoulopoulos
et al., JOCN 2015, section III.B.3). Sets of racks and of planes are bitsets: bit i is rack or plane
i.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from hydra.model import Circuit, Path, PlaneId, PortId, RackId, Topology
from topology.problem import (
    RATE_TOLERANCE_MBPS,
    Budget,
    FabricArrays,
    PairDemand,
    PairDemands,
    Reserved,
    pair_demands,
    tie_break,
    validate_demand,
)
from topology.standing import Standing, standing_part


def reference_plan(
    fabric: FabricArrays, demand: ArrayLike, current: Topology, reserved: Reserved, budget: Budget
) -> Topology:
    """The input of ``hydra-bfs``."""
    pairs = pair_demands(validate_demand(demand, fabric.n_racks))
    standing = standing_part(fabric, pairs, current, reserved, budget)
    graph = _auxiliary_graph(fabric, current, standing, budget)
    served = {(int(path.src), int(path.dst)) for path in standing.paths}
    waiting = [
        pair
        for pair in pairs
        if (pair.src, pair.dst) not in served
        and budget.includes_rack(pair.src)
        and budget.includes_rack(pair.dst)
    ]
    found = [*_rounds(graph, waiting, budget.max_hops, whole=not budget.boolean)]
    if budget.boolean:
        for _ in range(budget.paths_per_pair - 1):
            found += _second_paths(graph, pairs, standing, reserved, budget, found)
    new_paths = [booking.path for booking in found]
    return Topology(
        circuits=standing.circuits.union(*(path.circuits for path in new_paths)),
        paths=tuple(sorted([*standing.paths, *new_paths])),
    )


def turn(mbps: float, src: int, dst: int) -> tuple[int, int]:
    """The order of pairs: the largest first, equal pairs by their hash."""
    ends = np.array([[src], [dst]], dtype=np.int32)
    return -round(mbps * 1e6), int(tie_break(ends[0], ends[1])[0])


def bits(mask: int) -> Iterator[int]:
    """Positions of the ones in ``mask``, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class FreePorts:
    """The unused ports, by rack and plane.

    Ports may differ in rate, so the bitsets exist once per distinct rate (its *class*), each for
    ports at least that fast. A further, empty class stands for rates without ports.
    """

    def __init__(self, fabric: FabricArrays, ports: Iterable[PortId]) -> None:
        self._rates = sorted(set(fabric.port_rate_mbps.tolist()))
        self._rack: list[int] = fabric.port_rack.tolist()
        self._plane: list[int] = fabric.port_plane.tolist()
        self._class = [bisect_left(self._rates, rate) for rate in fabric.port_rate_mbps.tolist()]
        self._at: dict[tuple[int, int], list[PortId]] = {}
        classes = range(len(self._rates) + 1)
        self._racks_on = [[0] * fabric.n_planes for _ in classes]
        self._planes_of = [[0] * fabric.n_racks for _ in classes]
        for port in ports:
            self._add(port)

    def _add(self, port: PortId) -> None:
        rack, plane = self._rack[port], self._plane[port]
        insort(self._at.setdefault((rack, plane), []), port)
        for rate_class in range(self._class[port] + 1):
            self._racks_on[rate_class][plane] |= 1 << rack
            self._planes_of[rate_class][rack] |= 1 << plane

    @property
    def fastest(self) -> int:
        """The class of the fastest ports."""
        return len(self._rates) - 1

    def class_for(self, rate_mbps: float) -> int:
        """The class of ports fast enough for ``rate_mbps``."""
        return bisect_left(self._rates, rate_mbps - RATE_TOLERANCE_MBPS)

    def is_free(self, port: PortId, rate_class: int) -> bool:
        at = self._at.get((self._rack[port], self._plane[port]), ())
        return self._class[port] >= rate_class and port in at

    def common_planes(self, rack: int, other: int, rate_class: int) -> int:
        """Planes on which both racks have a free port."""
        planes = self._planes_of[rate_class]
        return planes[rack] & planes[other]

    def planes_of(self, racks: int, rate_class: int) -> int:
        """Planes on which any of ``racks`` has a free port."""
        of_rack = self._planes_of[rate_class]
        planes = 0
        for rack in bits(racks):
            planes |= of_rack[rack]
        return planes

    def racks_on(self, planes: int, rate_class: int) -> int:
        """Racks with a free port on any of ``planes``."""
        on_plane = self._racks_on[rate_class]
        racks = 0
        for plane in bits(planes):
            racks |= on_plane[plane]
        return racks

    def first(self, rack: int, plane: int, rate_class: int) -> PortId:
        """The lowest free port of ``rack`` on ``plane``; there must be one."""
        return next(p for p in self._at[rack, plane] if self._class[p] >= rate_class)

    def take(self, port: PortId) -> None:
        rack, plane = self._rack[port], self._plane[port]
        left = self._at[rack, plane]
        left.remove(port)
        best_left = max((self._class[other] for other in left), default=-1)
        for rate_class in range(best_left + 1, self._class[port] + 1):
            self._racks_on[rate_class][plane] &= ~(1 << rack)
            self._planes_of[rate_class][rack] &= ~(1 << plane)


@dataclass(slots=True)
class _Link:
    """A circuit, and its free Mbps (in each direction)."""

    circuit: Circuit
    rack_a: int
    rack_b: int
    residual_mbps: float

    @property
    def usable(self) -> bool:
        return self.residual_mbps > RATE_TOLERANCE_MBPS


@dataclass(slots=True)
class Booking:
    path: Path
    links: list[_Link]
    given_mbps: float

    @property
    def ends(self) -> tuple[int, int]:
        return int(self.path.src), int(self.path.dst)


class AuxiliaryGraph:
    """Free ports and residual circuits, consumed as paths are booked.

    ``need_mbps`` in the methods is the free rate that every hop must have; 0 stands for HydRA's
    Boolean demand, for which any free rate suffices. If a hop could use several ports, a circuit
    among ``preferred`` comes first (no traffic is disturbed), then the lowest plane and the lowest
    ports.
    """

    def __init__(
        self, fabric: FabricArrays, ports: Iterable[PortId], preferred: Iterable[Circuit]
    ) -> None:
        self._fabric = fabric
        self._free = FreePorts(fabric, ports)
        self._links: list[dict[int, list[_Link]]] = [{} for _ in range(fabric.n_racks)]
        self._live = [0] * fabric.n_racks
        """Racks reached by a circuit with any free rate."""
        self._preferred: dict[tuple[int, int], list[Circuit]] = {}
        for circuit in sorted(preferred):
            a, b = fabric.racks_of(circuit)
            self._preferred.setdefault((min(a, b), max(a, b)), []).append(circuit)

    def add_circuit(self, circuit: Circuit, residual_mbps: float) -> None:
        """Let paths use the free rate of a circuit that stays."""
        self._link(circuit, residual_mbps)

    def shortest_path(
        self, src: int, dst: int, depth: int, need_mbps: float
    ) -> tuple[int, ...] | None:
        """The racks along a shortest path of at most ``depth`` hops, or None.

        Among equally short paths it is the one whose rack sequence is lexicographically smallest,
        as a breadth-first search that visits neighbours in ascending order finds it. Levels grow
        from ``dst``, so that a walk from ``src`` can descend them.
        """
        near_src = self._neighbours(1 << src, need_mbps)
        levels = [1 << dst]
        seen = levels[0]
        while not near_src & levels[-1]:
            if len(levels) == depth:
                return None
            level = self._neighbours(levels[-1], need_mbps) & ~seen
            if not level:
                return None
            levels.append(level)
            seen |= level
        racks = [src]
        for level in reversed(levels):
            ahead = self._neighbours(1 << racks[-1], need_mbps) & level
            racks.append(next(bits(ahead)))
        return tuple(racks)

    def book(
        self, racks: tuple[int, ...], wanted_mbps: float, need_mbps: float
    ) -> tuple[list[_Link], float]:
        """Set up the missing hops of a shortest path, take the capacity, return them and it.

        All hops are booked, never some: two new hops that meet at a relay can't contend for its
        last port on a plane, since then both outer racks would have a free port on that plane and
        the path through the relay would not be a shortest one.
        """
        links = [self._hop(here, there, wanted_mbps, need_mbps) for here, there in pairwise(racks)]
        given = min(wanted_mbps, *(link.residual_mbps for link in links))
        for link in links:
            link.residual_mbps -= given
            self._refresh(link)
        return links, given

    def withdraw(self, booking: Booking) -> None:
        """Give back the capacity."""
        for link in booking.links:
            link.residual_mbps += booking.given_mbps
            self._refresh(link)

    def _neighbours(self, racks: int, need_mbps: float) -> int:
        """Racks one hop from any of ``racks``; may contain some of ``racks`` themselves."""
        rate_class = self._free.class_for(need_mbps)
        found = self._free.racks_on(self._free.planes_of(racks, rate_class), rate_class)
        for rack in bits(racks):
            found |= self._live[rack] if need_mbps <= 0 else self._with_left(rack, need_mbps)
        return found

    def _with_left(self, rack: int, need_mbps: float) -> int:
        need_mbps -= RATE_TOLERANCE_MBPS
        found = 0
        for other, links in self._links[rack].items():
            if any(link.residual_mbps >= need_mbps for link in links):
                found |= 1 << other
        return found

    def _hop(self, here: int, there: int, wanted_mbps: float, need_mbps: float) -> _Link:
        """A link for a hop: with the full rate, else a new circuit, else with any free rate.

        A new circuit uses ports of the full rate, else the fastest free ports.
        """
        links = self._links[here].get(there, [])
        best = max(links, key=lambda link: link.residual_mbps, default=None)
        if best is not None and best.residual_mbps >= wanted_mbps - RATE_TOLERANCE_MBPS:
            return best
        slowest, wanted = self._free.class_for(need_mbps), self._free.class_for(wanted_mbps)
        classes = range(min(wanted, self._free.fastest), slowest - 1, -1)
        new = next(filter(None, (self._new_circuit(here, there, one) for one in classes)), None)
        if new is not None:
            return self._link(new, self._fabric.rate_of(new))
        if best is None or not best.usable:
            raise ValueError(f"racks {here} and {there} are not neighbours")
        return best

    def _new_circuit(self, here: int, there: int, rate_class: int) -> Circuit | None:
        """The circuit to set up between two racks, its ports taken; None without free ports."""
        planes = self._free.common_planes(here, there, rate_class)
        if not planes:
            return None
        circuit = self._standing(here, there, rate_class)
        if circuit is None:
            plane = next(bits(planes))
            ends = sorted(self._free.first(rack, plane, rate_class) for rack in (here, there))
            circuit = Circuit(PlaneId(plane), ends[0], ends[1])
        self._free.take(circuit.a)
        self._free.take(circuit.b)
        return circuit

    def _standing(self, here: int, there: int, rate_class: int) -> Circuit | None:
        for circuit in self._preferred.get((min(here, there), max(here, there)), ()):
            if all(self._free.is_free(port, rate_class) for port in (circuit.a, circuit.b)):
                return circuit
        return None

    def _link(self, circuit: Circuit, residual_mbps: float) -> _Link:
        a, b = self._fabric.racks_of(circuit)
        link = _Link(circuit, a, b, residual_mbps)
        self._links[a].setdefault(b, []).append(link)
        self._links[b].setdefault(a, []).append(link)
        self._refresh(link)
        return link

    def _refresh(self, link: _Link) -> None:
        """Keep the bitsets of usable circuits in step with a changed residual."""
        a, b = link.rack_a, link.rack_b
        if any(other.usable for other in self._links[a][b]):
            self._live[a] |= 1 << b
            self._live[b] |= 1 << a
        else:
            self._live[a] &= ~(1 << b)
            self._live[b] &= ~(1 << a)


def _auxiliary_graph(
    fabric: FabricArrays, current: Topology, standing: Standing, budget: Budget
) -> AuxiliaryGraph:
    unavailable = standing.ports() | budget.blocked_ports
    racks, planes = fabric.port_rack.tolist(), fabric.port_plane.tolist()
    ports = (
        PortId(port)
        for port in range(fabric.n_ports)
        if port not in unavailable
        and budget.includes_rack(racks[port])
        and budget.includes_plane(planes[port])
    )
    graph = AuxiliaryGraph(fabric, ports, preferred=current.circuits - standing.circuits)
    for circuit in sorted(standing.circuits):
        within = all(budget.includes_rack(rack) for rack in fabric.racks_of(circuit))
        if within and not budget.blocked_ports & {circuit.a, circuit.b}:
            graph.add_circuit(circuit, standing.residual_mbps[circuit])
    return graph


def _rounds(
    graph: AuxiliaryGraph, waiting: list[PairDemand], max_hops: int, *, whole: bool
) -> Iterator[Booking]:
    for depth in range(1, max_hops + 1):
        left_over = []
        for pair in waiting:
            need_mbps = pair.mbps if whole else 0.0
            racks = graph.shortest_path(pair.src, pair.dst, depth, need_mbps)
            if racks is None:
                left_over.append(pair)
                continue
            links, given_mbps = graph.book(racks, pair.mbps, need_mbps)
            circuits = tuple(link.circuit for link in links)
            yield Booking(Path(RackId(pair.src), RackId(pair.dst), circuits), links, given_mbps)
        waiting = left_over


def _second_paths(
    graph: AuxiliaryGraph,
    pairs: PairDemands,
    standing: Standing,
    reserved: Reserved,
    budget: Budget,
    found: list[Booking],
) -> list[Booking]:
    """A further path for each pair that has a path, wants more, and gets more by an even spread.

    The other paths of such a pair give back rates above their share.
    """
    pinned = {(path.src, path.dst) for path, _ in reserved.pinned}
    share, standing_mbps, old, left = {}, {}, {}, {}
    for pair, remaining_mbps in zip(pairs, standing.remaining_mbps.tolist(), strict=True):
        ends = pair.src, pair.dst
        mine = [booking for booking in found if booking.ends == ends]
        old[ends] = sum((path.src, path.dst) == ends for path in standing.paths)
        inside = budget.includes_rack(pair.src) and budget.includes_rack(pair.dst)
        count = old[ends] + len(mine)
        share[ends], standing_mbps[ends] = pair.mbps / (count + 1), pair.mbps - remaining_mbps
        rest = remaining_mbps - sum(booking.given_mbps for booking in mine)
        if ends not in pinned and inside and 0 < count < budget.paths_per_pair:
            left[ends] = rest
    again = [ends for ends, mbps in left.items() if mbps > RATE_TOLERANCE_MBPS]
    again.sort(key=lambda ends: turn(left[ends], *ends))
    offered = [PairDemand(share[ends], *ends) for ends in again]
    good = []
    for booking in list(_rounds(graph, offered, budget.max_hops, whole=False)):
        mine = [other for other in found if other.ends == booking.ends]
        most = share[booking.ends]
        lost = sum(max(0.0, other.given_mbps - most) for other in mine)
        lost += max(0.0, standing_mbps[booking.ends] - old[booking.ends] * most)
        better = booking.given_mbps > lost + RATE_TOLERANCE_MBPS
        if better and all(other.path != booking.path for other in mine):
            good.append(booking)
        else:
            graph.withdraw(booking)
    for booking in good:
        for number, other in enumerate(found):
            above = other.given_mbps - share[booking.ends]
            if other.ends == booking.ends and above > 0:
                graph.withdraw(replace(other, given_mbps=above))
                found[number] = replace(other, given_mbps=share[booking.ends])
    return good
