"""Changes of single paths of a network, without an algorithm, and the check of every change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from apps.planning.reserved import beside_reserved, idle, reserved_of, touches
from hydra.columns import no_cycles
from hydra.errors import PlanError
from hydra.model import (
    Circuit,
    Fabric,
    NetworkState,
    Path,
    PortId,
    Topology,
)
from hydra.path_arrays import Paths
from hydra.policy import MOST_PATHS_PER_PAIR, Policy
from hydra.reconfiguration.plan import Plan, diff, pair_of
from hydra.reservations.reservation import Pin
from hydra.rings import whole_rings
from topology.checks import check_topology
from topology.marks import marks_of
from topology.problem import FabricArrays


class SinglePaths:
    """States of a fabric's network with some paths more or fewer. Pure: same inputs, same state."""

    def __init__(self, fabric: Fabric, policy: Policy) -> None:
        self._fabric = fabric
        self._policy = policy
        self._arrays = FabricArrays.of(fabric)
        self._marks = marks_of(fabric)
        self._paths_per_pair = fabric.paths_per_pair(policy.paths_per_pair)
        self._most_paths = self._paths_per_pair or MOST_PATHS_PER_PAIR

    def with_pins(
        self, current: NetworkState, pins: Sequence[Pin], blocked: Collection[PortId]
    ) -> tuple[NetworkState, tuple[Path, ...]]:
        """``current`` with every pin on its path, and the paths displaced by pins.

        A displaced path has no reservation, and a pin needs its ports; all other paths stay.
        Circuits without a path stay if no pin needs their ports: between two stages of a change,
        such circuits wait for their pairs. No algorithm runs: only choosing VLAN-IDs takes time.
        Raises PlanError if VLAN-IDs run out.
        """
        reserved = reserved_of(pins, current, blocked)
        kept, gone = beside_reserved(reserved, current)
        paths = tuple(sorted([*kept, *(path for path, _ in reserved.pinned)]))
        return self.toward(current, _on_rings(paths, current)), tuple(gone)

    def without_circuits(self, current: NetworkState, lost: Collection[Circuit]) -> NetworkState:
        """``current`` without ``lost`` circuits, their paths, and circuits used only by these
        paths.
        """
        return self.reduced(current, lost, ())

    def reduced(
        self, current: NetworkState, lost: Collection[Circuit], lost_paths: Collection[Path]
    ) -> NetworkState:
        """``current`` without the ``lost`` circuits, every path over them, ``lost_paths``, and
        circuits used only by such paths.
        """
        paths = tuple(
            path
            for path in current.topology.paths
            if path not in lost_paths and set(lost).isdisjoint(path.circuits)
        )
        return self.toward(current, _on_rings(paths, current, lost))

    def toward(self, current: NetworkState, topology: Topology) -> NetworkState:
        """The state after ``current`` with ``topology``. Raises PlanError if VLAN-IDs run out."""
        if topology == current.topology:
            return current
        return self._marks.state(current, topology)

    def restored(
        self, current: NetworkState, topology: Topology, blocked: Collection[PortId]
    ) -> NetworkState:
        """``current`` with the paths of an earlier ``topology`` that need no ``blocked`` port."""
        standing = set(current.topology.paths)
        paths = tuple(p for p in topology.paths if p in standing or not touches(p, blocked))
        return self.toward(current, _on_rings(paths, current))

    def joined(
        self, current: NetworkState, wished: Collection[Path], blocked: Collection[PortId]
    ) -> NetworkState:
        """``current`` with the ``wished`` paths that fit beside standing paths: the ports are free
        and not ``blocked``, and the pair may have a further path.
        """
        paths = list(current.topology.paths)
        user = {half: c for c in current.topology.circuits for half in c.halves}
        having = Counter(map(pair_of, paths))
        for path in sorted(set(wished).difference(paths)):
            halves = {half: circuit for circuit in path.circuits for half in circuit.halves}
            if (
                having[pair_of(path)] < self._most_paths
                and not touches(path, blocked)
                and all(user.get(half, circuit) == circuit for half, circuit in halves.items())
            ):
                paths.append(path)
                user |= halves
                having[pair_of(path)] += 1
        return self.toward(current, _on_rings(sorted(paths), current))

    def order_of(
        self, old: NetworkState, new: NetworkState
    ) -> tuple[AbstractSet[Circuit], AbstractSet[Circuit]]:
        order = self._marks.order(old, new)
        return order.disconnect_first, order.connect_last

    def diff(self, current: NetworkState, target: NetworkState) -> Plan:
        """The plan from one state to the other, checked by code independent of the planners.

        Raises PlanError if any check fails; nothing has moved then.
        """
        with no_cycles():
            plan = diff(self._fabric, current, target, self.order_of)
            problems = self._problems(plan)
        if problems:
            raise PlanError("the planned topology is unsound: " + "; ".join(problems))
        return plan

    def _problems(self, plan: Plan) -> list[str]:
        current, target = plan.current, plan.target
        # Standing paths may stay, even if the policy has become stricter since.
        most = max(self._most_paths, _most_paths(current))
        return [
            *check_topology(
                self._arrays,
                target.topology,
                self._policy.max_hops,
                paths_per_pair=most,
                standing=current.vlans,
            ),
            *self._marks.problems(target),
            *self._marks.transit_problems(
                current, target, plan.disconnect_first, plan.connect_last
            ),
        ]


def _on_rings(
    paths: Sequence[Path], current: NetworkState, lost: Collection[Circuit] = ()
) -> Topology:
    """A topology of ``paths``, in order, and their circuits, as far as rings are complete.

    Standing circuits without a path that are not ``lost`` stay if their ports are free.
    """
    needed = {circuit for path in paths for circuit in path.circuits}
    circuits = whole_rings(needed | idle(needed, current, lost))
    return Topology(circuits, tuple(path for path in paths if circuits.issuperset(path.circuits)))


def _most_paths(state: NetworkState) -> int:
    """The largest number of paths of a pair."""
    _, count = np.unique(Paths.of(state.topology.paths).table.pair_codes(), return_counts=True)
    return int(count.max(initial=0))
