"""Where frames come out: over light, VLANs and relays as they are now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hydra.forwarding.match_action import place_of_wired, wired_port
from hydra.forwarding.pipeline import VLAN_PRESENT, RuleKind
from hydra.model import PortId, RackId, VlanId
from tests.unit.reconfiguration.simulation.tors import Tors
from tests.unit.reconfiguration.simulation.wiring import Link, Way, Wiring, root


class Forwarding(Tors):
    """Follows frames from rack to rack."""

    _wiring: Wiring | None = None

    def wiring(self) -> Wiring:
        """What follows from mirrors, VLANs and relays now: the same object until they change."""
        if self._wiring is None or not self._wiring.holds():
            self._wiring = Wiring(self)
        return self._wiring

    def arrives(self, way: Way, here: RackId, there: RackId) -> bool:
        """Whether what a rack sends in this way reaches another, and answers can come back."""
        if self.substrate.retags:
            return self.joined(way[0], here, there)
        return self.followed(way, here)[-1] == there

    def followed(self, way: Way, rack: RackId) -> list[PortId | RackId | None]:
        """The ports by which a labelled frame leaves racks, and the rack where it ends.

        None in place of that where it is sent into the dark.
        """
        label, out = way
        left_by: list[PortId | RackId | None] = []
        while True:
            port = self.fabric.ports_of(rack)[place_of_wired(out)]
            left_by.append(port.id)
            far = self.far_end(port)
            if far is None:
                return [*left_by, None]
            rack = far.rack
            arrived = (wired_port(self.fabric.place_of_port[far.id]), VLAN_PRESENT | label)
            table = self.tables[self.fabric.racks[rack].tor.datapath_id]
            relay = table.get((RuleKind.TOR_RELAY, arrived))
            if relay is None:
                return [*left_by, rack]
            out = relay.args[2]

    def joined(self, vlan: VlanId, one: RackId, other: RackId) -> bool:
        """Whether frames get from one rack to the other on ``vlan``, and back."""
        tree = self.islands(vlan, self.links())
        return root(tree, one) == root(tree, other)

    def islands(self, vlan: VlanId, links: Sequence[Link]) -> dict[RackId, RackId]:
        """Racks that ``vlan`` joins in both directions, as trees with one root each."""
        tree = {rack.id: rack.id for rack in self.fabric.racks}
        vlans = self.vlans
        for a, b, whole in links:
            if whole and vlan in vlans[a.id].tagged and vlan in vlans[b.id].tagged:
                tree[root(tree, a.rack)] = root(tree, b.rack)
        return tree

    def loops(self, links: Sequence[Link]) -> Iterator[VlanId]:
        """Circuit VLANs in which a broadcast would go round for ever."""
        if not self.vlans:
            return
        trees: dict[VlanId, dict[RackId, RackId]] = {}
        looped: set[VlanId] = set()
        for a, b, _ in links:
            for vlan in self.vlans[a.id].tagged & self.vlans[b.id].tagged:
                if vlan not in trees:
                    trees[vlan] = {rack.id: rack.id for rack in self.fabric.racks}
                tree = trees[vlan]
                one, other = root(tree, a.rack), root(tree, b.rack)
                if one == other:
                    looped.add(vlan)
                tree[one] = other
        yield from sorted(looped - {self.fabric.parking_vlan})
