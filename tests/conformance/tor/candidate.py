"""What the conformance suite of ToR switches needs to know of a driver: how to get a device, and
its quirks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum

import pytest

from drivers.registry import TOR, TorDriver, tor_switch
from hydra.model import Rack
from hydra.roles import TorSwitch
from mininet_scenarios.emulators.admin import AdminClient
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.patience import PATIENCE_S


class TorDeviation(Enum):
    """A way in which a switch may differ from the contract; a candidate says why.

    Tests assert what the deviating switch does instead: nothing is skipped.
    """

    NO_VLANS = "ports have no VLANs: none are read, and any that are asked for are refused"
    NO_COUNTERS = "no counters come: asking for them says so"
    NO_SECOND_SESSION = "the switch serves one session at a time"


@dataclass(frozen=True)
class TorBench:
    """A switch that the suite may play with."""

    rack: Rack
    """What the registry builds a driver from."""
    ports: tuple[str, ...]
    """Four or more that nobody uses."""
    timeout_s: float = PATIENCE_S
    admin: AdminClient | None = None
    """Of an emulator: makes it fail, and counts its changes. None for others."""

    def driver(self, *, timeout_s: float | None = None) -> TorSwitch:
        """A driver of the switch, not connected yet."""
        return tor_switch(self.rack, self.timeout_s if timeout_s is None else timeout_s)

    def with_tor(self, **changes: object) -> Rack:
        """The rack with another configuration of its ToR."""
        return replace(self.rack, tor=replace(self.rack.tor, **changes))

    @property
    def module(self) -> TorDriver:
        return TOR[self.rack.tor.driver]

    def changes(self) -> int:
        """Commands that changed the switch so far; 0 where nobody counts."""
        return 0 if self.admin is None else self.admin.commands()


@dataclass(frozen=True, eq=False)
class TorCandidate:
    """One entry of the suite's table: a driver and a device to hold it against."""

    driver: str
    start: Callable[[], AbstractContextManager[TorBench]]
    faults: frozenset[FaultKind] = frozenset()
    """Those that ``TorBench.admin`` can arm; tests of others don't run."""
    deviations: Mapping[TorDeviation, str] = field(default_factory=dict)
    """Each with its reason."""
    marks: tuple[pytest.MarkDecorator, ...] = ()
    variant: str = ""
    """Tells apart candidates of one driver."""

    @property
    def id(self) -> str:
        return f"{self.driver}-{self.variant}" if self.variant else self.driver
