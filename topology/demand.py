"""Max-min fair rates of flows, limited by nothing, or only by the given circuits."""

from __future__ import annotations

from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hydra.errors import PlanError
from hydra.model import DemandMatrix, RackId, Topology
from topology.problem import FabricArrays, validate_demand

_SHARE_TOLERANCE = 1e-9
_ValueT = TypeVar("_ValueT", bound=np.generic)
"""Relative: shares this close are equal, so that rounding does not cost extra passes."""


def estimate_maxmin(
    rate_mbps: ArrayLike,
    out_capacity_mbps: ArrayLike,
    in_capacity_mbps: ArrayLike,
    elephant_mbps: float,
) -> DemandMatrix:
    """Demand of the pairs that were measured as elephants, in Mbps, shape (N, N).

    Measured rates only show the traffic that the present topology let through. So each pair with at
    least ``elephant_mbps`` becomes one flow without an upper limit, and its demand is its max-min
    fair rate on an ideal non-blocking switch whose rack ports have the given capacities, shape
    (N,). The result is the fixpoint that the estimators of Hedera (NSDI 2010, section 4.1) and
    Helios (SIGCOMM 2010, section 4.1) iterate towards, computed directly. Mice get 0.

    Raises PlanError for a bad rate, capacity or threshold.
    """
    capacity_out = _capacities(out_capacity_mbps, "out_capacity_mbps")
    n = len(capacity_out)
    capacity_in = _capacities(in_capacity_mbps, "in_capacity_mbps", n)
    rates = validate_demand(rate_mbps, n)
    if not elephant_mbps >= 0:
        raise PlanError(f"elephant_mbps is {elephant_mbps}: the value must not be negative")
    elephants = (rates >= elephant_mbps) & (rates > 0)
    return _fair_share(elephants.astype(np.float64), capacity_out, capacity_in)


def estimate_flows(
    src: ArrayLike, dst: ArrayLike, out_capacity_mbps: ArrayLike, in_capacity_mbps: ArrayLike
) -> DemandMatrix:
    """Demand of flows between racks, in Mbps, shape (N, N): as :func:`estimate_maxmin`.

    ``src`` and ``dst`` have shape (F,), the racks of each flow. Flows between the same two racks
    get the same rate, so flows are only counted. Cost: O(F + N²).

    Raises PlanError for a rack that does not exist, a flow within a rack, or a bad capacity.
    """
    capacity_out = _capacities(out_capacity_mbps, "out_capacity_mbps")
    n = len(capacity_out)
    capacity_in = _capacities(in_capacity_mbps, "in_capacity_mbps", n)
    senders, receivers = _rack_numbers(src, "src", n), _rack_numbers(dst, "dst", n)
    if senders.shape != receivers.shape:
        raise PlanError(f"{senders.size} sources and {receivers.size} destinations of flows")
    own = np.flatnonzero(senders == receivers)
    if own.size:
        raise PlanError(f"flow {own[0]} stays in rack {senders[own[0]]}: leave the flow out")
    flows = np.bincount(senders * n + receivers, minlength=n * n).reshape(n, n)
    return _fair_share(flows.astype(np.float64), capacity_out, capacity_in)


def _rack_numbers(values: ArrayLike, name: str, n: int) -> NDArray[np.int64]:
    racks = np.array(values)
    if racks.ndim != 1 or (racks.size and not np.issubdtype(racks.dtype, np.integer)):
        raise PlanError(f"{name} is not a list of rack numbers")
    wrong = np.flatnonzero((racks < 0) | (racks >= n))
    if wrong.size:
        raise PlanError(f"{name}[{wrong[0]}] is rack {racks[wrong[0]]}: there are only {n}")
    return racks.astype(np.int64)


def _fair_share(
    flows: NDArray[np.float64],
    out_capacity: NDArray[np.float64],
    in_capacity: NDArray[np.float64],
) -> DemandMatrix:
    """Max-min fair rates of greedy flows on a switch with limits only at its ports.

    ``flows`` has shape (N, N): the number of flows from row to column. The port with the smallest
    fair share is the bottleneck of all its flows without a bottleneck yet (Bertsekas and Gallager,
    Data Networks, section 6.5.2). Shares only grow from port to port, so a flow's rate is the
    smaller of its two ports' shares, and rates need not be kept. 2N steps of O(N).
    """
    n = len(flows)
    by_port = np.empty((2 * n, n))
    by_port[:n], by_port[n:] = flows, flows.T
    left = np.concatenate([out_capacity, in_capacity])
    waiting = by_port.sum(axis=1)
    share = np.full(2 * n, np.inf)
    np.divide(left, waiting, out=share, where=waiting > 0)
    ahead = [(left[side], waiting[side], share[side]) for side in (slice(n, 2 * n), slice(n))]
    level = np.zeros(2 * n)
    taken = np.empty(n)
    fair = 0.0
    for _ in range(int((waiting > 0).sum())):
        port = int(share.argmin())
        level[port] = fair = max(fair, float(share[port]))
        waiting[port], share[port] = 0.0, np.inf
        its_left, its_waiting, its_share = ahead[port >= n]
        np.multiply(by_port[port], fair, out=taken)
        its_left -= taken
        its_waiting -= by_port[port]
        # A port keeps its last share once all its flows have a rate: the share limits no flow.
        np.divide(its_left, its_waiting, out=its_share, where=its_waiting > 0)
    rates = np.minimum.outer(level[:n], level[n:])
    rates *= flows
    return rates


def served_mbps(
    fabric: FabricArrays,
    topology: Topology,
    demand: ArrayLike,
    electrical_out_mbps: ArrayLike,
    electrical_in_mbps: ArrayLike,
) -> DemandMatrix:
    """Rate that each pair would get of its ``demand`` on ``topology``, in Mbps, shape (N, N).

    Max-min fair: a pair with paths uses their circuits, each with its full rate in each direction,
    and spreads its demand evenly over the paths; pairs without a path share the electrical up- and
    downlinks of their racks, shape (N,) each. No pair gets more than its demand.

    Raises PlanError for a bad demand entry or capacity, or a broken path.
    """
    n = fabric.n_racks
    wanted = validate_demand(demand, n)
    electrical_out = _capacities(electrical_out_mbps, "electrical_out_mbps", n)
    electrical_in = _capacities(electrical_in_mbps, "electrical_in_mbps", n)
    circuits = sorted({circuit for path in topology.paths for circuit in path.circuits})
    rates = np.array([fabric.rate_of(circuit) for circuit in circuits])
    route_of = routes(fabric, topology)
    electrical = 2 * len(circuits)
    capacity = np.concatenate([np.repeat(rates, 2), electrical_out, electrical_in, [np.inf]])
    src, dst = np.nonzero(wanted)
    pairs = list(zip(src.tolist(), dst.tolist(), strict=True))
    taken = [route_of.get(p) or [(electrical + p[0], electrical + n + p[1])] for p in pairs]
    count = np.array([len(ways) for ways in taken], dtype=np.intp)
    longest = max([2, *(len(way) for ways in route_of.values() for way in ways)])
    uses = np.full((int(count.sum()), longest), len(capacity) - 1)
    for flow, way in enumerate(chain.from_iterable(taken)):
        uses[flow, : len(way)] = way
    flow_mbps = max_min_rates(uses, capacity, np.repeat(wanted[src, dst] / count, count))
    served = np.zeros((n, n))
    np.add.at(served, (np.repeat(src, count), np.repeat(dst, count)), flow_mbps)
    return served


def along(combine: np.ufunc, values: NDArray[_ValueT], uses: NDArray[np.intp]) -> NDArray[_ValueT]:
    """Values of each flow's resources, put together by ``combine``; shape (F,).

    ``values`` has shape (R,), ``uses`` (F, L) with L above 0: column by column, since numpy takes
    several times as long for many short rows.
    """
    found = values[uses[:, 0]]
    for column in range(1, uses.shape[1]):
        combine(found, values[uses[:, column]], out=found)
    return found


def max_min_rates(
    uses: NDArray[np.intp],
    capacity: NDArray[np.float64],
    wanted: NDArray[np.float64],
    weight: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Max-min fair rates of F flows over R resources; units as in ``capacity``.

    ``uses`` has shape (F, L): the resources of each flow, each at most once; a resource of infinite
    capacity fills the rows of flows with fewer resources. ``capacity`` has shape (R,), ``wanted``
    (F,) caps each flow. Every flow must be bounded by a resource or by ``wanted``. Flows share
    evenly by ``weight``, shape (F,), all positive; without ``weight``, alike.

    Progressive filling, but all bottlenecks at once: a resource is a bottleneck if its equal share
    is the smallest that its flows meet, and then its flows are done (Bertsekas and Gallager, Data
    Networks, section 6.5.2, gives the sequential form).
    """
    weight = np.ones(len(wanted)) if weight is None else weight
    level = np.zeros(len(wanted))
    left = capacity.astype(np.float64)
    active = np.arange(len(wanted))
    used, heavy, most = uses, weight, wanted / weight
    width = uses.shape[1]
    while active.size:
        flat = used.ravel()
        sharing = np.bincount(flat, np.repeat(heavy, width), len(left))
        share = np.divide(left, sharing, out=np.full(len(left), np.inf), where=sharing > 0)
        now = np.minimum(most, along(np.minimum, share, used))
        lowest = np.full(len(left), np.inf)
        np.minimum.at(lowest, flat, np.repeat(now, width))
        bottleneck = lowest >= share * (1 - _SHARE_TOLERANCE)
        done = (now >= most) | along(np.logical_or, bottleneck, used)
        level[active[done]] = now[done]
        taken = np.repeat(now[done] * heavy[done], width)
        left -= np.bincount(used[done].ravel(), taken, len(left))
        np.maximum(left, 0, out=left)
        active, used, heavy, most = active[~done], used[~done], heavy[~done], most[~done]
    rates: NDArray[np.float64] = level * weight
    return rates


def routes(
    fabric: FabricArrays, topology: Topology
) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """Directed circuits of each (from, to), path by path, as numbers.

    2i leads from end a to end b of the i-th circuit that paths use, in order, 2i + 1 back. Raises
    PlanError for a broken path.
    """
    circuits = sorted({circuit for path in topology.paths for circuit in path.circuits})
    index_of = {circuit: index for index, circuit in enumerate(circuits)}
    found: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for path in topology.paths:
        forward = []
        for rack, circuit in zip(fabric.racks_along(path), path.circuits, strict=False):
            backwards = rack != RackId(int(fabric.port_rack[circuit.a]))
            forward.append(2 * index_of[circuit] + backwards)
        found.setdefault((path.src, path.dst), []).append(tuple(forward))
        if not path.one_way:
            back = tuple(link ^ 1 for link in forward)
            found.setdefault((path.dst, path.src), []).append(back)
    return found


def _capacities(values: ArrayLike, name: str, n: int | None = None) -> NDArray[np.float64]:
    capacity = np.array(values, dtype=np.float64)
    if capacity.ndim != 1 or (n is not None and len(capacity) != n):
        raise PlanError(f"{name} has shape {capacity.shape}: one value per rack is needed")
    wrong = np.flatnonzero(~np.isfinite(capacity) | (capacity < 0))
    if wrong.size:
        rack = wrong[0]
        raise PlanError(
            f"{name}[{rack}] is {capacity[rack]} Mbps: the value must be finite and not negative"
        )
    return capacity
