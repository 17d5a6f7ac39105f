"""The history of events in words for people; no decision depends on the history."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, pairwise
from typing import Any, Final

from hydra.journal import KEPT, Change, Kind

_TICK_S: Final = 1e-6
_AT_ONCE: Final = 500
"""Largest number of lines per write: other writers wait for the duration."""
_SAME_S: Final = 1e-3
"""Minimum distance of the times of two lines, in s; closer lines get ticks, so that pages can be
cut by time.
"""


class HappeningKind(StrEnum):
    CONTROLLER = "controller"
    """The controller started or stopped."""
    RECONFIGURATION = "reconfiguration"
    """A reconfiguration ended."""
    RESERVATION = "reservation"
    """A reservation was admitted, changed state or changed path."""
    QUARANTINE = "quarantine"
    """Ports were quarantined or freed: circuits were lost, or failed."""
    CONDITION = "condition"
    """A fault of a device or switch began or ended."""
    DECISION = "decision"
    """The periodic mode decided to change, or, after a change, to keep the topology."""
    POLICY = "policy"
    """The policy was changed by a reload or a request."""
    LOGIN = "login"
    """An operator logged in with a token, after an hour or more."""
    JOURNAL = "journal"
    """The journal became unwritable, or writable again."""


@dataclass(frozen=True, slots=True)
class Happening:
    unix_s: float
    kind: HappeningKind
    text: str
    pairs: tuple[tuple[str, str], ...] = ()
    """Rack pairs concerned, by name."""

    def to_record(self) -> dict[str, Any]:
        pairs = [list(pair) for pair in self.pairs]
        return {
            "unix_s": self.unix_s,
            "kind": self.kind.value,
            "text": self.text,
            "pairs": pairs,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Happening:
        """Raises KeyError, TypeError or ValueError for a record of another release."""
        pairs = tuple((str(a), str(b)) for a, b in record["pairs"])
        return cls(
            float(record["unix_s"]), HappeningKind(record["kind"]), str(record["text"]), pairs
        )


class History:
    """The newest lines, and the lines not in the journal yet. Not thread-safe."""

    def __init__(self, past: Iterable[Happening] = ()) -> None:
        self._lines: deque[Happening] = deque(past, maxlen=KEPT[Kind.HISTORY])
        self._unwritten: deque[Happening] = deque(maxlen=KEPT[Kind.HISTORY])

    def load(self, past: Iterable[Happening]) -> None:
        """Put lines from the journal before the present lines."""
        self._lines = deque([*past, *self._lines], maxlen=KEPT[Kind.HISTORY])

    def add(
        self,
        unix_s: float,
        kind: HappeningKind,
        text: str,
        pairs: Iterable[tuple[str, str]] = (),
    ) -> None:
        last_s = self._lines[-1].unix_s if self._lines else float("-inf")
        if 0 <= last_s - unix_s < _SAME_S:
            unix_s = last_s + _TICK_S
        line = Happening(unix_s, kind, text, tuple(pairs))
        self._lines.append(line)
        self._unwritten.append(line)

    @property
    def unwritten(self) -> Sequence[Change]:
        """The next changes to write to the journal, at most ``_AT_ONCE``."""
        some = islice(self._unwritten, _AT_ONCE)
        return [Change(Kind.HISTORY, None, line.to_record()) for line in some]

    def written(self, lines: Sequence[Change]) -> None:
        """Note that the journal has these changes, the oldest of :attr:`unwritten`."""
        for _ in range(min(len(lines), len(self._unwritten))):
            self._unwritten.popleft()

    def between(
        self,
        since_unix_s: float = 0.0,
        before_unix_s: float = float("inf"),
        kinds: Collection[HappeningKind] = (),
        most: int = 100,
    ) -> tuple[Happening, ...]:
        """The newest lines of a time interval, newest first by the clock; empty ``kinds``: all.

        After the clock was set back, the order differs from the order of entry. A page that begins
        before the last line of the previous page still omits no line.
        """
        found = (
            line
            for line in self._by_time()
            if since_unix_s <= line.unix_s < before_unix_s and (not kinds or line.kind in kinds)
        )
        return tuple(islice(found, most))

    def _by_time(self) -> Iterable[Happening]:
        if all(a.unix_s <= b.unix_s for a, b in pairwise(self._lines)):
            return reversed(self._lines)
        return sorted(self._lines, key=lambda line: line.unix_s, reverse=True)

    def concerning(self, a: str, b: str, most: int) -> tuple[Happening, ...]:
        """The newest lines about two racks, newest first."""
        found = (
            line for line in reversed(self._lines) if (a, b) in line.pairs or (b, a) in line.pairs
        )
        return tuple(islice(found, most))
