"""What the conformance suite needs to know of a driver: how to get a device, and its quirks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum

import pytest

from drivers.registry import OPTICAL, OpticalDriver, optical_switch
from hydra.model import CrossConnect, Plane
from hydra.roles import OpticalSwitch
from mininet_scenarios.emulators.admin import AdminClient
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.patience import PATIENCE_S


class Deviation(Enum):
    """A way in which a device may differ from the contract; a candidate says why.

    Tests assert what the deviating device does instead: nothing is skipped.
    """

    ITEMS_ARE_MADE_ONE_BY_ONE = "a change that fails may leave a part of it made"
    NOT_ON_THE_NETWORK = "there is nothing to connect to"
    NO_SECOND_SESSION = "the device serves one session at a time"
    FIRST_AND_LAST_RACE = "the first and the last cross-connect overwrite those that others make"


@dataclass(frozen=True)
class Bench:
    """A device that the suite may play with, and its wiring: nothing."""

    plane: Plane
    """What the registry builds a driver from."""
    timeout_s: float = PATIENCE_S
    admin: AdminClient | None = None
    """Of an emulator: makes it fail, and counts its moves. None for hardware and real servers."""

    def driver(self, *, timeout_s: float | None = None, name: str = "") -> OpticalSwitch:
        """A driver of the device, not connected yet."""
        plane = self.plane
        if name:
            plane = Plane(
                plane.id, name, plane.driver, plane.address, plane.ports,
                plane.switching_ms, plane.rate_mbps, plane.login, plane.options,
            )  # fmt: skip
        return optical_switch(plane, self.timeout_s if timeout_s is None else timeout_s)

    @property
    def module(self) -> OpticalDriver:
        return OPTICAL[self.plane.driver]

    def moves(self) -> int:
        """Commands that moved mirrors so far; 0 where nobody counts."""
        return 0 if self.admin is None else self.admin.counters().moves


@dataclass(frozen=True, eq=False)
class Candidate:
    """One entry of the suite's table: a driver and a device to hold it against.

    Hashable, by its identity: pytest brings tests of what is not into no useful order, and starts
    the device anew for most of them.
    """

    driver: str
    start: Callable[[], AbstractContextManager[Bench]]
    variant: str = ""
    """Tells apart candidates of one driver."""
    faults: frozenset[FaultKind] = frozenset()
    """Those that ``Bench.admin`` can arm; tests of others don't run."""
    deviations: Mapping[Deviation, str] = field(default_factory=dict)
    """Each with its reason."""
    marks: tuple[pytest.MarkDecorator, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.driver}-{self.variant}" if self.variant else self.driver


@dataclass(frozen=True)
class Slots:
    """Ports of a device that nobody uses: the suite counts them from 0 and touches no others."""

    ingress: tuple[int, ...]
    egress: tuple[int, ...]

    def cross(self, a: int, b: int) -> CrossConnect:
        return CrossConnect(self.ingress[a], self.egress[b])

    def many(self, *pairs: tuple[int, int]) -> frozenset[CrossConnect]:
        return frozenset(self.cross(a, b) for a, b in pairs)
