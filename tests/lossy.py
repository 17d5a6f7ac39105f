"""A relay to a server that loses replies or requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self


class LossyWay:
    """Relays requests of HTTP to a port of this machine, and loses requests or replies on demand.

    ``replies`` and ``requests`` count how many further ones get through; None: all. Later ones are
    lost: a lost request is not sent on; a lost reply's request was carried out.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.replies: int | None = None
        self.requests: int | None = None
        self.lost = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @contextmanager
    def losing(self, what: str, after: int = 0) -> Iterator[None]:
        """Lose ``replies`` or ``requests`` in the block, ``after`` this number of them."""
        setattr(self, what, after)
        try:
            yield
        finally:
            self.heal()

    def heal(self) -> None:
        self.replies = self.requests = None

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with (
            suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self._port)) as server,
        ):
            while (request := _message(client)) and self._passes("requests"):
                server.sendall(request)
                reply = _message(server)
                if not self._passes("replies"):
                    return
                client.sendall(reply)

    def _passes(self, what: str) -> bool:
        with self._lock:
            left = getattr(self, what)
            if left:
                setattr(self, what, left - 1)
            self.lost += left == 0
            return left != 0


def _more(source: socket.socket) -> bytes:
    """The next bytes. Raises OSError, also at the end."""
    if not (some := source.recv(65536)):
        raise ConnectionAbortedError("the other end left in the middle of a message")
    return some


def _message(source: socket.socket) -> bytes:
    """A message of HTTP, with its body by its length or in chunks; empty at the end."""
    held = b""
    while b"\r\n\r\n" not in held:
        if not (some := source.recv(65536)):
            return b""
        held += some
    head, _, body = held.partition(b"\r\n\r\n")
    lines = [line.partition(b":") for line in head.lower().split(b"\r\n")[1:]]
    headers = {name.strip(): value.strip() for name, _, value in lines}
    if headers.get(b"transfer-encoding") == b"chunked":
        while not body.endswith(b"0\r\n\r\n"):
            body += _more(source)
    else:
        while len(body) < int(headers.get(b"content-length", b"0")):
            body += _more(source)
    return head + b"\r\n\r\n" + body
