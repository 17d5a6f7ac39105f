"""Planning of one-way light paths: what is asked for, and what slots of them carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.model import DemandMatrix, PortId, Topology
from topology.carried import carried_mbps, pairs_on_paths, rack_pairs
from topology.layers import Layer, free_layers
from topology.problem import (
    RATE_TOLERANCE_MBPS,
    Budget,
    FabricArrays,
    Lightpath,
    PlanResult,
    Reserved,
    Slot,
    validate_demand,
)
from topology.standing import Standing, standing_part


@dataclass(frozen=True, slots=True, eq=False)
class Configuration:
    """Light paths that stand at the same time, as arrays of shape (E,)."""

    duration_s: float
    layer: NDArray[np.int32]
    sender: NDArray[np.int32]
    """Racks."""
    receiver: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class OneWayProblem:
    """What light paths are planned for, beside the duplex circuits that must stay."""

    fabric: FabricArrays
    budget: Budget
    standing: Standing
    layers: tuple[Layer, ...]
    wanted_mbps: DemandMatrix
    standing_mbps: DemandMatrix
    """What the standing paths carry of it."""

    @property
    def open_mbps(self) -> DemandMatrix:
        """What is left for light paths, between racks of the budget."""
        left = self.wanted_mbps - self.standing_mbps
        left[left <= RATE_TOLERANCE_MBPS] = 0.0
        if self.budget.racks is not None:
            outside = np.ones(self.fabric.n_racks, dtype=bool)
            outside[list(self.budget.racks)] = False
            left[outside, :] = 0.0
            left[:, outside] = 0.0
        return left

    @classmethod
    def of(
        cls,
        fabric: FabricArrays,
        demand: ArrayLike,
        current: Topology,
        reserved: Reserved,
        budget: Budget,
    ) -> OneWayProblem:
        """Raises PlanError for a bad demand entry, budget or pinned path."""
        wanted = validate_demand(demand, fabric.n_racks)
        budget.check(fabric)
        pairs = pairs_on_paths(wanted, [*current.paths, *reserved.rate_by_path()])
        standing = standing_part(fabric, pairs, current, reserved, budget)
        kept = Topology(standing.circuits, standing.paths)
        return cls(
            fabric=fabric,
            budget=budget,
            standing=standing,
            layers=free_layers(fabric, budget, standing.ports()),
            wanted_mbps=wanted,
            standing_mbps=np.minimum(wanted, carried_mbps(fabric, wanted, kept, reserved)),
        )

    def result(
        self, configurations: Sequence[Configuration], gap: float | None = None
    ) -> PlanResult:
        """The plan of these configurations, each of which stands once in each window."""
        offered = self.offered_mbps(configurations)
        carried = np.minimum(self.wanted_mbps, self.standing_mbps + offered)
        wanted = self.wanted_mbps > 0
        total = float(self.wanted_mbps.sum())
        hops = [path.hops for path in self.standing.paths]
        return PlanResult(
            topology=Topology(self.standing.circuits, self.standing.paths),
            unserved=rack_pairs(wanted & (carried <= 0)),
            served_share=float(carried.sum()) / total if total else 1.0,
            mean_hops=sum(hops) / len(hops) if hops else 0.0,
            slots=tuple(self._slot(configuration) for configuration in configurations),
            gap=gap,
        )

    def offered_mbps(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Shape (N, N): what the light paths could carry, on average over a window.

        A configuration that is the only one stands all the time: no mirror moves.
        """
        offered = np.zeros_like(self.wanted_mbps)
        for configuration in configurations:
            part = configuration.duration_s / self.budget.timing.window_s
            if len(configurations) == 1:
                part = 1.0
            for number, layer in enumerate(self.layers):
                here = configuration.layer == number
                sender, receiver = configuration.sender[here], configuration.receiver[here]
                rate = np.minimum(layer.rate_mbps[sender], layer.rate_mbps[receiver])
                offered[sender, receiver] += rate * part
        return offered

    def _slot(self, configuration: Configuration) -> Slot:
        lightpaths = []
        for number, sender, receiver in zip(
            configuration.layer.tolist(),
            configuration.sender.tolist(),
            configuration.receiver.tolist(),
            strict=True,
        ):
            layer = self.layers[number]
            lightpaths.append(
                Lightpath(
                    layer.plane,
                    PortId(int(layer.port[sender])),
                    PortId(int(layer.port[receiver])),
                )
            )
        return Slot(configuration.duration_s, frozenset(lightpaths))


def configuration_of(
    duration_s: float, taken: Sequence[tuple[int, NDArray[np.int32], NDArray[np.int32]]]
) -> Configuration:
    """From (layer, senders, receivers), in any number."""
    empty = np.zeros(0, dtype=np.int32)
    return Configuration(
        duration_s,
        np.concatenate(
            [empty, *(np.full(len(s), number, dtype=np.int32) for number, s, _ in taken)]
        ),
        np.concatenate([empty, *(sender for _, sender, _ in taken)]),
        np.concatenate([empty, *(receiver for _, _, receiver in taken)]),
    )
