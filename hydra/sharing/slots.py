"""Circuits by a schedule of days and nights (Mordia: Porter et al., SIGCOMM 2013, section 5.1).

A *week* is a row of slots that repeats. Each slot begins with a *night*, in which circuits move and
their pairs are electrical, and goes on with a *day*, in which they stand. The length of nights is
measured; the shortest slot has to leave some day.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hydra.model import Fabric, NetworkState
from hydra.policy import Policy
from hydra.reconfiguration.plan import Pair, Plan, pair_of

_MEASURED: Final = 64
"""Most slots that the measured duty cycle is taken over."""


@dataclass(frozen=True, slots=True)
class Night:
    """Length of a change of circuits, by its parts."""

    plane: str
    """The plane with the slowest mirrors."""
    mirrors_s: float
    drain_s: float
    """Shortest drain: as many reads of counters as policy asks for."""
    rest_s: float
    """Time that switches and controller need beyond that: rules, carrier, probes."""

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


def too_short(fabric: Fabric, policy: Policy, measured_s: float = 0.0) -> str | None:
    """The reason why slots of ``policy.slots.slot_s`` leave no day; None if they leave some."""
    night = Night.of(fabric, policy, measured_s)
    if policy.slots.slot_s > night.total_s:
        return None
    rest = f" and {night.rest_s * 1000:.0f} ms for all else, as measured" if night.rest_s else ""
    return (
        f"a slot of {policy.slots.slot_s * 1000:g} ms leaves no day after its night of "
        f"{night.total_s * 1000:.0f} ms ({night.mirrors_s * 1000:g} ms for the mirrors of "
        f"{night.plane}, {night.drain_s * 1000:g} ms to see circuits drained{rest}): "
        "set policy.slots.slot_s above that"
    )


@dataclass(frozen=True, slots=True)
class WeekSlot:
    state: NetworkState
    """The state by day; its epoch means nothing."""
    length_s: float
    """Length of night and day together."""

    def stands(self, state: NetworkState) -> bool:
        """True if the network is in this slot's state."""
        return state.topology == self.state.topology and state.vlans == self.state.vlans


@dataclass(frozen=True, slots=True)
class Week:
    """A schedule, with all that is needed to carry it out."""

    slots: tuple[WeekSlot, ...]
    """Slots, the longest first."""
    changes: tuple[Plan, ...]
    """Plans from each slot to the one after it, and from the last to the first."""
    night_s: float
    """Expected length of a night."""
    served_mbps: float
    """Expected average of the demand that circuits carry."""
    served_before_mbps: float
    """Expected demand that the circuits standing at the time of planning would carry."""
    demand_mbps: float
    delivered_mbps: float
    """Expected average that circuits and the electrical network carry together, nights included."""

    def change_to(self, index: int, current: NetworkState) -> Plan:
        """The plan, computed ahead, that leads to slot ``index`` from the slot before it."""
        plan = self.changes[index - 1]
        return replace(plan, current=current, target=replace(plan.target, epoch=current.epoch + 1))

    def judged_as(self, other: Week) -> Week:
        """The same slots, with what is known of nights and demands by now."""
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
        """D = (T - n · t_setup) / T (section 3.4, equations 2 and 3); 1 where nothing moves."""
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
        """True if both light the same pairs, each for times that differ by less than ``slot_s``."""
        mine, theirs = self.light_s(), other.light_s()
        return mine.keys() == theirs.keys() and all(
            abs(mine[pair] - theirs[pair]) < slot_s for pair in mine
        )


@dataclass(slots=True)
class DutyCycle:
    """Lengths of past nights against those of the slots that they were part of."""

    _slots: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_MEASURED))

    def count(self, night_s: float, length_s: float) -> None:
        """Count a slot that is over."""
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
    """The week that is being carried out, if any."""
    ahead: Week | None = None
    """The week that follows, if it is known already and differs."""
    slot: int = 0
    """Index of the current slot in the week."""
    began_unix_s: float = 0.0
    """Time at which that slot began, with its night."""
    measured_duty_cycle: float | None = None
