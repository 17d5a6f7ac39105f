"""Estimate of traffic's demand, from the rates that got through and the full resources on the way.

In Hedera (NSDI 2010, section 4.1), followed by Helios (SIGCOMM 2010, section 4.3.2), the demand of
every flow is unlimited. Here only traffic that met a full resource has unlimited demand; other
traffic has shown its demand.
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
"""A resource is full from this part of its capacity on: TCP does not fill a link to the last bit,
and counters do not see all headers.
"""
CLEAR: Final = 0.7
"""Below this part of every capacity on the way, traffic surely shows all its demand: the load of a
full resource may fall below :data:`FULL` for a moment.
"""
ODD: Final = 1.1
"""Above this part of a resource's capacity, a load is odd: capacity or counter is wrong."""
HEADROOM: Final = 1.05
"""Demand of unhindered traffic, as a multiple of the rate sent: rates are averages."""

OVERRUN: Final = 2.0
"""TCP slows down before a queue receives this multiple of its output rate, datagrams do not."""
COMPARABLE: Final = 0.1
"""Traffic that sends less than this part of the mean of constrained traffic says nothing about
constrained traffic: mice are no sample of elephants.
"""

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """Observed traffic by sender and destination rack: arrays of shape (F,), unless noted."""

    sender: Ints
    to: Ints
    """The destination rack."""
    mbps: Floats
    """Averaged."""
    uses: Ints
    """Shape (F, L): the resources on the way, each once, filled up with an infinite resource."""
    connections: Floats | None = None
    """Number of connections; 0 if unknown."""
    most_mbps: Floats | None = None
    """Largest possible demand; infinite if unknown."""
    held_back: NDArray[np.bool_] | None = None
    """Traffic that met a full resource a moment ago, on a way that has changed since."""
    unanswered: NDArray[np.bool_] | None = None
    """Traffic whose sender receives next to nothing: no acknowledgement slows the sender down."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Shapes as in :class:`Observation`."""

    mbps: Floats
    expected_mbps: Floats
    """Expected demand, at most :attr:`mbps`: the value for plans to count on."""
    constrained: NDArray[np.bool_]
    """A resource on the way was full: the traffic sends less than it wants. Otherwise measured."""
    clear: NDArray[np.bool_]
    """No resource on the way was anywhere near full."""
    odd: Ints
    """Resources in use with an impossible load: traffic over them counts as measured."""


def estimate(
    traffic: Observation,
    load_mbps: Floats,
    capacity_mbps: Floats,
    out_mbps: Floats,
    in_mbps: Floats,
    came_mbps: Floats | None = None,
    peak_mbps: Floats | None = None,
) -> Estimate:
    """Demand in Mbps, and the parts of the demand that rest on a guess.

    ``load_mbps`` and ``capacity_mbps`` have shape (R,): each resource by counters, NaN if unknown.
    ``out_mbps`` are the links of the senders, ``in_mbps`` those of the racks: the limits of an
    ideal switch. ``came_mbps``, shape (R,), is the rate sent into the queue of each resource, 0 if
    not counted. If far more comes than the resource lets through, the expected demand is the rate
    sent, as for traffic without answers: in front of a queue that drops, datagrams are counted as
    they are sent. ``peak_mbps``, shape (R,), is the load by a single reading: a peak makes no
    resource full, but traffic that met a peak is not clear; None: as ``load_mbps``.

    Traffic that met nothing full wants the rate sent, with some head-room. The rest gets its
    max-min fair share of the ideal switch's remaining capacity, by its number of connections as far
    as known. The share may be less than the rate sent, if other traffic for the same link is held
    back elsewhere. No estimate is above the links' capacity, unless that much is sent.

    Raises PlanError for a negative rate.
    """
    sent = traffic.mbps
    wrong = np.flatnonzero(~(sent >= 0))
    if wrong.size:
        raise PlanError(
            f"traffic {wrong[0]} sends {sent[wrong[0]]} Mbps: the rate can't be negative"
        )
    odd = ~(load_mbps <= ODD * capacity_mbps)  # also where unknown (NaN)
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
    """Mean demand of traffic if some values of ``demand`` are ``guessed``; shape (F,).

    Demands are assumed to be exponentially distributed. Guessed demands are a censored sample: each
    is the rate sent, or more. The maximum likelihood estimate of the mean is the sum of all over
    the number of known demands, and by as much a guessed demand is expected to be above the rate
    sent, whatever the rate (Epstein and Sobel, Life Testing, 1953). If none is known, all may be
    greedy. No expectation is above the traffic's ``demand``.
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
    """Set ``demand``, where ``constrained``, to its fair share of the capacity left by the rest."""
    free = np.flatnonzero(constrained)
    if free.size:
        taken = np.where(constrained, 0.0, demand)
        left = np.maximum(capacity - _sums(ports, taken, len(capacity)), 0.0)
        demand[free] = max_min_rates(ports[free], left, most[free], weight[free])


def _weights(
    traffic: Observation, constrained: NDArray[np.bool_], full: NDArray[np.bool_]
) -> Floats:
    """Apparent number of connections of ``constrained`` traffic; shape (F,).

    At the same bottleneck, TCP's shares show the numbers; across bottlenecks, averages count as
    equal.
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
        counted = connections > 0
        if counted.any():
            each = connections[counted].sum() / weight[free][counted].sum()
            weight[free] = np.where(counted, connections, weight[free] * each)
    return weight


def _sums(uses: Ints, mbps: Floats, count: int) -> Floats:
    return np.bincount(uses.ravel(), np.repeat(mbps, uses.shape[1]), count).astype(np.float64)


def surety(sent: DemandMatrix, wanted: DemandMatrix) -> DemandMatrix:
    """Weight of each estimate in a plan, shape (N, N); 1 for pairs without a demand.

    The demand times its weight is the geometric mean of a pair's rate sent and its demand: among
    pairs of equal demand, the pair that sends more is the surer guess, and more of the rest shows
    once the pair has a circuit.
    """
    share = np.divide(sent, wanted, out=np.ones_like(wanted), where=wanted > 0)
    weight: DemandMatrix = np.sqrt(np.minimum(share, 1.0))
    return weight
