"""Resources that traffic meets on its way, as arrays: their loads, users and room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from apps.demand.poller import Inlet
from hydra.demand.counters import Sent
from hydra.demand.reported_backlog import Believed
from hydra.forwarding.substrate import substrate_of
from hydra.model import DemandMatrix, Fabric, Path, PortId, RackId, Topology
from hydra.sharing.spill import PairRates
from topology.demand import routes
from topology.estimator import CLEAR, FULL
from topology.problem import FabricArrays

_IN_EARNEST: Final = 0.1
"""A server counts as a receiver from this share of the rate of the rack's busiest receiver on."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Seen:
    """Traffic at a moment, as counted and reported."""

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


class Resources:
    """Links of servers and racks, and circuits of a fabric. Pure: same inputs, same results."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._arrays = FabricArrays.of(fabric)
        substrate = substrate_of(fabric)
        steering = [s for rack in fabric.racks for s in substrate.steering(rack.id)]
        self.rack_of = np.array([switch.rack for switch in steering], dtype=np.intp)
        """Rack of each source: of each switch that steers the traffic of servers."""
        servers = np.array([len(switch.servers) for switch in steering], dtype=np.float64)
        row = {s.name: place for place, switch in enumerate(steering) for s in switch.servers}
        self.source_of = np.array([row[s.name] for s in fabric.servers], dtype=np.intp)
        """Source of each server."""
        self.rack_of_server = np.array([s.rack for s in fabric.servers], dtype=np.intp)
        self._index = {server.name: place for place, server in enumerate(fabric.servers)}
        self._names = [switch.name for switch in steering]
        self.link_mbps = servers * fabric.server_rate_mbps
        """Links of each source's servers, together."""
        self.servers = np.array([len(rack.servers) for rack in fabric.racks], dtype=np.float64)
        """Number of servers of each rack."""
        electrical = np.array([substrate.electrical_mbps(rack) for rack in fabric.racks])
        self._capacity = np.concatenate(
            [
                self.link_mbps,
                servers * fabric.electrical_rate_mbps,
                electrical,
                electrical,
                np.full(len(fabric.racks), fabric.server_rate_mbps),
                np.full(len(fabric.racks), fabric.electrical_rate_mbps),
            ]
        )
        self._at = _Places(len(steering), len(fabric.racks))

    def ways(self, topology: Topology) -> Ways:
        return Ways(self._arrays, topology, self._at.circuits)

    def racks_along(self, path: Path) -> tuple[RackId, ...]:
        return self._arrays.racks_along(path)

    def capacity_mbps(self, ways: Ways) -> NDArray[np.float64]:
        """Mbps of all resources, and of a last one without a limit."""
        return np.concatenate([self._capacity, ways.capacity_mbps, [np.inf]])

    def into(self, received_mbps: Mapping[Inlet, float]) -> NDArray[np.float64]:
        """Rates that servers receive, shape (2, servers): in all, electrically; NaN if unknown."""
        into = np.full((2, len(self.rack_of_server)), np.nan)
        for (server, electrical), mbps in received_mbps.items():
            into[int(electrical), server] = mbps
        return into

    def loads(
        self,
        seen: Seen,
        now: NDArray[np.float64],
        pair: tuple[NDArray[np.intp], NDArray[np.intp]],
        ways: Ways,
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
            np.maximum.at(load, place + self.rack_of_server, mbps)
        load[at.circuits : last] = [seen.ports_mbps.get(port, np.nan) for port in ways.senders]
        return load, came

    def uses(
        self,
        sent: Sent,
        pair: tuple[NDArray[np.intp], NDArray[np.intp]],
        ways: Ways,
        *,
        elephants_only: bool,
    ) -> NDArray[np.intp]:
        """The resources used by each entry of ``sent``, a row per entry.

        ``elephants_only``: mice of pairs with a path may stay electrical.
        """
        at, last = self._at, self._at.circuits + len(ways.capacity_mbps)
        way = ways.of_pair[pair]
        uses = np.full((len(way), 6 + ways.listed.shape[1]), last)
        uses[:, 0], uses[:, 1] = at.link + sent.source, at.inlet + sent.to
        shared = np.flatnonzero((way < 0) | elephants_only)
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

    def with_meters(
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
        racks = len(self.servers)
        keys = [self.source_of[self._index[server]] * racks + to for server, to in metered]
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

    def receiving(self, into: NDArray[np.float64]) -> NDArray[np.float64]:
        """Number of servers of each rack that receive in earnest; all servers if not counted."""
        most = np.zeros(len(self.servers))
        np.fmax.at(most, self.rack_of_server, into)
        earnest = into >= _IN_EARNEST * most[self.rack_of_server]
        unknown = np.bincount(self.rack_of_server, np.isnan(into), len(most)) > 0
        count = np.bincount(self.rack_of_server, earnest & (into > 0), len(most))
        return np.where(unknown | (count == 0), self.servers, count)

    def room(
        self,
        sent: Sent,
        pair: tuple[NDArray[np.intp], NDArray[np.intp]],
        ways: Ways,
        load: NDArray[np.float64],
        wanted_mbps: NDArray[np.float64],
        settled: NDArray[np.bool_],
    ) -> PairRates:
        """Rates of pairs with circuits on both networks, for ``settled`` pairs.

        Traffic without circuits is not counted by receiving server: assume a single receiver per
        rack.
        """
        at, racks = self._at, len(self.servers)
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
        remaining_mbps = {}
        for place, where in ((at.uplink, sent.source), (at.out, src), (at.into, dst)):
            taken = np.bincount(where, others, int(where.max(initial=-1)) + 1)[where]
            capacity = self._capacity[place + where]
            remaining_mbps[place] = np.maximum(capacity - taken, 0.0)
            np.minimum.at(free, pair, remaining_mbps[place] / capacity)
        into = np.bincount(dst, others, racks) / self._fabric.electrical_rate_mbps
        np.add.at(free_mbps, pair, remaining_mbps[at.uplink])
        for place in (at.out, at.into):
            np.minimum.at(free_mbps, pair, remaining_mbps[place])
        return PairRates(
            sent_mbps=now,
            circuits_mbps=circuits_mbps,
            carried_mbps=used * circuits_mbps,
            full=known & (used >= FULL),
            slack=known & (used < CLEAR),
            fits=now < CLEAR * circuits_mbps,
            free_mbps=free_mbps,
            free=np.minimum(free, 1 - into),
        )

    def name(self, place: int, ways: Ways, *, missing: bool) -> tuple[str, str]:
        """(The impossible part of a resource's load, name of the resource)."""
        at, fabric = self._at, self._fabric
        if place >= at.circuits:
            port = fabric.ports[ways.senders[place - at.circuits]]
            name = f"{fabric.racks[port.rack].name} {port.tor_port}"
            return "no counter of a circuit" if missing else "circuit above its rate", name
        if place < at.uplink:
            return "server above server_rate_mbps", self._names[place]
        what = "server_rate_mbps" if place < at.downlink else "electrical rate"
        rack = (place - at.inlet) % len(self.servers)
        return f"server receives above its {what}", fabric.racks[rack].name


class Ways:
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
