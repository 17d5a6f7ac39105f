"""Serves the REST API from a separate thread with a separate event loop.

The rest of the process may run any other loop (Ryu's runs on eventlet): the threads share only the
thread-safe :class:`~hydra.service.ControllerService`, and no signal handlers are installed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from threading import Event, Thread
from typing import Any, Final

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from apps.process.admitted_connections import OUT_OF_RESOURCES, Door, Sparing
from apps.process.certificates import Renewable
from apps.rest.trust import Tls
from hydra.errors import HydraError

_BACKLOG: Final = 128
_START_TIMEOUT_S: Final = 10.0
_GRACE_S: Final = 2
"""Seconds for requests under way to finish."""
_LOOK_S: Final = 0.005
_STOP_TIMEOUT_S: Final = 10.0
_HEAD_S: Final = 10.0
"""Time from the connection, or the previous answer, to the end of a request's headers."""
_HEAD_BYTES: Final = 16 * 1024
_BODY_S: Final = 60.0
"""Time from the end of the headers to the end of the body."""
_UNSENT_S: Final = 30
"""Time for which a client may read nothing of the data sent."""
MOST_CONNECTIONS: Final = 512
logging.getLogger("uvicorn.error").addFilter(Sparing(lambda record: record.levelno < logging.ERROR))


class _Presenting(ssl.SSLContext):
    """Begins each connection with the certificate now in the files."""

    files: Renewable[ssl.SSLContext]

    @classmethod
    def of(cls, tls: Tls) -> _Presenting:
        """Raises HydraError as :meth:`Tls.context`."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context.files = Renewable((tls.certificate, tls.key), tls.context)
        return context

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self.files.context().wrap_bio(*args, **options)


class RestServer:
    """REST server; can be started and stopped any number of times, from a single thread."""

    def __init__(
        self,
        app: FastAPI,
        host: str,
        port: int,
        tls: Tls | None = None,
        connections: int = MOST_CONNECTIONS,
        connections_per_address: int = MOST_CONNECTIONS // 2,
    ) -> None:
        """``port`` 0 lets the system choose; :attr:`port` then holds the choice."""
        self._door = Door("REST", connections, connections_per_address, "controller.connections…")
        self._tls = tls
        self._app = app
        self._host = host
        self._wanted_port = port
        self._running: tuple[_Server, Thread, int] | None = None

    @property
    def port(self) -> int:
        """The listening port; while stopped, the requested port."""
        return self._wanted_port if self._running is None else self._running[2]

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    def start(self) -> None:
        """Return once connections are accepted; does nothing if running already.

        Raises HydraError if the server can't listen on the address, or can't use the certificate.
        """
        if self._running is not None:
            return
        presenting = None if self._tls is None else _Presenting.of(self._tls)
        self._app.state.closing.clear()
        listener = _listen(self._host, self._wanted_port, self._door)
        server = _Server(_config(self._app, presenting))
        thread = Thread(target=server.run, args=([listener],), name="rest", daemon=True)
        port = listener.getsockname()[1]
        thread.start()
        if not server.accepting.wait(_START_TIMEOUT_S):
            listener.close()
            raise HydraError(
                f"the REST server on {self._host}:{port} did not start: see the server's log for "
                "the reason"
            )
        self._running = (server, thread, port)

    def drain(self) -> None:
        """Wait until the requests under way are finished, or their time is up.

        Waiting requests answer at once; new requests are answered as ever.
        """
        if self._running is None:
            return
        self._app.state.closing.set()
        until_s = time.monotonic() + _GRACE_S
        under_way = self._running[0].server_state.tasks
        while under_way and time.monotonic() < until_s:
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """Finish the requests under way (waiting requests answer at once) and return;
        repeatable.
        """
        if self._running is None:
            return
        server, thread, _ = self._running
        self._app.state.closing.set()
        server.should_exit = True
        thread.join(_STOP_TIMEOUT_S)
        self._running = None


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_note_trouble)
        await super().startup(sockets)
        self.accepting.set()


def _note_trouble(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The door has already reported a connection that could not be accepted; asyncio tries
    again.
    """
    error = context.get("exception")
    if not (isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES):
        loop.default_exception_handler(context)


class _OneLength(h11.Connection):
    """Refuses a request with two lengths: a proxy and h11 could disagree about the body."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding")
        return event


class _Protocol(H11Protocol):
    """Ends connections whose request does not arrive: uvicorn itself waits for ever."""

    _deadline: asyncio.TimerHandle | None = None
    _awaited = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _OneLength(h11.SERVER, _HEAD_BYTES)

    def send_400_response(self, msg: str) -> None:
        """Send a single 400: uvicorn itself would also let the application answer, or answer
        twice.
        """
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await("")
        super().connection_lost(exc)

    def _watch(self) -> None:
        states = {h11.IDLE: "head", h11.SEND_BODY: "body"}
        self._await(states.get(self.conn.their_state, ""))

    def _await(self, subject: str) -> None:
        if subject == self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._awaited = subject
        if subject:
            wait_s = _HEAD_S if subject == "head" else _BODY_S
            self._deadline = self.loop.call_later(wait_s, self.transport.abort)


class _Connection(socket.socket):
    """A connection that leaves the door when closed."""

    door: Door | None = None
    address = ""

    def close(self) -> None:
        super().close()
        if self.door is not None:
            self.door.leave(self.address)
            self.door = None


class _Listener(socket.socket):
    """Hands over connections within the door's limits; closes further connections at once.

    The check is here, and not in the protocol, since the protocol begins after the TLS handshake.
    """

    door: Door

    def accept(self) -> tuple[socket.socket, Any]:
        while True:
            try:
                raw, peer = super().accept()
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    self.door.failed(error)
                raise
            if not self.door.enter(peer[0]):
                raw.close()
                continue
            connection = _Connection(raw.family, raw.type, raw.proto, fileno=raw.detach())
            connection.door, connection.address = self.door, peer[0]
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _UNSENT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNSENT_S * 1000)
            return connection, peer


def _config(app: FastAPI, presenting: _Presenting | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=_Protocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_context_factory=None if presenting is None else lambda *_: presenting,
    )


def _listen(host: str, port: int, door: Door) -> socket.socket:
    """Listen here rather than in uvicorn, whose thread would end silently on an error."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = _Listener(family, kind, protocol)
        listener.door = door
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> HydraError:
    return HydraError(
        f"the REST server can't listen on {host}:{port}: {error.strerror}. End the process that "
        "uses this address (ss -ltnp shows the process), or set another address at "
        "controller.rest"
    )
