"""/v1/schedule: what stands when in the slotted mode"""

from __future__ import annotations

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.context import Service
from apps.rest.models import Document
from hydra.model import Fabric
from hydra.reconfiguration.plan import pair_of
from hydra.sharing.slots import Schedule, Week

router = APIRouter(prefix="/v1/schedule", tags=["planning"])


class NightDocument(Document):
    """Time that a change of circuits takes: the shortest slot is longer."""

    total_s: float
    plane: str
    mirrors_s: float
    drain_s: float
    rest_s: float


class SlotDocument(Document):
    length_s: float
    begins_unix_s: float | None
    """Time at which the slot that is on began, or at which one that follows should."""
    pairs: list[models.RackPair]
    circuits: list[models.Circuit]


class WeekDocument(Document):
    period_s: float
    night_s: float
    duty_cycle: float
    served_mbps: float
    demand_mbps: float
    slots: list[SlotDocument]


class ScheduleDocument(Document):
    slot_s: float
    """The shortest slot, as policy has it."""
    night: NightDocument
    week: WeekDocument | None
    slot: int | None
    """The one that is on, the first is 1."""
    measured_duty_cycle: float | None
    ahead: WeekDocument | None
    """The week that follows, where it is known already and differs."""


@router.get("")
def get_schedule(service: Service) -> ScheduleDocument:
    """The slots of a week, which of them is on, and the duty cycle beside what the formula says."""
    schedule = service.schedule()
    week = schedule.week
    return ScheduleDocument(
        slot_s=service.policy.slots.slot_s,
        night=NightDocument.model_validate(schedule.night),
        week=None if week is None else _week(service.fabric, week, _beginnings(schedule, week)),
        slot=None if week is None else schedule.slot + 1,
        measured_duty_cycle=schedule.measured_duty_cycle,
        ahead=None if schedule.ahead is None else _week(service.fabric, schedule.ahead, None),
    )


def _beginnings(schedule: Schedule, week: Week) -> list[float]:
    """When each slot begins next; the one that is on began already."""
    begins = [0.0] * len(week.slots)
    at_s = schedule.began_unix_s
    for step in range(len(week.slots)):
        place = (schedule.slot + step) % len(week.slots)
        begins[place] = at_s
        at_s += week.slots[place].length_s
    return begins


def _week(fabric: Fabric, week: Week, begins: list[float] | None) -> WeekDocument:
    return WeekDocument(
        period_s=week.period_s,
        night_s=week.night_s,
        duty_cycle=week.duty_cycle,
        served_mbps=week.served_mbps,
        demand_mbps=week.demand_mbps,
        slots=[
            SlotDocument(
                length_s=slot.length_s,
                begins_unix_s=None if begins is None else begins[place],
                pairs=render.rack_pairs(
                    fabric, sorted(set(map(pair_of, slot.state.topology.paths)))
                ),
                circuits=render.circuits(fabric, slot.state.topology.circuits),
            )
            for place, slot in enumerate(week.slots)
        ],
    )
