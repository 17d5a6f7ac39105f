"""TLS of switches' connections, encrypted and decrypted by a separate thread.

The plain side is served like a connection without TLS. The loop that decides takes no part in TLS,
so echoes are answered while the loop is busy, or while another switch sends without pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from apps.openflow.interface import OpenFlowTls
from apps.openflow.limits import SOCKET_S
from apps.process.certificates import Renewable

_READ_BYTES: Final = 65536
"""More than TLS buffers after a read: no bytes stay behind without a wake-up."""
_OTHER_WAY_S: Final = 0.1
"""Delay before a direction that waits for the opposite direction goes on, as at a renewal of
keys.
"""
_NICE: Final = -10
"""As the C thread, whose echoes pass through here."""


def _context(tls: OpenFlowTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    tls.load_into(context)
    return context


class TlsThread:
    """Gives each TLS connection a plain connection, and carries the bytes between the two."""

    def __init__(self, tls: OpenFlowTls) -> None:
        """Raises HydraError if the files can't be used."""
        self._files = Renewable(tls.paths, lambda: _context(tls))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="openflow-tls", daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # if not allowed, echoes wait for their turn
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        self._loop.run_forever()

    @contextlib.asynccontextmanager
    async def inside(self, connection: socket.socket) -> AsyncIterator[socket.socket]:
        """The plain connection, once the handshake is done; used in the loop of the caller.

        ``connection`` stays the caller's. When ``connection`` is shut down, the plain connection
        ends. On leaving, bytes already sent are delivered, for as long as the other end reads.
        Raises OSError.
        """
        connection.setblocking(False)
        context = self._files.context()
        outer = context.wrap_socket(
            connection.dup(), server_side=True, do_handshake_on_connect=False
        )
        carried = _Carried(self._loop, outer)
        await self._there(carried.shake_hands())
        try:
            yield carried.plain
        finally:
            carried.plain.close()
            await self._there(carried.ended())

    async def _there(self, coroutine: Coroutine[Any, Any, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))


class _Carried:
    """A TLS connection, and both ends of the plain connection; used in the thread's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, outer: ssl.SSLSocket) -> None:
        self._loop = loop
        self._outer = outer
        self.plain, self._inner = socket.socketpair()
        self._inner.setblocking(False)
        self._over = [loop.create_future(), loop.create_future()]

    async def shake_hands(self) -> None:
        """Return once received bytes are being carried over. Raises OSError."""
        try:
            while True:
                try:
                    self._outer.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await self._happens(self._loop.add_reader, self._loop.remove_reader)
                except ssl.SSLWantWriteError:
                    await self._happens(self._loop.add_writer, self._loop.remove_writer)
        except BaseException:
            self.plain.close()
            self._close()
            raise
        _Direction(self._loop, self._outer, self._inner, self._inwards_over).go_on()
        _Direction(self._loop, self._inner, self._outer, self._outwards_over).go_on()

    async def _happens(
        self, add: Callable[..., object], remove: Callable[[ssl.SSLSocket], object]
    ) -> None:
        happened = self._loop.create_future()
        add(self._outer, happened.set_result, None)
        try:
            await happened
        finally:
            remove(self._outer)

    def _inwards_over(self) -> None:
        with contextlib.suppress(OSError):
            self._inner.shutdown(socket.SHUT_WR)
        self._over[0].set_result(None)

    def _outwards_over(self) -> None:
        with contextlib.suppress(OSError):
            self._outer.unwrap()  # sends the end; would then wait for the switch's end
        self._cut()
        self._over[1].set_result(None)

    def _cut(self) -> None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._outer, socket.SHUT_RDWR)  # SSLSocket's would drop its TLS

    async def ended(self) -> None:
        """Return once both directions have ended, after the caller closed the plain connection."""
        impatient = self._loop.call_later(SOCKET_S, self._cut)
        await asyncio.gather(*self._over)
        impatient.cancel()
        self._close()

    def _close(self) -> None:
        self._outer.close()
        self._inner.close()


class _Direction:
    """Carries bytes one way, no faster than the target reads, until source or target ends."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        target: socket.socket,
        over: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._source = source
        self._target = target
        self._over = over
        self._unsent = memoryview(b"")
        """Bytes read and not sent yet."""
        self._waits = self._is_over = False

    def go_on(self) -> None:
        """Read incoming bytes."""
        self._waits = False
        if not self._is_over:
            self._loop.add_reader(self._source, self._read)

    def _wait(self) -> None:
        """Read nothing until :meth:`go_on`."""
        self._waits = True
        self._loop.remove_reader(self._source)

    def _read(self) -> None:
        try:
            self._unsent = memoryview(self._source.recv(_READ_BYTES))
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except ssl.SSLWantWriteError:
            self._wait()
            self._loop.call_later(_OTHER_WAY_S, self.go_on)
            return
        except OSError:
            self._unsent = memoryview(b"")
        if self._unsent:
            self._send()
        else:
            self._end()

    def _send(self) -> None:
        """Send the bytes read, and go on reading once all are sent."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._target.send(self._unsent) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            self._wait()
            self._loop.add_writer(self._target, self._send)
        except ssl.SSLWantReadError:
            self._wait()
            self._loop.remove_writer(self._target)
            self._loop.call_later(_OTHER_WAY_S, self._send)
        except OSError:
            self._end()
        else:
            if self._waits:
                self._loop.remove_writer(self._target)
                self.go_on()

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._target)
        self._over()
