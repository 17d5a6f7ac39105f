"""Clients of an emulated device, on a TCP socket and a serial line; both can die and come back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tty
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from mininet_scenarios.emulators.faults import FaultKind, Faults

_log: Final = logging.getLogger(__name__)


class ReplyLostError(Exception):
    """The connection is to close without a reply."""


async def answered(
    faults: Faults, carry_out: Callable[[], Awaitable[bytes]], *, moves: bool
) -> bytes:
    """Carry out a command and return the reply as received by the client; ``moves``: the command
    moves mirrors.

    Applies the faults of replies and connections. Faults of mirrors are applied by
    :class:`~mininet_scenarios.emulators.ocs.EmulatedOcs`. Raises ReplyLostError.
    """
    killed = moves and faults.strikes(FaultKind.KILL)
    if killed:
        faults.arm(FaultKind.PARTIAL, 1, 0.0)
    reply = await carry_out()
    if killed or (moves and faults.strikes(FaultKind.LOSE_REPLY)):
        raise ReplyLostError
    await asyncio.sleep(faults.delay_s)
    return faults.distorted(reply) if reply else reply


class SessionServer(ABC):
    """Accepts clients and holds each client's conversation in a separate task."""

    def __init__(self) -> None:
        self._endpoint: tuple[str, int] | None = None
        self._server: asyncio.Server | None = None
        self._sessions: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._pty: asyncio.Task[None] | None = None
        self._pty_path = ""

    async def listen_pty(self, path: str) -> None:
        """Serve a serial line too: ``path`` will point to the client's end of the line."""
        self._pty_path = path
        self._plug_in(path)

    def _plug_in(self, path: str) -> None:
        ours, theirs = os.openpty()
        tty.setraw(theirs)
        self._remove_link()
        Path(path).symlink_to(os.ttyname(theirs))
        task = asyncio.create_task(self._serve_pty(ours, theirs))
        self._pty = task

    def _unplug(self) -> None:
        if self._pty is not None:
            self._pty.cancel()
            self._pty = None
            self._remove_link()

    def _remove_link(self) -> None:
        """Remove a link left by an emulator's run, but never a real device's file."""
        link = Path(self._pty_path)
        if link.is_symlink() and link.readlink().is_relative_to("/dev/pts"):
            link.unlink()

    async def _serve_pty(self, ours: int, theirs: int) -> None:
        """Serve until cancelled; ``theirs`` stays open, or a leaving client would close our
        connection.
        """
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        source = os.fdopen(os.dup(ours), "rb", 0)
        sink = os.fdopen(ours, "wb", 0)
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), source
        )
        outgoing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
        writer = asyncio.StreamWriter(outgoing, protocol, reader, loop)
        try:
            while not reader.at_eof():
                with contextlib.suppress(ReplyLostError, ConnectionError):
                    await self.converse(reader, writer)
        finally:
            incoming.close()
            outgoing.abort()
            os.close(theirs)

    @abstractmethod
    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until the client leaves. Raises ReplyLostError to drop the client at
        once.
        """

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Serve; returns the address, with the chosen port if ``port`` is 0."""
        self._server = await asyncio.start_server(self._accept, host, port)
        bound: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        self._endpoint = bound
        return bound

    async def die(self) -> None:
        """Close every connection, and refuse connections until :meth:`revive`."""
        self._unplug()
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._sessions.values():
            writer.transport.abort()
        if self._sessions:
            await asyncio.wait(self._sessions)

    async def revive(self) -> None:
        """Listen again at the same address."""
        if self._server is None and self._endpoint is not None:
            await self.listen(*self._endpoint)
        if self._pty is None and self._pty_path:
            self._plug_in(self._pty_path)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._sessions[task] = writer
        task.add_done_callback(self._sessions.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ReplyLostError, ConnectionError):
                await self.converse(reader, writer)
        except Exception:  # the device goes on without the session
            _log.exception("a session failed")
        finally:
            writer.close()
