"""An Open vSwitch bridge without ports, and a bare OpenFlow 1.3 connection to the bridge."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drivers.codecs.openflow.messages import encode_barrier
from tests.waiting import PATIENCE_S

_HELLO, _ERROR, _ECHO_REQUEST, _MULTIPART_REPLY, _BARRIER_REPLY = 0, 1, 2, 19, 21
_MORE = 1
_RUN = Path("/var/run/openvswitch")
_CHUNK = 1 << 20


class BareSwitch:
    """Client of a bridge's management socket; blocking, one request at a time."""

    def __init__(self, bridge: str, connection: socket.socket | None = None) -> None:
        """``connection`` leads to the switch; None: connect to a bridge's management socket."""
        self.bridge = bridge
        self._socket = socket.socket(socket.AF_UNIX) if connection is None else connection
        self._socket.settimeout(PATIENCE_S)
        if connection is None:
            self._socket.connect(str(_RUN / f"{bridge}.mgmt"))
        self._buffer = b""
        self._socket.sendall(struct.pack("!BBHI", 4, _HELLO, 8, 1))
        if self._receive()[1] != _HELLO:
            raise ConnectionError(f"{bridge} did not greet")

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bytes:
        """The next message."""
        while len(self._buffer) < 8 or len(self._buffer) < self._length():
            chunk = self._socket.recv(_CHUNK)
            if not chunk:
                raise ConnectionError(f"{self.bridge} closed the connection")
            self._buffer += chunk
        length = self._length()
        message, self._buffer = self._buffer[:length], self._buffer[length:]
        return message

    def _length(self) -> int:
        return int(struct.unpack_from("!H", self._buffer, 2)[0])

    def confirm(self, messages: bytes, xid: int) -> list[tuple[int, int]]:
        """Send ``messages`` and a barrier; the (type, code) of every error before the barrier
        reply.
        """
        self._socket.sendall(messages + encode_barrier(xid))
        errors = []
        while True:
            reply = self._receive()
            if reply[1] == _BARRIER_REPLY:
                return errors
            if reply[1] == _ERROR:
                errors.append(struct.unpack_from("!HH", reply, 8))

    def await_message(self, message: bytes, kind: int) -> bytes:
        """Send ``message``; returns the next message of this type."""
        self._socket.sendall(message)
        while (told := self._receive())[1] != kind:
            pass
        return told

    def statistics(self, request: bytes) -> list[bytes]:
        """Send a multipart request; all messages of the reply."""
        self._socket.sendall(request)
        replies = []
        while True:
            reply = self._receive()
            if reply[1] != _MULTIPART_REPLY:
                continue
            replies.append(reply)
            if not struct.unpack_from("!H", reply, 10)[0] & _MORE:
                return replies

    def flows(self) -> list[str]:
        """The tables in the format of ``ovs-ofctl``, without counters, sorted."""
        command = ["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", self.bridge]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return sorted(line.strip() for line in shown.splitlines())


@contextmanager
def bare_switch(bridge: str) -> Iterator[BareSwitch]:
    """A new bridge for the duration; Open vSwitch runs, and belongs to the caller."""
    delete = ["ovs-vsctl", "--if-exists", "del-br", bridge]
    subprocess.run(
        [
            *delete, "--", "add-br", bridge, "--", "set", "Bridge", bridge,
            "datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure",
        ],
        check=True,
    )  # fmt: skip
    try:
        switch = BareSwitch(bridge)
        try:
            yield switch
        finally:
            switch.close()
    finally:
        subprocess.run(delete, check=True)
