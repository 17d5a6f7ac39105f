"""Free ports in layers: a layer has at most one port of each rack, all on the same plane."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydra.model import PlaneId, PortId
from topology.problem import Budget, FabricArrays

_NO_PORT = -1

UNITS_PER_MBPS = 1e6
"""Units of matchings' weights, which are whole numbers of bit/s: sums and comparisons are exact."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A plane with one port of each rack. Racks with Z ports on a plane make Z layers."""

    plane: PlaneId
    port: NDArray[np.int64]
    """Shape (N,): a free port of each rack; -1 if the rack has none (left)."""
    rate_mbps: NDArray[np.float64]
    """Shape (N,): the rate of each rack's port; 0 if there is none."""

    @property
    def racks(self) -> NDArray[np.int64]:
        """Racks with a port in the layer, ascending."""
        return np.flatnonzero(self.port != _NO_PORT)

    def capacity_mbps(self) -> NDArray[np.float64]:
        """Shape (N, N): Mbps of a circuit or light path between two racks; 0 on the diagonal."""
        capacity = np.minimum(self.rate_mbps[:, None], self.rate_mbps)
        np.fill_diagonal(capacity, 0.0)
        return capacity


def free_layers(
    fabric: FabricArrays, budget: Budget, unavailable: Collection[PortId]
) -> tuple[Layer, ...]:
    """The usable ports in layers, the fastest first, then by plane.

    A rack's ports on a plane go to its layers by descending rate, equal rates by port number.
    """
    closed = np.zeros(fabric.n_ports, dtype=bool)
    closed[list(unavailable)] = True
    closed[list(budget.blocked_ports)] = True
    if budget.racks is not None:
        closed |= ~np.isin(fabric.port_rack, list(budget.racks))
    if budget.planes is not None:
        closed |= ~np.isin(fabric.port_plane, list(budget.planes))
    ports = np.flatnonzero(~closed)
    rate, rack, plane = (
        fabric.port_rate_mbps[ports],
        fabric.port_rack[ports],
        fabric.port_plane[ports],
    )
    order = np.lexsort((ports, -rate, rack, plane))
    ports, rate, rack, plane = ports[order], rate[order], rack[order], plane[order]
    layers: dict[tuple[int, int], Layer] = {}
    before = (-1, -1)
    nth = 0
    for i in range(len(ports)):
        place = (int(plane[i]), int(rack[i]))
        nth = nth + 1 if place == before else 0
        before = place
        if (place[0], nth) not in layers:
            layers[place[0], nth] = Layer(
                PlaneId(place[0]),
                np.full(fabric.n_racks, _NO_PORT, dtype=np.int64),
                np.zeros(fabric.n_racks),
            )
        layer = layers[place[0], nth]
        layer.port[place[1]] = ports[i]
        layer.rate_mbps[place[1]] = rate[i]
    by_place = sorted(layers.items())
    by_rate = sorted(by_place, key=lambda item: -float(item[1].rate_mbps.max()))
    return tuple(layer for _, layer in by_rate)


def whole_units(mbps: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rates in bit/s, rounded; rates above zero stay above zero."""
    units = np.rint(mbps * UNITS_PER_MBPS).astype(np.int64)
    return np.where(mbps > 0, np.maximum(units, 1), 0)
