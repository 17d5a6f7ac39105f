"""Changes in their turn: in one if possible, else stage by stage.

:mod:`hydra.reconfiguration.stages` cuts a change. Each stage is a separate reconfiguration and job,
so that a lost circuit or a reservation only waits for the stage under way. Before each stage, the
rest of the change is checked again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from apps.controller.course_choice import PresentWays
from apps.controller.mover import Mover
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.stages.headroom import Headroom
from apps.controller.stages.progress import Progress, touched
from apps.controller.stages.replanning import Replanning
from apps.planning.engine import Planning
from apps.process.logs import about
from hydra.errors import HydraError, LifecycleError, PlanError
from hydra.journal import JournalError
from hydra.journal_format import Unfinished
from hydra.lifecycle import StagePhase
from hydra.model import DemandMatrix, Fabric, RackId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.plan import Plan, hold, pair_of, paths_by_pair
from hydra.reconfiguration.scheduler import Job
from hydra.reconfiguration.stages import Stage, next_stage, stages
from hydra.reconfiguration.touched import Touched
from hydra.service import Reconfiguration
from hydra.staged_changes import Agenda, Asker, StagedChange

LOG = logging.getLogger("hydra.staging")


class Staging:
    """For the conductor's thread; :meth:`foresee`, :meth:`changes_of`, :meth:`stop` and
    :meth:`pause` are for any.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        planning: Planning,
        ledger: Ledger,
        reach: Reach,
        mover: Mover,
        ways: PresentWays,
        put: Callable[[Job], None],
    ) -> None:
        """``put`` queues a job."""
        self._fabric = fabric
        self._policy = policy
        self._planning = planning
        self._network = ledger.network
        self._log = ledger.log
        self._reach = reach
        self._mover = mover
        self._ways = ways
        self._put = put
        self.headroom = Headroom(fabric, policy)
        self.agenda = Agenda(fabric, planning.toward)
        self.replanning = Replanning(policy, ledger, reach)
        self.progress = Progress(
            fabric=fabric,
            policy=policy,
            ledger=ledger,
            reach=reach,
            mover=mover,
            agenda=self.agenda,
            put=put,
            take_turn=self._next_stage,
        )

    # -- from any thread --------------------------------------------------------------------------

    @property
    def under_way(self) -> bool:
        """True between the stages of a change, unless the change waits for hours."""
        return any(change.phase is not StagePhase.AWAITS_HOURS for change in self.agenda)

    def stop(self, entry: Reconfiguration, by: str) -> None:
        """End a change after the stage under way. Raises LifecycleError where none is ahead."""
        change = self._with_stages_ahead(entry, "stopped")
        change.stopped_by = by
        self._put(lambda: self._go_on_if_its_turn_has_come(change))

    def pause(self, entry: Reconfiguration, paused: bool) -> None:
        """Begin no further stage, or go on. Raises LifecycleError where none is ahead, and
        JournalError.
        """
        change = self._with_stages_ahead(entry, "paused")
        before, change.paused = change.paused, paused
        try:
            self.progress.journal(change)
        except JournalError:
            change.paused = before
            raise
        if self.agenda.get(entry.id) is None:  # the change has ended meanwhile
            self._log.note_finished(entry.id)
            return
        self._log.update(entry.id, paused=paused)
        self._put(lambda: self._go_on_if_its_turn_has_come(change))

    def _with_stages_ahead(self, entry: Reconfiguration, what: str) -> StagedChange:
        change = self.agenda.get(entry.id)
        if change is None:
            raise LifecycleError(
                f"reconfiguration {entry.id} has no stage ahead of it (it is {entry.state.value}): "
                f"only a change in stages can be {what}, before its last one"
            )
        return change

    def changes_of(self, a: RackId, b: RackId) -> list[str]:
        """Changes with stages ahead, and their remaining effect on two racks, in words."""
        pair, state = (min(a, b), max(a, b)), self._network.state
        standing = set(paths_by_pair(state).get(pair, ()))
        lines = []
        for change in self.agenda:
            entry = self._log.reconfiguration(change.entry.id)
            goal = {path for path in change.goal.paths if pair_of(path) == pair}
            if pair in self.agenda.theirs(change, state).pairs:
                goal = standing
            stays = "leave the paths of the two racks alone"
            of = f" of about {entry.stages_expected}" if entry.stages_expected else ""
            waits = change.phase is StagePhase.AWAITS_HOURS
            lines.append(
                f"reconfiguration {entry.id}, asked for by {entry.trigger}, has made "
                f"{entry.stages_done}{of} stages{', and is paused' if entry.paused else ''}; "
                "further stages "
                f"{stays if goal == standing else 'change the paths of the two racks'}"
                + (f"; the change {entry.reason}" if waits else "")
            )
        return lines

    def foresee(self, plan: Plan, sent_mbps: DemandMatrix | None) -> tuple[Stage, ...]:
        """The stages of a plan with the given traffic; none if traffic is not measured.

        After ``policy.planning_budget_ms``, the list is cut short: its last stage is not the plan's
        last.
        """
        if sent_mbps is None or plan.empty:
            return ()
        until_s = self._ways.until_s()
        ahead: list[Stage] = []
        traffic = self.headroom.traffic(sent_mbps)
        closed = self.agenda.closed_to(plan.target.topology, None, self._network.state)
        detours, ways = self._ways.detours(until_s, closed), self._ways.now(until_s)
        for stage in stages(plan.current, plan.target, traffic, detours, ways):
            ahead.append(stage)
            if time.monotonic() > until_s:
                break
        return tuple(ahead)

    # -- in turn ----------------------------------------------------------------------------------

    async def carry_out(self, entry: Reconfiguration, plan: Plan, asker: Asker) -> None:
        """Move the network to the plan's target: at once if possible, else stage by stage.

        The entry ends with the last stage. Raises HydraError if the first stage can't be begun, or
        broke off; the log's entry has the reason, too.
        """
        sent_mbps = asker.sent_mbps()
        ahead = self.foresee(plan, sent_mbps)
        late = self.headroom.is_too_early(ahead) and not asker.recurs
        if not late:
            try:
                self.headroom.refuse_beyond(ahead)
            except PlanError as error:
                self._log.refuse(entry, str(error))
                raise
        expected = len(ahead) if ahead and ahead[-1].last else None
        change = self.progress.begun(
            entry, plan.target.topology, asker, sent_mbps, expected=expected
        )
        if late:
            self._wait_for_hours(change, ahead)
            return
        if sent_mbps is None or not ahead or ahead[0].last:
            self.headroom.warn_of(ahead)
            done = await self._mover.move(entry, plan.target, plan, gives_way=True, hurries=True)
            self.progress.note_whole(change, done)
            return
        with about(entry.id):
            LOG.info(
                "takes %d stages%s: all at once would divert too much",
                len(ahead),
                "" if change.expected else " and more",
            )
        with self.progress.ending_with(change):
            self.headroom.warn_of(ahead[:1])
            await self.progress.carry_out(change, ahead[0], plan.target)

    async def go_on(self, entry: Reconfiguration) -> None:
        """In its turn, continue a change begun beside another change, if stages are left."""
        change = self.agenda.get(entry.id)
        if change is not None:
            await self._next_stage(change)

    async def keep_time(self) -> None:
        """Continue changes whose hours have come, or whose wait is over: a duty."""
        for change in self.agenda:
            if change.phase is StagePhase.AWAITS_HOURS:
                waits = change.paused or not self.headroom.has_hours
            else:
                waits = not (change.late and change.turn_has_come)
            if not waits and self.agenda.get(change.entry.id) is change:
                await self._next_stage(change)

    def resume(
        self, unfinished: Unfinished, asker: Asker, sent_mbps: DemandMatrix | None
    ) -> Reconfiguration:
        """Continue a change cut off by a restart, unless there is a contradiction.

        Without measured traffic there are no stages to go on with.
        """
        done = unfinished.stages_done
        entry = self._log.enter(
            unfinished.trigger, f"goes on after a restart, with stage {done + 1}", unfinished.id
        )
        change = self.progress.begun(
            entry, unfinished.goal, asker, sent_mbps, phase=StagePhase.QUEUED
        )
        change.done, change.paused = done, unfinished.paused
        self._log.update(entry.id, stages_done=done, stages_expected=None, paused=change.paused)
        circuits = touched(self._network.state, change.goal)
        why = "no traffic is measured"
        contradicted = None if sent_mbps is None else self.replanning.contradiction(unfinished)
        if sent_mbps is None or contradicted is not None:
            then = "the next decision plans anew" if asker.recurs else "ask for it anew"
            why = f"does not go on after a restart: {contradicted or why}; {then}"
            self._log.note_course(entry.id, why, circuits)
            self.progress.end(change, why)
            return entry
        self._log.note_course(entry.id, entry.reason, circuits)
        self.agenda.put(change)
        self.progress.queue(change)
        return entry

    # -- between stages ---------------------------------------------------------------------------

    async def _go_on_if_its_turn_has_come(self, change: StagedChange) -> None:
        if change.turn_has_come and self.agenda.get(change.entry.id) is change:
            await self._next_stage(change)

    async def _next_stage(self, change: StagedChange) -> None:
        """Make a change's next stage, unless the change was stopped or paused, or has to wait."""
        if change.stopped_by is not None:
            self.progress.end(change, f"stopped by {change.stopped_by}")
            return
        change.turn_has_come = change.paused or self._waits_for_late(change)
        if change.turn_has_come:
            return
        before = change.phase
        change.enter(StagePhase.MOVING)
        try:
            with self.progress.ending_with(change):
                await self._make_next_stage(change, before)
        except JournalError:
            raise  # recorded where the error happened
        except HydraError:
            return  # the entry of the whole change has the reason

    async def _make_next_stage(self, change: StagedChange, before: StagePhase) -> None:
        """``before``: the phase of the change before its turn."""
        why = {
            StagePhase.AWAITS_HOURS: "the hours of the stage have come",
            StagePhase.BEGUN_BESIDE: "the turn of the stage has come",
        }.get(before, "")
        if not self._look_again(change, why):
            return
        if before is StagePhase.AWAITS_HOURS:
            # Planned beside the results of other changes, and requested now.
            change.made, change.rank = Touched(), self.agenda.next_rank()
        state = self._network.state
        goal = self.agenda.target_of(change, state)
        near = hold(state, goal, change.put_off, ()) if change.put_off else goal
        traffic = self.headroom.traffic(change.sent_now(state))
        closed = self.agenda.closed_to(goal.topology, change, state)
        until_s = self._ways.until_s()
        detours, ways = self._ways.detours(until_s, closed), self._ways.now(until_s)
        stage = next_stage(state, near, traffic, detours, ways)
        if self.headroom.is_too_early((stage,)) and not change.asker.recurs:
            self._wait_for_hours(change, (stage,))
            return
        self.headroom.refuse_beyond((stage,))
        self.headroom.warn_of((stage,))
        await self.progress.carry_out(change, stage, goal)

    def _look_again(self, change: StagedChange, others_reason: str) -> bool:
        """Plan anew if reservations, ports or demand have changed; False if the change ends here.

        ``others_reason``: the reason to plan anew nevertheless, since other changes may have
        touched the network.
        """
        replanned = self.replanning.planned_anew(change, others_reason)
        if replanned is None:
            return True
        if replanned.plan is None:
            self.progress.end(change, f"{replanned.why}: the remaining stages do not pay any more")
            return False
        self.replanning.adopt(change, replanned, replanned.plan)
        return True

    def _wait_for_hours(self, change: StagedChange, ahead: tuple[Stage, ...]) -> None:
        change.enter(StagePhase.AWAITS_HOURS)
        change.turn_has_come = True
        self.agenda.put(change)
        self.progress.journal(change)
        hours = self._policy.now.beyond_hours
        reason = f"waits for {hours}: no room now at {self.headroom.shortage(ahead)}"
        LOG.warning("%s", reason, extra={"reconfiguration": change.entry.id})
        self._log.update(change.entry.id, reason=reason)
        circuits = touched(self._network.state, change.goal)
        self._log.note_course(change.entry.id, reason, circuits)

    def _waits_for_late(self, change: StagedChange) -> bool:
        """True while late switches may still answer, or have answered and are soon ready."""
        missing = change.late - self._reach.ready_switches()
        if time.monotonic() >= change.late_until_s:
            missing &= self._reach.soon_ready()
        return bool(missing)
