"""Parts of planning a week of slots that need no planner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hydra.errors import PlanError
from hydra.model import Topology
from hydra.path_arrays import Paths
from hydra.sharing.given_schedule import GivenSchedule
from hydra.sharing.slots import WeekSlot


def given_topologies(
    given: GivenSchedule, complete: Callable[[Topology], Topology], expired: Callable[[], bool]
) -> tuple[Topology, ...]:
    """The topology of each slot; ``complete`` adds what has to stay, and may raise PlanError.

    Raises PlanError with the number of the slot, and if time is up.
    """
    found: list[Topology] = []
    for number, slot in enumerate(given.slots, start=1):
        if expired():
            raise PlanError(
                f"{given.name} has {len(given.slots)} slots, too many to plan in time: give "
                "fewer, or raise policy.planning_budget_ms"
            )
        try:
            found.append(complete(slot.topology))
        except PlanError as error:
            raise PlanError(f"slot {number} of {given.name}: {error}") from None
    return tuple(found)


def nights_and_days(slots: Sequence[WeekSlot], night_s: float) -> list[tuple[float, Topology]]:
    """Length in s and topology of each night and day; at night, circuits of both slots stand."""
    topologies = [slot.state.topology for slot in slots]
    parts: list[tuple[float, Topology]] = []
    for slot, before in zip(slots, (topologies[-1], *topologies), strict=False):
        by_day = slot.state.topology
        both = tuple(path for path in by_day.paths if path in before.paths)
        by_night = Topology(by_day.circuits & before.circuits, both)
        dark_s = night_s if len(slots) > 1 else 0.0
        parts += [(dark_s, by_night), (slot.length_s - dark_s, by_day)]
    return parts


def joined(shape: tuple[int, ...], topology: Topology) -> NDArray[np.bool_]:
    """True for each direction of each path."""
    found = np.zeros(shape, dtype=bool)
    paths = Paths.of(topology.paths)
    found[paths.table.src, paths.table.dst] = True
    if not any(circuit.one_way for circuit in paths.circuits):
        found |= found.T
    return found
