"""Surveillance of running circuits: schedule of probes, and paths found dead by lost probes.

Each standing path is probed in each direction once per interval; probes are spread over the
interval. A lost probe is repeated at once, by more and more servers: a path is given up after three
losses in a row, which takes an interval and three time-outs at most. ``hydra/faults/roll_call.py``
decides whether a silent probe is lost. No clock and no socket: times, in seconds, are arguments.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from hydra.faults.roll_call import Ends, Fate, RollCall, Silence
from hydra.model import Circuit, Fabric, NetworkState, Pair, Path, PortId, RackId, VlanId
from hydra.reconfiguration.plan import pair_of

LOSSES: Final = 3
"""Number of lost probes in a row after which a path is dead."""
MOST_PER_S: Final = 700
"""Largest number of probes per second: more would cost the controller more than a twentieth of a
core (``benchmarks.probing``). Beyond 350 paths per second of the interval, the interval grows.
"""
_COPIES: Final = (1, 4, 8)
"""Frames of the first, second and third probe: a full queue loses some frames, a dead fibre all."""

_FULL_SIZE_EVERY: Final = 4
"""Every n-th probe of a path is as long as the longest frames of servers: ports may pass only small
frames.
"""

Traversal = tuple[Circuit, PortId]
"""A circuit in a direction: from the given end to the far end."""


@dataclass(slots=True, eq=False)
class Way:
    """A standing path in a direction."""

    path: Path
    vlan: VlanId
    src: RackId
    dst: RackId
    circuits: tuple[Traversal, ...]
    lost: int = 0
    copies: int = 1
    """Frames to send now."""
    full_size: bool = False
    """True for frames as long as the longest frames of servers."""
    first: int = 0
    """Index of the first server of each rack to take part; advances after each inconclusive
    probe.
    """
    _passed: int = 0
    """Number of received probes since the last full-size probe."""
    _under_way: Silence | None = None
    """The probe under way."""
    _last_received_s: float = float("-inf")
    _trouble_s: float = float("inf")
    """Time of the first lost probe in a row."""
    _turn: int = 0
    """Number of the valid entry in the schedule; 0: none."""
    _nonces: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LostPath:
    path: Path
    vlan: VlanId
    circuits: frozenset[Circuit]
    """Circuits to blame; empty if each circuit works for other paths."""
    reason: str


class Surveillance:
    """Not thread-safe."""

    def __init__(self, fabric: Fabric, interval_s: float, timeout_s: float, roll: RollCall) -> None:
        """A probe without an answer after ``timeout_s`` (or a quarter of the interval) is lost, if
        ``roll`` has the answers of its switches by then.
        """
        self._fabric = fabric
        self._roll = roll
        self._wanted_s = self._interval_s = interval_s
        self._timeout_s = min(timeout_s, interval_s / 4)
        self._ways: dict[tuple[Path, VlanId], tuple[Way, ...]] = {}
        self._unseen: set[tuple[Path, VlanId]] = set()
        """Paths without probes while their pairs are being moved."""
        self._users: dict[Traversal, list[Way]] = {}
        self._by_nonce: dict[int, Way] = {}
        self._schedule: list[tuple[float, int, Way]] = []
        self._turns = itertools.count(1)
        self.unknown = 0
        """Number of probes with an unknown outcome, since switches or the controller were late."""

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def watch(self, state: NetworkState, moving: Collection[Pair], now_s: float) -> None:
        """Probe the paths of ``state`` from now on, except paths of pairs that are being moved.

        Paths that still exist after a move of their pairs are probed soon: faults during the move,
        or shortly before, were not found.
        """
        wanted = {
            (path, vlan): None for path, vlan in state.vlans.items() if pair_of(path) not in moving
        }
        for key in self._ways.keys() - wanted.keys():
            self._unseen.add(key)
            for way in self._ways.pop(key):
                self._forget(way)
        self._unseen &= state.vlans.items()
        fresh = [self._ways_of(path, vlan) for path, vlan in wanted.keys() - self._ways.keys()]
        self._ways.update({(ways[0].path, ways[0].vlan): ways for ways in fresh})
        self._users = {}
        for way in itertools.chain.from_iterable(self._ways.values()):
            for traversal in way.circuits:
                self._users.setdefault(traversal, []).append(way)
        number = sum(map(len, self._ways.values()))
        self._interval_s = max(self._wanted_s, number / MOST_PER_S)
        # By source, so that nearly simultaneous probes of a switch share a message.
        order = sorted(itertools.chain.from_iterable(fresh), key=lambda way: (way.src, way.dst))
        soon = 0
        for index, way in enumerate(order):
            after_s = self._interval_s * (index + 1) / len(order)
            if (way.path, way.vlan) in self._unseen:
                after_s = min(after_s, soon / MOST_PER_S)
                soon += 1
            self._plan(way, now_s + after_s)
        self._unseen -= wanted.keys()

    def _ways_of(self, path: Path, vlan: VlanId) -> tuple[Way, ...]:
        there = tuple(self._traversals(path))
        if path.one_way:
            return (Way(path, vlan, path.src, path.dst, there),)
        back = tuple(
            (circuit, circuit.b if start == circuit.a else circuit.a)
            for circuit, start in reversed(there)
        )
        return (
            Way(path, vlan, path.src, path.dst, there),
            Way(path, vlan, path.dst, path.src, back),
        )

    def _traversals(self, path: Path) -> Iterator[Traversal]:
        at = path.src
        for circuit in path.circuits:
            a, b = self._fabric.racks_of(circuit)
            yield circuit, circuit.a if a == at else circuit.b
            at = b if a == at else a

    def _plan(self, way: Way, when_s: float) -> None:
        way._turn = next(self._turns)
        heapq.heappush(self._schedule, (when_s, way._turn, way))

    def _forget(self, way: Way) -> None:
        """Drop the entry of a way in the schedule, and the probe under way."""
        way._turn = 0
        self._clear(way)

    def _clear(self, way: Way) -> None:
        for nonce in way._nonces:
            self._by_nonce.pop(nonce, None)
        way._nonces.clear()
        way._under_way = None
        way.lost = 0
        way._trouble_s = float("inf")

    # -- what to do ------------------------------------------------------------------------------

    def next_s(self) -> float:
        """Time of the next entry in the schedule; infinity without entries."""
        return self._schedule[0][0] if self._schedule else float("inf")

    def due(self, now_s: float) -> tuple[list[Way], list[LostPath]]:
        """(ways to probe now, dead paths). Call :meth:`sent` or :meth:`passed_over` for each
        way.
        """
        ready: list[Way] = []
        dead: dict[tuple[Path, VlanId], LostPath] = {}
        while self._schedule and self._schedule[0][0] <= now_s:
            _, turn, way = heapq.heappop(self._schedule)
            if turn != way._turn:
                continue
            if way._under_way is not None and not self._is_over(way, way._under_way, now_s):
                continue
            if way.lost >= LOSSES:
                found = self._judge(way)
                dead.setdefault((way.path, way.vlan), found)
                self._clear(way)
                self._plan(way, now_s + self._interval_s)  # may stand until the divert
                continue
            way.copies = _COPIES[way.lost]
            if not way.lost:
                way.full_size = way._passed >= _FULL_SIZE_EVERY - 1
            ready.append(way)
        return ready, list(dead.values())

    def _is_over(self, way: Way, probe: Silence, now_s: float) -> bool:
        """True if a silent probe is lost. Otherwise the way is checked again: soon, or, for an
        unknown outcome, with a new probe after an interval.
        """
        fate = probe.look(now_s, self._timeout_s, self._roll)
        if fate is Fate.OPEN:
            self._plan(way, probe.next_look_s(now_s, self._timeout_s))
        elif fate is Fate.UNKNOWN:
            self.unknown += 1
            way.first += 1
            self.passed_over(way, now_s)
        else:
            if way.lost == 0:
                way._trouble_s = probe.sent_s
                self._ask_the_others(way, now_s)
            way.lost += 1
            way._under_way = None
        return fate is Fate.LOST

    def _ask_the_others(self, way: Way, now_s: float) -> None:
        """Probe the other ways over the same circuits now, to find the circuit to blame."""
        for traversal in way.circuits:
            for other in self._users[traversal]:
                if other is not way and other._under_way is None and other.lost == 0:
                    self._plan(other, now_s)

    def _judge(self, way: Way) -> LostPath:
        good = {
            traversal
            for traversal in way.circuits
            for other in self._users[traversal]
            if other._last_received_s >= way._trouble_s
        }
        blamed = frozenset(traversal[0] for traversal in way.circuits if traversal not in good)
        src, dst = (self._fabric.racks[rack].name for rack in (way.src, way.dst))
        reason = f"{LOSSES} probes in a row lost from {src} to {dst} on VLAN {way.vlan}"
        if way.full_size:
            reason += ", at full frame size: smaller probes had arrived"
        return LostPath(way.path, way.vlan, blamed, reason)

    # -- what happened ---------------------------------------------------------------------------

    def sent(self, way: Way, nonces: Collection[int], ends: Collection[Ends], now_s: float) -> None:
        """Note the nonces and the end switches of sent frames."""
        way._under_way = Silence(now_s, set(ends))
        way._nonces.extend(nonces)
        self._by_nonce.update(dict.fromkeys(nonces, way))
        self._plan(way, way._under_way.first_look_s(self._timeout_s))

    def passed_over(self, way: Way, now_s: float) -> None:
        """Note that no server could send or receive the probe: the loss does not count."""
        self._clear(way)
        self._plan(way, now_s + self._interval_s)

    def probe_received(self, nonce: int, at_s: float) -> None:
        """Note a received frame, possibly late; ignores unknown nonces."""
        way = self._by_nonce.get(nonce)
        if way is None:
            return
        way._last_received_s = at_s
        way._passed = 0 if way.full_size else way._passed + 1
        under_way = way._under_way
        self._clear(way)
        self._plan(way, (at_s if under_way is None else under_way.sent_s) + self._interval_s)
