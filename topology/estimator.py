"""Estimate of what traffic needs, from what got through and from what was full on its way.

Hedera (NSDI 2010, section 4.1), which Helios (SIGCOMM 2010, section 4.3.2) takes over, lets every
flow want all it can get. Here only traffic does that met a full resource; what met none has shown
what it wants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.errors import PlanError
from hydra.model import DemandMatrix
from topology.demand import along, max_min_rates

FULL: Final = 0.9
"""A resource is full from this part of its capacity on: TCP does not fill it to the last bit, and
counters do not see all headers."""
CLEAR: Final = 0.7
"""Below this part of every capacity on its way traffic surely shows all that it wants: what fills
a resource may fall below :data:`FULL` for a moment."""
ODD: Final = 1.1
"""Nothing carries more than this part of its capacity: then the capacity is wrong, or the counter.
"""
HEADROOM: Final = 1.05
"""Traffic that nothing held back may want this many times what it sends: rates are averages."""

OVERRUN: Final = 2.0
"""TCP slows down before this many times what a queue lets through comes to it, datagrams do not."""
COMPARABLE: Final = 0.1
"""Traffic that sends less than this part of what constrained traffic sends on the average says
nothing of it: mice are no sample of elephants."""

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Observation, an entry for each sender and destination rack; shapes (F,), if not told."""

    sender: Ints
    to: Ints
    """The destination rack."""
    mbps: Floats
    """Averaged."""
    uses: Ints
    """Shape (F, L): the resources on its way, each once; one of infinite capacity fills up."""
    connections: Floats | None = None
    """How many; 0 where nobody knows."""
    most_mbps: Floats | None = None
    """What it can want at most; infinite where nobody knows."""
    held_back: NDArray[np.bool_] | None = None
    """Traffic that met something full a moment ago, on a way that has changed since."""
    unanswered: NDArray[np.bool_] | None = None
    """Traffic whose sender receives next to nothing: no acknowledgement tells it to slow down."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Shapes as in :class:`Traffic`."""

    mbps: Floats
    expected_mbps: Floats
    """Mean of what it may want: of :attr:`mbps`, what plans should count on."""
    constrained: NDArray[np.bool_]
    """Something on its way was full: it sends less than it wants. Otherwise it was measured."""
    clear: NDArray[np.bool_]
    """Nothing on its way was anywhere near full."""
    odd: Ints
    """Resources in use that can't be as they are said to be: traffic on them counts as measured."""


def estimate(
    traffic: Traffic,
    load_mbps: Floats,
    capacity_mbps: Floats,
    out_mbps: Floats,
    in_mbps: Floats,
    came_mbps: Floats | None = None,
    peak_mbps: Floats | None = None,
) -> Estimate:
    """Demand in Mbps, and which of it rests on a guess.

    ``load_mbps`` and ``capacity_mbps`` have shape (R,): what counters say of each resource, NaN
    where they say nothing. ``out_mbps`` are the links of the senders, ``in_mbps`` those of the
    racks: the limits of an ideal switch. ``came_mbps``, shape (R,), is what is sent into the queue
    of each resource, 0 where nobody counts it: of far more than it lets through, what is sent is
    what is expected, as of traffic that nobody answers: in front of a queue that drops, datagrams
    are counted as they are sent. ``peak_mbps``, shape (R,), is the load as one reading alone may
    tell it: it makes no resource full, but none below it is clear; None: as ``load_mbps``.

    Traffic that met nothing full wants what it sends, with some head-room. The rest gets its
    max-min fair share of what that leaves of the ideal switch, by its number of connections as far
    as that is known. The share may be less than what is sent, where others that want the same link
    are held back elsewhere. No estimate is above what links carry, unless that much is sent.

    Raises PlanError for a negative rate.
    """
    sent = traffic.mbps
    wrong = np.flatnonzero(~(sent >= 0))
    if wrong.size:
        raise PlanError(f"traffic {wrong[0]} sends {sent[wrong[0]]} Mbps: it can't be negative")
    odd = ~(load_mbps <= ODD * capacity_mbps)  # also where it is not known
    full = (load_mbps >= FULL * capacity_mbps) & ~odd
    doubted = along(np.logical_or, odd, traffic.uses)
    met_full = along(np.logical_or, full, traffic.uses)
    if traffic.held_back is not None:
        met_full |= traffic.held_back
    constrained = met_full & (sent > 0) & ~doubted
    ports = np.stack([traffic.sender, len(out_mbps) + traffic.to], axis=1)
    capacity = np.concatenate([out_mbps, in_mbps])
    used = _sums(ports, sent, len(capacity))
    capacity = np.maximum(capacity, used)
    spare = np.divide(capacity, used, out=np.full(len(capacity), np.inf), where=used > 0)
    room = along(np.minimum, np.minimum(spare, HEADROOM), ports)
    demand = np.where(constrained | doubted, sent, sent * room)
    weight = _weights(traffic, constrained, full)
    most = np.full(len(sent), np.inf)
    if traffic.most_mbps is not None:
        most = np.maximum(traffic.most_mbps, sent)
    _share(demand, constrained, ports, capacity, weight, most)
    peak = load_mbps if peak_mbps is None else np.maximum(load_mbps, peak_mbps)
    near = ~(peak < CLEAR * capacity_mbps)
    clear = ~along(np.logical_or, near, traffic.uses)
    met_odd = traffic.uses[doubted]
    paced = np.zeros(len(sent), dtype=bool)
    if came_mbps is not None:
        paced |= along(np.logical_or, came_mbps > OVERRUN * capacity_mbps, traffic.uses)
    if traffic.unanswered is not None:
        paced |= traffic.unanswered
    paced &= constrained
    mean = np.where(paced, np.minimum(demand, HEADROOM * sent), demand)
    expected = _expected(sent, mean, constrained & ~paced & ~np.isfinite(most))
    return Estimate(demand, expected, constrained, clear, np.unique(met_odd[odd[met_odd]]))


def _expected(sent: Floats, demand: Floats, guessed: NDArray[np.bool_]) -> Floats:
    """Mean of what traffic wants of which ``demand`` may be ``guessed``; shape (F,).

    The rates that traffic wants are taken to be exponentially distributed. Guessed ones are a
    censored sample of them: they are what is sent, or more. The maximum likelihood of their mean is
    the sum of all over the number of those that are known, and by as much a guessed one is expected
    to be above what is sent, whatever that is (Epstein and Sobel, Life Testing, 1953). Where none
    is known, all may be greedy. Nothing is expected to want more than its ``demand``.
    """
    expected = demand.copy()
    if not guessed.any():
        return expected
    least = COMPARABLE * sent[guessed].mean()
    sample = sent > least
    known = np.count_nonzero(sample & ~guessed)
    if known:
        beyond = (np.where(guessed, sent, demand)[sample] - least).sum() / known
        expected[guessed] = np.minimum(demand, sent + beyond)[guessed]
    return expected


def _share(
    demand: Floats,
    constrained: NDArray[np.bool_],
    ports: Ints,
    capacity: Floats,
    weight: Floats,
    most: Floats,
) -> None:
    """Set ``demand`` where it is ``constrained`` to its fair share of what the rest leaves."""
    free = np.flatnonzero(constrained)
    if free.size:
        taken = np.where(constrained, 0.0, demand)
        left = np.maximum(capacity - _sums(ports, taken, len(capacity)), 0.0)
        demand[free] = max_min_rates(ports[free], left, most[free], weight[free])


def _weights(traffic: Traffic, constrained: NDArray[np.bool_], full: NDArray[np.bool_]) -> Floats:
    """How many connections traffic has that is ``constrained``, as it seems; shape (F,).

    At one bottleneck TCP's shares show it; traffic behind another one has as many on the average.
    """
    free = np.flatnonzero(constrained)
    weight = np.zeros(len(constrained))
    sent, uses = traffic.mbps[free], traffic.uses[free]
    if not free.size:
        return weight
    many = np.bincount(uses.ravel(), minlength=len(full))
    each_mbps = np.where(full, _sums(uses, sent, len(full)) / np.maximum(many, 1), np.inf)
    bottleneck_mbps = along(np.minimum, each_mbps, uses)
    weight[free] = sent / np.where(np.isinf(bottleneck_mbps), sent.mean(), bottleneck_mbps)
    if traffic.connections is not None:
        connections = traffic.connections[free]
        told = connections > 0
        if told.any():
            each = connections[told].sum() / weight[free][told].sum()
            weight[free] = np.where(told, connections, weight[free] * each)
    return weight


def _sums(uses: Ints, mbps: Floats, count: int) -> Floats:
    return np.bincount(uses.ravel(), np.repeat(mbps, uses.shape[1]), count).astype(np.float64)


def surety(sent: DemandMatrix, wanted: DemandMatrix) -> DemandMatrix:
    """Weight of each estimate in a plan, shape (N, N); 1 where nothing is wanted now.

    The demand times its weight is the geometric mean of what a pair sends and what it may want
    beyond that: of two pairs that may want as much, the one that sends more is the surer guess, and
    more of the rest shows once it has a circuit.
    """
    share = np.divide(sent, wanted, out=np.ones_like(wanted), where=wanted > 0)
    weight: DemandMatrix = np.sqrt(np.minimum(share, 1.0))
    return weight
