"""Simulated OpenFlow switches: tables, and the circuits that servers send on by them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from hydra.forwarding.match_action import Port
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import (
    BY_PORT,
    BY_UPLINK,
    FlowRule,
    Install,
    InstallAll,
    Modify,
    RuleChange,
    installed,
    match_key,
    matches_port,
    ports_named,
    rack_metadata,
)
from hydra.model import DatapathId, Fabric, NetworkState, RackId, Server, VlanId
from tests.unit.reconfiguration.simulation.uplinks import Uplinks
from tests.unit.reconfiguration.simulation.wiring import Sent, Way

ABOUT_PATHS = {
    RuleKind.DIVERT,
    RuleKind.SPREAD,
    RuleKind.TOR_RELAY,
    *(kind for kinds in (BY_UPLINK, BY_PORT) for kind in (kinds.alone, kinds.one_of_several)),
}
"""Kinds of rules that depend on the paths of a state."""


@dataclass
class PortNumbers:
    """OpenFlow numbers of a switch's ports, where some have another one than at first."""

    of: dict[int, int] = field(default_factory=dict)
    """By symbolic port; of others, the number is the symbolic port's, negated."""
    named: dict[object, tuple[int, ...]] = field(default_factory=dict)
    """Numbers by which each rule names its ports."""

    def in_rule(self, rule: FlowRule) -> tuple[int, ...]:
        """Numbers by which a rule names its ports that is written now."""
        return tuple(self.of.get(port, -port) for port in ports_named(rule))


class Switches(Uplinks):
    """Tables of vswitches and ToRs, and the circuits that servers send on by them."""

    rule_changes = 0
    """Counted by :meth:`rules_changed`."""
    electrical: Callable[[], Collection[DatapathId]] = frozenset
    """Switches that hold no rules of circuits, as their controller knows: they refused some."""

    def __init__(self, fabric: Fabric, state: NetworkState, rng: random.Random) -> None:
        super().__init__(fabric, state, rng)
        self.connected = set(self.names)
        self.tables: dict[DatapathId, dict[object, FlowRule]] = {
            datapath: {match_key(r): r for r in self.substrate.path_rules(datapath, state)}
            for datapath in self.names
        }
        self.renumbered: dict[DatapathId, PortNumbers] = {}
        self.learning = {dp: n for dp, n in fabric.tor_names.items() if dp not in self.names}
        """ToRs that learn, with their names: always connected."""
        for datapath in self.learning:
            self.tables[datapath] = {match_key(r): r for r in self.substrate.tor_rules()}
        self._sent: dict[DatapathId, Sent] = {}
        """What follows from the tables, until those change."""

    def hears(self, datapath: DatapathId) -> bool:
        """Whether a switch is connected."""
        return datapath in self.connected or datapath in self.learning

    def name_of(self, datapath: DatapathId) -> str:
        return self.names.get(datapath) or self.learning[datapath]

    def rules_changed(self, datapath: DatapathId) -> None:
        """A switch's table is another one from now on."""
        self._sent.pop(datapath, None)
        self.rule_changes += 1

    def senders(self) -> object:
        """Servers that may send by circuit, and their switches' rules, in a form to be compared:
        as long as it is the same, nobody begins to send anything.
        """
        return (self.rule_changes, frozenset(self.dead_uplinks), frozenset(self.closed))

    def sends_on(self, server: Server, to: RackId) -> set[Way]:
        """How ``server`` sends to another rack by circuit now; empty: electrically."""
        return {way for rack, way in self.sent(server) if rack == to}

    def sent(self, server: Server) -> Sent:
        """What a server sends by circuit now: the same object until its switch has other rules.

        A switch forwards by cached decisions for a while after it has confirmed other rules.
        """
        if server.name in self.dead_uplinks or server.name in self.closed:
            return ()
        datapath = self.switch_of[server.name].datapath
        sent = self._sent.get(datapath)
        if sent is None:
            sent = self._sent[datapath] = self._all_sent(server.rack, self.tables[datapath])
        cached = self.cached(datapath)
        if not cached:
            return sent
        off = self.dead_uplinks | self.closed
        nobody = {  # nothing that was sent there earlier can be taken any more
            rack.id
            for rack in (self.fabric.racks if off else ())
            if all(other.name in off for other in rack.servers)
        }
        for one in cached:
            if one.sent is None:
                one.sent = self._all_sent(server.rack, one.table)
            sent += tuple(
                (to, way)
                for to, way in one.sent
                if to not in nobody | one.lost and (to, way[0]) not in one.given_up
            )
        return sent

    def _all_sent(self, here: RackId, table: Mapping[object, FlowRule]) -> Sent:
        return tuple(
            (rack.id, way)
            for rack in self.fabric.racks
            if rack.id != here
            for way in self._sends(rack.id, table)
        )

    def _sends(self, to: RackId, table: Mapping[object, FlowRule]) -> set[Way]:
        metadata = rack_metadata(to)
        if (RuleKind.DIVERT, (metadata,)) in table:
            return set()
        kinds = BY_UPLINK if self.substrate.retags else BY_PORT
        spread = table.get((RuleKind.SPREAD, (metadata,)))
        if spread is None:
            alone = table.get((kinds.alone, (metadata,)))
            return set() if alone is None else {_way(*alone.args[1:])}
        numbers = range(spread.args[1] + 1)
        rules = (table.get((kinds.one_of_several, (metadata, number))) for number in numbers)
        return {_way(*rule.args[2:]) for rule in rules if rule is not None}

    def renumber(self, datapath: DatapathId, numbers: Mapping[int, int]) -> dict[int, int]:
        """Give ports of a switch these OpenFlow numbers, by symbolic port; returns the earlier ones
        of those that have another one now. Its rules name them by these from then on.
        """
        if datapath not in self.renumbered:
            self.renumbered[datapath] = PortNumbers()
            self._name_ports(datapath, InstallAll(tuple(self.tables[datapath].values())))
        known = self.renumbered[datapath].of
        earlier = {port: known.get(port, -port) for port in numbers}
        known.update(numbers)
        return {port: old for port, old in earlier.items() if old != numbers[port]}

    def misnamed(self, datapath: DatapathId) -> list[FlowRule]:
        """Rules of a switch that name a port by a number that it has no more."""
        if datapath not in self.renumbered:
            return []
        ports, table = self.renumbered[datapath], self.tables[datapath].items()
        return [rule for key, rule in table if ports.named[key] != ports.in_rule(rule)]

    def _name_ports(self, datapath: DatapathId, change: RuleChange) -> None:
        """Note by which numbers rules name ports that are written now."""
        ports = self.renumbered.get(datapath)
        if ports is None:
            return
        if isinstance(change, Install | InstallAll):
            ports.named |= {match_key(rule): ports.in_rule(rule) for rule in installed([change])}
        elif isinstance(change, Modify):
            ports.named[match_key(change.rule)] = ports.in_rule(change.rule)

    def _about_port(self, datapath: DatapathId, number: int) -> list[object]:
        """Keys of the rules about what comes in at a port with this number."""
        named, table = self.renumbered[datapath].named, self.tables[datapath].items()
        return [key for key, rule in table if matches_port(rule) and named[key][0] == number]

    def differing_rules(self, datapath: DatapathId, state: NetworkState) -> Iterator[FlowRule]:
        """Rules about real racks that a switch lacks or has too many."""
        rules = self.substrate.path_rules(datapath, state)
        wanted = {(rule.kind, rule.args) for rule in rules}
        held = {
            (rule.kind, rule.args)
            for rule in self.tables[datapath].values()
            if rule.kind in ABOUT_PATHS
        }
        for kind, args in sorted(wanted ^ held, key=str):
            yield FlowRule(kind, args)

    def synchronised(self, state: NetworkState) -> frozenset[DatapathId]:
        """Connected switches that hold what ``state`` wants."""
        return frozenset(
            datapath
            for datapath in self.connected
            if not list(self.differing_rules(datapath, state))
        )


def _way(vlan: int, port: int = Port.OPTICAL) -> Way:
    return VlanId(vlan), port
