"""Admission: requests become reservations; owners change, commit and release reservations."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Final

from apps.controller.promises.care import ReservationCare
from apps.controller.promises.limits import Limits
from apps.controller.promises.placement import Placement
from apps.controller.reach import Reach
from apps.controller.record.bookings import Bookings
from apps.controller.record.ledger import Ledger
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from hydra.errors import (
    AdmissionError,
    Alternative,
    Changed,
    DeviceMissing,
    DeviceUnavailable,
    LifecycleError,
    NoRoom,
    NotHitless,
    PlanError,
    WrongRequest,
)
from hydra.forwarding.substrate import Substrate, substrate_of
from hydra.lifecycle import ReservationState
from hydra.model import Fabric, NetworkState, PortId
from hydra.reservations.admission import moment
from hydra.reservations.availability import Available
from hydra.reservations.booking import at_most_mbps
from hydra.reservations.bundle import bundle_of, divisions, smaller_bundles, too_large
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import Pin, Reservation, ReservationRequest
from hydra.reservations.transfers import MBIT
from hydra.service import GroupOutcome, Refusal, ReservationPreview

_CHECKS: Final = 3
"""Checks of whether paths can be built, before a client has to repeat the request."""
_SLACK_S: Final = 1e-3
"""Rounding of times."""
_Basis = tuple[NetworkState, tuple[Pin, ...], frozenset[PortId]]
"""The basis of planned paths: the present state, the promised pins, and ports out of use."""


class Admission:
    """For any thread: reservations' changes of the network are queued for the conductor."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        planning: Planning,
        planner: Planner,
        reach: Reach,
        ledger: Ledger,
        limits: Limits,
        placement: Placement,
        care: ReservationCare,
        notice_s: float,
    ) -> None:
        """``notice_s``: seconds for which displaced reservations keep their circuits."""
        self._fabric, self._planning, self._planner = fabric, planning, planner
        self._reach, self._limits, self._placement = reach, limits, placement
        self._care, self._notice_s = care, notice_s
        self._network = ledger.network
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations
        self._substrate = substrate_of(fabric)
        self._turn = threading.Lock()

    def to(self, bookings: Bookings) -> Admission:
        """A copy of the admission for other bookings, for trials."""
        other = copy(self)
        other._bookings = bookings
        return other

    def reserve(self, request: ReservationRequest) -> Reservation:
        """Admit and queue.

        A request too large for any circuit becomes a bundle. Raises AdmissionError (DeviceMissing
        among them), UnknownName, WrongRequest, DeviceUnavailable, PlanError.
        """
        admitted, _ = self._reserve((request,), None, all_or_nothing=True)
        return self._single_or_bundle(admitted)

    def reserve_all(
        self, requests: Sequence[ReservationRequest], *, all_or_nothing: bool
    ) -> GroupOutcome:
        """Admit many requests as a group; largest first, since small requests fit into gaps.

        With ``all_or_nothing``, the first refusal refuses all. Raises the errors of
        :meth:`reserve`; AdmissionError without ``all_or_nothing`` only if no request was admitted.
        """
        group = uuid.uuid4().hex[:12]
        admitted, refused = self._reserve(requests, group, all_or_nothing=all_or_nothing)
        return GroupOutcome(admitted[0].group or group, admitted, refused)

    def preview(self, request: ReservationRequest) -> ReservationPreview:
        """The outcome of :meth:`reserve`, without its effect; raises the same errors.

        Raises DeviceUnavailable if the planner does not answer in time which paths would move.
        """
        with self._bookings.trial():
            drafted, _, basis = self._draft((request,), None, all_or_nothing=True)
            reservation = self._single_or_bundle(drafted)
            pins = [pin for pin in self._bookings.pins() if (pin.src, pin.dst) == reservation.pair]
        state, all_pins, blocked = basis
        if self._builds(state, drafted):
            self._planning.with_pins(state, all_pins, blocked)
        at_risk = self._reach.absences.at_risk([reservation.pair])
        if reservation.state is not ReservationState.ACTIVATING:
            paths = [
                reservation.booked for reservation in drafted if reservation.booked is not None
            ]
            circuits = frozenset(circuit for path in paths for circuit in path.circuits)
            new = circuits - state.topology.circuits
            return ReservationPreview(reservation, new, frozenset(), at_risk)
        target, displaced = self._planning.with_pins(state, pins, blocked)
        if displaced:
            try:
                target = self._planner.for_pins(state, pins, blocked, urgent=False)
            except PlanError as error:
                why = f"other moving circuits are not known now: ask again ({error})"
                raise DeviceUnavailable("planner", why) from error
        plan = self._planning.diff(state, target)
        return ReservationPreview(reservation, plan.connect, plan.disconnect, at_risk)

    def _reserve(
        self, requests: Sequence[ReservationRequest], group: str | None, *, all_or_nothing: bool
    ) -> tuple[tuple[Reservation, ...], tuple[Refusal, ...]]:
        """Admitted reservations, all in the journal, and refused requests.

        The journal has all admitted reservations, or none. Paths are checked while the ledger's
        lock is free. Then everything is decided again, until the decision rests on the checked
        basis. Admissions take turns, as an admission with a long check would otherwise be overtaken
        again and again.
        """
        with self._turn:
            if known := self._bookings.admitted_before(requests[0]):
                return known, ()
            basis: _Basis | None = None
            for _ in range(1 + _CHECKS):
                if basis is not None:
                    self._planning.with_pins(*basis)
                checked = basis
                with self._bookings.trial():
                    admitted, refused, basis = self._draft(
                        requests, group, all_or_nothing=all_or_nothing
                    )
                    if basis == checked or not self._builds(basis[0], admitted):
                        self._reservations.keep(admitted)
                        break
            else:
                raise DeviceUnavailable(
                    "controller",
                    f"the network changed {_CHECKS} times while this was being checked, and "
                    "nothing is reserved: ask again",
                )
        self._placement.activate_in_turn([reservation.id for reservation in admitted])
        return admitted, refused

    def _draft(
        self, requests: Sequence[ReservationRequest], group: str | None, *, all_or_nothing: bool
    ) -> tuple[tuple[Reservation, ...], tuple[Refusal, ...], _Basis]:
        """Enter requests in the book, in a trial; returns reservations, refusals, and the basis."""
        limits = self._limits.now()
        admitted: list[Reservation] = []
        refused: list[Refusal] = []
        for request in sorted(requests, key=lambda request: -request.bandwidth_mbps):
            try:
                admitted += self.add(request, limits, group)
            except AdmissionError as error:
                if all_or_nothing:
                    raise without_ids(error, admitted) from None
                refused.append(Refusal(request, error))
            except WrongRequest as error:
                error.entry = requests.index(request)
                raise
        if not admitted:
            missing = any(isinstance(refusal.error, DeviceMissing) for refusal in refused)
            raise (DeviceMissing if missing else AdmissionError)(
                _none_fits(str(refusal.error) for refusal in refused),
                in_public=_none_fits(refusal.error.in_public for refusal in refused),
            )
        pins = (replace(pin, bandwidth_mbps=0.0, reservations=()) for pin in self._bookings.pins())
        basis = self._network.state, tuple(pins), limits.blocked
        return tuple(admitted), tuple(refused), basis

    def _single_or_bundle(self, reservations: Sequence[Reservation]) -> Reservation:
        """A reservation, or the bundle of the given parts."""
        if reservations[0].bundle is None:
            return reservations[0]
        return bundle_of(self._fabric, reservations)

    def add(
        self, request: ReservationRequest, limits: AdmissionLimits, group: str | None
    ) -> Sequence[Reservation]:
        """Enter ``request`` in the book, in a trial; returns the reservation, or the parts of the
        bundle.
        """
        whole = too_large(self._fabric, request, time.time())
        if whole is None:
            return [self._add_one(request, limits, group)]
        parts, why = self._add_parts(whole, limits, group)
        if parts:
            return parts
        try:
            return [self._add_one(request, limits, group)]
        except AdmissionError as error:
            if limits.brief:
                raise
            refused = error
        text, public, alternatives = str(refused), refused.in_public, refused.alternatives
        if (most := self._largest_bundle(whole, limits, group)) is not None:
            hint = f", or for {at_most_mbps(most.bandwidth_mbps)} Mb/s, which fit in parts"
            if most.end_unix_s is not None:
                hint = f", or for the end {moment(most.end_unix_s)}, which fits in parts"
            text, public, alternatives = text + hint, public + hint, (most, *alternatives)
        if why is not None:
            text += f"; no division among separate servers fits either: {why}"
            public += f"; no division among separate servers fits either: {why.in_public}"
        raise type(why or refused)(text, alternatives, public)

    def _add_parts(
        self, request: ReservationRequest, limits: AdmissionLimits, group: str | None
    ) -> tuple[Sequence[Reservation], AdmissionError | None]:
        """Enter the parts of a bundle. If no division fits, returns no parts, and the refusal of
        the first division.
        """
        bundle, why = uuid.uuid4().hex[:12], None
        for parts in divisions(self._fabric, request, limits.paths_per_pair):
            entered: list[Reservation] = []
            try:
                entered.extend(self._add_one(part, limits, group, bundle) for part in parts)
            except AdmissionError as error:
                self._bookings.take_back(entered)
                why = why or self._why_not_whole(request) or error
            else:
                return entered, None
        return (), why

    def _why_not_whole(self, request: ReservationRequest) -> AdmissionError | None:
        """The refusal of all parts together, if an uplink common to the parts is in the way."""
        beyond = None if request.transfer else self._bookings.beyond_uplink(request)
        return None if beyond is None else NoRoom("".join(beyond), (), beyond[0])

    def _largest_bundle(
        self, request: ReservationRequest, limits: AdmissionLimits, group: str | None
    ) -> Alternative | None:
        """The largest bundle of whole circuits that fits in place of the unfitting ``request``; of
        a transfer, the bundle with the earliest end.
        """
        for smaller in smaller_bundles(self._fabric, request, limits.paths_per_pair):
            tried, start, end = smaller, None, None
            if request.transfer is not None:
                start = request.start_unix_s or time.time()
                end = start + request.transfer.megabytes * MBIT / smaller.bandwidth_mbps + _SLACK_S
                transfer = replace(request.transfer, deadline_unix_s=end)
                tried = replace(smaller, transfer=transfer, end_unix_s=end)
            entered, _ = self._add_parts(tried, limits, group)
            if entered:
                self._bookings.take_back(entered)
                mbps = smaller.bandwidth_mbps
                return Alternative(mbps, start_unix_s=start, end_unix_s=end)
        return None

    def _add_one(
        self,
        request: ReservationRequest,
        limits: AdmissionLimits,
        group: str | None,
        bundle: str | None = None,
    ) -> Reservation:
        starts_now = request.start_unix_s is None
        if starts_now:
            _check_switches(self._fabric, self._substrate, self._reach, request)
        try:
            return self._bookings.add(request, limits, group, self._notice_s, bundle)
        except NoRoom as error:
            if starts_now and self._would_fit(request, limits):
                raise _with_devices(self._reach, error) from None
            raise

    def _builds(self, state: NetworkState, reservations: Sequence[Reservation]) -> bool:
        """True if a reservation starts now, on a path that does not stand."""
        return any(
            reservation.state is ReservationState.ACTIVATING
            and reservation.booked not in state.vlans
            for reservation in reservations
        )

    def _would_fit(self, request: ReservationRequest, limits: AdmissionLimits) -> bool:
        """True if the request would be admitted with all optical switches up."""
        blocked = self._reach.blocked_with_all_planes()
        return blocked < limits.blocked and self._bookings.would_fit(
            request, replace(limits, blocked=blocked), self._notice_s
        )

    def availability(self, request: ReservationRequest) -> Sequence[Available]:
        """The bandwidth that fits in each span of the request's time. Raises UnknownName,
        AdmissionError.
        """
        return self._bookings.availability(request, self._limits.anywhere())

    def fitting_mbps(self, failed: Sequence[Reservation]) -> Mapping[str, float]:
        """Mbps by which failed reservations would fit now, by id; absent: no rate would fit."""
        return self._bookings.fitting_mbps(failed, self._limits.now()) if failed else {}

    def commit(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Make a held reservation permanent, if it is still as it was ``seen``.

        Raises UnknownName, LifecycleError, Changed.
        """
        if parts := self._parts(reservation_id, seen):
            committed = [
                self._reservations.commit(part.id, None)
                for part in parts
                if part.state is ReservationState.HELD
            ]
            if not committed:
                self._reservations.commit(parts[0].id, None)  # raises LifecycleError
            self._placement.activate_in_turn([reservation.id for reservation in committed])
            return self.reservation(reservation_id)
        reservation = self._reservations.commit(reservation_id, seen)
        self._placement.activate_in_turn([reservation_id])
        return reservation

    def modify(
        self, reservation_id: str, change: Modification, seen: Reservation | None = None
    ) -> Reservation:
        """Change a reservation without an interruption, if it is still as it was ``seen``.

        Raises UnknownName, WrongRequest, LifecycleError, Changed, AdmissionError (NotHitless
        among them).
        """
        if self._parts(reservation_id, seen):
            raise NotHitless(
                "hitless modification not possible: the parts of a bundle are promised separately; "
                f"make a further reservation, then release {reservation_id}"
            )
        reservation = self._reservations.modify(reservation_id, change, self._limits.now(), seen)
        self._care.hold_in_turn()
        return reservation

    def release(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Release. Raises UnknownName, LifecycleError, Changed if the state is not as ``seen``."""
        if parts := self._parts(reservation_id, seen):
            left = [
                part for part in parts if part.is_booked or part.state is ReservationState.FAILED
            ]
            for reservation in left or parts[:1]:  # raises LifecycleError where nothing is left
                self._let_go(reservation.id, None)
            return self.reservation(reservation_id)
        return self._let_go(reservation_id, seen)

    def release_group(self, group: str) -> Sequence[Reservation]:
        """Release all reservations of a group that are not over; returns the whole group. Raises
        UnknownName.
        """
        gone = self._reservations.let_group_go(group)
        releasing = [r.id for r in gone if r.state is ReservationState.RELEASING]
        if releasing:
            self._care.release_in_turn(releasing)
        return self._bookings.group(group)

    def _let_go(self, reservation_id: str, seen: Reservation | None) -> Reservation:
        reservation = self._reservations.let_go(reservation_id, seen)
        if reservation.state is ReservationState.RELEASING:
            self._care.release_in_turn([reservation_id])
        return reservation

    def reservation(self, reservation_id: str) -> Reservation:
        """A reservation or a bundle by id. Raises UnknownName."""
        parts = self._bookings.parts(reservation_id)
        return self._single_or_bundle(parts) if parts else self._bookings.get(reservation_id)

    def _parts(self, reservation_id: str, seen: Reservation | None) -> Sequence[Reservation]:
        """The parts of a bundle, if still as ``seen``; empty if the id is no bundle's.

        Raises Changed, and LifecycleError for a part, as only the bundle is promised.
        """
        parts = self._bookings.parts(reservation_id)
        if parts and seen is not None and self._single_or_bundle(parts) != seen:
            raise Changed(f"reservation {reservation_id} has changed meanwhile: read it again")
        if not parts and (bundle := self._bookings.get(reservation_id).bundle):
            raise LifecycleError(
                f"reservation {reservation_id} is a part of reservation {bundle}: name {bundle}"
            )
        return parts


def _check_switches(
    fabric: Fabric, substrate: Substrate, reach: Reach, request: ReservationRequest
) -> None:
    ready = reach.ready_switches()
    for name in (request.src, request.dst):
        server = fabric.server_by_name.get(name)
        rack = fabric.rack_by_name[name].id if server is None else server.rack
        switches = [
            switch.datapath
            for switch in substrate.steering(rack)
            if server is None or server in switch.servers
        ]
        if ready.isdisjoint(switches):
            problems = "; ".join(map(reach.why_not_ready, switches))
            raise DeviceMissing(
                f"{name}: {problems}",
                in_public=f"{name}: the switch that steers its traffic is not ready: ask again",
            )


def without_ids(error: AdmissionError, admitted: Sequence[Reservation]) -> AdmissionError:
    """The refusal of a group, with ids of tried entries replaced by the entries' ends."""
    text = str(error)
    for reservation in admitted:
        text = text.replace(reservation.id, f"{reservation.src}-{reservation.dst} of this request")
    return type(error)(text, error.alternatives, error.in_public)


def _with_devices(reach: Reach, error: NoRoom) -> DeviceMissing:
    down = "; ".join(reach.down_planes()) or "an optical switch was down until now"
    return DeviceMissing(
        f"{down}: {error}",
        error.alternatives,
        f"optical switches are down: {error.in_public}",
    )


def _none_fits(reasons: Iterable[str]) -> str:
    """The message of a refusal; a common reason is given once."""
    return "no entry fits: " + "; ".join(dict.fromkeys(reasons))
