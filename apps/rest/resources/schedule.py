"""/v1/schedule: circuits and times in the slotted mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apps.rest.document import Document, RackPairs
from apps.rest.resources.topology import Circuits
from apps.rest.routing import Routes
from hydra.reconfiguration.plan import pair_of
from hydra.sharing.slots import Schedule, Week

if TYPE_CHECKING:
    from apps.rest.asking import Service

routes = Routes("/v1/schedule", "planning")


class NightDocument(Document):
    """Time for a change of circuits: the shortest slot is longer."""

    total_s: float
    plane: str
    mirrors_s: float
    drain_s: float
    rest_s: float


class SlotDocument(Document):
    length_s: float
    begins_unix_s: float | None
    """Start of the current slot, or expected start of a later slot."""
    pairs: RackPairs
    circuits: Circuits


class WeekDocument(Document):
    period_s: float
    night_s: float
    duty_cycle: float
    served_mbps: float
    demand_mbps: float
    slots: list[SlotDocument]


class ScheduleDocument(Document):
    slot_s: float
    """The shortest slot, from the policy."""
    night: NightDocument
    week: WeekDocument | None
    slot: int | None
    """Number of the current slot, counted from 1."""
    measured_duty_cycle: float | None
    ahead: WeekDocument | None
    """The next week, if already known and different."""


@routes.on("GET")
def get_schedule(service: Service) -> ScheduleDocument:
    """The slots of a week, the current slot, and the duty cycle, measured and by the formula."""
    schedule = service.schedule()
    week, ahead = schedule.week, schedule.ahead
    return ScheduleDocument.of(
        service.fabric,
        schedule,
        slot_s=service.policy.slots.slot_s,
        week=None if week is None else _week(week, _beginnings(schedule, week)),
        slot=None if week is None else schedule.slot + 1,
        ahead=None if ahead is None else _week(ahead, None),
    )


def _beginnings(schedule: Schedule, week: Week) -> list[float]:
    """Next start of each slot; for the current slot, the past start."""
    begins = [0.0] * len(week.slots)
    at_s = schedule.began_unix_s
    for step in range(len(week.slots)):
        place = (schedule.slot + step) % len(week.slots)
        begins[place] = at_s
        at_s += week.slots[place].length_s
    return begins


def _week(week: Week, begins: list[float] | None) -> dict[str, object]:
    """Attributes of a week's document."""
    slots = [
        {
            "length_s": slot.length_s,
            "begins_unix_s": None if begins is None else begins[place],
            "pairs": frozenset(map(pair_of, slot.state.topology.paths)),
            "circuits": slot.state.topology.circuits,
        }
        for place, slot in enumerate(week.slots)
    ]
    return WeekDocument.attributes(week, slots=slots)
