"""ping(8) for tests, with patience for late answers."""

from __future__ import annotations

from typing import Final

_LATE_S: Final = 5
"""A busy machine delays frames by up to 3 s."""


def ping_command(address: str, count: int) -> list[str]:
    """A command that sends ``count`` requests, and ends with the last answer.

    All requests leave at once: ping waits for the full time only if no answer has come before the
    last request; otherwise ping waits no longer for the last answers than for the others.
    """
    return ["ping", "-c", str(count), "-l", str(count), "-W", str(_LATE_S), address]


def all_answered(printed: str, count: int) -> bool:
    """True if ``count`` answers came, by the output of ping."""
    return f" {count} received" in printed
