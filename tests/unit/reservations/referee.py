"""The rule of admission, implemented a second time by trying every path.

Shares no code with :mod:`hydra.reservations.calendar` and :mod:`hydra.reservations.admission`, and
knows only the promises. Every path of a fabric is listed once, with its conflicts.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, nextafter

from hydra.model import RackId
from hydra.reservations.reservation import ServiceClass
from tests.unit.reservations.test_calendar import all_paths

SLACK_MBPS = 1e-4


@dataclass(frozen=True)
class Promise:
    """A promise, existing or possible."""

    id: str
    pair: tuple[int, int]
    path: int | None
    """The referee's number of the path; None: any path."""
    mbps: float
    start: float
    end: float
    own: bool = False
    """Exclusive use of its circuits."""
    servers: frozenset[str] = frozenset()
    rank: int = 0

    def meets(self, other):
        return self.start < other.end and other.start < self.end


class Referee:
    """The referee of a fabric, for paths of at most ``max_hops`` circuits."""

    def __init__(self, fabric, max_hops, paths_per_pair=16):
        self.fabric = fabric
        self.paths_per_pair = paths_per_pair
        racks = range(len(fabric.racks))
        pairs = [(a, b) for a in racks for b in racks if a < b]
        found = {pair: list(all_paths(fabric, *map(RackId, pair), max_hops)) for pair in pairs}
        self.paths = [path for some in found.values() for path in some]
        self._number = {path: number for number, path in enumerate(self.paths)}
        self._of_pair = {pair: [self._number[p] for p in some] for pair, some in found.items()}
        self.circuits = [frozenset(path.circuits) for path in self.paths]
        self.ports = [
            frozenset(port for circuit in path.circuits for port in (circuit.a, circuit.b))
            for path in self.paths
        ]
        self._rates = {
            circuit: min(fabric.ports[circuit.a].rate_mbps, fabric.ports[circuit.b].rate_mbps)
            for circuits in self.circuits
            for circuit in circuits
        }

    @cached_property
    def _clashing(self):
        """By path: paths that need one of its ports for another circuit."""
        return [
            frozenset(
                other
                for other in range(len(self.paths))
                if self._ports_of(self.circuits[one] & self.circuits[other])
                != self.ports[one] & self.ports[other]
            )
            for one in range(len(self.paths))
        ]

    @staticmethod
    def _ports_of(circuits):
        return {port for circuit in circuits for port in (circuit.a, circuit.b)}

    def promise(self, one, now=-inf):
        """The promise of a reservation; an overdue reservation counts at this moment, too."""
        end = inf if one.expires_unix_s is None else one.expires_unix_s
        best_effort = one.service is ServiceClass.BEST_EFFORT
        return Promise(
            one.id,
            one.pair,
            self._number[one.booked],
            0.0 if best_effort else one.bandwidth_mbps,
            one.starts_unix_s,
            max(end, nextafter(now, inf)) if one.holds_capacity else end,
            one.service is ServiceClass.GUARANTEED,
            frozenset({one.src, one.dst} & self.fabric.server_by_name.keys()),
            -1 if best_effort else one.priority,
        )

    def most_mbps(self, wanted, promised, blocked=frozenset()):
        """The highest bandwidth at which ``wanted`` fits beside ``promised``; below 0: none."""
        near = [one for one in promised if one.meets(wanted)]
        paths = self._of_pair[wanted.pair] if wanted.path is None else [wanted.path]
        most = max(
            (self._most_on(p, wanted, near) for p in paths if blocked.isdisjoint(self.ports[p])),
            default=-1.0,
        )
        for server in wanted.servers:
            held = _peak_mbps(wanted, [one for one in near if server in one.servers])
            most = min(most, self.fabric.server_rate_mbps - held)
        return most

    def _most_on(self, path, wanted, near):
        sharing = []
        for one in near:
            if one.path in self._clashing[path]:
                return -1.0
            if one.pair == wanted.pair and one.path != path:
                if not self._traffic(one).isdisjoint(self._traffic(wanted)):
                    return -1.0
                if self._paths_beside(path, wanted, near, one) >= self.paths_per_pair:
                    return -1.0
            if not self.circuits[path].isdisjoint(self.circuits[one.path]):
                if one.own or wanted.own:
                    return -1.0
                sharing.append(one)
        return min(
            self._rates[circuit]
            - _peak_mbps(wanted, [one for one in sharing if circuit in self.circuits[one.path]])
            for circuit in self.circuits[path]
        )

    def _traffic(self, one):
        """The server pairs of a promise's frames."""
        racks = [self.fabric.racks[rack].servers for rack in one.pair]
        ends = [{server.name for server in servers} for servers in racks]
        named = one.servers if one.mbps else frozenset()  # best effort is not distinguished
        here, there = ((end & named) or end for end in ends)
        return {(a, b) for a in here for b in there}

    def _paths_beside(self, path, wanted, near, since):
        """Other paths of the pair at the moment in which ``since`` and ``wanted`` begin to
        overlap.
        """
        moment = max(wanted.start, since.start)
        return len(
            {
                one.path
                for one in near
                if one.pair == wanted.pair and one.path != path and one.start <= moment < one.end
            }
        )

    def broken(self, promised, now=-inf):
        """Promises that can't be kept beside the others, from ``now`` on."""
        promised = [replace(one, start=max(one.start, now)) for one in promised if one.end > now]
        return [
            one
            for one in promised
            if self.most_mbps(one, [other for other in promised if other is not one])
            < one.mbps - SLACK_MBPS
        ]


def _peak_mbps(wanted, users):
    """The largest sum at any moment of ``wanted``: at its begin, or at a user's."""
    moments = {wanted.start, *(one.start for one in users if one.start > wanted.start)}
    return max(
        sum(one.mbps for one in users if one.start <= moment < one.end) for moment in moments
    )
