"""Serves the REST API from a thread of its own, with an event loop of its own.

The rest of the process may run any other loop (Ryu's runs on eventlet): nothing is shared but the
thread-safe :class:`~hydra.service.ControllerService`, and no signal handlers are installed.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

import uvicorn
from fastapi import FastAPI

from hydra.errors import HydraError

_BACKLOG: Final = 128
_START_TIMEOUT_S: Final = 10.0
_GRACE_S: Final = 2
"""Seconds that requests under way get to finish."""
_STOP_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the certificate with its chain, and its key."""

    certificate: str
    key: str

    def check(self) -> None:
        """Raises HydraError unless the two can be used together."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise HydraError(
                f"REST can't use the certificate {self.certificate} with the key {self.key} "
                f"({error.strerror or error}): check controller.tls_certificate and tls_key"
            ) from error


class RestServer:
    """Can be started and stopped any number of times, from one thread."""

    def __init__(self, app: FastAPI, host: str, port: int, tls: Tls | None = None) -> None:
        """``port`` 0 lets the system choose; :attr:`port` then tells which."""
        self._tls = tls
        self._app = app
        self._host = host
        self._wanted_port = port
        self._running: tuple[_Server, Thread, int] | None = None

    @property
    def port(self) -> int:
        """The port that it listens on; the one asked for while it is stopped."""
        return self._wanted_port if self._running is None else self._running[2]

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    def start(self) -> None:
        """Return once connections are accepted; does nothing if it runs already.

        Raises HydraError if the address can't be listened on, or the certificate not be used.
        """
        if self._running is not None:
            return
        if self._tls is not None:
            self._tls.check()
        self._app.state.closing.clear()
        listener = _listen(self._host, self._wanted_port)
        server = _Server(_config(self._app, self._tls))
        thread = Thread(target=server.run, args=([listener],), name="rest", daemon=True)
        port = listener.getsockname()[1]
        thread.start()
        if not server.accepting.wait(_START_TIMEOUT_S):
            listener.close()
            raise HydraError(
                f"the REST server on {self._host}:{port} did not start: its log says why"
            )
        self._running = (server, thread, port)

    def stop(self) -> None:
        """Finish the requests under way (waiting ones answer at once) and return; repeatable."""
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
        await super().startup(sockets)
        self.accepting.set()


def _config(app: FastAPI, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
    )


def _listen(host: str, port: int) -> socket.socket:
    """Bound here rather than by uvicorn, which would end its thread without a word."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
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
        "uses this address (ss -ltnp shows it), or set another one at controller.rest"
    )
