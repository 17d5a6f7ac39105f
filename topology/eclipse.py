"""Slots chosen greedily by their traffic per second of the window (Eclipse)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.model import Topology
from topology.assignment import heaviest_assignment
from topology.oneway import Configuration, OneWayProblem, configuration_of
from topology.problem import Budget, FabricArrays, PlanResult, Reserved, Timing

_GRID = 1.25
"""Ratio between neighbouring slot lengths to try."""
_SHORTEST = 0.1
"""Length of the shortest slot in switching times, but at least a thousandth of the window."""


def plan_eclipse(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Slots, each with the length and the matchings that carry most per second of the window.

    Eclipse (Bojja Venkatakrishnan et al., Costly circuits, submodular schedules and approximate
    Carathéodory theorems, SIGMETRICS 2016, section 4): in a slot, a light path carries the pair's
    remaining demand, at most its rate times the slot's length. For each length, the weight of the
    heaviest matching is divided by the sum of length and switching time; the slot with the largest
    quotient is chosen. Lengths come from a geometric grid: a hill climb starts at the length of the
    previous slot.

    With K planes, the length is chosen for the first plane, and each plane in turn gets the
    heaviest matching on the remaining demand. Ports may differ in rate. The meaning of the budget,
    and errors, are as in :func:`topology.schedules.plan_tms`; ties are as in
    :func:`~topology.assignment.heaviest_assignment`.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    timing = budget.timing
    search = Search(problem)
    slots: list[Configuration] = []
    remaining_s = timing.window_s
    while search.open and not budget.expired():
        remaining_s -= timing.switching_s
        lengths = slot_lengths(timing, remaining_s)
        if not lengths.size:
            break
        slots.append(search.next_slot(lengths))
        remaining_s -= slots[-1].duration_s
    return problem.result(slots or [configuration_of(timing.window_s, [])])


def slot_lengths(timing: Timing, remaining_s: float) -> NDArray[np.float64]:
    """Slot lengths to choose from, ascending: a grid up to ``remaining_s``, and ``remaining_s``."""
    shortest = max(_SHORTEST * timing.switching_s, timing.window_s / 1000)
    if remaining_s <= shortest:
        return np.array([remaining_s] if remaining_s > 0 else [])
    steps = int(np.log(remaining_s / shortest) / np.log(_GRID))
    grid = shortest * _GRID ** np.arange(steps + 1)
    return np.append(grid[grid < remaining_s], remaining_s)


class Search:
    """Search for slots; holds the remaining demand, and the length found by the last search."""

    def __init__(self, problem: OneWayProblem) -> None:
        self._capacity_mbps = [layer.capacity_mbps() for layer in problem.layers]
        reachable = np.zeros((problem.fabric.n_racks,) * 2, dtype=bool)
        for capacity in self._capacity_mbps:
            reachable |= capacity > 0
        self._left_mbit = np.where(reachable, problem.open_mbps, 0) * problem.budget.timing.window_s
        self._switching_s = problem.budget.timing.switching_s
        self._length_s = np.inf

    @property
    def open(self) -> bool:
        """True if any light path would carry anything."""
        return bool(self._left_mbit.any())

    def next_slot(self, lengths_s: NDArray[np.float64]) -> Configuration:
        """The best slot of the given lengths on all layers; the remaining demand is reduced.

        The length is chosen for the first layer.
        """
        chosen = [self._take(self._uphill(0, lengths_s))]
        chosen += [
            self._take(self._match(capacity, self._length_s))
            for capacity in self._capacity_mbps[1:]
        ]
        return configuration_of(
            self._length_s,
            [(number, matched.sender, matched.receiver) for number, matched in enumerate(chosen)],
        )

    def next_of_lane(
        self, layer: int, lengths_s: NDArray[np.float64], whole_s: float
    ) -> Configuration:
        """The best slot of a lane (a layer that switches alone); the remaining demand is reduced.

        If ``whole_s`` is above zero, the slot may also last ``whole_s``, without a switching time.
        Raises ValueError if there is no length to choose from.
        """
        best = self._uphill(layer, lengths_s) if lengths_s.size else None
        length_s = self._length_s
        if whole_s > 0:
            standing = self._match(self._capacity_mbps[layer], whole_s)
            lasts_s = length_s + self._switching_s
            if best is None or standing.mbit / whole_s >= best.mbit / lasts_s:
                best, length_s = standing, whole_s
        if best is None:
            raise ValueError("no length to choose from")
        taken = self._take(best)
        return configuration_of(length_s, [(layer, taken.sender, taken.receiver)], lane=layer)

    def _uphill(self, layer: int, lengths_s: NDArray[np.float64]) -> _Matched:
        """Light paths of the best length on a layer; a hill climb from the last slot's length."""
        tried: dict[int, tuple[float, _Matched]] = {}

        def worth(index: int) -> float:
            if index not in tried:
                matched = self._match(self._capacity_mbps[layer], float(lengths_s[index]))
                tried[index] = matched.mbit / (lengths_s[index] + self._switching_s), matched
            return tried[index][0]

        here = int(np.argmin(np.abs(lengths_s - min(self._length_s, lengths_s[-1]))))
        for step in (-1, 1):
            while 0 <= here + step < len(lengths_s) and worth(here + step) > worth(here):
                here += step
        worth(here)
        self._length_s = float(lengths_s[here])
        return tried[here][1]

    def _match(self, capacity_mbps: NDArray[np.float64], length_s: float) -> _Matched:
        """Light paths that carry most on a layer."""
        weight = np.minimum(self._left_mbit, capacity_mbps * length_s)
        receiver = heaviest_assignment(weight).column_of
        carried = weight[np.arange(len(weight)), receiver]
        sender = np.flatnonzero(carried).astype(np.int32)
        return _Matched(sender, receiver[sender], carried[sender])

    def _take(self, matched: _Matched) -> _Matched:
        self._left_mbit[matched.sender, matched.receiver] -= matched.carried_mbit
        return matched


@dataclass(frozen=True, slots=True, eq=False)
class _Matched:
    """Light paths between racks, and the traffic of each in Mbit; arrays of shape (E,)."""

    sender: NDArray[np.int32]
    receiver: NDArray[np.int32]
    carried_mbit: NDArray[np.float64]

    @property
    def mbit(self) -> float:
        return float(self.carried_mbit.sum())
