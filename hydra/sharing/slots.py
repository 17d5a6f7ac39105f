"""Circuits by a schedule of days and nights (Mordia: Porter et al., SIGCOMM 2013, section 5.1).

A *week* is a row of slots that repeats. Each slot begins with a *night*, while circuits move and
their pairs are electrical, and goes on with a *day*, in which they stand. What a night takes is
measured; the shortest slot has to leave some day.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hydra.model import Fabric, NetworkState
from hydra.policy import Policy, Transition
from hydra.reconfiguration.plan import Pair, Plan, pair_of

_MEASURED: Final = 64
"""Slots that the measured duty cycle is taken over, at most."""


@dataclass(frozen=True, slots=True)
class Night:
    """What a change of circuits takes, by what makes it up."""

    plane: str
    """The one with the slowest mirrors."""
    mirrors_s: float
    drain_s: float
    """The least: as many reads of counters as policy asks for."""
    rest_s: float
    """What switches and controller take beyond: rules, carrier, probes."""

    @property
    def total_s(self) -> float:
        return self.mirrors_s + self.drain_s + self.rest_s

    @classmethod
    def of(cls, fabric: Fabric, policy: Policy, measured_s: float = 0.0) -> Night:
        """``measured_s`` is what a change took; 0: only what it can't do without."""
        slowest = max(fabric.planes, key=lambda plane: plane.switching_ms)
        mirrors_s = slowest.switching_ms / 1000
        drain = policy.drain
        hitless = policy.transition is Transition.HITLESS
        drain_s = (drain.reads - 1) * drain.interval_ms / 1000 if hitless else 0.0
        return cls(slowest.name, mirrors_s, drain_s, max(0.0, measured_s - mirrors_s - drain_s))


DUPLEX_ALONE: Final = (
    "slots plan duplex circuits, and circuits of this fabric are unidirectional: choose another "
    "way of sharing, or write `circuits: bidirectional`"
)


def too_short(fabric: Fabric, policy: Policy, measured_s: float = 0.0) -> str | None:
    """Why slots of ``policy.slots.slot_s`` can't be, in words; None if they can."""
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
    """What stands by day; its epoch means nothing."""
    length_s: float
    """Night and day."""

    def stands(self, state: NetworkState) -> bool:
        """Whether the network is in this slot's state."""
        return state.topology == self.state.topology and state.vlans == self.state.vlans


@dataclass(frozen=True, slots=True)
class Week:
    """A schedule, with all that it takes to carry it out."""

    slots: tuple[WeekSlot, ...]
    """The longest first."""
    changes: tuple[Plan, ...]
    """From each slot to the one after it, and from the last to the first."""
    night_s: float
    """What a night is expected to take."""
    served_mbps: float
    """What circuits are expected to carry of the demand, on average."""
    served_before_mbps: float
    """What those that stand when it is planned would carry."""
    demand_mbps: float

    def change_to(self, index: int, current: NetworkState) -> Plan:
        """The one that was computed ahead to slot ``index``, from a network that is in the slot
        before it.
        """
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
        """How long each pair has a circuit in a period, nights included."""
        light: dict[Pair, float] = {}
        for slot in self.slots:
            for pair in {pair_of(path) for path in slot.state.topology.paths}:
                light[pair] = light.get(pair, 0.0) + slot.length_s
        return light

    def much_like(self, other: Week, slot_s: float) -> bool:
        """Whether every pair has light in both, for as long but for less than ``slot_s``."""
        mine, theirs = self.light_s(), other.light_s()
        return mine.keys() == theirs.keys() and all(
            abs(mine[pair] - theirs[pair]) < slot_s for pair in mine
        )


@dataclass(slots=True)
class DutyCycle:
    """Nights held against the slots that they were part of, as they were."""

    _slots: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_MEASURED))

    def count(self, night_s: float, length_s: float) -> None:
        """A slot is over."""
        self._slots.append((night_s, length_s))

    def forget(self) -> None:
        self._slots.clear()

    @property
    def measured(self) -> float | None:
        """Over the last slots; None before the first has ended."""
        total_s = sum(length_s for _, length_s in self._slots)
        return 1.0 - sum(night_s for night_s, _ in self._slots) / total_s if total_s else None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where the slotted mode is."""

    night: Night
    """What a change of circuits takes now."""
    week: Week | None = None
    """None: no schedule is being carried out."""
    ahead: Week | None = None
    """What follows it, where that is known already and differs."""
    slot: int = 0
    """The place in the week that is on."""
    began_unix_s: float = 0.0
    """When it began, with its night."""
    measured_duty_cycle: float | None = None
