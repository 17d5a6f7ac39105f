"""From counters, agents and the state of the network to the demand of traffic."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from apps.demand.poller import Inlet
from apps.demand.resources import Resources, Seen, Ways
from hydra.demand.counters import Sent
from hydra.demand.elephants import ElephantWatch
from hydra.demand.reported_backlog import Believed
from hydra.demand.uncongested_demand import KnownDemand
from hydra.model import DemandMatrix, Fabric, NetworkState, PortId, RackId, Topology
from hydra.policy import CurrentPolicy, DemandBasis, Spill
from hydra.sharing.spill import PairRates
from topology.estimator import Observation, estimate

LOG = logging.getLogger("hydra.demand")
_MEMORY_S: Final = 60.0
_SETTLED_POLLS: Final = 2
"""Number of readings after a change of circuits, until a reading began after the change."""
_LAG: Final = 3
"""Time constants until the average has followed a change by 95 %."""
ANSWERED: Final = 5e-5
"""A sender of TCP receives more than this share of its rate. TCP gets an acknowledgement of 54
bytes or more for each 64 kB or so, and at least for each 512 kB if network adapter and kernel
gather so much (BIG TCP): twice this share.
"""
_UNANSWERED_POLLS: Final = 4


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Found:
    """Demand found. All shapes (N, N), Mbps."""

    sent_mbps: DemandMatrix
    backlog_mbps: DemandMatrix
    wanted_mbps: DemandMatrix
    """Demand of elephants; mice have 0."""
    constrained: NDArray[np.bool_]
    """True if a resource on the way was full: the demand is a guess, and at least the rate sent."""
    basis: DemandBasis = DemandBasis.ESTIMATE
    """``policy.demand``, the basis of :attr:`wanted_mbps`."""
    room: PairRates | None = None
    """Room for pairs on both networks; None if the policy does not need it."""
    expected_mbps: DemandMatrix | None = None
    """Mean of the possible demand of elephants; None: :attr:`wanted_mbps` is no guess."""


class DemandEstimator:
    """Remembers elephants, and the demand of pairs while nothing held the pairs back.

    Thread-safe.
    """

    def __init__(self, fabric: Fabric, policy: CurrentPolicy) -> None:
        self._fabric = fabric
        self._policy = policy
        self._resources = Resources(fabric)
        self._elephants = ElephantWatch(
            threshold_mbps=policy.now.elephant_mbps, release=policy.now.elephant_release
        )
        self._known = KnownDemand(len(fabric.racks), _MEMORY_S)
        self._troubles: Counter[str] = Counter()
        self._odd: frozenset[tuple[str, str]] = frozenset()
        self._first_s: float | None = None
        """Time of the first estimate: before that, ToRs have not been polled."""
        self._ways: tuple[Topology, Ways] | None = None
        shape = len(fabric.racks), len(fabric.racks)
        self._changed_s = np.full(shape, -np.inf)
        """Time of the last change of circuits at either rack, or on the way between them."""
        self._held_back = np.zeros(shape, dtype=bool)
        """Pairs held back by a full resource at the last look."""
        self._unanswered_until = np.zeros(0, dtype=np.intp), np.zeros(0)
        """Unanswered entries, each as ``source * racks + to``, and the time until which each
        counts.
        """
        self._lock = threading.Lock()

    def find(
        self,
        sent: Sent,
        ports_mbps: Mapping[PortId, float],
        received_mbps: Mapping[Inlet, float],
        backlog: Believed,
        state: NetworkState,
        now_s: float,
        metered: Mapping[tuple[str, RackId], bool],
        spilled: DemandMatrix | None = None,
    ) -> Found:
        """Demand at ``now_s`` of the monotonic clock, on the network of ``state``.

        ``metered``: for each (server, rack) with traffic under meters of reservations, whether the
        meters hold traffic back. ``spilled``, shape (N, N), is the electrical share of the traffic
        of pairs with circuits; None: zero.
        """
        with self._lock:
            if spilled is None:
                spilled = np.zeros_like(self._changed_s)
            seen = Seen(
                sent=sent,
                ports_mbps=ports_mbps,
                received_mbps=received_mbps,
                backlog=backlog,
                metered=metered,
                spilled=spilled,
            )
            found = self._find(seen, state, now_s)
        basis = self._policy.now.demand
        if basis is DemandBasis.ESTIMATE:
            return found
        wanted = found.sent_mbps
        if basis is DemandBasis.BACKLOG:
            wanted = np.zeros_like(wanted)
            np.add.at(wanted, self._pairs_of(backlog), backlog.volume_mbps)
        wanted = np.where(found.wanted_mbps > 0, wanted, 0.0)
        return replace(found, wanted_mbps=wanted, expected_mbps=None, basis=basis)

    def _find(self, seen: Seen, state: NetworkState, now_s: float) -> Found:
        sent, backlog = seen.sent, seen.backlog
        racks = len(self._resources.servers)
        pair = self._resources.rack_of[sent.source], sent.to
        rates, waiting = np.zeros((racks, racks)), np.zeros((racks, racks))
        np.add.at(rates, pair, sent.mbps)
        np.add.at(waiting, self._pairs_of(backlog), backlog.mbps)
        ways = self._ways_of(state.topology, now_s)
        into = self._resources.into(seen.received_mbps)
        load, came = self._resources.loads(seen, _confirmed(sent), pair, ways, into)
        peak, _ = self._resources.loads(
            seen, np.maximum(sent.mbps, sent.latest_mbps), pair, ways, into
        )
        uses = self._resources.uses(
            sent, pair, ways, elephants_only=self._policy.now.sharing.elephants_only
        )
        more = self._of_entries(backlog, backlog.mbps, sent)
        changed_s = now_s - self._changed_s
        lagging = changed_s < self._settled_s + _LAG * self._policy.now.demand_window_s
        mbps = np.where(lagging[pair], np.maximum(sent.mbps, sent.least_mbps), sent.mbps)
        most_mbps = self._known.most_mbps(rates, now_s)
        known = most_mbps[pair] * sent.mbps / rates[pair]
        known[waiting[pair] > 0] = np.inf
        capacity = self._resources.capacity_mbps(ways)
        if seen.metered:
            load, capacity, uses = self._resources.with_meters(
                seen.metered, sent, load, capacity, uses
            )
            meters = np.zeros(len(load) - len(came))
            came, peak = np.concatenate([came, meters]), np.concatenate([peak, meters])
        found = estimate(
            Observation(
                sent.source,
                sent.to,
                mbps + more,
                uses,
                self._of_entries(backlog, backlog.connections, sent),
                most_mbps=np.where(more > 0, mbps + more, known),
                held_back=(self._held_back & (changed_s < self._hold_s))[pair],
                unanswered=self._unanswered(sent, into[0], now_s),
            ),
            load,
            capacity,
            self._resources.link_mbps,
            self._fabric.server_rate_mbps * self._resources.receiving(into[0]),
            came,
            peak,
        )
        if self._first_s is None:
            self._first_s = now_s
        polled = now_s - self._first_s >= self._settled_s
        odd = [place for place in found.odd if polled or np.isfinite(load[place])]
        self._count_cases(odd, load, capacity, ways)
        wanted, expected = np.zeros((2, racks, racks))
        np.add.at(wanted, pair, found.mbps)
        np.add.at(expected, pair, found.expected_mbps)
        constrained = np.zeros((racks, racks), dtype=bool)
        np.logical_or.at(constrained, pair, found.constrained)
        self._held_back = constrained
        # Learn the demand of clear pairs. A known demand is also confirmed by unconstrained
        # traffic.
        clear = (waiting == 0) & (changed_s >= self._settled_s)
        confirmed = np.isfinite(most_mbps)[pair] & ~found.constrained
        np.logical_and.at(clear, pair, found.clear | confirmed)
        self._known.learn(wanted, clear, now_s)
        elephants = self._elephants.elephants(rates + waiting) > 0
        wanted, expected = np.where(elephants, (wanted, expected), 0.0)
        room = None
        if self._policy.now.spill is Spill.ON:
            settled = changed_s >= self._settled_s
            room = self._resources.room(sent, pair, ways, load, found.mbps, settled)
        return Found(
            sent_mbps=rates,
            backlog_mbps=waiting,
            wanted_mbps=wanted,
            constrained=constrained & elephants,
            room=room,
            expected_mbps=expected,
        )

    def _pairs_of(self, backlog: Believed) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return self._resources.rack_of_server[backlog.server], backlog.rack

    def _of_entries(
        self, backlog: Believed, values: NDArray[np.float64], sent: Sent
    ) -> NDArray[np.float64]:
        """Sums of the values of ``backlog`` for each entry of ``sent``."""
        if not len(values):
            return np.zeros(len(sent.source))
        racks = len(self._resources.servers)
        sums = np.zeros((len(self._resources.rack_of), racks))
        np.add.at(sums, (self._resources.source_of[backlog.server], backlog.rack), values)
        of_entries: NDArray[np.float64] = sums[sent.source, sent.to]
        return of_entries

    def _unanswered(self, sent: Sent, into: NDArray[np.float64], now_s: float) -> NDArray[np.bool_]:
        """Entries of ``sent`` whose servers receive far less than TCP's answers would be; False if
        the received rate is unknown.

        The received rate is that of the last interval. So an entry that paused in the interval
        proves nothing. Of the rate counted in the interval, half may belong to the previous
        interval: counters of rules lag by up to half a second. Entries found count for a few
        further readings, since unrelated traffic sends the server a packet now and then.
        """
        received_mbps = np.zeros(len(self._resources.rack_of))
        np.add.at(received_mbps, self._resources.source_of, into)
        sure_mbps = np.minimum(sent.mbps, np.maximum(sent.least_mbps, sent.latest_mbps / 2))
        found: NDArray[np.bool_] = received_mbps[sent.source] < ANSWERED * sure_mbps
        entry = sent.source * len(self._resources.servers) + sent.to
        before, until_s = self._unanswered_until
        kept = (now_s < until_s) & ~np.isin(before, entry[found])
        before, until_s = before[kept], until_s[kept]
        hold_s = _UNANSWERED_POLLS * self._policy.now.poll_interval_s
        self._unanswered_until = (
            np.concatenate([before, entry[found]]),
            np.concatenate([until_s, np.full(np.count_nonzero(found), now_s + hold_s)]),
        )
        return found | np.isin(entry, before)

    def troubles(self) -> Mapping[str, int]:
        """Contradictions between configuration and counters since the start, by cause."""
        with self._lock:
            return dict(self._troubles)

    # -- what traffic meets on its way ------------------------------------------------------------

    @property
    def _settled_s(self) -> float:
        """Time after a change until counters are available from readings begun after the change."""
        return _SETTLED_POLLS * self._policy.now.poll_interval_s

    @property
    def _hold_s(self) -> float:
        """Time for which pairs held back before a change count as held back after the change.

        In slotted mode, a pair held back in a slot counts as held back for the week.
        """
        policy = self._policy.in_force
        return self._settled_s + (policy.slots.week_s if policy.slotted else 0.0)

    def _ways_of(self, topology: Topology, now_s: float) -> Ways:
        if self._ways is None or self._ways[0] is not topology:
            if self._ways is not None:
                for path in {*self._ways[0].paths} ^ {*topology.paths}:
                    racks = self._resources.racks_along(path)
                    self._changed_s[racks, :] = self._changed_s[:, racks] = now_s
            self._ways = topology, self._resources.ways(topology)
        return self._ways[1]

    # -- what can't be ----------------------------------------------------------------------------

    def _count_cases(
        self,
        odd: Collection[int],
        load: NDArray[np.float64],
        capacity: NDArray[np.float64],
        ways: Ways,
    ) -> None:
        """Count each case once while the case lasts; log the first of each cause."""
        found = {
            self._resources.name(place, ways, missing=bool(np.isnan(load[place]))): place
            for place in odd
        }
        for cause, name in sorted(found.keys() - self._odd):
            self._troubles[cause] += 1
            if self._troubles[cause] == 1:
                place = found[cause, name]
                rates = f": {load[place]:.1f} of {capacity[place]:.1f} Mbps"
                LOG.warning(
                    "demand: %s (%s%s); the traffic counts as measured, and further cases are "
                    "only counted",
                    cause,
                    name,
                    "" if np.isnan(load[place]) else rates,
                )
        self._odd = frozenset(found)


def _confirmed(sent: Sent) -> NDArray[np.float64]:
    """Mbps of each entry in the last interval, as far as a second reading confirms the rate.

    The second reading is the average, or the previous interval. A single interval may contain the
    traffic of two (:attr:`~hydra.demand.counters.Sent.least_mbps`), and would fill a link.
    """
    return np.minimum(sent.latest_mbps, np.maximum(sent.mbps, sent.least_mbps))
