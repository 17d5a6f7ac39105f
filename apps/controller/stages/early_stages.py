"""Stages beside changes under way, before their turn."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from apps.controller.course_choice import PresentWays
from apps.controller.mover import Mover
from apps.controller.record.ledger import Ledger
from apps.controller.record.network import NetworkRecord
from apps.controller.stages.headroom import Headroom
from apps.controller.stages.staging import Staging
from apps.planning.engine import Planning
from hydra.errors import HydraError
from hydra.forwarding.substrate import substrate_of
from hydra.lifecycle import StagePhase
from hydra.model import Circuit, DatapathId, DemandMatrix, Fabric, NetworkState, Pair, Topology
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.plan import Plan, directions, moving_pairs, pair_of, without
from hydra.reconfiguration.scheduler import Work
from hydra.reconfiguration.stages import Traffic, next_stage
from hydra.reconfiguration.touched import Touched, state_beside, target_without
from hydra.service import Reconfiguration
from hydra.staged_changes import Asker, StagedChange

LOG = logging.getLogger("hydra.staging")


def _nearest(excluded: Touched, start: NetworkState, goal: NetworkState) -> NetworkState:
    """The state nearest to ``goal`` that leaves ``excluded`` unchanged.

    A pair with a path now and in ``goal`` keeps its path until the new path comes. New circuits
    without moving pairs are left out.
    """
    before, wanted = _pairs(start), _pairs(goal)
    while True:
        target = target_without(excluded, start, goal)
        bereft = (before & wanted) - _pairs(target)
        if not bereft:
            break
        excluded |= Touched(pairs=bereft)
    idle = _in_use(goal.topology) - _in_use(target.topology) - start.topology.circuits
    return without(target, idle)


def _pairs(state: NetworkState) -> frozenset[Pair]:
    return frozenset(map(pair_of, state.topology.paths))


def _in_use(topology: Topology) -> frozenset[Circuit]:
    return frozenset(circuit for path in topology.paths for circuit in path.circuits)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a change that can be carried out now."""

    plan: Plan
    goal: NetworkState
    """The state at the end of the whole change."""
    whole: bool
    """True if the plan completes the change."""


class Parts:
    """Finds parts of changes for a begin beside changes under way. For the conductor's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        planning: Planning,
        network: NetworkRecord,
        mover: Mover,
        ways: PresentWays,
        headroom: Headroom,
    ) -> None:
        self._fabric = fabric
        self._policy = policy
        self._planning = planning
        self._network = network
        self._mover = mover
        self._ways = ways
        self._headroom = headroom

    def of(
        self, goal: Topology, ceded: Touched, held: Touched, sent_mbps: DemandMatrix, requester: str
    ) -> Part | None:
        """The part of a change to ``goal`` that can be carried out now, in one step, beside the
        changes under way. None if there is no such part, or if the change named ``requester``
        has to wait.

        The part changes nothing ``ceded`` to or ``held`` by other changes, nothing touched by
        changes under way, and nothing at racks awaited by changes under way. Raises HydraError.
        """
        state, touched = self._network.state, self._mover.beside.touched
        start = state_beside(state, touched)
        toward = target_without(ceded, start, self._planning.toward(start, goal))
        excluded = held | touched | self._at_slow_racks(moving_pairs(start, toward))
        shared = (path for path, vlan in start.vlans.items() if vlan in touched.taken)
        excluded |= Touched(
            pairs=frozenset(pair_of(path) for path in shared if path not in toward.vlans)
        )
        near = _nearest(excluded, start, toward)
        ways = self._ways.now(self._ways.until_s())
        stage = next_stage(start, near, self._traffic(sent_mbps), ways=ways)
        target = stage.target
        if stage.beyond or not _pairs(start) & _pairs(near) <= _pairs(target):
            return None  # in its turn, pairs that lose paths may have detours
        plan = self._mover.beside.plan(target, requester)
        whole = stage.last and target.topology == toward.topology
        return None if plan is None else Part(plan, toward, whole)

    def _at_slow_racks(self, pairs: Collection[Pair]) -> Touched:
        """The given pairs with a rack whose switch is awaited by a change under way."""
        slow = frozenset[DatapathId]().union(
            *(execution.slow for execution in self._network.under_way)
        )
        substrate = substrate_of(self._fabric)
        racks = {
            rack
            for rack in {rack for pair in pairs for rack in pair}
            if any(switch.datapath in slow for switch in substrate.steering(rack))
        }
        return Touched(pairs=frozenset(pair for pair in pairs if not racks.isdisjoint(pair)))

    def _traffic(self, sent_mbps: DemandMatrix) -> Traffic:
        """Traffic, and the electrical network's room beside pairs diverted by changes under way."""
        state, moving = self._network.standing()
        diverted_mbps = np.zeros_like(sent_mbps)
        for a, b in directions(state):
            if (min(a, b), max(a, b)) in moving:
                diverted_mbps[a, b] = sent_mbps[a, b]
        taken_mbps = np.maximum(diverted_mbps.sum(axis=0), diverted_mbps.sum(axis=1))
        remaining_mbps = np.maximum(0.0, self._headroom.electrical_mbps - taken_mbps)
        return Traffic(sent_mbps, remaining_mbps, self._policy.now.divert_share)


class EarlyStages:
    """For the conductor's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        planning: Planning,
        ledger: Ledger,
        mover: Mover,
        ways: PresentWays,
        staging: Staging,
    ) -> None:
        self._network = ledger.network
        self._mover = mover
        self._agenda = staging.agenda
        self._replanning = staging.replanning
        self._progress = staging.progress
        self._parts = Parts(
            fabric=fabric,
            policy=policy,
            planning=planning,
            network=ledger.network,
            mover=mover,
            ways=ways,
            headroom=staging.headroom,
        )
        self._under_way: set[StagedChange] = set()
        """Changes with a stage under way."""
        self._tried: tuple[object, ...] = ()
        """Changes under way, state and waiting changes at the last look."""

    def carry_out(self, entry: Reconfiguration, wanted: Plan, asker: Asker) -> Work[None] | None:
        """Carry out a part of a plan, or all, beside the changes under way, if possible.

        Changes under way keep the elements touched by them, and the racks awaited by them; so do
        other changes with stages ahead. If a rest is left, or the whole has no room at a time, the
        part is the first stage of a change. :meth:`next_stage` makes the next stages, or
        :meth:`Staging.go_on` in the change's turn. None if no part is possible now. Raises
        HydraError.
        """
        goal, sent_mbps = wanted.target.topology, asker.sent_mbps()
        change = self._progress.begun(entry, goal, asker, sent_mbps, phase=StagePhase.BEGUN_BESIDE)
        part = self._part_of(change, change.goal)
        if part is None:
            return None
        return self._whole(change, part) if part.whole else self._move(change, part)

    def next_stage(self) -> Work[None] | None:
        """Carry out the next stage of a waiting change beside a change slowed by switches; None if
        there is none.

        A stage waits for its turn if it touches the slow change, would wait for the same switches,
        would be refused now, or does not pay. A change that goes at the slow pace waits, too.
        """
        under_way = self._network.under_way
        if not under_way[-1].slow:
            return None
        waiting = [
            staged_change
            for staged_change in self._agenda
            if staged_change.only_waits_for_turn
            and not staged_change.makes_up
            and staged_change not in self._under_way
        ]
        looked_at = (
            under_way,
            self._network.state,
            [staged_change.entry.id for staged_change in waiting],
        )
        if looked_at == self._tried:
            return None
        self._tried = looked_at
        return next(filter(None, map(self._continue, waiting)), None)

    def _continue(self, change: StagedChange) -> Work[None] | None:
        begun = change.phase is StagePhase.BEGUN_BESIDE
        try:
            why = "other changes of the network meanwhile" if begun else ""
            replanned = self._replanning.planned_anew(change, why)
            if replanned is not None and replanned.plan is None:
                return None
            plan = None if replanned is None else replanned.plan
            goal = change.goal if plan is None else plan.target.topology
            part = self._part_of(change, goal)
        except HydraError as error:
            LOG.debug("reconfiguration %s waits for its turn: %s", change.entry.id, error)
            return None
        if part is None:
            return None
        if replanned is not None and plan is not None:
            with self._progress.ending_with(change):
                self._replanning.adopt(change, replanned, plan)
        return self._move(change, part)

    def _part_of(self, change: StagedChange, goal: Topology) -> Part | None:
        """The part of a change to ``goal`` that can be carried out beside the changes under way.
        Raises HydraError.
        """
        state = self._network.state
        held = Touched(pairs=change.put_off) | self._agenda.held_by_others(change, state)
        requester, sent_mbps = f"reconfiguration {change.entry.id}", change.sent_now(state)
        return self._parts.of(goal, self._agenda.theirs(change, state), held, sent_mbps, requester)

    async def _whole(self, change: StagedChange, part: Part) -> None:
        """Carry out a whole change, beside changes under way."""
        done = await self._mover.moving_beside(change.entry, part.plan, hurries=True)
        self._progress.note_whole(change, done)

    async def _move(self, change: StagedChange, part: Part) -> None:
        """Carry out a stage beside changes under way. The rest of the change keeps its turn."""
        with self._progress.ending_with(change), self._at_work(change):
            if part.whole:
                self._agenda.drop(change)
            entry = change.entry if part.whole else self._progress.enter_stage(change)
            done = await self._mover.moving_beside(entry, part.plan, hurries=True)
            if part.whole:
                self._progress.note_last(change, done)
            else:
                self._progress.note_stage(change, done)
                plan, state = part.plan, self._network.state
                change.put_off_unmoved(plan.affected, state, plan.target, part.goal)

    @contextmanager
    def _at_work(self, change: StagedChange) -> Iterator[None]:
        """Begin no other stage of the change meanwhile."""
        self._under_way.add(change)
        try:
            yield
        finally:
            self._under_way.remove(change)
