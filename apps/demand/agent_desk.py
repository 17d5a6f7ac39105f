"""Receives reports of servers' agents, checks the reports, and derives a demand."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.demand.agent_protocol import (
    AgentSetup,
    AgentStatus,
    AgentTrouble,
    TooManyFollowers,
    TooOften,
    WrongReport,
)
from hydra.demand.reported_backlog import (
    BacklogReports,
    Believed,
    ReportedBacklog,
    believed,
)
from hydra.errors import UnknownName
from hydra.forwarding.class_table import TcpConnection
from hydra.model import Fabric, NetworkState, Pair, RackId, Server
from hydra.names import did_you_mean
from hydra.policy import CurrentPolicy, Policy
from hydra.reconfiguration.plan import pair_of

LOG = logging.getLogger("hydra.agents")
_SHORTEST_GAP: Final = 0.5
"""Share of ``sample_s``: faster reports are a flood; the network may bunch reports a little."""
_GRACE_S: Final = 5.0
"""Time for the counters to see the traffic of an agent's report."""

_MOST_FOLLOWERS: Final = 4
"""An agent follows once, and again while the loss of an earlier connection is unnoticed."""

StateAndMoving = tuple[NetworkState, Collection[Pair]]
Counted = Callable[
    [NDArray[np.intp], NDArray[np.intp]], tuple[NDArray[np.float64], NDArray[np.float64]]
]
"""From (servers, destination racks) to the counted Mbps of each, and each server's Mbps in all."""


class AgentDesk:
    """Implements :class:`hydra.demand.agent_protocol.AgentService`."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        standing: Callable[[], StateAndMoving],
        clock: Callable[[], float] = time.monotonic,
        on_elephants: Callable[[Server], None] = lambda _server: None,
    ) -> None:
        """``standing`` returns the network's state, and the rack pairs being moved.

        ``on_elephants`` is called when the elephants of a server have changed; must be quick.
        """
        self._fabric = fabric
        self._standing = standing
        self._clock = clock
        self._index = {server.name: index for index, server in enumerate(fabric.servers)}
        self._rack_of = np.array([server.rack for server in fabric.servers], dtype=np.intp)
        self._lock = threading.Lock()
        self._troubles: Counter[AgentTrouble] = Counter()
        self._doubted: set[tuple[int, int]] = set()
        self._optical: tuple[StateAndMoving, Mapping[RackId, tuple[str, ...]]] | None = None
        self._followers: dict[int, list[Callable[[], None]]] = {}
        self._announced: Mapping[RackId, tuple[str, ...]] = {}
        self._following = threading.Lock()
        self._policy = policy
        self._book = BacklogReports(policy)
        self._elephants: dict[int, frozenset[TcpConnection]] = {}
        self._on_elephants = on_elephants
        self._revised: tuple[Policy, Sequence[str]] | None = None

    def _revision(self, own: Server) -> str:
        """A word that changes with the setup of the server's agent."""
        policy, known = self._policy.now, self._revised
        if known is None or known[0] is not policy:
            known = self._revised = policy, self._revisions(policy)
        return known[1][own.rack]

    def _revisions(self, policy: Policy) -> Sequence[str]:
        """A revision for each rack, since a setup names the other racks."""
        racks = [(rack.name, rack.prefixes) for rack in self._fabric.racks]
        words = (policy.agents, policy.sharing.elephants_only, self._fabric.server_rate_mbps, racks)
        common = hashlib.sha256(repr(words).encode())
        found = []
        for name, _ in racks:
            hashed = common.copy()
            hashed.update(name.encode())
            found.append(hashed.hexdigest()[:12])
        return found

    # -- agents' requests -----------------------------------------------------------------------

    def setup(self, server: str) -> AgentSetup:
        """The setup of a server's agent. Raises UnknownName."""
        own = self._server(server)
        racks = self._fabric.racks
        policy = self._policy.now.agents
        wanted = self._policy.now.sharing.elephants_only
        return AgentSetup(
            server=own.name,
            rack=racks[own.rack].name,
            prefixes={
                rack.name: tuple(map(str, rack.prefixes))
                for rack in racks
                if rack.prefixes and rack.id != own.rack
            },
            report_above_mb=policy.report_above_mb,
            report_change_mb=policy.report_change_mb,
            sample_s=policy.sample_s,
            report_gap_s=policy.report_gap_s,
            repeat_s=policy.repeat_s,
            elephant_mb=policy.elephant_mb if wanted else None,
            elephant_idle_s=policy.elephant_idle_s,
            link_mbps=self._fabric.server_rate_mbps,
            optical_share=policy.optical_share,
            revision=self._revision(own),
        )

    def _server(self, name: str) -> Server:
        known = self._fabric.server_by_name
        if name not in known:
            raise UnknownName(f"no server {name!r}{did_you_mean(name, known)}")
        return known[name]

    def take_report(
        self,
        server: str,
        backlog_mb: Mapping[str, float],
        elephants: frozenset[TcpConnection] = frozenset(),
        connections: Mapping[str, int] | None = None,
    ) -> str:
        """As in AgentService."""
        own = self._server(server)
        by_rack = {self._destination(own, name): mb for name, mb in backlog_mb.items()}
        many = None
        if connections is not None:
            many = {self._destination(own, name): n for name, n in connections.items()}
        now_s = self._clock()
        index = self._index[server]
        with self._lock:
            gap_s = self._policy.now.agents.sample_s * _SHORTEST_GAP
            flooded = 0 <= now_s - self._book.received_s(index) < gap_s
            changed = not flooded and elephants != self._elephants.get(index, frozenset())
            if not flooded and self._book.stale(index, now_s):
                # The switch may have dropped the elephants of the last report meanwhile.
                changed = changed or bool(elephants)
            if not flooded:
                self._book.take(index, by_rack, many, now_s)
                self._elephants[index] = elephants
        if flooded:
            self.note(AgentTrouble.TOO_OFTEN, server, f"less than {gap_s:g} s apart")
            raise TooOften(f"{server} reports less than {gap_s:g} s after its last report")
        if changed:
            self._on_elephants(own)
        return self._revision(own)

    def _destination(self, own: Server, name: str) -> RackId:
        """The rack with the reported name. Raises WrongReport."""
        rack = self._fabric.rack_by_name.get(name)
        if rack is None or rack.spine:
            self.note(AgentTrouble.UNKNOWN_RACK, own.name, repr(name))
            raise WrongReport(
                f"{own.name} names {name!r}, no rack of servers here: fetch the setup anew"
            )
        if rack.id == own.rack:
            self.note(AgentTrouble.OWN_RACK, own.name, name)
            raise WrongReport(f"{own.name} is in {name} itself: no circuit leads there")
        return rack.id

    def circuits(self, server: str) -> tuple[str, ...]:
        """As in AgentService."""
        return self._joined().get(self._server(server).rack, ())

    def _joined(self) -> Mapping[RackId, tuple[str, ...]]:
        """Names of the racks with circuits to each rack."""
        standing, known = self._standing(), self._optical
        (state, moving) = standing
        if known is None or state is not known[0][0] or moving != known[0][1]:
            known = self._optical = standing, self._neighbours(state, moving)
        return known[1]

    def _neighbours(
        self, state: NetworkState, moving: Collection[Pair]
    ) -> Mapping[RackId, tuple[str, ...]]:
        found: dict[RackId, set[str]] = {}
        for path in state.topology.paths:
            if pair_of(path) not in moving:
                for src, other in path.directions:
                    found.setdefault(src, set()).add(self._fabric.racks[other].name)
        return {rack: tuple(sorted(names)) for rack, names in found.items()}

    @contextmanager
    def following(self, server: str, wake: Callable[[], None]) -> Iterator[None]:
        """As in AgentService."""
        own, now = self._server(server), self._joined()
        with self._following:
            if not self._followers:
                self._announced = now
            wakers = self._followers.setdefault(self._index[server], [])
            if len(wakers) >= _MOST_FOLLOWERS:
                raise TooManyFollowers(
                    f"{own.name} follows its circuits {len(wakers)} times already"
                )
            wakers.append(wake)
        try:
            yield
        finally:
            with self._following:
                wakers.remove(wake)
                if not wakers:
                    del self._followers[self._index[server]]

    def circuits_may_have_changed(self) -> None:
        """Wake followers whose circuits have changed since the last call; quick."""
        if not self._followers:
            return
        now = self._joined()
        with self._following:
            before, self._announced = self._announced, now
            if now is before:
                return
            wakers = [
                wake
                for server, some in self._followers.items()
                if now.get(rack := self._fabric.servers[server].rack) != before.get(rack)
                for wake in some
            ]
        for wake in wakers:
            wake()

    def note(self, trouble: AgentTrouble, sender: str, detail: str) -> None:
        """Count a fault of a report that was not accepted."""
        with self._lock:
            self._troubles[trouble] += 1
            first = self._troubles[trouble] == 1
        if first:
            LOG.warning(
                "%s: %s (%s); the report moves nothing, and further cases are only counted",
                sender,
                trouble.value,
                detail,
            )

    # -- the controller's requests --------------------------------------------------------------

    def backlog(self, counted: Counted) -> Believed:
        """Credible backlog, as a rate beside the counted rate."""
        now_s = self._clock()
        self._forget_elephants(now_s)
        with self._lock:
            reported = self._book.in_force(now_s)
        seen_mbps, sending_mbps = counted(reported.server, reported.rack)
        self._doubt(reported, seen_mbps, now_s)
        link_mbps = self._fabric.server_rate_mbps
        return believed(reported, seen_mbps, sending_mbps, link_mbps, self._policy.now)

    def _forget_elephants(self, now_s: float) -> None:
        """Forget the elephants of servers with silent agents."""
        with self._lock:
            silent = [
                index
                for index, some in self._elephants.items()
                if some and self._book.stale(index, now_s)
            ]
            for index in silent:
                del self._elephants[index]
        for index in silent:
            self._on_elephants(self._fabric.servers[index])

    def _doubt(
        self, reported: ReportedBacklog, seen_mbps: NDArray[np.float64], now_s: float
    ) -> None:
        """Count entries that no counter confirms, once per continuous report."""
        alone = (seen_mbps == 0) & (reported.mb > 0) & (now_s - reported.since_s > _GRACE_S)
        doubted = set(
            zip(reported.server[alone].tolist(), reported.rack[alone].tolist(), strict=True)
        )
        with self._lock:
            fresh, self._doubted = doubted - self._doubted, doubted
        for server, rack in sorted(fresh):
            detail = f"for {self._fabric.racks[rack].name}"
            self.note(AgentTrouble.UNCONFIRMED, self._fabric.servers[server].name, detail)

    def agents(self) -> Sequence[AgentStatus]:
        """Agents that have reported since the start, by name."""
        now_s = self._clock()
        with self._lock:
            found = [
                AgentStatus(
                    self._fabric.servers[index].name,
                    now_s - self._book.received_s(index),
                    self._book.stale(index, now_s),
                    self._book.waiting_mb(index),
                )
                for index in self._book.servers()
            ]
        return sorted(found, key=lambda agent_status: agent_status.server)

    def elephants(self, server: Server) -> frozenset[TcpConnection]:
        """The connections that a server's agent reports as elephants; none if the report is
        stale.
        """
        index = self._index[server.name]
        with self._lock:
            if self._book.stale(index, self._clock()):
                return frozenset()
            return self._elephants.get(index, frozenset())

    def troubles(self) -> Mapping[str, int]:
        """Reports refused or not credible since the start, by cause."""
        with self._lock:
            return {trouble.value: count for trouble, count in self._troubles.items()}
