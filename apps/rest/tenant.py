"""The controller as one tenant sees it: nobody's reservations but its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from hydra.errors import AdmissionError, UnknownName
from hydra.events import EventLog
from hydra.model import Fabric
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Quota, Usage
from hydra.reservations.reservation import Reservation, ReservationRequest
from hydra.service import (
    ControllerService,
    Delivery,
    GroupOutcome,
    Refusal,
    ReservationPreview,
    ReservationService,
)

_UNNAMED: Final = ("a device that it needs does not answer now",)
"""Names of devices are for operators and viewers."""


class TenantService:
    """Desk of a tenant: what it makes is the tenant's; others' reservations do not exist for it."""

    def __init__(self, service: ControllerService, tenant: str, quota: Quota) -> None:
        self._service: ReservationService = service
        self._tenant = tenant
        self._quota = quota

    @property
    def fabric(self) -> Fabric:
        return self._service.fabric

    @property
    def events(self) -> EventLog:
        return self._service.events

    def _own(self, request: ReservationRequest) -> ReservationRequest:
        return replace(request, owner=self._tenant, quota=self._quota)

    def _check(self, reservation_id: str) -> None:
        self.reservation(reservation_id)

    @contextmanager
    def _discreet(self) -> Iterator[None]:
        """Refusals without the names of those in the way."""
        try:
            yield
        except AdmissionError as error:
            raise error.discreet() from None

    def reserve(self, request: ReservationRequest) -> Reservation:
        with self._discreet():
            return self._service.reserve(self._own(request))

    def reserve_all(
        self, requests: Sequence[ReservationRequest], *, all_or_nothing: bool
    ) -> GroupOutcome:
        with self._discreet():
            outcome = self._service.reserve_all(
                [self._own(request) for request in requests], all_or_nothing=all_or_nothing
            )
        refused = tuple(Refusal(one.request, one.error.discreet()) for one in outcome.refused)
        return replace(outcome, refused=refused)

    def preview(self, request: ReservationRequest) -> ReservationPreview:
        with self._discreet():
            seen = self._service.preview(self._own(request))
        return replace(seen, at_risk=_UNNAMED if seen.at_risk else ())

    def commit(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        self._check(reservation_id)
        return self._service.commit(reservation_id, seen)

    def modify(
        self, reservation_id: str, change: Modification, seen: Reservation | None = None
    ) -> Reservation:
        self._check(reservation_id)
        with self._discreet():
            own = replace(change, quota=self._quota)
            return self._service.modify(reservation_id, own, seen)

    def release(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        self._check(reservation_id)
        return self._service.release(reservation_id, seen)

    def delivery(self, reservation_id: str) -> Delivery:
        self._check(reservation_id)
        return self._service.delivery(reservation_id)

    def deliveries(self) -> Sequence[Delivery]:
        everybody = self._service.deliveries()
        return [one for one in everybody if one.reservation.owner == self._tenant]

    def usage(self, owner: str) -> Usage:
        if owner != self._tenant:
            raise UnknownName(f"no tenant {owner!r}")
        return self._service.usage(owner)

    def reservations(self) -> Sequence[Reservation]:
        return [one for one in self._service.reservations() if one.owner == self._tenant]

    def reservation(self, reservation_id: str) -> Reservation:
        found = self._service.reservation(reservation_id)
        if found.owner != self._tenant:
            raise UnknownName(f"no reservation {reservation_id!r}")
        return found

    def group(self, group: str) -> Sequence[Reservation]:
        members = self._service.group(group)
        if any(one.owner != self._tenant for one in members):
            raise UnknownName(f"no group {group!r}")
        return members
