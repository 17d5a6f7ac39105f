"""Sends changes of the environment to the simulated switches (``_fabric.c``), and receives
confirmations.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


def _nothing() -> None:
    pass


class Teller:
    """Lines are confirmed in order, each by a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._due: deque[Callable[[], None]] = deque()

    def send(self, line: str, then: Callable[[], None] = _nothing) -> None:
        """Send a line, and call ``then`` after the switches' confirmation."""
        self._writer.write(f"{line}\n".encode())
        self._due.append(then)

    async def receive(self) -> None:
        """Wait for the end of the switches."""
        while await self._reader.readline():
            self._due.popleft()()


async def teller(socket: str) -> Teller:
    return Teller(*await asyncio.open_unix_connection(socket))
