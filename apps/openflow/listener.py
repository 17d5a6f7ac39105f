"""Accepts connections of switches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

from apps.openflow import interface, limits, refusals
from apps.openflow.interface import Peer
from apps.openflow.limits import BACKLOG, HANDSHAKES, HANDSHAKES_LOOK_S
from apps.process.admitted_connections import RETRY_S, Door
from hydra.errors import HydraError

LOG = logging.getLogger("hydra.framework")
Serve = Callable[[socket.socket, Peer], Coroutine[Any, Any, None]]
"""Serve a connection (socket, address of the peer) until the end; raise the connection's error."""
Refused = Callable[[str, str], None]
"""Report a refused connection: (address with port, cause with remedy)."""


class Listener:
    """Admits switches, only as many at a time as handshakes can be completed soon; reports
    failures.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        door: Door,
        address: tuple[str, int],
        serve: Serve,
        refused: Refused,
    ) -> None:
        """``serve`` closes the given connection. Raises HydraError if ``address`` can't be used."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            self.server = socket.create_server(
                address, family=family, backlog=BACKLOG, dualstack_ipv6=family == socket.AF_INET6
            )
        except OSError as error:
            place = interface.address_in_words(address)
            raise HydraError(
                f"controller.openflow: can't listen at {place}: {error.strerror}"
            ) from error
        self.server.setblocking(False)
        self._loop = loop
        self._door = door
        self._serve = serve
        self._refused = refused
        self._arrived: asyncio.Queue[tuple[socket.socket, Peer]] = asyncio.Queue()
        self._unsettled: dict[Peer, socket.socket] = {}
        """Connections in the middle of their handshake, by their other end."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._loop.add_reader(self.server, self._accept)
        self._spawn(self._let_in())

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self) -> None:
        try:
            connection, peer = self.server.accept()
        except BlockingIOError:
            return
        except OSError as error:
            self._door.failed(error)
            self._loop.remove_reader(self.server)
            self._loop.call_later(RETRY_S, self._loop.add_reader, self.server, self._accept)
            return
        if self._door.enter(peer[0]):
            self._arrived.put_nowait((connection, peer))
        else:
            connection.close()

    async def _let_in(self) -> None:
        """Serve arriving connections, each once the loop is done with most earlier handshakes.

        A silent connection gives the loop nothing to do, and delays no other connection.
        """
        while True:
            connection, peer = await self._arrived.get()
            self._unsettled[peer] = connection
            self._spawn(self._serve_one(connection, peer))
            busy = True
            while busy and len(self._unsettled) >= HANDSHAKES:
                before_s = time.thread_time()
                await asyncio.sleep(HANDSHAKES_LOOK_S)
                busy = time.thread_time() - before_s > HANDSHAKES_LOOK_S / 4

    def settle(self, peer: Peer) -> None:
        """Note that a switch has completed its handshake."""
        self._unsettled.pop(peer, None)

    async def _serve_one(self, connection: socket.socket, peer: Peer) -> None:
        timer = self._loop.call_later(limits.HANDSHAKE_S, self._look, peer)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._serve(connection, peer)
        except Exception as error:  # also any exception of the package about a message
            self._report_end(peer, error)
        finally:
            timer.cancel()
            connection.close()
            self._unsettled.pop(peer, None)
            self._door.leave(peer[0])

    def _report_end(self, peer: Peer, error: BaseException) -> None:
        """Report why a connection ended without becoming a switch's."""
        if (why := refusals.of_mismatch(error)) is not None:
            self._refused(interface.address_in_words(peer), why)
        elif isinstance(error, OSError):
            LOG.warning("%s is not let in as a switch: %s", peer[0], error)
        else:
            LOG.warning("%s is cut off: no switch sends such a message: %r", peer[0], error)

    def _look(self, peer: Peer) -> None:
        connection = self._unsettled.get(peer)
        if connection is not None:
            LOG.warning("%s has not become a switch within %s s", peer[0], limits.HANDSHAKE_S)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
