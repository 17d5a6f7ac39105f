"""A TLS connection with one thread reading and another writing."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


class SharedTls:
    """Acts as a socket, with one OpenSSL call at a time.

    OpenSSL forbids two simultaneous calls on a connection, and Python 3.11 makes such calls: a
    write beside a read may then fail as if the other side had gone.
    """

    def __init__(self, connection: ssl.SSLSocket, timeout_s: float | None = None) -> None:
        """``connection`` has shaken hands. ``timeout_s`` bounds each wait; None: no bound."""
        connection.setblocking(False)
        self._connection = connection
        self._timeout_ms = None if timeout_s is None else timeout_s * 1000
        self._calls = threading.Lock()

    def recv(self, size: int) -> bytes:
        """At most ``size`` bytes, none at the end. Raises OSError."""
        return self._call(lambda: self._connection.recv(size))

    def send(self, octets: bytes | memoryview) -> int:
        """How many of ``octets`` were sent. Raises OSError."""
        return self._call(lambda: self._connection.send(octets))

    def sendall(self, octets: bytes) -> None:
        """Send all of ``octets``. Raises OSError."""
        left = memoryview(octets)
        while left:
            left = left[self.send(left) :]

    def _call(self, call: Callable[[], _Result]) -> _Result:
        while True:
            with self._calls:
                try:
                    return call()
                except ssl.SSLWantReadError:
                    awaited = select.POLLIN
                except ssl.SSLWantWriteError:
                    awaited = select.POLLOUT
            poll = select.poll()
            poll.register(self._connection, awaited)
            if not poll.poll(self._timeout_ms):
                raise TimeoutError("timed out")

    def getsockname(self) -> tuple[str, int]:
        """Address and port of the local end."""
        host, port = self._connection.getsockname()
        return host, port

    def shutdown(self, how: int) -> None:
        """End the connection below TLS, and so wake waiting threads. Raises OSError."""
        socket.socket.shutdown(self._connection, how)  # SSLSocket.shutdown would drop the TLS state

    def close(self) -> None:
        """Close the connection, once no thread uses the connection any more."""
        self._connection.close()
