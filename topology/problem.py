"""Input and result of planning: the same for every algorithm."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.circuit_arrays import CircuitTable
from hydra.errors import PlanError
from hydra.model import (
    Circuit,
    DemandMatrix,
    Fabric,
    Path,
    PlaneId,
    PortId,
    RackId,
    Topology,
)
from hydra.path_arrays import order_by
from hydra.policy import MOST_PATHS_PER_PAIR
from topology import _native
from topology.tables import IntArray, PathTable, ranked

RATE_TOLERANCE_MBPS = 1e-6
"""Largest difference of equal rates (1 bit/s): sums of floats leave such crumbs behind."""
SLICES = 4
"""Number of parts of the share of a pair's further paths (:func:`serve`)."""
LARGEST_DEMAND_MBPS = 1e9
"""Limit for a pair of racks (1 Pbit/s): more is a slip of units, and would overflow bit/s."""


@dataclass(frozen=True, slots=True, eq=False)
class FabricArrays:
    """The wiring as read-only arrays for the algorithms; index P is the port's ``PortId``."""

    n_racks: int
    n_planes: int
    port_rack: NDArray[np.int32]
    """Shape (P,): the rack of each optical port."""
    port_plane: NDArray[np.int32]
    """Shape (P,): the plane of each optical port."""
    port_rate_mbps: NDArray[np.float64]
    """Shape (P,): Mbps in each direction."""
    rates_mbps: NDArray[np.float64] = field(init=False)
    """All different rates, in ascending order."""
    port_class: NDArray[np.int32] = field(init=False)
    """Shape (P,): the position of each port's rate in ``rates_mbps``."""
    ports_per_rack: NDArray[np.int64] = field(init=False)
    """Shape (racks,)."""

    def __post_init__(self) -> None:
        n_ports = len(self.port_rack)
        if not n_ports == len(self.port_plane) == len(self.port_rate_mbps):
            raise PlanError("port_rack, port_plane and port_rate_mbps must be equally long")
        for port in np.flatnonzero((self.port_rack < 0) | (self.port_rack >= self.n_racks)):
            raise PlanError(f"port {port} is on rack {self.port_rack[port]}: no such rack")
        for port in np.flatnonzero((self.port_plane < 0) | (self.port_plane >= self.n_planes)):
            raise PlanError(f"port {port} is on plane {self.port_plane[port]}: no such plane")
        for port in np.flatnonzero(~(np.isfinite(self.port_rate_mbps) & (self.port_rate_mbps > 0))):
            rate = self.port_rate_mbps[port]
            raise PlanError(f"port {port} has a rate of {rate} Mbps: the rate must be positive")
        rates, port_class = np.unique(self.port_rate_mbps, return_inverse=True)
        derived: dict[str, NDArray[np.float64] | NDArray[np.int32] | NDArray[np.int64]] = {
            "rates_mbps": rates,
            "port_class": port_class.astype(np.int32),
            "ports_per_rack": np.bincount(self.port_rack, minlength=self.n_racks),
        }
        for name, array in derived.items():
            object.__setattr__(self, name, array)
        for array in (self.port_rack, self.port_plane, self.port_rate_mbps, *derived.values()):
            array.setflags(write=False)

    @classmethod
    def of(cls, fabric: Fabric) -> FabricArrays:
        """The arrays of ``fabric``, whose ports are numbered by their position."""
        return cls(
            n_racks=len(fabric.racks),
            n_planes=len(fabric.planes),
            port_rack=np.array([port.rack for port in fabric.ports], dtype=np.int32),
            port_plane=np.array([port.plane for port in fabric.ports], dtype=np.int32),
            port_rate_mbps=np.array([port.rate_mbps for port in fabric.ports], dtype=np.float64),
        )

    @property
    def n_ports(self) -> int:
        return len(self.port_rack)

    def racks_of(self, circuit: Circuit) -> tuple[RackId, RackId]:
        """The racks at the circuit's ``a`` and ``b`` ends."""
        return RackId(int(self.port_rack[circuit.a])), RackId(int(self.port_rack[circuit.b]))

    def rate_of(self, circuit: Circuit) -> float:
        """Mbps in each direction: the slower of the two ends."""
        return float(min(self.port_rate_mbps[circuit.a], self.port_rate_mbps[circuit.b]))

    def racks_along(self, path: Path) -> tuple[RackId, ...]:
        """The racks that ``path`` visits, ends included.

        Raises PlanError if its circuits do not lead from ``path.src`` to ``path.dst``.
        """
        racks = [path.src]
        for circuit in path.circuits:
            a, b = self.racks_of(circuit)
            if racks[-1] not in (a, b):
                raise PlanError(f"{circuit} does not start at rack {racks[-1]}: {path} is broken")
            racks.append(b if racks[-1] == a else a)
        if racks[-1] != path.dst:
            raise PlanError(f"{path} ends at rack {racks[-1]}, not at rack {path.dst}")
        return tuple(racks)


@dataclass(frozen=True, slots=True)
class Reserved:
    """Paths that must stay, each with the reserved Mbps (in each direction).

    Pinned circuits stay, and other traffic may not use the reserved rate. The rates of a path that
    appears more than once, for several reservations between the same racks, add up.
    """

    pinned: tuple[tuple[Path, float], ...] = ()

    def rate_by_path(self) -> dict[Path, float]:
        """Mbps reserved on each distinct path, in the order of first appearance."""
        rates: dict[Path, float] = {}
        for path, rate_mbps in self.pinned:
            rates[path] = rates.get(path, 0.0) + rate_mbps
        return rates


@dataclass(frozen=True, slots=True)
class Timing:
    """Times for the planning of a schedule of configurations (Mordia, SIGCOMM 2013, section 3)."""

    window_s: float
    """Length of the windows over which the demand is the mean."""
    switching_s: float
    """Dark time before every slot: the mirrors move, and nothing is carried."""
    shortest_s: float = 0.0
    """Shortest slot, with its switching time, if several stand; shorter slots are left out."""

    def __post_init__(self) -> None:
        if not 0 <= self.switching_s < self.window_s < float("inf"):
            raise PlanError(
                f"a window of {self.window_s} s with a switching time of {self.switching_s} s: "
                "the window must be longer, and finite"
            )


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a plan: racks, planes and ports that may change, hops (HydRA section III.B)."""

    max_hops: int
    """H: greatest number of circuits in a path."""
    racks: frozenset[RackId] | None = None
    """Racks whose circuits may change; None: all. Circuits with an end elsewhere stay."""
    planes: frozenset[PlaneId] | None = None
    """Planes whose circuits may change; None: all."""
    blocked_ports: frozenset[PortId] = field(default_factory=frozenset)
    """Ports, quarantined or other people's, that new circuits must not use."""
    boolean: bool = True
    """True if any capacity above zero serves a demand (HydRA's Boolean matrix), False if every hop
    must have capacity left for the whole demand (weighted).
    """
    paths_per_pair: int | None = None
    """Most paths of a pair of racks, which share the pair's demand; None: as many as the demand can
    use, and one in algorithms whose paper gives a pair one path.
    """
    connections: NDArray[np.int64] | None = field(default=None, compare=False)
    """Shape (N, N): connections between two racks, each of which takes one path; None: not known,
    enough for every path. A pair gets no more paths than connections, and 0 means one.
    """
    disturbance_mbps: float = 0.0
    """Demand that must be gained for giving up a circuit in use that may change."""
    timing: Timing = Timing(window_s=1.0, switching_s=0.01)
    """Times for algorithms that plan schedules."""
    expired: Callable[[], bool] = field(default=_never, compare=False)
    """True when time is up: an algorithm that tries several plans returns the best so far."""

    def __post_init__(self) -> None:
        if self.max_hops < 1:
            raise PlanError(f"max_hops is {self.max_hops}: a path needs at least 1 hop")
        if self.paths_per_pair is not None and self.paths_per_pair < 1:
            raise PlanError(
                f"paths_per_pair is {self.paths_per_pair}: a pair needs at least 1 path"
            )

    @property
    def most_paths(self) -> int:
        """Most paths of any pair of racks."""
        return MOST_PATHS_PER_PAIR if self.paths_per_pair is None else self.paths_per_pair

    def as_published(self) -> Budget:
        """The budget with one path for a pair, unless the budget gives a number."""
        return self if self.paths_per_pair is not None else replace(self, paths_per_pair=1)

    def paths_between(self, src: NDArray[Any], dst: NDArray[Any]) -> NDArray[np.int64]:
        """Most paths of each pair of racks, in the shape of ``src`` and ``dst``.

        Demands that count only as a whole take one path.
        """
        shape = np.broadcast_shapes(src.shape, dst.shape)
        most = np.full(shape, self.most_paths if self.boolean else 1, dtype=np.int64)
        if self.connections is not None:
            known = np.maximum(self.connections[src, dst], self.connections[dst, src])
            most = np.minimum(most, np.maximum(1, known))
        return most

    def check(self, fabric: FabricArrays) -> None:
        """Raise PlanError if the budget names a rack, plane or port missing in the fabric."""
        shape = (fabric.n_racks, fabric.n_racks)
        if self.connections is not None and self.connections.shape != shape:
            raise PlanError(
                f"connections has shape {self.connections.shape}: {fabric.n_racks} racks need "
                f"shape {shape}"
            )
        named: tuple[tuple[str, frozenset[int] | None, int], ...] = (
            ("rack", self.racks and frozenset(map(int, self.racks)), fabric.n_racks),
            ("plane", self.planes and frozenset(map(int, self.planes)), fabric.n_planes),
            ("port", frozenset(map(int, self.blocked_ports)), fabric.n_ports),
        )
        for kind, ids, count in named:
            unknown = sorted(i for i in ids or () if not 0 <= i < count)
            if unknown:
                raise PlanError(f"the budget names {kind} {unknown[0]}: there are only {count}")

    def includes_rack(self, rack: int) -> bool:
        return self.racks is None or rack in self.racks

    def includes_plane(self, plane: int) -> bool:
        return self.planes is None or plane in self.planes

    def may_change(self, fabric: FabricArrays, circuit: Circuit) -> bool:
        """True if both racks and the plane of ``circuit`` are inside the budget."""
        return self.includes_plane(circuit.plane) and all(
            self.includes_rack(rack) for rack in fabric.racks_of(circuit)
        )


@dataclass(frozen=True, slots=True, order=True)
class Lightpath:
    """Light in one direction on one plane, from a ToR's transmitter to the receiver of a second
    ToR.
    """

    plane: PlaneId
    sender: PortId
    receiver: PortId


@dataclass(frozen=True, slots=True)
class Slot:
    """A configuration of all planes, or of a lane, and its duration in each window."""

    duration_s: float
    """Time with light, without the switching time before."""
    lightpaths: frozenset[Lightpath]
    lane: int | None = None
    """Number of the lane: a plane (with one port of each rack) whose slots follow each other
    independently of other lanes' slots. None: all planes switch together.
    """


@dataclass(frozen=True, slots=True)
class PlanResult:
    """Result of planning: a topology of duplex circuits, or slots of one-way light paths."""

    topology: Topology
    unserved: tuple[tuple[RackId, RackId], ...]
    """Pairs (a < b) with a demand and no path, sorted."""
    served_share: float
    """Part of the pairs' demand that fits on the circuits of their paths; 1 without demand."""
    mean_hops: float
    """Mean number of hops of the paths; 0 if there are none."""
    slots: tuple[Slot, ...] = ()
    """Slots of one-way light paths (a single slot, which may stand for any time) or of a schedule;
    then ``topology`` holds the standing part, and ``unserved`` has pairs (src, dst).
    """
    gap: float | None = None
    """Bound of the optimum's excess over this result's value, as a part of this value; 0 for a
    proven optimum, None if the algorithm proves nothing.
    """


class Algorithm(Protocol):
    """Turns a demand (N, N) in Mbps into a topology within a budget; pure and deterministic."""

    def __call__(
        self,
        fabric: FabricArrays,
        demand: ArrayLike,
        current: Topology,
        reserved: Reserved,
        budget: Budget,
    ) -> PlanResult: ...


@dataclass(frozen=True, slots=True)
class PairDemand:
    """Demand between two racks, ``src < dst``."""

    mbps: float
    src: int
    dst: int


def members(ids: Collection[int] | None, count: int) -> NDArray[np.bool_]:
    """Shape (count,): True for numbers among ``ids``; all True if ``ids`` is None."""
    members = np.full(count, ids is None)
    members[list(ids or ())] = True
    return members


def validate_demand(matrix: ArrayLike, n: int) -> DemandMatrix:
    """Return ``matrix`` as a fresh float array of shape (n, n), in Mbps.

    Raises PlanError naming the first entry that is NaN, infinite or negative, larger than
    :data:`LARGEST_DEMAND_MBPS`, or on the diagonal and not zero; or the shape, if it is not (n, n).
    """
    try:
        demand = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PlanError(f"the demand is not a matrix of numbers: {error}") from error
    if demand.shape != (n, n):
        raise PlanError(
            f"the demand matrix has shape {demand.shape}: {n} racks need shape ({n}, {n})"
        )
    least, most = (demand.min(), demand.max()) if demand.size else (0.0, 0.0)
    if not (least >= 0 and np.isfinite(most)):  # also if an entry is NaN
        row, column = np.argwhere(~np.isfinite(demand) | (demand < 0))[0]
        raise PlanError(
            f"demand[{row}, {column}] is {demand[row, column]} Mbps: "
            "entries must be finite and not negative"
        )
    if most > LARGEST_DEMAND_MBPS:
        row, column = np.unravel_index(int(demand.argmax()), demand.shape)
        raise PlanError(
            f"demand[{row}, {column}] is {demand[row, column]:g} Mbps: at most "
            f"{LARGEST_DEMAND_MBPS:g} can be planned for; are the entries in Mbps?"
        )
    own = np.flatnonzero(np.diagonal(demand))
    if own.size:
        rack = own[0]
        raise PlanError(
            f"demand[{rack}, {rack}] is {demand[rack, rack]} Mbps: "
            "traffic within a rack needs no circuit, the diagonal must be zero"
        )
    return demand


@dataclass(frozen=True, slots=True, eq=False)
class PairDemands(Sequence[PairDemand]):
    """Rack pairs in serving order; arrays of shape (F,)."""

    src: IntArray
    dst: IntArray
    mbps: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.mbps)

    @overload
    def __getitem__(self, index: int) -> PairDemand: ...
    @overload
    def __getitem__(self, index: slice) -> PairDemands: ...
    def __getitem__(self, index: int | slice) -> PairDemand | PairDemands:
        if isinstance(index, slice):
            return self.chosen(index)
        return PairDemand(float(self.mbps[index]), int(self.src[index]), int(self.dst[index]))

    def __iter__(self) -> Iterator[PairDemand]:
        return map(PairDemand, self.mbps.tolist(), self.src.tolist(), self.dst.tolist())

    def chosen(self, which: slice | NDArray[np.bool_] | NDArray[np.integer[Any]]) -> PairDemands:
        return PairDemands(self.src[which], self.dst[which], self.mbps[which])

    def places(self, src: IntArray, dst: IntArray, n_racks: int) -> IntArray:
        """Position of each given pair in the order, -1 for pairs without a demand."""
        place = np.full((n_racks, n_racks), -1, dtype=np.int32)
        place[self.src, self.dst] = np.arange(len(self))
        found: IntArray = place[src, dst]
        return found


def pair_demands(demand: DemandMatrix) -> PairDemands:
    """Rack pairs with a demand, largest first, ties by :func:`tie_break`.

    A circuit is bidirectional and offers its full rate each way, and a path serves both directions.
    So a pair needs the larger of its two directions.
    """
    n = len(demand)
    larger = np.maximum(demand, demand.T)
    ends = np.flatnonzero((larger != 0) & ~np.tri(n, dtype=np.bool_)).astype(np.int32)
    src, dst = np.divmod(ends, np.int32(max(1, n)))
    pairs = PairDemands(src, dst, larger.reshape(-1)[ends])
    return pairs.chosen(largest_first(pairs.mbps, src, dst))


def largest_first(
    mbps: NDArray[np.float64], src: IntArray, dst: IntArray, salt: int = 0
) -> NDArray[np.intp]:
    """Positions of pairs by descending rate; rates that round to the same bit/s are equal.

    Ties go by :func:`tie_break` with this ``salt``: rates from sums and shares are rarely equal to
    the last digit.
    """
    rate = -np.rint(mbps / RATE_TOLERANCE_MBPS)
    return order_by(rate, lambda tied: tie_break(src[tied], dst[tied], salt))


def tie_break(src: IntArray, dst: IntArray, salt: int = 0) -> NDArray[np.uint64]:
    """A fixed hash of each pair, for the order of equal demands; a different order for each
    ``salt``.

    In the order of rack numbers, equal demands join low racks to each other first, and a fabric of
    equal demands falls apart into islands. The mixing function is the finaliser of SplitMix64
    (Steele, Lea and Flood, OOPSLA 2014), which maps different pairs to different numbers.
    """
    mixed = (src.astype(np.uint64) << np.uint64(32)) | dst.astype(np.uint64)
    mixed += np.uint64((salt + 1) * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def serve(
    table: PathTable,
    links: IntArray,
    residual_mbps: NDArray[np.float64],
    place: IntArray,
    share_mbps: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Give each path in turn its pair's share, up to the capacity left on its scarcest link.

    ``links`` names the link of each hop, ``place`` the pair of each path, or -1. ``share_mbps``,
    shape (pairs,), is the rate that switches send over each path of a pair (:func:`shares`).
    Earlier pairs come first, each with its shortest path (among equals the path listed first).
    Further paths take the rest, in turns of a quarter of their share: on a link wanted by many, all
    get some. Returns the rate of each path, shape (F,), which is taken from ``residual_mbps`` (per
    link).
    """
    given = np.zeros(len(place))
    first, further = _turns(place, table.hops, len(share_mbps))
    turns = [(first, share_mbps)]
    if len(further):
        turns += [(further, share_mbps / SLICES)] * SLICES
    for order, part_mbps in turns:
        _native.serve_paths(residual_mbps, table.start, links, order, place, part_mbps, given)
    return given


def shares(wanted_mbps: NDArray[np.float64], n_paths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mbps offered to each path of a pair, shape (pairs,): switches spread flows evenly."""
    share: NDArray[np.float64] = wanted_mbps / np.maximum(n_paths, 1)
    return share


def count_paths(place: IntArray, n_pairs: int) -> NDArray[np.int64]:
    """Number of paths of each pair, shape (pairs,); ``place`` is the pair of each path, or -1."""
    return np.bincount(place if place.min(initial=0) >= 0 else place[place >= 0], minlength=n_pairs)


def _turns(place: IntArray, hops: IntArray, n_pairs: int) -> tuple[IntArray, IntArray]:
    """(The shortest path of each pair; further paths, in turn), without paths of no pair."""
    order = ranked(place, n_pairs)
    if (np.diff(place[order]) > 0).all():
        return order, order[:0]
    order = order[np.lexsort((hops[order], place[order]))]
    position = np.arange(len(order))
    begins = np.diff(place[order], prepend=-1) > 0
    nth = position - np.maximum.accumulate(np.where(begins, position, 0))
    in_turn = order[np.argsort(nth, kind="stable")]
    n_first = int(np.count_nonzero(begins))
    return in_turn[:n_first], in_turn[n_first:]


def measure(
    fabric: FabricArrays, pairs: PairDemands, topology: Topology, reserved: Reserved
) -> PlanResult:
    """The result for any ``topology``: how much of ``pairs`` (largest first) is served.

    Reserved rates are set aside first and serve their own pairs. A pair's further demand is spread
    evenly over its paths. Each pair in turn takes the capacity left along its shortest path, up to
    the path's share, and after that along its other paths (:func:`serve`).
    """
    table = PathTable.of(topology.paths)
    place = pairs.places(table.src, table.dst, fabric.n_racks)
    return measure_table(fabric, pairs, topology, table, place, reserved)


def measure_table(
    fabric: FabricArrays,
    pairs: PairDemands,
    topology: Topology,
    table: PathTable,
    place: IntArray,
    reserved: Reserved,
) -> PlanResult:
    """:func:`measure` with the given table of the topology's paths, and the pair of each path."""
    n_paths = count_paths(place, len(pairs))
    served_mbps = _served_mbps(fabric, pairs, topology, table, place, n_paths, reserved)
    wanted_mbps = float(pairs.mbps.sum())
    without = pairs.chosen(n_paths == 0)
    codes = np.sort(without.src.astype(np.int64) * fabric.n_racks + without.dst)
    src, dst = np.divmod(codes, max(1, fabric.n_racks))
    unserved = zip(src.tolist(), dst.tolist(), strict=True)
    return PlanResult(
        topology=topology,
        unserved=tuple(unserved),
        served_share=served_mbps / wanted_mbps if wanted_mbps else 1.0,
        mean_hops=float(table.hops.mean()) if len(table.hops) else 0.0,
    )


def _served_mbps(
    fabric: FabricArrays,
    pairs: PairDemands,
    topology: Topology,
    table: PathTable,
    place: IntArray,
    n_paths: NDArray[np.int64],
    reserved: Reserved,
) -> float:
    ends = CircuitTable.of(topology.circuits)
    residual = np.zeros(fabric.n_ports)
    """Capacity left of each circuit, by the circuit's lower port."""
    residual[ends.a] = np.minimum(fabric.port_rate_mbps[ends.a], fabric.port_rate_mbps[ends.b])
    wanted = pairs.mbps.copy()
    for path, rate_mbps in reserved.rate_by_path().items():
        if set(path.circuits) <= topology.circuits:
            hops = [circuit.a for circuit in path.circuits]
            held = min(rate_mbps, *residual[hops].tolist())
            residual[hops] -= held
            racks = np.array([[path.src], [path.dst]], dtype=np.int32)
            for pair in pairs.places(racks[0], racks[1], fabric.n_racks).tolist():
                if pair >= 0:
                    wanted[pair] -= min(held, wanted[pair])
    covered = pairs.mbps - wanted
    share = shares(wanted, n_paths)
    return float(covered.sum() + serve(table, table.hop_a, residual, place, share).sum())
