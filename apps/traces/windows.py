"""A trace cut into windows of time, each a demand between the racks of a fabric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from apps.traces.reading import Flow
from hydra.errors import PlanError
from hydra.model import DemandMatrix


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Flows that start within a window, as a mean rate over it."""

    number: int
    """Number of the window, from 0 at the trace's time 0; windows without a start are left out."""
    start_s: float
    flows: int
    demand_mbps: DemandMatrix
    """Mbps from row to column, shape (N, N); 0 on the diagonal."""

    @property
    def total_mbps(self) -> float:
        return float(self.demand_mbps.sum())

    @property
    def busiest_rack_mbps(self) -> float:
        """Most that a rack sends or receives."""
        return busiest_rack_mbps(self.demand_mbps)


def busiest_rack_mbps(demand_mbps: DemandMatrix) -> float:
    """The largest sum of a row or a column: the most that a rack sends or receives."""
    return float(max(demand_mbps.sum(axis=0).max(), demand_mbps.sum(axis=1).max()))


def rack_numbers(
    names: Sequence[str], racks: int, *, fold: bool, fabric: Sequence[str] = ()
) -> dict[str, int]:
    """Numbers in a fabric of a trace's racks, by name.

    If all racks of the trace have names of racks in ``fabric`` (its racks' names), equal names
    match; otherwise the n-th rack stands for the n-th. With ``fold``, a trace of more racks goes
    around, and several racks share a number. Raises PlanError if the trace does not fit.
    """
    if set(names) <= set(fabric):
        position = {name: number for number, name in enumerate(fabric)}
        return {name: position[name] for name in names}
    if racks < 1:
        raise PlanError(f"a fabric of {racks} racks: one is needed at least")
    if len(names) > racks and not fold:
        raise PlanError(
            f"the trace has {len(names)} racks, the fabric {racks}: take a larger fabric, or fold "
            "the trace"
        )
    return {name: position % racks for position, name in enumerate(names)}


def flows_of_window(flows: Iterable[Flow], number: int, window_s: float) -> list[Flow]:
    """Flows that start in window ``number`` of ``flows``, sorted by start."""
    until = takewhile(lambda flow: int(flow.start_s // window_s) <= number, flows)
    return [flow for flow in until if int(flow.start_s // window_s) == number]


def windows(
    flows: Iterable[Flow],
    numbers: Mapping[str, int],
    racks: int,
    window_s: float,
    size_factor: float = 1.0,
) -> Iterator[Window]:
    """Cut ``flows``, sorted by start, into windows of ``window_s``.

    A flow's bytes count in the window of the flow's start, times ``size_factor``. Memory holds one
    window at a time. Raises PlanError for a bad window or factor.
    """
    for what, value in (("window", window_s), ("size factor", size_factor)):
        if not 0 < value < float("inf"):
            raise PlanError(f"a {what} of {value:g}: the value must be positive and finite")
    mbps_per_byte = size_factor * 8e-6 / window_s
    number, count = -1, 0
    demand = np.zeros((racks, racks))
    for flow in flows:
        window = int(flow.start_s // window_s)
        if window != number:
            if count:
                yield Window(number, number * window_s, count, demand)
            number, count = window, 0
            demand = np.zeros((racks, racks))
        src, dst = numbers[flow.src], numbers[flow.dst]
        if src != dst:
            demand[src, dst] += flow.size_bytes * mbps_per_byte
            count += 1
    if count:
        yield Window(number, number * window_s, count, demand)
