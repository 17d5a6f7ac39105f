"""Emulated devices with a library's protocol server: clients' bytes go through a relay, so that
connections can break off like real connections.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request

from mininet_scenarios.emulators.catalogue import Emulator
from mininet_scenarios.emulators.faults import FaultKind, Faults
from mininet_scenarios.emulators.sessions import SessionServer

_CHUNK_BYTES: Final = 1 << 16
_POLL_S: Final = 0.01
_MUTE_POLL_S: Final = 0.05


class GoneError(Exception):
    """The connection for the answer is gone."""


class RelayedServer(SessionServer):
    """A device behind a relay; the protocol is served on a Unix socket, the door."""

    def __init__(self, door: Path, device: Emulator, faults: Faults) -> None:
        super().__init__()
        self._door = door
        self._device = device
        self._faults = faults

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        await self.serve(self._door)
        return await super().listen(host, port)

    async def die(self) -> None:
        await super().die()
        await self.finish()

    @abstractmethod
    async def serve(self, door: Path) -> None:
        """Serve the protocol on the Unix socket ``door``."""

    @abstractmethod
    async def finish(self) -> None:
        """End the serving; safe to repeat."""

    def admits(self, username: str, password: str) -> bool:
        given, wanted = f"{username}:{password}", f"{self._device.user}:{self._device.password}"
        return hmac.compare_digest(given.encode(), wanted.encode())

    def admits_sender(self, request: Request) -> bool:
        """True for a request over HTTP with the right user and password."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            user, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return scheme.lower() == "basic" and self.admits(user, password)

    async def begin(self) -> None:
        """Apply the faults that strike any request. Raises GoneError."""
        if self._faults.strikes(FaultKind.IDLE_LOGOUT):
            self.hang_up()
        mute = self._faults.active(FaultKind.MUTE)
        while self._faults.active(FaultKind.MUTE):
            await asyncio.sleep(_MUTE_POLL_S)
        if mute:  # the client has given up, or learns of the fault
            raise GoneError

    def hang_up(self) -> NoReturn:
        """Break off every connection. Raises GoneError."""
        for writer in self._sessions.values():
            writer.transport.abort()
        raise GoneError

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(self._door))
        ways = [
            asyncio.create_task(_pump(reader, inner_writer)),
            asyncio.create_task(_pump(inner_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            inner_writer.close()


class HttpDoor:
    """An HTTP server on a Unix socket; ``certificate``: files of certificate and key, for TLS."""

    def __init__(
        self, application: Starlette, door: Path, certificate: tuple[Path, Path] | None = None
    ) -> None:
        files = [None, None] if certificate is None else [str(file) for file in certificate]
        self._http = _Uvicorn(
            uvicorn.Config(
                application,
                uds=str(door),
                lifespan="off",
                log_level="warning",
                ssl_certfile=files[0],
                ssl_keyfile=files[1],
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._serving = asyncio.create_task(self._http.serve())
        while not self._http.started:
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        self._http.force_exit = True
        self._http.should_exit = True
        if self._serving is not None:
            await self._serving


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the surrounding process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
