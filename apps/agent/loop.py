"""The agent's work: look at the sockets, report waiting bytes, and outlive the controller."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, Protocol

from apps.agent.racks import RackFinder, unmapped
from hydra.demand.backlog import (
    BYTES_PER_MB,
    MOST_ELEPHANTS,
    ConnectionKey,
    ConnectionWatch,
    ReportRule,
    Sending,
)

LOG = logging.getLogger("hydra.agent")
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0

Json = Mapping[str, Any]


class Controller(Protocol):
    """The controller as an agent needs it."""

    def get(self, path: str) -> Json: ...

    def put(self, path: str, body: Json) -> Json: ...


class Scheduler(Protocol):
    def apply(self, link_mbps: float, optical_share: float, optical: Collection[str]) -> None:
        """Raises HydraError."""


class Sockets(Protocol):
    """Readings of sockets; both methods raise HydraError if the kernel does not give them."""

    def waiting_bytes(self) -> Mapping[bytes, int]:
        """Waiting bytes by destination address."""

    def sending(self) -> Mapping[ConnectionKey, Sending]:
        """Waiting and sent bytes by connection; takes longer than :meth:`waiting_bytes`."""


@dataclass(frozen=True, slots=True)
class Report:
    """A reading to report."""

    waiting_mb: Mapping[str, float] = field(default_factory=dict)
    elephants: frozenset[ConnectionKey] = frozenset()

    def to_json(self) -> Json:
        document: dict[str, Any] = {"backlog_mb": self.waiting_mb}
        if self.elephants:
            document["elephants"] = [
                {
                    "address": str(unmapped(ip_address(one.address))),
                    "src_port": one.src_port,
                    "dst_port": one.dst_port,
                }
                for one in sorted(self.elephants)[:MOST_ELEPHANTS]
            ]
        return document


@dataclass(frozen=True, slots=True)
class Setup:
    """The controller's settings for this agent."""

    finder: RackFinder
    rule: ReportRule
    sample_s: float
    report_gap_s: float
    repeat_s: float
    elephants: ConnectionWatch | None
    """Watch for elephants; None: nobody wants to know of them."""
    link_mbps: float
    optical_share: float
    revision: str

    @classmethod
    def from_json(cls, document: Json) -> Setup:
        """Raises KeyError, TypeError or ValueError for an answer that no controller gives."""
        return cls(
            RackFinder(document["prefixes"]),
            ReportRule(float(document["report_above_mb"]), float(document["report_change_mb"])),
            float(document["sample_s"]),
            float(document["report_gap_s"]),
            float(document["repeat_s"]),
            None
            if document["elephant_mb"] is None
            else ConnectionWatch(
                float(document["elephant_mb"]) * BYTES_PER_MB, float(document["elephant_idle_s"])
            ),
            float(document["link_mbps"]),
            float(document["optical_share"]),
            str(document["revision"]),
        )


class Pauses:
    """Pauses before the next try: twice as long each time, and random, so that tries scatter."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._next_s = _FIRST_PAUSE_S

    def reset(self) -> None:
        self._next_s = _FIRST_PAUSE_S

    def next_s(self) -> float:
        pause_s = self._next_s * (0.5 + 0.5 * self._chance())
        self._next_s = min(2 * self._next_s, _LONGEST_PAUSE_S)
        return pause_s


class Agent:
    """Reports for one server until it is stopped."""

    def __init__(
        self,
        path: str,
        controller: Controller,
        sockets: Sockets,
        lost: tuple[type[Exception], ...],
        schedule: Callable[[Mapping[str, Sequence[str]]], Scheduler] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``path`` is the server's resource at the controller; ``lost`` are the errors of
        ``controller`` after which to try again. ``schedule`` makes a scheduler for the prefixes of
        racks; None: the server's output is not scheduled.
        """
        self._path = path
        self._controller = controller
        self._sockets = sockets
        self._lost: tuple[type[Exception], ...] = (*lost, KeyError, TypeError, ValueError)
        self._schedule = schedule
        self._scheduler: Scheduler | None = None
        self._clock = clock
        self._stop = threading.Event()
        self._pauses = Pauses()
        self._told = Report()
        self._told_s = 0.0

    def stop(self) -> None:
        """Stop the agent, from any thread or a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Report until stopped. Raises HydraError if the sockets can't be read."""
        complained = False
        while not self._stop.is_set():
            try:
                document = self._controller.get(self._path)
                setup = Setup.from_json(document)
                if self._schedule is not None and self._scheduler is None:
                    self._scheduler = self._schedule(document["prefixes"])
                LOG.info("reports to the controller, by setup %s", setup.revision)
                complained = False
                self._pauses.reset()
                self._report(setup)
            except self._lost as error:
                LOG.log(
                    logging.DEBUG if complained else logging.WARNING,
                    "no report gets through (%s): tries again, at most every %g s",
                    error,
                    _LONGEST_PAUSE_S,
                )
                complained = True
                self._stop.wait(self._pauses.next_s())

    def _report(self, setup: Setup) -> None:
        """Report until the setup is another one, or the agent is stopped."""
        self._tell(setup, self._look(setup))
        revision = setup.revision
        while revision == setup.revision and not self._stop.wait(setup.sample_s):
            seen = self._look(setup)
            if self._is_due(setup, seen):
                revision = self._tell(setup, seen)

    def _is_due(self, setup: Setup, seen: Report) -> bool:
        silent_s = self._clock() - self._told_s
        if silent_s < setup.report_gap_s:
            return False
        return (
            silent_s >= (setup.report_gap_s if self._follows(setup) else setup.repeat_s)
            or seen.elephants != self._told.elephants
            or setup.rule.has_changed(self._told.waiting_mb, seen.waiting_mb)
        )

    def _follows(self, setup: Setup) -> bool:
        """True if it has to hear of other circuits soon, beside telling that it lives."""
        return self._scheduler is not None and setup.optical_share > 0

    def _look(self, setup: Setup) -> Report:
        finder, rule = setup.finder, setup.rule
        if setup.elephants is None:
            return Report(rule.worth_telling(finder.by_rack(self._sockets.waiting_bytes())))
        sending = {
            key: bytes_of
            for key, bytes_of in self._sockets.sending().items()
            if finder.rack_of(key.address) is not None
        }
        waiting: Counter[bytes] = Counter()
        for key, bytes_of in sending.items():
            waiting[key.address] += bytes_of.waiting
        elephants = setup.elephants.elephants(sending, self._clock())
        return Report(rule.worth_telling(finder.by_rack(waiting)), elephants)

    def _tell(self, setup: Setup, seen: Report) -> str:
        """Send a report; return the revision of the setup that the controller has now."""
        orders = self._controller.put(f"{self._path}/backlog", seen.to_json())
        self._told, self._told_s = seen, self._clock()
        if self._scheduler is not None:
            self._scheduler.apply(setup.link_mbps, setup.optical_share, orders["optical"])
        return str(orders["revision"])
