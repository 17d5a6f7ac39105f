"""Schedules of configurations: permutations of the racks, and for how long each stands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count, islice, repeat, takewhile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.errors import PlanError
from hydra.model import Topology
from topology.colouring import colour_edges
from topology.decomposition import (
    WHOLE,
    Permutation,
    admissible,
    big_slices,
    birkhoff,
    longest_first,
    scaled,
    stuffed,
)
from topology.oneway import Configuration, OneWayProblem
from topology.problem import Budget, FabricArrays, PlanResult, Reserved
from topology.spreading import Piece, planes_are_alike, slots_of_lane, spread

_QUANTA = 1 << 30
"""Number of parts of a window in which times are counted."""


def needs_one_rate_per_rack(fabric: FabricArrays) -> str | None:
    """Why time can't be divided: a rack whose ports differ in rate; None if time can be divided."""
    for rack in range(fabric.n_racks):
        rates = np.unique(fabric.port_rate_mbps[fabric.port_rack == rack])
        if len(rates) > 1:
            return (
                f"the algorithm divides time, and rack {rack} has ports of {rates[0]:g} and "
                f"{rates[-1]:g} Mbps: give all ports of a rack the same rate, or use eclipse, "
                "helios or b-matching"
            )
    return None


def plan_tms(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Traffic matrix scheduling by Birkhoff and von Neumann (Mordia, SIGCOMM 2013, section 3).

    ``demand``, shape (N, N), Mbps, is scaled to equal sums of rows and columns (Sinkhorn), and
    taken apart into permutations (:func:`~topology.decomposition.birkhoff`), all of them unless
    time is up. The longest become slots, which share the window less their switching times in
    proportion to their lengths. Their number is chosen to carry most: with every further slot the
    duty cycle falls. The rest of the demand is left to the packet network.

    With K planes, K permutations of similar length stand at the same time, for the mean of their
    lengths. Light paths that would carry nothing are not set up, and if racks miss a plane, some of
    their light paths come a slot later. ``budget.boolean`` and ``budget.disturbance_mbps`` mean
    nothing here: a demand counts by the part carried, and every slot moves mirrors. The same input
    gives the same result; when time is up the result is the best found so far.

    Raises PlanError for a bad demand entry, an impossible budget, pinned paths that do not fit, or
    an objection of :func:`needs_one_rate_per_rack`.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    seconds, racks = seconds_of_light(problem)
    pieces = list(
        takewhile(lambda _: not budget.expired(), birkhoff(scaled(seconds[np.ix_(racks, racks)])))
    )
    pieces.sort(key=lambda piece: -piece[0])
    return _longest_slots(problem, pieces, racks, seconds)


def plan_tms_plus(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """:func:`plan_tms` with each permutation the longest in the rest of the matrix.

    The first permutations then carry more than in any other decomposition.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    seconds, racks = seconds_of_light(problem)
    pieces = longest_first(scaled(seconds[np.ix_(racks, racks)]))
    return _longest_slots(problem, pieces, racks, seconds)


def _longest_slots(
    problem: OneWayProblem,
    pieces: Iterable[tuple[int, Permutation]],
    racks: NDArray[np.int64],
    seconds: NDArray[np.float64],
) -> PlanResult:
    """As many of the pieces, in their order, as carry most in the window."""
    groups = _in_parallel(problem, _split(pieces, WHOLE, problem), racks, seconds)
    chosen: list[Configuration] = []
    carried = problem.share([])
    best = 0
    offered = np.zeros_like(seconds)
    for number in _slot_numbers(problem):
        group = next(groups, None)
        if group is None or (chosen and problem.budget.expired()):
            break
        chosen.append(group)
        offered += problem.offered_mbit(group)
        share = problem.share_of(offered * _stretch(problem, chosen))
        if share > carried:
            best, carried = number, share
        if _most_that_could_be_carried(problem, number + 1) <= carried:
            break
    return problem.result(_filling_the_window(problem, chosen[:best]) or [_dark(problem)])


def plan_solstice(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Few slots for skewed demands (Liu et al., Solstice, CoNEXT 2015, section 4).

    Times of light are raised to equal sums of rows and columns (QuickStuff). Then permutations are
    taken whose entries all reach a threshold, which is halved when there are none (BigSlice), until
    the window is full. Before, demands of racks whose ports could not carry them in a window are
    scaled down.

    The paper has one plane. On K planes that are alike, each switches by itself, and permutations
    go to planes by :func:`~topology.spreading.spread`. If racks miss planes, K permutations stand
    together: for the time that carries most per second, switching included, after which the rest of
    longer permutations waits for its next turn; or for the mean of their lengths, if that carries
    more. In each case all is carried if the window is long enough. Uneven racks, the meaning of the
    budget, ties and errors are as in :func:`plan_tms`.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    seconds, racks = seconds_of_light(problem)
    most_s = len(problem.layers) * budget.timing.window_s
    feasible = admissible(seconds[np.ix_(racks, racks)], most_s)
    matrix = stuffed(np.rint(feasible * (_QUANTA / budget.timing.window_s)).astype(np.int64))
    total = int(matrix[:1].sum())
    slices = big_slices(matrix)
    if len(problem.layers) > 1 and planes_are_alike(problem):
        return problem.result(_on_lanes(problem, slices, racks, seconds) or [_dark(problem)])
    pieces = list(_split(slices, total, problem))
    orders = [pieces, _by_yield(pieces, problem)] if len(problem.layers) > 1 else [pieces]
    plans = [
        _within_the_window(problem, _in_parallel(problem, order, racks, seconds))
        for order in orders
    ]
    return problem.result(max(plans, key=problem.share) or [_dark(problem)])


def _on_lanes(
    problem: OneWayProblem,
    slices: Iterable[tuple[int, Permutation]],
    racks: NDArray[np.int64],
    seconds: NDArray[np.float64],
) -> list[Configuration]:
    """Slots of planes that switch by themselves; light paths without demand are left out."""
    timing = problem.budget.timing
    pieces = []
    for length, column_of in takewhile(lambda _: not problem.budget.expired(), slices):
        lit = seconds[racks, racks[column_of]] > 0
        if lit.any():
            ends = racks[lit].astype(np.int32), racks[column_of[lit]].astype(np.int32)
            pieces.append(Piece(length * timing.window_s / _QUANTA, *ends))
    lanes = spread(pieces, len(problem.layers), timing.switching_s)
    slots = [slots_of_lane(timing, number, lane.pieces) for number, lane in enumerate(lanes)]
    return [slot for own in slots for slot in own]


def _within_the_window(
    problem: OneWayProblem, groups: Iterable[Configuration]
) -> list[Configuration]:
    """The configurations, in order, that fit with their switching times; the last is cut."""
    chosen: list[Configuration] = []
    remaining_s = problem.budget.timing.window_s
    for group in groups:
        remaining_s -= problem.budget.timing.switching_s
        if remaining_s <= 0 or problem.budget.expired():
            break
        chosen.append(group.lasting(min(group.duration_s, remaining_s)))
        remaining_s -= group.duration_s
    return chosen


def plan_round_robin(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Every rack meets every other for the same time, regardless of demand: a bound to compare
    with.

    With K planes, K rotations of the racks stand at the same time; slot s of plane k sends rack i
    to the rack s·K + k + 1 further on (as in RotorNet, Mellette et al., SIGCOMM 2017). If more than
    half of a window would be dark, the window has only as many slots as leave half of it lit.
    Uneven racks and errors are as in :func:`plan_tms`.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    racks = problem.racks
    timing = budget.timing
    turns = ((1.0, np.roll(np.arange(len(racks), dtype=np.int32), -step)) for step in count(1))
    everyone = np.ones((fabric.n_racks, fabric.n_racks))
    groups = _in_parallel(problem, islice(turns, max(0, len(racks) - 1)), racks, everyone)
    slots = list(groups)
    if len(slots) * timing.switching_s > timing.window_s / 2:
        slots = slots[: max(1, int(timing.window_s / 2 / timing.switching_s))]
    return problem.result(_filling_the_window(problem, slots) or [_dark(problem)])


def seconds_of_light(problem: OneWayProblem) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Light that each pair's demand of a window needs, in seconds; and the racks with ports.

    The light of a pair is at most the light of all planes for the whole window.
    """
    objection = needs_one_rate_per_rack(problem.fabric)
    if objection is not None:
        raise PlanError(objection)
    rate = problem.rates_mbps.max(axis=0, initial=0.0)
    capacity = np.minimum(rate[:, None], rate)
    part = np.divide(problem.open_mbps, capacity, out=np.zeros_like(capacity), where=capacity > 0)
    window_s = problem.budget.timing.window_s
    return np.minimum(part, len(problem.layers)) * window_s, problem.racks


def _split(
    pieces: Iterable[tuple[int, Permutation]], total: int, problem: OneWayProblem
) -> Iterator[tuple[float, Permutation]]:
    """The pieces of a matrix, in parts no longer than each plane's share of its ``total``."""
    most = total / max(1, len(problem.layers))
    for length, column_of in pieces:
        parts = math.ceil(length / most)
        yield from repeat((length / parts, column_of), parts)


def _by_yield(
    pieces: Sequence[tuple[float, Permutation]], problem: OneWayProblem
) -> Iterator[tuple[float, Permutation]]:
    """The pieces in groups of as many as there are planes, all of a group equally long.

    The longest pieces left stand together, for the length among theirs that carries most per
    second, switching included; the rest of longer pieces waits. Every piece gets all its length.
    """
    planes = len(problem.layers)
    night = problem.budget.timing.switching_s * (_QUANTA / problem.budget.timing.window_s)
    waiting = [(-length, number) for number, (length, _) in enumerate(pieces)]
    heapify(waiting)
    while waiting:
        taken = [heappop(waiting) for _ in range(min(planes, len(waiting)))]
        lengths = np.array([-length for length, _ in taken])
        if waiting:
            carried = np.minimum(lengths, lengths[:, None]).sum(axis=1)
            lasts = float(lengths[np.argmax(carried / (lengths + night))])
        else:
            lasts = float(lengths[0])
        for length, number in taken:
            yield lasts, pieces[number][1]
            if -length > lasts:
                heappush(waiting, (length + lasts, number))


def _in_parallel(
    problem: OneWayProblem,
    pieces: Iterable[tuple[float, Permutation]],
    racks: NDArray[np.int64],
    useful: NDArray[np.float64],
) -> Iterator[Configuration]:
    """Configurations of as many permutations as there are planes, for the mean of their lengths.

    Lengths are in quanta of the window. Only light paths between ``racks`` for which ``useful`` is
    above zero are set up; they are spread over the planes by edge colouring. Light paths left
    without a plane, since racks miss some, are the first of the next configuration.
    """
    present = problem.rates_mbps.T > 0
    wanted = (useful > 0) & (present.astype(np.int64) @ present.T > 0)
    np.fill_diagonal(wanted, False)
    pieces = iter(pieces)
    quantum_s = problem.budget.timing.window_s / _QUANTA
    waiting = np.zeros((2, 0), dtype=np.int32)
    duration_s = 0.0
    while (together := list(islice(pieces, len(present.T)))) or waiting.size:
        edges = [np.stack([racks, racks[column_of]]) for _, column_of in together]
        sender, receiver = np.concatenate([waiting, *edges], axis=1).astype(np.int32)
        lit = wanted[sender, receiver]
        sender, receiver = sender[lit], receiver[lit]
        layer = colour_edges(sender, receiver, present, present)
        placed = layer >= 0
        waiting = np.stack([sender[~placed], receiver[~placed]])
        if together:
            duration_s = quantum_s * sum(length for length, _ in together) / len(together)
        if placed.any():
            yield Configuration(duration_s, layer[placed], sender[placed], receiver[placed])


def _slot_numbers(problem: OneWayProblem) -> Iterator[int]:
    """Numbers 1, 2, … of slots whose switching times leave some of the window."""
    timing = problem.budget.timing
    for number in count(1):
        if number > 1 and number * timing.switching_s >= timing.window_s:
            return
        yield number


def _stretch(problem: OneWayProblem, slots: list[Configuration]) -> float:
    """Factor by which slots, with their switching times, grow to take the whole window."""
    timing = problem.budget.timing
    dark_s = len(slots) * timing.switching_s if len(slots) > 1 else 0.0
    return (timing.window_s - dark_s) / sum(slot.duration_s for slot in slots)


def _filling_the_window(problem: OneWayProblem, slots: list[Configuration]) -> list[Configuration]:
    stretch = _stretch(problem, slots) if slots else 1.0
    return [slot.lasting(slot.duration_s * stretch) for slot in slots]


def _most_that_could_be_carried(problem: OneWayProblem, n_slots: int) -> float:
    """A bound on the share of the demand that ``n_slots`` slots carry in their lit time."""
    timing = problem.budget.timing
    duty = max(0.0, 1 - n_slots * timing.switching_s / timing.window_s)
    ports_mbps = problem.rates_mbps.sum(axis=0)
    total = float(problem.wanted_mbps.sum())
    if not total:
        return 0.0
    limits = [
        np.minimum(problem.open_mbps.sum(axis=axis), duty * ports_mbps).sum() for axis in (0, 1)
    ]
    return float(min(limits) + problem.standing_mbps.sum()) / total


def _dark(problem: OneWayProblem) -> Configuration:
    """A configuration without light paths, for the whole window."""
    none = np.zeros(0, dtype=np.int32)
    return Configuration(problem.budget.timing.window_s, none, none, none)
