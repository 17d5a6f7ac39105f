"""Schedules of duplex circuits: matchings of the racks take the place of permutations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.errors import PlanError
from hydra.model import Circuit, Path, Topology
from topology.assignment import heaviest_assignment
from topology.layers import whole_units
from topology.matching import heaviest_matching
from topology.oneway import Configuration, OneWayProblem, configuration_of
from topology.problem import Budget, FabricArrays, PlanResult, Reserved, Slot
from topology.schedules import needs_one_rate_per_rack, seconds_of_light
from topology.tables import IntArray

_LENGTHS = 8
"""Number of slot lengths to try for each slot."""
_FAINT = 1e-6
"""Least light worth a slot, as a part of the window."""


def plan_tms_duplex(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Traffic matrix scheduling for circuits that serve both directions (Mordia, section 3).

    Two racks want light for the larger of their two directions, at most one circuit all the time.
    Racks whose wants exceed their ports are scaled down, each pair by the factor of the busier end,
    and then all by one factor until the busiest rack has light all the time. The scaling keeps
    proportions also for racks with a single partner, unlike Sinkhorn's scaling. The result is taken
    apart into matchings, one on each plane, each with the length that gives most light per second,
    switching included. As in the paper, the longest matchings become slots, as many as possible if
    none is to be shorter than ``budget.timing.shortest_s``; slots share the window in proportion to
    their lengths, the longest first. The rest of the demand is left to the packet network.

    Both directions of a circuit are light paths of the result. Pairs with a standing path get no
    further path. Circuits of a slot stay in the next slot if their ports are not needed, and a pair
    that goes on keeps its plane if planes are alike. Ties go to the longer slot, then to the choice
    of :func:`~topology.matching.heaviest_matching`. The meaning of the budget, and errors, are as
    in :func:`topology.schedules.plan_tms`.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    objection = needs_one_rate_per_rack(fabric)
    if objection is not None:
        raise PlanError(objection)
    search = _Search(problem)
    slots = _longest(problem, list(search.slots()))
    dark = configuration_of(budget.timing.window_s, [])
    return problem.result(_settled(problem, slots) or [dark])


def topologies(fabric: FabricArrays, result: PlanResult) -> tuple[Topology, ...]:
    """The topology of each slot of a plan by :func:`plan_tms_duplex`, standing paths included."""
    return tuple(_topology(fabric, result.topology, slot) for slot in result.slots)


def _topology(fabric: FabricArrays, standing: Topology, slot: Slot) -> Topology:
    circuits = {
        Circuit(light.plane, light.sender, light.receiver)
        for light in slot.lightpaths
        if light.sender < light.receiver
    }
    ends = {circuit: sorted(fabric.racks_of(circuit)) for circuit in circuits}
    paths = [Path(src, dst, (circuit,)) for circuit, (src, dst) in ends.items()]
    return Topology(standing.circuits | circuits, tuple(sorted([*standing.paths, *paths])))


def _light_s(problem: OneWayProblem) -> NDArray[np.float64]:
    """Shape (N, N), symmetric: seconds of a window that two racks are to have a circuit."""
    window_s = problem.budget.timing.window_s
    seconds, _ = seconds_of_light(problem)
    joinable = np.zeros(seconds.shape, dtype=bool)
    for layer in problem.layers:
        joinable |= layer.capacity_mbps() > 0
    wanted_s = np.minimum(np.maximum(seconds, seconds.T), window_s)
    light: NDArray[np.float64] = np.where(joinable, wanted_s, 0.0)
    for path in problem.standing.paths:
        light[[path.src, path.dst], [path.dst, path.src]] = 0.0
    most = (problem.rates_mbps > 0).sum(axis=0) * window_s
    sums = light.sum(axis=0)
    factor = np.divide(most, sums, out=np.full_like(sums, np.inf), where=sums > 0)
    down = np.minimum(factor, 1.0)
    light *= np.minimum(down[:, None], down)
    if not light.any():
        return light
    sums = light.sum(axis=0)
    up = (most[sums > 0] / sums[sums > 0]).min()
    np.minimum(light * up, window_s, out=light)
    return light


class _Search:
    """Search for slots; holds the light that racks still need."""

    def __init__(self, problem: OneWayProblem) -> None:
        self._timing = problem.budget.timing
        self._expired = problem.budget.expired
        self._capacity_mbps = [layer.capacity_mbps() for layer in problem.layers]
        self._left_s = _light_s(problem)

    def slots(self) -> Iterator[Configuration]:
        """Slots of matchings, until no light is left, or more could not fit into the window."""
        faint_s = _FAINT * self._timing.window_s
        shortest_s = max(self._timing.shortest_s, self._timing.switching_s, faint_s)
        for _ in range(max(1, int(self._timing.window_s / shortest_s))):
            self._left_s[self._left_s < faint_s] = 0.0
            if not self._left_s.any() or self._expired():
                return
            yield self._next_slot()

    def _next_slot(self) -> Configuration:
        length_s = max(self._lengths(), key=self._worth)
        light_s = np.minimum(self._left_s, length_s)
        found = []
        for capacity in self._capacity_mbps:
            ends = _matching(light_s * capacity)
            light_s[ends] = 0.0  # one circuit a pair
            found.append(ends)
            if self._expired():
                break  # the other planes stay dark
        self._left_s -= np.where(light_s > 0, 0.0, np.minimum(self._left_s, length_s))
        return _configuration(length_s, found)

    def _lengths(self) -> list[float]:
        """Lengths to try, descending: the best length for given circuits is the need of one of
        them.
        """
        needs = np.unique(self._left_s[self._left_s > 0])[::-1]
        chosen = np.unique(np.linspace(0, len(needs) - 1, _LENGTHS).round().astype(int))
        return [float(length_s) for length_s in needs[chosen]]

    def _worth(self, length_s: float) -> float:
        """Traffic of the first plane per second of such a slot."""
        weight = np.minimum(self._left_s, length_s) * self._capacity_mbps[0]
        return float(weight[_matching(weight)].sum()) / (length_s + self._timing.switching_s)


def _matching(weight: NDArray[np.float64]) -> tuple[IntArray, IntArray]:
    """The heaviest matching, in both directions: indices of ``weight``, shape (N, N), symmetric."""
    mate = heaviest_matching(whole_units(weight)).mate
    racks = np.flatnonzero(mate >= 0).astype(np.int32)
    return racks, mate[racks].astype(np.int32)


def _configuration(length_s: float, found: Sequence[tuple[IntArray, IntArray]]) -> Configuration:
    """A configuration from the senders and receivers of each layer in turn."""
    taken = [(number, *ends) for number, ends in enumerate(found)]
    return configuration_of(length_s, taken)


def _longest(problem: OneWayProblem, slots: Sequence[Configuration]) -> list[Configuration]:
    """The longest slots, as many as leave none too short, lengthened to fill the window."""
    timing = problem.budget.timing
    slots = sorted(slots, key=lambda slot: -slot.duration_s)
    for number in range(len(slots), 1, -1):
        lit_s = timing.window_s - number * timing.switching_s
        stretch = lit_s / sum(slot.duration_s for slot in slots[:number])
        shortest_s = slots[number - 1].duration_s * stretch + timing.switching_s
        if lit_s > 0 and shortest_s >= timing.shortest_s * (1 - _FAINT):
            return [slot.lasting(slot.duration_s * stretch) for slot in slots[:number]]
    return [slot.lasting(timing.window_s) for slot in slots[:1]]


def _settled(problem: OneWayProblem, slots: Sequence[Configuration]) -> list[Configuration]:
    """The slots in an order in which few circuits move from each slot to the next.

    Equal slots are joined.
    """
    settled = list(slots[:1])
    for slot in slots[1:]:
        settled.append(_keeping(_on_layers_of(problem, slot, settled[-1]), settled[-1]))
    settled[:1] = [_keeping(slot, settled[-1]) for slot in settled[:1]]
    alike: dict[frozenset[tuple[int, int, int]], float] = {}
    for slot in settled:
        alike[frozenset(_rows(slot))] = alike.get(frozenset(_rows(slot)), 0.0) + slot.duration_s
    return _longest(problem, [_of_rows(length_s, rows) for rows, length_s in alike.items()])


def _on_layers_of(
    problem: OneWayProblem, slot: Configuration, before: Configuration
) -> Configuration:
    """``slot`` with its matchings on the layers that have most of their pairs in ``before``."""
    rates_mbps = problem.rates_mbps
    if not (rates_mbps == rates_mbps[0]).all():
        return slot
    layer_of = {(sender, receiver): layer for layer, sender, receiver in _rows(before)}
    overlap = np.zeros((len(rates_mbps),) * 2)
    for layer, sender, receiver in _rows(slot):
        if (sender, receiver) in layer_of:
            overlap[layer, layer_of[sender, receiver]] += 1
    return replace(slot, layer=heaviest_assignment(overlap).column_of[slot.layer])


def _keeping(slot: Configuration, before: Configuration) -> Configuration:
    """``slot`` with circuits of ``before`` added on ports unused by ``slot``."""
    used = {(layer, sender) for layer, sender, _ in _rows(slot)}
    joined = {(sender, receiver) for _, sender, receiver in _rows(slot)}
    kept = [
        place
        for place, (layer, sender, receiver) in enumerate(_rows(before))
        if used.isdisjoint({(layer, sender), (layer, receiver)})
        and (sender, receiver) not in joined
    ]
    return Configuration(
        slot.duration_s,
        np.concatenate([slot.layer, before.layer[kept]]),
        np.concatenate([slot.sender, before.sender[kept]]),
        np.concatenate([slot.receiver, before.receiver[kept]]),
    )


def _of_rows(length_s: float, rows: Collection[tuple[int, int, int]]) -> Configuration:
    layer, sender, receiver = np.array(sorted(rows), dtype=np.int32).reshape(-1, 3).T
    return Configuration(length_s, layer, sender, receiver)


def _rows(slot: Configuration) -> Iterator[tuple[int, int, int]]:
    """(layer, sender, receiver) of each light path."""
    return zip(slot.layer.tolist(), slot.sender.tolist(), slot.receiver.tolist(), strict=True)
