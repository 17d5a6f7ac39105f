"""Takes the network from one state to another; between two steps of a plan it may let others in."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any, Final

from apps.controller.announcer import Announcer
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.runner import Runner
from apps.controller.upkeep import Upkeep
from apps.planning.engine import Planning
from apps.process.logs import about
from hydra.errors import HydraError, PlanError
from hydra.journal import JournalError
from hydra.lifecycle import ReconfigurationState
from hydra.model import DatapathId, Fabric, NetworkState
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.beside import Touched
from hydra.reconfiguration.commands import Batch
from hydra.reconfiguration.executor import Execution, rest
from hydra.reconfiguration.plan import Pair, Plan, pair_named, resting_beside
from hydra.reconfiguration.side_by_side import SideBySide, Standstill
from hydra.service import CircuitFailure, Reconfiguration, StepTiming

LOG = logging.getLogger("hydra.mover")
FIRST_OUTAGE_S: Final = 0.3
"""Assumed cost of a reconfiguration until one has been measured."""
_OUTAGE_WEIGHT: Final = 0.3
_LOOK_S: Final = 0.25
_NAMED: Final = 6
"""Pairs that the log names."""


class Mover:
    """Runs plans in the conductor's thread and keeps the ledger up to date while it does."""

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        planning: Planning,
        runner: Runner,
        upkeep: Upkeep,
        reach: Reach,
        announcer: Announcer,
        ledger: Ledger,
        come_in: Callable[[], bool],
    ) -> None:
        """``come_in`` has a change made by :meth:`move_beside` if there is one; True if so."""
        self._fabric = fabric
        self._policy = policy
        self._planning = planning
        self._runner = runner
        self._upkeep = upkeep
        self._reach = reach
        self._announcer = announcer
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations
        self._outage_s = FIRST_OUTAGE_S
        self._silence = _Silence(announcer)
        self._come_in = come_in
        self._look_around: Callable[[], None] = lambda: None
        self._broken_off_by: Exception | None = None
        """What has broken off a change that was made while another waited."""
        self._standstills: dict[Execution, Standstill] = {}
        """Of the changes under way."""

    def while_waiting(self, look_around: Callable[[], None]) -> None:
        """Have this called every now and then while a change waits for its VLAN-IDs to have rested.

        The ledger has the same state afterwards: the change was planned from it.
        """
        self._look_around = look_around

    def _let_in(self, execution: Execution, over_since_s: Callable[[], float | None]) -> None:
        """Have others make what they can beside a change, as long as it has time;
        ``over_since_s``: when it would have gone on, None if not yet.
        """
        standstill = self._standstills[execution]
        while standstill.may_last(execution, time.monotonic()):
            began_s = time.monotonic()
            if not self._come_in():
                return
            if (since_s := over_since_s()) is not None:
                standstill.for_others_s += time.monotonic() - max(began_s, since_s)

    def let_in_meanwhile(self) -> None:
        """Have others make what they can while a change does nothing but wait, as it does while
        circuits drain, or are to have light, or slow switches to answer. For the conductor's
        thread.
        """
        if not (self._network.under_way and self._runner.only_waits):
            return
        execution = self._network.under_way[-1]
        if not execution.lets_others_in_meanwhile:
            return
        try:
            self._let_in(execution, lambda: self._runner.over_since_s)
        except Exception as error:
            self._broken_off_by = error  # what breaks off one breaks off the others
            raise

    @property
    def outage_s(self) -> float:
        """Seconds that a reconfiguration keeps the pairs it moves off circuits, as measured."""
        return self._outage_s

    def move(
        self,
        entry: Reconfiguration,
        target: NetworkState,
        prepared: Plan | None = None,
        *,
        gives_way: bool = False,
        hurries: bool = False,
        slow: frozenset[DatapathId] = frozenset(),
    ) -> Execution:
        """Take the network to ``target``, by the plan that was ``prepared`` for it, if any.

        With ``gives_way``, others may take over what it has not moved yet; with ``hurries``, few
        switches that are far later than all others are not waited for. Whoever asks for it sees to
        what is left then. Others do not wait for a change that keeps to the pace of ``slow``
        switches.

        Raises HydraError where it can't be begun, or broke off; the ledger's entry says so too.
        """
        with about(entry.id):
            try:
                plan = prepared or self._planning.diff(self._network.state, target)
                self._upkeep.make_certain(plan)
            except HydraError as error:
                self._log.refuse(entry, str(error))
                raise
            self._upkeep.tidy_relays()
            rest_s = self._network.rest_s(plan.target, self._policy.now.vlan_rest_s)
            if rest_s:
                told = "waits %.1f s for VLAN-IDs to have rested: a wider range has others"
                LOG.info(told, rest_s)
                self._rest(rest_s)
            return self._carry_out(entry, plan, gives_way=gives_way, hurries=hurries, slow=slow)

    @property
    def _side_by_side(self) -> SideBySide:
        return SideBySide(self._fabric, self._network.under_way)

    @property
    def touched(self) -> Touched:
        """What the changes under way touch."""
        return self._side_by_side.touched

    def touched_beside(self, wanted: Touched) -> Touched | None:
        """As :meth:`SideBySide.touched_beside`."""
        return self._side_by_side.touched_beside(wanted)

    def why_not_beside(self, plan: Plan, *, takes_over: bool = False) -> str | None:
        """The reason why a plan can't be carried out between two steps of what is under way.

        With ``takes_over``, these may leave it what they touch.
        """
        beside, touched = self._side_by_side, Touched.by(self._fabric, plan)
        if takes_over:
            reserved = {pin.path for pin in self._bookings.pins()}
            meets = not beside.leaves(touched, reserved)
        else:
            meets = touched.meets(beside.touched)
        if meets:
            return "changes under way touch what it does"
        if unknown := beside.unknown(plan, self._reach.unconfirmed()):
            return f"what {', '.join(unknown)} has is not known yet"
        if self._network.rest_s(plan.target, self._policy.now.vlan_rest_s):
            return "its VLAN-IDs have to rest first"
        return None

    def plan_beside(
        self, target: NetworkState, who: str, *, takes_over: bool = False
    ) -> Plan | None:
        """The plan that leads to ``target`` beside the changes under way; None if there is nothing
        to do, or ``who`` wants it has to wait for its turn, as the log says. With ``takes_over``,
        these may leave it what they touch. Raises PlanError.
        """
        plan = self._planning.diff(self._network.state, target)
        if plan.empty:
            return None
        why_not = self.why_not_beside(plan, takes_over=takes_over)
        if why_not is not None:
            LOG.info("%s keeps its turn: %s", who, why_not)
            return None
        return plan

    def move_beside(
        self, entry: Reconfiguration, plan: Plan, *, hurries: bool = False
    ) -> Execution:
        """Carry out a plan of :meth:`plan_beside` between two steps of the changes under way, or
        while they wait. They touch nothing of it, or leave to it what they do. With ``hurries``, as
        :meth:`move`.

        Called by what comes in. If it breaks off, so do they.
        """
        waiting = self._side_by_side.leave(Touched.by(self._fabric, plan))
        if waiting is None:
            raise PlanError("changes under way touch what it does")
        for pairs in waiting:
            LOG.info("%d pairs wait: their ports were given to another reconfiguration", pairs)
        with about(entry.id):
            return self._carry_out(entry, plan, hurries=hurries)

    def go(self, target: NetworkState, trigger: str, reason: str) -> Reconfiguration | None:
        """Enter and :meth:`move`; returns the entry, or None if the network is there already.

        The entry and the log tell why a move fails. Raises JournalError.
        """
        if target == self._network.state:
            return None
        entry = self._log.enter(trigger, reason)
        try:
            self.move(entry, target)
        except JournalError:
            raise  # recorded where it happened
        except HydraError as error:
            self._log.refuse(entry, str(error))
            LOG.error("%s", error)
        return entry

    def _rest(self, rest_s: float) -> None:
        until_s = time.monotonic() + rest_s
        while (left_s := until_s - time.monotonic()) > 0:
            self._runner.run(rest(min(left_s, _LOOK_S)))
            self._look_around()

    def _carry_out(
        self,
        entry: Reconfiguration,
        plan: Plan,
        *,
        gives_way: bool = False,
        hurries: bool = False,
        slow: frozenset[DatapathId] = frozenset(),
    ) -> Execution:
        beside = self._network.under_way
        execution = Execution(
            self._fabric,
            self._policy.now,
            plan,
            self._reach.conditions(),
            self._planning.order_of,
            beside,
            gives_way,
            hurries,
            slow,
        )
        LOG.info(
            "begins%s: %d circuits down, %d up, %d pairs affected%s",
            " beside another change" if beside else "",
            len(plan.disconnect),
            len(plan.connect),
            len(plan.affected),
            self._named(plan.affected),
        )
        started_s = time.monotonic()
        self._log.update(entry.id, started_unix_s=time.time())
        self._network.foretell(plan.disconnect, entry.trigger)
        self._network.begin(execution)
        told = 0
        self._standstills[execution] = Standstill(started_s)

        def break_off_with_others() -> None:
            if (error := self._broken_off_by) is not None:
                self._broken_off_by = None
                raise error

        def on_batch(batch: Batch) -> None:
            nonlocal told
            break_off_with_others()
            LOG.debug(
                "%s: %d commands", batch.step, len(batch.commands), extra={"step": batch.step}
            )
            self._silence.during(execution, drains=batch.step == "drain")
            changes: dict[str, Any] = {"state": execution.state}
            if len(execution.steps) != told:
                told = len(execution.steps)
                changes["timeline"] = _timeline(execution, started_s)
            self._log.update(entry.id, **changes)
            if execution.closed:
                self._upkeep.follow_closed_meanwhile(execution)
            if execution.lets_others_in:
                self._let_in(execution, lambda: 0.0)

        try:
            self._runner.run(execution.run(), on_batch)
            break_off_with_others()  # one that was made during its last step
        except Exception as error:
            self._abandon(entry, execution, error)
            raise
        finally:
            undisturbed = not self._standstills.pop(execution).for_others_s
            self._silence.during(execution, drains=False)
            self._network.end(execution)
            if not self._network.under_way:
                self._broken_off_by = None
            self._upkeep.take_over(execution)
        self._finish(entry, execution, started_s, undisturbed=undisturbed)
        return execution

    def _named(self, pairs: Collection[Pair]) -> str:
        """The first few, in words."""
        named = [pair_named(self._fabric, pair) for pair in sorted(pairs)[:_NAMED]]
        more = [] if len(pairs) <= _NAMED else ["…"]
        return f": {', '.join(named + more)}" if named else ""

    def _abandon(self, entry: Reconfiguration, execution: Execution, error: Exception) -> None:
        """Give up half-way (a journal that can't be written, a defect), and start over.

        Diverted pairs stay so, and work, until the devices have been read again.
        """
        LOG.error("breaks off: %s", error)
        execution.result = resting_beside(execution.result, execution.wanted)
        self._log.update(entry.id, state=ReconfigurationState.FAILED, reason=str(error))
        if execution.state is not ReconfigurationState.QUEUED:
            self._upkeep.start_over(execution)

    def _finish(
        self, entry: Reconfiguration, execution: Execution, started_s: float, *, undisturbed: bool
    ) -> None:
        """``undisturbed``: no other change was made between its steps."""
        outage_s = outage_of(execution) if undisturbed else None
        if outage_s is not None and not execution.failures:
            self._outage_s += _OUTAGE_WEIGHT * (outage_s - self._outage_s)
        self._reservations.finish(
            entry.id,
            state=execution.state,
            timeline=_timeline(execution, started_s),
            epoch=execution.result.epoch,
            rules_pushed=execution.rules_pushed,
            ports_retagged=execution.ports_retagged,
            connected=execution.plan.connect - execution.failures.keys(),
            disconnected=execution.plan.disconnect,
            failures=tuple(
                CircuitFailure(circuit, execution.failures[circuit])
                for circuit in sorted(execution.failures)
            ),
            troubles=execution.troubles,
            unconfirmed=tuple(sorted(execution.unconfirmed)),
            reason=execution.reason or entry.reason,
        )
        LOG.log(
            logging.WARNING if execution.failures or execution.unconfirmed else logging.INFO,
            "ends %s after %.0f ms: %d rules, %d ports%s",
            execution.state.value,
            (time.monotonic() - started_s) * 1000,
            execution.rules_pushed,
            execution.ports_retagged,
            "".join(
                f"; {reason}"
                for reason in sorted({str(failure) for failure in execution.failures.values()})
            ),
            extra={"state": execution.state.value, "epoch": execution.result.epoch},
        )


def outage_of(execution: Execution) -> float | None:
    """Seconds for which it kept moved pairs off circuits; None if it moved none to the end."""
    began = [s.started_s for s in execution.steps if s.name in ("divert", "move")]
    ended = [s.finished_s for s in execution.steps if s.name == "activate"]
    return ended[0] - min(began) if began and ended else None


def _timeline(execution: Execution, started_s: float) -> tuple[StepTiming, ...]:
    return tuple(
        StepTiming(
            step.name,
            step.device,
            (step.started_s - started_s) * 1000,
            (step.finished_s - started_s) * 1000,
            step.note,
        )
        for step in execution.steps
    )


class _Silence:
    """Suspends announcements while circuits drain, whose counters have to stand still."""

    def __init__(self, announcer: Announcer) -> None:
        self._lock = announcer.suspended
        self._draining: set[Execution] = set()

    def during(self, execution: Execution, *, drains: bool) -> None:
        """Note whether a change drains now; another may, while it waits."""
        if drains == (execution in self._draining):
            return
        if drains and not self._draining:
            self._lock.acquire()
        self._draining ^= {execution}
        if not self._draining:
            self._lock.release()
