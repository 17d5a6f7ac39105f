"""Reservations at work: admitted, brought up, moved when a circuit dies, and let go."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from apps.ledger import Ledger
from apps.mover import Mover
from apps.planner import Planner
from apps.planning import Planning
from apps.upkeep import Upkeep
from hydra.errors import AdmissionError, DeviceUnavailable, HydraError
from hydra.lifecycle import ReservationState
from hydra.model import Fabric
from hydra.plan import Pair, paths_by_pair
from hydra.reservations import Reservation, ReservationRequest

LOG = logging.getLogger("hydra.bookings")
_PLACEMENT_ATTEMPTS: Final = 3


class Bookings:
    """:meth:`reserve` and :meth:`release` may be called from any thread; they only queue work."""

    def __init__(
        self,
        fabric: Fabric,
        planning: Planning,
        planner: Planner,
        mover: Mover,
        upkeep: Upkeep,
        ledger: Ledger,
        enqueue: Callable[[Callable[[], None]], None],
    ) -> None:
        self._fabric = fabric
        self._planning = planning
        self._planner = planner
        self._mover = mover
        self._upkeep = upkeep
        self._ledger = ledger
        self._enqueue = enqueue
        self._admission = threading.Lock()
        """One at a time, or two would be promised the same ports."""

    # -- from any thread --------------------------------------------------------------------------

    def reserve(self, request: ReservationRequest) -> Reservation:
        """Admit and queue. Raises AdmissionError, UnknownName, DeviceUnavailable."""
        self._ledger.check(request)
        self._check_switches(request)
        with self._admission:
            reservation, others, own = self._ledger.draft(request)
            try:
                self._planner.for_reservation(
                    self._ledger.state, own, others, self._upkeep.blocked_ports()
                )
            except HydraError as error:
                raise self._with_devices(error) from error
            self._ledger.admit(reservation)
        self._enqueue(lambda: self._activate(reservation.id))
        return reservation

    def _with_devices(self, error: HydraError) -> HydraError:
        """A refusal that a device may be to blame for names the device."""
        down = self._upkeep.down_planes() if isinstance(error, AdmissionError) else []
        return DeviceUnavailable("; ".join(down), str(error)) if down else error

    def _check_switches(self, request: ReservationRequest) -> None:
        ready = self._upkeep.ready_switches()
        for name in (request.src, request.dst):
            server = self._fabric.server_by_name.get(name)
            servers = self._fabric.rack_by_name[name].servers if server is None else (server,)
            if not any(s.vswitch.datapath_id in ready for s in servers):
                who = ", ".join(s.vswitch.bridge for s in servers)
                raise DeviceUnavailable(
                    name, f"vswitch {who} is not connected: check its controller setting"
                )

    def release(self, reservation_id: str) -> Reservation:
        """Raises UnknownName, LifecycleError."""
        reservation = self._ledger.change(reservation_id, ReservationState.RELEASING, "asked for")
        self._enqueue(lambda: self._release(reservation))
        return reservation

    # -- in the conductor's thread ----------------------------------------------------------------

    def resume(self) -> None:
        """After a start: finish what the last run had begun, and bring back what was lost."""
        for reservation in self._ledger.reservations():
            if reservation.state is ReservationState.RELEASING:
                self._release(reservation)
            elif reservation.holds_capacity:
                self.place(reservation.id)

    def place_all(self) -> None:
        """Give every reservation its path again, where it has lost it."""
        for reservation in self._ledger.reservations():
            if reservation.holds_capacity:
                self.place(reservation.id)

    def rejoin(self, pairs: Collection[Pair]) -> None:
        """Give pairs that lost a path which nobody reserved another one, where there is room."""
        for pair in sorted(pairs):
            if pair in paths_by_pair(self._ledger.state):
                continue
            try:
                target = self._planning.rejoined(
                    self._ledger.state, pair, self._ledger.pins(), self._upkeep.blocked_ports()
                )
                self._mover.move(self._ledger.enter("circuit lost", "planned around it"), target)
            except AdmissionError as error:
                LOG.warning("stays electrical: %s", error)
        self._ledger.claim_standing()

    def _activate(self, reservation_id: str) -> None:
        if self._ledger.reservation(reservation_id).state is ReservationState.ACTIVATING:
            self.place(reservation_id)

    def place(self, reservation_id: str) -> None:
        """Give the reservation its path; on another plane if the first one fails."""
        reasons: list[str] = []
        for _ in range(_PLACEMENT_ATTEMPTS):
            reservation = self._ledger.reservation(reservation_id)
            if not reservation.holds_capacity:
                return
            try:
                reasons.append(self._try_to_place(reservation))
            except HydraError as error:
                reasons.append(str(error))
                break
            if self._ledger.place(reservation.pair):
                if reservation.state is ReservationState.ACTIVATING:
                    self._ledger.change(reservation_id, ReservationState.ACTIVE)
                return
        why = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
        self._ledger.change(reservation_id, ReservationState.FAILED, why or "no path came up")

    def _try_to_place(self, reservation: Reservation) -> str:
        """Move the network to where the reservation has a path; returns what went wrong."""
        others, own = self._ledger.split_pins(reservation)
        target = self._planner.for_reservation(
            self._ledger.state, own, others, self._upkeep.blocked_ports()
        )
        if target == self._ledger.state:
            return ""
        entry = self._ledger.enter(f"reservation {reservation.id}")
        execution = self._mover.move(entry, target)
        return execution.reason or "; ".join(sorted(set(execution.failures.values())))

    def _release(self, reservation: Reservation) -> None:
        self._take_down(reservation)
        self._ledger.change(reservation.id, ReservationState.RELEASED, reservation.reason)

    def _take_down(self, reservation: Reservation) -> None:
        """Remove the pair's path unless somebody else has a claim to it."""
        pair = reservation.pair
        if self._ledger.claimed(pair) or pair not in paths_by_pair(self._ledger.state):
            return
        entry = self._ledger.enter(f"release of reservation {reservation.id}")
        try:
            self._mover.move(entry, self._planning.without_pair(self._ledger.state, pair))
        except HydraError as error:
            self._ledger.refuse(entry, str(error))

    def expire(self) -> None:
        """End the reservations whose time is up."""
        for reservation_id in self._ledger.expired():
            reservation = self._ledger.change(
                reservation_id, ReservationState.EXPIRED, "its time is up"
            )
            self._take_down(reservation)
