"""Permitted hours of the day, such as ``02:00-04:30``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

_FORM: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Hours:
    """A time range of each day, in minutes from midnight; may cross midnight."""

    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for a text in another form than ``02:00-04:30``, and for an empty
        range.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} has not the form of 02:00-04:30")
        hours = [int(number) for number in found.groups()]
        begin, end = 60 * hours[0] + hours[1], 60 * hours[2] + hours[3]
        if begin == end:
            raise ValueError(f"{text} has the same begin and end")
        return cls(begin, end)

    def has(self, minute: int) -> bool:
        """True if the range contains the minute of the day; the end is excluded."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end
