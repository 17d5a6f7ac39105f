"""The controller as shown by its store while another controller leads: answers of a standby.

Only reads without a device: reservations, the network's state, decisions and history. The leader
answers questions about rates, devices and conditions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from hydra.decisions.decision import Decision
from hydra.decisions.records import read_decision
from hydra.errors import HydraError
from hydra.faults.condition import Condition
from hydra.faults.diagnosis import store_unavailable
from hydra.faults.quarantine import read_quarantine
from hydra.history import Happening, HappeningKind, History
from hydra.journal import JournalCopy, JournalError, JournalOfAnotherFormat, Kind, Record
from hydra.journal_format import read_state
from hydra.model import Fabric, NetworkState, PortId
from hydra.names import no_group, no_reservation
from hydra.reservations.bundle import bundle_of
from hydra.reservations.records import read_reservation
from hydra.reservations.reservation import Reservation
from hydra.reservations.shapes import Shape, shape_of
from hydra.service import QuarantinedPort

LOG = logging.getLogger("hydra.stored")
_EVERY_S: Final = 1.0
_T = TypeVar("_T")


class Copies(Protocol):
    """Where copies of the journal come from."""

    @property
    def last(self) -> JournalCopy | None:
        """The copy of the last look; None before the first look."""
        ...

    def look(self) -> JournalCopy:
        """A copy of the present journal.

        Raises JournalError; JournalOfAnotherFormat if the format is unreadable here.
        """
        ...


class _Read(Generic[_T]):
    """Records of a kind, each read once."""

    def __init__(self, kind: Kind, read: Callable[[Mapping[str, Any]], _T | None]) -> None:
        self._kind = kind
        self._read = read
        self._records: Mapping[int, Record] = {}
        self._by_place: dict[int, tuple[Record, _T | None]] = {}
        self._found: list[_T] = []

    def of(self, copy: JournalCopy) -> list[_T]:
        records = copy.records(self._kind)
        if records is not self._records:
            known = self._by_place
            self._by_place = {
                place: before
                if (before := known.get(place)) is not None and before[0] is record
                else (record, self._parsed(record))
                for place, record in records.items()
            }
            read = (parsed for _, parsed in self._by_place.values())
            self._found = [parsed for parsed in read if parsed is not None]
            self._records = records
        return self._found

    def _parsed(self, record: Record) -> _T | None:
        try:
            return self._read(record)
        except (HydraError, KeyError, TypeError, ValueError) as error:
            LOG.warning("a record of kind %s can't be read, and is left out: %r", self._kind, error)
            return None


class StoredView:
    """A part of :class:`hydra.service.ControllerService`; thread-safe.

    Each look sees a single moment of the store: :meth:`now` answers with the content of that
    moment.
    """

    def __init__(self, fabric: Fabric, copies: Copies) -> None:
        self._fabric = fabric
        self._copies = copies
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._then: Callable[[], None] = lambda: None
        self._refuse: Callable[[HydraError], None] = lambda _error: None
        self._ahead: Callable[[JournalCopy], None] = lambda _copy: None
        self._thread = threading.Thread(target=self._follow, name="stored", daemon=True)
        self._state = _Read(Kind.STATE, lambda record: read_state(fabric, record["state"]))
        self._reservations = _Read(
            Kind.RESERVATION, lambda record: read_reservation(fabric, record, time.time())
        )
        self._decisions = _Read(Kind.DECISION, lambda record: read_decision(fabric, record))
        self._history = _Read(Kind.HISTORY, Happening.from_record)
        self._ports = _Read(Kind.QUARANTINE, lambda record: list(record["ports"]))

    def start(
        self,
        then: Callable[[], None],
        refuse: Callable[[HydraError], None],
        ahead: Callable[[JournalCopy], None] = lambda _copy: None,
    ) -> None:
        """Look at the store every now and then, to have a copy when the store is lost.

        ``then`` is called after the first look, with or without an answer, so that a standby can
        answer requests once clients know the standby. ``refuse`` is called instead, or later, if a
        release with another journal format wrote the store: this controller can then not lead any
        more. ``ahead`` is given each copy, the first copy before ``then``.
        """
        self._then, self._refuse, self._ahead = then, refuse, ahead
        self._thread.start()

    def stop(self) -> None:
        """Optional, and repeatable."""
        self._ended.set()

    def _follow(self) -> None:
        try:
            self._look()
        finally:
            if not self._ended.is_set():
                self._then()
        while not self._ended.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        try:
            self._ahead(self._copies.look())
        except JournalOfAnotherFormat as error:
            if not self._ended.is_set():
                self._ended.set()
                self._refuse(error)
        except JournalError as error:
            LOG.debug("%s", error)

    def now(self, *, lost: bool = False) -> Stored:
        """The store's content now, or at its last answer; ``lost``: known to be silent.

        Raises JournalError if the store never answered.
        """
        copy = self._copies.last
        if copy is None or not lost:
            try:
                copy = self._copies.look()
            except JournalError:
                copy = self._copies.last
                if copy is None:
                    raise
        with self._lock:
            return self._stored(copy)

    def conditions(self, since_unix_s: float, why: str) -> Sequence[Condition]:
        """Conditions known to a standby while the store does not answer."""
        copy = self._copies.last
        with self._lock:
            found = None if copy is None else self._stored(copy)
        state = NetworkState() if found is None else found.state()
        reservations = () if found is None else found.reservations()
        return (store_unavailable(state, reservations, since_unix_s, why),)

    def _stored(self, copy: JournalCopy) -> Stored:
        states = self._state.of(copy)
        return Stored(
            fabric=self._fabric,
            as_of_unix_s=copy.as_of_unix_s,
            state=states[-1] if states else NetworkState(),
            reservations=tuple(self._reservations.of(copy)),
            decisions=tuple(reversed(self._decisions.of(copy))),
            history=self._history.of(copy),
            ports=[port for ports in self._ports.of(copy) for port in ports],
        )


class Stored:
    """The store's content at a moment."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        as_of_unix_s: float,
        state: NetworkState,
        reservations: Sequence[Reservation],
        decisions: Sequence[Decision],
        history: Sequence[Happening],
        ports: Sequence[Mapping[str, Any]],
    ) -> None:
        self.fabric, self.as_of_unix_s, self._state = fabric, as_of_unix_s, state
        self._reservations, self._decisions, self._history = reservations, decisions, history
        self._ports = ports

    def state(self) -> NetworkState:
        return self._state

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        """None: only the leader measures traffic."""
        return {}

    def reservations(self) -> Sequence[Reservation]:
        return self._reservations

    def reservation(self, reservation_id: str) -> Reservation:
        """A reservation by id. Raises UnknownName."""
        if parts := [
            reservation
            for reservation in self._reservations
            if reservation.bundle == reservation_id
        ]:
            return bundle_of(self.fabric, parts)
        found = next(
            (reservation for reservation in self._reservations if reservation.id == reservation_id),
            None,
        )
        if found is None:
            raise no_reservation(reservation_id)
        return found

    def shape(self, shape_id: str) -> Shape:
        """The shape of a group; only the leader knows racks that fit in its place."""
        return shape_of(self.fabric, self.group(shape_id))

    def group(self, group: str) -> Sequence[Reservation]:
        """Reservations of a group. Raises UnknownName."""
        found = tuple(
            reservation for reservation in self._reservations if reservation.group == group
        )
        if not found:
            raise no_group(group)
        return found

    def decisions(self) -> Sequence[Decision]:
        return self._decisions

    def history(
        self,
        since_unix_s: float,
        before_unix_s: float,
        kinds: Collection[HappeningKind],
        most: int,
    ) -> Sequence[Happening]:
        """As :meth:`hydra.history.History.between`."""
        return History(self._history).between(since_unix_s, before_unix_s, kinds, most)

    def quarantine(self) -> Sequence[QuarantinedPort]:
        entries = (read_quarantine(self.fabric, port) for port in self._ports)
        return [
            QuarantinedPort(entry, on_trial=not entry.blocks(time.time()))
            for entry in entries
            if entry is not None
        ]
