"""The shortest window that carries a volume: of an algorithm's schedules, and of any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heapify, heapreplace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import EMPTY_TOPOLOGY
from topology.problem import Algorithm, Budget, FabricArrays, Reserved, Timing

_PRECISION: Final = 1.002
"""Ratio of the last two windows tried."""
_WHOLE: Final = 1 - 1e-6
"""Part of a volume that counts as all."""
_LONGEST: Final = 64.0
"""Longest window tried, in lower bounds."""


def shortest_window_s(
    plan: Algorithm,
    fabric: FabricArrays,
    volume_mbit: NDArray[np.float64],
    budget: Budget,
    expired: Callable[[], bool] = lambda: False,
) -> float | None:
    """The shortest window in which the algorithm's schedule carries all of the volume.

    ``volume_mbit`` has shape (N, N). The window is found by bisection, to 0.2 %. None if the
    schedule carries less in 64 times the lower bound, or if ``expired`` is true before any window
    is found. Raises the errors of ``plan``.
    """
    switching_s = budget.timing.switching_s
    least_s = least_window_s(fabric, volume_mbit, switching_s)
    if not least_s:
        return 0.0

    def carries_all(window_s: float) -> bool:
        timed = replace(budget, timing=Timing(window_s=window_s, switching_s=switching_s))
        demand_mbps = volume_mbit / window_s
        result = plan(fabric, demand_mbps, EMPTY_TOPOLOGY, Reserved(), timed)
        return result.served_share >= _WHOLE

    # A window has to be longer than its switching time.
    too_short_s = max(least_s, switching_s * _PRECISION)
    if carries_all(too_short_s):
        return too_short_s
    longest_s, window_s = _LONGEST * too_short_s, too_short_s
    while not carries_all(window_s := 2 * window_s):
        if window_s > longest_s or expired():
            return None
        too_short_s = window_s
    while window_s / too_short_s > _PRECISION and not expired():
        middle_s = (too_short_s * window_s) ** 0.5
        if carries_all(middle_s):
            window_s = middle_s
        else:
            too_short_s = middle_s
    return window_s


def least_window_s(
    fabric: FabricArrays, volume_mbit: NDArray[np.float64], switching_s: float
) -> float:
    """A lower bound of the window of any schedule that carries all of the volume.

    The ports of each rack together need as much time as its volume at their rate. A port with
    several partners in the window is dark before each. A rack with more partners than ports has the
    fewest dark times if each port but one has a single partner, and the last port all remaining
    partners. A rack with fewer has none if each of its ports has one partner; then its time is the
    time of the partner with the most volume for each of the partner's ports.
    """
    rates = np.zeros(fabric.n_racks)
    np.add.at(rates, fabric.port_rack, fabric.port_rate_mbps)
    fastest = np.zeros(fabric.n_racks)
    np.maximum.at(fastest, fabric.port_rack, fabric.port_rate_mbps)
    least_s = 0.0
    for volume in (volume_mbit, volume_mbit.T):
        for rack in np.flatnonzero(rates):
            parts = volume[rack][volume[rack] > 0]
            ports = int(fabric.ports_per_rack[rack])
            nights = max(2, len(parts) - ports + 1)
            rack_s = (parts.sum() + switching_s * nights * rates[rack] / ports) / rates[rack]
            if len(parts) <= ports:
                rack_s = min(rack_s, _alone_mbit(parts, ports) / fastest[rack])
            least_s = max(least_s, float(rack_s))
    return least_s


def _alone_mbit(parts_mbit: NDArray[np.float64], ports: int) -> float:
    """Largest volume of a port if each port has a part, or an equal share of a part, alone."""
    queue = [(-mbit, 1, mbit) for mbit in parts_mbit.tolist()]
    heapify(queue)
    for _ in range(ports - len(queue) if queue else 0):
        _, count, mbit = queue[0]
        heapreplace(queue, (-mbit / (count + 1), count + 1, mbit))
    return -queue[0][0] if queue else 0.0
