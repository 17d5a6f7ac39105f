"""Risks of a takeover, found beforehand by the leader.

Each controller writes its clock and its configuration into the store, under a key on its lease. The
leader compares these with its own, and asks each member of etcd for its health.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from apps.etcd.gateway import Entry, Etcd, EtcdRefused, EtcdUnanswered, get, put
from hydra.faults.facts import TakeoverRisk
from hydra.settings import EtcdSettings

LOG = logging.getLogger("hydra.leadership")
SURVEY_S: Final = 5.0
"""Seconds between two looks at the store and its members."""
CLOCK_TOLERANCE_S: Final = 2.0
"""Least reported difference of two clocks. A look measures a clock to within the time since the
last look.
"""
_PATIENCE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A controller's report."""

    name: str
    clock_unix_s: float
    file: str
    """Digest of the fabric and the policy in the controller's configuration file."""


class Survey:
    """``lease`` returns this controller's lease, None without a lease; ``leads``: whether to look.
    ``digest`` takes a moment for a large fabric, and is called in the survey's thread.
    """

    def __init__(
        self,
        settings: EtcdSettings,
        own_id: str,
        name: str,
        lease: Callable[[], int | None],
        leads: Callable[[], bool],
        digest: Callable[[], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._etcd = Etcd(settings)
        self._prefix = f"{settings.prefix}about/"
        self._own_key = f"{self._prefix}{own_id}"
        self._name = name
        self._lease, self._leads, self._digest, self._clock = lease, leads, digest, clock
        self._file: str | None = None
        self._seen: dict[str, int] = {}
        """Revision of each controller's key at the last look."""
        self._looked_unix_s = 0.0
        self._clock_offset_s: dict[str, float] = {}
        """By key: the least lead of each clock over this controller's clock; negative: behind."""
        self._risks: tuple[TakeoverRisk, ...] = ()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="survey", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._etcd.close()

    @property
    def risks(self) -> tuple[TakeoverRisk, ...]:
        """Risks at the leader's last look; empty while this controller does not lead."""
        return self._risks if self._leads() else ()

    def _repeat(self) -> None:
        while not self._ended.is_set():
            try:
                self.publish()
                if self._leads():
                    self.look()
            except (EtcdRefused, EtcdUnanswered) as error:
                LOG.debug("the store is not surveyed: %s", error)
            except Exception:  # else the thread would end unnoticed
                LOG.exception("a survey of the store failed; continuing with the next")
            self._ended.wait(SURVEY_S)

    def publish(self) -> None:
        """Report this controller to the store. Raises EtcdRefused, EtcdUnanswered."""
        lease = self._lease()
        if lease is None:
            return
        if self._file is None:
            self._file = self._digest()
        report = {"name": self._name, "file": self._file, "clock_unix_s": self._clock()}
        self._etcd.transaction(
            [], [put(self._own_key, json.dumps(report), lease)], patience_s=_PATIENCE_S
        )

    def look(self) -> None:
        """Compare other controllers' reports, and ask the store's members. Raises EtcdRefused,
        EtcdUnanswered.
        """
        end = f"{self._prefix[:-1]}0"
        found = self._etcd.transaction([], [get(self._prefix, end)], patience_s=_PATIENCE_S)
        now_unix_s = self._clock()
        others = {entry.key: entry for entry in found.found[0] if entry.key != self._own_key}
        self._risks = (
            *self._of_members(),
            *(risk for entry in others.values() for risk in self._of(entry, now_unix_s)),
        )
        self._seen = {key: entry.modified for key, entry in others.items()}
        self._looked_unix_s = now_unix_s

    def _of_members(self) -> Iterator[TakeoverRisk]:
        for endpoint, member_status in self._etcd.members(_PATIENCE_S):
            if member_status is None:
                yield TakeoverRisk(
                    endpoint, f"etcd {endpoint} does not answer: start the member again"
                )
            elif errors := member_status.get("errors"):
                yield TakeoverRisk(
                    endpoint, f"etcd {endpoint} says {', '.join(errors)}: repair the member"
                )

    def _of(self, entry: Entry, now_unix_s: float) -> Iterator[TakeoverRisk]:
        report = _parse_report(entry)
        if report is None:
            return
        if self._file is not None and report.file != self._file:
            yield TakeoverRisk(
                report.name,
                f"{report.name} has a different configuration file: give both controllers the same "
                "fabric and policy",
            )
        before = self._seen.get(entry.key)
        if before != entry.modified:
            # Written between the two looks; at the first look, an unknown time before.
            most_s = None if before is None else report.clock_unix_s - self._looked_unix_s
            self._clock_offset_s[entry.key] = _clock_offset_s(
                report.clock_unix_s - now_unix_s, most_s
            )
        clock_offset_s = self._clock_offset_s.get(entry.key, 0.0)
        if abs(clock_offset_s) >= CLOCK_TOLERANCE_S:
            how = "ahead of" if clock_offset_s > 0 else "behind"
            yield TakeoverRisk(
                report.name,
                f"the clock of {report.name} is {abs(clock_offset_s):.0f} s or more {how} this "
                "controller's: reservations would begin and end at wrong times; have both machines "
                "keep time by NTP",
            )


def _clock_offset_s(least_s: float, most_s: float | None) -> float:
    """The smallest difference between the two bounds; ``most_s`` None: no upper bound."""
    if least_s > 0:
        return least_s
    return min(0.0, most_s) if most_s is not None else 0.0


def _parse_report(entry: Entry) -> ReplicaReport | None:
    with suppress(ValueError, TypeError, KeyError):
        document = dict(json.loads(entry.value))
        return ReplicaReport(
            str(document["name"]), float(document["clock_unix_s"]), str(document["file"])
        )
    return None
