"""Common part of drivers of ToR switches that keep a session."""

from __future__ import annotations

import threading
from typing import ClassVar, Protocol

from drivers.exclusive import exclusive
from hydra.roles import TorCapabilities


class Session(Protocol):
    """A way to a switch."""

    def open(self) -> None:
        """Connect; a second call on an open session does nothing. Raises DeviceUnavailable."""

    def close(self) -> None:
        """Drop the connection; safe to repeat. The next use connects again."""


class SessionTor:
    """The first part of a :class:`~hydra.roles.TorSwitch`: its name, capabilities and session."""

    CAPABILITIES: ClassVar[TorCapabilities]

    def __init__(self, name: str, session: Session) -> None:
        self._name = name
        self._lock = threading.RLock()
        self.__session = session

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> TorCapabilities:
        return self.CAPABILITIES

    @exclusive
    def open(self) -> None:
        """Connect; a second call on an open device does nothing. Raises DeviceUnavailable."""
        self.__session.open()

    @exclusive
    def close(self) -> None:
        """Drop the session; safe to repeat. The next use connects again."""
        self.__session.close()
