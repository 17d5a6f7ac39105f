"""Silent streams of the REST API: signs of life come quickly, and are counted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from fastapi import FastAPI
from fastapi.sse import KEEPALIVE_COMMENT
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra.lifecycle import ReservationState
from hydra.reservations.reservation import ReservationRequest
from tests.unit.cli import DEMO
from tests.unit.rest.fake_service import FakeService
from tests.waiting import wait_until

_PING_S = 0.02
"""15 s in production: FastAPI's own interval, which has no setting."""


class _Counting:
    """Counts the comments that keep a silent stream open, as they are sent."""

    def __init__(self, app: ASGIApp, told: list[bytes]) -> None:
        self._app = app
        self._told = told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            await send(message)
            if message.get("body") == KEEPALIVE_COMMENT:
                self._told.append(KEEPALIVE_COMMENT)

        await self._app(scope, receive, counting)


class Network:
    """A stand-in for the network, with a stream of events that can be silent."""

    def __init__(self, service: FakeService, server: RestServer, pings: list[bytes]) -> None:
        self.url = server.url
        self.service = service
        self._pings = pings

    def followed(self) -> bool:
        """True if a client follows the events."""
        return bool(self.service.events._listeners)

    def act(self) -> None:
        """Publish an event."""
        made = self.service.reserve(ReservationRequest("r1", "r2", 1.0))
        self.service.settle(made.id, ReservationState.FAILED, "no light")

    def be_silent(self) -> None:
        """Wait until three signs of life were sent since now, and nothing else."""
        before = len(self._pings)
        wait_until(lambda: len(self._pings) >= before + 3)


@contextmanager
def network() -> Iterator[Network]:
    """A network behind a separate REST server, over real sockets."""
    pings: list[bytes] = []
    service = FakeService(load_configuration(DEMO).fabric)
    app: FastAPI = create_app(service)
    app.add_middleware(_Counting, told=pings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastapi.routing._PING_INTERVAL", _PING_S)
        server = RestServer(app, "127.0.0.1", 0)
        server.start()
        try:
            yield Network(service, server, pings)
        finally:
            server.stop()


class Script:
    """A server that gives each connection the next of ``answers``, and keeps the requests."""

    def __init__(self, listener: socket.socket, answers: Sequence[bytes]) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.requests: list[str] = []
        self._listener = listener
        self._answers = answers

    def serve(self) -> None:
        for answer in self._answers:
            connection, _ = self._listener.accept()
            with connection:
                self.requests.append(connection.recv(65536).decode())
                connection.sendall(answer)


@contextmanager
def answering(*answers: bytes) -> Iterator[Script]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        script = Script(listener, answers)
        thread = threading.Thread(target=script.serve, daemon=True)
        thread.start()
        yield script
        thread.join(60)


def stream(*lines: str) -> bytes:
    """An answer with a stream of these lines, which then ends."""
    head = "HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Connection: close", ""
    return "".join(f"{line}\r\n" for line in (*head, *lines)).encode()
