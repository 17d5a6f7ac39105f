"""Time and chance of the simulated network, and changes that come after their reply."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from hydra.failures import Failure, FailureKind
from hydra.forwarding.rules import RuleChange
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, NetworkState, PlaneId
from hydra.reconfiguration.commands import Command
from tests.unit.reconfiguration.simulation.faults import LONGEST_DELAY_S, Faults, failure_of


@dataclass(frozen=True, slots=True)
class Late:
    """A change that nobody waits for any more."""

    when_s: float
    change: Callable[[], None]
    device: DatapathId | None
    """The switch whose rules it changes; None: it is of another kind of device."""
    term: int
    """Number of the leader that asked for it."""


@dataclass
class Lateness:
    """Changes that come late, and whose they are where controllers share a store."""

    changes: list[Late] = field(default_factory=list)
    happened: int = 0
    refused: int = 0
    """Changes of former leaders that switches refused."""
    term: int = 0
    """Number of the leader whose term it is."""
    taken_in: dict[DatapathId, int] = field(default_factory=dict)
    """In which term switches were taken last."""
    under_way: list[dict[DatapathId, Sequence[RuleChange]]] = field(default_factory=list)
    """What each command under way has yet to tell switches."""
    of_command: dict[int, dict[DatapathId, Sequence[RuleChange]]] = field(default_factory=dict)
    """The same of commands that wait for slow switches, too, by their ``id``."""
    slow: set[DatapathId] = field(default_factory=set)
    """Switches that are late with what is not waited for."""
    mute: set[DatapathId] = field(default_factory=set)
    """Those of them that owe an answer: they do what they were told, and nobody hears of it."""


class Clock:
    """Time, chance, and changes that are late: the base of every kind of simulated device."""

    away: Set[PlaneId | str] = frozenset()
    """Planes and racks (by name) whose device does not answer: it stays as it is."""

    def __init__(self, fabric: Fabric, state: NetworkState, rng: random.Random) -> None:
        """``state``: paths that stand at first."""
        self.fabric = fabric
        self.rng = rng
        self.faults = Faults()
        self.now_s = 0.0
        self.late = Lateness()
        self.substrate = substrate_of(fabric)
        self.unreliable: set[PlaneId | str] = set()
        """Planes and racks (by name) that have confirmed what they did not do, or do it late."""

    def hit(self, chance: float) -> bool:
        return self.rng.random() < chance

    def extent(self, command: Command, chance: float, changes: int) -> tuple[int, Failure | None]:
        """How many of a write's changes take place, and how it ends."""
        if not self.hit(chance):
            return changes, None
        if self.hit(0.5):
            return 0, failure_of(command, FailureKind.REFUSED)
        return self.rng.randint(0, changes), failure_of(command, FailureKind.UNKNOWN)

    def postpone(
        self,
        device: PlaneId | str,
        changes: Sequence[Callable[[], None]],
        switch: DatapathId | None = None,
    ) -> None:
        """Of a write that got no reply: what has not happened happens later, or never."""
        if changes and self.hit(self.faults.late):
            self.unreliable.add(device)
            when_s = self.now_s + self.rng.uniform(0.0, LONGEST_DELAY_S)
            term = self.late.term
            self.late.changes += [Late(when_s, change, switch, term) for change in changes]

    def catch_up(self) -> None:
        """What was late until now happens, unless it is of a leader that is one no more there."""
        late = self.late
        due = [one for one in late.changes if one.when_s <= self.now_s]
        late.changes = [one for one in late.changes if one.when_s > self.now_s]
        for one in due:
            if one.device is not None and late.taken_in.get(one.device, 0) > one.term:
                late.refused += 1
            else:
                one.change()
                late.happened += 1
