"""Sockets in all network namespaces of a server, such as those of containers."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar

from apps.agent.sockets import SocketReader, SocketsUnreadable
from hydra.demand.backlog import ConnectionKey, Sending, Waiting

LOG: Final = logging.getLogger("hydra.agent")
_PROC: Final = Path("/proc")
_CLONE_NEWNET: Final = 0x40000000
_SEARCH_S: Final = 5.0
"""Shortest time between two searches for namespaces."""
_SEARCH_PART: Final = 0.01
_READ_PART: Final = 0.05
"""Largest shares of time for the search for other namespaces, and for reading their sockets."""

_Key = TypeVar("_Key")
_Found = TypeVar("_Found")


class OtherNamespaces:
    """Readers of this machine's network namespaces with processes, except the agent's own.

    There are no readers if process 1 has a different namespace than the agent: the agent is then
    inside a container, and reports for the container alone.
    """

    def __init__(self, clock: Callable[[], float], proc: Path) -> None:
        self._clock = clock
        self._proc = proc
        self._readers: dict[int, SocketReader] = {}
        """By inode of the namespace. An open reader keeps its namespace alive."""
        self._search_s = clock()
        self._has_complained = False
        self._own = (proc / "self/ns/net").stat().st_ino
        self._is_the_machines = self._are_seen()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def readers(self) -> list[SocketReader]:
        """Readers as of the last search, which is repeated after five seconds or more."""
        if self._is_the_machines and self._clock() >= self._search_s:
            began_s = self._clock()
            self._search()
            ended_s = self._clock()
            self._search_s = ended_s + max(_SEARCH_S, (ended_s - began_s) / _SEARCH_PART)
        return list(self._readers.values())

    def drop(self, reader: SocketReader) -> None:
        """Close a failed reader; the next search makes a new reader."""
        for inode, known in list(self._readers.items()):
            if known is reader:
                del self._readers[inode]
        reader.close()

    def _are_seen(self) -> bool:
        try:
            return (self._proc / "1/ns/net").stat().st_ino == self._own
        except OSError as error:
            self._complain(error)
            return False

    def _search(self) -> None:
        found: dict[int, Path] = {}
        for process in self._proc.iterdir():
            if process.name.isdecimal():
                path = process / "ns/net"
                try:
                    found.setdefault(path.stat().st_ino, path)
                except PermissionError as error:
                    self._complain(error)
                except OSError:
                    pass  # the process has ended
        found.pop(self._own, None)
        for inode in self._readers.keys() - found.keys():
            self._readers.pop(inode).close()
        for inode, path in found.items():
            if inode not in self._readers:
                try:
                    self._readers[inode] = reader_in(path)
                except PermissionError as error:
                    self._complain(error)
                except (OSError, SocketsUnreadable) as error:
                    LOG.debug("network namespace of %s is not read: %s", path, error)

    def _complain(self, error: OSError) -> None:
        if not self._has_complained:
            self._has_complained = True
            LOG.warning(
                "other network namespaces can't be looked into (%s): connections of containers are "
                "not reported; to have them reported, give the agent CAP_SYS_PTRACE and "
                "CAP_SYS_ADMIN (docs/agents.md)",
                error,
            )


class ServerSockets:
    """Sockets of the agent's network namespace and of the server's containers.

    A context manager.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, proc: Path = _PROC) -> None:
        """Raises SocketsUnreadable if the kernel gives no netlink socket."""
        self._own = SocketReader()
        self._others = OtherNamespaces(clock, proc)
        self._waiting = _Paced(clock, SocketReader.waiting)
        self._sending = _Paced(clock, SocketReader.sending)

    def __enter__(self) -> ServerSockets:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._own.close()
        self._others.close()

    def waiting(self) -> Mapping[bytes, Waiting]:
        """Waiting bytes and their connections by destination. Raises SocketsUnreadable."""
        found = self._own.waiting()
        for other in self._waiting.read(self._others):
            for to, (octets, connections) in other.items():
                before = found.get(to, Waiting(0, 0))
                found[to] = Waiting(before.octets + octets, before.connections + connections)
        return found

    def sending(self) -> Mapping[ConnectionKey, Sending]:
        """Waiting and sent bytes by connection; namespaces may have the same addresses and ports.

        Raises SocketsUnreadable.
        """
        found = self._own.sending()
        for other in self._sending.read(self._others):
            for key, (waiting, sent) in other.items():
                before = found.get(key, Sending(0, 0))
                found[key] = Sending(before.waiting + waiting, before.sent + sent)
        return found

    def listening(self) -> list[int]:
        """Listening ports in the agent's own namespace. Raises SocketsUnreadable."""
        return self._own.listening()


class _Paced(Generic[_Key, _Found]):
    """Reads other namespaces, with pauses that limit the share of time spent on reading."""

    def __init__(
        self, clock: Callable[[], float], read: Callable[[SocketReader], dict[_Key, _Found]]
    ) -> None:
        self._clock = clock
        self._read = read
        self._retry_s = clock()
        self._last: list[dict[_Key, _Found]] = []

    def read(self, others: OtherNamespaces) -> list[dict[_Key, _Found]]:
        """A reading of each namespace: the last reading if the next is not due yet."""
        began_s = self._clock()
        if began_s >= self._retry_s:
            self._last = []
            for reader in others.readers():
                try:
                    self._last.append(self._read(reader))
                except SocketsUnreadable as error:
                    LOG.debug("a network namespace is not read: %s", error)
                    others.drop(reader)
            ended_s = self._clock()
            self._retry_s = ended_s + (ended_s - began_s) / _READ_PART
        return self._last


def reader_in(namespace: Path) -> SocketReader:
    """A reader of another network namespace, such as ``/proc/PID/ns/net``.

    A separate thread enters the namespace and ends, so that no other thread of the agent leaves its
    own. Raises OSError and SocketsUnreadable.
    """
    made: list[SocketReader] = []
    failed: list[Exception] = []

    def enter() -> None:
        try:
            descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), str(namespace))
                made.append(SocketReader())
            finally:
                os.close(descriptor)
        except (OSError, SocketsUnreadable) as error:
            failed.append(error)

    thread = threading.Thread(target=enter, name="namespace")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]
