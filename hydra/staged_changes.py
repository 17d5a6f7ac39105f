"""Changes in stages: what each has ahead of it, and what it leaves to the others.

Several may be on the way at a time, and meet between their stages. Of two changes that want the
same pair or port, the later has it, and the earlier leaves it as it finds it. What a change has
made stays: the others leave that as it is.

A change's phases are in :mod:`hydra.lifecycle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from hydra.errors import PlanError
from hydra.lifecycle import STAGE_TRANSITIONS, StagePhase, check_transition
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
from hydra.reconfiguration.beside import Touched, left_to
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Pair, Plan, directions, moving_pairs, pair_of
from hydra.reservations.reservation import Pin
from hydra.service import Reconfiguration


@dataclass(frozen=True, slots=True)
class Asker:
    """Whose change it is: what has to be asked between stages."""

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


@dataclass(slots=True, eq=False)
class StagedChange:
    """A change that is made a stage at a time."""

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
    phase: StagePhase = StagePhase.MOVING
    turn_has_come: bool = False
    """True if its next stage's turn has come, and could not be used: it was paused, or waits for
    switches or hours."""
    paused: bool = False
    stopped_by: str | None = None
    done: int = 0
    """Stages that have been made."""
    put_off: frozenset[Pair] = frozenset()
    """Pairs that a stage was to move and could not: they have their next turn in the last."""
    connected: frozenset[Circuit] = frozenset()
    disconnected: frozenset[Circuit] = frozenset()
    made: Touched = field(default_factory=Touched)
    """What others have made since it was planned."""
    left_out: frozenset[DatapathId] = frozenset()
    """Switches that its stages have not waited for."""
    late: frozenset[DatapathId] = frozenset()
    """Switches that are waited for before it goes on, until ``late_until_s``, and at whose pace it
    goes then.
    """
    late_until_s: float = 0.0
    makes_up: bool = False
    """True if it makes what another has left: it does not hurry."""

    def enter(self, phase: StagePhase) -> None:
        """Go on to another phase. Raises LifecycleError where the table has no way there."""
        what = f"the stages of reconfiguration {self.entry.id}"
        check_transition(STAGE_TRANSITIONS, self.phase, phase, what)
        self.phase = phase

    @property
    def only_waits_for_turn(self) -> bool:
        """True if nothing else keeps it from its next stage."""
        waits = self.phase in {StagePhase.QUEUED, StagePhase.BEGUN_BESIDE}
        return waits and not (self.turn_has_come or self.paused or self.stopped_by is not None)

    def sent_now(self, state: NetworkState) -> DemandMatrix:
        """Traffic of now, but of pairs that wait for their turn: those send what they can."""
        sent_mbps = self.asker.sent_mbps()
        if sent_mbps is None:
            return self.sent_mbps
        for direction in self.on_circuits - directions(state):
            sent_mbps[direction] = max(sent_mbps[direction], self.sent_mbps[direction])
        return sent_mbps

    def wanted_now(
        self, state: NetworkState, replan_share: float, least_gain_mbps: float
    ) -> tuple[DemandMatrix | None, float | None]:
        """(demand to plan for now, part by which it has moved, or None if that is at most
        ``replan_share`` of all demand, or ``least_gain_mbps``).

        Pairs that wait for their turn want what they did: electrically, they can't show it.
        """
        planned = self.wanted_mbps
        now = None if planned is None else self.asker.wanted_mbps()
        if planned is None or now is None:
            return planned, None
        for direction in self.on_circuits - directions(state):
            now[direction] = max(now[direction], planned[direction])
        moved_mbps, planned_mbps = float(np.abs(now - planned).sum()), float(planned.sum())
        if moved_mbps <= max(replan_share * planned_mbps, least_gain_mbps):
            return planned, None
        return now, moved_mbps / planned_mbps if planned_mbps else 1.0

    def put_off_unmoved(
        self,
        pairs: frozenset[Pair],
        state: NetworkState,
        reached: NetworkState,
        goal: NetworkState,
    ) -> None:
        """Put off those of a stage's ``pairs`` that the stage has not moved, and was to.

        ``state`` is the network's, ``reached`` what the stage led to, on the way to the ``goal``.
        """
        missing = moving_pairs(state, goal) & pairs
        self.put_off |= missing - moving_pairs(reached, goal)

    def rest(self, entry: Reconfiguration, late_until_s: float) -> StagedChange:
        """The change that makes what this one has left, once the switches that it has not waited
        for are there, or ``late_until_s`` has come.
        """
        return replace(
            self,
            entry=entry,
            expected=None,
            done=0,
            phase=StagePhase.QUEUED,
            put_off=frozenset(),
            connected=frozenset(),
            disconnected=frozenset(),
            left_out=frozenset(),
            late=self.left_out,
            late_until_s=late_until_s,
            makes_up=True,
            paused=False,
        )


class Agenda:
    """The changes with stages ahead. For one thread, but reading and :meth:`get` are for any."""

    def __init__(
        self, fabric: Fabric, toward: Callable[[NetworkState, Topology], NetworkState]
    ) -> None:
        """``toward``: the state with a goal's topology, from a state. Raises PlanError."""
        self._vlans = fabric.circuit_vlans
        self._toward = toward
        self._changes: dict[str, StagedChange] = {}
        self._last_rank = -1

    def next_rank(self) -> int:
        """The rank of a change that is asked for now."""
        self._last_rank += 1
        return self._last_rank

    def __iter__(self) -> Iterator[StagedChange]:
        return iter(tuple(self._changes.values()))

    def __len__(self) -> int:
        return len(self._changes)

    def get(self, identifier: str) -> StagedChange | None:
        """The change with this id; None if it has no stage ahead."""
        return self._changes.get(identifier)

    def put(self, change: StagedChange) -> None:
        """Note that a change has stages ahead."""
        self._changes[change.entry.id] = change

    def drop(self, change: StagedChange) -> None:
        """Note that a change has no stage ahead any more."""
        self._changes.pop(change.entry.id, None)

    def others(self, than: StagedChange | None) -> list[StagedChange]:
        """Changes with stages ahead, but for ``than``."""
        return [one for one in self if than is None or one.entry.id != than.entry.id]

    # -- who has what -----------------------------------------------------------------------------

    def ahead(self, change: StagedChange, state: NetworkState) -> Touched:
        """What a change has yet to alter: nothing is known of one that waits for hours, since it is
        planned anew then. Pairs that wait on circuits of others are among those that it moves.
        """
        if change.phase is StagePhase.AWAITS_HOURS:
            return Touched()
        return altered(state.topology, change.goal)

    def theirs(self, change: StagedChange, state: NetworkState) -> Touched:
        """What a change leaves to others: what they have made, and what later ones are to."""
        theirs = change.made
        for other in self.others(change):
            if other.rank > change.rank:
                theirs |= self.ahead(other, state)
        return theirs

    def held_by_others(self, change: StagedChange, state: NetworkState) -> Touched:
        """What all other changes have yet to alter."""
        held = Touched()
        for other in self.others(change):
            held |= self.ahead(other, state)
        return held

    def target_of(self, change: StagedChange, state: NetworkState) -> NetworkState:
        """The state that a change leads to, if it leaves to others what is theirs. Raises
        PlanError.
        """
        start = self._with_ids_of_its_own(state) if change.late else state
        return left_to(self.theirs(change, state), state, self._toward(start, change.goal))

    def _with_ids_of_its_own(self, state: NetworkState) -> NetworkState:
        """``state`` to plan from where no new path is to join a VLAN, if at least half of the IDs
        are free. Others may then leave VLANs meanwhile, and touch nothing of it by that.
        """
        vlans, in_use = self._vlans, frozenset(state.vlans.values())
        if 2 * len(in_use | state.resting) > vlans.last - vlans.first + 1:
            return state
        return replace(state, resting=state.resting | in_use)

    def closed_to(
        self, goal: Topology, change: StagedChange | None, state: NetworkState
    ) -> frozenset[PortId]:
        """Ports whose circuits are for no detour on the way to ``goal``, which is that of
        ``change`` or, with None, of a change that is asked for now.

        Others are to take these circuits down, or the change leaves them, and all on them, as they
        are.
        """
        closed = frozenset[PortId]() if change is None else change.made.ports
        others = self.others(change)
        mine = altered(state.topology, goal).ports if others else frozenset()
        for other in others:
            later = change is not None and other.rank > change.rank
            its = self.ahead(other, state).ports
            closed |= its if later else its - mine
        return closed

    def leave_as_it_is(
        self, by: StagedChange, before: NetworkState, after: NetworkState, state: NetworkState
    ) -> list[StagedChange]:
        """Have other changes leave what ``by`` has made, from ``before`` to ``after``, as it is;
        but for a change that is planned anew in its turn, and was asked for later.

        Returns the changes that have another goal by that.
        """
        made = altered(before.topology, after.topology)
        amended = []
        for change in self.others(by):
            if change.phase is StagePhase.BEGUN_BESIDE and change.rank > by.rank:
                continue
            change.made |= made
            with suppress(PlanError):  # of the other change, which meets it when it goes on
                toward = self._toward(state, change.goal)
                left = left_to(change.made, state, toward).topology
                if left != change.goal:
                    change.goal = left
                    amended.append(change)
        return amended


def altered(now: Topology, goal: Topology) -> Touched:
    """Pairs that move on the way to a goal, and ports that it needs for that."""
    pairs = frozenset(pair_of(path) for path in set(now.paths).symmetric_difference(goal.paths))
    coming = {one for path in goal.paths if pair_of(path) in pairs for one in path.circuits}
    return Touched(pairs, _ends(coming | (now.circuits ^ goal.circuits)))


def _ends(circuits: Iterable[Circuit]) -> frozenset[PortId]:
    return frozenset(end for circuit in circuits for end in circuit.ends)
