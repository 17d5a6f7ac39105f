"""Algorithms that only choose racks to join; this module does the rest of planning::

@direct
def greedy(joins: Joins) -> None:
    for a, b in joins.pairs():
        for plane in joins.planes(a, b)[:1]:
            joins.join(a, b, plane)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.errors import PlanError
from hydra.model import Fabric, Path, PlaneId, Topology
from topology.layers import Layer, free_layers
from topology.pairing import circuits_between, circuits_in_use
from topology.problem import (
    Algorithm,
    Budget,
    FabricArrays,
    PlanResult,
    Reserved,
    largest_first,
    measure,
    pair_demands,
    validate_demand,
)
from topology.standing import standing_part


class ForbiddenJoin(PlanError):
    """An algorithm joined two racks on a plane that :meth:`Joins.planes` does not name."""

    def __init__(self, a: int, b: int, plane: PlaneId) -> None:
        self._place = a, b, plane
        super().__init__(f"no circuit can join racks {a} and {b} on plane {plane}")

    def named(self, algorithm: str, fabric: Fabric) -> PlanError:
        """The error with the names of the algorithm, the racks and the plane."""
        a, b, plane = self._place
        names = dict(enumerate(plane.name for plane in fabric.planes))
        return PlanError(
            f"algorithm {algorithm} joins racks {fabric.racks[a].name} and {fabric.racks[b].name} "
            f"on plane {names.get(plane, plane)}, which joins.planes() of these racks does not name"
        )


@dataclass(slots=True, eq=False)
class Joins:
    """Racks that are being joined, each two by a circuit of their own and a path of one hop.

    Ports of everything that must stay, such as reserved paths, are not free here.
    """

    fabric: FabricArrays
    budget: Budget
    """Its racks, planes, blocked ports and numbers of paths are respected; only ``expired`` is left
    to the algorithm, which should ask if its choice takes long.
    """
    wanted_mbps: NDArray[np.float64]
    """Shape (N, N), symmetric: demand in Mbps between two racks, the larger of both directions,
    beyond the traffic that their paths carry.
    """
    open_paths: NDArray[np.int64]
    """Shape (N, N), symmetric: number of further paths that two racks may get."""
    layers: Sequence[Layer]
    joined: dict[PlaneId, list[tuple[int, int]]] = field(default_factory=dict)
    """Pairs with a circuit, by plane."""
    free_mbps: NDArray[np.float64] = field(init=False)
    """Shape (planes, N): the rate of each rack's next port on each plane; 0 if none is left."""
    _ports_mbps: dict[tuple[PlaneId, int], list[float]] = field(init=False, default_factory=dict)
    """Rates of a rack's free ports on a plane, the next port last."""

    def __post_init__(self) -> None:
        self.free_mbps = np.zeros((self.fabric.n_planes, self.fabric.n_racks))
        for layer in reversed(self.layers):
            for rack in layer.racks.tolist():
                mbps = float(layer.rate_mbps[rack])
                self._ports_mbps.setdefault((layer.plane, rack), []).append(mbps)
                self.free_mbps[layer.plane, rack] = mbps

    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of racks with a demand, the lower rack first; the largest demand first.

        Equal demands go by :func:`~topology.problem.tie_break`.
        """
        a, b = np.nonzero(np.triu(self.wanted_mbps))
        order = largest_first(self.wanted_mbps[a, b], a.astype(np.int32), b.astype(np.int32))
        return list(zip(a[order].tolist(), b[order].tolist(), strict=True))

    def planes(self, a: int, b: int) -> list[PlaneId]:
        """Planes on which a circuit may join two racks now, the fastest circuits first."""
        if self.open_paths[a, b] < 1:
            return []
        mbps = np.minimum(self.free_mbps[:, a], self.free_mbps[:, b])
        enough = mbps > 0 if self.budget.boolean else (mbps > 0) & (mbps >= self.wanted_mbps[a, b])
        order = np.argsort(-mbps, kind="stable")
        return [PlaneId(plane) for plane in order[enough[order]].tolist()]

    def join(self, a: int, b: int, plane: PlaneId) -> None:
        """Join two racks. Raises ForbiddenJoin for a plane that :meth:`planes` does not name."""
        if plane not in self.planes(a, b):
            raise ForbiddenJoin(a, b, plane)
        carried = min(self.wanted_mbps[a, b], *self.free_mbps[plane, [a, b]])
        self.joined.setdefault(plane, []).append((min(a, b), max(a, b)))
        for rack in (a, b):
            left = self._ports_mbps[plane, rack]
            left.pop()
            self.free_mbps[plane, rack] = left[-1] if left else 0.0
        self.open_paths[[a, b], [b, a]] -= 1
        more = self.open_paths[a, b] > 0
        self.wanted_mbps[[a, b], [b, a]] -= carried if more else self.wanted_mbps[a, b]


def direct(choose: Callable[[Joins], None]) -> Algorithm:
    """An algorithm for duplex circuits of one hop; ``choose`` joins racks, pure and deterministic.

    Everything that must stay does (see :mod:`topology.standing`), and ``choose`` sees the demand
    left. A pair joined again on the same plane keeps its ports.

    The algorithm raises PlanError for a bad demand entry, an impossible budget, or pinned paths
    that do not fit.
    """

    def plan(
        fabric: FabricArrays,
        demand: ArrayLike,
        current: Topology,
        reserved: Reserved,
        budget: Budget,
    ) -> PlanResult:
        n = fabric.n_racks
        pairs = pair_demands(validate_demand(demand, n))
        budget.check(fabric)
        standing = standing_part(fabric, pairs, current, reserved, budget)
        open_paths = standing.open_paths(n, reserved, budget)
        wanted = np.zeros((n, n))
        wanted[pairs.src, pairs.dst] = wanted[pairs.dst, pairs.src] = standing.remaining_mbps
        layers = free_layers(fabric, budget, standing.ports())
        joins = Joins(fabric, budget, np.where(open_paths > 0, wanted, 0.0), open_paths, layers)
        choose(joins)
        made = circuits_between(fabric, joins.joined, layers, circuits_in_use(current))
        paths = [*standing.paths, *(Path(*ends, (circuit,)) for ends, circuit in made)]
        circuits = standing.circuits | {circuit for _, circuit in made}
        return measure(fabric, pairs, Topology(circuits, tuple(sorted(paths))), reserved)

    return plan
