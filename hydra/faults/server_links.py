"""Detection of server links that are dead in a single direction, with carrier.

Each server sends a probe through its ToR to the next server of the rack once per interval, so that
both directions of every link are tested. After a loss, more probes are sent at once, from the same
server to other servers and from other servers to the same receiver, also along circuits: these
probes show the dead link of the two. ``hydra/faults/roll_call.py`` decides whether a silent probe
is lost. No clock and no socket: times, in seconds, are arguments.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from hydra.faults.roll_call import Fate, RollCall, Silence
from hydra.faults.surveillance import LOSSES, MOST_PER_S
from hydra.model import DatapathId, RackId, Server, VlanId

_COPIES: Final = (1, 4, 8)
"""Frames of the first, second and third probe: a full queue loses some frames, a dead link all."""
_WITNESSES: Final = 4
"""Largest number of servers that help to test a link, from the own rack and from other racks
each.
"""


class LinkDirection(Enum):
    """A direction of a server link, as seen from the server."""

    SENDING = "outgoing traffic"
    RECEIVING = "incoming traffic"


Dead = Mapping[str, frozenset[LinkDirection]]
"""Dead directions by server name."""


@dataclass(frozen=True, slots=True)
class LinkProbe:
    """Frames from a server's vswitch to another vswitch, as long as the longest frames of
    servers.
    """

    src: Server
    dst: Server
    vlan: VlanId | None
    """VLAN of the circuits between the racks; None: same rack, untagged."""
    copies: int
    check: int
    """Number of the check that the frames belong to."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A server that exchanges probes with the servers of a rack."""

    server: Server
    vlan: VlanId | None
    """VLAN of a circuit between the racks; None: own rack."""


@dataclass(slots=True, eq=False)
class _Check:
    """Two servers of a rack: the first server probes the link of the second."""

    number: int
    src: Server
    dst: Server
    """``src`` or ``dst`` is a stand-in while the vswitch of a server does not answer."""
    is_trial: bool
    """True for a check whether a dead link has recovered."""
    lost: int = 0
    passed: int = 0
    """Number of successful probes in a row."""
    under_way: Silence | None = None
    src_sends: bool = False
    """True if a witness has received from ``src`` since the first loss in a row."""
    dst_receives: bool = False
    """True if ``dst`` has received from a witness since the first loss in a row."""
    ring: tuple[Server, Server] = field(init=False)
    """The two servers under test."""
    turn: int = 0
    nonces: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ring = self.src, self.dst


class ServerLinks:
    """Not thread-safe."""

    def __init__(self, interval_s: float, timeout_s: float, roll: RollCall) -> None:
        """A probe without an answer after ``timeout_s`` (or a quarter of the interval) is lost, if
        ``roll`` has the answers of its switches by then.
        """
        self._roll = roll
        self._wanted_s = self._interval_s = interval_s
        self._timeout_s = min(timeout_s, interval_s / 4)
        self._checks: dict[tuple[str, str, bool], _Check] = {}
        self._by_number: dict[int, _Check] = {}
        self._racks: Mapping[RackId, Sequence[Server]] = {}
        self._witnesses: Mapping[RackId, Sequence[Witness]] = {}
        self._by_nonce: dict[int, tuple[_Check, LinkProbe]] = {}
        self._schedule: list[tuple[float, int, _Check]] = []
        self._numbers = itertools.count(1)
        self._dead: dict[str, frozenset[LinkDirection]] = {}
        self._judges: dict[str, set[DatapathId]] = {}
        """For each dead link, the vswitches at both ends of the checks that found the link dead."""
        self.unknown = 0
        """Number of probes with an unknown outcome, since switches or the controller were late."""

    @property
    def dead(self) -> Dead:
        """Dead directions now; servers that cannot be probed any more keep their entries."""
        return dict(self._dead)

    def next_s(self) -> float:
        """Time of the next entry in the schedule; infinity without entries."""
        return self._schedule[0][0] if self._schedule else float("inf")

    def watch(
        self,
        racks: Mapping[RackId, Sequence[Server]],
        witnesses: Mapping[RackId, Sequence[Witness]],
        now_s: float,
    ) -> None:
        """Probe the given servers, by rack, from now on; ``witnesses`` help to locate faults."""
        self._racks, self._witnesses = racks, witnesses
        self._arrange(now_s)

    def _arrange(self, now_s: float) -> None:
        wanted = dict(self._wanted())
        for key in self._checks.keys() - wanted.keys():
            gone = self._checks.pop(key)
            self._clear(gone)
            gone.turn = 0
            del self._by_number[gone.number]
        self._interval_s = max(self._wanted_s, len(wanted) / MOST_PER_S)
        fresh = [key for key in wanted if key not in self._checks]
        for index, key in enumerate(fresh):
            check = _Check(next(self._numbers), *wanted[key])
            self._checks[key] = self._by_number[check.number] = check
            self._plan(check, now_s + self._interval_s * (index + 1) / len(fresh))

    def _wanted(self) -> Iterator[tuple[tuple[str, str, bool], tuple[Server, Server, bool]]]:
        """A ring of the healthy servers of each rack, and both directions between each dead server
        and a partner.
        """
        for servers in self._racks.values():
            healthy = [server for server in servers if server.name not in self._dead]
            ring = itertools.pairwise([*healthy, healthy[0]]) if len(healthy) > 1 else ()
            for src, dst in ring:
                yield (src.name, dst.name, False), (src, dst, False)
            for server in servers:
                if server.name in self._dead:
                    other = next((s for s in (*healthy, *servers) if s is not server), None)
                    if other is not None:
                        yield (server.name, other.name, True), (server, other, True)
                        yield (other.name, server.name, True), (other, server, True)

    def _plan(self, check: _Check, when_s: float) -> None:
        check.turn = next(self._numbers)
        heapq.heappush(self._schedule, (when_s, check.turn, check))

    def _clear(self, check: _Check) -> None:
        for nonce in check.nonces:
            self._by_nonce.pop(nonce, None)
        check.nonces.clear()
        check.under_way = None
        check.lost = 0
        check.src_sends = check.dst_receives = False

    # -- what to do -------------------------------------------------------------------------------

    def due(self, now_s: float) -> list[LinkProbe]:
        """Probes to send now; may change :attr:`dead`. Call :meth:`sent` for each probe."""
        probes: list[LinkProbe] = []
        before = dict(self._dead)
        while self._schedule and self._schedule[0][0] <= now_s:
            _, turn, check = heapq.heappop(self._schedule)
            if turn != check.turn:
                continue
            if check.under_way is not None:
                if not self._is_lost(check, check.under_way, now_s):
                    continue
                check.under_way = None
                check.lost += 1
                check.passed = 0
            if check.lost >= LOSSES:
                self._judge(check)
                self._clear(check)
                self._plan(check, now_s + self._interval_s)
                continue
            probes += self._probes(check)
            check.under_way = Silence(now_s, {(_switch_of(check.src), _switch_of(check.dst))})
            self._plan(check, check.under_way.first_look_s(self._timeout_s))
        if self._dead != before:
            self._arrange(now_s)
        return [probe for probe in probes if probe.check in self._by_number]

    def _is_lost(self, check: _Check, probe: Silence, now_s: float) -> bool:
        """True if a silent probe is lost. Otherwise, the probe is checked again soon, or, for an
        unknown outcome, the check begins anew after an interval.
        """
        fate = probe.look(now_s, self._timeout_s, self._roll)
        if fate is Fate.OPEN:
            self._plan(check, probe.next_look_s(now_s, self._timeout_s))
        elif fate is Fate.UNKNOWN:
            self.unknown += 1
            self._clear(check)
            self._plan(check, now_s + self._interval_s)
            self._stand_in(check, probe.silent(self._roll))
        return fate is Fate.LOST

    def _stand_in(self, check: _Check, silent: Collection[DatapathId]) -> None:
        """Replace a server with a silent vswitch by another server, until a probe arrives."""
        rack = self._racks.get(check.src.rack, ())
        others = [server for server in rack if server not in (check.src, check.dst)]
        if check.is_trial or not others:
            return
        other = others[self.unknown % len(others)]
        if _switch_of(check.src) in silent:
            check.src = other
        else:
            check.dst = other

    def _probes(self, check: _Check) -> Iterator[LinkProbe]:
        copies, number = _COPIES[check.lost], check.number
        yield LinkProbe(check.src, check.dst, None, copies, number)
        if not check.lost or check.is_trial:
            return
        rack = check.src.rack
        own = [s for s in self._racks.get(rack, ()) if s not in (check.src, check.dst)]
        near = [Witness(server, None) for server in own[:_WITNESSES]]
        witnesses = (*near, *self._witnesses.get(rack, ())[:_WITNESSES])
        copies = -(-copies // max(len(witnesses), 1))  # per direction, the same total
        for witness in witnesses:
            yield LinkProbe(check.src, witness.server, witness.vlan, copies, number)
            yield LinkProbe(witness.server, check.dst, witness.vlan, copies, number)

    def _judge(self, check: _Check) -> None:
        """Blame the link without received frames since the first loss; both links, if neither
        received a frame.
        """
        if check.is_trial:
            return
        if not check.src_sends:
            self._blame(check, check.src.name, LinkDirection.SENDING)
        if not check.dst_receives:
            self._blame(check, check.dst.name, LinkDirection.RECEIVING)

    def _blame(self, check: _Check, name: str, direction: LinkDirection) -> None:
        self._dead[name] = self._dead.get(name, frozenset()) | {direction}
        self._judges.setdefault(name, set()).update(map(_switch_of, (check.src, check.dst)))

    # -- what happened ----------------------------------------------------------------------------

    def sent(self, link_probe: LinkProbe, nonces: Collection[int]) -> None:
        """Note the nonces of sent frames."""
        check = self._by_number[link_probe.check]
        check.nonces.extend(nonces)
        self._by_nonce.update(dict.fromkeys(nonces, (check, link_probe)))

    def passed_over(self, link_probe: LinkProbe, now_s: float) -> None:
        """Note that no switch could send the probe: no link is blamed."""
        check = self._by_number[link_probe.check]
        if (link_probe.src, link_probe.dst) == (check.src, check.dst):
            self._clear(check)
            self._plan(check, now_s + self._interval_s)

    def probe_received(self, nonce: int, at_s: float) -> None:
        """Note a received frame, possibly late; ignores unknown nonces."""
        known = self._by_nonce.pop(nonce, None)
        if known is None:
            return
        check, received = known
        if (received.src, received.dst) != (check.src, check.dst):
            check.src_sends |= received.src == check.src
            check.dst_receives |= received.dst == check.dst
            return
        sent_s = at_s if check.under_way is None else check.under_way.sent_s
        self._clear(check)
        check.src, check.dst = check.ring
        check.passed += 1
        self._plan(check, sent_s + self._interval_s)
        if check.is_trial and check.passed >= LOSSES:
            self._acquit(check.src.name, LinkDirection.SENDING)
            self._acquit(check.dst.name, LinkDirection.RECEIVING)
            self._arrange(at_s)

    def acquit(self, restored: Collection[DatapathId], now_s: float) -> None:
        """Forget the links found dead by checks of vswitches that lacked rules: such a vswitch
        neither sends nor receives probes. Links that are dead nevertheless are found again.
        """
        for name, judges in tuple(self._judges.items()):
            if not judges.isdisjoint(restored):
                del self._judges[name], self._dead[name]
        self._arrange(now_s)

    def _acquit(self, name: str, direction: LinkDirection) -> None:
        left = self._dead.get(name, frozenset()) - {direction}
        if left:
            self._dead[name] = left
        else:
            self._dead.pop(name, None)
            self._judges.pop(name, None)


def _switch_of(server: Server) -> DatapathId:
    """Datapath id of the vswitch. Raises LookupError for a plain server, which is not probed."""
    if server.vswitch is None:
        raise LookupError(f"server {server.name} has no vswitch")
    return server.vswitch.datapath_id


def named(server: str, directions: Collection[LinkDirection]) -> str:
    """Name of a server, with the lost directions of the link."""
    lost = " and ".join(
        link_direction.value for link_direction in LinkDirection if link_direction in directions
    )
    return f"{server} ({lost} is lost in spite of carrier)"
