"""TLS of switches' connections, taken off and put on by a thread of its own.

What is inside is then served as connections without TLS are: the loop that decides has no part in
it, so that echoes are answered while it is busy, or while another switch sends without pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from apps.openflow.seam import SOCKET_S, OpenFlowTls
from apps.process.certificates import Renewable

_READ_BYTES: Final = 65536
_OTHER_WAY_S: Final = 0.1
"""Until a direction goes on that waits for the other one, as at a renewal of keys."""


def _context(tls: OpenFlowTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    tls.load_into(context)
    return context


class TlsThread:
    """Gives each connection on TLS a plain one, whose bytes it carries over."""

    def __init__(self, tls: OpenFlowTls) -> None:
        """Raises HydraError if the files can't be used."""
        self._files = Renewable(tls.paths, lambda: _context(tls))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="openflow-tls", daemon=True).start()

    @contextlib.asynccontextmanager
    async def inside(self, connection: socket.socket) -> AsyncIterator[socket.socket]:
        """The plain connection, once the handshake is done; used in the loop of the caller.

        ``connection`` stays the caller's. Once it is shut down, the plain one ends; on leaving,
        what was sent is sent on, for as long as the other end reads. Raises OSError.
        """
        connection.setblocking(False)
        carried = _Carried(
            self._loop,
            self._files.context().wrap_socket(
                connection.dup(), server_side=True, do_handshake_on_connect=False
            ),
        )
        await self._there(carried.shake_hands())
        try:
            yield carried.plain
        finally:
            carried.plain.close()
            await self._there(carried.ended())

    async def _there(self, coroutine: Coroutine[Any, Any, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))


class _Carried:
    """One connection on TLS, and both ends of the plain one; used in the thread's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, outer: ssl.SSLSocket) -> None:
        self._loop = loop
        self._outer = outer
        self.plain, self._inner = socket.socketpair()
        self._inner.setblocking(False)
        self._directions: tuple[asyncio.Task[None], ...] = ()

    async def shake_hands(self) -> None:
        """Return once what comes in is carried over. Raises OSError."""
        try:
            while True:
                try:
                    self._outer.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await self._readable()
                except ssl.SSLWantWriteError:
                    await self._writable()
        except BaseException:
            self.plain.close()
            self._close()
            raise
        create = self._loop.create_task
        self._directions = create(self._inwards()), create(self._outwards())

    async def ended(self) -> None:
        """Return once both directions have ended."""
        await asyncio.gather(*self._directions)
        self._close()

    def _close(self) -> None:
        self._outer.close()
        self._inner.close()

    async def _inwards(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self._read():
                await self._loop.sock_sendall(self._inner, data)
                await asyncio.sleep(0)  # other switches have their turn
        with contextlib.suppress(OSError):
            self._inner.shutdown(socket.SHUT_WR)

    async def _outwards(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self._loop.sock_recv(self._inner, _READ_BYTES):
                await self._write(data)
                await asyncio.sleep(0)
            self._outer.unwrap()  # says that nothing more comes; what follows is not waited for
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._outer, socket.SHUT_RDWR)  # its own would forget its TLS

    async def _read(self) -> bytes:
        while True:
            try:
                return self._outer.recv(_READ_BYTES)
            except ssl.SSLWantReadError:
                await self._readable()
            except ssl.SSLWantWriteError:
                await asyncio.sleep(_OTHER_WAY_S)

    async def _write(self, data: bytes) -> None:
        """Raises TimeoutError, an OSError, if the switch reads nothing for too long."""
        left = memoryview(data)
        while left:
            try:
                left = left[self._outer.send(left) :]
            except ssl.SSLWantWriteError:
                await asyncio.wait_for(self._writable(), SOCKET_S)
            except ssl.SSLWantReadError:
                await asyncio.sleep(_OTHER_WAY_S)

    async def _readable(self) -> None:
        await self._happens(self._loop.add_reader, self._loop.remove_reader)

    async def _writable(self) -> None:
        await self._happens(self._loop.add_writer, self._loop.remove_writer)

    async def _happens(
        self, add: Callable[..., object], remove: Callable[[ssl.SSLSocket], object]
    ) -> None:
        happened = self._loop.create_future()
        add(self._outer, happened.set_result, None)
        try:
            await happened
        finally:
            remove(self._outer)
