"""Made-up traffic whose offered load is known, and a fluid network that carries it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._demands import RATE_MBPS, full_fabric
from hydra.model import DemandMatrix, Topology
from topology.demand import max_min_rates, routes
from topology.problem import FabricArrays

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
MOST_FLOWS: Final = 20_000
_LEFT_TO_TCP: Final = 0.02
_LEAST_MBPS: Final = 1e-9
_UNEVEN: Final = 0.1
"""Standard deviation of the logarithm of a TCP connection's rate relative to its fair share."""


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """Traffic between servers, shapes (F,); ``src`` and ``dst`` are server numbers in the
    fabric.
    """

    src: Ints
    dst: Ints
    offered_mbps: Floats
    """Infinite: greedy TCP connections."""
    connections: Floats
    swing: Floats
    """Standard deviation of an on/off source's rate between readings, as a part of the mean."""
    paced: NDArray[np.bool_]
    """True for datagrams, whose sender ignores loss; False for TCP, including paced TCP."""


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Mbps as counted."""

    sent_mbps: Floats
    """Of each flow, counted by vswitches before their queues; shape (F,)."""
    load_mbps: Floats
    """Of each resource, counted behind its queue; shape (R,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    kind: str
    fabric: FabricArrays
    servers: int
    """Number of servers in a rack; each has a link of ``RATE_MBPS``."""
    electrical_mbps: float
    shared: bool
    """True if the servers of a rack share an electrical uplink; False if each server has an uplink.
    """
    agents: bool
    """True if agents report the number of connections."""
    algorithm: str
    flows: Flows

    @property
    def electrical_rack_mbps(self) -> Floats:
        each = self.electrical_mbps * (1 if self.shared else self.servers)
        return np.full(self.fabric.n_racks, each)

    def by_racks(self, mbps: Floats) -> DemandMatrix:
        demand = np.zeros((self.fabric.n_racks,) * 2)
        racks = self.flows.src // self.servers, self.flows.dst // self.servers
        np.add.at(demand, racks, mbps)
        return demand

    def truth(self, offered_mbps: Floats | None = None) -> Floats:
        """Rate of each flow on an ideal switch, limited by servers' links only, in Mbps.

        ``offered_mbps``: an alternative offered load of the flows.
        """
        links = self.fabric.n_racks * self.servers
        uses = np.stack([self.flows.src, links + self.flows.dst], axis=1)
        capacity = np.full(2 * links, RATE_MBPS)
        flows = self.flows
        offered = flows.offered_mbps if offered_mbps is None else offered_mbps
        return max_min_rates(uses, capacity, offered, flows.connections)


class Network:
    """The resources of a case under a topology, and the resources used by each flow."""

    def __init__(self, case: Case, topology: Topology) -> None:
        fabric, flows = case.fabric, case.flows
        n, links = fabric.n_racks, fabric.n_racks * case.servers
        uplinks = n if case.shared else links
        circuits = sorted({c for path in topology.paths for c in path.circuits})
        rates = np.repeat(np.array([fabric.rate_of(c) for c in circuits]), 2)
        ends = 2 * links + 2 * uplinks
        self.capacity = np.concatenate(
            [
                np.full(2 * links, RATE_MBPS),
                np.full(2 * uplinks, case.electrical_mbps),
                rates,
                [np.inf],
            ]
        )
        way_of = routes(fabric, topology)
        longest = max([2, *(len(ways[0]) for ways in way_of.values())])
        racks = flows.src // case.servers, flows.dst // case.servers
        place = 1 if not case.shared else case.servers
        self.uses = np.full((len(flows.src), 2 + longest), len(self.capacity) - 1)
        self.uses[:, 0], self.uses[:, 1] = flows.src, links + flows.dst
        self.uses[:, 2] = 2 * links + flows.src // place
        self.uses[:, 3] = 2 * links + uplinks + flows.dst // place
        table = np.full((n, n), -1)
        listed = np.full((len(way_of) + 1, longest), len(self.capacity) - 1)
        for number, (pair, ways) in enumerate(way_of.items()):
            table[pair] = number
            listed[number, : len(ways[0])] = [ends + link for link in ways[0]]
        taken = table[racks]
        self.uses[taken >= 0, 2:] = listed[taken[taken >= 0]]

    def counted(self, flows: Flows, random: np.random.Generator) -> Counted:
        """Present rates: max-min fair, except for the variation of TCP and of on/off sources.

        Datagrams displace TCP from queues: TCP gets the rest, at least a fiftieth.
        """
        greedy = np.isinf(flows.offered_mbps)
        uneven = random.lognormal(0.0, _UNEVEN / np.sqrt(flows.connections))
        weight = np.where(greedy, flows.connections * uneven, flows.connections)
        mood = 1 + flows.swing * random.uniform(-1, 1, len(flows.swing))
        wanted = np.where(greedy, np.inf, flows.offered_mbps * mood)
        sent, load = np.zeros(len(wanted)), np.zeros(len(self.capacity))
        paced, heeds = np.flatnonzero(flows.paced), np.flatnonzero(~flows.paced)
        if paced.size:
            sent[paced], load = self._datagrams(self.uses[paced], wanted[paced])
        left = np.maximum(self.capacity - load, _LEFT_TO_TCP * self.capacity)
        uses = self.uses[heeds]
        sent[heeds] = max_min_rates(uses, left, wanted[heeds], weight[heeds])
        load = load + _sums(uses, sent[heeds], len(load))
        return Counted(sent, np.minimum(load, self.capacity))

    def _datagrams(self, uses: Ints, mbps: Floats) -> tuple[Floats, Floats]:
        """Counts at the servers' links and behind each queue: all flows lose the same share in a
        queue.
        """
        order = [0, *range(2, uses.shape[1]), 1]
        kept = np.ones(len(self.capacity))
        for _ in order:  # each iteration makes the input of a further queue on the way correct
            came, now = np.zeros(len(kept)), mbps
            for column in order:
                came += np.bincount(uses[:, column], now, len(kept))
                now = now * kept[uses[:, column]]
            kept = np.minimum(1.0, self.capacity / np.maximum(came, _LEAST_MBPS))
        return mbps * kept[uses[:, 0]], came * kept


def _sums(uses: Ints, mbps: Floats, count: int) -> Floats:
    return np.bincount(uses.ravel(), np.repeat(mbps, uses.shape[1]), count)


# --- workloads ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Site:
    """Racks, servers and planes of a workload."""

    racks: int
    servers: int
    planes: int
    random: np.random.Generator

    @property
    def total(self) -> int:
        return self.racks * self.servers

    @property
    def rack_mbps(self) -> float:
        """The smaller of a rack's circuit capacity and its servers' links."""
        return RATE_MBPS * min(self.planes, self.servers)

    def pairs(self, each: int) -> tuple[Ints, Ints]:
        """Racks with ``each`` partners for every rack."""
        each = min(each, self.racks - 1)
        src = np.repeat(np.arange(self.racks), each)
        step = [self.random.choice(self.racks - 1, each, replace=False) for _ in range(self.racks)]
        return src, (src + 1 + np.concatenate(step)) % self.racks

    def servers_of(self, racks: Ints) -> Ints:
        return racks * self.servers + self.random.integers(0, self.servers, len(racks))


def _flows(src: Ints, dst: Ints, mbps: Floats | float, many: Floats | float = 1.0) -> Flows:
    shape = src.shape
    return Flows(
        src,
        dst,
        np.broadcast_to(np.asarray(mbps, dtype=np.float64), shape),
        np.broadcast_to(np.asarray(many, dtype=np.float64), shape),
        np.zeros(shape),
        np.zeros(shape, dtype=bool),
    )


def _paced(site: Site, racks: tuple[Ints, Ints], weight: Floats) -> Flows:
    """Rates in these proportions, with a random load of the busiest rack; no server exceeds its
    link.
    """
    src, dst = map(site.servers_of, racks)
    busiest = max(np.bincount(end, weight).max() for end in racks)
    mbps = weight * site.random.uniform(0.3, 1.0) * site.rack_mbps / busiest
    out, into = np.bincount(src, mbps, site.total), np.bincount(dst, mbps, site.total)
    too_much = max(out.max(), into.max()) / RATE_MBPS
    return _flows(src, dst, mbps / max(1.0, too_much))


def constant(site: Site) -> Flows:
    racks = site.pairs(int(site.random.integers(1, 1 + min(2 * site.planes, site.racks))))
    return _paced(site, racks, site.random.lognormal(0.0, 1.0, len(racks[0])))


def on_off(site: Site) -> Flows:
    flows = constant(site)
    return replace(flows, swing=site.random.uniform(0.0, 0.5, len(flows.src)))


def gravity(site: Site) -> Flows:
    weight = site.random.lognormal(0.0, 1.5, (2, site.racks))
    src, dst = site.pairs(max(1, min(site.racks - 1, MOST_FLOWS // site.racks)))
    return _paced(site, (src, dst), weight[0][src] * weight[1][dst])


def greedy(site: Site) -> Flows:
    src, dst = site.pairs(int(site.random.integers(1, 1 + min(site.planes + 2, site.racks))))
    many = np.round(2 ** site.random.uniform(0, 6, len(src)))
    return _flows(site.servers_of(src), site.servers_of(dst), np.inf, many)


def _between(senders: Ints, receivers: Ints) -> tuple[Ints, Ints]:
    src, dst = np.meshgrid(senders, receivers, indexing="ij")
    return src.ravel(), dst.ravel()


def _jobs(site: Site, lay: Callable[[int], tuple[Ints, Ints]]) -> Flows:
    """Jobs: as many as the servers and the limit of flows allow."""
    src, dst = zip(*(lay(n) for n in range(max(1, site.racks // 8))), strict=True)
    return _flows(np.concatenate(src)[:MOST_FLOWS], np.concatenate(dst)[:MOST_FLOWS], np.inf)


def shuffle(site: Site) -> Flows:
    def lay(_: int) -> tuple[Ints, Ints]:
        size = int(site.random.integers(2, 1 + min(32, site.total)))
        members = site.random.choice(site.total, size, replace=False)
        return _between(members, members)

    return _jobs(site, lay)


def incast(site: Site) -> Flows:
    def lay(_: int) -> tuple[Ints, Ints]:
        size = int(site.random.integers(2, 1 + min(64, site.total - 1)))
        members = site.random.choice(site.total, size + 1, replace=False)
        return _between(members[1:], members[:1])

    return _jobs(site, lay)


def coflows(site: Site) -> Flows:
    """Mappers in some racks, reducers in other racks; disks limit some flows."""

    def lay(_: int) -> tuple[Ints, Ints]:
        sizes = site.random.integers(1, 1 + min(16, max(1, site.total // 2)), 2)
        members = site.random.choice(site.total, int(sizes.sum()), replace=False)
        return _between(members[: sizes[0]], members[sizes[0] :])

    flows = _jobs(site, lay)
    slow = site.random.random(len(flows.src)) < 0.3
    disk_mbps = site.random.uniform(0.01, 0.3, len(flows.src)) * RATE_MBPS
    return replace(flows, offered_mbps=np.where(slow, disk_mbps, np.inf))


WORKLOADS: Final[dict[str, Callable[[Site], Flows]]] = {
    "constant rate": constant,
    "greedy TCP": greedy,
    "on/off": on_off,
    "shuffles": shuffle,
    "incast": incast,
    "coflows": coflows,
    "gravity": gravity,
}
MIXED: Final = "two of these"
STEADY: Final = {"constant rate", "on/off", "gravity"}
"""Workloads with given rates: in half of the cases datagrams, else paced TCP."""
_DATAGRAMS: Final = 1


def draw(seed: int) -> tuple[Case, np.random.Generator]:
    """Case number ``seed``, and the random generator for the rest of the case."""
    random = np.random.default_rng(seed)
    racks = round(4 * 80 ** random.random())
    planes = round(32 ** random.random())
    servers = int(2 ** random.integers(1, 6))
    site = Site(racks, servers, planes, random)
    kind = str(random.choice([*WORKLOADS, MIXED]))
    names = random.choice(list(WORKLOADS), 2, replace=False) if kind == MIXED else [kind]
    # A separate generator: the choice of cases does not depend on its use.
    datagrams = bool(np.random.default_rng((seed, _DATAGRAMS)).random() < 0.5)
    paced = STEADY.intersection(names) if datagrams else set()
    parts = []
    for name in map(str, names):
        part = WORKLOADS[name](site)
        parts.append(replace(part, paced=np.full(len(part.src), name in paced)))
    if paced:
        kind = f"{kind}, datagrams"
    joined = Flows(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Flows.__slots__)
    )
    away = joined.src // servers != joined.dst // servers
    flows = Flows(*(getattr(joined, name)[away] for name in Flows.__slots__))
    shared = bool(random.random() < 0.5)
    electrical_mbps = random.uniform(0.05, 0.15) * site.rack_mbps / (1 if shared else servers)
    case = Case(
        kind,
        full_fabric(racks, planes),
        servers,
        electrical_mbps,
        shared,
        bool(random.random() < 0.25),
        str(random.choice(["hydra-bfs+", "hydra-bfs", "edmonds"], p=[0.6, 0.2, 0.2])),
        flows,
    )
    return case, random
