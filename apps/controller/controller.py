"""The controller: start, end, and the conductor's duties.

A single conductor thread decides and acts (:mod:`apps.controller.conductor`); other threads ask
(:mod:`apps.controller.service`) or report. Reads never wait for a device.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from apps.controller.service import Desk
from apps.controller.wiring import Rooms
from apps.openflow.interface import Post
from apps.openflow.requests import CatchUp, read_first
from apps.process.term import Alone, Term
from apps.process.tracing import Traces
from hydra.config import Loaded
from hydra.errors import HydraError
from hydra.faults.facts import RefusedWorker
from hydra.journal import Journal, JournalCopy
from hydra.policy import Mode
from hydra.reconfiguration.scheduler import Job
from hydra.reconfiguration.substeps import OWN_CYCLE, Cycle

LOG = logging.getLogger("hydra.controller")
_UPKEEP_S: Final = 2.0
_RESUME_S: Final = 10.0
"""Longest wait of reservations after a start, for missing switches."""


class Controller:
    """A live network's controller: :attr:`desk` answers requests, :attr:`fleet` receives the
    switches' messages.
    """

    def __init__(
        self,
        *,
        loaded: Loaded,
        journal: Journal,
        post: Post,
        read_file: Callable[[], Loaded],
        traces: Traces | None = None,
        give_up: Callable[[HydraError], None] = LOG.critical,
        term: Term | None = None,
        catch_up: CatchUp = read_first,
        workers_refused: Callable[[], Sequence[RefusedWorker]] = lambda: (),
        cycle: Cycle = OWN_CYCLE,
    ) -> None:
        """``read_file`` reads the configuration file again; ``give_up`` ends the process if another
        controller is at work. ``term``: the time of this controller's leadership; None: always.
        ``catch_up``: see :class:`~apps.openflow.switchboard.Switchboard`. ``workers_refused``:
        refused workers as of now. ``cycle``: the order of a change's substeps; experiments have
        orders of their own.
        """
        rooms = self.rooms = Rooms(
            loaded=loaded,
            journal=journal,
            post=post,
            read_file=read_file,
            traces=traces,
            give_up=give_up,
            term=term or Alone(),
            catch_up=catch_up,
            workers_refused=workers_refused,
            cycle=cycle,
        )
        self.fleet, self.desk, self.policies = rooms.fleet, Desk(rooms), rooms.policies
        self.metrics = rooms.metrics
        rooms.mover.while_waiting(self._audit_while_waiting)

    # -- life -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Start the planning process, which takes seconds, before :meth:`start`: a new leader can
        plan at once.
        """
        self.rooms.planner.start()

    def look_ahead(self, copy: JournalCopy) -> None:
        """Read another controller's journal, so that :meth:`start` has less to do."""
        self.rooms.ledger.look_ahead(copy)

    def start(self) -> None:
        """Call :meth:`prepare` before. Raises HydraError if the journal can't be used, or another
        controller is at work.
        """
        self.rooms.devices.claim()
        self.rooms.ledger.load()
        self.rooms.loop.take_over(self.rooms.ledger.log.unfinished())
        self.rooms.quarantine.load()
        self.rooms.week_planner.start(ready=False)
        self._give_duties()
        self.rooms.conductor.start(self.rooms.slots.patience_s)
        self.rooms.announcer.start()
        self.rooms.monitor.poller.start()
        self.rooms.monitor.tor_counters.start()
        self.rooms.monitor.load_recorder.start()
        self.rooms.events.prober.start()
        self.rooms.policing.start()

    def end_soon(self) -> None:
        """Stop background work and attempts at absent devices; requests are still done until
        :meth:`stop`. Where controllers share a store, also begin no more duties, and leave queued
        reservations to the next leader, which finds them in the journal.
        """
        if self.rooms.term.is_shared:
            self.rooms.conductor.end_soon()
            self.rooms.placement.end_soon()
        self.rooms.devices.end_soon()
        self.rooms.policing.stop()
        self.rooms.events.prober.stop()
        self.rooms.monitor.tor_counters.stop()
        self.rooms.announcer.stop()

    def stop(self, nothing_follows: Callable[[], None] = lambda: None) -> None:
        """End after all requested jobs; the network goes on unchanged.

        ``nothing_follows`` is called after the last write to devices and the journal: from then on
        another controller may lead, while the rest of this controller ends.
        """
        self.end_soon()
        self.rooms.conductor.stop()
        self.rooms.mastership.stop()
        self.rooms.runner.close()
        self.rooms.devices.close()
        self.rooms.ledger.close()
        nothing_follows()
        self.rooms.monitor.load_recorder.stop()
        self.rooms.monitor.poller.stop()
        self.end_planning()

    def end_planning(self) -> None:
        """End the planning processes. :meth:`stop` does; for a controller that was not started."""
        self.rooms.planner.close()
        self.rooms.week_planner.close()

    def alive(self) -> bool:
        """True if the conductor's thread runs."""
        return self.rooms.conductor.alive

    def put(self, job: Job) -> None:
        """Queue a job for the conductor."""
        self.rooms.conductor.put(job)

    # -- the conductor's duties -------------------------------------------------------------------

    def _give_duties(self) -> None:
        policy, reach, duty = self.rooms.policy, self.rooms.reach, self.rooms.conductor.duty
        self._began_s = time.monotonic()
        duty("upkeep", self._look_after, lambda: _UPKEEP_S, at_once=True)
        duty("upkeep", self.rooms.health.look, lambda: _UPKEEP_S)
        duty("people", self.rooms.withdrawals.retry_manual_paths, lambda: _UPKEEP_S)
        duty(
            "upkeep",  # agents fall silent, too
            self.rooms.policies.classify,
            lambda: _UPKEEP_S if policy.now.sharing.elephants_only else None,
        )
        duty("spill", self.rooms.spiller.look, self.rooms.spiller.interval_s)
        duty("reservations", self._resume, lambda: 0.0 if reach.starting else None)
        duty(
            "prediction",
            self.rooms.monitor.feed_forecast,
            lambda: policy.now.poll_interval_s or None,
        )
        duty("periodic", self.rooms.choosing.periodic, self._epoch_s)
        duty("stages", self.rooms.staging.keep_time, lambda: _UPKEEP_S)
        duty("stages", self.rooms.loop.resume, self._resume_s)
        self._audit_duty = duty("audit", self._audit, lambda: policy.now.audit_interval_s or None)
        duty(
            "reservations",
            self.rooms.reservation_care.keep_time,
            lambda: None if reach.starting else 0.0,
        )
        duty("policing", self.rooms.upkeep.hold_reserved, lambda: 0.0)
        duty("slots", self.rooms.choosing.keep_time, lambda: 0.0)

    async def _look_after(self) -> None:
        recovered, before = self.rooms.courses.recovery.done, self.rooms.ledger.network.state
        if await self.rooms.upkeep.look_after():
            self.rooms.events.synchronise_soon()
        if self.rooms.courses.recovery.done and not recovered:  # fibres may have been cut meanwhile
            await self.rooms.withdrawals.after_recovery(before)
        elif self.rooms.withdrawals.due:
            await self.rooms.withdrawals.of_dead_circuits()

    async def _resume(self) -> None:
        """Resume reservations once everything is there, or ``_RESUME_S`` after the start.

        Switches and devices missing for ``_RESUME_S`` before this controller began to lead are not
        awaited.
        """
        awaited = not self.rooms.courses.recovery.done or self.rooms.reach.awaits(
            _RESUME_S, self._began_s
        )
        if not awaited or time.monotonic() > self._began_s + _RESUME_S:
            self.rooms.reach.starting = False
            await self.rooms.reservation_care.resume()

    def _resume_s(self) -> float | None:
        return _UPKEEP_S if self.rooms.loop.resuming and not self.rooms.reach.starting else None

    def _epoch_s(self) -> float | None:
        now = self.rooms.policy.in_force
        return now.epoch_s if now.mode is Mode.PERIODIC and not now.slotted else None

    async def _audit_while_waiting(self) -> None:
        if self.rooms.upkeep.in_command:
            await self.rooms.conductor.in_part(self._audit_duty, self.rooms.auditor.audit_rules)

    async def _audit(self) -> None:
        if not self.rooms.upkeep.in_command:
            return
        before = self.rooms.ledger.network.state
        await self.rooms.auditor.audit()
        if self.rooms.ledger.network.state != before:
            await self.rooms.placement.restore()
