"""The network's state, the changes under way, and the times at which VLAN-IDs were freed."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from hydra.decisions.builders import Builder, Builders
from hydra.events import EventKind, EventLog
from hydra.forwarding.substrate import substrate_of
from hydra.journal import Change, entry
from hydra.journal_format import save_state
from hydra.model import Circuit, Fabric, NetworkState, Pair, Path
from hydra.reconfiguration.executor import Execution, intent
from hydra.reconfiguration.plan import SETTLED, Unsettled, pair_of, paths_by_pair
from hydra.reconfiguration.reconcile import NONE_HELD, Held
from hydra.reservations.book import ReservationBook
from hydra.vlan_pool import RestClock


class NetworkRecord:
    """Thread-safe. ``lock`` guards all records.

    :class:`~apps.controller.record.journal_writer.JournalWriter` writes the state with the next
    write after :meth:`note_unsaved`.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        book: ReservationBook,
        builders: Builders,
        events: EventLog,
        lock: threading.RLock,
    ) -> None:
        self._fabric = fabric
        self._book = book
        self._builders = builders
        self._events = events
        self._lock = lock
        self._state = NetworkState()
        self._under_way: tuple[Execution, ...] = ()
        self._present: tuple[NetworkState, tuple[Execution, ...]] = self._state, ()
        """State and changes under way, for readers that can't wait for the lock during a long
        write.
        """
        self._unsettled = SETTLED
        self._held = NONE_HELD
        self._unsaved: str | None = None
        """The event after which the state needs a write; None: the journal has the state."""
        self._born_s: dict[Circuit, float] = {}
        self._rests: RestClock[Path] = RestClock()
        self._kept: set[Pair] = set()

    def load(self, state: NetworkState, unsettled: Unsettled) -> None:
        """Take over the state from the journal."""
        self._state, self._unsettled = state, unsettled
        self._present = state, self._under_way
        self._rests = RestClock(state.pool.resting, time.monotonic())

    # -- the state --------------------------------------------------------------------------------

    @property
    def state(self) -> NetworkState:
        with self._lock:
            return self._state

    def standing(self) -> tuple[NetworkState, Collection[Pair]]:
        """The present state, and the moving pairs, which may be off the state's paths.

        Does not take the lock: a reader goes on while the journal is written.
        """
        state, under_way = self._present
        return state, frozenset().union(*(execution.unsteady for execution in under_way))

    def settle(self, state: NetworkState) -> None:
        """Note that the network is in ``state`` from now on, without changes under way."""
        with self._lock:
            self._under_way = ()
            self._settle(state, (self._state,))

    def _settle(self, state: NetworkState, used: Iterable[NetworkState]) -> None:
        """Note the network's state. VLAN-IDs of paths in the states ``used`` that are lost now rest
        from now on, and are handed out after all other VLAN-IDs.
        """
        now_s = time.monotonic()
        for network_state in used:
            pool = self._rests.lose(
                state.pool, before=network_state.vlans, after=state.vlans, now_s=now_s
            )
            state = replace(state, pool=pool)
        before = self._state.topology.circuits
        if state.epoch < self._state.epoch:  # began before changes that have ended
            state = replace(state, epoch=self._state.epoch)
        self._state = state
        self._present = state, self._under_way
        circuits = state.topology.circuits
        self._record(EventKind.CIRCUIT_DOWN, before - circuits)
        self._record(EventKind.CIRCUIT_UP, circuits - before)
        self._builders.keep(circuits)
        self._born_s = {circuit: self._born_s.get(circuit, now_s) for circuit in circuits}
        self._kept &= set(paths_by_pair(state))

    def rest_s(self, target: NetworkState, vlan_rest_s: float) -> float:
        """Seconds until every VLAN-ID taken by ``target`` has rested for ``vlan_rest_s``.

        Where ToRs learn, a path may join a VLAN-ID in use, without a rest.
        """
        with self._lock:
            return self._rests.wait_s(
                before=self._state.vlans,
                after=target.vlans,
                joins=substrate_of(self._fabric).retags,
                rest_s=vlan_rest_s,
                now_s=time.monotonic(),
            )

    def age_s(self, circuit: Circuit) -> float:
        """Seconds since a circuit came up; many, if the circuit was there before the start."""
        with self._lock:
            return time.monotonic() - self._born_s.get(circuit, 0.0)

    def builders(self) -> Mapping[Circuit, Builder]:
        """The reconfigurations that set up the standing circuits, as far as known."""
        with self._lock:
            return self._builders.of

    @property
    def kept_pairs(self) -> Collection[Pair]:
        """Pairs with a path wanted by an operator or the periodic mode: no release removes it."""
        return self._kept

    def keep_pairs(self, pairs: Iterable[Pair]) -> None:
        """Set :attr:`kept_pairs`."""
        with self._lock:
            self._kept = set(pairs)

    # -- changes under way ------------------------------------------------------------------------

    @property
    def under_way(self) -> tuple[Execution, ...]:
        """The reconfigurations under way, each beside the earlier reconfigurations."""
        return self._under_way

    def begin(self, execution: Execution) -> None:
        """Note the start of a reconfiguration."""
        with self._lock:
            self._under_way = (*self._under_way, execution)
            self._present = self._state, self._under_way

    def end(self, execution: Execution) -> None:
        """Note the end of a reconfiguration: the network is in its result, from which the other
        changes under way go on.
        """
        with self._lock:
            before = self._state
            self._under_way = tuple(change for change in self._under_way if change is not execution)
            self._settle(execution.result, (self._state, execution.wanted))
            for change in self._under_way:
                change.rebase_on(before, execution.result)

    @property
    def unsettled(self) -> Unsettled:
        """Open ends of a change that broke off; empty once the state is written."""
        with self._lock:
            return self._unsettled

    def unsettle(self, more: Unsettled) -> None:
        """Note the open ends of a change that broke off."""
        with self._lock:
            self._unsettled |= more

    @property
    def held(self) -> Held:
        """Paths left standing beside the state."""
        with self._lock:
            return self._held

    def hold(self, held: Held) -> None:
        """Replace the paths left standing beside the state.

        Each save of the state lists the paths for the next controller.
        """
        with self._lock:
            self._held = held

    # -- events -----------------------------------------------------------------------------------

    def foretell(self, circuits: Collection[Circuit], reason: str) -> None:
        """Publish that ``circuits`` are about to be taken down."""
        self._record(EventKind.CIRCUIT_MOVING, circuits, reason)

    def _record(self, kind: EventKind, circuits: Collection[Circuit], reason: str = "") -> None:
        with self._lock:
            for circuit in sorted(circuits):
                served = self._book.on(circuit)
                self._events.publish(
                    kind, time.time(), circuit=circuit, served=served, reason=reason
                )

    # -- the journal ------------------------------------------------------------------------------

    def note_unsaved(self, what: str) -> None:
        """Mark the state to be written with the next write; ``what``: the event behind the
        state.
        """
        self._unsaved = what

    @property
    def unsaved(self) -> bool:
        """True if the journal does not have the state."""
        return self._unsaved is not None

    @property
    def unwritten(self) -> Sequence[Change]:
        """Changes to write the state, if missing in the journal.

        The last entry names the steps that may be half done.
        """
        if self._unsaved is None:
            return ()
        now_s, state = time.time(), self._state
        changes = save_state(self._fabric, state, now_s, self._unsaved)
        if self._under_way or self._held.lanes:
            more = intent(self._fabric, state, self._held.beside(state), self._under_way)
            changes.append(entry(now_s, more.what, more.details))
        return changes

    def written(self, changes: Sequence[Change]) -> None:
        """Note that the journal has :attr:`unwritten`."""
        if changes:
            self._unsettled, self._unsaved = SETTLED, None

    # -- paths and reservations -------------------------------------------------------------------

    def unreserved_paths(self) -> tuple[Path, ...]:
        """Standing paths of pairs without a reservation."""
        with self._lock:
            reserved = {reservation.pair for reservation in self._book.active()}
            paths = self.state.topology.paths
            return tuple(path for path in paths if pair_of(path) not in reserved)

    def unwanted(self, pairs: Collection[Pair]) -> Mapping[Pair, Sequence[Path]]:
        """Standing paths of pairs, requested neither in their own right nor by a reservation.
        Pairs without such paths are left out.
        """
        with self._lock:
            promised: dict[Pair, set[Path]] = {}
            for reservation in self._book.active():
                promised.setdefault(reservation.pair, set()).update(reservation.paths)
            kept, paths = self.kept_pairs, paths_by_pair(self.state)
            return {
                pair: left
                for pair in pairs
                if (pair not in kept or pair in promised)
                and (left := [p for p in paths.get(pair, ()) if p not in promised.get(pair, ())])
            }

    def wishes(self, pairs: Collection[Pair]) -> Mapping[Pair, frozenset[str]]:
        """Ids of the reservations that alone want a path of a pair; empty for a pair with a path
        requested in its own right. Pairs whose paths nobody wants any more are left out.
        """
        with self._lock:
            promised: dict[Pair, set[str]] = {}
            for reservation in self._book.active():
                promised.setdefault(reservation.pair, set()).add(reservation.id)
            left = {reservation.pair for reservation in self._book.leaving()} - self._kept
            return {
                pair: frozenset() if pair in self._kept else frozenset(promised.get(pair, ()))
                for pair in pairs
                if pair in promised or pair not in left
            }

    def keep_unreserved(self) -> None:
        """Count paths of pairs without a known reservation as requested in their own right."""
        with self._lock:
            reserved = {
                reservation.pair for reservation in (*self._book.active(), *self._book.leaving())
            }
            self.keep_pairs(set(paths_by_pair(self.state)) - reserved)

    def promised_paths(self) -> list[Path]:
        """Paths of reservations: a change for a pair may give another pair's path a new VLAN."""
        with self._lock:
            promised = {reservation.booked for reservation in self._book.active()}
            return [path for path in self.state.vlans if path in promised]
