"""Independent checks of results: everything that must stay stays, and all figures are true.

The checks share no code with the planners. Each returns the problems found, in words; an empty list
is a pass. A topology by itself is checked by :mod:`topology.checks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.circuit_arrays import Circuits, CircuitTable
from hydra.model import Circuit, Path, Topology
from hydra.path_arrays import Paths, PathTable, order_by
from topology import _native
from topology.checks import check_topology
from topology.problem import (
    Budget,
    FabricArrays,
    Lightpath,
    PlanResult,
    Reserved,
    Slot,
    Timing,
    validate_demand,
)

_SHARE_TOLERANCE: Final = 1e-6
_RATE_TOLERANCE: Final = 1e-6
"""Tolerance of rates, relative."""
_TIME_TOLERANCE: Final = 1e-9
"""Tolerance of times, relative."""
_SHOWN: Final = 5
"""Largest number of problems of the same kind that are spelt out."""


def check_result(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
    result: PlanResult,
) -> list[str]:
    """Check that a plan fits the fabric, keeps everything that must stay, and serves the claimed
    share.

    Shapes and units are as in :class:`topology.problem.Algorithm`. A topology's paths are counted
    again, largest pair first; a schedule's slots are added up. Raises PlanError for a bad demand.
    """
    wanted = validate_demand(demand, fabric.n_racks)
    topology = result.topology
    pinned = Paths.of(tuple(dict.fromkeys(path for path, _ in reserved.pinned)))
    paths = Paths.of(topology.paths)
    standing = (paths.places_in(Paths.of(current.paths)) >= 0) | (paths.places_in(pinned) >= 0)
    hops = paths.table.hops
    problems = check_topology(
        fabric,
        topology,
        max(budget.max_hops, int(hops[standing].max(initial=0))),
        paths_per_pair=max(budget.most_paths, _most_of_a_pair(paths.table, standing)),
    )
    if problems:
        return problems  # later checks look up racks and rates by port
    problems += _hop_problems(paths, standing, budget.max_hops)
    problems += _count_problems(paths, standing, budget.most_paths)
    problems += _change_problems(fabric, current, topology, pinned, budget)
    problems += _reserved_problems(fabric, topology, reserved)
    both = _both_ways(wanted)
    if result.slots:
        problems += check_slots(fabric, result.slots, budget.timing)
        carried = count_load(fabric, wanted, topology, reserved).carried_mbps
        kept = {
            (int(src), int(dst)): carried[path.src, path.dst]
            for path in topology.paths
            for src, dst in path.directions
        }
        share = slots_share(fabric, wanted, result.slots, budget.timing, kept)
    else:
        problems += _unserved_problems(both, result)
        if not budget.boolean:
            new = paths.chosen(np.flatnonzero(~standing))
            problems += _weighted_problems(fabric, wanted, topology, new, reserved)
        total = float(both.sum())
        circuits = CircuitTable.of(topology.circuits)
        directed = wanted if circuits.one_way.any() else both
        carried_mbps, _ = _counted(fabric, directed, circuits, topology.paths, reserved)
        share = float(carried_mbps.sum()) / total if total else 1.0
    if abs(share - result.served_share) > _SHARE_TOLERANCE:
        problems.append(
            f"{result.served_share:.6f} of the demand is claimed served, not {share:.6f}"
        )
    mean = float(hops.sum()) / max(1, len(hops))
    if abs(mean - result.mean_hops) > _SHARE_TOLERANCE:
        problems.append(f"{result.mean_hops:g} hops are claimed on average, not {mean:g}")
    return problems


# --- topologies -----------------------------------------------------------------------------


def _most_of_a_pair(table: PathTable, which: NDArray[np.bool_]) -> int:
    """The largest number of chosen paths of a pair."""
    ends = table.src[which].astype(np.int64) << 32 | table.dst[which]
    _, count = np.unique(ends, return_counts=True)
    return int(count.max(initial=0))


def _beside(paths: Paths) -> NDArray[np.intp]:
    """Shape (F,): number of paths of each path's pair; directions count separately."""
    ends = paths.table.src.astype(np.int64) << 32 | paths.table.dst
    if (np.diff(ends) > 0).all():
        return np.ones(len(ends), dtype=np.intp)
    _, pair, count = np.unique(ends, return_inverse=True, return_counts=True)
    many: NDArray[np.intp] = count[pair.reshape(-1)]
    return many


def _hop_problems(paths: Paths, standing: NDArray[np.bool_], max_hops: int) -> Iterator[str]:
    for path in paths.chosen(np.flatnonzero((paths.table.hops > max_hops) & ~standing)):
        yield f"new path {path.src}-{path.dst} has {path.hops} hops, more than {max_hops}"


def _count_problems(
    paths: Paths, standing: NDArray[np.bool_], paths_per_pair: int
) -> Iterator[str]:
    beside = _beside(paths)
    many = np.flatnonzero((beside > paths_per_pair) & ~standing)
    for path, number in zip(paths.chosen(many), beside[many].tolist(), strict=True):
        yield f"pair {path.src}-{path.dst} has a new path and {number} in all"


def _change_problems(
    fabric: FabricArrays,
    current: Topology,
    topology: Topology,
    pinned: Paths,
    budget: Budget,
) -> Iterator[str]:
    """Changes that the budget or the reservations forbid."""
    gone = np.flatnonzero(pinned.places_in(Paths.of(topology.paths)) < 0)
    for path in sorted(pinned.chosen(gone)):
        yield f"the reserved path {path.src}-{path.dst} is gone"
    if budget.racks is None and budget.planes is None and not budget.blocked_ports:
        return
    kept = {circuit for path in pinned for circuit in path.circuits}
    for circuit in sorted(current.circuits - topology.circuits):
        if not _inside(fabric, circuit, budget):
            yield f"{circuit} lies outside the budget and is gone"
    for circuit in sorted(topology.circuits - current.circuits - kept):
        if not _inside(fabric, circuit, budget):
            yield f"{circuit} lies outside the budget and is new"
        blocked = sorted({circuit.a, circuit.b} & budget.blocked_ports)
        if blocked:
            yield f"{circuit} is new and ends at port {blocked[0]}, a blocked port"


def _inside(fabric: FabricArrays, circuit: Circuit, budget: Budget) -> bool:
    racks = {int(fabric.port_rack[circuit.a]), int(fabric.port_rack[circuit.b])}
    return (budget.planes is None or circuit.plane in budget.planes) and (
        budget.racks is None or racks <= {int(rack) for rack in budget.racks}
    )


def _reserved_problems(
    fabric: FabricArrays, topology: Topology, reserved: Reserved
) -> Iterator[str]:
    load: dict[Circuit, float] = {}
    for path, mbps in reserved.pinned:
        for circuit in path.circuits:
            load[circuit] = load.get(circuit, 0.0) + mbps
    for circuit, mbps in sorted(load.items()):
        rate = _rate(fabric, circuit)
        if circuit in topology.circuits and mbps > rate * (1 + _RATE_TOLERANCE):
            yield f"{circuit} carries {rate:g} Mbps, and {mbps:g} are reserved on it"


def _unserved_problems(both: NDArray[np.float64], result: PlanResult) -> Iterator[str]:
    table = Paths.of(result.topology.paths).table
    without = both > 0
    without[table.src, table.dst] = False
    reported = np.fromiter(chain.from_iterable(result.unserved), np.int64, 2 * len(result.unserved))
    codes = reported[::2] << 32 | reported[1::2]
    src, dst = np.nonzero(without)
    truly = src << 32 | dst
    if np.array_equal(truly, codes):
        return
    if (np.diff(codes) < 0).any():
        yield "the unserved pairs are not sorted"
    for code in np.setxor1d(truly, codes)[:_SHOWN].tolist():
        served = (
            "reported unserved, and is served" if code in codes else "unserved, and not reported"
        )
        yield f"pair {code >> 32}-{code & 0xFFFFFFFF} is {served}"


def _weighted_problems(
    fabric: FabricArrays,
    wanted: NDArray[np.float64],
    topology: Topology,
    new: Collection[Path],
    reserved: Reserved,
) -> Iterator[str]:
    """Weighted demands not served whole: ``new`` paths must fit with their full demands."""
    load = dict.fromkeys(topology.circuits, 0.0)
    for path, mbps in reserved.pinned:
        for circuit in path.circuits:
            load[circuit] = load.get(circuit, 0.0) + mbps
    for path in new:
        for circuit in path.circuits:
            load[circuit] += float(max(wanted[path.src, path.dst], wanted[path.dst, path.src]))
    for circuit, mbps in sorted(load.items()):
        rate = _rate(fabric, circuit)
        if mbps > rate * (1 + _RATE_TOLERANCE):
            yield f"{circuit} carries {rate:g} Mbps, and {mbps:g} are booked on it"


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic that a topology carries."""

    carried_mbps: dict[tuple[int, int], float]
    """Mbps by pair with a path (lower rack first); of one-way paths, by (from, to)."""
    remaining_mbps: dict[Circuit, float]
    """Mbps left on each circuit, in each direction."""


def count_load(
    fabric: FabricArrays, demand: ArrayLike, topology: Topology, reserved: Reserved
) -> Load:
    """The load of a topology: reservations first, then each pair in turn, the largest first.

    A pair's demand is spread evenly over its paths. Each pair takes its shortest path; then further
    paths take turns, a quarter of their share each time. Pairs with equal demands take turns in the
    order of a hash of their racks.

    Raises PlanError for a bad demand.
    """
    circuits = Circuits.of(topology.circuits)
    wanted = validate_demand(demand, fabric.n_racks)
    both = wanted if circuits.table.one_way.any() else _both_ways(wanted)
    carried, remaining = _counted(fabric, both, circuits.table, topology.paths, reserved)
    ends = {(int(path.src), int(path.dst)) for path in topology.paths}
    return Load(
        {pair: float(carried[pair]) for pair in ends},
        dict(zip(circuits, remaining.tolist(), strict=True)),
    )


def _counted(
    fabric: FabricArrays,
    both: NDArray[np.float64],
    circuits: CircuitTable,
    topology_paths: Sequence[Path],
    reserved: Reserved,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The load as (Mbps that each pair gets, shape (N, N); Mbps left on each of ``circuits``).

    ``both``, shape (N, N), has the Mbps that each pair wants.
    """
    paths = Paths.of(topology_paths)
    a, b = circuits.a, circuits.b
    remaining = np.append(np.minimum(fabric.port_rate_mbps[a], fabric.port_rate_mbps[b]), np.inf)
    served = np.zeros_like(both)
    pinned = {circuit for path, _ in reserved.pinned for circuit in path.circuits}
    numbered = enumerate(circuits.circuits()) if pinned else ()
    place_of = {circuit: place for place, circuit in numbered if circuit in pinned}
    for path, mbps in reserved.pinned:
        if all(circuit in place_of for circuit in path.circuits):
            along = [place_of[circuit] for circuit in path.circuits]
            given = min([mbps, *remaining[along].tolist()])
            served[path.src, path.dst] += given
            remaining[along] -= given
    table = paths.table
    if pinned:
        own = np.minimum(both, served)[table.src, table.dst]
        served = np.zeros_like(both)
        served[table.src, table.dst] = own
    # A port sends on one circuit. All circuits of paths are there, or the checks before failed.
    number = np.full(fabric.n_ports, len(circuits), dtype=np.int32)  # no circuit: no limit
    number[a] = np.arange(len(circuits))
    _book(paths, number[table.hop_a], both, served, remaining)
    return served, remaining[:-1]


def _book(
    paths: Paths,
    circuit: NDArray[np.int32],
    both: NDArray[np.float64],
    served: NDArray[np.float64],
    remaining: NDArray[np.float64],
) -> None:
    """Book the paths in turn, each with an equal part of its pair's demand.

    Raises ``served`` and lowers ``remaining``. ``circuit``, shape (all hops,), has the place in
    ``remaining`` of each hop's circuit.
    """
    table = paths.table
    pair = table.src.astype(np.int64) * len(both) + table.dst
    flat_served = served.reshape(-1)
    wanted = both.reshape(-1)[pair]
    share = (wanted - flat_served[pair]) / _beside(paths)
    given = np.zeros(len(paths))
    order, part = _turns(paths, wanted)
    _native.book_turns(remaining, table.start, circuit, order.astype(np.int32), part, share, given)
    np.add.at(flat_served, pair, given)


def _turns(
    paths: Paths, wanted: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """(Places of paths in the order of booking; the part of the path's share to book each time).

    ``wanted``, shape (F,), has the Mbps that the pair of each path wants.

    First the first paths of all pairs with their whole share, then further paths, four times with a
    quarter.
    """
    table = paths.table
    ends = table.src.astype(np.int64) << 32 | table.dst
    order = order_by(-np.rint(wanted * 1e6), lambda tied: _hash_of_pair(ends[tied]))
    if (np.diff(ends) > 0).all():  # a path for each pair
        return order, np.ones(len(order))
    by_pair = np.lexsort((table.hops, ends))
    begins = np.diff(ends[by_pair], prepend=-1) != 0
    position = np.arange(len(by_pair))
    nth = np.empty_like(position)
    nth[by_pair] = position - np.maximum.accumulate(np.where(begins, position, 0))
    order = order[np.argsort(nth[order].astype(np.int16), kind="stable")]
    first, further = order[nth[order] == 0], order[nth[order] > 0]
    part = np.repeat([1.0, 0.25], [len(first), 4 * len(further)])
    return np.concatenate([first, *[further] * 4]), part


def _hash_of_pair(ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The order of pairs with equal demands: SplitMix64's finaliser."""
    word = ends.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> np.uint64(shift)) * np.uint64(factor)
    hashed: NDArray[np.uint64] = word ^ word >> np.uint64(31)
    return hashed


def _both_ways(wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Demand of pairs as the larger of their two directions, in the upper triangle."""
    both: NDArray[np.float64] = np.triu(np.maximum(wanted, wanted.T))
    return both


def _rate(fabric: FabricArrays, circuit: Circuit) -> float:
    return min(float(fabric.port_rate_mbps[circuit.a]), float(fabric.port_rate_mbps[circuit.b]))


# --- slots ----------------------------------------------------------------------------------


def check_slots(fabric: FabricArrays, slots: Sequence[Slot], timing: Timing) -> list[str]:
    """Check that each slot is a matching on every plane, and that all fit into the window.

    A port sends to one port and receives from one, both on its own plane and of another rack. The
    only slot of a lane may stand for any time; each of several costs its switching time. No two
    lanes use the same port.
    """
    problems = []
    lanes: dict[int | None, list[Slot]] = {}
    lane_of: dict[int, int | None] = {}
    for number, slot in enumerate(slots):
        lanes.setdefault(slot.lane, []).append(slot)
        if not slot.duration_s > 0:
            problems.append(f"slot {number} lasts {slot.duration_s} s")
        problems += [f"slot {number}: {problem}" for problem in check_matching(fabric, slot)]
        for light in sorted(slot.lightpaths):
            for port in (light.sender, light.receiver):
                if lane_of.setdefault(port, slot.lane) != slot.lane:
                    problems.append(f"slot {number}: port {port} is part of two lanes")
    if None in lanes and len(lanes) > 1:
        problems.append("some slots are of a lane, and some of all planes")
    for lane, own in lanes.items():
        taken_s = sum(slot.duration_s + timing.switching_s for slot in own)
        if len(own) > 1 and taken_s > timing.window_s * (1 + _TIME_TOLERANCE):
            where = "" if lane is None else f" of lane {lane}"
            problems.append(
                f"{len(own)} slots{where} take {taken_s:g} s with switching: more than the window "
                f"of {timing.window_s:g} s"
            )
    return problems


def check_matching(fabric: FabricArrays, slot: Slot) -> list[str]:
    """Check that no transmitter and no receiver of ``slot`` serves two light paths."""
    problems = []
    senders: dict[int, Lightpath] = {}
    receivers: dict[int, Lightpath] = {}
    for light in sorted(slot.lightpaths, key=attrgetter("plane", "sender", "receiver")):
        ends = (light.sender, light.receiver)
        if not all(0 <= port < len(fabric.port_rack) for port in ends):
            problems.append(f"{light} ends at a missing port")
            continue
        if any(fabric.port_plane[port] != light.plane for port in ends):
            problems.append(f"{light} ends at a port of a different plane")
        if fabric.port_rack[light.sender] == fabric.port_rack[light.receiver]:
            problems.append(f"{light} joins rack {fabric.port_rack[light.sender]} to itself")
        if light.sender in senders:
            problems.append(f"port {light.sender} sends to {light} and {senders[light.sender]}")
        if light.receiver in receivers:
            problems.append(f"port {light.receiver} hears {light} and {receivers[light.receiver]}")
        senders[light.sender] = receivers[light.receiver] = light
    return problems


def slots_share(
    fabric: FabricArrays,
    demand: NDArray[np.float64],
    slots: Sequence[Slot],
    timing: Timing,
    kept_mbps: Mapping[tuple[int, int], float] = MappingProxyType({}),
) -> float:
    """Part of the demand that the slots carry; ``demand`` is the mean over the window, in Mbps.

    The only slot of a lane carries all the time. ``kept_mbps``, by (from, to), is the traffic of
    circuits that stay.
    """
    several = Counter(slot.lane for slot in slots)
    carried = np.zeros_like(demand)
    for racks, mbps in kept_mbps.items():
        carried[racks] = mbps
    for slot in slots:
        part = 1.0 if several[slot.lane] == 1 else slot.duration_s / timing.window_s
        ends = [(light.sender, light.receiver) for light in slot.lightpaths]
        ports = np.array(ends, dtype=np.intp).reshape(-1, 2)
        rate_mbps = fabric.port_rate_mbps[ports].min(axis=1)
        np.add.at(carried, tuple(fabric.port_rack[ports].T), part * rate_mbps)
    total = float(demand.sum())
    return float(np.minimum(carried, demand).sum()) / total if total else 1.0
