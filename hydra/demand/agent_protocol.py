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
    """Claimed for a while, and no counter has seen a byte of it: a lie, or a dead connection."""


class WrongReport(HydraError):
    """A report that no honest agent of this fabric sends; it changes nothing."""


class ForeignServer(HydraError):
    """An agent's token is good for its own server only."""


class TooOften(HydraError):
    """Reports come faster than agents look at their sockets."""


class TooManyFollowers(HydraError):
    """Error: a server's circuits are followed more often than an agent ever does."""


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """All that an agent has to know beforehand."""

    server: str
    rack: str
    prefixes: Mapping[str, tuple[str, ...]]
    """Prefixes of every other rack, by its name."""
    report_above_mb: float
    report_change_mb: float
    sample_s: float
    report_gap_s: float
    repeat_s: float
    elephant_mb: float | None
    """None: nobody asks which connections are elephants."""
    elephant_idle_s: float
    link_mbps: float
    """The rate of the server's link."""
    optical_share: float
    """Part of the link for racks that circuits lead to; 0: no output scheduling."""
    revision: str
    """Another one after anything here has changed."""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    server: str
    age_s: float
    """Since its last report."""
    stale: bool
    waiting_mb: float


class AgentService(Protocol):
    """Thread-safe; none of it waits for anything."""

    def setup(self, server: str) -> AgentSetup:
        """Raises UnknownName."""

    def hear(
        self,
        server: str,
        backlog_mb: Mapping[str, float],
        elephants: frozenset[TcpConnection] = frozenset(),
        connections: Mapping[str, int] | None = None,
    ) -> str:
        """Take a report in: MB and connections with something to send, by rack, complete.

        ``connections`` are as told before if they are None.

        Returns the revision of the setup that is in force. Raises UnknownName, WrongReport,
        TooOften.
        """

    def circuits(self, server: str) -> tuple[str, ...]:
        """Racks that the server's rack has a path of circuits to, by name; none that is on the
        move. Raises UnknownName.
        """

    def following(self, server: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``wake``, in any thread, whenever :meth:`circuits` of the server has changed.

        Raises UnknownName, TooManyFollowers.
        """

    def note(self, trouble: AgentTrouble, who: str, detail: str) -> None:
        """Count what was wrong with a report that could not be taken in."""

    def agents(self) -> Sequence[AgentStatus]:
        """Agents that have reported since the start."""
