"""What can be made of a change beside others under way that go at the pace of slow switches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apps.controller.mover import Mover
from apps.controller.record.network import NetworkRecord
from apps.planning.engine import Planning
from hydra.forwarding.substrate import substrate_of
from hydra.model import Circuit, DatapathId, DemandMatrix, Fabric, NetworkState, Topology
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.beside import Touched, apart, left_to
from hydra.reconfiguration.plan import Pair, Plan, directions, moving_pairs, pair_of, without
from hydra.reconfiguration.stages import Traffic, next_stage


def _nearest(theirs: Touched, start: NetworkState, goal: NetworkState) -> NetworkState:
    """The nearest state to ``goal`` that leaves to others what is theirs, and takes no pair's path
    before that has its new one. No circuit comes yet for pairs that stay where they are.
    """
    before, wanted = _pairs(start), _pairs(goal)
    while True:
        target = left_to(theirs, start, goal)
        bereft = (before & wanted) - _pairs(target)
        if not bereft:
            break
        theirs |= Touched(bereft)
    idle = _in_use(goal.topology) - _in_use(target.topology) - start.topology.circuits
    return without(target, idle)


def _pairs(state: NetworkState) -> frozenset[Pair]:
    return frozenset(map(pair_of, state.topology.paths))


def _in_use(topology: Topology) -> frozenset[Circuit]:
    return frozenset(circuit for path in topology.paths for circuit in path.circuits)


@dataclass(frozen=True, slots=True)
class Part:
    """What can be made of a change."""

    plan: Plan
    goal: NetworkState
    """The state that the change leads to."""
    whole: bool
    """True if nothing is left of the change then."""


class Beside:
    """For the conductor's thread."""

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        planning: Planning,
        network: NetworkRecord,
        mover: Mover,
        electrical_mbps: NDArray[np.float64],
    ) -> None:
        """``electrical_mbps``: rate between each rack and the electrical network, shape (N,)."""
        self._fabric = fabric
        self._policy = policy
        self._planning = planning
        self._network = network
        self._mover = mover
        self._electrical_mbps = electrical_mbps

    def part_of(
        self, goal: Topology, left: Touched, held: Touched, sent_mbps: DemandMatrix, who: str
    ) -> Part | None:
        """What can be made on the way to a goal beside changes under way, at a time; None if that
        is nothing, or ``who`` wants it keeps its turn.

        The change leaves to others what is ``left`` to them, and for now what is ``held``, what
        changes under way touch, and the racks that these wait for. Raises HydraError.
        """
        state, touched = self._network.state, self._mover.touched
        start = apart(state, touched)
        toward = left_to(left, start, self._planning.toward(start, goal))
        theirs = held | touched | self._at_slow_racks(moving_pairs(start, toward))
        shared = (path for path, vlan in start.vlans.items() if vlan in touched.taken)
        theirs |= Touched(frozenset(pair_of(one) for one in shared if one not in toward.vlans))
        near = _nearest(theirs, start, toward)
        stage = next_stage(start, near, self._traffic(sent_mbps))
        target = stage.target
        if stage.beyond or not _pairs(start) & _pairs(near) <= _pairs(target):
            return None  # in its turn, those who lose their paths may have detours
        plan = self._mover.plan_beside(target, who)
        whole = stage.last and target.topology == toward.topology
        return None if plan is None else Part(plan, toward, whole)

    def _at_slow_racks(self, pairs: Collection[Pair]) -> Touched:
        """Those of these pairs that are at a rack with a switch which a change under way waits
        for.
        """
        slow = frozenset[DatapathId]().union(*(one.slow for one in self._network.under_way))
        substrate = substrate_of(self._fabric)
        racks = {
            rack
            for rack in {rack for pair in pairs for rack in pair}
            if any(switch.datapath in slow for switch in substrate.steering(rack))
        }
        return Touched(frozenset(pair for pair in pairs if not racks.isdisjoint(pair)))

    def _traffic(self, sent_mbps: DemandMatrix) -> Traffic:
        """Traffic, and the room that changes under way leave: their pairs are electrical."""
        state, moving = self._network.standing()
        diverted_mbps = np.zeros_like(sent_mbps)
        for a, b in directions(state):
            if (min(a, b), max(a, b)) in moving:
                diverted_mbps[a, b] = sent_mbps[a, b]
        taken_mbps = np.maximum(diverted_mbps.sum(axis=0), diverted_mbps.sum(axis=1))
        left_mbps = np.maximum(0.0, self._electrical_mbps - taken_mbps)
        return Traffic(sent_mbps, left_mbps, self._policy.now.divert_share)
