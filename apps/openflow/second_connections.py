"""Second connections with a datapath id that is connected, until it is known which one stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from apps.openflow.refusals import refused_second, replaced_by_second
from apps.openflow.seam import SwitchConnection


class Connected(Protocol):
    """A switch, and how it is connected."""

    @property
    def connection(self) -> SwitchConnection: ...


_ConnectedT = TypeVar("_ConnectedT", bound=Connected)


class SecondConnections(Generic[_ConnectedT]):
    """A newcomer waits while the older connection is asked for an echo. If that answers, the
    newcomer is closed, else the older one. For the thread that events come in.
    """

    def __init__(
        self,
        tell: Callable[[int, str, str], None],
        replace: Callable[[int], None],
    ) -> None:
        """``tell`` a datapath id's second connection, by cause and text; ``replace``: have the
        newcomers (:meth:`take`) take the place of the connection in use.
        """
        self._tell = tell
        self._replace = replace
        self._waiting: dict[int, list[_ConnectedT]] = {}

    def of(self, datapath: int) -> tuple[_ConnectedT, ...]:
        """Newcomers that wait."""
        return tuple(self._waiting.get(datapath, ()))

    def wait(
        self,
        datapath: int,
        newcomer: _ConnectedT,
        older: SwitchConnection,
        is_used: Callable[[], bool],
    ) -> None:
        """Have a newcomer wait for an answer of the ``older`` connection. If that ``is_used`` no
        more when the answer comes, newcomers have been let in.
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
        """A newcomer's connection has ended."""
        if datapath in self._waiting:
            waiting = self._waiting[datapath]
            waiting[:] = [one for one in waiting if one.connection is not connection]

    def take(self, datapath: int) -> tuple[_ConnectedT, ...]:
        """The newcomers, which wait no more."""
        return tuple(self._waiting.pop(datapath, ()))

    def _settle(self, datapath: int, older: SwitchConnection, alive: bool) -> None:
        newcomers = self.of(datapath)
        if alive or not newcomers:
            self.take(datapath)
        if not newcomers:
            return
        of, by = older.address, newcomers[0].connection.address
        if alive:
            self._tell(datapath, "refused", refused_second(by, of))
            for newcomer in newcomers:
                newcomer.connection.close()
        else:
            self._tell(datapath, "replaced", replaced_by_second(by, of))
            self._replace(datapath)
            older.close()
