"""A switch that is connected: its ports, by names and numbers, and what it was told for later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from apps.openflow.replies import Reply
from apps.openflow.requests import Answer
from apps.openflow.seam import MOST_PORTS, PortInfo, SwitchConnection
from drivers.codecs.openflow.rules import SwitchPorts
from hydra.forwarding.rules import RuleChange
from hydra.forwarding.substrate import PortNames


@dataclass(frozen=True, slots=True)
class Staged:
    """A bundle that waits for its commit."""

    changes: Sequence[RuleChange]
    ports: SwitchPorts
    xid: int
    reply: Reply[Answer]


@dataclass(slots=True)
class Rounds:
    """Looks of a switch at all its cached flows, as rules tell that end at the end of each."""

    number: int = 0
    """Number of the rule that ends, or ended, last."""
    left: int = 0
    """Looks that are waited for."""
    reply: Reply[None] = field(default_factory=Reply)


@dataclass(slots=True)
class ConnectedSwitch:
    connection: SwitchConnection
    names: dict[str, PortInfo]
    """The ports that it has, by name."""
    ports: SwitchPorts = field(default_factory=SwitchPorts)
    """Numbers by which rules name ports. A port that is gone keeps its number, as rules that are
    there name it, until another port has that number.
    """
    present: SwitchPorts = field(default_factory=SwitchPorts)
    """Numbers of the ports that are there: 0 for those that are gone."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The number in :attr:`ports` of each configured port, by name."""
    staged: Staged | None = None
    takes_bundles: bool = True
    rounds: Rounds = field(default_factory=Rounds)
    is_mute: bool = False
    """True while it owes an answer whose time is up: it is asked nothing until it gives one."""

    def note(self, port: PortInfo) -> None:
        """Note what it told of a port, by its name: a name that the port had before goes, and no
        more than :data:`MOST_PORTS` are kept.
        """
        for name in [name for name, one in self.names.items() if one.number == port.number]:
            if name != port.name:
                del self.names[name]
        if port.name in self.names or len(self.names) < MOST_PORTS:
            self.names[port.name] = port

    def lose(self, port: PortInfo) -> bool:
        """Note that a port is gone; False if it is there by another number."""
        one = self.names.get(port.name)
        if one is None or one.number != port.number:
            return False
        del self.names[port.name]
        return True

    def number_anew(self, names: PortNames) -> dict[str, int]:
        """Work out the numbers of its ports from what it has told of them; returns the earlier
        numbers of the ports that have another one now, by name.
        """
        taken = {port.number for port in self.names.values()}
        present = {n: port.number for n in names.every if (port := self.names.get(n)) is not None}
        earlier: dict[str, int] = {}
        for name in names.every:
            before = self.numbers.get(name, 0)
            now = present.get(name, 0 if before in taken else before)
            if now != before:
                earlier[name] = before
                self.numbers[name] = now
        self.present = _numbered(names, present)
        if earlier:
            self.ports = _numbered(names, self.numbers)
        return earlier


def _numbered(names: PortNames, numbers: Mapping[str, int]) -> SwitchPorts:
    """The ports of a switch by purpose, with these numbers by name."""

    def number(name: str) -> int:
        return numbers.get(name, 0)

    return SwitchPorts(
        number(names.host),
        number(names.optical),
        number(names.electrical),
        tuple(map(number, names.servers)),
        tuple(map(number, names.wired)),
    )
