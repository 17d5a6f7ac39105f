"""A program with enough OpenFlow 1.3 to pass for a switch."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from contextlib import suppress

from mininet_scenarios.emulators.shared_tls import SharedTls
from mininet_scenarios.patience import PATIENCE_S

_HELLO, _ECHO_REQUEST, _ECHO_REPLY, _FEATURES_REQUEST, _FEATURES_REPLY = 0, 2, 3, 5, 6
_MULTIPART_REQUEST, _MULTIPART_REPLY, _BARRIER_REQUEST, _BARRIER_REPLY = 18, 19, 20, 21


class Stranger:
    """Claims a datapath id, and agrees to everything."""

    def __init__(
        self,
        address: tuple[str, int],
        datapath: int,
        auxiliary: int = 0,
        trust: ssl.SSLContext | None = None,
        nonsense: bool = False,
    ) -> None:
        """``nonsense``: answer each request after the first one for ports with a wrong reply."""
        self.answers_echoes = True
        self._nonsense = nonsense
        self.echoed: list[int] = []
        """Transaction ids of answered echo requests."""
        self._features = struct.pack("!QIBBHII", datapath, 0, 254, auxiliary, 0, 0, 0)
        self._socket = _connect(address, trust)
        self.name = "{}:{}".format(*self._socket.getsockname())
        self.is_switch = threading.Event()
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError, EOFError):
            self.say(_HELLO, 1, b"")
            while True:
                _, kind, length, xid = struct.unpack("!BBHI", self._exactly(8))
                body = self._exactly(length - 8)
                if kind == _ECHO_REQUEST and self.answers_echoes:
                    self.say(_ECHO_REPLY, xid, body)
                elif self._nonsense and self.is_switch.is_set():
                    self.say(_BARRIER_REPLY, xid + 1, body[:8])
                elif kind == _ECHO_REPLY:
                    self.echoed.append(xid)
                elif kind == _FEATURES_REQUEST:
                    self.say(_FEATURES_REPLY, xid, self._features)
                elif kind == _MULTIPART_REQUEST:
                    self.say(_MULTIPART_REPLY, xid, body[:2] + bytes(6))
                    self.is_switch.set()
                elif kind == _BARRIER_REQUEST:
                    self.say(_BARRIER_REPLY, xid, b"")
        self.ended.set()

    def _exactly(self, count: int) -> bytes:
        """The next ``count`` bytes. Raises OSError, and EOFError at the end."""
        octets = bytearray()
        while len(octets) < count:
            some = self._socket.recv(count - len(octets))
            if not some:
                raise EOFError
            octets += some
        return bytes(octets)

    def say(self, kind: int, xid: int, body: bytes) -> None:
        self.send(struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body)

    def send(self, octets: bytes) -> None:
        self._socket.sendall(octets)

    def leave(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


def _connect(address: tuple[str, int], trust: ssl.SSLContext | None) -> socket.socket | SharedTls:
    plain = socket.create_connection(address, timeout=PATIENCE_S)
    # Nagle's algorithm would hold an answer back while the next stranger overtakes this stranger.
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if trust is not None:
        return SharedTls(trust.wrap_socket(plain, server_hostname=address[0]))
    plain.settimeout(None)
    return plain
