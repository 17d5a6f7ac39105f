"""Independent checks of results: they keep what must stay, and their figures are true.

They share no code with the planners. Each returns the problems it finds, in words; an empty list is
a pass. A topology by itself is checked by :mod:`topology.checks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.model import Circuit, Path, Topology
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
"""Most problems of one kind that are spelled out."""


def check_result(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
    result: PlanResult,
) -> list[str]:
    """Check that a plan fits the fabric, keeps what must stay, and serves the share that it claims.

    Shapes and units are those of :class:`topology.problem.Algorithm`. A topology's paths are
    counted again, largest pair first; a schedule's slots are added up. Raises PlanError for a bad
    demand.
    """
    wanted = validate_demand(demand, fabric.n_racks)
    topology = result.topology
    pinned = {path for path, _ in reserved.pinned}
    standing = pinned | set(current.paths)
    hops = [path.hops for path in topology.paths if path in standing]
    beside = Counter((path.src, path.dst) for path in topology.paths if path in standing)
    problems = check_topology(
        fabric,
        topology,
        max([budget.max_hops, *hops]),
        paths_per_pair=max([budget.most_paths, *beside.values()]),
    )
    if problems:
        return problems  # the checks that follow look racks and rates up by port
    problems += _hop_problems(topology.paths, standing, budget.max_hops)
    problems += _count_problems(topology.paths, standing, budget.most_paths)
    problems += _change_problems(fabric, current, topology, pinned, budget)
    problems += _reserved_problems(fabric, topology, reserved)
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
        problems += _unserved_problems(wanted, result)
        if not budget.boolean:
            problems += _weighted_problems(fabric, wanted, topology, standing, reserved)
        total = float(_both_ways(wanted).sum())
        carried = count_load(fabric, wanted, topology, reserved).carried_mbps
        share = sum(carried.values()) / total if total else 1.0
    if abs(share - result.served_share) > _SHARE_TOLERANCE:
        problems.append(
            f"{result.served_share:.6f} of the demand is claimed served, not {share:.6f}"
        )
    mean = sum(path.hops for path in topology.paths) / max(1, len(topology.paths))
    if abs(mean - result.mean_hops) > _SHARE_TOLERANCE:
        problems.append(f"{result.mean_hops:g} hops are claimed on average, not {mean:g}")
    return problems


# --- topologies -----------------------------------------------------------------------------


def _hop_problems(
    paths: Sequence[Path], standing: Collection[Path], max_hops: int
) -> Iterator[str]:
    for path in paths:
        if path.hops > max_hops and path not in standing:
            yield f"new path {path.src}-{path.dst} has {path.hops} hops, more than {max_hops}"


def _count_problems(
    paths: Sequence[Path], standing: Collection[Path], paths_per_pair: int
) -> Iterator[str]:
    count = Counter((path.src, path.dst) for path in paths)
    for path in paths:
        many = count[path.src, path.dst]
        if many > paths_per_pair and path not in standing:
            yield f"pair {path.src}-{path.dst} has a new path and {many} in all"


def _change_problems(
    fabric: FabricArrays,
    current: Topology,
    topology: Topology,
    pinned: Collection[Path],
    budget: Budget,
) -> Iterator[str]:
    """Changes that the budget or the reservations forbid."""
    kept = {circuit for path in pinned for circuit in path.circuits}
    for path in sorted(set(pinned) - set(topology.paths)):
        yield f"the reserved path {path.src}-{path.dst} is gone"
    for circuit in sorted(current.circuits - topology.circuits):
        if not _inside(fabric, circuit, budget):
            yield f"{circuit} lies outside the budget and is gone"
    for circuit in sorted(topology.circuits - current.circuits - kept):
        if not _inside(fabric, circuit, budget):
            yield f"{circuit} lies outside the budget and is new"
        blocked = sorted({circuit.a, circuit.b} & budget.blocked_ports)
        if blocked:
            yield f"{circuit} is new and ends at port {blocked[0]}, which is blocked"


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


def _unserved_problems(wanted: NDArray[np.float64], result: PlanResult) -> Iterator[str]:
    joined = {(int(path.src), int(path.dst)) for path in result.topology.paths}
    pairs = np.argwhere(_both_ways(wanted) > 0).tolist()
    without = [(src, dst) for src, dst in pairs if (src, dst) not in joined]
    told = [(int(src), int(dst)) for src, dst in result.unserved]
    if told != sorted(told):
        yield "the unserved pairs are not sorted"
    for pair in sorted(set(without) ^ set(told))[:_SHOWN]:
        served = "not served, and not told" if pair in without else "told unserved, and is not"
        yield f"pair {pair[0]}-{pair[1]} is {served}"


def _weighted_problems(
    fabric: FabricArrays,
    wanted: NDArray[np.float64],
    topology: Topology,
    standing: Collection[Path],
    reserved: Reserved,
) -> Iterator[str]:
    """Weighted demands that are not served whole: new paths must fit with all that they want."""
    load = dict.fromkeys(topology.circuits, 0.0)
    for path, mbps in reserved.pinned:
        for circuit in path.circuits:
            load[circuit] = load.get(circuit, 0.0) + mbps
    for path in topology.paths:
        if path not in standing:
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
    left_mbps: dict[Circuit, float]
    """Mbps left on each circuit, in each direction."""


def count_load(
    fabric: FabricArrays, demand: ArrayLike, topology: Topology, reserved: Reserved
) -> Load:
    """The load of a topology: reservations first, then each pair in turn, the largest first.

    Each pair takes its shortest path, then its next ones in a further turn. Pairs with equal
    demands take turns in the order of a hash of their racks.

    Raises PlanError for a bad demand.
    """
    wanted = validate_demand(demand, fabric.n_racks)
    both = wanted if any(path.one_way for path in topology.paths) else _both_ways(wanted)
    left = {circuit: _rate(fabric, circuit) for circuit in topology.circuits}
    held: dict[tuple[int, int], float] = {}
    for path, mbps in reserved.pinned:
        if all(circuit in left for circuit in path.circuits):
            given = min([mbps, *(left[circuit] for circuit in path.circuits)])
            held[path.src, path.dst] = held.get((path.src, path.dst), 0.0) + given
            for circuit in path.circuits:
                left[circuit] -= given
    carried: dict[tuple[int, int], float] = {}
    for path in _in_turn(topology.paths, both):
        pair = (int(path.src), int(path.dst))
        own = carried.get(pair, min(float(both[pair]), held.get(pair, 0.0)))
        more = min([float(both[pair]) - own, *(left[circuit] for circuit in path.circuits)])
        for circuit in path.circuits:
            left[circuit] -= more
        carried[pair] = own + more
    return Load(carried, left)


def _in_turn(paths: Sequence[Path], both: NDArray[np.float64]) -> list[Path]:
    nth: dict[Path, int] = {}
    seen: Counter[tuple[int, int]] = Counter()
    for path in sorted(paths, key=lambda path: path.hops):
        nth[path] = seen[path.src, path.dst]
        seen[path.src, path.dst] += 1

    def turn(path: Path) -> tuple[int, float, int]:
        bits = round(float(both[path.src, path.dst]) * 1e6)
        return nth[path], -bits, _hash_of_pair(path.src, path.dst)

    return sorted(paths, key=turn)


def _hash_of_pair(src: int, dst: int) -> int:
    """The order of pairs with equal demands: SplitMix64's finaliser, in Python's integers."""
    word, mask = (src << 32 | dst) + 0x9E3779B97F4A7C15, 2**64 - 1
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = ((word & mask) ^ (word & mask) >> shift) * factor
    return (word & mask) ^ (word & mask) >> 31


def _both_ways(wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Demand of pairs as the larger of their two directions, in the upper triangle."""
    both: NDArray[np.float64] = np.triu(np.maximum(wanted, wanted.T))
    return both


def _rate(fabric: FabricArrays, circuit: Circuit) -> float:
    return min(float(fabric.port_rate_mbps[circuit.a]), float(fabric.port_rate_mbps[circuit.b]))


# --- slots ----------------------------------------------------------------------------------


def check_slots(fabric: FabricArrays, slots: Sequence[Slot], timing: Timing) -> list[str]:
    """Check that each slot is a matching on every plane, and that all fit into the window.

    A port sends to one port and hears one, on the plane it is wired to, and of another rack. The
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
                    problems.append(f"slot {number}: port {port} is also of another lane")
    if None in lanes and len(lanes) > 1:
        problems.append("some slots are of a lane, and others of all planes")
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
    for light in sorted(slot.lightpaths):
        ends = (light.sender, light.receiver)
        if not all(0 <= port < len(fabric.port_rack) for port in ends):
            problems.append(f"{light} ends at a port that does not exist")
            continue
        if any(fabric.port_plane[port] != light.plane for port in ends):
            problems.append(f"{light} ends at a port that is wired to another plane")
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
    for ends, mbps in kept_mbps.items():
        carried[ends] = mbps
    for slot in slots:
        part = 1.0 if several[slot.lane] == 1 else slot.duration_s / timing.window_s
        for light in slot.lightpaths:
            ports = [light.sender, light.receiver]
            src, dst = fabric.port_rack[ports].tolist()
            carried[src, dst] += part * float(fabric.port_rate_mbps[ports].min())
    total = float(demand.sum())
    return float(np.minimum(carried, demand).sum()) / total if total else 1.0
