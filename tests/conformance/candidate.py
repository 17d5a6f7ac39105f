"""Drivers for the conformance suite: how to make a device, and the device's deviations."""

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
    """A permitted deviation of a device from the contract; the candidate gives the reason.

    Tests assert the deviating behaviour: no test is skipped.
    """

    ITEMS_ARE_MADE_ONE_BY_ONE = "a change that fails may leave a part of it made"
    NOT_ON_THE_NETWORK = "there is nothing to connect to"
    NO_SECOND_SESSION = "the device serves one session at a time"
    FIRST_AND_LAST_RACE = "the first and the last cross-connect overwrite those that others make"


@dataclass(frozen=True)
class Bench:
    """A device for the suite; its ports are wired to nothing."""

    plane: Plane
    """The plane from which the registry builds a driver."""
    timeout_s: float = PATIENCE_S
    admin: AdminClient | None = None
    """Admin client of an emulator: injects faults, and counts moves. None for hardware and real
    servers.
    """

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
        """Number of commands that have moved mirrors; 0 without a counter."""
        return 0 if self.admin is None else self.admin.counters().moves


@dataclass(frozen=True, eq=False)
class Candidate:
    """An entry of the suite's table: a driver and a device.

    Hashable by identity: with unhashable parameters, pytest orders tests badly, and starts the
    device anew for most tests.
    """

    driver: str
    start: Callable[[], AbstractContextManager[Bench]]
    variant: str = ""
    """Distinguishes candidates of the same driver."""
    faults: frozenset[FaultKind] = frozenset()
    """Faults that ``Bench.admin`` can inject; tests of other faults don't run."""
    deviations: Mapping[Deviation, str] = field(default_factory=dict)
    """Deviations, each with its reason."""
    marks: tuple[pytest.MarkDecorator, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.driver}-{self.variant}" if self.variant else self.driver


@dataclass(frozen=True)
class Slots:
    """Unused ports of a device: the suite counts the ports from 0 and touches no others."""

    ingress: tuple[int, ...]
    egress: tuple[int, ...]

    def cross(self, a: int, b: int) -> CrossConnect:
        return CrossConnect(self.ingress[a], self.egress[b])

    def many(self, *pairs: tuple[int, int]) -> frozenset[CrossConnect]:
        return frozenset(self.cross(a, b) for a, b in pairs)
