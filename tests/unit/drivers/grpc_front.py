"""A minimal gRPC server, frame by frame (RFC 9113), for answers that no server library sends."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING = 0, 1, 3, 4, 6
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
PATIENCE_S: Final = 60.0

Answer = Callable[[int], bytes]
"""Frames that answer the request of a stream."""


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return (
        struct.pack("!I", len(payload))[1:]
        + bytes((kind, flags))
        + struct.pack("!I", stream)
        + payload
    )


def _fields(**fields: str) -> bytes:
    """Header fields without compression (RFC 7541, 6.2.2)."""
    coded = b""
    for name, value in fields.items():
        for text in (name.replace("_", "-").replace("status-of-http", ":status"), value):
            coded += (b"\0" if text != value else b"") + bytes((len(text),)) + text.encode()
    return coded


def _headers(stream: int, *, last: bool, **fields: str) -> bytes:
    flags = _END_HEADERS | (_END_STREAM if last else 0)
    return _frame(_HEADERS, flags, stream, _fields(**fields))


def _begun(stream: int) -> bytes:
    return _headers(stream, last=False, status_of_http="200", content_type="application/grpc")


def told(stream: int, code: int, message: str) -> bytes:
    """A status set by the server, in trailers."""
    return _begun(stream) + _headers(stream, last=True, grpc_status=str(code), grpc_message=message)


def done(stream: int) -> bytes:
    """An OK with an empty message."""
    return (
        _begun(stream)
        + _frame(_DATA, 0, stream, bytes(5))
        + _headers(stream, last=True, grpc_status="0")
    )


def without_message(stream: int) -> bytes:
    """An OK with nothing else."""
    return _begun(stream) + _headers(stream, last=True, grpc_status="0")


def reset(stream: int, error: int) -> bytes:
    """The end of a stream, by an HTTP/2 error."""
    return _frame(_RST_STREAM, 0, stream, struct.pack("!I", error))


def http(stream: int, status: int) -> bytes:
    """The answer of a gateway without support for gRPC."""
    return _headers(stream, last=True, status_of_http=str(status), content_type="text/plain")


def too_large(stream: int, size: int) -> bytes:
    """The beginning of a message of this size."""
    return _begun(stream) + _frame(_DATA, 0, stream, b"\0" + struct.pack("!I", size))


class GrpcFront:
    """One connection at a time: the n-th request gets the n-th of ``answers``; the last answer
    repeats.
    """

    def __init__(self, certificate: Path, key: Path, answers: list[Answer]) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._context.set_alpn_protocols(["h2"])
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = 0
        """Number of requests read completely."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError, EOFError), plain:
                plain.settimeout(PATIENCE_S)
                with self._context.wrap_socket(plain, server_side=True) as connection:
                    self._serve(connection)

    def _serve(self, connection: ssl.SSLSocket) -> None:
        stream = connection.makefile("rb")
        if stream.read(len(_PREFACE)) != _PREFACE:
            return
        connection.sendall(_frame(_SETTINGS, 0, 0))
        while head := stream.read(9):
            length = int.from_bytes(head[:3], "big")
            kind, flags, number = head[3], head[4], int.from_bytes(head[5:], "big")
            payload = stream.read(length)
            if kind == _SETTINGS and not flags & _ACK:
                connection.sendall(_frame(_SETTINGS, _ACK, 0))
            elif kind == _PING and not flags & _ACK:
                connection.sendall(_frame(_PING, _ACK, 0, payload))
            elif kind in (_HEADERS, _DATA) and flags & _END_STREAM:
                answer = self._answers[min(self.requests, len(self._answers) - 1)]
                self.requests += 1
                connection.sendall(answer(number))
