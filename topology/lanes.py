"""Schedules in which each plane switches by itself, while all other planes go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.model import Topology
from topology.assignment import heaviest_assignment
from topology.decomposition import big_slices, stuffed
from topology.eclipse import Search, slot_lengths
from topology.oneway import Configuration, OneWayProblem, configuration_of
from topology.problem import Budget, FabricArrays, PlanResult, Reserved
from topology.schedules import needs_one_rate_per_rack, seconds_of_light
from topology.spreading import Piece, planes_are_alike, slots_of_lane, spread

_QUANTA = 1 << 30
"""Number of parts of a window in which times are counted."""
_IN_VAIN = 2
"""Largest number of decompositions in a row without an improvement."""
_FAINT = 1e-9
"""Negligible light, as a part of the window."""


def plan_by_plane(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """A schedule for each plane: planes switch at different times, so few are ever dark at once.

    After Spectra (Liang et al., Scheduling parallel optical circuit switches for AI training, arXiv
    2603.07373): the light that pairs need is taken apart into matchings (:func:`decompositions`),
    the longest go to the plane with the least load first, and matchings are divided between planes
    until all planes take equally long (:func:`~topology.spreading.spread`). Of several
    decompositions the plan takes the decomposition whose last plane is done first. If that is
    within the window, everything is carried, and all slots are lengthened until they fill the
    window.

    If the window is too short for everything, or planes differ, slots are chosen as in
    :func:`~topology.eclipse.plan_eclipse`, but for one plane at a time: the plane with most of its
    window left gets the slot that carries most per second, or light paths that stay all the time.
    The better of both plans is the result.

    Each plane with one port of each rack is a lane (``Slot.lane``). Pairs may have light on several
    lanes at a time. The meaning of the budget, and errors, are as in
    :func:`topology.schedules.plan_tms`.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    plans = [slots for slots in (_complete(problem),) if slots is not None]
    if not any(problem.share(slots) > 1 - _FAINT for slots in plans):
        plans.append(_greedy(problem))
    dark = configuration_of(budget.timing.window_s, [])
    return problem.result(max(plans, key=problem.share) or [dark])


# --- everything, as soon as possible ------------------------------------------------------------


def _complete(problem: OneWayProblem) -> list[Configuration] | None:
    """Slots for all of the demand, cut where the window ends.

    None if planes differ, or if the window is too short for all of the demand.
    """
    if not planes_are_alike(problem) or needs_one_rate_per_rack(problem.fabric) is not None:
        return None
    timing, n_planes = problem.budget.timing, len(problem.layers)
    light_s, _ = seconds_of_light(problem)
    if _least_s(light_s, n_planes, timing.switching_s) > timing.window_s:
        return None
    lanes = shortest(light_s, n_planes, timing.switching_s, timing.window_s, problem.budget.expired)
    slots = [slots_of_lane(timing, number, pieces) for number, pieces in enumerate(lanes)]
    return list(chain.from_iterable(slots))


def _least_s(light_s: NDArray[np.float64], n_planes: int, switching_s: float) -> float:
    """Time before which the busiest rack's ports can't be done."""
    least_s = 0.0
    for axis in (0, 1):
        partners = (light_s > 0).sum(axis=axis)
        nights = np.where(partners > n_planes, partners - n_planes + 1, 0)
        busy_s = light_s.sum(axis=axis) + switching_s * nights
        least_s = max(least_s, float(busy_s.max(initial=0.0)) / n_planes)
    return least_s


def shortest(
    light_s: NDArray[np.float64],
    n_planes: int,
    switching_s: float,
    enough_s: float = 0.0,
    expired: Callable[[], bool] = lambda: False,
) -> list[list[Piece]]:
    """The pieces of each plane, such that the last plane is done as soon as possible.

    ``light_s``, shape (N, N), is the light that each pair needs, in seconds. Every piece costs
    ``switching_s``. Several decompositions are tried, until a decomposition is done within
    ``enough_s``, some in a row bring no improvement, or time is up.
    """
    best: list[list[Piece]] = [[] for _ in range(n_planes)]
    best_s, in_vain = np.inf, 0
    for pieces in decompositions(light_s):
        lanes = spread(pieces, n_planes, switching_s)
        lasts_s = max(lane.lasts_s for lane in lanes)
        in_vain += 1
        if lasts_s < best_s:
            best, best_s, in_vain = [lane.pieces for lane in lanes], lasts_s, 0
        if best_s <= enough_s or in_vain > _IN_VAIN or expired():
            break
    return best


def decompositions(light_s: NDArray[np.float64]) -> Iterator[list[Piece]]:
    """Sets of pieces that give each pair at least ``light_s``, shape (N, N), in seconds.

    First comes the smallest number of pieces (:func:`_fewest`): best if switching takes long. Later
    sets begin with the first 1, 2, 4, … permutations of :func:`big_slices`, which waste no light,
    and have the smallest number of pieces for the rest.
    """
    yield list(_fewest(light_s))
    largest_s = float(light_s.max(initial=0.0))
    if not largest_s:
        return
    quantum_s = largest_s / _QUANTA
    matrix = stuffed(np.ceil(light_s / quantum_s).astype(np.int64))
    remaining_s = light_s.copy()
    begun: list[Piece] = []
    slices = big_slices(matrix)
    rows = np.arange(len(matrix))
    number = 1
    while group := list(islice(slices, number - len(begun))):
        for length, column_of in group:
            lit = remaining_s[rows, column_of] > 0
            ends = rows[lit].astype(np.int32), column_of[lit]
            length_s = length * quantum_s
            begun.append(Piece(length_s, *ends))
            remaining_s[ends] = np.maximum(0.0, remaining_s[ends] - length_s)
        remaining_s[remaining_s < _FAINT * largest_s] = 0.0
        yield [piece for piece in begun if piece.sender.size] + list(_fewest(remaining_s))
        number *= 2


def _fewest(light_s: NDArray[np.float64]) -> Iterator[Piece]:
    """As many pieces as the busiest rack has partners: with fewer, some pair would have none.

    Each piece has a partner for every rack with the most partners left (König), and is as long as
    these pairs need; among such pieces the piece with the longest pairs is taken. Longer pairs of
    other racks come again in a later piece.
    """
    remaining_s = light_s.copy()
    n = len(remaining_s)
    rows = np.arange(n)
    while remaining_s.any():
        wants = remaining_s > 0
        out, into = wants.sum(axis=1), wants.sum(axis=0)
        most = max(out.max(), into.max())
        busiest = (out == most)[:, None].astype(np.float64) + (into == most)
        weight = np.where(wants, remaining_s / remaining_s.max() + (n + 1) * busiest, 0.0)
        column_of = heaviest_assignment(weight).column_of
        lit = wants[rows, column_of]
        sender, receiver = rows[lit].astype(np.int32), column_of[lit]
        needs_s = remaining_s[sender, receiver]
        decisive = busiest[sender, receiver] > 0
        length_s = float(needs_s[decisive].max())
        remaining_s[sender, receiver] = np.maximum(0.0, needs_s - length_s)
        yield Piece(length_s, sender, receiver)


# --- as much as possible ------------------------------------------------------------------------


def _greedy(problem: OneWayProblem) -> list[Configuration]:
    """The slots that carry most per second, chosen for one lane after another."""
    timing = problem.budget.timing
    search = Search(problem)
    remaining_s = np.full(len(problem.layers), timing.window_s)
    slots: list[Configuration] = []
    while search.open and not problem.budget.expired() and (remaining_s > 0).any():
        lane = int(np.argmax(remaining_s))
        whole_s = timing.window_s if remaining_s[lane] == timing.window_s else 0.0
        lengths_s = slot_lengths(timing, float(remaining_s[lane]) - timing.switching_s)
        if not lengths_s.size and not whole_s:
            remaining_s[lane] = 0.0
            continue
        slot = search.next_of_lane(lane, lengths_s, whole_s)
        stays = slot.duration_s >= timing.window_s
        remaining_s[lane] = (
            0.0 if stays else remaining_s[lane] - slot.duration_s - timing.switching_s
        )
        if slot.sender.size:
            slots.append(slot)
        else:
            remaining_s[lane] = 0.0
    return slots
