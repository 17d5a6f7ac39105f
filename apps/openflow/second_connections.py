"""Second connections with a connected datapath id, until the older connection is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from apps.openflow.interface import SwitchConnection
from apps.openflow.refusals import refused_second, replaced_by_second


class Connected(Protocol):
    """A switch, and its connection."""

    @property
    def connection(self) -> SwitchConnection: ...


_ConnectedT = TypeVar("_ConnectedT", bound=Connected)


class SecondConnections(Generic[_ConnectedT]):
    """Newcomers that wait while the older connection is asked for an echo.

    If the older connection answers, the newcomer is closed, else the older connection. For the
    thread of the events.
    """

    def __init__(
        self,
        report: Callable[[int, str, str], None],
        replace: Callable[[int], None],
    ) -> None:
        """``report`` a datapath id's second connection, by cause and text; ``replace``: have the
        newcomers (:meth:`take`) take the place of the connection in use.
        """
        self._report = report
        self._replace = replace
        self._waiting: dict[int, list[_ConnectedT]] = {}

    def of(self, datapath: int) -> tuple[_ConnectedT, ...]:
        """Waiting newcomers."""
        return tuple(self._waiting.get(datapath, ()))

    def wait(
        self,
        datapath: int,
        newcomer: _ConnectedT,
        older: SwitchConnection,
        is_used: Callable[[], bool],
    ) -> None:
        """Keep a new connection waiting for an answer of the ``older`` connection.

        If the older connection is not in use (``is_used``) when the answer comes, newcomers have
        already been admitted.
        """
        waiting = self._waiting.setdefault(datapath, [])
        waiting.append(newcomer)
        if len(waiting) > 1:
            return  # the older connection has been asked

        def answered(alive: bool) -> None:
            if is_used():
                self._settle(datapath, older, alive)

        older.ask(answered)

    def forget(self, datapath: int, connection: SwitchConnection) -> None:
        """Forget a newcomer whose connection has ended."""
        if datapath in self._waiting:
            waiting = self._waiting[datapath]
            waiting[:] = [newcomer for newcomer in waiting if newcomer.connection is not connection]

    def take(self, datapath: int) -> tuple[_ConnectedT, ...]:
        """Remove and return the waiting newcomers."""
        return tuple(self._waiting.pop(datapath, ()))

    def _settle(self, datapath: int, older: SwitchConnection, alive: bool) -> None:
        newcomers = self.of(datapath)
        if alive or not newcomers:
            self.take(datapath)
        if not newcomers:
            return
        of, by = older.address, newcomers[0].connection.address
        if alive:
            self._report(datapath, "refused", refused_second(by, of))
            for newcomer in newcomers:
                newcomer.connection.close()
        else:
            self._report(datapath, "replaced", replaced_by_second(by, of))
            self._replace(datapath)
            older.close()
