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
from hydra.demand.counters import Sent
from hydra.demand.elephants import ElephantWatch
from hydra.demand.known import KnownDemand
from hydra.demand.reported_backlog import Believed
from hydra.forwarding.substrate import substrate_of
from hydra.model import DemandMatrix, Fabric, NetworkState, PortId, RackId, Topology
from hydra.policy import CurrentPolicy, DemandBasis, Spill
from hydra.sharing.spill import Room
from topology.demand import routes
from topology.estimator import CLEAR, FULL, Traffic, estimate
from topology.problem import FabricArrays

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
_IN_EARNEST: Final = 0.1
"""A server counts as a receiver from this share of the rate of the rack's busiest receiver on."""


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
    room: Room | None = None
    """Room for pairs on both networks; None if the policy does not need it."""
    expected_mbps: DemandMatrix | None = None
    """Mean of the possible demand of elephants; None: :attr:`wanted_mbps` is no guess."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Seen:
    sent: Sent
    ports_mbps: Mapping[PortId, float]
    received_mbps: Mapping[Inlet, float]
    backlog: Believed
    metered: Mapping[tuple[str, RackId], bool]
    spilled: DemandMatrix


class _Places:
    """Places of the resources in one array: first senders' links, then racks', then circuits.

    The inlets of a rack stand for its fullest server: traffic is not counted by receiving server.
    """

    def __init__(self, sources: int, racks: int) -> None:
        self.link, self.uplink, self.out, self.into, self.inlet, self.downlink, self.circuits = (
            int(place) for place in np.cumsum([0, sources, sources, racks, racks, racks, racks])
        )


class DemandEstimator:
    """Remembers elephants, and the demand of pairs while nothing held the pairs back.

    Thread-safe.
    """

    def __init__(self, fabric: Fabric, policy: CurrentPolicy) -> None:
        self._fabric = fabric
        self._policy = policy
        self._arrays = FabricArrays.of(fabric)
        substrate = substrate_of(fabric)
        steering = [s for rack in fabric.racks for s in substrate.steering(rack.id)]
        self._rack_of = np.array([switch.rack for switch in steering], dtype=np.intp)
        servers = np.array([len(switch.servers) for switch in steering], dtype=np.float64)
        row = {s.name: place for place, switch in enumerate(steering) for s in switch.servers}
        self._source_of = np.array([row[s.name] for s in fabric.servers], dtype=np.intp)
        self._rack_of_server = np.array([s.rack for s in fabric.servers], dtype=np.intp)
        self._index = {server.name: place for place, server in enumerate(fabric.servers)}
        self._names = [switch.name for switch in steering]
        self._link_mbps = servers * fabric.server_rate_mbps
        self._servers = np.array([len(rack.servers) for rack in fabric.racks], dtype=np.float64)
        electrical = np.array([substrate.electrical_mbps(rack) for rack in fabric.racks])
        self._capacity = np.concatenate(
            [
                self._link_mbps,
                servers * fabric.electrical_rate_mbps,
                electrical,
                electrical,
                np.full(len(fabric.racks), fabric.server_rate_mbps),
                np.full(len(fabric.racks), fabric.electrical_rate_mbps),
            ]
        )
        self._at = _Places(len(steering), len(fabric.racks))
        self._elephants = ElephantWatch(policy.now.elephant_mbps, policy.now.elephant_release)
        self._known = KnownDemand(len(fabric.racks), _MEMORY_S)
        self._troubles: Counter[str] = Counter()
        self._odd: frozenset[tuple[str, str]] = frozenset()
        self._ways: tuple[Topology, _Ways] | None = None
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
            seen = _Seen(
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

    def _find(self, seen: _Seen, state: NetworkState, now_s: float) -> Found:
        sent, backlog = seen.sent, seen.backlog
        racks = len(self._servers)
        pair = self._rack_of[sent.source], sent.to
        rates, waiting = np.zeros((racks, racks)), np.zeros((racks, racks))
        np.add.at(rates, pair, sent.mbps)
        np.add.at(waiting, self._pairs_of(backlog), backlog.mbps)
        ways = self._ways_of(state.topology, now_s)
        into = self._into(seen.received_mbps)
        load, came = self._loads(seen, _confirmed(sent), pair, ways, into)
        peak, _ = self._loads(seen, np.maximum(sent.mbps, sent.latest_mbps), pair, ways, into)
        uses = self._uses(sent, pair, ways)
        more = self._of_entries(backlog, backlog.mbps, sent)
        changed_s = now_s - self._changed_s
        lagging = changed_s < self._settled_s + _LAG * self._policy.now.demand_window_s
        mbps = np.where(lagging[pair], np.maximum(sent.mbps, sent.least_mbps), sent.mbps)
        most_mbps = self._known.most_mbps(rates, now_s)
        known = most_mbps[pair] * sent.mbps / rates[pair]
        known[waiting[pair] > 0] = np.inf
        capacity = np.concatenate([self._capacity, ways.capacity_mbps, [np.inf]])
        if seen.metered:
            load, capacity, uses = self._with_meters(seen.metered, sent, load, capacity, uses)
            meters = np.zeros(len(load) - len(came))
            came, peak = np.concatenate([came, meters]), np.concatenate([peak, meters])
        found = estimate(
            Traffic(
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
            self._link_mbps,
            self._fabric.server_rate_mbps * self._receiving(into[0]),
            came,
            peak,
        )
        self._count_cases(found.odd, load, capacity, ways)
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
            room = self._room(sent, pair, ways, load, found.mbps, settled)
        return Found(
            sent_mbps=rates,
            backlog_mbps=waiting,
            wanted_mbps=wanted,
            constrained=constrained & elephants,
            room=room,
            expected_mbps=expected,
        )

    def _pairs_of(self, backlog: Believed) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return self._rack_of_server[backlog.server], backlog.rack

    def _of_entries(
        self, backlog: Believed, values: NDArray[np.float64], sent: Sent
    ) -> NDArray[np.float64]:
        """Sums of the values of ``backlog`` for each entry of ``sent``."""
        if not len(values):
            return np.zeros(len(sent.source))
        racks = len(self._servers)
        sums = np.zeros((len(self._rack_of), racks))
        np.add.at(sums, (self._source_of[backlog.server], backlog.rack), values)
        of_entries: NDArray[np.float64] = sums[sent.source, sent.to]
        return of_entries

    def _unanswered(self, sent: Sent, into: NDArray[np.float64], now_s: float) -> NDArray[np.bool_]:
        """Entries of ``sent`` whose servers receive far less than TCP's answers would be; False if
        the received rate is unknown.

        The received rate is that of the last interval. So an entry that paused in the interval
        proves nothing. Of the rate counted in the interval, half may belong to the interval before:
        counters of rules lag by up to half a second. Entries found count for a few further
        readings, since unrelated traffic sends the server a packet now and then.
        """
        received_mbps = np.zeros(len(self._rack_of))
        np.add.at(received_mbps, self._source_of, into)
        sure_mbps = np.minimum(sent.mbps, np.maximum(sent.least_mbps, sent.latest_mbps / 2))
        found: NDArray[np.bool_] = received_mbps[sent.source] < ANSWERED * sure_mbps
        entry = sent.source * len(self._servers) + sent.to
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

    def _ways_of(self, topology: Topology, now_s: float) -> _Ways:
        if self._ways is None or self._ways[0] is not topology:
            if self._ways is not None:
                for path in {*self._ways[0].paths} ^ {*topology.paths}:
                    racks = self._arrays.racks_along(path)
                    self._changed_s[racks, :] = self._changed_s[:, racks] = now_s
            self._ways = topology, _Ways(self._arrays, topology, self._at.circuits)
        return self._ways[1]

    def _into(self, received_mbps: Mapping[Inlet, float]) -> NDArray[np.float64]:
        """Rates that servers receive, shape (2, servers): in all, electrically; NaN if unknown."""
        into = np.full((2, len(self._rack_of_server)), np.nan)
        for (server, electrical), mbps in received_mbps.items():
            into[int(electrical), server] = mbps
        return into

    def _loads(
        self,
        seen: _Seen,
        now: NDArray[np.float64],
        pair: tuple[NDArray[np.intp], NDArray[np.intp]],
        ways: _Ways,
        into: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(load of each resource, traffic that comes to its queue as far as counted), Mbps.

        ``now`` are the Mbps of the entries of ``sent``.
        """
        at, last = self._at, self._at.circuits + len(ways.capacity_mbps)
        sent = seen.sent
        by_packets = np.where(ways.of_pair[pair] < 0, 1.0, seen.spilled[pair]) * now
        load, came = np.zeros((2, last + 1))
        np.add.at(load, at.link + sent.source, now)
        # Counters see the traffic at the first queue. The output of a queue is the input of the
        # next.
        for place, where in ((at.uplink, sent.source), (at.out, pair[0]), (at.into, pair[1])):
            np.add.at(came, place + where, by_packets)
            capacity = self._capacity[place + where]
            by_packets = by_packets * (capacity / np.maximum(came[place + where], capacity))
            np.add.at(load, place + where, by_packets)
        for place, mbps in zip((at.inlet, at.downlink), np.nan_to_num(into), strict=True):
            np.maximum.at(load, place + self._rack_of_server, mbps)
        load[at.circuits : last] = [seen.ports_mbps.get(port, np.nan) for port in ways.senders]
        return load, came

    def _uses(
        self, sent: Sent, pair: tuple[NDArray[np.intp], NDArray[np.intp]], ways: _Ways
    ) -> NDArray[np.intp]:
        """The resources used by each entry of ``sent``, a row per entry."""
        at, last = self._at, self._at.circuits + len(ways.capacity_mbps)
        way = ways.of_pair[pair]
        uses = np.full((len(way), 6 + ways.listed.shape[1]), last)
        uses[:, 0], uses[:, 1] = at.link + sent.source, at.inlet + sent.to
        # Mice of pairs with a path may stay electrical.
        shared = np.flatnonzero((way < 0) | self._policy.now.sharing.elephants_only)
        for column, (place, where) in enumerate(
            (
                (at.uplink, sent.source),
                (at.out, pair[0]),
                (at.into, pair[1]),
                (at.downlink, pair[1]),
            ),
            start=2,
        ):
            uses[shared, column] = place + where[shared]
        uses[way >= 0, 6:] = ways.listed[way[way >= 0]]
        return uses

    def _with_meters(
        self,
        metered: Mapping[tuple[str, RackId], bool],
        sent: Sent,
        load: NDArray[np.float64],
        capacity: NDArray[np.float64],
        uses: NDArray[np.intp],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
        """Load, capacity and uses, with a further resource for each metered entry of ``sent``.

        A meter that drops is full. A meter that does not drop is not clear either: TCP needs a
        while to return to the meter's rate after being held back.
        """
        racks = len(self._servers)
        keys = [self._source_of[self._index[server]] * racks + to for server, to in metered]
        meters, place = np.unique(keys, return_inverse=True)
        part = np.full(len(meters), CLEAR)
        np.maximum.at(part, place, np.where(list(metered.values()), 1.0, CLEAR))
        wanted = sent.source * racks + sent.to
        found = np.minimum(np.searchsorted(meters, wanted), len(meters) - 1)
        column = np.where(meters[found] == wanted, len(load) + found, len(load) - 1)
        return (
            np.concatenate([load, part]),
            np.concatenate([capacity, np.ones(len(meters))]),
            np.column_stack([uses, column]),
        )

    def _receiving(self, into: NDArray[np.float64]) -> NDArray[np.float64]:
        """Number of servers of each rack that receive in earnest; all servers if not counted."""
        most = np.zeros(len(self._servers))
        np.fmax.at(most, self._rack_of_server, into)
        earnest = into >= _IN_EARNEST * most[self._rack_of_server]
        unknown = np.bincount(self._rack_of_server, np.isnan(into), len(most)) > 0
        count = np.bincount(self._rack_of_server, earnest & (into > 0), len(most))
        return np.where(unknown | (count == 0), self._servers, count)

    def _room(
        self,
        sent: Sent,
        pair: tuple[NDArray[np.intp], NDArray[np.intp]],
        ways: _Ways,
        load: NDArray[np.float64],
        wanted_mbps: NDArray[np.float64],
        settled: NDArray[np.bool_],
    ) -> Room:
        """Room of pairs with circuits on both networks, for ``settled`` pairs.

        Traffic without circuits is not counted by receiving server: assume a single receiver per
        rack.
        """
        at, racks = self._at, len(self._servers)
        src, dst = pair
        now = np.zeros((racks, racks))
        np.add.at(now, pair, sent.latest_mbps)
        part = np.append(load[at.circuits : at.circuits + len(ways.senders)], 0.0)
        part /= np.append(ways.capacity_mbps, np.inf)
        used = np.append(ways.part_used(part), np.nan)[ways.of_pair]
        known = settled & ~np.isnan(used)
        circuits_mbps = np.where(known, np.append(ways.pair_mbps, 0.0)[ways.of_pair], 0.0)
        used = np.where(known, used, 0.0)

        others = np.where(ways.of_pair[pair] < 0, wanted_mbps, 0.0)
        free, free_mbps = np.ones((racks, racks)), np.zeros((racks, racks))
        left_mbps = {}
        for place, where in ((at.uplink, sent.source), (at.out, src), (at.into, dst)):
            taken = np.bincount(where, others, int(where.max(initial=-1)) + 1)[where]
            capacity = self._capacity[place + where]
            left_mbps[place] = np.maximum(capacity - taken, 0.0)
            np.minimum.at(free, pair, left_mbps[place] / capacity)
        into = np.bincount(dst, others, racks) / self._fabric.electrical_rate_mbps
        np.add.at(free_mbps, pair, left_mbps[at.uplink])
        for place in (at.out, at.into):
            np.minimum.at(free_mbps, pair, left_mbps[place])
        return Room(
            sent_mbps=now,
            circuits_mbps=circuits_mbps,
            carried_mbps=used * circuits_mbps,
            full=known & (used >= FULL),
            slack=known & (used < CLEAR),
            fits=now < CLEAR * circuits_mbps,
            free_mbps=free_mbps,
            free=np.minimum(free, 1 - into),
        )

    # -- what can't be ----------------------------------------------------------------------------

    def _count_cases(
        self,
        odd: Collection[int],
        load: NDArray[np.float64],
        capacity: NDArray[np.float64],
        ways: _Ways,
    ) -> None:
        """Count each case once while the case lasts; log the first of each cause."""
        found = {
            self._name(place, ways, missing=bool(np.isnan(load[place]))): place for place in odd
        }
        for cause, name in sorted(found.keys() - self._odd):
            self._troubles[cause] += 1
            if self._troubles[cause] == 1:
                place = found[cause, name]
                LOG.warning(
                    "demand: %s (%s: %.1f of %.1f Mbps); its traffic counts as measured, and "
                    "further cases are only counted",
                    cause,
                    name,
                    load[place],
                    capacity[place],
                )
        self._odd = frozenset(found)

    def _name(self, place: int, ways: _Ways, *, missing: bool) -> tuple[str, str]:
        at, fabric = self._at, self._fabric
        if place >= at.circuits:
            port = fabric.ports[ways.senders[place - at.circuits]]
            name = f"{fabric.racks[port.rack].name} {port.tor_port}"
            return "no counter of a circuit" if missing else "circuit above its rate", name
        if place < at.uplink:
            return "server above server_rate_mbps", self._names[place]
        limit = "server_rate_mbps" if place < at.downlink else "electrical rate"
        rack = (place - at.inlet) % len(self._servers)
        return f"server receives above its {limit}", fabric.racks[rack].name


def _confirmed(sent: Sent) -> NDArray[np.float64]:
    """Mbps of each entry in the last interval, as far as a second reading confirms the rate.

    The second reading is the average, or the interval before. A single interval may contain the
    traffic of two (:attr:`~hydra.demand.counters.Sent.least_mbps`), and would fill a link.
    """
    return np.minimum(sent.latest_mbps, np.maximum(sent.mbps, sent.least_mbps))


class _Ways:
    """The circuits used by pairs in a topology."""

    def __init__(self, fabric: FabricArrays, topology: Topology, first: int) -> None:
        circuits = sorted({circuit for path in topology.paths for circuit in path.circuits})
        self.senders: list[PortId] = [end for circuit in circuits for end in circuit.ends]
        """Ports whose counters show the traffic of a circuit in a direction, two for each
        circuit.
        """
        rates = np.array([fabric.rate_of(circuit) for circuit in circuits], dtype=np.float64)
        self.capacity_mbps = np.repeat(rates, 2)
        every = routes(fabric, topology)
        found = {
            pair: sorted({link for way in ways for link in way}) for pair, ways in every.items()
        }
        self.of_pair = np.full((fabric.n_racks, fabric.n_racks), -1)
        widest = max(map(len, found.values()), default=0)
        self.listed = np.full((len(found), widest), first + len(self.senders))
        """The circuits of each pair with a path, of all paths together."""
        self.pair_mbps = np.zeros(len(found))
        """Capacity of each pair's paths together."""
        self._several = np.zeros(len(found), dtype=bool)
        self._first = first
        for number, (pair, links) in enumerate(found.items()):
            self.of_pair[pair] = number
            self.listed[number, : len(links)] = [first + link for link in links]
            ways = every[pair]
            self.pair_mbps[number] = sum(min(self.capacity_mbps[list(way)]) for way in ways)
            self._several[number] = len(ways) > 1

    def part_used(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """Used share of each pair's path, at the fullest circuit; with several paths, at the
        emptiest.

        ``part`` is the used share of each circuit, followed by a 0. NaN if unknown for a circuit.
        """
        if not len(self.listed):
            return np.zeros(0)
        parts = part[self.listed - self._first]
        filler = self.listed == self._first + len(self.senders)
        emptiest: NDArray[np.float64] = np.where(filler, np.inf, parts).min(axis=1)
        return np.where(self._several, emptiest, parts.max(axis=1))
