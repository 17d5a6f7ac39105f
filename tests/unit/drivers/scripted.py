"""A device with a script of exact bytes, on a real socket; replies in TL1."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Sequence

from tests.waiting import PATIENCE_S

_LOGOUT = re.compile(rb"CANC-USER::\w+:(\d+):;\n?")
_FAREWELL = b"\r\n\n   NE 16-11-07 11:20:14\r\nM  %b COMPLD\r\n;"

VARIABLE = "HYDRA_TEST_SECRET"
"""Environment variable with the password of a driver's login."""

Exchange = tuple[bytes, bytes]
"""The expected command of the driver, and the reply."""


class Scripted:
    """Serves one connection; :meth:`finish` fails unless every exchange took place as scripted.

    A driver's TL1 log-out at the end is always answered.
    """

    def __init__(self, exchanges: Sequence[Exchange], greeting: bytes = b"") -> None:
        self._exchanges = list(exchanges)
        self._greeting = greeting
        self._failure: str | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                connection.sendall(self._greeting)
                while self._exchanges:
                    expected, reply = self._exchanges[0]
                    got = self._receive(connection, len(expected))
                    if got != expected:
                        self._failure = f"expected {expected!r}, got {got!r}"
                        return
                    self._exchanges.pop(0)
                    connection.sendall(reply)
                left_over = connection.recv(1000)
                if (logout := _LOGOUT.fullmatch(left_over)) is not None:
                    connection.sendall(_FAREWELL % logout[1])
                    left_over = connection.recv(1000)
                if left_over:
                    self._failure = f"nothing more was expected, got {left_over!r}"
        except OSError as error:
            self._failure = f"{error}, while {self._exchanges[:1]} was expected"

    def _receive(self, connection: socket.socket, count: int) -> bytes:
        got = b""
        while len(got) < count and (data := connection.recv(count - len(got))):
            got += data
        return got

    def finish(self) -> None:
        self._thread.join(PATIENCE_S)
        self._listener.close()
        assert self._failure is None, self._failure
        assert self._exchanges == [], f"never sent: {self._exchanges[0][0]!r}"


def completed(ctag: int, *records: str, source: str = "( nil )") -> bytes:
    lines = "".join(f'   "{record}"\r\n' for record in records)
    return f"\r\n\n   {source} 16-11-07 11:20:14\r\nM  {ctag} COMPLD\r\n{lines};".encode()


def denied(ctag: int, code: str, text: str, source: str = "( nil )") -> bytes:
    head = f"\r\n\n   {source} 16-11-07 11:20:14\r\nM  {ctag} DENY\r\n"
    return f"{head}   {code}\r\n   /* {text} */\r\n;".encode()
