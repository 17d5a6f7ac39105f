"""Quarantined ports, kept in the journal, so that a restart does not free them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from hydra.errors import UnknownName
from hydra.faults.quarantine import Quarantined, quarantine_record, read_quarantine
from hydra.journal import Change, Journal, JournalError, Kind
from hydra.model import Fabric, Pair, Path, PortId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.plan import pair_of

LOG = logging.getLogger("hydra.quarantine")


class Quarantine:
    """Thread-safe. The length of a quarantine is ``policy.quarantine_s`` at the start of the
    quarantine.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        journal: Journal,
        policy: CurrentPolicy,
        report: Callable[[str, Iterable[tuple[str, str]]], None] = lambda _text, _pairs: None,
    ) -> None:
        """``report`` is called with a text about changed ports, and the affected rack pairs."""
        self._report = report
        self._fabric = fabric
        self._journal = journal
        self._policy = policy
        self._lock = threading.Lock()
        self._entries: dict[PortId, Quarantined] = {}

    def load(self) -> None:
        """Take over the journal's records. Raises JournalError if the journal can't be read."""
        read = [
            read_quarantine(self._fabric, port)
            for record in self._journal.records(Kind.QUARANTINE)
            for port in record["ports"]
        ]
        with self._lock:
            self._entries = {entry.port: entry for entry in read if entry is not None}

    def put(self, ports: Collection[PortId], reason: str, paths: Iterable[Path] = ()) -> None:
        """Leave ports out of planning from now on; ``paths`` are the affected paths.

        A port in quarantine for the same reason stays there for longer, without a report.
        """
        self.put_each([(ports, reason)], paths)

    def put_each(
        self, failed: Iterable[tuple[Collection[PortId], str]], paths: Iterable[Path] = ()
    ) -> None:
        """:meth:`put` several sets of ports, each with a reason, by a single write."""
        failed = [(ports, reason) for ports, reason in failed if ports]
        if not failed:
            return
        now_s = time.time()
        length_s = self._policy.now.quarantine_s
        until_s = None if length_s is None else now_s + length_s
        pairs: dict[PortId, set[Pair]] = {port: set() for ports, _ in failed for port in ports}
        for path in paths:
            for end in {end for circuit in path.circuits for end in circuit.ends} & pairs.keys():
                pairs[end].add(pair_of(path))
        news = []
        with self._lock:
            for ports, reason in failed:
                fresh = [self._enter(port, reason, now_s, until_s, pairs[port]) for port in ports]
                if any(fresh):
                    news.append((ports, reason))
            self._try_to_save()
        racks = self._fabric.racks
        for ports, reason in news:
            every = sorted(set().union(*(pairs[port] for port in ports)))
            self._report(
                f"{reason}: {self._names(ports)} left out of plans",
                [(racks[a].name, racks[b].name) for a, b in every],
            )

    def _enter(
        self, port: PortId, reason: str, now_s: float, until_s: float | None, pairs: set[Pair]
    ) -> bool:
        """Note a port; True if the quarantine is new. The caller holds the lock.

        A port set aside until cleared stays so, with its first reason.
        """
        old = self._entries.get(port)
        entry = Quarantined(port, reason, now_s, until_s, tuple(sorted(pairs)))
        if old is not None and old.until_unix_s is None:
            entry = replace(entry, reason=old.reason, until_unix_s=None)
        known = old is not None and old.reason == entry.reason and old.blocks(now_s)
        if known and old is not None:
            hurt = tuple(sorted({*old.pairs, *entry.pairs}))
            entry = replace(entry, since_unix_s=old.since_unix_s, pairs=hurt)
        self._entries[port] = entry
        return not known

    def passed(self, ports: Collection[PortId]) -> None:
        """Free the ports on trial among ``ports``, as their circuits passed the gate."""
        now_s = time.time()
        with self._lock:
            over = [
                port
                for port in dict.fromkeys(ports)  # two one-way circuits share a port
                if port in self._entries and not self._entries[port].blocks(now_s)
            ]
            for port in over:
                del self._entries[port]
            if over:
                self._try_to_save()
        if over:
            self._report(f"{self._names(over)} in use again: a circuit there passed its probes", ())

    def set_aside(self, rack: str, tor_port: str, reason: str) -> Quarantined:
        """Leave a port out until cleared, even if it is in quarantine already.

        Raises UnknownName if there is no such port, and JournalError if the journal can't be
        written; nothing has changed then.
        """
        port = self._fabric.port_by_name.get((rack, tor_port))
        if port is None:
            raise UnknownName(f"no optical port {rack} {tor_port}: see the wiring in the file")
        entry = Quarantined(port.id, reason, time.time(), None)
        with self._lock:
            before = self._entries
            self._entries = {**before, port.id: entry}
            try:
                self._save()
            except JournalError:
                self._entries = before
                raise
        LOG.info("%s %s is set aside, as asked: %s", rack, tor_port, reason)
        self._report(f"{rack}:{tor_port} set aside, as asked: {reason}", ())
        return entry

    def clear(self, rack: str, tor_port: str) -> Quarantined:
        """Free a port now. Raises UnknownName if there is no such port or the port is not in
        quarantine, and JournalError if the journal can't be written; the port stays in quarantine
        then.
        """
        port = self._fabric.port_by_name.get((rack, tor_port))
        with self._lock:
            entry = None if port is None else self._entries.pop(port.id, None)
            if entry is None:
                what = "no optical port" if port is None else "not in quarantine:"
                raise UnknownName(f"{what} {rack} {tor_port}: see GET /v1/quarantine")
            try:
                self._save()
            except JournalError:
                self._entries[entry.port] = entry
                raise
        LOG.info("%s %s is out of quarantine, as asked", rack, tor_port)
        self._report(f"{rack}:{tor_port} out of quarantine, as asked", ())
        return entry

    def entries(self) -> Sequence[Quarantined]:
        """Entries in the order of the ports."""
        with self._lock:
            return [self._entries[port] for port in sorted(self._entries)]

    def blocked(self) -> frozenset[PortId]:
        """Ports out of use for plans at present."""
        now_s = time.time()
        with self._lock:
            return frozenset(p for p, entry in self._entries.items() if entry.blocks(now_s))

    def _names(self, ports: Iterable[PortId]) -> str:
        some = [self._fabric.ports[port] for port in sorted(ports)]
        return ", ".join(
            f"{self._fabric.racks[optical_port.rack].name}:{optical_port.tor_port}"
            for optical_port in some
        )

    def _save(self) -> None:
        ports = [quarantine_record(self._fabric, entry) for entry in self._entries.values()]
        self._journal.write([Change(Kind.QUARANTINE, "ports", {"ports": ports})])

    def _try_to_save(self) -> None:
        """Save. Failed ports stay out of planning even if the journal can't be written."""
        try:
            self._save()
        except JournalError as error:
            LOG.error("a restart will forget the latest quarantine: %s", error)
