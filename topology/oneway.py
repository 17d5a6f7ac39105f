"""Planning of one-way light paths: their demand, and the traffic carried by slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """Racks that send."""
    receiver: NDArray[np.int32]
    lane: int | None = None
    """As in :class:`topology.problem.Slot`."""

    def lasting(self, duration_s: float) -> Configuration:
        """The same light paths for another duration."""
        return replace(self, duration_s=duration_s)


@dataclass(frozen=True, slots=True, eq=False)
class OneWayProblem:
    """Demand and ports for light paths, beside the duplex circuits that must stay."""

    fabric: FabricArrays
    budget: Budget
    standing: Standing
    layers: tuple[Layer, ...]
    wanted_mbps: DemandMatrix
    standing_mbps: DemandMatrix
    """Part of the demand carried by the standing paths."""

    @property
    def open_mbps(self) -> DemandMatrix:
        """Demand left for light paths, between racks of the budget."""
        left = self.wanted_mbps - self.standing_mbps
        left[left <= RATE_TOLERANCE_MBPS] = 0.0
        if self.budget.racks is not None:
            outside = np.ones(self.fabric.n_racks, dtype=bool)
            outside[list(self.budget.racks)] = False
            left[outside, :] = 0.0
            left[:, outside] = 0.0
        return left

    @property
    def rates_mbps(self) -> NDArray[np.float64]:
        """Shape (L, N): rate of each layer's port of each rack; 0 if there is none."""
        rates = [layer.rate_mbps for layer in self.layers]
        return np.array(rates).reshape(len(rates), self.fabric.n_racks)

    @property
    def racks(self) -> NDArray[np.int64]:
        """Racks with a port on any layer, ascending."""
        return np.flatnonzero(self.rates_mbps.any(axis=0))

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
        """The plan of the given configurations, each standing once in each window."""
        carried = self._carried_mbps(self._offered(configurations))
        wanted = self.wanted_mbps > 0
        hops = [path.hops for path in self.standing.paths]
        return PlanResult(
            topology=Topology(self.standing.circuits, self.standing.paths),
            unserved=rack_pairs(wanted & (carried <= 0)),
            served_share=self.share(configurations),
            mean_hops=sum(hops) / len(hops) if hops else 0.0,
            slots=tuple(self._slot(configuration) for configuration in configurations),
            gap=gap,
        )

    def share(self, configurations: Sequence[Configuration]) -> float:
        """Part of the demand carried by the configurations."""
        return self.share_of(self._offered(configurations))

    def share_of(self, offered_mbit: NDArray[np.float64]) -> float:
        """Part of the demand carried by light paths with room for ``offered_mbit`` a window."""
        total = float(self.wanted_mbps.sum())
        return float(self._carried_mbps(offered_mbit).sum()) / total if total else 1.0

    def offered_mbit(self, configuration: Configuration) -> NDArray[np.float64]:
        """Shape (N, N): Mbit that light paths could carry in the configuration's duration."""
        offered = np.zeros_like(self.wanted_mbps)
        ends = (configuration.sender, configuration.receiver)
        rate = np.minimum(*(self.rates_mbps[configuration.layer, end] for end in ends))
        np.add.at(offered, ends, rate * configuration.duration_s)
        return offered

    def _offered(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Sum of :meth:`offered_mbit`; the only configuration of a lane stands all the time."""
        count = Counter(configuration.lane for configuration in configurations)
        offered = np.zeros_like(self.wanted_mbps)
        for entry in configurations:
            alone = count[entry.lane] == 1
            offered += self.offered_mbit(
                entry.lasting(self.budget.timing.window_s) if alone else entry
            )
        return offered

    def _carried_mbps(self, offered_mbit: NDArray[np.float64]) -> DemandMatrix:
        offered_mbps = offered_mbit / self.budget.timing.window_s
        carried: DemandMatrix = np.minimum(self.wanted_mbps, self.standing_mbps + offered_mbps)
        return carried

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
        return Slot(configuration.duration_s, frozenset(lightpaths), configuration.lane)


def configuration_of(
    duration_s: float,
    taken: Sequence[tuple[int, NDArray[np.int32], NDArray[np.int32]]],
    lane: int | None = None,
) -> Configuration:
    """A configuration from any number of (layer, senders, receivers)."""
    empty = np.zeros(0, dtype=np.int32)
    return Configuration(
        duration_s,
        np.concatenate(
            [empty, *(np.full(len(s), number, dtype=np.int32) for number, s, _ in taken)]
        ),
        np.concatenate([empty, *(sender for _, sender, _ in taken)]),
        np.concatenate([empty, *(receiver for _, _, receiver in taken)]),
        lane,
    )
