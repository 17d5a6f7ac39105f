"""Limits of admission besides the calendar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hydra.model import Path, PortId
from hydra.policy import MOST_PATHS_PER_PAIR


@dataclass(frozen=True)
class AdmissionLimits:
    """Limits of admission besides the calendar; derived limits are made once."""

    max_hops: int = 3
    blocked: frozenset[PortId] = frozenset()
    """Ports that new bookings must not use."""
    standing: tuple[Path, ...] = ()
    """Unbooked paths to be left alone where possible."""
    moving: frozenset[PortId] = frozenset()
    """Ports in a change under way, avoided where possible: a path there has to wait for the
    change.
    """
    paths_per_pair: int = MOST_PATHS_PER_PAIR
    """Largest number of simultaneous paths of a rack pair."""
    brief: bool = False
    """True: a refusal has neither words nor alternatives."""

    @cached_property
    def anywhere(self) -> AdmissionLimits:
        """The limits of the present network for a path that may displace standing paths."""
        return replace(self, standing=()) if self.standing else self

    @cached_property
    def gentlest_first(self) -> Sequence[AdmissionLimits]:
        """Limits to try in turn: without standing paths and moving ports first."""
        standings = (self.standing, ()) if self.standing else ((),)
        movings = (self.moving, frozenset[PortId]()) if self.moving else (self.moving,)
        if len(standings) == len(movings) == 1:
            return (self,)
        return [
            replace(self, standing=standing, blocked=self.blocked | moving)
            for standing in standings
            for moving in movings
        ]

    @cached_property
    def later(self) -> AdmissionLimits:
        """The limits for a later time, when blocked ports may be repaired."""
        return AdmissionLimits(self.max_hops, paths_per_pair=self.paths_per_pair, brief=self.brief)
