"""Reservations at work: admitted, brought up, moved when a circuit dies, and let go."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace
from typing import Final

from apps.controller.mover import Mover
from apps.controller.patch_panels import PatchPanels
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.upkeep import Retries, Upkeep
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from hydra.errors import (
    AdmissionError,
    Alternative,
    Changed,
    DeviceMissing,
    DeviceUnavailable,
    HydraError,
    LifecycleError,
    NoRoom,
    NotHitless,
    PlanError,
    UnknownName,
)
from hydra.forwarding.substrate import substrate_of
from hydra.lifecycle import ReservationState
from hydra.model import Fabric, NetworkState, Path, PortId, RackId
from hydra.names import rack_of
from hydra.reconfiguration.beside import Touched, apart
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Pair, Plan, directions, pair_named, pair_of
from hydra.reservations.admission import beyond_any_circuit
from hydra.reservations.bundle import bundle_of, divisions, smaller_bundles
from hydra.reservations.calendar import AdmissionLimits, at_most_mbps
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import Pin, Reservation, ReservationRequest, rack_pair
from hydra.service import GroupOutcome, Refusal, ReservationPreview

LOG = logging.getLogger("hydra.reservations")
_PLACEMENT_ATTEMPTS: Final = 3
_CHECKS: Final = 3
"""Checks of whether paths can be built, before a client is told to ask again."""
_NOTHING: Final = Touched()
_Basis = tuple[NetworkState, tuple[Pin, ...], frozenset[PortId]]
"""The basis of paths to come: the state that stands, the pins promised, and ports out of use."""


@dataclass(eq=False, repr=False)
class ReservationCare:
    """Care of reservations, from admission to their end.

    :meth:`reserve` and :meth:`release` may be called from any thread; they only queue work. Single
    operations of sets are atomic, which is all that is asked of them here.
    """

    _fabric: Fabric
    _planning: Planning
    _planner: Planner
    _mover: Mover
    _upkeep: Upkeep
    _reach: Reach
    _panels: PatchPanels
    ledger: InitVar[Ledger]
    _max_hops: int
    _paths_per_pair: int
    _notice_s: float
    _enqueue: Callable[[Callable[[], None]], None]
    _look_soon: Callable[[], None] = lambda: None
    """Has a change that only waits call what it may let in."""
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    _in_turn: set[str] = field(default_factory=set, init=False)
    """Reservations for which :meth:`_activate` is queued."""
    _tried_beside: dict[str, tuple[tuple[Execution, bool], ...]] = field(
        default_factory=dict, init=False
    )
    """Of these, those that could not be placed beside the changes under way then, with whether
    these might leave anything.
    """

    _await_racks: set[str] = field(default_factory=set, init=False)
    """Reservations that were not placed, since a rack of theirs was about to be in reach."""
    _retries: Retries = field(default_factory=Retries, init=False)

    _ends: bool = field(default=False, init=False)
    """True once the next leader is to go on with what is queued here."""

    def __post_init__(self, ledger: Ledger) -> None:
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._reservations = ledger.reservations
        self._writer = ledger.writer
        self._substrate = substrate_of(self._fabric)
        self._mover.let_in(self.beside)

    # -- from any thread --------------------------------------------------------------------------

    def end_soon(self) -> None:
        """Admit and let go as ever, and leave it to the next leader to bring up, hold and take
        down: the journal says what there is to do, and nobody leads before it begins.
        """
        self._ends = True

    def reserve(self, request: ReservationRequest) -> Reservation:
        """Admit and queue.

        What no circuit carries is a bundle. Raises AdmissionError (DeviceMissing among them),
        UnknownName, DeviceUnavailable, PlanError.
        """
        admitted, _ = self._reserve((request,), None, all_or_nothing=True)
        return self._as_one(admitted)

    def reserve_all(
        self, requests: Sequence[ReservationRequest], *, all_or_nothing: bool
    ) -> GroupOutcome:
        """Admit many as one group; largest first, since small ones fit into what is left.

        With ``all_or_nothing``, the first that is refused takes the others with it. Raises what
        :meth:`reserve` raises; AdmissionError without ``all_or_nothing`` only where nothing was
        admitted at all.
        """
        group = uuid.uuid4().hex[:12]
        admitted, refused = self._reserve(requests, group, all_or_nothing=all_or_nothing)
        return GroupOutcome(admitted[0].group or group, admitted, refused)

    def preview(self, request: ReservationRequest) -> ReservationPreview:
        """The outcome of :meth:`reserve`, without its effect; raises what that raises.

        Raises DeviceUnavailable if the planner does not say in time what else would move.
        """
        with self._bookings.trial():
            drafted, _, basis = self._draft((request,), None, all_or_nothing=True)
            reservation = self._as_one(drafted)
            pins = [pin for pin in self._bookings.pins() if (pin.src, pin.dst) == reservation.pair]
        state, all_pins, blocked = basis
        if self._builds(state, drafted):
            self._planning.with_pins(state, all_pins, blocked)
        at_risk = self._reach.at_risk([reservation.pair])
        if reservation.state is not ReservationState.ACTIVATING:
            paths = [one.booked for one in drafted if one.booked is not None]
            circuits = frozenset(circuit for path in paths for circuit in path.circuits)
            new = circuits - state.topology.circuits
            return ReservationPreview(reservation, new, frozenset(), at_risk)
        target, displaced = self._planning.with_pins(state, pins, blocked)
        if displaced:
            try:
                target = self._planner.for_pins(state, pins, blocked, urgent=False)
            except PlanError as error:
                why = f"what else would move is not known now: ask again ({error})"
                raise DeviceUnavailable("planner", why) from error
        plan = self._planning.diff(state, target)
        return ReservationPreview(reservation, plan.connect, plan.disconnect, at_risk)

    def _reserve(
        self, requests: Sequence[ReservationRequest], group: str | None, *, all_or_nothing: bool
    ) -> tuple[tuple[Reservation, ...], tuple[Refusal, ...]]:
        """Reservations admitted and requests refused; the journal has all admitted ones, or none.

        Paths are checked while the ledger's lock is free, and then all is decided again, until the
        decision rests on what was checked. Admissions take turns: one whose check takes long would
        otherwise be overtaken again and again.
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
        self._activate_in_turn([reservation.id for reservation in admitted])
        return admitted, refused

    def _activate_in_turn(self, ids: Sequence[str]) -> None:
        """Queue it; what is under way may let them in before that."""
        self._in_turn.update(ids)
        self._enqueue(lambda: self._activate(ids))
        self._look_soon()

    def _draft(
        self, requests: Sequence[ReservationRequest], group: str | None, *, all_or_nothing: bool
    ) -> tuple[tuple[Reservation, ...], tuple[Refusal, ...], _Basis]:
        """Enter them in the ledger's book, in a trial; returns them, refusals, and the basis."""
        limits = self._limits()
        admitted: list[Reservation] = []
        refused: list[Refusal] = []
        for request in sorted(requests, key=lambda one: -one.bandwidth_mbps):
            try:
                admitted += self._add(request, limits, group)
            except AdmissionError as error:
                if all_or_nothing:
                    raise _without_ids(error, admitted) from None
                refused.append(Refusal(request, error))
        if not admitted:
            missing = any(isinstance(one.error, DeviceMissing) for one in refused)
            raise (DeviceMissing if missing else AdmissionError)(
                _none_fits(str(one.error) for one in refused),
                in_public=_none_fits(one.error.in_public for one in refused),
            )
        pins = (replace(one, bandwidth_mbps=0.0, reservations=()) for one in self._bookings.pins())
        return (
            tuple(admitted),
            tuple(refused),
            (self._network.state, tuple(pins), limits.blocked),
        )

    def _as_one(self, reservations: Sequence[Reservation]) -> Reservation:
        """A reservation, or the bundle of these parts."""
        if reservations[0].bundle is None:
            return reservations[0]
        return bundle_of(self._fabric, reservations)

    def _add(
        self, request: ReservationRequest, limits: AdmissionLimits, group: str | None
    ) -> Sequence[Reservation]:
        """The reservation, or the parts of the bundle, that ``request`` is entered as."""
        try:
            return [self._add_one(request, limits, group)]
        except AdmissionError as error:
            src, dst = (rack_of(self._fabric, name) for name in (request.src, request.dst))
            if beyond_any_circuit(self._fabric, src, dst, request.least_mbps) is None:
                raise
            refused = error
        parts, why = self._add_parts(request, limits, group)
        if parts:
            return parts
        told, public, alternatives = str(refused), refused.in_public, refused.alternatives
        if (most := self._largest_bundle(request, limits, group)) is not None:
            hint = f", or for {at_most_mbps(most.bandwidth_mbps)} Mb/s, which fit in parts"
            told, public, alternatives = told + hint, public + hint, (most, *alternatives)
        if why is not None:
            told += f"; it does not fit in parts, each between servers of its own: {why}"
            public += f"; it does not fit in parts: {why.in_public}"
        raise type(why or refused)(told, alternatives, public)

    def _add_parts(
        self, request: ReservationRequest, limits: AdmissionLimits, group: str | None
    ) -> tuple[Sequence[Reservation], AdmissionError | None]:
        """Enter the parts of a bundle; none, and why the first way to divide it was refused, if
        none of the ways fits.
        """
        bundle, why = uuid.uuid4().hex[:12], None
        for parts in divisions(self._fabric, request, limits.paths_per_pair):
            entered: list[Reservation] = []
            try:
                entered.extend(self._add_one(part, limits, group, bundle) for part in parts)
            except AdmissionError as error:
                self._bookings.take_back(entered)
                why = why or error
            else:
                return entered, None
        return (), why

    def _largest_bundle(
        self, request: ReservationRequest, limits: AdmissionLimits, group: str | None
    ) -> Alternative | None:
        """The bundle of most whole circuits that fits in place of ``request``, which does not."""
        for smaller in smaller_bundles(self._fabric, request, limits.paths_per_pair):
            entered, _ = self._add_parts(smaller, limits, group)
            if entered:
                self._bookings.take_back(entered)
                return Alternative(smaller.bandwidth_mbps, None)
        return None

    def _add_one(
        self,
        request: ReservationRequest,
        limits: AdmissionLimits,
        group: str | None,
        bundle: str | None = None,
    ) -> Reservation:
        self._bookings.check(request)
        starts_now = request.start_unix_s is None
        if starts_now:
            self._check_switches(request)
        try:
            return self._bookings.add(request, limits, group, self._notice_s, bundle)
        except NoRoom as error:
            if starts_now and self._would_fit(request, limits):
                raise self._with_devices(error) from None
            raise

    def _builds(self, state: NetworkState, reservations: Sequence[Reservation]) -> bool:
        """True if one of them starts now, on a path that does not stand."""
        return any(
            one.state is ReservationState.ACTIVATING and one.booked not in state.vlans
            for one in reservations
        )

    def _limits(self) -> AdmissionLimits:
        return AdmissionLimits(
            self._max_hops,
            self._reach.blocked_ports(),
            self._reservations.unreserved_paths(),
            self._mover.touched.ports,
            paths_per_pair=self._paths_per_pair,
        )

    def _would_fit(self, request: ReservationRequest, limits: AdmissionLimits) -> bool:
        """True if it would be admitted if no optical switch were down."""
        blocked = self._reach.blocked_with_all_planes()
        return blocked < limits.blocked and self._bookings.would_fit(
            request, replace(limits, blocked=blocked), self._notice_s
        )

    def _with_devices(self, error: NoRoom) -> DeviceMissing:
        down = "; ".join(self._reach.down_planes()) or "an optical switch was down until now"
        return DeviceMissing(
            f"{down}: {error}",
            error.alternatives,
            f"optical switches are down: {error.in_public}",
        )

    def _check_switches(self, request: ReservationRequest) -> None:
        ready = self._reach.ready_switches()
        for name in (request.src, request.dst):
            server = self._fabric.server_by_name.get(name)
            rack = self._fabric.rack_by_name[name].id if server is None else server.rack
            switches = [
                switch.datapath
                for switch in self._substrate.steering(rack)
                if server is None or server in switch.servers
            ]
            if ready.isdisjoint(switches):
                problems = "; ".join(map(self._reach.why_not_ready, switches))
                raise DeviceMissing(
                    f"{name}: {problems}",
                    in_public=f"{name}: the switch that steers its traffic is not ready: ask again",
                )

    def fitting_mbps(self, failed: Sequence[Reservation]) -> Mapping[str, float]:
        """Mbps of reservations that have failed which would fit now, by id; absent: none would."""
        return self._bookings.fitting_mbps(failed, self._limits()) if failed else {}

    def commit(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Make a held reservation one that stays, if it is still as it was ``seen``.

        Raises UnknownName, LifecycleError, Changed.
        """
        if parts := self._parts(reservation_id, seen):
            committed = [
                self._reservations.commit(one.id, None)
                for one in parts
                if one.state is ReservationState.HELD
            ]
            if not committed:
                self._reservations.commit(parts[0].id, None)  # raises LifecycleError
            self._activate_in_turn([one.id for one in committed])
            return self.reservation(reservation_id)
        reservation = self._reservations.commit(reservation_id, seen)
        self._activate_in_turn([reservation_id])
        return reservation

    def modify(
        self, reservation_id: str, change: Modification, seen: Reservation | None = None
    ) -> Reservation:
        """Change it without an interruption, if it is still as it was ``seen``.

        Raises UnknownName, LifecycleError, Changed, AdmissionError (NotHitless among them).
        """
        if self._parts(reservation_id, seen):
            raise NotHitless(
                "hitless modification not possible: it is a bundle, whose parts are promised each "
                "by itself; reserve anew beside it, then release this one"
            )
        reservation = self._reservations.modify(reservation_id, change, self._limits(), seen)
        self._enqueue(self._hold)
        return reservation

    def release(self, reservation_id: str, seen: Reservation | None = None) -> Reservation:
        """Let go. Raises UnknownName, LifecycleError, Changed if it is not as it was ``seen``."""
        if parts := self._parts(reservation_id, seen):
            left = [one for one in parts if one.is_booked or one.state is ReservationState.FAILED]
            for one in left or parts[:1]:  # raises LifecycleError where nothing is left
                self._let_go(one.id, None)
            return self.reservation(reservation_id)
        return self._let_go(reservation_id, seen)

    def _let_go(self, reservation_id: str, seen: Reservation | None) -> Reservation:
        reservation = self._reservations.let_go(reservation_id, seen)
        if reservation.state is ReservationState.RELEASING:
            self._enqueue(lambda: self._release(reservation_id))
        return reservation

    def reservation(self, reservation_id: str) -> Reservation:
        """A reservation or a bundle by its id. Raises UnknownName."""
        parts = self._bookings.parts(reservation_id)
        return self._as_one(parts) if parts else self._bookings.get(reservation_id)

    def _parts(self, reservation_id: str, seen: Reservation | None) -> Sequence[Reservation]:
        """The parts of a bundle, if it is still as it was ``seen``; none if the id is not a
        bundle's.

        Raises Changed, and LifecycleError for a part: what is promised is the bundle.
        """
        parts = self._bookings.parts(reservation_id)
        if parts and seen is not None and self._as_one(parts) != seen:
            raise Changed(f"reservation {reservation_id} has changed meanwhile: read it again")
        if not parts and (bundle := self._bookings.get(reservation_id).bundle):
            raise LifecycleError(
                f"reservation {reservation_id} is a part of reservation {bundle}: name that one"
            )
        return parts

    # -- in the conductor's thread ----------------------------------------------------------------

    def _hold(self) -> None:
        if not self._ends:
            self._upkeep.hold_reserved()

    def resume(self) -> None:
        """After a start: finish what the last run had begun, and bring back what was lost."""
        for reservation in self._bookings.all():
            if reservation.state is ReservationState.RELEASING:
                self._release(reservation.id)
        self.restore()

    def restore(self) -> None:
        """Bring back the paths of all reservations that should have one."""
        self._await_racks.clear()
        self._place([r.id for r in self._bookings.all() if r.holds_capacity])

    @property
    def awaits_racks(self) -> bool:
        """True if reservations are yet to be placed, as soon as their racks are in reach."""
        return bool(self._await_racks)

    def rejoin(self, lost: Collection[tuple[RackId, RackId]]) -> None:
        """Give rack pairs, as (from, to), other paths for unreserved ones that they lost, where
        there is room: all in one move.
        """
        state, blocked = self._network.state, self._reach.blocked_ports()
        missing = set(lost) - directions(state)
        if missing and self._fabric.one_way:
            target = self._planning.ringed(state, missing, blocked)
        elif missing:
            pairs = sorted({(min(ends), max(ends)) for ends in missing})
            target = self._planning.rejoined(state, pairs, self._bookings.pins(), blocked)
        if missing:
            if left := missing - directions(target):
                LOG.warning("stay electrical, since there is no room: %s", self._named(left))
            self._mover.go(target, "circuit lost", "planned around it")
        self._reservations.keep_standing()

    def rejoined_beside(self, lost: Collection[tuple[RackId, RackId]]) -> NetworkState:
        """The state in which unreserved pairs, as (from, to), that have lost their paths have
        others, of what the changes under way do not touch. Raises PlanError.
        """
        state, touched = self._network.state, self._mover.touched
        pins = self._bookings.pins()
        pinned = {rack_pair(pin.src, pin.dst) for pin in pins}
        missing = {rack_pair(*ends) for ends in set(lost) - directions(state)}
        pairs = sorted(missing - touched.pairs - pinned)
        if not pairs:
            return state
        blocked = self._reach.blocked_ports() | touched.ports
        standing = [pin for pin in pins if pin.path in state.vlans]
        return self._planning.rejoined(apart(state, touched), pairs, standing, blocked)

    def _named(self, ends: Collection[tuple[RackId, RackId]]) -> str:
        pairs = sorted({(min(pair), max(pair)) for pair in ends})
        return ", ".join(pair_named(self._fabric, pair) for pair in pairs)

    def join(self, paths: Collection[Path], why: str) -> None:
        """Bring up paths that were planned earlier and are not reserved, where they still fit."""
        target = self._planning.joined(self._network.state, paths, self._reach.blocked_ports())
        if self._mover.go(target, "people", why) is not None:
            self._reservations.keep_standing()

    def keep_time(self) -> None:
        """End the reservations whose time is up, and begin those whose time has come."""
        self._writer.catch_up()
        self._fail_refused()
        for reservation_id in self._bookings.expired():
            if self._ends:
                return
            self._expire(reservation_id)
        self._take_down_again()
        due = self._bookings.due()
        for reservation_id in due:
            if self._ends:
                return
            self._reservations.change(reservation_id, ReservationState.ACTIVATING)
        if due:
            self._place(due)

    def _fail_refused(self) -> None:
        """Fail reservations whose rules a switch refuses: their traffic is electrical."""
        if not self._upkeep.refuses:
            return
        for reservation in self._bookings.active():
            if reservation.state is ReservationState.ACTIVE and (
                why := self._upkeep.refusal(reservation)
            ):
                self._reservations.change(reservation.id, ReservationState.FAILED, why)

    def _activate(self, ids: Sequence[str]) -> None:
        """Place the reservations among ``ids`` that are to begin now."""
        self._in_turn.difference_update(ids)
        for reservation_id in ids:
            self._tried_beside.pop(reservation_id, None)
        self._place([r.id for r in self._known(ids) if r.state is ReservationState.ACTIVATING])

    def _known(self, ids: Iterable[str]) -> Iterator[Reservation]:
        """Those among these that are remembered: one that was to begin may have ended long ago."""
        for reservation_id in ids:
            with suppress(UnknownName):
                yield self._bookings.get(reservation_id)

    def beside(self) -> bool:
        """Place a reservation that waits for its turn, between two steps of the changes under way,
        if these touch nothing that it takes, or leave it; True if the network was changed.

        The others keep their turn.
        """
        if self._ends:
            return False
        for reservation_id in sorted(self._in_turn):
            under_way = tuple((one, one.may_leave) for one in self._network.under_way)
            if self._tried_beside.get(reservation_id) == under_way:
                continue
            self._tried_beside[reservation_id] = under_way
            try:
                reservation = self._bookings.get(reservation_id)
                plan = self._plan_beside(reservation)
            except HydraError as error:
                LOG.debug("reservation %s keeps its turn: %s", reservation_id, error)
                continue
            if plan is not None:
                self._in_turn.discard(reservation_id)  # whatever comes of it, it has its turn yet
                entry = self._log.enter(f"reservation {reservation_id}")
                self._mover.move_beside(entry, plan)
                self._note_placed(reservation)
                return True
        return False

    def _plan_beside(self, reservation: Reservation) -> Plan | None:
        """A plan that gives a reservation its path beside the changes under way; None if it has to
        have its turn. Raises HydraError where none is found.
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
        touched = self._mover.touched_beside(self._taken_by(path))
        if touched is None:
            return None
        others = frozenset(
            one.id
            for one in self._bookings.all()
            if one.booked not in state.vlans and one.id != reservation.id
        )
        pins = self._bookings.pins(leaving_out=others)
        if touched == self._mover.touched:
            target = self._target(pins, touched)
        else:  # whose ports it takes over is given others by the change that leaves them
            blocked = self._reach.blocked_ports() | touched.ports
            target, _ = self._planning.with_pins(apart(state, touched), pins, blocked)
        return self._mover.plan_beside(target, f"reservation {reservation.id}", takes_over=True)

    def _taken_by(self, path: Path) -> Touched:
        """What a path takes: its pair's present paths and all at its ports give way to it."""
        paths = self._network.state.vlans
        ends = {end for circuit in path.circuits for end in circuit.ends}
        pair = pair_of(path)
        users = {
            pair_of(one)
            for one in paths
            if any(not ends.isdisjoint(circuit.ends) for circuit in one.circuits)
        }
        gone = [one for one in paths if pair_of(one) in users or pair_of(one) == pair]
        ends.update(end for one in gone for circuit in one.circuits for end in circuit.ends)
        vlans = frozenset(paths[one] for one in gone)
        return Touched(frozenset({pair, *users}), frozenset(ends), vlans)

    def _note_placed(self, reservation: Reservation) -> None:
        """Note that a reservation has its path, if that stands."""
        if (
            reservation.booked is not None
            and self._reservations.place(reservation.booked)
            and reservation.state is ReservationState.ACTIVATING
            and not self._upkeep.refusal(reservation)
        ):
            self._upkeep.hold_reserved()
            self._reservations.change(reservation.id, ReservationState.ACTIVE)

    def _place(self, ids: Sequence[str]) -> None:
        """Give the reservations their paths, in one move; other paths where the first ones fail.

        Those with a rack that is about to be in reach wait for :meth:`restore`.
        """
        if awaited := self._reach.awaited_racks():
            later = {one.id for one in self._known(ids) if not awaited.isdisjoint(one.pair)}
            self._await_racks |= later
            ids = [one for one in ids if one not in later]
        reasons: list[str] = []
        for _ in range(_PLACEMENT_ATTEMPTS):
            waiting = self._not_placed(ids)
            if self._ends or not waiting:
                return
            self._avoid_blocked(waiting, reasons)
            reasons.append(self._try_to_place([r.id for r in self._not_placed(ids)]))
            for reservation in self._not_placed(ids):
                if self._ends:
                    return
                self._note_placed(reservation)
            reasons += map(self._upkeep.refusal, self._not_placed(ids))
        why = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
        for reservation in self._not_placed(ids):
            self._reservations.change(
                reservation.id, ReservationState.FAILED, why or "no path came up"
            )

    def _not_placed(self, ids: Sequence[str]) -> list[Reservation]:
        """Reservations that hold capacity, but are activating, or whose path does not stand.

        A reservation whose path people are at work on is left out: it has to wait.
        """
        standing = self._network.state.vlans
        return [
            reservation
            for reservation in self._known(ids)
            if reservation.holds_capacity
            and not self._panels.awaited(reservation.booked)
            and (
                reservation.booked not in standing
                or reservation.state is ReservationState.ACTIVATING
            )
        ]

    def _avoid_blocked(self, reservations: Sequence[Reservation], tried: Sequence[str]) -> None:
        """Book anew pairs with a path at blocked ports; ``tried`` says what has failed so far."""
        limits = self._limits()
        blocked = {
            reservation.pair
            for reservation in reservations
            if reservation.booked is not None
            and any({c.a, c.b} & limits.blocked for c in reservation.booked.circuits)
        }
        for pair in sorted(blocked):
            self._reservations.reroute(pair, limits, tried)

    def _target(self, pins: Sequence[Pin], touched: Touched = _NOTHING) -> NetworkState:
        """The state with every pin on its path; pairs that give way to them get other paths.

        What others have ``touched`` nobody is given.
        """
        state = apart(self._network.state, touched)
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

    def _try_to_place(self, ids: Sequence[str]) -> str:
        """Move the network to where the reservations have their paths; returns why that failed."""
        try:
            return self._move_to(self._target(self._bookings.pins()), ids)
        except HydraError as error:
            if len(ids) < 2:
                return str(error)
        # One of them is to blame: the others need not suffer.
        problems = []
        for reservation_id in ids:
            if self._ends:
                break
            others = frozenset(ids) - {reservation_id}
            others -= {r.id for r in self._placed(others)}
            try:
                target = self._target(self._bookings.pins(leaving_out=others))
                problems.append(self._move_to(target, [reservation_id]))
            except HydraError as error:
                problems.append(str(error))
        return "; ".join(dict.fromkeys(problem for problem in problems if problem))

    def _placed(self, ids: Collection[str]) -> list[Reservation]:
        standing = self._network.state.vlans
        return [r for r in self._known(ids) if r.booked in standing]

    def _move_to(self, target: NetworkState, ids: Sequence[str]) -> str:
        if target == self._network.state:
            return ""
        entry = self._log.enter(f"reservation {', '.join(ids)}")
        return self._mover.move(entry, target).reason

    def _release(self, reservation_id: str) -> None:
        reservation = self._bookings.get(reservation_id)
        if self._ends or reservation.state is not ReservationState.RELEASING:
            return  # asked for before :meth:`resume`, which has seen to it, or will
        self._take_down(reservation)
        self._reservations.change(
            reservation.id,
            ReservationState.RELEASED,
            reservation.reason,
            leaves_nothing=not self._reservations.unwanted(reservation.pair),
        )
        self._note_taken_down(reservation.pair)

    def _take_down(self, reservation: Reservation) -> None:
        """Remove those of the pair's paths that nobody else wants.

        What can't be removed now, since a vswitch is away, is tried again by :meth:`keep_time`.
        """
        pair = reservation.pair
        if unwanted := self._reservations.unwanted(pair):
            entry = self._log.enter(f"release of reservation {reservation.id}")
            try:
                self._mover.move(entry, self._planning.reduced(self._network.state, (), unwanted))
            except HydraError as error:
                self._log.refuse(entry, str(error))

    def _note_taken_down(self, pair: Pair) -> None:
        """Note whether the path that the pair's reservations have left is gone, or wanted."""
        stays = bool(self._reservations.unwanted(pair))
        self._retries.note([pair], [pair] if stays else [])
        if not stays:
            self._reservations.leave_nothing(pair)

    def _take_down_again(self) -> None:
        """Try again what could not be removed, once the vswitches are there that it takes."""
        left = {
            one.pair: one
            for one in self._bookings.leaving()
            if one.state is not ReservationState.RELEASING
        }
        if not left:
            return
        ready, steering = self._reach.ready_switches(), self._substrate.steering
        for pair in self._retries.due(left):
            if self._ends:
                return
            if ready.issuperset(one.datapath for rack in pair for one in steering(rack)):
                self._take_down(left[pair])
            self._note_taken_down(pair)

    def _expire(self, reservation_id: str) -> None:
        before = self._bookings.get(reservation_id)
        if not before.ends_by(time.time()):
            return  # meanwhile its end was put off, or it was committed
        if before.preempted_by is not None:
            state, reason = ReservationState.PREEMPTED, before.reason
        elif before.held_until_unix_s is not None:
            state, reason = ReservationState.EXPIRED, "it was not committed in time"
        else:
            state, reason = ReservationState.EXPIRED, "its time is up"
        try:
            reservation = self._reservations.change(reservation_id, state, reason, before)
        except Changed:
            return  # the same, in this moment
        if before.holds_capacity:
            self._take_down(reservation)
            self._note_taken_down(reservation.pair)


def _without_ids(error: AdmissionError, admitted: Sequence[Reservation]) -> AdmissionError:
    """The refusal of a group, which names those of its entries that were tried by their ends."""
    told = str(error)
    for one in admitted:
        told = told.replace(one.id, f"{one.src}-{one.dst} of this request")
    return type(error)(told, error.alternatives, error.in_public)


def _none_fits(reasons: Iterable[str]) -> str:
    """The message of a refusal; a reason that several have in common is told once."""
    return "none of them fits: " + "; ".join(dict.fromkeys(reasons))
