"""Large changes, a stage at a time; what others ask for comes in between.

:mod:`hydra.reconfiguration.stages` cuts a change. Each stage is a reconfiguration of its own and a
job of its own, so that a lost circuit or a reservation waits for the stage under way and no longer.
Before each, the rest is looked at again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from apps.controller.beside import Beside, Part
from apps.controller.mover import Mover
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.planning.engine import Planning
from apps.process.logs import about
from hydra.errors import HydraError, LifecycleError, PlanError
from hydra.forwarding.substrate import substrate_of
from hydra.hours import Hours
from hydra.journal import JournalError
from hydra.journal_format import Unfinished
from hydra.lifecycle import ReconfigurationState
from hydra.model import (
    Circuit,
    DatapathId,
    DemandMatrix,
    Fabric,
    NetworkState,
    PortId,
    RackId,
    Topology,
)
from hydra.policy import Beyond, CurrentPolicy
from hydra.reconfiguration.beside import Touched, left_to
from hydra.reconfiguration.detours import Detours
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import (
    Pair,
    Plan,
    directions,
    hold,
    moving_pairs,
    pair_of,
    paths_by_pair,
)
from hydra.reconfiguration.stages import Stage, Traffic, next_stage, stages
from hydra.reservations.reservation import Pin
from hydra.service import Reconfiguration

LOG = logging.getLogger("hydra.staging")


def _minute_of_day() -> int:
    now = time.localtime()
    return 60 * now.tm_hour + now.tm_min


def _touched(state: NetworkState, goal: Topology) -> frozenset[Circuit]:
    """Circuits that come or go on the way."""
    return state.topology.circuits ^ goal.circuits


def _altered(now: Topology, goal: Topology) -> Touched:
    """Pairs that move on the way to a goal, and ports that it needs for that."""
    pairs = frozenset(pair_of(path) for path in set(now.paths).symmetric_difference(goal.paths))
    coming = {one for path in goal.paths if pair_of(path) in pairs for one in path.circuits}
    return Touched(pairs, _ends(coming | (now.circuits ^ goal.circuits)))


def _ends(circuits: Iterable[Circuit]) -> frozenset[PortId]:
    return frozenset(end for circuit in circuits for end in circuit.ends)


@dataclass(frozen=True, slots=True)
class Asker:
    """Whose change it is: what staging has to ask."""

    sent_mbps: Callable[[], DemandMatrix | None]
    """Traffic of now from rack to rack; None: nobody measures it."""
    plan: Callable[[], Plan | None] | None
    """The change planned anew, for what there is to plan with now; None: it would not pay any more.
    Raises HydraError. None after a restart, when what it was planned for is not known any more."""
    wanted_mbps: Callable[[], DemandMatrix | None]
    """Demand of now that plans are made for; None: it does not move, since somebody gave it."""
    recurs: bool
    """True if it is asked for again by itself, as periodic changes are."""
    moved: Callable[[Execution, bool], None]
    """Told of each stage's end; True with the first."""


@dataclass(slots=True)
class _Change:
    entry: Reconfiguration
    asker: Asker
    goal: Topology
    sent_mbps: DemandMatrix
    """Traffic before the change, by which those count who wait for their turn."""
    on_circuits: frozenset[tuple[RackId, RackId]]
    """Traffic that was on circuits then, as (from, to)."""
    pins: tuple[Pin, ...]
    blocked: frozenset[PortId]
    wanted_mbps: DemandMatrix | None
    """Demand that the goal was planned for."""
    expected: int | None
    """Stages in all, as foreseen; None: more than that."""
    rank: int
    """Place among all in which they were asked for: of two that want the same, the later has it."""
    done: int = 0
    put_off: frozenset[Pair] = frozenset()
    """Pairs that a stage was to move and could not: they have their next turn in the last."""
    connected: frozenset[Circuit] = frozenset()
    disconnected: frozenset[Circuit] = frozenset()
    made: Touched = field(default_factory=Touched)
    """What others have made since it was planned."""
    stopped_by: str | None = None
    paused: bool = False
    waits: bool = False
    """True if its next stage's turn has come, and it was paused, or waits for hours."""
    left_out: frozenset[DatapathId] = frozenset()
    """Switches that its stages have not waited for."""
    late: frozenset[DatapathId] = frozenset()
    """Switches that are waited for before it goes on, until ``late_until_s``, and at whose pace it
    goes then.
    """
    late_until_s: float = 0.0
    makes_up: bool = False
    """True if it makes what another has left: it does not hurry."""
    queued: bool = False
    """True if its next stage has its turn among the jobs."""
    for_turn: bool = False
    """True if its first stage was made beside another change, before its turn: what is left has
    that, and is planned anew then.
    """
    for_hours: bool = False
    """True if there is no room for its next stage, and it waits for ``policy.beyond_hours``. Others
    may change the network meanwhile."""

    @property
    def only_waits_for_turn(self) -> bool:
        """True if nothing else keeps it from its next stage."""
        kept = self.paused or self.for_hours or self.stopped_by is not None
        return (self.queued or self.for_turn) and not kept


@dataclass(frozen=True, slots=True)
class _Anew:
    """A change planned anew."""

    why: str
    plan: Plan | None
    """None: it does not pay any more."""
    pins: tuple[Pin, ...]
    blocked: frozenset[PortId]
    wanted_mbps: DemandMatrix | None


class Staging:
    """For the conductor's thread; :meth:`foresee`, :meth:`changes_of`, :meth:`stop` and
    :meth:`pause` are for any.
    """

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        planning: Planning,
        ledger: Ledger,
        reach: Reach,
        mover: Mover,
        put: Callable[[Callable[[], None]], None],
        minute_of_day: Callable[[], int] = _minute_of_day,
    ) -> None:
        self._fabric = fabric
        self._policy = policy
        self._planning = planning
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reach = reach
        self._mover = mover
        self._put = put
        self._minute_of_day = minute_of_day
        substrate = substrate_of(fabric)
        self._electrical_mbps = np.array(
            [substrate.electrical_mbps(rack) for rack in fabric.racks], dtype=np.float64
        )
        self._beside = Beside(
            fabric, policy, planning, ledger.network, mover, self._electrical_mbps
        )
        self._changes: dict[str, _Change] = {}
        """Changes with stages ahead, by the whole's id."""
        self._ranks = count()
        self._tried_beside: tuple[object, ...] = ()
        """What was last looked at between the steps of changes, with these."""

    @property
    def under_way(self) -> bool:
        """True between the stages of a change, unless that waits for hours."""
        return any(not change.for_hours for change in self._changes.values())

    def stop(self, entry: Reconfiguration, by: str) -> None:
        """End a change after the stage under way. Raises LifecycleError where none is ahead."""
        change = self._with_stages_ahead(entry, "stopped")
        change.stopped_by = by
        self._put(lambda: self._go_on_if_it_waits(change))

    def pause(self, entry: Reconfiguration, paused: bool) -> None:
        """Begin no further stage, or go on. Raises LifecycleError where none is ahead, and
        JournalError.
        """
        change = self._with_stages_ahead(entry, "paused")
        before, change.paused = change.paused, paused
        try:
            self._journal(change)
        except JournalError:
            change.paused = before
            raise
        if entry.id not in self._changes:  # it has ended meanwhile
            self._log.note_finished(entry.id)
            return
        self._log.update(entry.id, paused=paused)
        self._put(lambda: self._go_on_if_it_waits(change))

    def _with_stages_ahead(self, entry: Reconfiguration, what: str) -> _Change:
        change = self._changes.get(entry.id)
        if change is None:
            raise LifecycleError(
                f"reconfiguration {entry.id} has no stage ahead of it (it is {entry.state.value}): "
                f"only a change in stages can be {what}, before its last one"
            )
        return change

    def changes_of(self, a: RackId, b: RackId) -> list[str]:
        """Changes with stages ahead, and what they have left for two racks, in words."""
        pair = (min(a, b), max(a, b))
        standing = set(paths_by_pair(self._network.state).get(pair, ()))
        lines = []
        for change in tuple(self._changes.values()):
            entry = self._log.reconfiguration(change.entry.id)
            goal = {path for path in change.goal.paths if pair_of(path) == pair}
            if pair in self._theirs(change).pairs:
                goal = standing
            stays = "leaves their paths as they are"
            of = f" of about {entry.stages_expected}" if entry.stages_expected else ""
            lines.append(
                f"reconfiguration {entry.id}, asked for by {entry.trigger}, has made "
                f"{entry.stages_done}{of} stages{', and is paused' if entry.paused else ''}; what "
                f"is left {stays if goal == standing else 'gives them other paths'}"
                + (f"; it {entry.reason}" if change.for_hours else "")
            )
        return lines

    def foresee(self, plan: Plan, sent_mbps: DemandMatrix | None) -> tuple[Stage, ...]:
        """The stages of a plan with this traffic; none if nobody measures it.

        After ``policy.planning_budget_ms``, the last that is foreseen is not the plan's last.
        """
        if sent_mbps is None or plan.empty:
            return ()
        ends_s = time.monotonic() + self._policy.now.planning_budget_ms / 1000
        ahead: list[Stage] = []
        traffic = self._traffic(sent_mbps)
        detours = self._detours(self._closed_to(plan.target.topology, None))
        for stage in stages(plan.current, plan.target, traffic, detours):
            ahead.append(stage)
            if time.monotonic() > ends_s:
                break
        return tuple(ahead)

    def carry_out(self, entry: Reconfiguration, plan: Plan, asker: Asker) -> None:
        """Move the network to the plan's target: at once if that fits, else a stage at a time.

        The entry ends with the last stage. Raises HydraError where the first one can't be begun, or
        broke off; the ledger's entry says so too.
        """
        sent_mbps = asker.sent_mbps()
        ahead = self.foresee(plan, sent_mbps)
        late = self._is_too_early(ahead) and not asker.recurs
        if not late:
            try:
                self._refuse_beyond(ahead)
            except PlanError as error:
                self._log.refuse(entry, str(error))
                raise
        if sent_mbps is None or not ahead or (ahead[0].last and not late):
            self._warn_of(ahead)
            change = self._begun(entry, plan, asker, sent_mbps, ahead)
            execution = self._mover.move(entry, plan.target, plan, gives_way=True, hurries=True)
            self._is_whole(change, execution)
            return
        change = self._begun(entry, plan, asker, sent_mbps, ahead)
        if late:
            self._wait_for_hours(change, ahead)
            return
        with about(entry.id):
            LOG.info(
                "takes %d stages%s: all at once would divert too much",
                len(ahead),
                "" if change.expected else " and more",
            )
        with self._ending_with(change):
            self._move(change, ahead[0], plan.target)

    def carry_out_beside(
        self, entry: Reconfiguration, wanted: Plan, asker: Asker, begin: Callable[[], None]
    ) -> bool:
        """Make what can be made of a plan beside changes under way, and call ``begin`` before; True
        if the network was changed.

        They keep what they touch, and the racks that they wait for; so do others with stages ahead.
        If something is left, or there is no room for all of it at a time, this is the first stage
        of a change. The next are made by :meth:`beside`, or in its turn by :meth:`go_on`. Raises
        HydraError.
        """
        change = self._begun(entry, wanted, asker, asker.sent_mbps(), ())
        change.for_turn = True
        part = self._part_of(change, change.goal)
        if part is None:
            return False
        begin()
        if part.whole:
            execution = self._mover.move_beside(entry, part.plan, hurries=True)
            self._is_whole(change, execution)
        else:
            with self._ending_with(change):
                self._move_beside(change, part)
        return True

    def beside(self) -> bool:
        """Make the next stage of a change, as far as that can be made beside one that goes at the
        pace of slow switches; True if the network was changed.

        What that touches, or would have to wait for the same switches, has its turn, and so has all
        that would be refused now, or does not pay. So have changes that go at that pace themselves.
        """
        under_way = self._network.under_way
        if not under_way[-1].slow:
            return False
        waiting = [
            one for one in self._changes.values() if one.only_waits_for_turn and not one.makes_up
        ]
        looked_at = (under_way, self._network.state, [one.entry.id for one in waiting])
        if looked_at == self._tried_beside:
            return False
        self._tried_beside = looked_at
        return any(map(self._go_on_beside, waiting))

    def _go_on_beside(self, change: _Change) -> bool:
        why = "others change the network meanwhile" if change.for_turn else ""
        try:
            anew = self._planned_anew(change, why)
            if anew is not None and anew.plan is None:
                return False
            plan = None if anew is None else anew.plan
            goal = change.goal if plan is None else plan.target.topology
            part = self._part_of(change, goal)
        except HydraError as error:
            LOG.debug("reconfiguration %s keeps its turn: %s", change.entry.id, error)
            return False
        if part is None:
            return False
        with self._ending_with(change):
            if anew is not None and plan is not None:
                self._adopt(change, anew, plan)
            self._move_beside(change, part)
        return True

    def _part_of(self, change: _Change, goal: Topology) -> Part | None:
        """What can be made of a change with this goal beside those under way. Raises HydraError."""
        held = Touched(change.put_off)
        for other in self._others(change.entry.id):
            held |= self._ahead(other)
        who, sent_mbps = f"reconfiguration {change.entry.id}", self._sent_mbps(change)
        return self._beside.part_of(goal, self._theirs(change), held, sent_mbps, who)

    def _move_beside(self, change: _Change, part: Part) -> None:
        """Carry out a stage beside changes under way. What is left keeps the turn that it has."""
        if part.whole:
            self._changes.pop(change.entry.id, None)
        entry = change.entry if part.whole else self._enter_stage(change)
        execution = self._mover.move_beside(entry, part.plan, hurries=True)
        if part.whole:
            self._note_last(change, execution)
        else:
            self._note_stage(change, execution)
            self._put_off(change, part.plan.affected, part.plan.target, part.goal)

    def go_on(self, entry: Reconfiguration) -> None:
        """Go on in its turn with a change that was begun beside another, if it has stages left."""
        change = self._changes.get(entry.id)
        if change is not None:
            self._go_on(change)

    def _begun(
        self,
        entry: Reconfiguration,
        plan: Plan,
        asker: Asker,
        sent_mbps: DemandMatrix | None,
        ahead: tuple[Stage, ...],
    ) -> _Change:
        return _Change(
            entry,
            asker,
            plan.target.topology,
            self._measured(sent_mbps),
            directions(plan.current),
            self._bookings.pins(),
            self._reach.blocked_ports(),
            None if sent_mbps is None else asker.wanted_mbps(),
            len(ahead) if ahead and ahead[-1].last else None,
            next(self._ranks),
        )

    def _measured(self, sent_mbps: DemandMatrix | None) -> DemandMatrix:
        """Traffic, or none where nobody measures it."""
        return np.zeros((len(self._fabric.racks),) * 2) if sent_mbps is None else sent_mbps

    def _is_whole(self, change: _Change, execution: Execution) -> None:
        """Note that a change was made in one."""
        change.left_out |= execution.late
        change.asker.moved(execution, True)
        self._leave_as_it_is(execution, change)
        self._see_to_the_rest(change, execution)

    def _see_to_the_rest(self, change: _Change, execution: Execution) -> None:
        """Go on, as another change, with what the last stage has left to others, or has left out
        since switches were late.

        One that recurs is planned anew by the next decision.
        """
        there, late = execution.result.topology == execution.wanted.topology, change.left_out
        if change.asker.recurs or (execution.left is None and (there or not late)):
            return
        before = change.entry
        why = "it gave way to others" if execution.left else "switches were late"
        entry = self._log.enter(before.trigger, f"what {before.id} could not do, since {why}")
        rest = replace(change, entry=entry, expected=None, done=0, put_off=frozenset())
        rest.left_out, rest.late, rest.makes_up = frozenset(), late, True
        rest.paused = False
        rest.late_until_s = time.monotonic() + self._policy.now.timeouts.vswitch_s
        rest.connected = rest.disconnected = frozenset()
        self._changes[entry.id] = rest
        with suppress(JournalError), self._ending_with(rest):  # what has been made is made
            self._journal(rest)
            self._queue(rest)

    def _waits_for_late(self, change: _Change) -> bool:
        """True while switches that were late may still answer, or are about to be brought to the
        state, since they have.
        """
        missing = change.late - self._reach.ready_switches()
        if time.monotonic() >= change.late_until_s:
            missing &= self._reach.soon_ready()
        return bool(missing)

    def _others(self, than: str) -> list[_Change]:
        """Changes with stages ahead, but for the one with this id."""
        return [one for one in tuple(self._changes.values()) if one.entry.id != than]

    def _leave_as_it_is(self, execution: Execution, by: _Change) -> None:
        """Have other changes with stages ahead leave what this one has made as it is; but for one
        that is planned anew in its turn, and was asked for later.
        """
        before, after = execution.plan.current, execution.result
        made = _altered(before.topology, after.topology)
        state = self._network.state
        for change in self._others(by.entry.id):
            if change.for_turn and change.rank > by.rank:
                continue
            change.made |= made
            with suppress(PlanError):  # of the other change, which meets it when it goes on
                toward = self._planning.toward(state, change.goal)
                left = left_to(change.made, state, toward).topology
                if left != change.goal:
                    change.goal = left
                    self._journal(change)

    def _ahead(self, change: _Change) -> Touched:
        """What a change has yet to alter: nothing is known of one that waits for hours, since it is
        planned anew then. Pairs that wait on circuits of others are among those that it moves.
        """
        if change.for_hours:
            return Touched()
        return _altered(self._network.state.topology, change.goal)

    def _theirs(self, change: _Change) -> Touched:
        """What a change leaves to others: what they have made, and what later ones are to."""
        theirs = change.made
        for other in self._others(change.entry.id):
            if other.rank > change.rank:
                theirs |= self._ahead(other)
        return theirs

    def _left_to_others(self, change: _Change) -> NetworkState:
        """The state that a change leads to, if it leaves to others what is theirs."""
        state = self._network.state
        start = self._with_ids_of_its_own(state) if change.late else state
        return left_to(self._theirs(change), state, self._planning.toward(start, change.goal))

    def _with_ids_of_its_own(self, state: NetworkState) -> NetworkState:
        """``state`` to plan from where no new path is to join a VLAN, if at least half of the IDs
        are free. Others may then leave VLANs meanwhile, and touch nothing of it by that.
        """
        vlans, in_use = self._fabric.circuit_vlans, frozenset(state.vlans.values())
        if 2 * len(in_use | state.resting) > vlans.last - vlans.first + 1:
            return state
        return replace(state, resting=state.resting | in_use)

    def _closed_to(self, goal: Topology, change: _Change | None) -> frozenset[PortId]:
        """Ports whose circuits are for no detour on the way to this goal, which is that of
        ``change`` or, with None, of one that is asked for now.

        Others are to take these circuits down, or the change leaves them, and all on them, as they
        are.
        """
        closed = frozenset[PortId]() if change is None else change.made.ports
        others = self._others("" if change is None else change.entry.id)
        mine = _altered(self._network.state.topology, goal).ports if others else frozenset()
        for other in others:
            later = change is not None and other.rank > change.rank
            its = self._ahead(other).ports
            closed |= its if later else its - mine
        return closed

    def _refuse_beyond(self, ahead: tuple[Stage, ...]) -> None:
        """Raise PlanError if a stage diverts more than there is room for, and may not now."""
        policy = self._policy.now
        if not any(one.beyond for one in ahead):
            return
        told = f"the electrical network has no room for what is diverted: {self._told(ahead)}"
        if policy.beyond_room is Beyond.REFUSE:
            raise PlanError(f"{told}; wait for less traffic, or set policy.beyond_room to announce")
        if self._is_too_early(ahead):
            raise PlanError(f"{told}; policy.beyond_hours are {policy.beyond_hours}")

    def _is_too_early(self, ahead: tuple[Stage, ...]) -> bool:
        """True if a stage diverts more than there is room for, and is to wait for hours."""
        return (
            self._policy.now.beyond_room is Beyond.AT_HOURS
            and any(one.beyond for one in ahead)
            and not self._has_hours
        )

    def _wait_for_hours(self, change: _Change, ahead: tuple[Stage, ...]) -> None:
        change.waits = change.for_hours = True
        self._changes[change.entry.id] = change
        self._journal(change)
        reason = f"waits for {self._policy.now.beyond_hours}: no room now at {self._told(ahead)}"
        LOG.warning("%s", reason, extra={"reconfiguration": change.entry.id})
        self._log.update(change.entry.id, reason=reason)
        self._log.note_course(change.entry.id, reason, _touched(self._network.state, change.goal))

    def keep_time(self) -> None:
        """Go on with changes whose hours have come, or that need not wait any more: a duty."""
        waiting = [one for one in self._changes.values() if one.waits and not one.for_hours]
        for change in waiting:
            if change.late:
                self._go_on(change)
        if self._policy.now.beyond_room is Beyond.AT_HOURS and not self._has_hours:
            return
        for change in [one for one in self._changes.values() if one.for_hours and not one.paused]:
            self._go_on(change)

    @property
    def _has_hours(self) -> bool:
        """True in ``policy.beyond_hours``."""
        return Hours.parse(self._policy.now.beyond_hours).has(self._minute_of_day())

    def _warn_of(self, ahead: tuple[Stage, ...]) -> None:
        if any(one.beyond for one in ahead):
            LOG.warning(
                "diverts more than the electrical network has room for: %s", self._told(ahead)
            )

    def _told(self, ahead: tuple[Stage, ...]) -> str:
        """Racks without room, and by how much."""
        most: dict[RackId, float] = {}
        for stage in ahead:
            for rack, mbps in stage.beyond.items():
                most[rack] = max(most.get(rack, 0.0), mbps)
        racks = self._fabric.racks
        return ", ".join(
            f"{racks[rack].name} by {mbps:.3g} Mb/s" for rack, mbps in sorted(most.items())
        )

    def _journal(self, change: _Change) -> None:
        """Write what is left of it, so that it goes on after a restart. Raises JournalError."""
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

    # -- after a restart --------------------------------------------------------------------------

    def resume(
        self, unfinished: Unfinished, asker: Asker, sent_mbps: DemandMatrix | None
    ) -> Reconfiguration:
        """Go on with a change that a restart has cut off, unless something contradicts it.

        Without a measurement of traffic there are no stages to go on with.
        """
        done = unfinished.stages_done
        entry = self._log.enter(
            unfinished.trigger, f"goes on after a restart, with stage {done + 1}", unfinished.id
        )
        change = _Change(
            entry,
            asker,
            unfinished.goal,
            self._measured(sent_mbps),
            directions(self._network.state),
            self._bookings.pins(),
            self._reach.blocked_ports(),
            None if sent_mbps is None else asker.wanted_mbps(),
            None,
            next(self._ranks),
            done=done,
            paused=unfinished.paused,
        )
        self._log.update(entry.id, stages_done=done, stages_expected=None, paused=change.paused)
        why = "nobody measures traffic" if sent_mbps is None else self._contradiction(unfinished)
        if why is not None:
            then = "it is planned anew by the next decision" if asker.recurs else "ask for it anew"
            why = f"does not go on after a restart: {why}; {then}"
            self._log.note_course(entry.id, why, _touched(self._network.state, change.goal))
            self._end(change, why)
            return entry
        self._log.note_course(entry.id, entry.reason, _touched(self._network.state, change.goal))
        self._changes[entry.id] = change
        self._queue(change)
        return entry

    def _contradiction(self, unfinished: Unfinished) -> str | None:
        """The reason why the goal can't be gone on with, or None."""
        if not unfinished.whole:
            return "the fabric has a part of what it leads to no more"
        goal, standing = unfinished.goal, self._network.state.topology.circuits
        ends = {end for circuit in goal.circuits - standing for end in circuit.ends}
        if not ends.isdisjoint(self._reach.blocked_ports()):
            return "ports that it needs are set aside"
        if any(
            pin.path is not None and pin.path not in goal.paths for pin in self._bookings.pins()
        ):
            return "there are other reservations than it was planned with"
        return None

    # -- between stages ---------------------------------------------------------------------------

    def _queue(self, change: _Change) -> None:
        """Have its next stage made in its turn, unless it has come to its end by then."""
        change.queued = True

        def take_turn() -> None:
            change.queued = False
            if self._changes.get(change.entry.id) is change:
                self._go_on(change)

        self._put(take_turn)

    def _go_on_if_it_waits(self, change: _Change) -> None:
        if change.waits:
            self._go_on(change)

    def _go_on(self, change: _Change) -> None:
        if change.stopped_by is not None:
            change.waits = False
            self._end(change, f"stopped by {change.stopped_by}")
            return
        change.waits = change.paused or self._waits_for_late(change)
        if change.waits:
            return
        had_hours, change.for_hours = change.for_hours, False
        why = "its hours have come" if had_hours else "its turn has come" if change.for_turn else ""
        change.for_turn = False
        try:
            with self._ending_with(change):
                if not self._look_again(change, why):
                    return
                if had_hours:  # it was planned beside what they have made, and is asked for now
                    change.made, change.rank = Touched(), next(self._ranks)
                state = self._network.state
                goal = self._left_to_others(change)
                near = hold(state, goal, change.put_off, ()) if change.put_off else goal
                traffic = self._traffic(self._sent_mbps(change))
                detours = self._detours(self._closed_to(goal.topology, change))
                stage = next_stage(state, near, traffic, detours)
                if self._is_too_early((stage,)) and not change.asker.recurs:
                    self._wait_for_hours(change, (stage,))
                    return
                self._refuse_beyond((stage,))
                self._move(change, stage, goal)
        except JournalError:
            raise  # recorded where it happened
        except HydraError:
            return  # the whole's entry says so

    @contextmanager
    def _ending_with(self, change: _Change) -> Iterator[None]:
        """End the change with whatever error ends the block.

        A defect, too: periodic rounds wait for the end of a change, and would wait for good.
        """
        try:
            yield
        except Exception as error:
            self._end(change, str(error))
            raise

    def _end(self, change: _Change, reason: str) -> None:
        """Note that a change ends here, with what it has made."""
        self._changes.pop(change.entry.id, None)
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

    def _look_again(self, change: _Change, others_came: str) -> bool:
        """Plan anew if there is something else to plan with or for; False if the change ends here.

        ``others_came``: why that is so anyway, since others may have changed the network.
        """
        anew = self._planned_anew(change, others_came)
        if anew is None:
            return True
        if anew.plan is None:
            self._end(change, f"{anew.why}: what is left does not pay any more")
            return False
        self._adopt(change, anew, anew.plan)
        return True

    def _planned_anew(self, change: _Change, others_came: str) -> _Anew | None:
        """The change planned anew; None if there is nothing else to plan with or for."""
        pins, blocked = self._bookings.pins(), self._reach.blocked_ports()
        wanted_mbps, moved = self._moved_demand(change)
        if (pins, blocked) != (change.pins, change.blocked):
            why = "there are other reservations, or ports to plan with"
        elif moved is not None:
            why = f"demand has moved by {moved:.0%} since it was planned"
        elif others_came and change.asker.plan is not None:
            why = others_came
        else:
            return None
        if change.asker.plan is None:
            raise PlanError(f"{why}, and what it was planned for is not known after a restart")
        return _Anew(why, change.asker.plan(), pins, blocked, wanted_mbps)

    def _adopt(self, change: _Change, anew: _Anew, plan: Plan) -> None:
        """Have a change go on by the plan that was made anew."""
        change.pins, change.blocked, change.wanted_mbps = anew.pins, anew.blocked, anew.wanted_mbps
        before, change.goal = change.goal, plan.target.topology
        what = "goes on as planned" if change.goal == before else "is amended"
        told = f"{anew.why}: {what}"
        self._log.note_course(change.entry.id, told, plan.connect | plan.disconnect)

    def _moved_demand(self, change: _Change) -> tuple[DemandMatrix | None, float | None]:
        """(demand to plan for now, part by which it has moved, or None if that is not enough).

        Pairs that wait for their turn want what they did: electrically, they can't show it.
        """
        planned = change.wanted_mbps
        now = None if planned is None else change.asker.wanted_mbps()
        if planned is None or now is None:
            return planned, None
        for direction in change.on_circuits - directions(self._network.state):
            now[direction] = max(now[direction], planned[direction])
        moved_mbps = float(np.abs(now - planned).sum())
        policy, planned_mbps = self._policy.now, float(planned.sum())
        least_mbps = max(policy.replan_share * planned_mbps, policy.minimum_gain_mbps)
        if moved_mbps <= least_mbps:
            return planned, None
        return now, moved_mbps / planned_mbps if planned_mbps else 1.0

    def _sent_mbps(self, change: _Change) -> DemandMatrix:
        """Traffic of now, but of pairs that wait for their turn: those send what they can."""
        sent_mbps = change.asker.sent_mbps()
        if sent_mbps is None:
            return change.sent_mbps
        waiting = change.on_circuits - directions(self._network.state)
        for direction in waiting:
            sent_mbps[direction] = max(sent_mbps[direction], change.sent_mbps[direction])
        return sent_mbps

    def _move(self, change: _Change, stage: Stage, goal: NetworkState) -> None:
        """Carry out a stage; queue the next, if it is not the last."""
        entry, before = change.entry, self._network.state
        self._warn_of((stage,))
        if stage.last:
            self._changes.pop(entry.id, None)
        else:
            entry = self._enter_stage(change)
        reached = goal if stage.last else stage.target
        execution = self._mover.move(
            entry, reached, gives_way=True, hurries=not change.makes_up, slow=change.late
        )
        if stage.last:
            self._note_last(change, execution)
            return
        self._note_stage(change, execution)
        after = self._network.state
        if execution.left is None:
            self._put_off(change, stage.pairs, stage.target, goal)
        if (after.topology, after.vlans) == (before.topology, before.vlans):
            change.put_off |= moving_pairs(after, goal)  # what is left is one more stage
        self._queue(change)

    def _enter_stage(self, change: _Change) -> Reconfiguration:
        """The next stage of a change that has others ahead, as a reconfiguration of its own."""
        entry = change.entry
        self._changes[entry.id] = change
        self._journal(change)
        number = change.done + 1
        of = f"of about {max(change.expected, number + 1)} " if change.expected else ""
        self._log.update(entry.id, stages_expected=change.expected)
        return self._log.enter(entry.trigger, f"stage {number} {of}of {entry.id}")

    def _put_off(
        self,
        change: _Change,
        pairs: frozenset[Pair],
        reached: NetworkState,
        goal: NetworkState,
    ) -> None:
        """Put off those of a stage's pairs that it has not moved, and was to: it led to the state
        ``reached``, on the way to the goal.
        """
        missing = moving_pairs(self._network.state, goal) & pairs
        change.put_off |= missing - moving_pairs(reached, goal)

    def _note_last(self, change: _Change, execution: Execution) -> None:
        """Note that the last stage was made."""
        entry = change.entry
        self._note_stage(change, execution, last=True)
        self._log.note_finished(entry.id)
        self._log.update(entry.id, connected=change.connected, disconnected=change.disconnected)
        self._see_to_the_rest(change, execution)

    def _note_stage(self, change: _Change, execution: Execution, *, last: bool = False) -> None:
        """Note that a stage was made."""
        change.left_out |= execution.late
        change.asker.moved(execution, change.done == 0 and not change.makes_up)
        self._leave_as_it_is(execution, change)
        change.done += 1
        change.connected |= execution.plan.connect - execution.failures.keys()
        change.disconnected |= execution.plan.disconnect
        self._log.update(change.entry.id, stages_done=change.done)
        if not last:
            self._journal(change)

    def _detours(self, closed_ports: frozenset[PortId]) -> Detours:
        """Detours over no circuit that is reserved, or at one of these ports."""
        pins = self._bookings.pins()
        closed = {one for pin in pins if pin.path is not None for one in pin.path.circuits}
        standing = self._network.state.topology.circuits
        closed.update(one for one in standing if not closed_ports.isdisjoint(one.ends))
        policy = self._policy.now
        ends_s = time.monotonic() + policy.planning_budget_ms / 1000
        return Detours(
            self._fabric,
            policy.max_hops,
            frozenset(closed),
            self._planning.toward,
            lambda: time.monotonic() > ends_s,
        )

    def _traffic(self, sent_mbps: DemandMatrix) -> Traffic:
        return Traffic(sent_mbps, self._electrical_mbps, self._policy.now.divert_share)
