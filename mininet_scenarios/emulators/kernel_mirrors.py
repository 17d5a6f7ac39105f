"""Mirrors of an emulated optical switch, made of the machine's interfaces."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mininet_scenarios.emulators.fibre_links import FibreLinks, LinkCounts
from mininet_scenarios.emulators.mirrors import (
    NO_COPIES,
    CrossConnects,
    FibrePair,
    MirrorCounters,
    PortCounters,
)
from mininet_scenarios.emulators.redirections import Redirections


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts by port, and the underlying kernel counters."""

    links: LinkCounts
    received_when_unaimed: Mapping[int, int]
    unaimed_before: Mapping[int, int]
    vanished_before: int


class KernelMirrors:
    """Mirrors made of the kernel's redirections between veth pairs, and of their carrier.

    OCS ports without a fibre pair are real ports of the switch with nothing plugged in. Counts are
    kept in the file ``counts``, if given: a successor process continues them.
    """

    def __init__(self, pairs: Iterable[FibrePair], counts: Path | None = None) -> None:
        self._counts = counts
        self._pairs = tuple(pairs)
        self._links = FibreLinks(self._pairs)
        self._redirections = Redirections(pair.ocs_interface for pair in self._pairs)
        self._source = {pair.ingress: pair.ocs_interface for pair in self._pairs}
        self._target = {pair.egress: pair.ocs_interface for pair in self._pairs}
        self._fibre = {pair.ingress: pair.egress for pair in self._pairs}
        self._received_when_unaimed: dict[int, int] = {}
        self._unaimed_before = dict.fromkeys(self._fibre, 0)
        self._vanished_before = 0

    @property
    def blocking(self) -> bool:
        return True

    def start(self) -> CrossConnects:
        ingress = {interface: port for port, interface in self._source.items()}
        egress = {interface: port for port, interface in self._target.items()}
        redirected = self._redirections.cross_connects()
        standing = {ingress[a]: egress[b] for a, b in redirected.items()}
        kept = self._kept()
        self._links.prepare(set(standing.values()), None if kept is None else kept.links)
        unaimed = self._fibre.keys() - standing.keys()
        if kept is not None:
            self._unaimed_before |= kept.unaimed_before
            self._received_when_unaimed |= {
                port: count for port, count in kept.received_when_unaimed.items() if port in unaimed
            }
        self._note_unaimed(unaimed)
        self._vanished_before = self._vanished() if kept is None else kept.vanished_before
        self._keep()
        return standing

    def close(self) -> None:
        self.counters()
        self._keep()
        self._links.close()
        self._redirections.close()

    def darken(self, ingress: Collection[int], egress: Collection[int]) -> None:
        gone = self._fibre.keys() & set(ingress)
        # Mirrors before carrier: otherwise frames under way would be sent to a port without
        # carrier.
        self._redirections.remove([self._source[port] for port in gone])
        self._note_unaimed(gone)
        self._links.darken(self._target.keys() & set(egress))
        self._keep()

    def aim(self, cross_connects: CrossConnects, copies: CrossConnects = NO_COPIES) -> None:
        wired = {a: b for a, b in cross_connects.items() if a in self._source and b in self._target}
        for port in wired:
            if (before := self._received_when_unaimed.pop(port, None)) is not None:
                self._unaimed_before[port] += self._received(port) - before
        self._redirections.add(
            {self._source[a]: self._target[b] for a, b in wired.items()},
            {self._source[a]: self._target[b] for a, b in copies.items() if b in self._target},
        )
        self._keep()

    def light(self, egress: Collection[int]) -> None:
        self._links.light(self._target.keys() & set(egress))
        self._keep()

    def lit(self) -> frozenset[int]:
        return self._links.lit()

    def counters(self) -> MirrorCounters:
        at_tor, lit = self._links.lost_in_the_dark(), self._links.lit()
        ports = tuple(
            PortCounters(
                pair.ingress,
                pair.egress,
                at_mirror=self._at_mirror(pair.ingress),
                at_tor=at_tor[pair.egress],
                lit=pair.egress in lit,
            )
            for pair in self._pairs
        )
        vanished = self._vanished() - self._vanished_before
        return MirrorCounters(ports, vanished - sum(port.at_mirror for port in ports))

    def _kept(self) -> _Counts | None:
        """Counts of an earlier process; None if there was none."""
        if self._counts is None or not self._counts.exists():
            return None
        from pydantic import TypeAdapter  # noqa: PLC0415 - for who follows another process alone

        return TypeAdapter(_Counts).validate_json(self._counts.read_bytes())

    def _keep(self) -> None:
        if self._counts is None:
            return
        now = _Counts(
            self._links.counts(),
            self._received_when_unaimed,
            self._unaimed_before,
            self._vanished_before,
        )
        fresh = self._counts.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(now)))
        fresh.replace(self._counts)

    def _note_unaimed(self, ingress: Iterable[int]) -> None:
        for port in ingress:
            self._received_when_unaimed.setdefault(port, self._received(port))

    def _at_mirror(self, ingress: int) -> int:
        before = self._unaimed_before[ingress]
        since = self._received_when_unaimed.get(ingress)
        return before if since is None else before + self._received(ingress) - since

    def _received(self, ingress: int) -> int:
        return self._links.received(self._fibre[ingress])

    def _vanished(self) -> int:
        """Frames that entered the OCS without leaving, over the life of the interfaces."""
        egress = self._target
        return sum(map(self._links.received, egress)) - sum(map(self._links.sent, egress))
