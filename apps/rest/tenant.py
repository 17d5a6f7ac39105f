"""A filter in front of the controller: only a single tenant's reservations pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from hydra.access import Caller
from hydra.errors import AdmissionError, UnknownName
from hydra.events import EventLog
from hydra.model import Fabric
from hydra.names import no_group, no_reservation
from hydra.reservations.availability import Available
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Usage
from hydra.reservations.reservation import Reservation, ReservationRequest
from hydra.reservations.shapes import Shape, ShapeRequest
from hydra.service import Delivery, GroupOutcome, Refusal, ReservationPreview, ReservationService

_UNNAMED: Final = ("a device needed for the reservation does not answer now",)
"""Stands in for names of devices, which are for operators and viewers."""


@dataclass(frozen=True, eq=False, repr=False)
class TenantView:
    """Implements :class:`hydra.service.ReservationService` for a tenant.

    New reservations belong to the tenant. Reservations of other tenants are invisible, and no
    refusal names them.
    """

    _service: ReservationService
    _tenant: Caller

    @property
    def fabric(self) -> Fabric:
        return self._service.fabric

    @property
    def events(self) -> EventLog:
        return self._service.events

    # -- what passes ------------------------------------------------------------------------------

    def _own(self, request: ReservationRequest) -> ReservationRequest:
        return replace(request, owner=self._tenant.name, quota=self._tenant.quota)

    def _mine(self, reservation_id: str) -> str:
        """The id, if the reservation is the tenant's. Raises UnknownName."""
        return self.reservation(reservation_id).id

    @contextmanager
    def _discreet(self) -> Iterator[None]:
        """Remove names of other reservations from refusals."""
        try:
            yield
        except AdmissionError as error:
            raise error.discreet() from None

    # -- reservations -----------------------------------------------------------------------------

    def reserve(self, request: ReservationRequest) -> Reservation:
        with self._discreet():
            return self._service.reserve(self._own(request))

    def reserve_all(
        self, requests: Sequence[ReservationRequest], *, all_or_nothing: bool
    ) -> GroupOutcome:
        with self._discreet():
            outcome = self._service.reserve_all(
                list(map(self._own, requests)), all_or_nothing=all_or_nothing
            )
        refused = tuple(
            Refusal(refusal.request, refusal.error.discreet()) for refusal in outcome.refused
        )
        return replace(outcome, refused=refused)

    def reserve_shape(self, shape: ShapeRequest) -> GroupOutcome:
        with self._discreet():
            return self._service.reserve_shape(replace(shape, wish=self._own(shape.wish)))

    def availability(self, request: ReservationRequest) -> Sequence[Available]:
        with self._discreet():
            return self._service.availability(request)

    def shape(self, shape_id: str) -> Shape:
        self.group(shape_id)  # raises UnknownName
        return self._service.shape(shape_id)

    def preview(self, request: ReservationRequest) -> ReservationPreview:
        with self._discreet():
            seen = self._service.preview(self._own(request))
        return replace(seen, at_risk=_UNNAMED if seen.at_risk else ())

    def commit(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        return self._service.commit(self._mine(reservation_id), seen)

    def modify(
        self, reservation_id: str, change: Modification, seen: Reservation | None = None
    ) -> Reservation:
        own = replace(change, quota=self._tenant.quota)
        with self._discreet():
            return self._service.modify(self._mine(reservation_id), own, seen)

    def release(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        return self._service.release(self._mine(reservation_id), seen)

    def release_group(self, group: str) -> Sequence[Reservation]:
        self.group(group)  # raises UnknownName
        return self._service.release_group(group)

    def reservation(self, reservation_id: str) -> Reservation:
        found = self._service.reservation(reservation_id)
        if not self._tenant.sees(found):
            raise no_reservation(reservation_id)
        return found

    def reservations(self) -> Sequence[Reservation]:
        return list(filter(self._tenant.sees, self._service.reservations()))

    def group(self, group: str) -> Sequence[Reservation]:
        members = self._service.group(group)
        if not all(map(self._tenant.sees, members)):
            raise no_group(group)
        return members

    def delivery(self, reservation_id: str) -> Delivery:
        return self._service.delivery(self._mine(reservation_id))

    def deliveries(self) -> Sequence[Delivery]:
        return [
            delivery
            for delivery in self._service.deliveries()
            if self._tenant.sees(delivery.reservation)
        ]

    def usage(self, owner: str) -> Usage:
        if owner != self._tenant.name:
            raise UnknownName(f"no tenant {owner!r}")
        return self._service.usage(owner)
