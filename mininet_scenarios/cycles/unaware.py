"""Reports of switches as the papers' prototypes had them: without the state of optical ports."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from apps.openflow.interface import Application, PortInfo, SwitchConnection, SwitchEvents


class Unaware:
    """Events that report the given ports as up, regardless of carrier.

    Helios' topology manager activates a circuit when mirrors have moved (section 4.3.4), and does
    not learn that debounce and EDC keep the port down. The controller takes circuits without
    carrier for dead.
    """

    def __init__(self, events: SwitchEvents, ports: Set[str]) -> None:
        self._events = events
        self._ports = ports

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        return getattr(self._events, name)

    def switch_connected(
        self, datapath: int, connection: SwitchConnection, ports: Mapping[int, PortInfo]
    ) -> None:
        reported = {number: self._always_up(port) for number, port in ports.items()}
        self._events.switch_connected(datapath, connection, reported)

    def port_changed(
        self, datapath: int, connection: SwitchConnection, port: PortInfo, *, deleted: bool
    ) -> None:
        reported = port if deleted else self._always_up(port)
        self._events.port_changed(datapath, connection, reported, deleted=deleted)

    def _always_up(self, port: PortInfo) -> PortInfo:
        return replace(port, up=True) if port.name in self._ports else port


class UnawareApplication:
    """A controller's application with :class:`Unaware` events."""

    def __init__(self, application: Application, ports: Set[str]) -> None:
        self._application = application
        self.events = Unaware(application.events, ports)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        return getattr(self._application, name)
