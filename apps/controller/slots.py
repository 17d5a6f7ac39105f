"""Carries out schedules of days and nights: the slotted mode, in the conductor's thread.

A planning process plans the next week during the last slot of a week; the conductor never waits for
a plan. If the plan comes late, the week is repeated before the new week begins. A week contains the
plan of every change, so that a slot's beginning has nothing to compute. Any other change of the
network ends the week: the next week is planned for the changed network.

A given schedule takes the place of the weeks planned for a demand, until it is ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from apps.controller.mover import FIRST_OUTAGE_S, Mover
from apps.controller.record.ledger import Ledger
from apps.planning.engine import SCHEDULER
from hydra.decisions.decision import SeenDemand
from hydra.errors import HydraError, PlanError
from hydra.events import EventKind
from hydra.model import Fabric, NetworkState
from hydra.policy import CurrentPolicy, Policy, Sharing
from hydra.reconfiguration.change_result import ChangeResult
from hydra.reconfiguration.scheduler import Work
from hydra.sharing.given_schedule import GivenSchedule
from hydra.sharing.slots import DUPLEX_ALONE, DutyCycle, Night, Schedule, Week, too_short
from hydra.worth import decide_week, no_plan

LOG = logging.getLogger("hydra.slots")
TRIGGER: Final = "slotted"
_FEW: Final = 3
_MANY: Final = 15
"""Fewest and most past nights for an estimate of the next night's length."""
_LOOK_S: Final = 1.0
"""Seconds between two looks for a demand, while there is none."""


@dataclass(frozen=True, slots=True)
class WeekDraft:
    """A week, the largest demands behind the plan, and the state at the beginning."""

    week: Week
    demand: tuple[SeenDemand, ...]
    current: NetworkState


@dataclass(frozen=True, slots=True)
class WeekUnderWay:
    """A week being planned, the largest demands behind the plan, and the state at the beginning."""

    week: Future[Week] | Future[None]
    """None: there is no demand."""
    demand: tuple[SeenDemand, ...] = ()
    current: NetworkState = field(default_factory=NetworkState)

    @classmethod
    def refused(cls, reason: PlanError) -> WeekUnderWay:
        """A week without a possible plan."""
        refusal: Future[None] = Future()
        refusal.set_exception(reason)
        return cls(refusal)

    @classmethod
    def not_wanted(cls) -> WeekUnderWay:
        """No week, since there is no demand."""
        nothing: Future[None] = Future()
        nothing.set_result(None)
        return cls(nothing)

    def draft(self) -> WeekDraft | None:
        """The planned week; None if there is no demand. Raises PlanError."""
        try:
            week = self.week.result()
        except CancelledError:
            raise PlanError("the controller is ending: nothing is planned any more") from None
        return None if week is None else WeekDraft(week, self.demand, self.current)


BeginWeek = Callable[[float], WeekUnderWay]
"""Has a week planned for the demand of now, with nights of so many seconds."""
TakeWeek = Callable[[WeekUnderWay], Work[WeekDraft | None]]
"""Accepts a planned week; None if there is no demand, or if slots are to end.

Raises PlanError.
"""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The outcome of planning a week: a draft, no week, or the reason why there is none."""

    draft: WeekDraft | None = None
    refusal: PlanError | None = None


class Slots:
    """Methods are for the conductor's thread, unless marked for any thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        mover: Mover,
        ledger: Ledger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fabric, self._policy, self._mover = fabric, policy, mover
        self._clock = clock
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations
        self._lock = threading.Lock()
        self._active = False
        self.given: GivenSchedule | None = None
        """The given schedule, if any."""
        self._week: Week | None = None
        self._asked: WeekUnderWay | None = None
        """The week being planned, if any."""
        self._ahead: _Ahead | None = None
        """The outcome for the next week, once known."""
        self._index = 0
        self._night_s = 0.0
        """Night of the present slot, in s."""
        self._began_s = 0.0
        self._due_s = 0.0
        self._began_unix_s = 0.0
        self._duty = DutyCycle()
        self._nights_s: deque[float] = deque(maxlen=_MANY)

    # -- from any thread --------------------------------------------------------------------------

    def schedule(self) -> Schedule:
        with self._lock:
            week, draft = self._week, None if self._ahead is None else self._ahead.draft
            ahead = None if week is None or self._goes_on(week, draft) else draft
            return Schedule(
                Night.of(self._fabric, self._policy.now, self._expected_night_s),
                week,
                None if ahead is None else ahead.week,
                self._index,
                self._began_unix_s,
                self._duty.measured,
                self._policy.given,
            )

    def plan_given(self, given: GivenSchedule, begin: BeginWeek) -> WeekDraft:
        """Plan the changes of a given schedule, and wait for the plans; nothing changes.

        Raises PlanError if a slot leaves no day, or can't be set up.
        """
        policy = replace(self._policy.now, slots=given.for_policy.slots)
        self._check(self._mover.outage_s, policy, "give longer slots")
        draft = begin(self._mover.outage_s).draft()
        if draft is None:
            raise PlanError(f"the schedule {given.name} has no slots: list at least one")
        return draft

    # -- the clock --------------------------------------------------------------------------------

    def give(self, given: GivenSchedule, draft: WeekDraft) -> None:
        """Follow a given schedule, ``draft`` first, regardless of the policy."""
        self._follow_given(given)
        self._know(_Ahead(draft))

    def end_given(self) -> None:
        """Go back to the policy. Circuits of the last slot stay until something else moves them."""
        if self.given is not None:
            self._follow_given(None)

    def _follow_given(self, given: GivenSchedule | None) -> None:
        if given is None:
            LOG.info("the given schedule has ended: the policy holds")
        else:
            LOG.info("circuits follow the given schedule %s", given.name)
        self.given = given
        self._policy.given = None if given is None else given.for_policy
        self._active = False
        self._forget()
        self._forget_measured()

    def check(self) -> None:
        """Raises PlanError if slots leave no day after recent nights, or if circuits are
        one-way.
        """
        self._check(self._mover.outage_s, self._policy.now)

    def _check(self, night_s: float, policy: Policy, *remedy: str) -> None:
        if self._fabric.one_way:
            raise PlanError(DUPLEX_ALONE)
        problem = too_short(self._fabric, policy, night_s, *remedy)
        if problem is not None:
            raise PlanError(problem)

    def _follow(self) -> None:
        """Begin or end slots, as the policy says; the circuits of the last slot stay."""
        wanted = self._policy.in_force.slotted
        if wanted == self._active:
            return
        self._active = wanted
        self._due_s = self._clock()
        if not wanted:
            self._forget()
        self._forget_measured()

    def _forget_measured(self) -> None:
        with self._lock:
            self._duty.forget()
            self._nights_s.clear()

    def patience_s(self, most_s: float) -> float:
        """Seconds until the next slot is due, at most ``most_s``."""
        remaining_s = self._due_s - self._clock()
        awaits_week = self._asked is not None and remaining_s <= 0
        return max(0.0, min(most_s, remaining_s)) if self._active and not awaits_week else most_s

    def offer(self, draft: WeekDraft) -> None:
        """Set the first week of slots about to begin."""
        self._know(_Ahead(draft))

    async def keep_time(self, begin: BeginWeek, take: TakeWeek) -> None:
        """Begin the next slot if due; ``begin`` and ``take`` get a week.

        Raises the errors of :meth:`apps.controller.mover.Mover.move`.
        """
        self._follow()
        if not self._active:
            return
        await self._take_in(take)
        if self._clock() < self._due_s or not self._policy.in_force.slotted:
            return
        week = self._week
        ended = None if week is None else self._why_ended(week)
        if ended is not None:
            LOG.info("%s: planning another week", ended)
            week = None
            self._forget()
        try:
            if week is None or self._index == len(week.slots) - 1:
                await self._next_week(week, begin, take)
            else:
                await self._turn(week, self._index + 1, begin)
        except HydraError:
            self._forget()
            self._wait(self._policy.in_force.slots.week_s)
            raise

    def _why_ended(self, week: Week) -> str | None:
        """The reason why a week can't go on, in words; None if the week goes on."""
        if not week.slots[self._index].stands(self._network.state):
            return "something else has changed the network"
        if not self._keeps_reserved(week):
            return "a reservation has got a path that stands by turns"
        return None

    def _keeps_reserved(self, week: Week) -> bool:
        """True if all standing reserved paths stand in all slots."""
        reserved = {pin.path for pin in self._bookings.pins()} & self._network.state.vlans.keys()
        return all(reserved <= slot.state.vlans.keys() for slot in week.slots)

    async def _next_week(self, week: Week | None, begin: BeginWeek, take: TakeWeek) -> None:
        if self._ahead is None or not self._still_fits(self._ahead.draft):
            self._know(None)
            if self._asked is None:
                self._asked = self.ask(begin)
            await self._take_in(take)
        ahead = self._ahead
        if not self._policy.in_force.slotted:
            return  # a standing topology was chosen
        self._know(None)
        if ahead is None:
            if week is not None and len(week.slots) > 1:
                await self._turn(week, 0, begin)
            # otherwise the present circuits stay until the week is planned
        elif ahead.refusal is not None:
            self._do_without(ahead.refusal)
        elif ahead.draft is None and week is None:
            self._wait(_LOOK_S)
        elif week is not None and self._goes_on(week, ahead.draft):
            await self._turn(
                week if ahead.draft is None else week.judged_as(ahead.draft.week), 0, begin
            )
        elif ahead.draft is not None:
            await self._adopt(ahead.draft)

    def _still_fits(self, draft: WeekDraft | None) -> bool:
        """True unless network or reserved paths have changed since the request for ``draft``.

        None fits: there was no demand, or no week.
        """
        if draft is None:
            return True
        now, then = self._network.state, draft.current
        same = now.topology == then.topology and now.vlans == then.vlans
        return same and self._keeps_reserved(draft.week)

    def _do_without(self, refusal: PlanError) -> None:
        """Keep the present circuits for the length of a week."""
        LOG.error("no week: %s", refusal)
        standing = self._network.state.topology.circuits
        self._log.decide(no_plan(str(refusal), standing, (), TRIGGER, time.time()))
        self._forget()
        with self._lock:  # without changes nothing would ever be measured again
            self._nights_s.clear()
        self._wait(self._policy.in_force.slots.week_s)

    def _goes_on(self, week: Week, draft: WeekDraft | None) -> bool:
        return draft is None or draft.week.much_like(week, self._policy.in_force.slots.slot_s)

    def ask(self, begin: BeginWeek) -> WeekUnderWay:
        """A week planned by ``begin``, for nights of the recent length.

        Refused if slots leave no day.
        """
        night_s = self._expected_night_s
        try:
            self._check(night_s, self._policy.in_force)
        except PlanError as refusal:
            return WeekUnderWay.refused(refusal)
        return begin(night_s)

    async def _take_in(self, take: TakeWeek) -> None:
        """Accept the requested week, once planned."""
        asked = self._asked
        if asked is None or not asked.week.done():
            return
        self._asked = None
        try:
            self._know(_Ahead(await take(asked)))
        except PlanError as refusal:
            LOG.debug("no week: %s", refusal)
            self._know(_Ahead(refusal=refusal))

    def _know(self, ahead: _Ahead | None) -> None:
        with self._lock:
            self._ahead = ahead

    @property
    def _expected_night_s(self) -> float:
        """Median length of the last nights, so that a long night does not lengthen the next."""
        if len(self._nights_s) >= _FEW:
            return median(self._nights_s)
        if self._policy.now.sharing is Sharing.AUTO:
            return self._mover.outage_s
        return min(self._mover.outage_s, FIRST_OUTAGE_S)

    async def _adopt(self, draft: WeekDraft) -> None:
        """Begin the first slot of a new week."""
        week, standing = draft.week, self._network.state.topology.circuits
        algorithm = SCHEDULER if self.given is None else self.given.name
        decision = decide_week(week, algorithm, standing, draft.demand, TRIGGER, time.time())
        entry = self._log.enter(TRIGGER, decision.reason)
        self._log.decide(replace(decision, reconfiguration=entry.id))
        self._log.events.publish(EventKind.SCHEDULE, time.time(), reason=decision.reason)
        if self._week is not None:
            self._count()
        self._begin(week, 0)
        self._stand(await self._mover.move(entry, week.slots[0].state))

    async def _turn(self, week: Week, index: int, begin: BeginWeek) -> None:
        """Change to another slot of the present week."""
        plan = week.change_to(index, self._network.state)
        self._count()
        self._begin(week, index)
        if not plan.empty:
            entry = self._log.enter(TRIGGER, f"slot {index + 1} of {len(week.slots)}")
            self._stand(await self._mover.move(entry, plan.target, plan))
        if 0 < index == len(week.slots) - 1 and self._asked is None:
            self._asked = self.ask(begin)

    def _count(self) -> None:
        """Measure the ending slot."""
        with self._lock:
            self._duty.count(self._night_s, self._clock() - self._began_s)

    def _begin(self, week: Week, index: int) -> None:
        with self._lock:
            self._week, self._index = week, index
            self._began_unix_s = time.time()
        self._began_s, self._night_s = self._clock(), 0.0
        self._wait(week.slots[index].length_s)

    def _stand(self, done: ChangeResult) -> None:
        """Note the end and the length of the night."""
        self._night_s = done.outage_s or 0.0
        if self._night_s:
            with self._lock:
                self._nights_s.append(self._night_s)
        self._reservations.keep_standing(planned=lambda _pair: True)

    def _forget(self) -> None:
        with self._lock:
            self._week = self._ahead = None
        self._asked = None

    def _wait(self, seconds: float) -> None:
        self._due_s = self._clock() + seconds
