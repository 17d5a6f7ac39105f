"""The workers of a controller: present, refused, and known from the last day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from apps.process.worker_list import SessionEnd, WorkerKnown, WorkerSeen
from apps.workers.switches import Worker
from apps.workers.wire import boot_s
from hydra.faults.facts import RefusedWorker

_REMEMBERED_S: Final = 86_400.0
"""Time for which an absent worker stays listed; after that time the worker is out of service."""
_REFUSED_S: Final = 15.0
"""Time for which a refused worker stays listed: its service restarts the worker within seconds."""


@dataclass(slots=True)
class Past:
    """History of a worker, with or without a running lease."""

    renewed_s: float
    """Time of the last renewal."""
    ended: Counter[SessionEnd] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class Leased(Worker):
    """A worker with a running lease."""

    past: Past
    identity: bytes
    session: int
    before: int
    """Session named by the worker until the worker knows the present session."""
    release: str
    since_unix_s: float
    began_s: float
    cpu_s: float = 0.0
    received: int = 0
    """Messages received in this session."""
    ordered: int = 0
    granted_by: int | None = None
    """Incarnation of this controller at its last grant."""

    def is_named(self, session: int, now_s: float, patience_s: float) -> bool:
        """True if ``session`` shows that the worker knows its session, or may still learn the
        session.
        """
        return session == self.session or (
            session == self.before and now_s - self.began_s < patience_s
        )


class Roster:
    """A :class:`apps.process.worker_list.Workers`, with the refused workers.

    :meth:`seen`, :meth:`known` and :meth:`refused` are for any thread, all other methods for the
    exchange's thread.
    """

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._past: dict[str, Past] = {}
        """By name."""
        self._refusals: dict[str, tuple[RefusedWorker, float]] = {}
        """By name, with the time of the last refusal."""
        self._refused: tuple[RefusedWorker, ...] = ()
        self._seen: tuple[WorkerSeen, ...] = ()
        self._known: tuple[tuple[WorkerKnown, float], ...] = ()
        """With the moment of the last renewal."""

    def seen(self) -> tuple[WorkerSeen, ...]:
        return self._seen

    def refused(self) -> tuple[RefusedWorker, ...]:
        return self._refused

    def known(self) -> tuple[WorkerKnown, ...]:
        now_s = boot_s()
        return tuple(
            replace(worker, renewal_age_s=now_s - renewed_s) for worker, renewed_s in self._known
        )

    def past(self, name: str, now_s: float) -> Past:
        """The history of a worker; begun at ``now_s`` if unknown."""
        return self._past.setdefault(name, Past(now_s))

    def refuse(self, name: str, why: str, now_s: float) -> bool:
        """Note a refusal; True if the reason is new."""
        before = self._refusals.get(name)
        self._refusals[name] = RefusedWorker(name, why), now_s
        return before is None or before[0].why != why

    def admit(self, name: str) -> None:
        """Forget earlier refusals of a worker."""
        self._refusals.pop(name, None)

    def count(
        self,
        workers: Collection[Leased],
        shards: Mapping[str, tuple[int, ...]],
        now_s: float,
    ) -> None:
        """Note the ``workers`` present, and the shards that each owns; forget old refusals."""
        self._seen = tuple(
            WorkerSeen(
                worker.name,
                worker.release,
                worker.since_unix_s,
                len(worker.connections),
                worker.serves,
                shards.get(worker.name, ()),
                worker.cpu_s,
            )
            for worker in sorted(workers, key=lambda entry: entry.name)
        )
        for name in [n for n, (_, last_s) in self._refusals.items() if now_s - last_s > _REFUSED_S]:
            del self._refusals[name]
        self._refused = tuple(refusal for _, (refusal, _) in sorted(self._refusals.items()))
        seen = {worker.name: worker for worker in self._seen}
        for name in [name for name in self._past if name not in seen]:
            if now_s - self._past[name].renewed_s > _REMEMBERED_S:
                del self._past[name]
        self._known = tuple(
            (WorkerKnown(name, seen.get(name), 0.0, dict(past.ended)), past.renewed_s)
            for name, past in sorted(self._past.items())
        )
