"""Staged changes: the stages ahead of each change, and the parts left to other changes.

Several changes may be under way, and interleave between stages. If two changes want the same pair
or port, the later change gets the pair or port, and the earlier change leaves it alone. All changes
leave the results of other changes alone.

The phases of a change are in :mod:`hydra.lifecycle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
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
from hydra.reconfiguration.change_result import ChangeResult
from hydra.reconfiguration.plan import Pair, Plan, directions, moving_pairs, pair_of
from hydra.reconfiguration.touched import Touched, target_without
from hydra.reservations.reservation import Pin
from hydra.service import Reconfiguration


@dataclass(frozen=True, slots=True)
class Asker:
    """Callbacks to the client of a change between stages."""

    sent_mbps: Callable[[], DemandMatrix | None]
    """Present traffic from rack to rack; None if no traffic is measured."""
    plan: Callable[[], Plan | None] | None
    """Plan the change anew for the present demand; None: the change would not pay any more. Raises
    HydraError. The callback is None after a restart, when the basis of the plan is unknown.
    """
    wanted_mbps: Callable[[], DemandMatrix | None]
    """Present demand for planning; None: fixed demand from a request."""
    recurs: bool
    """True if the client repeats the change by itself, as in periodic mode."""
    moved: Callable[[ChangeResult, bool], None]
    """Notification of the end of each stage; True with the first."""


@dataclass(slots=True, eq=False)
class StagedChange:
    """A change made in stages."""

    entry: Reconfiguration
    asker: Asker
    goal: Topology
    sent_mbps: DemandMatrix
    """Traffic before the change; stands in for pairs that wait for their turn."""
    on_circuits: frozenset[tuple[RackId, RackId]]
    """Directions (from, to) that were on circuits before the change."""
    pins: tuple[Pin, ...]
    blocked: frozenset[PortId]
    wanted_mbps: DemandMatrix | None
    """Demand that the goal was planned for."""
    expected: int | None
    """Expected number of stages; None: unforeseeable."""
    rank: int
    """Order of the request among all changes: of two conflicting changes, the later has
    precedence.
    """
    phase: StagePhase = StagePhase.MOVING
    turn_has_come: bool = False
    """True if the turn of the next stage has come unused: the change was paused, or waits for
    switches or hours.
    """
    paused: bool = False
    stopped_by: str | None = None
    done: int = 0
    """Number of completed stages."""
    put_off: frozenset[Pair] = frozenset()
    """Pairs that a stage failed to move; the last stage tries again."""
    connected: frozenset[Circuit] = frozenset()
    disconnected: frozenset[Circuit] = frozenset()
    made: Touched = field(default_factory=Touched)
    """Results of other changes since the planning."""
    skipped_switches: frozenset[DatapathId] = frozenset()
    """Switches that the stages did not wait for."""
    late: frozenset[DatapathId] = frozenset()
    """Switches to wait for, until ``late_until_s``; afterwards the change goes at their pace."""
    late_until_s: float = 0.0
    makes_up: bool = False
    """True for a change that completes the rest of another change, without hurry."""

    def enter(self, phase: StagePhase) -> None:
        """Change the phase. Raises LifecycleError for a step outside the transition table."""
        what = f"the stages of reconfiguration {self.entry.id}"
        check_transition(STAGE_TRANSITIONS, self.phase, phase, what)
        self.phase = phase

    @property
    def only_waits_for_turn(self) -> bool:
        """True if only the turn keeps the change from the next stage."""
        waits = self.phase in {StagePhase.QUEUED, StagePhase.BEGUN_BESIDE}
        return waits and not (self.turn_has_come or self.paused or self.stopped_by is not None)

    def sent_now(self, state: NetworkState) -> DemandMatrix:
        """Present traffic; for pairs that wait for their turn, at least the earlier traffic, since
        the electrical network may limit them.
        """
        sent_mbps = self.asker.sent_mbps()
        if sent_mbps is None:
            return self.sent_mbps
        for direction in self.on_circuits - directions(state):
            sent_mbps[direction] = max(sent_mbps[direction], self.sent_mbps[direction])
        return sent_mbps

    def wanted_now(
        self, state: NetworkState, replan_share: float, least_gain_mbps: float
    ) -> tuple[DemandMatrix | None, float | None]:
        """Return (demand to plan for, moved share). The moved share is None if the move is at most
        ``replan_share`` of all demand, or ``least_gain_mbps``.

        Pairs that wait for their turn keep at least the earlier demand: on the electrical network
        they cannot show more.
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
        pairs: AbstractSet[Pair],
        state: NetworkState,
        reached: NetworkState,
        goal: NetworkState,
    ) -> None:
        """Put off the ``pairs`` that a stage failed to move.

        ``state`` is the state of the network, ``reached`` the end of the stage, on the way to
        ``goal``.
        """
        missing = moving_pairs(state, goal) & pairs
        self.put_off |= missing - moving_pairs(reached, goal)

    def rest(self, entry: Reconfiguration, late_until_s: float) -> StagedChange:
        """The change that makes the rest, once the switches left out are there, or at
        ``late_until_s``.
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
            skipped_switches=frozenset(),
            late=self.skipped_switches,
            late_until_s=late_until_s,
            makes_up=True,
            paused=False,
        )


class Agenda:
    """The changes with stages ahead. For a single thread; reading and :meth:`get` are for any
    thread.
    """

    def __init__(
        self, fabric: Fabric, toward: Callable[[NetworkState, Topology], NetworkState]
    ) -> None:
        """``toward``: function from a state and a goal to the state with the goal's topology.
        Raises PlanError.
        """
        self._vlans = fabric.circuit_vlans
        self._toward = toward
        self._changes: dict[str, StagedChange] = {}
        self._last_rank = -1

    def next_rank(self) -> int:
        """Rank of a change requested now."""
        self._last_rank += 1
        return self._last_rank

    def __iter__(self) -> Iterator[StagedChange]:
        return iter(tuple(self._changes.values()))

    def __len__(self) -> int:
        return len(self._changes)

    def get(self, identifier: str) -> StagedChange | None:
        """The change with the given id; None without a stage ahead."""
        return self._changes.get(identifier)

    def put(self, change: StagedChange) -> None:
        """Note that a change has stages ahead."""
        self._changes[change.entry.id] = change

    def drop(self, change: StagedChange) -> None:
        """Note that a change has no stage ahead any more."""
        self._changes.pop(change.entry.id, None)

    def all_but(self, than: StagedChange | None) -> list[StagedChange]:
        """Changes with stages ahead, except ``than``."""
        return [
            staged_change
            for staged_change in self
            if than is None or staged_change.entry.id != than.entry.id
        ]

    # --- ownership -------------------------------------------------------------------------------

    def ahead(self, change: StagedChange, state: NetworkState) -> Touched:
        """Pairs and ports that a change has yet to alter; empty for a change that waits for hours
        and is planned anew then. Pairs that wait for circuits of other pairs count as moving.
        """
        if change.phase is StagePhase.AWAITS_HOURS:
            return Touched()
        return altered(state.topology, change.goal)

    def theirs(self, change: StagedChange, state: NetworkState) -> Touched:
        """Pairs and ports that a change leaves to others: their results, and the goals of later
        changes.
        """
        theirs = change.made
        for other in self.all_but(change):
            if other.rank > change.rank:
                theirs |= self.ahead(other, state)
        return theirs

    def held_by_others(self, change: StagedChange, state: NetworkState) -> Touched:
        """Pairs and ports that all other changes have yet to alter."""
        held = Touched()
        for other in self.all_but(change):
            held |= self.ahead(other, state)
        return held

    def target_of(self, change: StagedChange, state: NetworkState) -> NetworkState:
        """The target state of a change, without the parts of other changes. Raises PlanError."""
        start = self._with_ids_of_its_own(state) if change.late else state
        return target_without(self.theirs(change, state), state, self._toward(start, change.goal))

    def _with_ids_of_its_own(self, state: NetworkState) -> NetworkState:
        """``state`` with all VLANs in use barred for new paths, if at least half of the IDs are
        free. Other changes may then leave VLANs in the meantime without touching the change.
        """
        vlans, in_use = self._vlans, frozenset(state.vlans.values())
        if not state.pool.abounds(vlans, in_use):
            return state
        return replace(state, pool=state.pool.barred(in_use))

    def closed_to(
        self, goal: Topology, change: StagedChange | None, state: NetworkState
    ) -> frozenset[PortId]:
        """Ports whose circuits are closed to detours on the way to ``goal``, the goal of ``change``
        (None: of a new change).

        Other changes take the circuits down, or the change must leave the circuits and their
        traffic alone.
        """
        closed = frozenset[PortId]() if change is None else change.made.ports
        all_but = self.all_but(change)
        ports = altered(state.topology, goal).ports if all_but else frozenset()
        for other in all_but:
            later = change is not None and other.rank > change.rank
            next_ports = self.ahead(other, state).ports
            closed |= next_ports if later else next_ports - ports
        return closed

    def leave_as_it_is(
        self, by: StagedChange, before: NetworkState, after: NetworkState, state: NetworkState
    ) -> list[StagedChange]:
        """Let other changes leave the result of ``by`` alone, the step from ``before`` to
        ``after``. A later change that is planned anew in its turn is exempt.

        Returns the changes with an altered goal.
        """
        made = altered(before.topology, after.topology)
        amended = []
        for change in self.all_but(by):
            if change.phase is StagePhase.BEGUN_BESIDE and change.rank > by.rank:
                continue
            change.made |= made
            with suppress(PlanError):  # meets the other change later
                toward = self._toward(state, change.goal)
                left = target_without(change.made, state, toward).topology
                if left != change.goal:
                    change.goal = left
                    amended.append(change)
        return amended


def altered(now: Topology, goal: Topology) -> Touched:
    """Pairs that move on the way to a goal, and the ports needed."""
    pairs = frozenset(pair_of(path) for path in set(now.paths).symmetric_difference(goal.paths))
    coming = {circuit for path in goal.paths if pair_of(path) in pairs for circuit in path.circuits}
    return Touched(pairs=pairs, ports=_ends(coming | (now.circuits ^ goal.circuits)))


def _ends(circuits: Iterable[Circuit]) -> frozenset[PortId]:
    return frozenset(end for circuit in circuits for end in circuit.ends)
