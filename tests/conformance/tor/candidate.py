"""Drivers for the conformance suite of ToR switches: how to make a device, and its deviations."""

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
    """A permitted deviation of a switch from the contract; the candidate gives the reason.

    Tests assert the deviating behaviour: no test is skipped.
    """

    NO_VLANS = "ports have no VLANs: none are read, and any that are asked for are refused"
    NO_COUNTERS = "no counters come: asking for them says so"
    NO_SECOND_SESSION = "the switch serves one session at a time"


@dataclass(frozen=True)
class TorBench:
    """A switch for the suite."""

    rack: Rack
    """The rack from which the registry builds a driver."""
    ports: tuple[str, ...]
    """Four or more unused ports."""
    timeout_s: float = PATIENCE_S
    admin: AdminClient | None = None
    """Admin client of an emulator: injects faults, and counts changes. None for other switches."""

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
        """Number of commands that have changed the switch; 0 without a counter."""
        return 0 if self.admin is None else self.admin.commands()


@dataclass(frozen=True, eq=False)
class TorCandidate:
    """An entry of the suite's table: a driver and a device."""

    driver: str
    start: Callable[[], AbstractContextManager[TorBench]]
    faults: frozenset[FaultKind] = frozenset()
    """Faults that ``TorBench.admin`` can inject; tests of other faults don't run."""
    deviations: Mapping[TorDeviation, str] = field(default_factory=dict)
    """Deviations, each with its reason."""
    marks: tuple[pytest.MarkDecorator, ...] = ()
    variant: str = ""
    """Distinguishes candidates of the same driver."""

    @property
    def id(self) -> str:
        return f"{self.driver}-{self.variant}" if self.variant else self.driver
