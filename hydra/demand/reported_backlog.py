"""Backlog reported by server agents, and its credible part.

A report is data from a server, and may be wrong or false. A report counts only if counters in the
data plane, which servers cannot write, see such traffic: a working connection with a backlog has
bytes in flight. No server can send more than the rate of its link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import RackId
from hydra.policy import CurrentPolicy, Policy

_STALE_REPEATS: Final = 3
_MBIT_PER_MB: Final = 8.0


@dataclass(frozen=True, slots=True)
class ReportedBacklog:
    """Valid backlogs: arrays of the same length."""

    server: NDArray[np.intp]
    rack: NDArray[np.intp]
    """Destination rack."""
    mb: NDArray[np.float64]
    connections: NDArray[np.float64]
    """Number of connections with data to send; 0 if unknown."""
    since_s: NDArray[np.float64]
    """Start of the continuous backlog reported by the server; without a backlog, the last
    report.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Believed:
    """Credible backlogs: arrays of the same length."""

    server: NDArray[np.intp]
    rack: NDArray[np.intp]
    """Destination rack."""
    mbps: NDArray[np.float64]
    """Rate in addition to the counted rate."""
    volume_mbps: NDArray[np.float64]
    """Rate that sends only the backlog, within ``gain_horizon_s``."""
    connections: NDArray[np.float64]
    """Number of connections with data to send; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class _Report:
    received_s: float
    mb: Mapping[RackId, float]
    connections: Mapping[RackId, int]
    since_s: Mapping[RackId, float]


_SILENT: Final = _Report(-math.inf, {}, {}, {})


@dataclass(slots=True)
class BacklogReports:
    """The last report of each server; stale reports are ignored."""

    policy: CurrentPolicy
    _reports: dict[int, _Report] = field(init=False, default_factory=dict)

    def take(
        self,
        server: int,
        backlog_mb: Mapping[RackId, float],
        connections: Mapping[RackId, int] | None,
        now_s: float,
    ) -> None:
        """Replace the report of a server: racks without an entry have no backlog.

        ``connections`` None: as in the previous report.
        """
        before = self._reports.get(server, _SILENT)
        if self._is_stale(before, now_s):
            before = _SILENT
        if connections is None:
            connections = before.connections
        racks = backlog_mb.keys() | connections.keys()
        since_s = {
            rack: before.since_s[rack] if before.mb.get(rack) and backlog_mb.get(rack) else now_s
            for rack in racks
        }
        self._reports[server] = _Report(now_s, dict(backlog_mb), dict(connections), since_s)

    def _is_stale(self, report: _Report, now_s: float) -> bool:
        repeat_s = self.policy.now.agents.repeat_s
        return not 0 <= now_s - report.received_s <= _STALE_REPEATS * repeat_s

    def servers(self) -> list[int]:
        """All servers that have reported."""
        return list(self._reports)

    def received_s(self, server: int) -> float:
        """Time of the last report; minus infinity before the first report."""
        return self._reports.get(server, _SILENT).received_s

    def waiting_mb(self, server: int) -> float:
        """Total backlog in the last report."""
        return sum(self._reports.get(server, _SILENT).mb.values())

    def stale(self, server: int, now_s: float) -> bool:
        """True if the server has not reported recently."""
        return self._is_stale(self._reports.get(server, _SILENT), now_s)

    def in_force(self, now_s: float) -> ReportedBacklog:
        rows = [
            (server, rack, report.mb.get(rack, 0.0), report.connections.get(rack, 0), since_s)
            for server, report in self._reports.items()
            if not self._is_stale(report, now_s)
            for rack, since_s in report.since_s.items()
        ]
        table = np.array(rows, dtype=np.float64).reshape(-1, 5)
        server, rack = table[:, 0].astype(np.intp), table[:, 1].astype(np.intp)
        return ReportedBacklog(server, rack, *table[:, 2:].T)


def believed(
    reported: ReportedBacklog,
    counted_mbps: NDArray[np.float64],
    sending_mbps: NDArray[np.float64],
    server_mbps: float,
    policy: Policy,
) -> Believed:
    """Part of each entry that the counters confirm; shapes as ``reported``.

    ``counted_mbps`` is the counted rate of each entry, ``sending_mbps`` the counted rate of the
    whole server, ``server_mbps`` the rate of a server link.
    """
    most = policy.agents.confirmed_times * counted_mbps
    beside = np.minimum(reported.mb * (_MBIT_PER_MB / policy.agents.empty_within_s), most)
    alone = np.minimum(reported.mb * (_MBIT_PER_MB / policy.gain_horizon_s), most)
    return Believed(
        reported.server,
        reported.rack,
        _fitted(reported.server, beside, np.maximum(server_mbps - sending_mbps, 0.0)),
        _fitted(reported.server, alone, np.full_like(alone, server_mbps)),
        np.minimum(reported.connections, most),
    )


def _fitted(
    server: NDArray[np.intp], mbps: NDArray[np.float64], room_mbps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Scale rates down if the sum of a server exceeds its room; all shapes are equal."""
    of_server = np.bincount(server, mbps)[server]
    fits = np.divide(room_mbps, of_server, out=np.ones_like(mbps), where=of_server > room_mbps)
    return mbps * fits
