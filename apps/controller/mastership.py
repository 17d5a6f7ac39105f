"""Mastership of switches: a controller takes switches from a dead, never from a living controller.

OpenFlow has no lock, but a generation number that only grows: the controller with the highest
generation is the switch's master, and each controller may ask for the generation (OpenFlow 1.3.5,
section 6.3.6). A living master therefore keeps raising the generation, and a newcomer watches for a
moment whether the generation grows. Where controllers share a store, the store elects the leader,
and each leader has a generation beyond all earlier generations.

The number that a new store gives may be lower than the numbers known to switches. At switches
not yet mastered in its term, the leader then raises its number above the known number. A switch
that was mastered in the term and refuses has a later leader.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from typing import Final

from apps.openflow.fleet import Fleet
from apps.process.term import Term
from drivers.codecs.openflow.rules import NO_GENERATION
from hydra.errors import HeldElsewhere
from hydra.failures import Failure, FailureKind
from hydra.model import DatapathId

LOG = logging.getLogger("hydra.mastership")
_COUNT_S: Final = 0.5
_LOOK_S: Final = 3 * _COUNT_S
_AHEAD: Final = 1 << 16
"""Distance of a newcomer's generation from the last master's, so that a stopped master that resumes
does not catch up.
"""
_COUNTED: Final = 32
"""Number of switches at which a master counts; a newcomer needs to see a single growing number."""


class Mastership:
    """Thread-safe. ``names`` are the switches with this controller's rules.

    With ``counts``, the controller keeps raising the generation as long as no store elects the
    leader (``term`` has no generation).
    """

    def __init__(
        self,
        *,
        fleet: Fleet,
        names: Mapping[DatapathId, str],
        timeout_s: float,
        term: Term,
        counts: bool,
    ) -> None:
        self._fleet = fleet
        self._names = names
        self._timeout_s = timeout_s
        self._term = term
        self._may_count = counts
        self._lock = threading.Lock()
        self._mastered: dict[DatapathId, int] = {}
        """Generations at the switches with this controller as master."""
        self._last_sent: dict[DatapathId, int] = {}
        """Last generation sent by this controller to each switch, on any connection."""
        self._mastered_in_term: set[DatapathId] = set()
        """Switches mastered by this controller in its term."""
        self._closing = threading.Event()
        self._counter = threading.Thread(target=self._count, name="mastership", daemon=True)

    @property
    def _counts(self) -> bool:
        return self._may_count and self._term.generation is None

    def start(self) -> None:
        """Begin to count, if ``counts``."""
        if self._counts:
            self._counter.start()

    def stop(self) -> None:
        self._closing.set()
        if self._counter.is_alive():
            self._counter.join()

    def forget(self, datapath: DatapathId) -> None:
        """Drop a switch that connected anew, or reported another master."""
        with self._lock:
            self._mastered.pop(datapath, None)

    def taken_over(self, datapath: DatapathId, generation: int) -> None:
        """A switch reports another master with ``generation``; called in the hub's thread.

        The other master may be this controller on another connection. Where controllers share a
        store, the other master may be a later leader. A switch may report anything, so the store is
        asked.
        """
        with self._lock:
            own = self._last_sent.get(datapath)
        if datapath not in self._names or generation == own:
            return
        name = self._names[datapath]
        LOG.error(
            "%s: the switch has another controller as master now, by generation %d",
            name,
            generation,
        )
        self.forget(datapath)
        self._term.look_at_once()

    def take(
        self, datapaths: Collection[DatapathId], *, hurries: bool = False
    ) -> frozenset[DatapathId]:
        """Become the master of switches new to this controller; returns the switches mastered now.

        A controller that counts first watches for another counting controller. If there is one, the
        method raises HeldElsewhere and changes nothing. A leader sends its own generation; a
        switch with a later leader's generation refuses. Other failures are logged. With
        ``hurries``, switches that answer far later than most are skipped.
        """
        with self._lock:
            new = [datapath for datapath in datapaths if datapath not in self._mastered]
        following = self._following(new, hurries=hurries)
        if self._closing.is_set():
            return frozenset()
        failures = self._claim(following, hurries=hurries)
        stale = [
            datapath
            for datapath, failure in failures.items()
            if failure.kind is FailureKind.TAKEN_OVER and datapath not in self._mastered_in_term
        ]
        if stale and self._term.generation is not None and self._exceed(stale):
            for datapath in stale:
                del failures[datapath]
            failures |= self._claim(self._following(stale))
        for datapath, failure in failures.items():
            LOG.error("switch %#x did not take this controller as master: %s", datapath, failure)
        with self._lock:
            return frozenset(datapaths) & self._mastered.keys()

    def _following(
        self, datapaths: Collection[DatapathId], *, hurries: bool = False
    ) -> dict[DatapathId, int]:
        """The next generation to send to each switch."""
        generation = self._term.generation
        if generation is None:
            return self._beyond_the_last(datapaths, hurries=hurries)
        # One more on each connection: requests of the last connection may be under way still.
        with self._lock:
            last = {
                datapath: self._last_sent.get(datapath, generation - 1) for datapath in datapaths
            }
        return {datapath: max(generation, last[datapath] + 1) for datapath in datapaths}

    def _claim(
        self, following: Mapping[DatapathId, int], *, hurries: bool = False
    ) -> dict[DatapathId, Failure]:
        """Send generations; returns the failures."""
        failures = {}
        with self._lock:
            self._last_sent |= following
        answers = self._fleet.become_master(following, self._timeout_s, hurries=hurries)
        for datapath, failure in answers.items():
            if failure is not None:
                failures[datapath] = failure
                continue
            with self._lock:
                self._mastered[datapath] = following[datapath]
                self._mastered_in_term.add(datapath)
        return failures

    def _exceed(self, stale: Collection[DatapathId]) -> bool:
        """Raise the generation beyond the generations known to ``stale`` switches; False on
        failure.
        """
        known = self._ask(stale).values()
        highest = max(
            (generation for generation in known if generation != NO_GENERATION), default=None
        )
        return highest is not None and self._term.exceed(highest)

    def _beyond_the_last(
        self, datapaths: Collection[DatapathId], *, hurries: bool
    ) -> dict[DatapathId, int]:
        known = self._ask(datapaths, hurries=hurries)
        if self._counts:
            self._refuse_if_held(known)
        return {
            datapath: _beyond(generation, 1 if generation == NO_GENERATION else _AHEAD)
            for datapath, generation in known.items()
        }

    def _ask(
        self, datapaths: Collection[DatapathId], *, hurries: bool = False
    ) -> dict[DatapathId, int]:
        known = {}
        answers = self._fleet.generations(datapaths, self._timeout_s, hurries=hurries)
        for datapath, answer in answers.items():
            if isinstance(answer, int):
                known[datapath] = answer
            else:
                LOG.error("switch %#x did not take this controller as master: %s", datapath, answer)
        return known

    def _refuse_if_held(self, before: Mapping[DatapathId, int]) -> None:
        with self._lock:
            foreign = [
                datapath
                for datapath, generation in before.items()
                if datapath in self._names
                and generation not in (NO_GENERATION, self._last_sent.get(datapath))
            ]
        if not foreign:
            return
        self._closing.wait(_LOOK_S)
        now = self._fleet.generations(foreign, self._timeout_s)
        for datapath in foreign:
            if isinstance(now[datapath], int) and now[datapath] != before[datapath]:
                raise HeldElsewhere(self._names[datapath], "another controller commands it")

    def _count(self) -> None:
        while not self._closing.wait(_COUNT_S):
            try:
                self._count_on()
            except Exception:  # else the thread would end unnoticed
                LOG.exception("a count of generations failed; continuing with the next")

    def _count_on(self) -> None:
        with self._lock:
            counted = sorted(self._mastered)[:_COUNTED]
            following = {dp: _beyond(self._mastered[dp], 1) for dp in counted}
            self._mastered |= following
            self._last_sent |= following
        for datapath, failure in self._fleet.become_master(following, _COUNT_S).items():
            if failure is not None and failure.kind is FailureKind.TAKEN_OVER:
                LOG.error("%s: %s", self._names[datapath], failure)
                self.forget(datapath)


def _beyond(generation: int, by: int) -> int:
    return (generation + by) % (NO_GENERATION + 1)
