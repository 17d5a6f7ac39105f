"""Hours of the day at which something may be done, as ``02:00-04:30``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

_FORM: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Hours:
    """Time of each day from one minute to another, counted from midnight; it may pass midnight."""

    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for what has not the form of ``02:00-04:30``, and for no time."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} has not the form of 02:00-04:30")
        hours = [int(number) for number in found.groups()]
        begin, end = 60 * hours[0] + hours[1], 60 * hours[2] + hours[3]
        if begin == end:
            raise ValueError(f"{text} ends when it begins")
        return cls(begin, end)

    def has(self, minute: int) -> bool:
        """True if that minute of the day is in it; the last one is not."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end
