"""Circuits by a schedule of days and nights (Mordia: Porter et al., SIGCOMM 2013, section 5.1).

A *week* is a repeating row of slots. Each slot begins with a *night*: circuits move, and the pairs
of moving circuits are electrical. The rest of the slot is a *day*: circuits stand. The length of
nights is measured. The shortest slot must be longer than a night.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hydra.model import Fabric, NetworkState, Pair
from hydra.policy import GivenSlots, Policy
from hydra.reconfiguration.plan import Plan, pair_of

_MEASURED: Final = 64
"""Largest number of slots in the average of the measured duty cycle."""


@dataclass(frozen=True, slots=True)
class Night:
    """Length of a change of circuits, by its parts."""

    plane: str
    """The plane with the slowest mirrors."""
    mirrors_s: float
    drain_s: float
    """Shortest drain: as many reads of counters as the policy requires."""
    rest_s: float
    """Time that switches and controller need besides mirrors and drain: rules, carrier, probes."""

    @property
    def total_s(self) -> float:
        return self.mirrors_s + self.drain_s + self.rest_s

    @classmethod
    def of(cls, fabric: Fabric, policy: Policy, measured_s: float = 0.0) -> Night:
        """``measured_s`` is the length of a measured change; 0: mirrors and drain alone count."""
        slowest = max(fabric.planes, key=lambda plane: plane.switching_ms)
        mirrors_s = slowest.switching_ms / 1000
        drain = policy.drain
        drain_s = (drain.reads - 1) * drain.interval_ms / 1000
        return cls(slowest.name, mirrors_s, drain_s, max(0.0, measured_s - mirrors_s - drain_s))


DUPLEX_ALONE: Final = (
    "slots plan duplex circuits, and circuits of this fabric are unidirectional: choose another "
    "way of sharing, or write `circuits: bidirectional`"
)


def too_short(
    fabric: Fabric,
    policy: Policy,
    measured_s: float = 0.0,
    remedy: str = "set policy.slots.slot_s above that",
) -> str | None:
    """The reason why slots of ``policy.slots.slot_s`` leave no day, with the ``remedy``; None if a
    day is left.
    """
    night = Night.of(fabric, policy, measured_s)
    if policy.slots.slot_s > night.total_s:
        return None
    rest = f" and {night.rest_s * 1000:.0f} ms for all else, as measured" if night.rest_s else ""
    return (
        f"a slot of {policy.slots.slot_s * 1000:g} ms leaves no day after its night of "
        f"{night.total_s * 1000:.0f} ms ({night.mirrors_s * 1000:g} ms for the mirrors of "
        f"{night.plane}, {night.drain_s * 1000:g} ms to see circuits drained{rest}): "
        f"{remedy}"
    )


@dataclass(frozen=True, slots=True)
class WeekSlot:
    state: NetworkState
    """The state between two changes of slots (*day*); the epoch has no meaning."""
    length_s: float
    """Length of night and day together."""

    def stands(self, state: NetworkState) -> bool:
        """True if the network is in this slot's state."""
        return state.topology == self.state.topology and state.vlans == self.state.vlans


@dataclass(frozen=True, slots=True)
class Week:
    """A schedule, with all data needed to carry out the schedule."""

    slots: tuple[WeekSlot, ...]
    """Slots; of a planned week, the longest first."""
    changes: tuple[Plan, ...]
    """Plans from each slot to the next, and from the last to the first."""
    night_s: float
    """Expected length of a change of slots (*night*)."""
    served_mbps: float
    """Expected average of the demand carried by circuits."""
    served_before_mbps: float
    """Demand that the circuits standing at the time of planning are expected to carry."""
    demand_mbps: float
    delivered_mbps: float
    """Expected average carried by circuits and the electrical network together, nights included."""

    def change_to(self, index: int, current: NetworkState) -> Plan:
        """The precomputed plan from the slot before ``index`` to slot ``index``."""
        plan = self.changes[index - 1]
        return replace(plan, current=current, target=replace(plan.target, epoch=current.epoch + 1))

    def judged_as(self, other: Week) -> Week:
        """The same slots, with the expectations of ``other``."""
        return replace(
            self,
            night_s=other.night_s,
            served_mbps=other.served_mbps,
            served_before_mbps=other.served_before_mbps,
            demand_mbps=other.demand_mbps,
            delivered_mbps=other.delivered_mbps,
        )

    @property
    def period_s(self) -> float:
        return sum(slot.length_s for slot in self.slots)

    @property
    def duty_cycle(self) -> float:
        """D = (T - n · t_setup) / T (section 3.4, equations 2 and 3); 1 if the week has a single
        slot.
        """
        if len(self.slots) < 2:
            return 1.0
        return 1.0 - len(self.slots) * self.night_s / self.period_s

    def light_s(self) -> Mapping[Pair, float]:
        """Time in a period during which each pair has a circuit, nights included."""
        light: dict[Pair, float] = {}
        for slot in self.slots:
            for pair in {pair_of(path) for path in slot.state.topology.paths}:
                light[pair] = light.get(pair, 0.0) + slot.length_s
        return light

    def much_like(self, other: Week, slot_s: float) -> bool:
        """True if both weeks light the same pairs, for times that differ by less than
        ``slot_s``.
        """
        own, theirs = self.light_s(), other.light_s()
        return own.keys() == theirs.keys() and all(
            abs(own[pair] - theirs[pair]) < slot_s for pair in own
        )


@dataclass(slots=True)
class DutyCycle:
    """Lengths of past nights, and of the slots that contained the nights."""

    _slots: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_MEASURED))

    def count(self, night_s: float, length_s: float) -> None:
        """Count a finished slot."""
        self._slots.append((night_s, length_s))

    def forget(self) -> None:
        self._slots.clear()

    @property
    def measured(self) -> float | None:
        """Duty cycle over the last slots; None before the first has ended."""
        total_s = sum(length_s for _, length_s in self._slots)
        return 1.0 - sum(night_s for night_s, _ in self._slots) / total_s if total_s else None


@dataclass(frozen=True, slots=True)
class Schedule:
    """State of the slotted mode."""

    night: Night
    """Length of a change of circuits, as known now."""
    week: Week | None = None
    """The week being carried out, if any."""
    ahead: Week | None = None
    """The next week, if already known and different."""
    slot: int = 0
    """Index of the current slot in the week."""
    began_unix_s: float = 0.0
    """Start of the current slot, with the night included."""
    measured_duty_cycle: float | None = None
    given: GivenSlots | None = None
    """The given schedule, if any."""
