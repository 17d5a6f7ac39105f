"""What servers' agents report to have waiting, and how much of it is believed.

A report is data from a server, which may be wrong or lie. It is believed only where the counters in
the data plane, which servers can't write, see such traffic: waiting bytes of a connection that
works are bytes of which some are on their way. And no server can want to send more than its link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import RackId
from hydra.policy import AgentPolicy, CurrentPolicy

_STALE_REPEATS: Final = 3
_MBIT_PER_MB: Final = 8.0


@dataclass(frozen=True, slots=True)
class ReportedBacklog:
    """Backlogs that count: arrays of one length."""

    server: NDArray[np.intp]
    rack: NDArray[np.intp]
    """Where it is to go."""
    mb: NDArray[np.float64]
    since_s: NDArray[np.float64]
    """When the server first said so, and has ever since."""


@dataclass(frozen=True, slots=True, eq=False)
class Believed:
    """Backlogs as far as they are believed: arrays of one length."""

    server: NDArray[np.intp]
    rack: NDArray[np.intp]
    """Where it is to go."""
    mbps: NDArray[np.float64]
    """As a rate beside what is counted already."""


@dataclass(frozen=True, slots=True)
class _Report:
    heard_s: float
    mb: Mapping[RackId, float]
    since_s: Mapping[RackId, float]


_SILENT: Final = _Report(-math.inf, {}, {})


@dataclass(slots=True)
class BacklogReports:
    """The last report of each server; one that is stale counts for nothing."""

    policy: CurrentPolicy
    _reports: dict[int, _Report] = field(init=False, default_factory=dict)

    def take(self, server: int, backlog_mb: Mapping[RackId, float], now_s: float) -> None:
        """A report replaces the one before: what it does not name does not wait."""
        before = self._reports.get(server, _SILENT)
        known = {} if self._is_stale(before, now_s) else before.since_s
        self._reports[server] = _Report(
            now_s, dict(backlog_mb), {rack: known.get(rack, now_s) for rack in backlog_mb}
        )

    def _is_stale(self, report: _Report, now_s: float) -> bool:
        repeat_s = self.policy.now.agents.repeat_s
        return not 0 <= now_s - report.heard_s <= _STALE_REPEATS * repeat_s

    def servers(self) -> list[int]:
        """All that have reported."""
        return list(self._reports)

    def heard_s(self, server: int) -> float:
        """When the server reported last; minus infinity before it has."""
        return self._reports.get(server, _SILENT).heard_s

    def waiting_mb(self, server: int) -> float:
        """All that its last report names."""
        return sum(self._reports.get(server, _SILENT).mb.values())

    def stale(self, server: int, now_s: float) -> bool:
        """Whether it has not reported lately."""
        return self._is_stale(self._reports.get(server, _SILENT), now_s)

    def in_force(self, now_s: float) -> ReportedBacklog:
        rows = [
            (server, rack, mb, report.since_s[rack])
            for server, report in self._reports.items()
            if not self._is_stale(report, now_s)
            for rack, mb in report.mb.items()
        ]
        table = np.array(rows, dtype=np.float64).reshape(-1, 4)
        server, rack = table[:, 0].astype(np.intp), table[:, 1].astype(np.intp)
        return ReportedBacklog(server, rack, table[:, 2], table[:, 3])


def believed_mbps(
    reported: ReportedBacklog,
    counted_mbps: NDArray[np.float64],
    sending_mbps: NDArray[np.float64],
    server_mbps: float,
    policy: AgentPolicy,
) -> NDArray[np.float64]:
    """The rate that each entry of a report adds to what is counted already; shape as ``reported``.

    ``counted_mbps`` is what counters see of each entry's traffic, ``sending_mbps`` of all that its
    server sends, and ``server_mbps`` the rate of a server's link.
    """
    wanted = reported.mb * (_MBIT_PER_MB / policy.empty_within_s)
    confirmed = np.minimum(wanted, policy.confirmed_times * counted_mbps)
    of_server = np.bincount(reported.server, confirmed)[reported.server]
    room = np.maximum(server_mbps - sending_mbps, 0.0)
    fits = np.divide(room, of_server, out=np.ones_like(room), where=of_server > room)
    return confirmed * fits
