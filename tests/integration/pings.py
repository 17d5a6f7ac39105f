"""ping(8) for tests, to which an answer that comes late is not lost."""

from __future__ import annotations

from typing import Final

_LATE_S: Final = 5
"""A busy machine keeps frames waiting for up to 3 s."""


def ping_command(address: str, count: int) -> list[str]:
    """A command that asks ``count`` times, and ends once all answers are there.

    All requests leave at once: ping waits for its last answers as long as it is told to only if
    none has come before it sends the last request, else no longer than for the others.
    """
    return ["ping", "-c", str(count), "-l", str(count), "-W", str(_LATE_S), address]


def all_answered(printed: str, count: int) -> bool:
    """True if ``count`` answers came, by what ping has printed."""
    return f" {count} received" in printed
