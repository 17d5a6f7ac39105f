"""Light paths by bipartite matching: plane by plane (Helios), or for all planes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.model import Topology
from topology.assignment import heaviest_assignment
from topology.bmatching import heaviest_b_matching
from topology.colouring import colour_edges
from topology.layers import Layer, whole_units
from topology.oneway import Configuration, OneWayProblem, configuration_of
from topology.problem import Budget, FabricArrays, PlanResult, Reserved


def plan_helios(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Light paths of one maximum-weight bipartite matching per plane, the planes in turn.

    Helios (Farrington et al., SIGCOMM 2010, section 4.3.3): rows are senders, columns receivers, an
    entry is the smaller of the demand and the light path's rate; the demand served by each matching
    is subtracted. ``demand`` has shape (N, N), Mbps. Light paths run one way: i to j does not imply
    j to i. A pair may get several light paths, on different planes.

    Choices that the paper leaves open: the fastest planes come first, equally fast planes by
    number; a rack with several ports on a plane takes part in as many matchings; among equally
    heavy matchings :func:`~topology.assignment.heaviest_assignment` decides. With
    ``budget.boolean`` false only demands that fit on one light path count. Circuits and paths that
    must stay do, and their demands are not planned for again; other circuits go, for any
    ``budget.disturbance_mbps``.

    When time is up, planes not yet planned stay dark. The same input gives the same result.

    Raises PlanError for a bad demand entry, an impossible budget, or pinned paths that do not fit.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    work = _Work.of(problem)
    work.match_in_turn()
    return problem.result([work.configuration()])


def plan_b_matching(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """The light paths that together carry most over all planes.

    The optimum approximated by a sequence of matchings: the heaviest set of light paths in which no
    rack has more senders or receivers than ports (:mod:`topology.bmatching`), spread over the
    planes by edge colouring (:mod:`topology.colouring`). Arguments, ties and the parts that stay
    are as in :func:`plan_helios`.

    ``gap`` is 0, a proven optimum, if all racks reach all planes at one rate. If racks miss planes,
    light paths left without a plane are dropped, and the ports that stay free are matched in turn;
    planes of different rates are planned in groups, the fastest first. ``gap`` is then the distance
    from the bound of a single group with the fastest ports.

    Raises PlanError as :func:`plan_helios` does.
    """
    problem = OneWayProblem.of(fabric, demand, current, reserved, budget)
    work = _Work.of(problem)
    wanted = int(work.remaining.sum())
    groups = _groups(problem.layers)
    bound = work.bound(problem.layers) if len(groups) > 1 else None
    for group in groups:
        best = work.match_together(group)
        bound = best if bound is None else bound
    work.match_in_turn()
    value = wanted - int(work.remaining.sum())
    gap = max(0, (bound or 0) - value) / value if value else 0.0
    return problem.result([work.configuration()], gap)


def _groups(layers: Sequence[Layer]) -> list[list[int]]:
    """Layers by number, in runs in which no rack has ports of two rates."""
    groups: list[list[int]] = []
    rates = np.zeros(0)
    for number, layer in enumerate(layers):
        both = (rates > 0) & (layer.rate_mbps > 0) if groups else None
        if both is None or (rates[both] != layer.rate_mbps[both]).any():
            groups.append([])
            rates = np.zeros_like(layer.rate_mbps)
        groups[-1].append(number)
        rates = np.maximum(rates, layer.rate_mbps)
    return groups


@dataclass(slots=True, eq=False)
class _Work:
    """An unfinished plan: the demand left, the dark ports, the light paths so far."""

    problem: OneWayProblem
    remaining: NDArray[np.int64]
    """Shape (N, N): demand left, in bit/s."""
    sender_free: NDArray[np.bool_]
    """Shape (N, L): True if the rack's port in the layer does not send yet."""
    receiver_free: NDArray[np.bool_]
    taken: list[tuple[int, NDArray[np.int32], NDArray[np.int32]]]
    """(number of a layer, senders, receivers) of the layer's light paths."""

    @classmethod
    def of(cls, problem: OneWayProblem) -> _Work:
        n = problem.fabric.n_racks
        present = np.zeros((n, len(problem.layers)), dtype=bool)
        for number, layer in enumerate(problem.layers):
            present[layer.racks, number] = True
        return cls(problem, whole_units(problem.open_mbps), present, present.copy(), [])

    def configuration(self) -> Configuration:
        return configuration_of(self.problem.budget.timing.window_s, self.taken)

    def match_in_turn(self) -> None:
        """Add a heaviest matching on every layer's dark ports, until time is up."""
        price = None
        for number, layer in enumerate(self.problem.layers):
            if self.problem.budget.expired():
                return
            senders, receivers = self.sender_free[:, number], self.receiver_free[:, number]
            if not self.remaining[np.ix_(senders, receivers)].any():
                continue
            weight = self._first(_capacity(layer.rate_mbps * senders, layer.rate_mbps * receivers))
            assigned = heaviest_assignment(weight.astype(np.float64), price)
            price = assigned.price
            sender = np.arange(len(weight), dtype=np.int32)
            useful = weight[sender, assigned.column_of] > 0
            self._take(number, sender[useful], assigned.column_of[useful])

    def match_together(self, group: Sequence[int]) -> int:
        """Add the heaviest set of light paths on a group of layers; return a bound of its value."""
        layers = [self.problem.layers[number] for number in group]
        rate = np.max([layer.rate_mbps for layer in layers], axis=0)
        capacity = _capacity(rate, rate)
        chosen = heaviest_b_matching(
            self._countable(capacity),
            capacity,
            self.sender_free[:, group].sum(axis=1),
            self.receiver_free[:, group].sum(axis=1),
        )
        colour = colour_edges(
            chosen.rows, chosen.columns, self.sender_free[:, group], self.receiver_free[:, group]
        )
        for position, number in enumerate(group):
            here = colour == position
            self._take(number, chosen.rows[here], chosen.columns[here])
        return chosen.bound

    def bound(self, layers: Sequence[Layer]) -> int:
        """Bound of any plan's value: all ports in a single group, at their rack's best rate."""
        rate = np.max([layer.rate_mbps for layer in layers], axis=0)
        capacity = _capacity(rate, rate)
        return heaviest_b_matching(
            self.remaining, capacity, self.sender_free.sum(axis=1), self.receiver_free.sum(axis=1)
        ).bound

    def _countable(self, capacity: NDArray[np.int64]) -> NDArray[np.int64]:
        """Demand left; if parts don't count, only demands that fit on a light path."""
        if self.problem.budget.boolean:
            return self.remaining
        return np.where(self.remaining <= capacity, self.remaining, 0)

    def _first(self, capacity: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(self._countable(capacity), capacity)

    def _take(self, number: int, sender: NDArray[np.int32], receiver: NDArray[np.int32]) -> None:
        rate = self.problem.layers[number].rate_mbps
        carried = whole_units(np.minimum(rate[sender], rate[receiver]))
        self.remaining[sender, receiver] = np.maximum(self.remaining[sender, receiver] - carried, 0)
        self.sender_free[sender, number] = False
        self.receiver_free[receiver, number] = False
        self.taken.append((number, sender, receiver))


def _capacity(
    sender_mbps: NDArray[np.float64], receiver_mbps: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Capacity of a light path, shape (N, N), bit/s; 0 without a port at either end, and i to i."""
    capacity = whole_units(np.minimum(sender_mbps[:, None], receiver_mbps))
    np.fill_diagonal(capacity, 0)
    return capacity
