"""Lost circuits: their pairs go electrical at once, and to other paths if possible.

Answers of people at patch panels are handled here, too, as circuits come and go by them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final

from apps.controller.mover import Mover
from apps.controller.patch_panels import PatchPanels
from apps.controller.promises.placement import Placement
from apps.controller.quarantine import Quarantine
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.rejoining import Rejoining
from apps.controller.upkeep import Upkeep
from apps.planning.engine import Planning
from hydra.errors import PlanError
from hydra.faults.surveillance import LostPath
from hydra.lifecycle import ReservationState
from hydra.model import Circuit, DatapathId, NetworkState, Path, RackId
from hydra.reconfiguration.plan import Plan, directions
from hydra.reconfiguration.scheduler import Work
from hydra.reconfiguration.touched import state_beside
from hydra.reservations.reservation import rack_pair
from hydra.roles import TaskState

LOG = logging.getLogger("hydra.controller")
_LOST: Final = "the withdrawal of lost paths"
_Wishes = Mapping[tuple[RackId, RackId], frozenset[str]]
"""Pairs, as (from, to), with the ids of the reservations that alone want a path; empty for a pair
whose path was requested in its own right.
"""
_FIRST_PAUSE_S: Final = 4.0
_LONGEST_PAUSE_S: Final = 60.0
"""Longest pause between attempts to withdraw lost circuits; their pairs are diverted meanwhile."""


class Withdrawals:
    """Methods run in the conductor's thread."""

    def __init__(
        self,
        *,
        planning: Planning,
        ledger: Ledger,
        upkeep: Upkeep,
        quarantine: Quarantine,
        panels: PatchPanels,
        reach: Reach,
        mover: Mover,
        placement: Placement,
        rejoining: Rejoining,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planning, self._upkeep, self._quarantine = planning, upkeep, quarantine
        self._panels, self._reach, self._mover = panels, reach, mover
        self._placement, self._rejoining, self._clock_s = placement, rejoining, clock_s
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations
        self._unwithdrawn: dict[Circuit | Path, str] = {}
        """Lost circuits and paths left by the last attempt to withdraw, with the reasons."""
        self._pause_s = _FIRST_PAUSE_S
        self._retry_s = 0.0
        self._late: frozenset[DatapathId] = frozenset()
        """Switches unusable at the last attempt, as they were yet to be brought to the state."""
        self._diverted: list[LostPath] = []
        """Lost paths whose pairs were diverted while a change was under way."""
        self._tried_beside: tuple[object, ...] = ()
        """Changes under way, state and lost paths at the last look."""
        self._cut: _Wishes = {}
        """Pairs still waiting for other paths."""
        self._withdrew_beside = False
        """True if reservations may lack paths withdrawn beside a change."""

    @property
    def due(self) -> bool:
        """True if :meth:`of_dead_circuits` has something to do."""
        upkeep = self._upkeep
        return bool(upkeep.dead.dark or upkeep.dead.denied or self._unwithdrawn or self._waits)

    @property
    def _waits(self) -> bool:
        """True if pairs are to be given other paths, and were not yet."""
        return bool(self._cut) or self._withdrew_beside or self._placement.awaits_racks

    async def of_dead_circuits(self) -> None:
        """Withdraw circuits that have lost their light or are missing on an optical switch, and
        circuits left by an earlier attempt.
        """
        left = await self._upkeep.dead.leave()
        dead, reason = self._upkeep.dead.find()
        await self._withdraw(dead, reason, left)

    async def after_recovery(self, before: NetworkState) -> None:
        """Plan around circuits of ``before`` found without light by the recovery."""
        unlit, reason = self._upkeep.dead.abandoned_circuits(before)
        if unlit:
            LOG.error("%s", reason)
            self._log.note_loss(unlit)
            cut = {path for path in before.topology.paths if not unlit.isdisjoint(path.circuits)}
            await self._plan_around(self._wishes({way for path in cut for way in path.directions}))
        await self.of_dead_circuits()  # ToRs have connected meanwhile

    async def of_lost_paths(self, lost: Sequence[LostPath]) -> None:
        """Withdraw paths with lost probes, even if there is light."""
        standing = self._standing(lost)
        if standing:
            circuits = frozenset(
                circuit for lost_path in standing for circuit in lost_path.circuits
            )
            reason = "; ".join(lost_path.reason for lost_path in standing)
            ends = {end for circuit in circuits for end in circuit.ends}
            self._quarantine.put(ends, reason, self._network.state.topology.paths)
            await self._withdraw([*circuits, *(lost_path.path for lost_path in standing)], reason)
        elif self._cut:
            await self._plan_around({})

    def divert_meanwhile(self, lost: Sequence[LostPath]) -> None:
        """Divert the pairs of lost paths while a change under way waits; the withdrawal follows."""
        standing = self._standing(lost)
        circuits = {circuit for lost_path in standing for circuit in lost_path.circuits}
        self._upkeep.dead.divert_meanwhile(circuits, [lost_path.path for lost_path in standing])
        self._diverted = [*self._standing(self._diverted), *standing]

    def beside(self) -> Work[None] | None:
        """Withdraw lost paths beside the changes under way, or then give their pairs other paths;
        None if there are none, or if the changes under way touch them.

        Other lost paths are withdrawn in their turn.
        """
        state = self._network.state
        lost = self._standing(self._diverted)
        dark = {circuit for circuit, _ in self._upkeep.dead.dark} | self._upkeep.dead.denied
        dark &= state.topology.circuits
        circuits = frozenset(dark).union(
            circuit for lost_path in lost for circuit in lost_path.circuits
        )
        paths = tuple(lost_path.path for lost_path in lost)
        looked_at = (self._network.under_way, state, circuits, paths, frozenset(self._still_cut()))
        if not (circuits or paths or self._cut) or looked_at == self._tried_beside:
            return None
        self._tried_beside = looked_at
        try:
            if circuits or paths:
                reduced = self._planning.reduced(
                    state_beside(state, self._mover.beside.touched), circuits, paths
                )
                plan = self._mover.beside.plan(reduced, _LOST)
                if plan is not None:
                    return self._withdrawing(plan, circuits, lost, dark)
            else:
                rejoined = self._rejoining.rejoined_beside(self._still_cut())
                plan = self._mover.beside.plan(rejoined, _LOST)
                if plan is not None:
                    return self._rejoining_beside(plan)
        except PlanError as error:
            LOG.debug("%s waits for its turn: %s", _LOST, error)
        return None

    async def _rejoining_beside(self, plan: Plan) -> None:
        entry = self._log.enter("circuit lost", "planned around it")
        await self._mover.moving_beside(entry, plan)
        self._reservations.keep_standing()
        self._cut = self._still_cut()

    async def _withdrawing(
        self,
        plan: Plan,
        circuits: frozenset[Circuit],
        lost: Sequence[LostPath],
        dark: Collection[Circuit],
    ) -> None:
        before = self._wishes(directions(self._network.state))
        reasons = [lost_path.reason for lost_path in lost]
        for lost_path in lost:
            ends = {end for circuit in lost_path.circuits for end in circuit.ends}
            self._quarantine.put(ends, lost_path.reason, self._network.state.topology.paths)
        if dark:
            reasons.append(self._upkeep.dead.find()[1])
        cause = "; ".join(dict.fromkeys(reasons))
        LOG.error("%s", cause)
        self._log.note_loss(circuits)
        await self._mover.moving_beside(self._log.enter("circuit lost", cause), plan)
        self._diverted = self._standing(self._diverted)
        after = self._network.state
        self._unwithdrawn |= dict.fromkeys(frozenset(dark) & after.topology.circuits, cause)
        self._cut = self._still_cut(before)
        self._withdrew_beside = True

    def _standing(self, lost: Sequence[LostPath]) -> list[LostPath]:
        state = self._network.state
        return [
            lost_path for lost_path in lost if state.vlans.get(lost_path.path) == lost_path.vlan
        ]

    async def _withdraw(
        self, lost: Collection[Circuit | Path], why: str, vacated: Collection[Circuit] = ()
    ) -> None:
        """Divert the pairs on lost circuits at once, withdraw the circuits, and plan around them.
        ``vacated``: circuits that traffic has left already.

        If a withdrawal fails, because a vswitch is silent or the journal is full, the pairs stay
        diverted. The withdrawal is retried after ever longer pauses, or when a missing switch is
        back.
        """
        self._unwithdrawn = self._still_standing()
        news = [element for element in lost if element not in self._unwithdrawn]
        self._unwithdrawn |= dict.fromkeys(news, why)
        circuits = [element for element in self._unwithdrawn if isinstance(element, Circuit)]
        paths = [element for element in self._unwithdrawn if isinstance(element, Path)]
        if news:
            LOG.error("%s", why)
            if paths or not set(circuits) <= set(vacated):
                await self._upkeep.dead.divert(circuits, paths)
            self._log.note_loss([circuit for circuit in circuits if circuit in news])
            self._pause_s = _FIRST_PAUSE_S
        elif not self._unwithdrawn or not self._try_again():
            if self._waits:
                await self._plan_around({})
            return
        try:
            before = self._wishes(directions(self._network.state))
            reasons_ = "; ".join(dict.fromkeys(self._unwithdrawn.values()))
            entry = self._log.enter("circuit lost", reasons_)
            await self._mover.move(
                entry, self._planning.reduced(self._network.state, circuits, paths)
            )
            self._unwithdrawn = self._still_standing()  # later circuits may have been set up anew
            await self._plan_around(before)
        finally:
            self._unwithdrawn = self._still_standing()
            self._late = self._upkeep.late_switches()
            self._retry_s = self._clock_s() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _try_again(self) -> bool:
        back = self._late - self._upkeep.late_switches()
        return bool(back) or self._clock_s() >= self._retry_s

    def _still_standing(self) -> dict[Circuit | Path, str]:
        topology = self._network.state.topology
        standing = {*topology.circuits, *topology.paths}
        return {element: why for element, why in self._unwithdrawn.items() if element in standing}

    def _wishes(self, ways: Set[tuple[RackId, RackId]]) -> _Wishes:
        """Users of the paths of pairs, by (from, to); pairs without a user are left out."""
        wishes = self._network.wishes({rack_pair(*ends) for ends in ways})
        return {ends: wishes[pair] for ends in ways if (pair := rack_pair(*ends)) in wishes}

    def _still_cut(self, more: _Wishes = MappingProxyType({})) -> _Wishes:
        """Pairs of :attr:`_cut` and ``more`` without a path, unless the reservations that alone
        wanted one were released or have ended since.
        """
        present = directions(self._network.state)
        return {
            ends: ids
            for ends, ids in {**more, **self._cut}.items()
            if ends not in present and (not ids or self._any_wants(ids))
        }

    def _any_wants(self, ids: Collection[str]) -> bool:
        """True if a reservation among ``ids`` holds bandwidth, or has failed with its circuit."""
        return any(
            reservation.holds_capacity or reservation.state is ReservationState.FAILED
            for reservation in self._bookings.known(ids)
        )

    async def _plan_around(self, before: _Wishes) -> None:
        """Give pairs other paths for lost paths, also beside a change. Pairs with a rack soon to be
        in reach wait until then.
        """
        lost, self._cut = {**before, **self._cut}, {}
        self._withdrew_beside = False
        try:
            if lost.keys() - directions(self._network.state):
                await self._upkeep.devices.read_uncertain()
            awaited = self._reach.awaited_racks()
            await self._placement.restore()
            missing = self._still_cut(lost)
            self._cut = {ends: ids for ends, ids in missing.items() if not awaited.isdisjoint(ends)}
            await self._rejoining.rejoin(missing.keys() - self._cut.keys())
        except Exception:
            self._cut = self._still_cut(lost)
            raise

    async def retry_manual_paths(self) -> None:
        """Bring up paths that waited for people, and replacements for failed paths."""
        settled = self._panels.settled()
        if not settled:
            return
        for path in settled:
            if path.task.state is TaskState.FAILED:
                self._quarantine.put(self._panels.ports_of(path), path.outcome)
        await self._placement.restore()
        reason = "; ".join(settled.outcome for settled in settled)
        await self._rejoining.join(self._panels.ready(), reason)
