"""The course of changes in stages: entered, journalled, and reported stage by stage to the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress

import numpy as np

from apps.controller.mover import Mover
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from hydra.journal import JournalError
from hydra.journal_format import Unfinished
from hydra.lifecycle import ReconfigurationState, StagePhase
from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, Topology
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.change_result import ChangeResult
from hydra.reconfiguration.plan import directions, moving_pairs
from hydra.reconfiguration.scheduler import Job, Work
from hydra.reconfiguration.stages import Stage
from hydra.service import Reconfiguration
from hydra.staged_changes import Agenda, Asker, StagedChange

LOG = logging.getLogger("hydra.staging")


def touched(state: NetworkState, goal: Topology) -> AbstractSet[Circuit]:
    """Circuits set up or taken down on the way to a goal."""
    return state.topology.circuits ^ goal.circuits


class Progress:
    """For the conductor's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        ledger: Ledger,
        reach: Reach,
        mover: Mover,
        agenda: Agenda,
        put: Callable[[Job], None],
        take_turn: Callable[[StagedChange], Work[None]],
    ) -> None:
        """``put`` queues a job; ``take_turn`` makes a change's next stage in its turn."""
        self._fabric = fabric
        self._policy = policy
        self._network = ledger.network
        self._bookings = ledger.bookings
        self._log = ledger.log
        self._reach = reach
        self._mover = mover
        self._agenda = agenda
        self._put = put
        self._take_turn = take_turn

    # -- begin ------------------------------------------------------------------------------------

    def begun(
        self,
        entry: Reconfiguration,
        goal: Topology,
        asker: Asker,
        sent_mbps: DemandMatrix | None,
        *,
        expected: int | None = None,
        phase: StagePhase = StagePhase.MOVING,
    ) -> StagedChange:
        """A change that begins, or goes on, from the present network; not in the agenda yet."""
        racks = len(self._fabric.racks)
        return StagedChange(
            entry,
            asker,
            goal,
            np.zeros((racks, racks)) if sent_mbps is None else sent_mbps,
            directions(self._network.state),
            self._bookings.pins(),
            self._reach.blocked_ports(),
            None if sent_mbps is None else asker.wanted_mbps(),
            expected,
            self._agenda.next_rank(),
            phase,
        )

    def queue(self, change: StagedChange) -> None:
        """Queue the next stage of a change, unless the change is over by then."""

        async def take_turn() -> None:
            if self._agenda.get(change.entry.id) is change:
                await self._take_turn(change)

        self._put(take_turn)

    def journal(self, change: StagedChange) -> None:
        """Write the rest of a change, to go on after a restart. Raises JournalError."""
        self._log.note_unfinished(
            Unfinished(
                change.entry.id,
                change.entry.trigger,
                change.goal,
                whole=True,
                stages_done=change.done,
                paused=change.paused,
            )
        )

    # -- stages -----------------------------------------------------------------------------------

    async def carry_out(self, change: StagedChange, stage: Stage, goal: NetworkState) -> None:
        """Carry out a stage in its turn; queue the next stage unless this is the last."""
        entry, before = change.entry, self._network.state
        if stage.last:
            self._agenda.drop(change)
        else:
            entry = self.enter_stage(change)
        reached = goal if stage.last else stage.target
        done = await self._mover.move(
            entry, reached, gives_way=True, hurries=not change.makes_up, slow=change.late
        )
        if stage.last:
            self.note_last(change, done)
            return
        self.note_stage(change, done)
        after = self._network.state
        if done.ceded is None:
            change.put_off_unmoved(stage.pairs, after, stage.target, goal)
        if (after.topology, after.vlans) == (before.topology, before.vlans):
            change.put_off |= moving_pairs(after, goal)  # the rest is a single further stage
        change.enter(StagePhase.QUEUED)
        self.queue(change)

    def enter_stage(self, change: StagedChange) -> Reconfiguration:
        """Enter the next stage of a change with further stages, as a separate reconfiguration."""
        entry = change.entry
        self._agenda.put(change)
        self.journal(change)
        number = change.done + 1
        of = f"of about {max(change.expected, number + 1)} " if change.expected else ""
        self._log.update(entry.id, stages_expected=change.expected)
        return self._log.enter(entry.trigger, f"stage {number} {of}of {entry.id}")

    def note_stage(self, change: StagedChange, done: ChangeResult, *, last: bool = False) -> None:
        """Note a finished stage."""
        change.skipped_switches |= done.late
        change.asker.moved(done, change.done == 0 and not change.makes_up)
        self._leave_as_it_is(done, change)
        change.done += 1
        change.connected |= done.connected
        change.disconnected |= done.disconnected
        self._log.update(change.entry.id, stages_done=change.done)
        if not last:
            self.journal(change)

    def _leave_as_it_is(self, done: ChangeResult, by: StagedChange) -> None:
        before, after = done.before, done.result
        for change in self._agenda.leave_as_it_is(by, before, after, self._network.state):
            self.journal(change)

    # -- end --------------------------------------------------------------------------------------

    def note_last(self, change: StagedChange, done: ChangeResult) -> None:
        """Note the end of the last of several stages."""
        entry = change.entry
        self.note_stage(change, done, last=True)
        change.enter(StagePhase.OVER)
        self._log.note_finished(entry.id)
        self._log.update(entry.id, connected=change.connected, disconnected=change.disconnected)
        self._queue_remainder(change, done)

    def note_whole(self, change: StagedChange, done: ChangeResult) -> None:
        """Note the end of a change without stages."""
        change.skipped_switches |= done.late
        change.asker.moved(done, True)
        self._leave_as_it_is(done, change)
        change.enter(StagePhase.OVER)
        self._queue_remainder(change, done)

    def _queue_remainder(self, change: StagedChange, done: ChangeResult) -> None:
        """Continue, as another change, with the part left to other changes or at late switches.

        The next decision plans a recurring change anew.
        """
        there, late = done.result.topology == done.wanted.topology, change.skipped_switches
        if change.asker.recurs or (done.ceded is None and (there or not late)):
            return
        before = change.entry
        why = "the stage gave way to other changes" if done.ceded else "switches were late"
        entry = self._log.enter(before.trigger, f"the rest of {before.id}, since {why}")
        rest = change.rest(entry, time.monotonic() + self._policy.now.timeouts.vswitch_s)
        self._agenda.put(rest)
        with suppress(JournalError), self.ending_with(rest):  # finished stages stay
            self.journal(rest)
            self.queue(rest)

    @contextmanager
    def ending_with(self, change: StagedChange) -> Iterator[None]:
        """End the change with the error of the block.

        This includes defects: periodic rounds wait for the end of a change, and would wait for
        good.
        """
        try:
            yield
        except Exception as error:
            self.end(change, str(error))
            raise

    def end(self, change: StagedChange, reason: str) -> None:
        """Note that a change ends here, with its stages so far."""
        self._agenda.drop(change)
        if change.phase is not StagePhase.OVER:  # the last stage may be finished
            change.enter(StagePhase.OVER)
        self._log.note_finished(change.entry.id)
        if not change.done:
            self._log.refuse(change.entry, reason)
            return
        LOG.warning("%s ends after stage %d: %s", change.entry.id, change.done, reason)
        self._log.update(
            change.entry.id,
            state=ReconfigurationState.PARTIAL,
            reason=f"after stage {change.done}: {reason}",
            connected=change.connected,
            disconnected=change.disconnected,
            paused=False,
        )
