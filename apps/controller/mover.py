"""Moves the network to another state, with several changes at a time where possible."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final

from apps.controller.announcer import Announcer
from apps.controller.changes_beside import ChangesBeside
from apps.controller.course_choice import PresentWays
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.upkeep import Upkeep
from apps.planning.engine import Planning
from apps.process.logs import about
from hydra.errors import HydraError, PlanError
from hydra.journal import JournalError
from hydra.lifecycle import ReconfigurationState
from hydra.model import DatapathId, Fabric, NetworkState, Pair
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.change_result import ChangeResult
from hydra.reconfiguration.commands import Batch, next_batch
from hydra.reconfiguration.course_choice import MOST_COURSES, having, onward
from hydra.reconfiguration.course_choice import Course as WayCourse
from hydra.reconfiguration.executor import Execution, rest
from hydra.reconfiguration.plan import Plan, hold, moving_pairs, pair_named, resting_beside
from hydra.reconfiguration.scheduler import carried_out, others_ended, performed
from hydra.reconfiguration.substeps import OWN_CYCLE, Cycle
from hydra.reconfiguration.touched import Touched, rebased
from hydra.service import CircuitFailure, Reconfiguration, StepTiming

LOG = logging.getLogger("hydra.mover")
FIRST_OUTAGE_S: Final = 0.3
"""Assumed cost of a reconfiguration before the first measurement."""
_OUTAGE_WEIGHT: Final = 0.3
_LOOK_S: Final = 0.25
_NAMED: Final = 6
"""Largest number of pairs in a log line."""


class Mover:
    """Runs plans in the conductor's thread, and keeps the ledger up to date meanwhile."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        planning: Planning,
        upkeep: Upkeep,
        reach: Reach,
        announcer: Announcer,
        ledger: Ledger,
        ways: PresentWays,
        cycle: Cycle = OWN_CYCLE,
    ) -> None:
        self._fabric = fabric
        self._policy = policy
        self._cycle = cycle
        self._planning = planning
        self._upkeep = upkeep
        self._reach = reach
        self._announcer = announcer
        self._network = ledger.network
        self._log = ledger.log
        self._reservations = ledger.reservations
        self._outage_s = FIRST_OUTAGE_S
        self._silence = _Silence(announcer)
        self._ways = ways
        self.beside = ChangesBeside(
            fabric=fabric, policy=policy, planning=planning, reach=reach, ledger=ledger
        )
        self._look_around: Callable[[], Awaitable[None]] | None = None
        self._broken_off_by: Exception | None = None
        """The error that has broken off a change under way."""
        self._in_turn = False
        """True while a change under way has the turn of the queue."""
        self._begun = 0
        """Number of courses begun."""

    def while_waiting(self, look_around: Callable[[], Awaitable[None]]) -> None:
        """Call ``look_around`` every now and then while a change waits for VLAN-IDs to rest.

        The ledger has the same state afterwards, as the change was planned from that state.
        """
        self._look_around = look_around

    @property
    def admits_other_changes(self) -> bool:
        """True if a change may begin beside the changes under way."""
        return self._in_turn and self.beside.under_way.let_others_in

    @property
    def outage_s(self) -> float:
        """Measured seconds for which a reconfiguration keeps moved pairs off circuits."""
        return self._outage_s

    async def move(
        self,
        entry: Reconfiguration,
        target: NetworkState,
        prepared: Plan | None = None,
        *,
        gives_way: bool = False,
        hurries: bool = False,
        slow: frozenset[DatapathId] = frozenset(),
    ) -> ChangeResult:
        """Move the network to ``target``, by the ``prepared`` plan if given.

        ``gives_way``: no caller waits for this change. Other changes may take over the unmoved
        part, and pairs may move aside for other pairs, which takes more courses. ``hurries``: a few
        switches far later than the rest are skipped; the caller handles them afterwards. ``slow``:
        switches that set this change's pace; other changes do not wait for a change slowed by them.

        Raises HydraError if the change can't begin, or broke off; the ledger's entry has the
        reason, too.
        """
        with about(entry.id):
            try:
                plan = prepared or self._planning.diff(self._network.state, target)
                await self._upkeep.devices.make_certain(plan)
            except HydraError as error:
                self._log.refuse(entry, str(error))
                raise
            await self._upkeep.tidy_relays()
            rest_s = self._network.rest_s(plan.target, self._policy.now.vlan_rest_s)
            if rest_s:
                text = "waits %.1f s for VLAN-IDs to have rested: a wider range has others"
                LOG.info(text, rest_s)
                await self._wait_for_rest(rest_s)
            self._in_turn = True
            try:
                return await self._carry_out(
                    entry, plan, gives_way=gives_way, hurries=hurries, slow=slow
                )
            finally:
                self._in_turn = False
                await others_ended()

    async def moving_beside(
        self, entry: Reconfiguration, plan: Plan, *, hurries: bool = False
    ) -> ChangeResult:
        """Carry out a plan of :meth:`ChangesBeside.plan` beside the changes under way. These touch
        other elements, or leave the contested elements to the plan. ``hurries``: as in
        :meth:`move`.

        If the change breaks off, so do the changes under way.
        """
        waiting = self.beside.under_way.leave(Touched.by(self._fabric, plan))
        if waiting is None:
            raise PlanError("changes under way touch the same pairs, ports or VLAN-IDs")
        for pairs in waiting:
            LOG.info("%d pairs wait: the ports were given to another reconfiguration", pairs)
        with about(entry.id):
            # Pairs left to this change are diverted already.
            return await self._carry_out(entry, plan, hurries=hurries, shifts=not waiting)

    async def go(self, target: NetworkState, trigger: str, reason: str) -> Reconfiguration | None:
        """Enter and :meth:`move`; returns the entry, or None if the network is there already.

        The entry and the log have the reason of a failed move. Raises JournalError.
        """
        if target == self._network.state:
            return None
        entry = self._log.enter(trigger, reason)
        try:
            await self.move(entry, target)
        except JournalError:
            raise  # recorded where the error happened
        except HydraError as error:
            self._log.refuse(entry, str(error))
            LOG.error("%s", error)
        return entry

    async def _wait_for_rest(self, rest_s: float) -> None:
        until_s = time.monotonic() + rest_s
        while (remaining_s := until_s - time.monotonic()) > 0:
            await carried_out(rest(min(remaining_s, _LOOK_S)))
            if self._look_around is not None:
                await self._look_around()

    async def _carry_out(
        self,
        entry: Reconfiguration,
        plan: Plan,
        *,
        gives_way: bool = False,
        hurries: bool = False,
        slow: frozenset[DatapathId] = frozenset(),
        shifts: bool = True,
    ) -> ChangeResult:
        """Carry out a plan course by course: in the light as far as possible, if ``shifts``, and in
        HydRA's order for the rest.
        """
        started_s = time.monotonic()
        self._log.update(entry.id, started_unix_s=time.time())
        courses: list[Execution] = []
        undisturbed, cut_short = True, ""
        had, until_s = having(plan.current), self._ways.until_s()

        async def take(part: Plan, *, in_light: bool, last: bool) -> Execution:
            nonlocal undisturbed
            execution = Execution(
                fabric=self._fabric,
                policy=self._policy.now,
                plan=part,
                conditions=self._reach.conditions(),
                order_of=self._planning.order_of,
                beside=self._network.under_way,
                gives_way=gives_way and (in_light or last),
                hurries=hurries,
                slow=slow,
                in_light=in_light,
                claims=Touched() if last else Touched.by(self._fabric, plan),
                cycle=self._cycle,
            )
            earlier = _timeline(courses, started_s)
            undisturbed &= await self._take_course(entry, execution, earlier, started_s)
            courses.append(execution)
            return execution

        while shifts and len(courses) < MOST_COURSES - 1 and not plan.empty:
            ways = self._ways.now(until_s, urgent=not gives_way)
            first = ways.next(plan.current, plan.target, MOST_COURSES - len(courses), had)
            part = self._part(plan, first)
            if part is None:
                break
            course = await take(part, in_light=first.in_light, last=False)
            try:
                plan = self._remainder_after(course, plan)
            except PlanError as error:
                cut_short = str(error)
                break
            if course.reason:
                break
        if not cut_short and not (courses and plan.empty):
            await take(plan, in_light=False, last=True)
        moved = ChangeResult(courses, cut_short)
        self._finish(entry, moved, started_s, undisturbed=undisturbed)
        return moved

    def _part(self, plan: Plan, first: WayCourse) -> Plan | None:
        """The plan of the first of several courses; None if HydRA's order does all the rest."""
        if not first.in_light and first.target.topology == plan.target.topology:
            return None
        try:
            return self._planning.diff(plan.current, first.target)
        except PlanError as error:
            LOG.debug("all pairs that are left are diverted: %s", error)
            return None

    def _remainder_after(self, course: Execution, plan: Plan) -> Plan:
        """The rest of ``plan`` after a course. Pairs that missed their goal stay where they are.
        Raises PlanError.
        """
        state = self._network.state
        target = rebased(plan.target, plan.current, course.began)
        missed = moving_pairs(course.result, course.wanted)
        staying = missed - moving_pairs(course.wanted, target)
        others = self.beside.touched.vlans
        target = onward(self._fabric, state, hold(state, target, staying, ()), others)
        left = self._planning.diff(state, target)
        if not left.empty:
            self._network.note_unsaved("some pairs moved")
        return left

    async def _take_course(
        self,
        entry: Reconfiguration,
        execution: Execution,
        earlier: Sequence[StepTiming],
        started_s: float,
    ) -> bool:
        """Take a course to the end; True if no other course began meanwhile.

        ``earlier``: steps of the earlier courses, of the change that began at ``started_s``.
        """
        plan = execution.plan
        LOG.info(
            "%s%s: %d circuits down, %d up, %d pairs affected%s",
            "makes before it breaks" if execution.in_light else "begins",
            " beside another change" if execution.beside else "",
            len(plan.disconnect),
            len(plan.connect),
            len(plan.affected),
            self._named(plan.affected),
        )
        self._network.foretell(plan.disconnect, entry.trigger)
        self._network.begin(execution)
        self._begun += 1
        begun, reported_steps = self._begun, 0

        def note(batch: Batch) -> None:
            nonlocal reported_steps
            self._break_off_with_others()
            LOG.debug(
                "%s: %d commands", batch.step, len(batch.commands), extra={"step": batch.step}
            )
            self._silence.during(execution, drains=batch.step == "drain")
            changes: dict[str, Any] = {"state": execution.state}
            if len(execution.steps) != reported_steps:
                reported_steps = len(execution.steps)
                changes["timeline"] = (*earlier, *_timeline([execution], started_s))
            self._log.update(entry.id, **changes)
            if execution.closed:
                self._upkeep.follow_closed_meanwhile(execution)

        try:
            steps = execution.run()
            batch = next_batch(steps)
            while batch is not None:
                note(batch)
                batch = next_batch(steps, await performed(batch))
            self._break_off_with_others()
        except Exception as error:
            self._broken_off_by = error
            self._abandon(entry, execution, error)
            raise
        finally:
            self._silence.during(execution, drains=False)
            self._network.end(execution)
            if not self._network.under_way:
                self._broken_off_by = None
            self._upkeep.take_over(execution)
        return self._begun == begun

    def _break_off_with_others(self) -> None:
        """Break off with the other changes under way: an error in a single change ends all."""
        if self._broken_off_by is not None:
            raise self._broken_off_by

    def _named(self, pairs: Collection[Pair]) -> str:
        """The first few pairs, in words."""
        named = [pair_named(self._fabric, pair) for pair in sorted(pairs)[:_NAMED]]
        more = [] if len(pairs) <= _NAMED else ["…"]
        return f": {', '.join(named + more)}" if named else ""

    def _abandon(self, entry: Reconfiguration, execution: Execution, error: Exception) -> None:
        """Give up half-way (a failed journal write, a defect), and start over.

        Diverted pairs stay diverted, and work, until the devices have been read again.
        """
        LOG.error("breaks off: %s", error)
        execution.result = resting_beside(execution.result, execution.wanted)
        self._log.update(entry.id, state=ReconfigurationState.FAILED, reason=str(error))
        if execution.state is not ReconfigurationState.QUEUED:
            self._upkeep.start_over(execution)

    def _finish(
        self, entry: Reconfiguration, moved: ChangeResult, started_s: float, *, undisturbed: bool
    ) -> None:
        """``undisturbed``: no other change began meanwhile."""
        failures = moved.failures
        if undisturbed and moved.outage_s is not None and not failures:
            self._outage_s += _OUTAGE_WEIGHT * (moved.outage_s - self._outage_s)
        self._reservations.finish(
            entry.id,
            state=moved.state,
            timeline=_timeline(moved.courses, started_s),
            epoch=moved.result.epoch,
            rules_pushed=moved.rules_pushed,
            ports_retagged=moved.ports_retagged,
            connected=moved.connected,
            disconnected=moved.disconnected,
            failures=tuple(
                CircuitFailure(circuit, failure) for circuit, failure in sorted(failures.items())
            ),
            troubles=moved.troubles,
            unconfirmed=tuple(sorted(moved.unconfirmed)),
            reason=moved.reason or entry.reason,
        )
        LOG.log(
            logging.WARNING if failures or moved.unconfirmed else logging.INFO,
            "ends %s after %.0f ms: %d rules, %d ports%s",
            moved.state.value,
            (time.monotonic() - started_s) * 1000,
            moved.rules_pushed,
            moved.ports_retagged,
            "".join(
                f"; {reason}" for reason in sorted({str(failure) for failure in failures.values()})
            ),
            extra={"state": moved.state.value, "epoch": moved.result.epoch},
        )


def _timeline(courses: Iterable[Execution], started_s: float) -> tuple[StepTiming, ...]:
    return tuple(
        StepTiming(
            step.name,
            step.device,
            started_ms=(step.started_s - started_s) * 1000,
            finished_ms=(step.finished_s - started_s) * 1000,
            note=step.note,
        )
        for course in courses
        for step in course.steps
    )


class _Silence:
    """Suspends announcements while circuits drain, as their counters have to stand still."""

    def __init__(self, announcer: Announcer) -> None:
        self._lock = announcer.suspended
        self._draining: set[Execution] = set()

    def during(self, execution: Execution, *, drains: bool) -> None:
        """Note whether a change drains now; another change may drain at the same time."""
        if drains == (execution in self._draining):
            return
        if drains and not self._draining:
            self._lock.acquire()
        self._draining ^= {execution}
        if not self._draining:
            self._lock.release()
