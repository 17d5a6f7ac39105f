"""A connected switch: ports by name and number, staged rules, and looks at cached flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from apps.openflow.interface import PortInfo, SwitchConnection
from apps.openflow.limits import MOST_PORTS
from apps.openflow.replies import Reply
from apps.openflow.requests import Answer
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


@dataclass(slots=True, eq=False)
class Wait:
    """A caller waits until a switch has looked at all cached flows."""

    remaining: int
    """Looks until the wait is over."""
    reply: Reply[None] = field(default_factory=Reply)


@dataclass(slots=True)
class Rounds:
    """Looks of a switch at all cached flows. A rule ends with each look, and reports the end."""

    number: int = 0
    """Number of the rule that ends with the latest look."""
    waits: list[Wait] = field(default_factory=list)
    """Each wait counts the looks that end after the wait's begin."""

    def ended(self) -> list[Wait]:
        """Count a look that has ended; returns the waits that are over."""
        for wait in self.waits:
            wait.remaining -= 1
        over = [wait for wait in self.waits if not wait.remaining]
        self.waits = [wait for wait in self.waits if wait.remaining]
        return over


@dataclass(slots=True)
class ConnectedSwitch:
    connection: SwitchConnection
    names: dict[str, PortInfo]
    """Ports of the switch, by name."""
    ports: SwitchPorts = field(default_factory=SwitchPorts)
    """Numbers by which rules name ports. A vanished port keeps its number until another port has
    the number: rules in the tables still use the number.
    """
    present: SwitchPorts = field(default_factory=SwitchPorts)
    """Numbers of the present ports; 0 for a vanished port."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The number in :attr:`ports` of each configured port, by name."""
    staged: Staged | None = None
    takes_bundles: bool = True
    rounds: Rounds = field(default_factory=Rounds)
    is_mute: bool = False
    """True while an answer of the switch is overdue. A mute switch gets no requests."""

    def note(self, port: PortInfo) -> None:
        """Note a port status message, by the port's name. An earlier name of the port goes; at most
        :data:`MOST_PORTS` names are kept.
        """
        for name in [name for name, held in self.names.items() if held.number == port.number]:
            if name != port.name:
                del self.names[name]
        if port.name in self.names or len(self.names) < MOST_PORTS:
            self.names[port.name] = port

    def lose(self, port: PortInfo) -> bool:
        """Note that a port is gone; False if the name belongs to another number."""
        held = self.names.get(port.name)
        if held is None or held.number != port.number:
            return False
        del self.names[port.name]
        return True

    def renumber(self, names: PortNames) -> dict[str, int]:
        """Compute the numbers of all ports from the noted messages. Returns, by name, the earlier
        numbers of ports whose number has changed.
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
    """The ports of a switch by purpose, from ``numbers`` by name."""

    def number(name: str) -> int:
        return numbers.get(name, 0)

    return SwitchPorts(
        number(names.host),
        number(names.optical),
        number(names.electrical),
        tuple(map(number, names.servers)),
        tuple(map(number, names.wired)),
        names.protected,
    )
