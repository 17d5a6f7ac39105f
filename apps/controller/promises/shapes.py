"""Shapes: admitted whole as a group, and offered again after a loss."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from apps.controller.promises.admission import Admission, without_ids
from apps.controller.promises.limits import Limits
from apps.controller.record.bookings import Bookings
from apps.controller.record.ledger import Ledger
from hydra.columns import no_cycles
from hydra.errors import AdmissionError, NoRoom
from hydra.model import Fabric
from hydra.reservations.book import ReservationBook
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
        """Admit a shape as a group: all pairs or none. Raises the errors of
        :meth:`Admission.reserve`.
        """
        if known := self._bookings.admitted_before(shape.wish):
            return GroupOutcome(known[0].group or "", known, ())
        whole = partial(self._admission.reserve_all, all_or_nothing=True)
        with no_cycles():
            return admit_shape(self._fabric, shape, whole, self._trial, self._rooms_mbps)

    def shape(self, shape_id: str) -> Shape:
        """The shape of a group, with the racks that fit now if edges are lost. Raises
        UnknownName.
        """
        members = self._bookings.group(shape_id)
        shape = shape_of(self._fabric, members)
        if not shape.lost:
            return shape
        # Tried in a book without the shape, so that the ledger's lock stays free meanwhile.
        released = {member.id for member in members}
        others = [r for r in self._bookings.all() if r.is_booked and r.id not in released]
        beside = Bookings(ReservationBook(self._fabric, others), threading.RLock())
        return with_remedy(self._fabric, shape, partial(self._trial, bookings=beside))

    def _rooms_mbps(self, request: ReservationRequest) -> Sequence[Room]:
        return self._bookings.rooms_mbps(request, self._limits.now())

    def _trial(
        self,
        requests: Sequence[ReservationRequest],
        most: int,
        brief: bool,
        bookings: Bookings | None = None,
    ) -> Refused:
        """Refusals of requests together, up to ``most``; nothing is reserved.

        ``brief``: refusals need no words and no alternatives. ``bookings``: the bookings beside
        which requests are tried; None: the ledger's.
        """
        refused: dict[int, AdmissionError] = {}
        entered: list[Reservation] = []
        bookings = bookings or self._bookings
        admission = self._admission.to(bookings)
        with bookings.trial():
            limits = replace(self._limits.now(), brief=brief)
            if brief:
                missing = admission.steering.missing(requests)
                places = bookings.draft_refused(requests, limits, most, missing)
                if places is not None:
                    return dict.fromkeys(places, NoRoom("no room"))
            for place, request in enumerate(requests):
                try:
                    entered += admission.add(request, limits, None)
                except AdmissionError as error:
                    refused[place] = without_ids(error, entered)
                    if len(refused) == most:
                        break
        return refused
