"""Index of timed entries of a resource: the entries of a window are found without a full scan.

An entry that begins before a window reaches into the window only if the entry lasts long enough. So
the search goes back by the longest duration. Entries without an end are kept apart.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import isfinite
from typing import Final, Generic, Protocol, TypeVar


class Timed(Protocol):
    """An entry for the half-open interval [start, end); the end may be infinite."""

    @property
    def key(self) -> str: ...

    @property
    def start_unix_s(self) -> float: ...

    @property
    def end_unix_s(self) -> float: ...


_TimedT = TypeVar("_TimedT", bound=Timed)
_FEW: Final = 16
"""Number of entries up to which a scan is faster than a search."""


class IntervalIndex(Generic[_TimedT]):
    """Entries by key; iterates in order of insertion."""

    def __init__(self) -> None:
        self._by_key: dict[str, _TimedT] = {}
        self._starts: list[tuple[float, str]] = []
        """(start, key) of the entries with an end, sorted."""
        self._longest_s = 0.0
        """Upper bound on the duration of entries with an end, in s."""
        self._endless: dict[str, _TimedT] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[_TimedT]:
        return iter(self._by_key.values())

    def get(self, entry_key: str) -> _TimedT | None:
        return self._by_key.get(entry_key)

    def add(self, entry: _TimedT) -> None:
        """Add an entry whose key is new."""
        key, start, end = entry.key, entry.start_unix_s, entry.end_unix_s
        self._by_key[key] = entry
        if isfinite(end):
            insort(self._starts, (start, key))
            self._longest_s = max(self._longest_s, end - start)
        else:
            self._endless[key] = entry

    def remove(self, entry_key: str) -> None:
        """Remove an entry. Raises KeyError for an unknown key."""
        entry = self._by_key.pop(entry_key)
        if isfinite(entry.end_unix_s):
            del self._starts[bisect_left(self._starts, (entry.start_unix_s, entry_key))]
        else:
            del self._endless[entry_key]

    def meeting(self, start_unix_s: float, end_unix_s: float) -> list[_TimedT]:
        """Entries at any moment of [start, end), unordered; none for an empty interval."""
        if start_unix_s >= end_unix_s:
            return []
        if len(self._by_key) <= _FEW:
            return [
                entry
                for entry in self._by_key.values()
                if entry.start_unix_s < end_unix_s and start_unix_s < entry.end_unix_s
            ]
        first = bisect_left(self._starts, (start_unix_s - self._longest_s, ""))
        last = bisect_left(self._starts, (end_unix_s, ""))
        near = (self._by_key[entry_key] for _, entry_key in self._starts[first:last])
        found = [entry for entry in near if entry.end_unix_s > start_unix_s]
        found += [entry for entry in self._endless.values() if entry.start_unix_s < end_unix_s]
        return found

    def ending_after(self, unix_s: float) -> Iterator[_TimedT]:
        """Entries with a finite end later than ``unix_s``, ordered by start."""
        first = bisect_left(self._starts, (unix_s - self._longest_s, ""))
        for place in range(first, len(self._starts)):
            entry = self._by_key[self._starts[place][1]]
            if entry.end_unix_s > unix_s:
                yield entry
