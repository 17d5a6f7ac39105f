"""Slots chosen greedily by what they carry per second of the window (Eclipse)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.model import Topology
from topology.assignment import heaviest_assignment
from topology.oneway import Configuration, OneWayProblem, configuration_of
from topology.problem import Budget, FabricArrays, PlanResult, Reserved

_GRID = 1.25
"""Ratio between neighbouring slot lengths that are tried."""
_SHORTEST = 0.1
"""The shortest slot, in switching times; or in thousandths of the window, if that is longer."""


def plan_eclipse(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Slot after slot, the length and the matchings that carry most per second of the window.

    Eclipse (Bojja Venkatakrishnan et al., Costly circuits, submodular schedules and approximate
    Carathéodory theorems, SIGMETRICS 2016, section 4): a light path carries what is left of its
    pair's demand, at most its rate times the slot's length; the heaviest matching for a length,
    over that length and the switching time, is at least half of what any schedule gains there.
    Lengths come from a geometric grid, climbed from the one before while the next is better.

    With K planes, the length is chosen for the first, and each plane in turn gets the heaviest
    matching on what those before it leave. Ports may differ in rate. What the budget means, and
    errors, are as in :func:`topology.schedules.plan_tms`; ties as in
    :func:`~topology.assignment.heaviest_assignment`.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    timing = budget.timing
    search = _Search(problem)
    slots: list[Configuration] = []
    left_s = timing.window_s
    while search.open and not budget.expired():
        left_s -= timing.switching_s
        lengths = _lengths(timing.switching_s, timing.window_s, left_s)
        if not lengths.size:
            break
        slots.append(search.take(search.best_length(lengths, timing.switching_s)))
        left_s -= slots[-1].duration_s
    return problem.result(slots or [configuration_of(timing.window_s, [])])


def _lengths(switching_s: float, window_s: float, left_s: float) -> NDArray[np.float64]:
    """Slot lengths to choose from, ascending: a grid up to what is left, and that."""
    shortest = max(_SHORTEST * switching_s, window_s / 1000)
    if left_s <= shortest:
        return np.array([left_s] if left_s > 0 else [])
    steps = int(np.log(left_s / shortest) / np.log(_GRID))
    grid = shortest * _GRID ** np.arange(steps + 1)
    return np.append(grid[grid < left_s], left_s)


class _Search:
    """What is left of the demand, and where the last search ended."""

    def __init__(self, problem: OneWayProblem) -> None:
        self._layers = problem.layers
        self._capacity = [layer.capacity_mbps() for layer in problem.layers]
        self._left_mbit = problem.open_mbps * problem.budget.timing.window_s
        self._reachable = np.zeros_like(self._left_mbit, dtype=bool)
        for capacity in self._capacity:
            self._reachable |= capacity > 0
        self._price: NDArray[np.float64] | None = None
        self._length_s = 0.0

    @property
    def open(self) -> bool:
        """Whether any light path would carry anything."""
        return bool((self._left_mbit[self._reachable] > 0).any())

    def best_length(self, lengths_s: NDArray[np.float64], switching_s: float) -> float:
        """Of those given, uphill from the one nearest to the last."""
        rates: dict[int, float] = {}

        def rate(index: int) -> float:
            if index not in rates:
                length_s = float(lengths_s[index])
                rates[index] = self._carried_mbit(length_s) / (length_s + switching_s)
            return rates[index]

        here = int(np.argmin(np.abs(lengths_s - (self._length_s or lengths_s[-1]))))
        for step in (-1, 1):
            while 0 <= here + step < len(lengths_s) and rate(here + step) > rate(here):
                here += step
        self._length_s = float(lengths_s[here])
        return self._length_s

    def _carried_mbit(self, length_s: float) -> float:
        """By the heaviest matching on the first layer."""
        weight = np.minimum(self._left_mbit, self._capacity[0] * length_s)
        assigned = heaviest_assignment(weight, self._price)
        self._price = assigned.price
        return float(weight[np.arange(len(weight)), assigned.column_of].sum())

    def take(self, length_s: float) -> Configuration:
        """A slot of this length; what it carries is gone from what is left."""
        taken = []
        for number, capacity in enumerate(self._capacity):
            weight = np.minimum(self._left_mbit, capacity * length_s)
            assigned = heaviest_assignment(weight, self._price)
            sender = np.arange(len(weight), dtype=np.int32)
            lit = weight[sender, assigned.column_of] > 0
            sender, receiver = sender[lit], assigned.column_of[lit]
            taken.append((number, sender, receiver))
            self._left_mbit[sender, receiver] -= weight[sender, receiver]
        return configuration_of(length_s, taken)
