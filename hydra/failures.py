"""Failures as values: the step, its subject, the kind, and the reason in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Labels of metrics and words of the API; code decides by them and never by a sentence."""

    NOT_CONNECTED = "not-connected"
    """Not reached; nothing was written."""
    REFUSED = "refused"
    """A device's answer that a write has not taken effect. A switch's answer that part of a change
    has not: of a bundle, Open vSwitch may leave out a refused member and carry out the rest."""
    MALFORMED = "malformed"
    """Answered in a way that the protocol does not know."""
    UNKNOWN = "unknown"
    """Sent, and no answer: may or may not have taken effect."""
    LATE = "late"
    """Not waited for, so that others go on: it owes an answer, or theirs took far less time. What
    it was sent, if anything, may or may not have taken effect."""
    AWAITS_PEOPLE = "awaits-people"
    """People were asked to do it, and have not said yet what became of it."""
    TAKEN_OVER = "taken-over"
    """Another controller commands it."""
    NO_BUNDLES = "no-bundles"
    """A switch that can't change its tables at once."""
    NOT_READY = "not-ready"
    """A switch that was given no rules, since those that it holds are not known."""
    BUSY = "busy"
    """Frames were still seen when the time to drain was up."""
    HELD_UP = "held-up"
    """Not tried, because something before it failed."""
    NO_CARRIER = "no-carrier"
    PROBE_LOST = "probe-lost"
    NOT_PROBED = "not-probed"
    """No server could have sent or answered a probe."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a step; its text is the reason."""

    step: str
    """A step of a reconfiguration, or another activity."""
    subject: str
    """The name of a switch, device, port, circuit or path."""
    kind: FailureKind
    reason: str

    def __str__(self) -> str:
        return self.reason
