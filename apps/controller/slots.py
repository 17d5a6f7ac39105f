"""Carries out schedules of days and nights: the slotted mode, in the conductor's thread.

A week is planned while the last slot of the one before stands; it brings the plan of every change
with it, so that a slot's beginning has nothing to compute. Whatever else changes the network ends
the week: the next one is planned for what stands then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace
from statistics import median
from typing import Final

from apps.controller.mover import FIRST_OUTAGE_S, Mover, outage_of
from apps.controller.record.ledger import Ledger
from apps.planning.engine import SCHEDULER
from hydra.decisions.decision import SeenDemand
from hydra.errors import HydraError, PlanError
from hydra.events import EventKind
from hydra.model import Fabric
from hydra.policy import CurrentPolicy, Sharing
from hydra.reconfiguration.executor import Execution
from hydra.sharing.slots import DUPLEX_ALONE, DutyCycle, Night, Schedule, Week, too_short
from hydra.worth import decide_week, no_plan

LOG = logging.getLogger("hydra.slots")
TRIGGER: Final = "slotted"
_FEW: Final = 3
_MANY: Final = 15
"""Fewest and most past nights by which the next one's length is estimated."""
_LOOK_S: Final = 1.0
"""Seconds between two looks for a demand, while there is none."""


@dataclass(frozen=True, slots=True)
class WeekDraft:
    """A week, and the largest demands that it was planned for."""

    week: Week
    demand: tuple[SeenDemand, ...]


@dataclass(eq=False, repr=False)
class Slots:
    """Methods are for the conductor's thread, unless they are said to be for any."""

    _fabric: Fabric
    _policy: CurrentPolicy
    _mover: Mover
    ledger: InitVar[Ledger]
    _plan: Callable[[float], WeekDraft | None]
    """Makes a week for the demand of now, with nights of so many seconds; None if there is no
    demand. Raises PlanError.
    """
    _clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _active: bool = field(default=False, init=False)
    _week: Week | None = field(default=None, init=False)
    _ahead: WeekDraft | None = field(default=None, init=False)
    _looked_ahead: bool = field(default=False, init=False)
    _index: int = field(default=0, init=False)
    _night_s: float = field(default=0.0, init=False)
    """Night of the present slot, in s."""
    _began_s: float = field(default=0.0, init=False)
    _due_s: float = field(default=0.0, init=False)
    _began_unix_s: float = field(default=0.0, init=False)
    _duty: DutyCycle = field(default_factory=DutyCycle, init=False)
    _nights_s: deque[float] = field(default_factory=lambda: deque(maxlen=_MANY), init=False)

    def __post_init__(self, ledger: Ledger) -> None:
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations

    # -- from any thread --------------------------------------------------------------------------

    def schedule(self) -> Schedule:
        with self._lock:
            week, draft = self._week, self._ahead
            ahead = None if week is None or self._goes_on(week, draft) else draft
            return Schedule(
                Night.of(self._fabric, self._policy.now, self._expected_night_s),
                week,
                None if ahead is None else ahead.week,
                self._index,
                self._began_unix_s,
                self._duty.measured,
            )

    # -- the clock --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises PlanError if slots leave no day after nights as long as the last ones, or if
        circuits are one-way.
        """
        if self._fabric.one_way:
            raise PlanError(DUPLEX_ALONE)
        self._check(self._mover.outage_s)

    def _check(self, night_s: float) -> None:
        problem = too_short(self._fabric, self._policy.now, night_s)
        if problem is not None:
            raise PlanError(problem)

    def _follow(self) -> None:
        """Begin or end slots, as the policy says; the circuits of the last slot stay."""
        wanted = self._policy.in_force.slotted
        if wanted == self._active:
            return
        self._active = wanted
        self._due_s = self._clock()
        self._forget()
        with self._lock:
            self._duty.forget()
            self._nights_s.clear()

    def patience_s(self, most_s: float) -> float:
        """Seconds until the next slot is due, at most ``most_s``."""
        return max(0.0, min(most_s, self._due_s - self._clock())) if self._active else most_s

    def keep_time(self) -> None:
        """Begin the next slot if it is due.

        Raises what :meth:`apps.controller.mover.Mover.move` does.
        """
        self._follow()
        if not self._active or self._clock() < self._due_s:
            return
        week = self._week
        ended = None if week is None else self._why_ended(week)
        if ended is not None:
            LOG.info("%s: another week is planned", ended)
            week = None
            self._forget()
        try:
            if week is None or self._index == len(week.slots) - 1:
                self._next_week(week)
            else:
                self._turn(week, self._index + 1)
        except HydraError:
            self._forget()
            self._wait(self._policy.now.slots.week_s)
            raise

    def _why_ended(self, week: Week) -> str | None:
        """The reason why a week can't go on, in words; None if it can."""
        if not week.slots[self._index].stands(self._network.state):
            return "something else has changed the network"
        if not self._keeps_reserved(week):
            return "a reservation has got a path that stands by turns"
        return None

    def _keeps_reserved(self, week: Week) -> bool:
        """True if reserved paths that stand do so in all slots."""
        reserved = {pin.path for pin in self._bookings.pins()} & self._network.state.vlans.keys()
        return all(reserved <= slot.state.vlans.keys() for slot in week.slots)

    def _next_week(self, week: Week | None) -> None:
        ahead = self._ahead
        known = self._looked_ahead and (ahead is None or self._keeps_reserved(ahead.week))
        try:
            draft = ahead if known else self.draft()
        except PlanError as error:
            LOG.error("no week: %s", error)
            standing = self._network.state.topology.circuits
            self._log.decide(no_plan(str(error), standing, (), TRIGGER, time.time()))
            self._forget()
            with self._lock:  # without changes nothing would ever be measured again
                self._nights_s.clear()
            self._wait(self._policy.now.slots.week_s)
            return
        if not self._policy.in_force.slotted:
            return  # a standing topology was chosen
        if draft is None and week is None:
            self._wait(_LOOK_S)
        elif week is not None and self._goes_on(week, draft):
            self._turn(week if draft is None else week.judged_as(draft.week), 0)
        elif draft is not None:
            self._adopt(draft)

    def _goes_on(self, week: Week, draft: WeekDraft | None) -> bool:
        return draft is None or draft.week.much_like(week, self._policy.now.slots.slot_s)

    def draft(self) -> WeekDraft | None:
        """A week for the demand of now; None if there is no demand.

        Raises PlanError, also if slots leave no day.
        """
        if self._fabric.one_way:
            raise PlanError(DUPLEX_ALONE)
        night_s = self._expected_night_s
        self._check(night_s)
        return self._plan(night_s)

    @property
    def _expected_night_s(self) -> float:
        """Median length of the last nights, so that a long one makes the next no longer."""
        if len(self._nights_s) >= _FEW:
            return median(self._nights_s)
        if self._policy.now.sharing is Sharing.AUTO:
            return self._mover.outage_s
        return min(self._mover.outage_s, FIRST_OUTAGE_S)

    def _adopt(self, draft: WeekDraft) -> None:
        """Begin another week with its first slot."""
        week, standing = draft.week, self._network.state.topology.circuits
        decision = decide_week(week, SCHEDULER, standing, draft.demand, TRIGGER, time.time())
        entry = self._log.enter(TRIGGER, decision.reason)
        self._log.decide(replace(decision, reconfiguration=entry.id))
        self._log.events.publish(EventKind.SCHEDULE, time.time(), reason=decision.reason)
        if self._week is not None:
            self._count()
        self._begin(week, 0)
        self._stand(self._mover.move(entry, week.slots[0].state))

    def _turn(self, week: Week, index: int) -> None:
        """Change to another slot of the same week."""
        plan = week.change_to(index, self._network.state)
        self._count()
        self._begin(week, index)
        if plan.empty:
            return
        entry = self._log.enter(TRIGGER, f"slot {index + 1} of {len(week.slots)}")
        self._stand(self._mover.move(entry, plan.target, plan))
        if index == len(week.slots) - 1:
            self._look_ahead()

    def _count(self) -> None:
        """Measure the slot that ends."""
        with self._lock:
            self._duty.count(self._night_s, self._clock() - self._began_s)

    def _begin(self, week: Week, index: int) -> None:
        with self._lock:
            self._week, self._ahead, self._index = week, None, index
            self._began_unix_s = time.time()
        self._looked_ahead = False
        self._began_s, self._night_s = self._clock(), 0.0
        self._wait(week.slots[index].length_s)

    def _stand(self, execution: Execution) -> None:
        """Note that the night is over, and how long it was."""
        self._night_s = outage_of(execution) or 0.0
        if self._night_s:
            with self._lock:
                self._nights_s.append(self._night_s)
        self._reservations.keep_standing(planned=lambda _pair: True)

    def _look_ahead(self) -> None:
        """Plan the next week in time, by the day."""
        try:
            draft = self.draft()
        except PlanError as error:
            LOG.debug("no week yet: %s", error)  # it is tried again when it is needed
            return
        self._looked_ahead = True
        with self._lock:
            self._ahead = draft

    def _forget(self) -> None:
        with self._lock:
            self._week = self._ahead = None
        self._looked_ahead = False

    def _wait(self, seconds: float) -> None:
        self._due_s = self._clock() + seconds
