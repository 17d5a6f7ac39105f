"""Which pairs of a change can make before they break, and the states on the way.

A pair can shift if its new paths need no port and no VLAN-ID in use: the new paths then stand
beside the old paths, and traffic goes from circuit to circuit.
"""

from __future__ import annotations

from hydra.model import Circuit, Fabric, NetworkState, Pair
from hydra.policy import MOST_PATHS_PER_PAIR
from hydra.reconfiguration.plan import hold, moving_pairs, paths_by_pair, without
from hydra.reconfiguration.run import Conditions, switches_of


class Shifting:
    """Which pairs can go over in the light on the way from one state to another.

    A pair cannot if its old paths have died, if a switch of its racks is not ready, or if people
    would have to plug circuits. On a fabric of unidirectional circuits no pair can, since rings
    move as a whole.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        current: NetworkState,
        target: NetworkState,
        conditions: Conditions,
    ) -> None:
        self.current, self.target = current, target
        self.moving = frozenset[Pair]() if fabric.one_way else moving_pairs(current, target)
        self.before = paths_by_pair(current, self.moving)
        self.after = paths_by_pair(target, self.moving)
        self._conditions = conditions
        self._ready = {
            rack
            for rack in {rack for pair in self.moving for rack in pair}
            if conditions.connected.issuperset(switches_of(fabric, rack))
        }
        self._taken = {end for circuit in current.topology.circuits for end in circuit.ends}
        self._vlans = frozenset(current.vlans.values())

    def is_movable(self, pair: Pair) -> bool:
        """True if the pair can go to another path in the light."""
        return pair not in self._conditions.diverted and self._ready.issuperset(pair)

    def is_able(self, pair: Pair) -> bool:
        """True if the pair can go to its new paths in the light once ports are free."""
        paths, old = self.after.get(pair, ()), self.before.get(pair, ())
        if not paths or not self.is_movable(pair):
            return False
        vlans, was = self.target.vlans, self.current.vlans
        new = [path for path in paths if path not in was]
        standing, by_hand = self.current.topology.circuits, self._conditions.by_hand
        return (
            len(new) + len(old) <= MOST_PATHS_PER_PAIR
            and all(vlans[path] == was.get(path) for path in paths if path in old)
            and all(vlans[path] not in self._vlans for path in new)
            and all(
                circuit in standing or circuit.plane not in by_hand
                for path in new
                for circuit in path.circuits
            )
        )

    def fits(self, pair: Pair) -> bool:
        """True if the ports for the pair's new paths are free."""
        standing = self.current.topology.circuits
        return all(
            circuit in standing or self._taken.isdisjoint(circuit.ends)
            for path in self.after.get(pair, ())
            for circuit in path.circuits
        )

    def reached(self) -> NetworkState | None:
        """As :func:`in_light`."""
        current, target = self.current, self.target
        if self.before.keys().isdisjoint(self.after):
            return None
        chosen = frozenset(pair for pair in self.moving if self.fits(pair) and self.is_able(pair))
        if chosen.isdisjoint(self.before):
            return None
        near = hold(current, target, self.moving - chosen, ())
        idle = near.topology.circuits - current.topology.circuits - in_use(near)
        if chosen == self.moving:
            idle = frozenset(
                circuit for circuit in idle if not self._taken.isdisjoint(circuit.ends)
            )
        return without(near, idle)


def in_light(
    fabric: Fabric,
    current: NetworkState,
    target: NetworkState,
    conditions: Conditions,
) -> NetworkState | None:
    """The state nearest to ``target`` that pairs can reach in the light; None if no pair with
    present paths gains.
    """
    shifting = Shifting(fabric=fabric, current=current, target=target, conditions=conditions)
    return shifting.reached()


def in_use(state: NetworkState) -> frozenset[Circuit]:
    """Circuits under paths."""
    return frozenset(circuit for path in state.topology.paths for circuit in path.circuits)


def beside(current: NetworkState, target: NetworkState) -> NetworkState:
    """The state with the paths and circuits of both states."""
    circuits = current.topology.circuits | target.topology.circuits
    return target.joined(circuits, {**target.vlans, **current.vlans})
