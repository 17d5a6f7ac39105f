"""Parts of the network touched by a change. Changes under way touch nothing in common.

When a change ends, the result is merged into the current and target states of the other changes
(:func:`rebased`). A change whose circuits drain may leave some pairs and ports to a new change
(:func:`target_without`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hydra.model import Circuit, Fabric, NetworkState, Pair, PortId, Topology, VlanId
from hydra.reconfiguration.plan import Plan, hold, pair_of, without
from hydra.vlan_pool import taken_between


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """Parts of the network altered by a change, or needed unaltered."""

    pairs: frozenset[Pair] = frozenset()
    ports: frozenset[PortId] = frozenset()
    """Ends of circuits set up, torn down, or under a moving pair; retagged ports."""
    vlans: frozenset[VlanId] = frozenset()
    """VLAN-IDs of moving pairs before and after the change."""
    taken: frozenset[VlanId] = frozenset()
    """VLAN-IDs of the moving pairs after the change."""

    @classmethod
    def by(cls, fabric: Fabric, plan: Plan) -> Touched:
        circuits = set(plan.connect | plan.disconnect)
        released: set[VlanId] = set()
        taken: set[VlanId] = set()
        for state, vlans in ((plan.current, released), (plan.target, taken)):
            for path, vlan in state.vlans.items():
                if pair_of(path) in plan.affected:
                    circuits.update(path.circuits)
                    vlans.add(vlan)
        retagged = (
            fabric.port_by_name[fabric.racks[rack].name, name].id
            for rack, names in plan.memberships.items()
            for name in names
        )
        ends = (end for circuit in circuits for end in circuit.ends)
        ports = frozenset((*ends, *retagged))
        return cls(
            pairs=frozenset(plan.affected),
            ports=ports,
            vlans=frozenset(released | taken),
            taken=frozenset(taken),
        )

    def __or__(self, other: Touched) -> Touched:
        return Touched(
            pairs=self.pairs | other.pairs,
            ports=self.ports | other.ports,
            vlans=self.vlans | other.vlans,
            taken=self.taken | other.taken,
        )

    def but_for(self, other: Touched) -> Touched:
        """Copy without the pairs and ports of ``other``."""
        pairs, ports = self.pairs - other.pairs, self.ports - other.ports
        return Touched(pairs=pairs, ports=ports, vlans=self.vlans, taken=self.taken)

    def meets(self, other: Touched) -> bool:
        """True if both touch a pair or a port, or if a VLAN-ID taken by either is touched by both.

        A VLAN-ID only left by both is no conflict: the ports differ.
        """
        return not (
            self.pairs.isdisjoint(other.pairs)
            and self.ports.isdisjoint(other.ports)
            and self.taken.isdisjoint(other.vlans)
            and self.vlans.isdisjoint(other.taken)
        )


def state_beside(state: NetworkState, touched: Touched) -> NetworkState:
    """``state`` to plan from beside changes under way: no new path may take a touched VLAN-ID."""
    return replace(state, pool=state.pool.closed_to(touched.vlans))


def target_without(excluded: Touched, current: NetworkState, target: NetworkState) -> NetworkState:
    """The state nearest to ``target`` without ``excluded``, the parts of a newer change: its pairs
    and the circuits at its ports stay as they are, and no new circuit uses its ports.
    """

    def theirs_among(state: NetworkState) -> set[Circuit]:
        return {
            circuit
            for circuit in state.topology.circuits
            if not excluded.ports.isdisjoint(circuit.ends)
        }

    at_ports = theirs_among(current)
    near = hold(current, target, excluded.pairs, at_ports)
    return without(near, theirs_among(near) - at_ports)


def rebased(state: NetworkState, before: NetworkState, after: NetworkState) -> NetworkState:
    """``state`` rebased on a change from ``before`` to ``after``.

    The epoch of ``state`` stays: rules under way bear the epoch.
    """
    old, new = before.vlans.items(), after.vlans.items()
    vlans = dict(sorted({*(state.vlans.items() - (old - new)), *(new - old)}))
    circuits = state.topology.circuits - (before.topology.circuits - after.topology.circuits)
    in_use = frozenset(vlans.values())
    return NetworkState(
        state.epoch,
        Topology(circuits | (after.topology.circuits - before.topology.circuits), tuple(vlans)),
        vlans,
        state.pool.after(
            in_use,
            rests=state.pool.resting.union(after.pool.resting, before.vlans.values()),
            lost=taken_between(after.vlans, before.vlans),
            taken=taken_between(before.vlans, after.vlans),
        ),
    )
