"""Reservations begin and end in time, and leave no path behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain

from apps.controller.mover import Mover
from apps.controller.promises.placement import Placement
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.retries import Retries
from apps.controller.upkeep import Upkeep
from apps.planning.engine import Planning
from hydra.errors import Changed, HydraError
from hydra.forwarding.substrate import substrate_of
from hydra.lifecycle import ReservationState
from hydra.model import Fabric, Pair
from hydra.reconfiguration.scheduler import Job
from hydra.reservations.reservation import Reservation


class ReservationCare:
    """For the conductor's thread, but :meth:`release_in_turn` and :meth:`hold_in_turn`."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        planning: Planning,
        mover: Mover,
        upkeep: Upkeep,
        reach: Reach,
        ledger: Ledger,
        placement: Placement,
        enqueue: Callable[[Job], None],
    ) -> None:
        self._fabric, self._planning, self._mover = fabric, planning, mover
        self._upkeep, self._reach, self._placement = upkeep, reach, placement
        self._enqueue = enqueue
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations
        self._writer = ledger.writer
        self._substrate = substrate_of(fabric)
        self._retries = Retries()
        self._protecting = Retries()
        """By the id of a protected reservation."""

    # -- from any thread --------------------------------------------------------------------------

    def release_in_turn(self, ids: Sequence[str]) -> None:
        """Queue the release of reservations let go by their owner."""
        self._enqueue(lambda: self._release(ids))

    def hold_in_turn(self) -> None:
        """Adapt meters to a changed reservation."""
        self._enqueue(self._hold)

    # -- in the conductor's thread ----------------------------------------------------------------

    def _hold(self) -> None:
        if not self._placement.ends:
            self._upkeep.hold_reserved()

    async def resume(self) -> None:
        """After a start: finish unfinished releases of the last run, and restore lost paths."""
        await self._release([reservation.id for reservation in self._bookings.leaving()])
        await self._placement.restore()

    async def keep_time(self) -> None:
        """End the reservations whose time is up, and begin due reservations."""
        self._writer.catch_up()
        await self._fail_refused()
        for reservation_id in self._bookings.expired():
            if self._placement.ends:
                return
            await self._expire(reservation_id)
        await self._take_down_again()
        due = self._bookings.due()
        if self._placement.ends:
            return
        if due:
            self._reservations.change_all(due, ReservationState.ACTIVATING)
            await self._placement.place(due)
        await self._protect_again()

    async def _protect_again(self) -> None:
        """Look for paths on standby for reservations that have lost theirs."""
        bare = self._unprotected()
        if due := list(self._protecting.due(bare)):
            await self._placement.protect(due)
            self._protecting.note(due, self._unprotected())

    def _unprotected(self) -> list[str]:
        return [
            reservation.id
            for reservation in self._bookings.active()
            if reservation.state is ReservationState.ACTIVE
            and reservation.is_protected
            and reservation.protection is None
        ]

    async def _fail_refused(self) -> None:
        """Fail reservations whose rules are refused by a switch: their traffic is electrical."""
        if not self._upkeep.refuses:
            return
        for reservation in self._bookings.active():
            if reservation.state is ReservationState.ACTIVE and (
                why := await self._upkeep.refusal(reservation)
            ):
                self._reservations.change(reservation.id, ReservationState.FAILED, why)

    async def _release(self, ids: Sequence[str]) -> None:
        """Take down the paths of reservations together, by one change of the network.

        Reservations released meanwhile are skipped: :meth:`resume` may have come first.
        """
        releasing = [
            reservation
            for reservation in self._bookings.known(ids)
            if reservation.state is ReservationState.RELEASING
        ]
        if self._placement.ends or not releasing:
            return
        await self._take_down(releasing)
        pairs = {reservation.pair for reservation in releasing}
        stay = self._network.unwanted(pairs)
        self._reservations.released(
            [reservation.id for reservation in releasing], pairs - stay.keys()
        )
        self._retries.note(pairs, stay)

    async def _take_down(self, reservations: Sequence[Reservation]) -> None:
        """Remove the unwanted paths of the reservations' pairs.

        Paths that can't be removed now for lack of a vswitch are tried again by :meth:`keep_time`.
        """
        if unwanted := self._network.unwanted({reservation.pair for reservation in reservations}):
            more = f" and {len(reservations) - 1} more" if len(reservations) > 1 else ""
            entry = self._log.enter(f"release of reservation {reservations[0].id}{more}")
            try:
                paths = tuple(chain(*unwanted.values()))
                await self._mover.move(
                    entry, self._planning.reduced(self._network.state, (), paths)
                )
            except HydraError as error:
                self._log.refuse(entry, str(error))

    def _note_taken_down(self, pair: Pair) -> None:
        """Note whether the path left by the pair's reservations is gone, or wanted."""
        stay = self._network.unwanted([pair])
        self._retries.note([pair], stay)
        if not stay:
            self._reservations.leave_nothing(lambda entry: entry == pair)

    async def _take_down_again(self) -> None:
        """Retry failed removals, once the needed vswitches are ready."""
        left = {
            reservation.pair: reservation
            for reservation in self._bookings.leaving()
            if reservation.state is not ReservationState.RELEASING
        }
        if not left:
            return
        ready, steering = self._reach.ready_switches(), self._substrate.steering
        for pair in self._retries.due(left):
            if self._placement.ends:
                return
            if ready.issuperset(vswitch.datapath for rack in pair for vswitch in steering(rack)):
                await self._take_down([left[pair]])
            self._note_taken_down(pair)

    async def _expire(self, reservation_id: str) -> None:
        before = self._bookings.get(reservation_id)
        if not before.ends_by(time.time()):
            return  # meanwhile the end was put off, or the reservation committed
        if before.preempted_by is not None:
            state, reason = ReservationState.PREEMPTED, before.reason
        elif before.held_until_unix_s is not None:
            state, reason = ReservationState.EXPIRED, "not committed in time"
        else:
            state, reason = ReservationState.EXPIRED, "the reserved time is over"
        try:
            reservation = self._reservations.change(reservation_id, state, reason, before)
        except Changed:
            return  # committed or put off just now
        if before.holds_capacity:
            await self._take_down([reservation])
            self._note_taken_down(reservation.pair)
