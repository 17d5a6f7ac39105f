"""Messages between the controller and the agents on servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hydra.errors import HydraError
from hydra.forwarding.class_table import TcpConnection


class AgentTrouble(StrEnum):
    """Errors of a report."""

    MALFORMED = "agent report malformed"
    UNKNOWN_RACK = "agent report names an unknown rack"
    OWN_RACK = "agent report names its own rack"
    FOREIGN = "agent speaks for another server"
    TOO_OFTEN = "agent reports too often"
    UNCONFIRMED = "backlog without traffic"
    """Backlog reported for a while without a counted byte: a false report, or a dead connection."""


class WrongReport(HydraError):
    """A report that no honest agent of the fabric sends; changes nothing."""


class ForeignServer(HydraError):
    """An agent with a token of another server."""


class TooOften(HydraError):
    """Reports arrive faster than agents read their sockets."""


class TooManyFollowers(HydraError):
    """More followers of a server's circuits than an agent ever needs."""


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """Settings of an agent."""

    server: str
    rack: str
    prefixes: Mapping[str, tuple[str, ...]]
    """Prefixes of every other rack, by rack name."""
    report_above_mb: float
    report_change_mb: float
    sample_s: float
    report_gap_s: float
    repeat_s: float
    elephant_mb: float | None
    """None: elephant connections are not needed."""
    elephant_idle_s: float
    link_mbps: float
    """Rate of the server's link."""
    optical_share: float
    """Share of the link for racks with circuits; 0: no output scheduling."""
    revision: str
    """Changes with every change of the setup."""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    server: str
    age_s: float
    """Time since the last report."""
    stale: bool
    waiting_mb: float


class AgentService(Protocol):
    """Thread-safe; no method waits."""

    def setup(self, server: str) -> AgentSetup:
        """Setup of an agent. Raises UnknownName."""

    def take_report(
        self,
        server: str,
        backlog_mb: Mapping[str, float],
        elephants: frozenset[TcpConnection] = frozenset(),
        connections: Mapping[str, int] | None = None,
    ) -> str:
        """Take a complete report: backlog in MB and active connections, by rack.

        ``connections`` None: unchanged since the last report.

        Returns the revision of the setup in force. Raises UnknownName, WrongReport, TooOften.
        """

    def circuits(self, server: str) -> tuple[str, ...]:
        """Names of racks with a path of circuits from the server's rack, without racks whose path
        is being moved. Raises UnknownName.
        """

    def following(self, server: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``wake``, in any thread, after each change of :meth:`circuits` of the server.

        Raises UnknownName, TooManyFollowers.
        """

    def note(self, trouble: AgentTrouble, sender: str, detail: str) -> None:
        """Count the error of a rejected report."""

    def agents(self) -> Sequence[AgentStatus]:
        """Agents that have reported since the start."""
