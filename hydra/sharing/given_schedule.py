"""Schedules that people give, instead of schedules planned for a demand."""

from __future__ import annotations

from dataclasses import dataclass

from hydra.model import Topology
from hydra.policy import GivenSlots, SlotPolicy


@dataclass(frozen=True, slots=True)
class GivenSlot:
    topology: Topology
    length_s: float
    """Length of night and day together."""


@dataclass(frozen=True, slots=True)
class GivenSchedule:
    """Slots that repeat, in this order, whatever the demand."""

    name: str
    """Name of the schedule, for people."""
    slots: tuple[GivenSlot, ...]
    """At least one slot."""

    @property
    def for_policy(self) -> GivenSlots:
        """The part that the policy in force depends on."""
        lengths_s = [slot.length_s for slot in self.slots]
        return GivenSlots(self.name, SlotPolicy(min(lengths_s), sum(lengths_s)))
