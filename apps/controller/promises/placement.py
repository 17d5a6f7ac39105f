"""Reservations get paths: in their turn, or beside the changes under way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from apps.controller.mover import Mover
from apps.controller.patch_panels import PatchPanels
from apps.controller.promises.limits import Limits
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.upkeep import Upkeep
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from hydra.errors import HydraError, PlanError
from hydra.lifecycle import ReservationState
from hydra.model import NetworkState, Path
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Plan, pair_of
from hydra.reconfiguration.scheduler import Job, Work
from hydra.reconfiguration.touched import Touched, state_beside
from hydra.reservations.reservation import Pin, Reservation
from hydra.service import Reconfiguration

LOG = logging.getLogger("hydra.reservations")
_PLACEMENT_ATTEMPTS: Final = 3
_NOTHING: Final = Touched()


class Placement:
    """For the conductor's thread, but :meth:`activate_in_turn` and :meth:`end_soon`.

    Other threads only use single operations of sets here, which are atomic.
    """

    def __init__(
        self,
        *,
        planning: Planning,
        planner: Planner,
        mover: Mover,
        upkeep: Upkeep,
        reach: Reach,
        panels: PatchPanels,
        ledger: Ledger,
        limits: Limits,
        enqueue: Callable[[Job], None],
    ) -> None:
        self._planning, self._planner, self._mover = planning, planner, mover
        self._upkeep, self._reach, self._panels = upkeep, reach, panels
        self._limits, self._enqueue = limits, enqueue
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations
        self._in_turn: set[str] = set()
        """Reservations with a queued :meth:`_activate`."""
        self._tried_beside: dict[str, tuple[tuple[Execution, bool], ...]] = {}
        """Queued reservations that could not be placed beside the changes under way, each with
        these changes and whether they might give way.
        """
        self._await_racks: set[str] = set()
        """Reservations whose placement waits for a rack soon to be in reach."""
        self.ends = False
        """True once queued reservations are left to the next leader."""

    # -- from any thread --------------------------------------------------------------------------

    def end_soon(self) -> None:
        """Leave queued reservations to the next leader, which finds them in the journal."""
        self.ends = True

    def activate_in_turn(self, ids: Sequence[str]) -> None:
        """Queue reservations to begin now; changes under way may let them in before."""
        self._in_turn.update(ids)
        self._enqueue(lambda: self._activate(ids))

    # -- in the conductor's thread ----------------------------------------------------------------

    async def restore(self) -> None:
        """Bring back the paths of all reservations entitled to a path."""
        self._await_racks.clear()
        await self.place([r.id for r in self._bookings.all() if r.holds_capacity])

    @property
    def awaits_racks(self) -> bool:
        """True if reservations wait for racks soon to be in reach."""
        return bool(self._await_racks)

    async def _activate(self, ids: Sequence[str]) -> None:
        """Place the activating reservations among ``ids``."""
        self._in_turn.difference_update(ids)
        for reservation_id in ids:
            self._tried_beside.pop(reservation_id, None)
        await self.place(
            [r.id for r in self._bookings.known(ids) if r.state is ReservationState.ACTIVATING]
        )

    def beside(self) -> Work[None] | None:
        """Place a queued reservation beside the changes under way; None if no reservation can be.

        The changes must touch nothing that the reservation takes, or give it up. Other reservations
        stay queued.
        """
        if self.ends:
            return None
        for reservation_id in sorted(self._in_turn):
            under_way = tuple(
                (execution, execution.may_cede) for execution in self._network.under_way
            )
            if self._tried_beside.get(reservation_id) == under_way:
                continue
            self._tried_beside[reservation_id] = under_way
            try:
                reservation = self._bookings.get(reservation_id)
                plan = self._plan_beside(reservation)
            except HydraError as error:
                LOG.debug("reservation %s waits for its turn: %s", reservation_id, error)
                continue
            if plan is not None:
                self._in_turn.discard(reservation_id)  # in any case, the reservation keeps its turn
                entry = self._log.enter(f"reservation {reservation_id}")
                return self._placing(reservation, entry, plan)
        return None

    async def _placing(self, reservation: Reservation, entry: Reconfiguration, plan: Plan) -> None:
        await self._mover.moving_beside(entry, plan)
        await self._note_placed([reservation])

    def _plan_beside(self, reservation: Reservation) -> Plan | None:
        """The plan to place a reservation beside the changes under way.

        None if the reservation has to wait for its turn. Raises HydraError if there is no such
        plan.
        """
        path = reservation.booked
        if reservation.state is not ReservationState.ACTIVATING or path is None:
            return None
        state = self._network.state
        ends = {end for circuit in path.circuits for end in circuit.ends}
        if (
            path in state.vlans
            or not ends.isdisjoint(self._reach.blocked_ports())
            or self._panels.awaited(path)
        ):
            return None
        touched = self._mover.beside.under_way.touched_beside(self._taken_by(path))
        if touched is None:
            return None
        others = frozenset(
            other.id
            for other in self._bookings.all()
            if other.booked not in state.vlans and other.id != reservation.id
        )
        pins = self._bookings.pins(leaving_out=others)
        if touched == self._mover.beside.touched:
            target = self._target(pins, touched)
        else:  # pairs on ports taken over get other ports from the change that leaves the ports
            blocked = self._reach.blocked_ports() | touched.ports
            target, _ = self._planning.with_pins(state_beside(state, touched), pins, blocked)
        return self._mover.beside.plan(target, f"reservation {reservation.id}", takes_over=True)

    def _taken_by(self, path: Path) -> Touched:
        """Elements taken by a path: all paths of its pair, and all at its ports, give way."""
        paths = self._network.state.vlans
        ends = {end for circuit in path.circuits for end in circuit.ends}
        pair = pair_of(path)
        users = {
            pair_of(path)
            for path in paths
            if any(not ends.isdisjoint(circuit.ends) for circuit in path.circuits)
        }
        gone = [path for path in paths if pair_of(path) in users or pair_of(path) == pair]
        ends.update(end for used in gone for circuit in used.circuits for end in circuit.ends)
        vlans = frozenset(paths[used] for used in gone)
        return Touched(pairs=frozenset({pair, *users}), ports=frozenset(ends), vlans=vlans)

    async def _note_placed(self, reservations: Sequence[Reservation]) -> None:
        """Activate the reservations whose path stands: together, since meters and journal take as
        long for one as for many.
        """
        placed = self._reservations.place(
            reservation.booked for reservation in reservations if reservation.booked is not None
        )
        up = [
            reservation.id
            for reservation in reservations
            if reservation.booked in placed
            and reservation.state is ReservationState.ACTIVATING
            and not await self._upkeep.refusal(reservation)
        ]
        if up and not self.ends:
            self._upkeep.hold_reserved()
            standing = self._network.state.vlans
            known = [found.id for found in self._bookings.known(up) if found.booked in standing]
            self._reservations.change_all(known, ReservationState.ACTIVE)

    async def place(self, ids: Sequence[str]) -> None:
        """Give reservations their paths, in a single move; other paths where the first fail.

        Reservations with a rack soon to be in reach wait for :meth:`restore`.
        """
        if awaited := self._reach.awaited_racks():
            later = {
                reservation.id
                for reservation in self._bookings.known(ids)
                if not awaited.isdisjoint(reservation.pair)
            }
            self._await_racks |= later
            ids = [reservation_id for reservation_id in ids if reservation_id not in later]
        reasons: list[str] = []
        for _ in range(_PLACEMENT_ATTEMPTS):
            waiting = self._not_placed(ids)
            if self.ends or not waiting:
                return
            self._avoid_blocked(waiting, reasons)
            reasons.append(await self._try_to_place([r.id for r in self._not_placed(ids)]))
            if self.ends:
                return
            await self._note_placed(self._not_placed(ids))
            reasons += [
                await self._upkeep.refusal(reservation) for reservation in self._not_placed(ids)
            ]
        why = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
        for reservation in self._not_placed(ids):
            if self._works(reservation):
                self._reservations.unprotect(reservation.id)
                continue
            self._reservations.change(
                reservation.id, ReservationState.FAILED, why or "no path came up"
            )

    def _works(self, reservation: Reservation) -> bool:
        """True if an active reservation's working path stands."""
        return (
            reservation.state is ReservationState.ACTIVE
            and reservation.booked in self._network.state.vlans
        )

    async def protect(self, ids: Sequence[str]) -> None:
        """Give protected reservations without a path on standby such a path, if there is room."""
        limits = self._limits.now()
        found = [self._reservations.protect(reservation_id, limits) for reservation_id in ids]
        if some := [reservation.id for reservation in found if reservation.protection is not None]:
            await self.place(some)

    def _not_placed(self, ids: Sequence[str]) -> list[Reservation]:
        """Reservations with capacity that are activating, or with a path that does not stand.

        Reservations with a path in people's hands are left out, as they have to wait.
        """
        standing = self._network.state.vlans
        return [
            reservation
            for reservation in self._bookings.known(ids)
            if reservation.holds_capacity
            and not any(map(self._panels.awaited, reservation.paths))
            and (
                reservation.booked not in standing
                or not standing.keys() >= set(reservation.paths)
                or reservation.state is ReservationState.ACTIVATING
            )
        ]

    def _avoid_blocked(self, reservations: Sequence[Reservation], tried: Sequence[str]) -> None:
        """Book anew pairs with a path at blocked ports, and pairs whose path on standby stands in
        place of the working path; ``tried``: reasons of earlier failures.
        """
        limits, standing = self._limits.now(), self._network.state.vlans
        lost = {
            end
            for reservation in reservations
            if reservation.booked is not None
            and reservation.booked not in standing
            and reservation.protection in standing
            for circuit in reservation.booked.circuits
            for end in circuit.ends
        }
        limits = replace(limits, blocked=limits.blocked | lost) if lost else limits
        blocked = {
            reservation.pair
            for reservation in reservations
            if reservation.booked is not None
            and any({c.a, c.b} & limits.blocked for c in reservation.booked.circuits)
        }
        for pair in sorted(blocked):
            self._reservations.reroute(pair, limits, tried)
        for reservation in reservations:
            if reservation.is_protected:
                self._reservations.protect(reservation.id, limits)

    def _target(self, pins: Sequence[Pin], touched: Touched = _NOTHING) -> NetworkState:
        """The state with every pin on its path; displaced pairs get other paths.

        No pair gets a port or VLAN-ID ``touched`` by other changes.
        """
        state = state_beside(self._network.state, touched)
        blocked = self._reach.blocked_ports() | touched.ports
        if all(pin.path in state.vlans for pin in pins):
            return state
        target, displaced = self._planning.with_pins(state, pins, blocked)
        if displaced:
            try:
                return self._planner.for_pins(state, pins, blocked, urgent=True)
            except PlanError as error:
                LOG.warning("%d paths give way to reservations: %s", len(displaced), error)
        return target

    async def _try_to_place(self, ids: Sequence[str]) -> str:
        """Move the network to the reservations' paths; returns the reason of a failure."""
        try:
            return await self._move_to(self._target(self._bookings.pins()), ids)
        except HydraError as error:
            if len(ids) < 2:
                return str(error)
        # A single reservation is to blame, and the rest need not suffer.
        problems = []
        for reservation_id in ids:
            if self.ends:
                break
            others = frozenset(ids) - {reservation_id}
            others -= {r.id for r in self._placed(others)}
            try:
                target = self._target(self._bookings.pins(leaving_out=others))
                problems.append(await self._move_to(target, [reservation_id]))
            except HydraError as error:
                problems.append(str(error))
        return "; ".join(dict.fromkeys(problem for problem in problems if problem))

    def _placed(self, ids: Collection[str]) -> list[Reservation]:
        standing = self._network.state.vlans
        return [r for r in self._bookings.known(ids) if r.booked in standing]

    async def _move_to(self, target: NetworkState, ids: Sequence[str]) -> str:
        if target == self._network.state:
            return ""
        entry = self._log.enter(f"reservation {', '.join(ids)}")
        return (await self._mover.move(entry, target)).reason
