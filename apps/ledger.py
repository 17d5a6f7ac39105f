"""What the controller knows and has decided: state, reservations, history; and their journal."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from hydra.errors import UnknownName
from hydra.journal import Journal
from hydra.journal_format import read_state, state_record
from hydra.lifecycle import ReconfigurationState, ReservationState
from hydra.model import Circuit, Fabric, NetworkState
from hydra.plan import Pair, paths_by_pair
from hydra.reservations import Pin, Reservation, ReservationBook, ReservationRequest
from hydra.service import Reconfiguration

_HISTORY: Final = 200
_KEPT_RESERVATIONS: Final = 1000


class Ledger:
    """Thread-safe; every change that has to survive a restart is in the journal first."""

    def __init__(self, fabric: Fabric, journal: Journal) -> None:
        self._fabric = fabric
        self._journal = journal
        self._lock = threading.RLock()
        self._state = NetworkState()
        self._book = ReservationBook()
        self._reconfigurations: OrderedDict[str, Reconfiguration] = OrderedDict()
        self._decisions: deque[str] = deque(maxlen=_HISTORY)
        self._standing: set[Pair] = set()
        """Pairs whose path an operator or the periodic mode asked for: no release removes it."""
        self._born_s: dict[Circuit, float] = {}

    def load(self) -> None:
        """Take over what the journal remembers. Raises HydraError if it can't be used."""
        remembered = self._journal.load_state(self._fabric.name)
        with self._lock:
            if remembered is not None:
                self._state = read_state(self._fabric, remembered)
            records = self._journal.load_reservations()
            self._book = ReservationBook.from_records(records, self._fabric)
            self._claim_standing()

    def close(self) -> None:
        self._journal.close()

    # -- the network's state ----------------------------------------------------------------------

    @property
    def state(self) -> NetworkState:
        with self._lock:
            return self._state

    def settle(self, state: NetworkState) -> None:
        """The network is in ``state`` from now on."""
        now_s = time.monotonic()
        with self._lock:
            self._state = state
            circuits = state.topology.circuits
            self._born_s = {circuit: self._born_s.get(circuit, now_s) for circuit in circuits}
            self._standing &= set(paths_by_pair(state))

    def save(self, what: str) -> None:
        """Write the state to the journal, with the paths that the reservations have in it."""
        with self._lock:
            self._note_paths()
        record = state_record(self._fabric, self.state)
        self._journal.save_state(self._fabric.name, record)
        self._journal.record(time.time(), what, {"state": record})

    def age_s(self, circuit: Circuit) -> float:
        """How long ago a circuit came up; long, if it was there before."""
        with self._lock:
            return time.monotonic() - self._born_s.get(circuit, 0.0)

    def claim_standing(self) -> None:
        """All present paths that no reservation brought up were asked for in their own right."""
        with self._lock:
            self._claim_standing()
            self._note_paths()

    def _note_paths(self) -> None:
        """A change for one pair may move another's path: its reservations go with it."""
        for path, vlan in self._state.vlans.items():
            before = {reservation.id: reservation for reservation in self._book.active()}
            for reservation in self._book.place(path, vlan):
                if reservation != before[reservation.id]:
                    self._keep(reservation)

    def _claim_standing(self) -> None:
        reserved = {reservation.pair for reservation in self._book.active()}
        self._standing = set(paths_by_pair(self._state)) - reserved

    # -- reconfigurations and decisions -----------------------------------------------------------

    def enter(self, trigger: str, reason: str = "") -> Reconfiguration:
        entry = Reconfiguration(
            id=uuid.uuid4().hex[:12],
            state=ReconfigurationState.QUEUED,
            trigger=trigger,
            epoch=self.state.epoch,
            created_unix_s=time.time(),
            reason=reason,
        )
        with self._lock:
            self._reconfigurations[entry.id] = entry
            while len(self._reconfigurations) > _HISTORY:
                self._reconfigurations.popitem(last=False)
        return entry

    def update(self, reconfiguration_id: str, **changes: Any) -> None:
        """Change fields of a reconfiguration's record."""
        with self._lock:
            entry = self._reconfigurations.get(reconfiguration_id)
            if entry is not None:
                self._reconfigurations[reconfiguration_id] = replace(entry, **changes)

    def refuse(self, entry: Reconfiguration, reason: str) -> None:
        self.update(entry.id, state=ReconfigurationState.REFUSED, reason=reason)

    def reconfigurations(self) -> Sequence[Reconfiguration]:
        with self._lock:
            return tuple(reversed(self._reconfigurations.values()))

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        with self._lock:
            try:
                return self._reconfigurations[reconfiguration_id]
            except KeyError:
                raise UnknownName(f"no reconfiguration {reconfiguration_id!r}") from None

    def decide(self, words: str) -> None:
        """Note a verdict of the periodic mode."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._lock:
            self._decisions.appendleft(f"{stamp} {words}")

    def decisions(self) -> Sequence[str]:
        with self._lock:
            return tuple(self._decisions)

    # -- reservations -----------------------------------------------------------------------------

    def check(self, request: ReservationRequest) -> None:
        with self._lock:
            self._book.check(request, self._fabric)

    def draft(self, request: ReservationRequest) -> tuple[Reservation, list[Pin], Pin]:
        """A reservation that is not entered yet, and the :meth:`split_pins` there would be.

        Raises AdmissionError, UnknownName.
        """
        with self._lock:
            book = ReservationBook(self._book)
        reservation = book.add(uuid.uuid4().hex[:12], request, self._fabric, time.time())
        return reservation, *_split(book.pinned(), reservation)

    def admit(self, reservation: Reservation) -> None:
        """Enter a draft, in the journal first: from now on it survives a restart."""
        with self._lock:
            self._keep(reservation)
            self._book = ReservationBook([*self._book, reservation])

    def _keep(self, reservation: Reservation) -> None:
        self._journal.save_reservation(reservation.id, reservation.to_record())

    def change(self, reservation_id: str, state: ReservationState, reason: str = "") -> Reservation:
        with self._lock:
            reservation = self._book.transition(reservation_id, state, reason)
            self._keep(reservation)
            self._book.prune(_KEPT_RESERVATIONS)
            return reservation

    def place(self, pair: Pair) -> bool:
        """Note the pair's present path with its reservations; False if it has none."""
        with self._lock:
            path = paths_by_pair(self._state).get(pair)
            if path is None:
                return False
            for reservation in self._book.place(path, self._state.vlans[path]):
                self._keep(reservation)
            return True

    def pins(self) -> tuple[Pin, ...]:
        with self._lock:
            return self._book.pinned()

    def split_pins(self, reservation: Reservation) -> tuple[list[Pin], Pin]:
        """(the other pairs' pins, the reservation's own pair's pin)."""
        return _split(self.pins(), reservation)

    def claimed(self, pair: Pair) -> bool:
        """Whether somebody has a claim to the pair's path."""
        with self._lock:
            return pair in self._standing or any(r.pair == pair for r in self._book.active())

    def expired(self) -> tuple[str, ...]:
        with self._lock:
            return self._book.expired(time.time())

    def reservations(self) -> Sequence[Reservation]:
        with self._lock:
            return tuple(self._book)

    def reservation(self, reservation_id: str) -> Reservation:
        with self._lock:
            return self._book.get(reservation_id)


def _split(pins: Sequence[Pin], reservation: Reservation) -> tuple[list[Pin], Pin]:
    own = next(pin for pin in pins if (pin.src, pin.dst) == reservation.pair)
    return [pin for pin in pins if pin is not own], own
