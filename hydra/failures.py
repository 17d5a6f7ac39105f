"""Failures as values: the step, the subject, the kind, and the reason in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Labels of metrics and words of the API; code tests the kind, never the text."""

    NOT_CONNECTED = "not-connected"
    """Not reached; nothing was written."""
    REFUSED = "refused"
    """A device reported that a write has no effect, or a switch reported that a part of a change
    has no effect: Open vSwitch may leave out a refused member of a bundle and carry out the rest.
    """
    MALFORMED = "malformed"
    """An answer outside the protocol."""
    UNKNOWN = "unknown"
    """Sent without an answer: may or may not have taken effect."""
    LATE = "late"
    """Skipped, so that the other devices continue: an answer is overdue, or took far longer than
    the answers of other switches. A command sent before may or may not have taken effect.
    """
    AWAITS_PEOPLE = "awaits-people"
    """People were asked to make the change, and have not reported the outcome."""
    TAKEN_OVER = "taken-over"
    """Another controller commands the device."""
    NO_BUNDLES = "no-bundles"
    """The switch cannot change its tables atomically."""
    NOT_READY = "not-ready"
    """The switch got no rules, since its present rules are unknown."""
    BUSY = "busy"
    """Frames were still seen at the end of the drain time."""
    HELD_UP = "held-up"
    """Not tried, because an earlier step failed."""
    NO_CARRIER = "no-carrier"
    PROBE_LOST = "probe-lost"
    NOT_PROBED = "not-probed"
    """No server could have sent or answered a probe."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a step; the text is the reason."""

    step: str
    """A step of a reconfiguration, or another activity."""
    subject: str
    """Name of a switch, device, port, circuit or path."""
    kind: FailureKind
    reason: str

    def __str__(self) -> str:
        return self.reason
