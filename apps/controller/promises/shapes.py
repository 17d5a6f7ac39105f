"""Shapes: admitted whole as a group, and offered again after a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from apps.controller.promises.admission import Admission, without_ids
from apps.controller.promises.limits import Limits
from apps.controller.record.ledger import Ledger
from hydra.errors import AdmissionError
from hydra.model import Fabric
from hydra.reservations.reservation import Reservation, ReservationRequest
from hydra.reservations.shape_search import Refused, Room, admit_shape, with_remedy
from hydra.reservations.shapes import Shape, ShapeRequest, shape_of
from hydra.service import GroupOutcome


class Shapes:
    """For any thread."""

    def __init__(
        self, *, fabric: Fabric, admission: Admission, ledger: Ledger, limits: Limits
    ) -> None:
        self._fabric, self._admission, self._limits = fabric, admission, limits
        self._bookings = ledger.bookings

    def reserve(self, shape: ShapeRequest) -> GroupOutcome:
        """Admit a shape as a group, whole or not at all. Raises the errors of
        :meth:`Admission.reserve`.
        """
        if known := self._bookings.admitted_before(shape.wish):
            return GroupOutcome(known[0].group or "", known, ())
        whole = partial(self._admission.reserve_all, all_or_nothing=True)
        return admit_shape(self._fabric, shape, whole, self._trial, self._rooms_mbps)

    def shape(self, shape_id: str) -> Shape:
        """The shape of a group, with the racks that fit now if edges are lost. Raises
        UnknownName.
        """
        members = self._bookings.group(shape_id)
        as_if_released = partial(self._trial, excluded=members)
        return with_remedy(self._fabric, shape_of(self._fabric, members), as_if_released)

    def _rooms_mbps(self, request: ReservationRequest) -> Sequence[Room]:
        return self._bookings.rooms_mbps(request, self._limits.now())

    def _trial(
        self,
        requests: Sequence[ReservationRequest],
        most: int,
        brief: bool,
        excluded: Sequence[Reservation] = (),
    ) -> Refused:
        """Refusals of requests together, up to ``most``; nothing is reserved.

        ``brief``: refusals need no words and no alternatives. ``excluded``: reservations that are
        left out of the calendar.
        """
        refused: dict[int, AdmissionError] = {}
        entered: list[Reservation] = []
        with self._bookings.unbooked(excluded):
            limits = replace(self._limits.now(), brief=brief)
            for place, request in enumerate(requests):
                try:
                    entered += self._admission.add(request, limits, None)
                except AdmissionError as error:
                    refused[place] = without_ids(error, entered)
                    if len(refused) == most:
                        break
        return refused
