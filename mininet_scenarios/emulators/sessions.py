"""Clients of an emulated device: any number of them, on a TCP socket that can die and come back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from typing import Final

_log: Final = logging.getLogger(__name__)


class ReplyLostError(Exception):
    """The connection is to close instead of carrying a reply."""


class SessionServer(ABC):
    """Accepts clients and holds each one's conversation in a task of its own."""

    def __init__(self) -> None:
        self._endpoint: tuple[str, int] | None = None
        self._server: asyncio.Server | None = None
        self._sessions: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @abstractmethod
    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until it leaves. Raises ReplyLostError to drop it at once."""

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Serve; returns the address, with the port that was chosen where 0 was asked for."""
        self._server = await asyncio.start_server(self._accept, host, port)
        bound: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        self._endpoint = bound
        return bound

    async def die(self) -> None:
        """Close every connection and refuse new ones, until :meth:`revive`."""
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

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._sessions[task] = writer
        task.add_done_callback(self._sessions.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ReplyLostError, ConnectionError):
                await self.converse(reader, writer)
        except Exception:
            _log.exception("a session failed")
        finally:
            writer.close()
