"""A relay between sshd's sessions and netconfd: each message arrives in a read of its own.

A session's framing changes with its ``<hello>``. netconfd keeps the framing for all bytes of a
read, and so never finds the end of a request that arrived together with the greeting: a busy
machine would lose one session in a hundred.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_END_OF_MESSAGE: Final = b"]]>]]>"
_POLL_S: Final = 0.001
_CHUNK: Final = 65536


class Relay:
    """Listens at ``path`` and hands each connection on to ``server``, both Unix sockets."""

    def __init__(self, path: Path, server: Path) -> None:
        self._path = path
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more sessions; running sessions end with the server."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
            server.connect(str(self._server))
            replies = threading.Thread(target=_copy, args=(server, client), daemon=True)
            replies.start()
            for message in _messages(client):
                server.sendall(message)
                _wait_until_read(server)
            server.shutdown(socket.SHUT_WR)
            replies.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


def _messages(source: socket.socket) -> Iterator[bytes]:
    """Received messages, cut behind each end mark of the initial framing."""
    while data := source.recv(_CHUNK):
        while data:
            head, mark, data = data.partition(_END_OF_MESSAGE)
            yield head + mark


def _wait_until_read(connection: socket.socket) -> None:
    unread = array.array("i", [1])
    while fcntl.ioctl(connection, termios.TIOCOUTQ, unread) or unread[0]:
        time.sleep(_POLL_S)
