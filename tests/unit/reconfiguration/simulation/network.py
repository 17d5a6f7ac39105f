"""A network in memory, seeded, that fails as devices do.

:class:`Network` carries out the executor's commands. Commands of a batch run interleaved, one
atomic change at a time, so that :mod:`tests.unit.reconfiguration.watch` can look at the whole
network after every change. The reported outcome of a command is drawn apart from its effect: a lost
reply may hide success, failure, or half of either.

Each module adds a kind of device to the module before: ``clock`` (time, chance, late changes),
``planes`` (light), ``uplinks`` (frames on their way to a ToR), ``switches`` (tables),
``bundles`` (their changes and readings), ``tors`` (VLANs), ``forwarding`` (where frames
come out) and ``probes``. Their chances and time bounds are in ``faults``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final

from hydra.model import Fabric, NetworkState
from hydra.reconfiguration.commands import (
    Announce,
    ApplyRules,
    AwaitPortsUp,
    AwaitRounds,
    AwaitSwitches,
    Batch,
    Command,
    CompareRules,
    ConfirmRules,
    MoveMirrors,
    Outcome,
    PassMarkers,
    Pause,
    ProbePath,
    ReadMirrors,
    ReadPortPackets,
    ReadVlans,
    Record,
    SaveState,
    SetVlans,
    StageRules,
    TakeSwitches,
)
from hydra.reconfiguration.run import Conditions
from tests.unit.reconfiguration.simulation.clock import Late
from tests.unit.reconfiguration.simulation.faults import LEASE_S, LONGEST_PAUSE_S, Doing, Faults
from tests.unit.reconfiguration.simulation.probes import Probes

_HANDLERS: Final[Mapping[type, str]] = {
    ApplyRules: "apply_rules",
    StageRules: "nothing",
    AwaitRounds: "await_rounds",
    ReadPortPackets: "read_packets",
    SetVlans: "set_vlans",
    MoveMirrors: "move_mirrors",
    ReadMirrors: "read_mirrors",
    AwaitPortsUp: "await_ports_up",
    Announce: "announce",
    ProbePath: "probe",
    PassMarkers: "pass_markers",
    Pause: "pause",
    Record: "record",
    ReadVlans: "read_vlans",
    SaveState: "save_state",
    AwaitSwitches: "await_switches",
    TakeSwitches: "take_switches",
    CompareRules: "compare_rules",
    ConfirmRules: "confirm_rules",
}
"""The method of :class:`Network` that carries out each command."""


@dataclass(eq=False)
class Flight:
    """A batch that is being carried out."""

    batch: Batch
    started_s: float
    doing: dict[int, Doing]
    """The commands that are not over, by their places in the batch."""
    ended: dict[int, Outcome] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        return not self.doing

    @property
    def outcomes(self) -> list[Outcome]:
        """In the commands' order, once it is over."""
        return [self.ended[index] for index in range(len(self.batch.commands))]


class Network(Probes):
    """All devices, and the batches that they carry out."""

    def __init__(self, fabric: Fabric, state: NetworkState, rng: random.Random) -> None:
        super().__init__(fabric, state, rng)
        self.journal: list[tuple[str, object]] = []

    def perform(self, batch: Batch, watch: Callable[[Command | None], None]) -> list[Outcome]:
        """All commands at once, interleaved at random; ``watch`` sees every state in between."""
        self.late.under_way = []
        flight = self.begin(batch)
        while not flight.over:
            watch(self.go_on([flight])[1])
        return flight.outcomes

    def begin(self, batch: Batch) -> Flight:
        doing = {index: self.start(command) for index, command in enumerate(batch.commands)}
        return Flight(batch, self.now_s, doing)

    def go_on(self, flights: Sequence[Flight]) -> tuple[Flight, Command]:
        """Carry out a part of some command of what is in flight; of which one."""
        doing = [(flight, index) for flight in flights for index in flight.doing]
        soon = [
            (flight, index)
            for flight, index in doing
            if not self._is_left_to_slow(flight.batch.commands[index])
        ]
        flight, index = self.rng.choice(soon or doing)  # in order
        self.now_s += self.rng.uniform(0.0, 0.002)
        if self.late.changes:
            self.catch_up()
        try:
            next(flight.doing[index])
        except StopIteration as end:
            del flight.doing[index]
            times = {"started_s": flight.started_s, "finished_s": self.now_s}
            flight.ended[index] = Outcome(*end.value, **times)
        return flight, flight.batch.commands[index]

    def start(self, command: Command) -> Doing:
        """A command under way, a change at a time."""
        doing: Doing = getattr(self, _HANDLERS[type(command)])(command)
        return doing

    def _is_left_to_slow(self, command: Command) -> bool:
        left = self.late.of_command.get(id(command))
        return bool(left) and self.late.slow.issuperset(left)

    def die(self) -> None:
        """Nobody hears any more what slow switches do of what they were told: soon, or never."""
        for left in self.late.of_command.values():
            for datapath, changes in left.items():
                if self.hit(0.5):
                    self.come_late(datapath, changes)
        self.late.of_command.clear()

    def take_over(self) -> None:
        """Another controller leads, after the lease of one that may only have been paused.

        What that one had begun comes out at any moment. Switches do it until the next one takes
        them. ToRs' databases refuse it from now on, and optical switches have done what they were
        told, or a first part of it, and do no more: a leader begins nothing in the last moment of
        its lease.
        """
        late = self.late
        begun = [one for one in late.changes if one.device is None]
        for _, steps in groupby(begun, key=lambda one: one.when_s):  # a device's, in their order
            some = list(steps)
            for one in some[: self.rng.randint(0, len(some))]:
                one.change()
        late.changes = [one for one in late.changes if one.device is not None]
        for left in late.under_way:
            for datapath, changes in left.items():
                when_s = self.now_s + LEASE_S + self.rng.uniform(0.0, LONGEST_PAUSE_S)
                change = partial(self.apply, datapath, changes)
                late.changes.append(Late(when_s, change, datapath, late.term))
        late.under_way = []
        late.term += 1
        self.now_s += LEASE_S

    def nothing(self, command: StageRules) -> Doing:
        yield
        return None, None

    def pause(self, command: Pause) -> Doing:
        self.now_s += command.seconds
        yield
        return None, None

    def record(self, command: Record) -> Doing:
        self.journal.append((command.what, command.details))
        yield
        return None, None

    def save_state(self, command: SaveState) -> Doing:
        self.journal.append((command.what, {}))
        yield
        return None, None


def conditions_of(network: Network, state: NetworkState) -> Conditions:
    ready = network.synchronised(state)
    network.closed -= {
        name for name, switch in network.switch_of.items() if switch.datapath in ready
    }
    return Conditions(
        connected=ready,
        dead_uplinks=frozenset(network.dead_uplinks),
        closed=frozenset(network.closed),
    )


def shake(network: Network, rng: random.Random) -> None:
    """Between reconfigurations vswitches come and go, and the odds change."""
    network.faults = Faults.draw(rng)
    loss = rng.choice((0.0, 0.0, 0.1, 0.3))
    network.connected = {datapath for datapath in network.names if rng.random() >= loss}
