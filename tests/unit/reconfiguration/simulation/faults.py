"""Faults of simulated devices: chances, time bounds, and the words of a failure."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, fields
from typing import Final

from hydra.failures import Failure, FailureKind
from hydra.reconfiguration.commands import Command

LONGEST_DELAY_S = 0.5
"""By which a device may carry out what it has not answered in time."""
LONGEST_LAG_S = 0.08
"""For which a vswitch forwards by rules that it has replaced; less than the drain's bound."""
LONGEST_STANDSTILL_S = 3.0
"""For which a ToR passes on nothing; more than the drain's bound."""
LEASE_S = 2.0
"""From the last that a leader does by its own clock to the first that the next one does."""
LONGEST_PAUSE_S = 5.0
"""After which a leader that was paused goes on, and what it had begun comes out."""
_WORDS: Final = {
    FailureKind.NOT_CONNECTED: "not connected",
    FailureKind.REFUSED: "refused",
    FailureKind.UNKNOWN: "no answer",
    FailureKind.LATE: "no answer yet",
    FailureKind.AWAITS_PEOPLE: "people were asked",
}
Doing = Generator[None, None, tuple[object, Failure | None]]
"""A command under way: a yield after each atomic change, then its value and its failure."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The chance of each fault, 0 to 1, drawn anew for each device and command."""

    vswitch: float = 0.0
    tor: float = 0.0
    mirrors: float = 0.0
    read: float = 0.0
    busy_circuit: float = 0.0
    no_counters: float = 0.0
    no_carrier: float = 0.0
    probe: float = 0.0
    late: float = 0.0
    """Of what a write did not do before its reply was given up: it may still happen afterwards."""
    lie: float = 0.0
    """New cross-connects that are confirmed, and some of them pass no light.

    What a device says of its VLANs and cross-connects, drivers have read back.
    """
    standstill: float = 0.0
    """A learning ToR, once a vswitch behind it has been diverted, passes on nothing for a while."""

    @classmethod
    def draw(cls, rng: random.Random) -> Faults:
        """Each kind of fault is absent, rare or frequent."""
        chances = (0.0, 0.0, 0.05, 0.3)
        return cls(*(rng.choice(chances) for _ in fields(cls)))


def failure_of(command: Command, kind: FailureKind, reason: str = "") -> Failure:
    """What a device or a switch says of a command; the executor knows who it was, and when."""
    return Failure(type(command).__name__, "a device", kind, reason or _WORDS[kind])
