"""/v1/schedule: circuits and times in the slotted mode, planned or given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from apps.rest.document import Body, Document, RackPairs
from apps.rest.problems import DEVICE_UNAVAILABLE
from apps.rest.resources.plans import PLAN_PROBLEMS, RequestReader
from apps.rest.resources.topology import Circuits
from apps.rest.routing import Routes
from apps.rest.wanted_topology import TopologyReader, WantedTopology
from hydra.model import Fabric
from hydra.policy import Policy, Rotation
from hydra.reconfiguration.plan import pair_of
from hydra.sharing.given_schedule import GivenSchedule, GivenSlot
from hydra.sharing.slots import Schedule, Week
from topology.rotors import rotation_topologies

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1/schedule", "planning")


_LISTED = "listed"
"""Name of a schedule whose slots are listed in the request."""
_Length = Annotated[float, Field(gt=0, le=1e9)]


class WantedSlot(Body):
    topology: WantedTopology
    length_s: _Length = Field(description="Night and day together.")


class ScheduleBody(Body):
    """Slots to repeat whatever the demand: by `name`, or listed in `slots`."""

    name: Rotation | None = Field(
        default=None, strict=False, description="A schedule that joins all pairs of racks in turn."
    )
    slot_s: _Length | None = Field(
        default=None,
        description="Length of the slots of a named schedule. Null: `slots.slot_s` of the policy.",
    )
    slots: Annotated[list[WantedSlot], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="Topologies to repeat in this order, instead of `name`."
    )
    dry_run: bool = Field(
        default=False, description="Only show the schedule that would be followed."
    )

    def given(self, fabric: Fabric, policy: Policy) -> GivenSchedule:
        """The core's schedule.

        Raises ApiError with all errors, PlanError if the fabric can't have the named schedule.
        """
        reader = RequestReader(fabric)
        if (self.name is None) == (self.slots is None):
            reader.wrong((), "a schedule is named or listed: send `name` or `slots`, and not both")
        if self.name is None and self.slot_s is not None:
            reader.wrong(("slot_s",), "listed slots have lengths of their own: leave this out")
        reader.finish()
        if self.name is not None:
            length_s = policy.slots.slot_s if self.slot_s is None else self.slot_s
            topologies = rotation_topologies(self.name, fabric)
            return GivenSchedule(
                self.name.value, tuple(GivenSlot(topology, length_s) for topology in topologies)
            )
        slots = tuple(
            GivenSlot(
                TopologyReader(fabric, reader, ("slots", number, "topology")).read(slot.topology),
                slot.length_s,
            )
            for number, slot in enumerate(self.slots or ())
        )
        reader.finish()
        return GivenSchedule(_LISTED, slots)


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
    given: str | None
    """Name of the given schedule, `listed` if the request listed the slots; null: planned slots."""
    slot_s: float
    """The shortest slot: of the policy, or of the given schedule."""
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
    return _document(service)


@routes.on("PUT", "", *PLAN_PROBLEMS)
def give_schedule(body: ScheduleBody, service: Service) -> WeekDocument:
    """Follow slots that do not depend on demand, in place of `policy.mode` and `policy.sharing`.

    They repeat until `DELETE`, another `PUT`, or the next start. The answer has the slots, and what
    they are expected to carry of the demand of now.
    """
    given = body.given(service.fabric, service.policy)
    week = service.give_schedule(given, dry_run=body.dry_run)
    return WeekDocument.of(service.fabric, _week(week, None))


@routes.on("DELETE", "", DEVICE_UNAVAILABLE)
def end_schedule(service: Service) -> ScheduleDocument:
    """Go back to `policy.mode` and `policy.sharing`; circuits stay until something moves them."""
    service.end_schedule()
    return _document(service)


def _document(service: Service) -> ScheduleDocument:
    schedule = service.schedule()
    week, ahead, given = schedule.week, schedule.ahead, schedule.given
    slots = service.policy.slots if given is None else given.slots
    return ScheduleDocument.of(
        service.fabric,
        schedule,
        given=None if given is None else given.name,
        slot_s=slots.slot_s,
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
