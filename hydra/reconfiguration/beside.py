"""Changes side by side: one is made between two steps of others that touch nothing of what it does.

All of them have begun from one state. What one has made becomes a part of the state that the others
come from, and of the one that they lead to (:func:`moved_on`). A change that only waits for its
circuits to drain may leave some of what it touches to another (:func:`left_to`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hydra.model import Circuit, Fabric, NetworkState, PortId, Topology, VlanId
from hydra.reconfiguration.plan import Pair, Plan, hold, pair_of, vlans_changed, without


@dataclass(frozen=True, slots=True)
class Touched:
    """Parts of the network that a change may alter, or counts on to stay as they are."""

    pairs: frozenset[Pair] = frozenset()
    ports: frozenset[PortId] = frozenset()
    """Ends of circuits that come, go, or carry a pair that it moves; ports that it retags."""
    vlans: frozenset[VlanId] = frozenset()
    """VLAN-IDs that its pairs leave and take."""
    taken: frozenset[VlanId] = frozenset()
    """Those of them that its pairs have afterwards."""

    @classmethod
    def by(cls, fabric: Fabric, plan: Plan) -> Touched:
        circuits = set(plan.connect | plan.disconnect)
        left: set[VlanId] = set()
        taken: set[VlanId] = set()
        for state, vlans in ((plan.current, left), (plan.target, taken)):
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
        return cls(plan.affected, ports, frozenset(left | taken), frozenset(taken))

    def __or__(self, other: Touched) -> Touched:
        return Touched(
            self.pairs | other.pairs,
            self.ports | other.ports,
            self.vlans | other.vlans,
            self.taken | other.taken,
        )

    def but_for(self, other: Touched) -> Touched:
        """What is left of it without another's pairs and ports."""
        pairs, ports = self.pairs - other.pairs, self.ports - other.ports
        return Touched(pairs, ports, self.vlans, self.taken)

    def meets(self, other: Touched) -> bool:
        """True if both touch some pair or port, or one takes a VLAN-ID that the other touches.

        An ID that both only leave is no matter: their ports are others.
        """
        return not (
            self.pairs.isdisjoint(other.pairs)
            and self.ports.isdisjoint(other.ports)
            and self.taken.isdisjoint(other.vlans)
            and self.vlans.isdisjoint(other.taken)
        )


def apart(state: NetworkState, touched: Touched) -> NetworkState:
    """``state`` to plan from beside changes under way: their VLAN-IDs are for no new path."""
    return replace(
        state, resting=state.resting | touched.vlans, closed=state.closed | touched.vlans
    )


def left_to(theirs: Touched, current: NetworkState, target: NetworkState) -> NetworkState:
    """The nearest state to ``target`` that leaves to another change what that touches.

    Its pairs and circuits at its ports stay as they are, and nothing comes to its ports.
    """

    def theirs_among(state: NetworkState) -> set[Circuit]:
        return {one for one in state.topology.circuits if not theirs.ports.isdisjoint(one.ends)}

    at_ports = theirs_among(current)
    near = hold(current, target, theirs.pairs, at_ports)
    return without(near, theirs_among(near) - at_ports)


def moved_on(state: NetworkState, before: NetworkState, after: NetworkState) -> NetworkState:
    """``state`` with what another change has made, which led from ``before`` to ``after``.

    Its epoch stays: rules that are under way bear it.
    """
    old, new = before.vlans.items(), after.vlans.items()
    vlans = dict(sorted({*(state.vlans.items() - (old - new)), *(new - old)}))
    circuits = state.topology.circuits - (before.topology.circuits - after.topology.circuits)
    in_use = frozenset(vlans.values())
    return NetworkState(
        state.epoch,
        Topology(circuits | (after.topology.circuits - before.topology.circuits), tuple(vlans)),
        vlans,
        state.resting.union(after.resting, before.vlans.values()) - in_use,
        state.then_freed(vlans_changed(after, before), vlans_changed(before, after)),
    )
