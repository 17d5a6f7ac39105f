"""Messages for a switch that sends without pause."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

_HEAD: Final = struct.Struct("!BBHI")
_PORT: Final = struct.Struct("!I4x6s2x16sII24x")
_DOWN: Final = 1


def _port_status() -> bytes:
    """Two messages: a port of the switch goes and comes."""
    return b"".join(
        _HEAD.pack(4, 12, 80, 0)
        + bytes([2, *bytes(7)])
        + _PORT.pack(2, bytes(6), b"hyo-h12", 0, state)
        for state in (_DOWN, 0)
    )


def _frame(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(4, kind, _HEAD.size + len(body), 7) + body


def kinds(datapath: int) -> Mapping[str, bytes]:
    """Messages of each kind that switches send, by name of the kind."""
    features = struct.pack("!QIBBxxII", datapath, 0, 254, 0, 0x47, 0)
    statistics_of_ports = struct.pack("!HH4x", 4, 1) + bytes(112)
    return {
        "hello": _frame(0, b""),
        "error": _frame(1, struct.pack("!HH", 5, 1) + bytes(16)),
        "echo request": _frame(2, bytes(8)),
        "echo reply": _frame(3, bytes(8)),
        "experimenter": _frame(4, bytes(16)),
        "features reply": _frame(6, features),
        "packet-in": _frame(10, bytes(16) + struct.pack("!HH4x", 1, 4) + bytes(66)),
        "flow removed": _frame(11, bytes(40) + struct.pack("!HH4x", 1, 4)),
        "port status": _port_status(),
        "multipart reply": _frame(19, statistics_of_ports),
        "barrier reply": _frame(21, b""),
        "role reply": _frame(25, bytes(16)),
    }
