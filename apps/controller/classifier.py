"""Class rules of switches: admission of traffic to circuits, as the sharing policy asks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from apps.openflow.fleet import Fleet
from hydra.forwarding.class_table import TcpConnection, class_rules, spill_rules
from hydra.forwarding.rules import FlowRule, Install, Remove, RuleChange
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, RackId, Server
from hydra.policy import CurrentPolicy

LOG = logging.getLogger("hydra.classifier")


class Classifier:
    """Methods run in the conductor's thread.

    Circuits open to all traffic need no rules. Otherwise each steering switch holds a rule to keep
    all traffic off circuits, and a rule for each elephant of its servers. Two more rules keep part
    of the flows to a rack off full circuits.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        fleet: Fleet,
        elephants: Callable[[Server], Collection[TcpConnection]],
        policy: CurrentPolicy,
        spills: Callable[[], Mapping[tuple[RackId, RackId], int]],
    ) -> None:
        """``spills`` by pair of racks: every n-th part of the flows between the racks is
        electrical.
        """
        substrate = substrate_of(fabric)
        self._spills = spills
        self._servers = {
            switch.datapath: switch.servers
            for rack in fabric.racks
            for switch in substrate.steering(rack.id)
        }
        """Servers of each switch with a class table."""
        self._switch_of = {
            server.name: datapath for datapath, some in self._servers.items() for server in some
        }
        self._fleet = fleet
        self._elephants = elephants
        self._policy = policy
        self._wanted: dict[DatapathId, frozenset[FlowRule]] = {}
        """Rules as last decided: agents report at any time, but only the conductor's thread changes
        tables.
        """

    def rules_for(self, datapath: DatapathId) -> frozenset[FlowRule]:
        """Rules for a switch's class table, beside the permanent rules."""
        if datapath not in self._wanted:
            self._wanted[datapath] = self._rules_now(datapath)
        return self._wanted[datapath]

    def _rules_now(self, datapath: DatapathId) -> frozenset[FlowRule]:
        servers = self._servers.get(datapath, ())
        rules: list[FlowRule] = []
        if servers and self._policy.now.sharing.elephants_only:
            rules += class_rules(
                [elephant for server in servers for elephant in self._elephants(server)]
            )
        for (rack, to), parts in self._spills().items():
            if servers and servers[0].rack == rack:
                rules += spill_rules(to, parts)
        return frozenset(rules)

    @property
    def switches(self) -> Collection[DatapathId]:
        """Switches with the controller's class table."""
        return self._servers.keys()

    def switch_of(self, server: Server) -> DatapathId:
        """The switch that classes a server's traffic."""
        return self._switch_of[server.name]

    def bring(
        self, datapaths: Iterable[DatapathId], ready: Collection[DatapathId]
    ) -> frozenset[DatapathId]:
        """Adopt agents' reports, and install the resulting rules on ready switches.

        Returns the switches that did not confirm: the rules there are unknown.
        """
        changes: dict[DatapathId, list[RuleChange]] = {}
        for datapath in datapaths:
            held, rules = self.rules_for(datapath), self._rules_now(datapath)
            self._wanted[datapath] = rules
            if rules != held and datapath in ready:
                changes[datapath] = [*map(Remove, held - rules), *map(Install, rules - held)]
        if not changes:
            return frozenset()
        errors = self._fleet.apply(changes, self._policy.now.timeouts.vswitch_s)
        for datapath, error in errors.items():
            if error is not None:
                LOG.error("the class table of switch %#x is not confirmed: %s", datapath, error)
        return frozenset(datapath for datapath, error in errors.items() if error is not None)
