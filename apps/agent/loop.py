"""The agent's work: look at the sockets, report waiting bytes, and outlive the controller."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
    Waiting,
)
from hydra.errors import HydraError

LOG = logging.getLogger("hydra.agent")
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0

Json = Mapping[str, Any]


class Controller(Protocol):
    """The controller as needed by an agent."""

    def get(self, path: str) -> Json: ...

    def put(self, path: str, body: Json) -> Json: ...

    def follow(self, path: str) -> Iterator[Json]:
        """Documents as sent, until the connection ends."""


class Scheduler(Protocol):
    def apply(self, link_mbps: float, optical_share: float, optical: Collection[str]) -> None:
        """Schedule the output. Raises HydraError."""

    def clear(self) -> None:
        """End the scheduling. Raises HydraError."""


class Sockets(Protocol):
    """Readings of sockets; both methods raise HydraError if the kernel refuses."""

    def waiting(self) -> Mapping[bytes, Waiting]:
        """Waiting bytes and their connections by destination address."""

    def sending(self) -> Mapping[ConnectionKey, Sending]:
        """Waiting and sent bytes by connection; takes longer than :meth:`waiting`."""


@dataclass(frozen=True, slots=True)
class Report:
    """A reading to report."""

    waiting_mb: Mapping[str, float] = field(default_factory=dict)
    connections: Mapping[str, int] = field(default_factory=dict)
    """Connections with something to send, by rack."""
    elephants: frozenset[ConnectionKey] = frozenset()

    def to_json(self, *, connections: bool) -> Json:
        """The report's document.

        ``connections``: include the connections, as many bytes as the backlog.
        """
        document: dict[str, Any] = {"backlog_mb": self.waiting_mb}
        if connections:
            document["connections"] = self.connections
        if self.elephants:
            document["elephants"] = [
                {
                    "address": str(unmapped(ip_address(elephant.address))),
                    "src_port": elephant.src_port,
                    "dst_port": elephant.dst_port,
                }
                for elephant in sorted(self.elephants)[:MOST_ELEPHANTS]
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
    """Watch for elephants; None: the controller does not need elephants."""
    link_mbps: float
    optical_share: float
    revision: str

    @classmethod
    def from_json(cls, document: Json) -> Setup:
        """Raises KeyError, TypeError or ValueError for an answer that no controller gives."""
        return cls(
            RackFinder(document["prefixes"]),
            ReportRule(
                above_mb=float(document["report_above_mb"]),
                change_mb=float(document["report_change_mb"]),
            ),
            float(document["sample_s"]),
            float(document["report_gap_s"]),
            float(document["repeat_s"]),
            None
            if document["elephant_mb"] is None
            else ConnectionWatch(
                above_bytes=float(document["elephant_mb"]) * BYTES_PER_MB,
                idle_s=float(document["elephant_idle_s"]),
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
    """Reports for a server until stopped."""

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
        self._prefixes: Mapping[str, Sequence[str]] = {}
        """Prefixes of the present scheduler."""
        self._setup: Setup | None = None
        self._optical: Collection[str] = ()
        self._scheduling = threading.Lock()
        self._broken: HydraError | None = None
        """Why the output can't be scheduled any more."""
        self._clock = clock
        self._stop = threading.Event()
        self._pauses = Pauses()
        self._last_report = Report()
        self._reported_s = 0.0
        self._reported_connections_s = -math.inf

    def stop(self) -> None:
        """Stop the agent, from any thread or a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Report until stopped.

        Raises HydraError if the sockets can't be read, or the output can't be scheduled.
        """
        complained = False
        try:
            while not self._stop.is_set():
                try:
                    document = self._controller.get(self._path)
                    setup = Setup.from_json(document)
                    self._take_over(setup, document["prefixes"])
                    LOG.info("reports to the controller, by setup %s", setup.revision)
                    complained = False
                    self._pauses.reset()
                    self._report(setup)
                except self._lost as error:
                    _complain("reports to the controller fail", error, again=complained)
                    complained = True
                    self._stop.wait(self._pauses.next_s())
        finally:
            with self._scheduling:  # the thread that follows circuits changes nothing any more
                self._stop.set()
        if self._broken is not None:
            raise self._broken

    def _take_over(self, setup: Setup, prefixes: Mapping[str, Sequence[str]]) -> None:
        """Schedule the output by the controller's setup; the first call also starts to follow
        circuits.
        """
        if self._schedule is None:
            return
        first = self._scheduler is None
        with self._scheduling:
            if self._scheduler is None or prefixes != self._prefixes:
                if self._scheduler is not None:
                    self._scheduler.clear()
                self._scheduler, self._prefixes = self._schedule(prefixes), prefixes
            self._setup = setup
            self._scheduler.apply(setup.link_mbps, setup.optical_share, self._optical)
        if first:
            # The thread waits in a read that only the end of the connection ends.
            threading.Thread(target=self._follow, name="circuits", daemon=True).start()

    def _follow(self) -> None:
        """Receive changes of circuits, and schedule for the new circuits at once."""
        pauses = Pauses()
        complained = False
        while not self._stop.is_set():
            try:
                for circuits in self._controller.follow(f"{self._path}/circuits"):
                    self._schedule_for([str(rack) for rack in circuits["optical"]])
                    pauses.reset()
                    complained = False
            except self._lost as error:
                _complain("changes of circuits do not arrive", error, again=complained)
                complained = True
            except HydraError as error:
                self._broken = error
                self._stop.set()
            self._stop.wait(pauses.next_s())

    def _schedule_for(self, optical: Collection[str]) -> None:
        """Schedule for the racks in ``optical``. Raises HydraError."""
        with self._scheduling:
            self._optical = optical
            if self._stop.is_set() or self._scheduler is None or self._setup is None:
                return
            self._scheduler.apply(self._setup.link_mbps, self._setup.optical_share, optical)

    def _report(self, setup: Setup) -> None:
        """Report until the setup has changed, or the agent is stopped."""
        self._send_report(setup, self._look(setup))
        revision = setup.revision
        while revision == setup.revision and not self._stop.wait(setup.sample_s):
            seen = self._look(setup)
            if self._is_due(setup, seen):
                revision = self._send_report(setup, seen)

    def _is_due(self, setup: Setup, seen: Report) -> bool:
        silent_s = self._clock() - self._reported_s
        if silent_s < setup.report_gap_s:
            return False
        return (
            silent_s >= setup.repeat_s
            or seen.elephants != self._last_report.elephants
            or setup.rule.has_changed(self._last_report.waiting_mb, seen.waiting_mb)
        )

    def _look(self, setup: Setup) -> Report:
        if setup.elephants is None:
            return self._seen(setup, self._sockets.waiting().items())
        sending = {
            key: bytes_of
            for key, bytes_of in self._sockets.sending().items()
            if setup.finder.rack_of(key.address) is not None
        }
        waiting = (
            (key.address, Waiting(destination.waiting, 1)) for key, destination in sending.items()
        )
        return self._seen(setup, waiting, setup.elephants.elephants(sending, self._clock()))

    def _seen(
        self,
        setup: Setup,
        waiting: Iterable[tuple[bytes, Waiting]],
        elephants: frozenset[ConnectionKey] = frozenset(),
    ) -> Report:
        by_rack = setup.finder.by_rack(waiting)
        octets = {rack: waiting_bytes.octets for rack, waiting_bytes in by_rack.items()}
        connections = {rack: waiting_bytes.connections for rack, waiting_bytes in by_rack.items()}
        return Report(setup.rule.worth_reporting(octets), connections, elephants)

    def _send_report(self, setup: Setup, seen: Report) -> str:
        """Send a report; return the revision of the controller's present setup."""
        now_s = self._clock()
        fully = now_s - self._reported_connections_s >= setup.repeat_s
        document = seen.to_json(connections=fully)
        answer = self._controller.put(f"{self._path}/backlog", document)
        self._last_report, self._reported_s = seen, self._clock()
        if fully:
            self._reported_connections_s = now_s
        return str(answer["revision"])


def _complain(what: str, error: Exception, *, again: bool) -> None:
    LOG.log(
        logging.DEBUG if again else logging.WARNING,
        "%s (%s): tries again, at most every %g s",
        what,
        error,
        _LONGEST_PAUSE_S,
    )
