"""Base classes of drivers of optical switches: ports, checks, one caller at a time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import ClassVar, Self

from drivers.exclusive import exclusive
from drivers.optical.changes import Difference, check_numbers, check_ports, difference
from hydra.model import CrossConnect
from hydra.roles import DeviceIdentity, OpticalCapabilities, PortState


class BaseSwitch(ABC):
    """An :class:`~hydra.roles.OpticalSwitch` without the device's own language.

    Abstract methods and methods that begin with an underscore are called by one thread at a time.
    """

    CAPABILITIES: ClassVar[OpticalCapabilities]

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._size: tuple[int, int] | None = None
        self._taken: Mapping[int, str] = {}
        """Ports in use by something other than a cross-connect, with the reason; read with the
        cross-connects.
        """

    # --- the device, in its language --------------------------------------------------------------

    @abstractmethod
    def open(self) -> None:
        """Connect and log in; a second call on an open device does nothing."""

    @abstractmethod
    def _drop(self) -> None:
        """Drop the connection, and all values read for its duration; safe to repeat."""

    @abstractmethod
    def identity(self) -> DeviceIdentity: ...

    @abstractmethod
    def _read_size(self) -> tuple[int, int]:
        """Numbers of (ingress, egress) ports."""

    @abstractmethod
    def cross_connects(self) -> frozenset[CrossConnect]:
        """Cross-connects read from the device, never from memory."""

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        """States of some of ``ports``, at least one, in order; missing ports are UNKNOWN."""
        return dict.fromkeys(ports, PortState.UNKNOWN)

    # --- the role ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> OpticalCapabilities:
        return self.CAPABILITIES

    @exclusive
    def close(self) -> None:
        """Drop the connection; safe to repeat. The next use connects again."""
        self._drop()
        self._size = None

    @exclusive
    def size(self) -> tuple[int, int]:
        """Numbers of (ingress, egress) ports; asked once until closed."""
        if self._size is None:
            self._size = self._read_size()
        return self._size

    @exclusive
    def port_states(self, ports: Collection[int]) -> Mapping[int, PortState]:
        """States of the given ports; UNKNOWN if the driver does not know the device's word."""
        asked = self._asked(ports)
        states = self._read_port_states(asked) if asked else {}
        return {port: states.get(port, PortState.UNKNOWN) for port in asked}

    def _asked(self, ports: Collection[int]) -> list[int]:
        """``ports`` in order, each once. Raises DeviceError for a port that does not exist."""
        asked = sorted(set(ports))
        if asked:
            check_numbers(self._name, asked, 1, sum(self.size()))
        return asked


class ReadBackSwitch(BaseSwitch):
    """A :class:`BaseSwitch` with changes that move only the cross-connects not yet as wanted."""

    @exclusive
    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Tear down, then set up; return once the result was read back.

        Cross-connects already as wanted are left alone, so repeating a change moves nothing.
        """
        check_ports(self._name, self.size(), {*disconnect, *connect})
        change = difference(self._name, self._present(), disconnect, connect)
        if change:
            self._check_light(change.added)
            self._make(change)

    @abstractmethod
    def _make(self, change: Difference) -> None:
        """Tear down, then set up, at least one cross-connect; return once read back."""

    def _present(self) -> frozenset[CrossConnect]:
        """Cross-connects that a change starts from."""
        return self.cross_connects()

    def _check_light(self, added: Collection[CrossConnect]) -> None:
        """Raises DeviceError where light must not move yet; by default, all may."""
        del added
