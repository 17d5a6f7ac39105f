"""A ToR that holds frames by destination until their day (Mordia, section 5.2).

``python -m mininet_scenarios.workloads.tor_queues PORT NUMBER`` announces itself to the optical
switch at a local UDP port, and gets a synchronization frame at each edge. With a day's first edge,
the ToR's network card starts to send as many frames as the day has room for, at line rate: the ToR
tells the switch the time of the first bit and the number of frames. After ``END``, the ToR prints
the times at which synchronization frames came.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from typing import Final, NamedTuple

SYNC: Final = struct.Struct("<BHdd")
BURST: Final = struct.Struct("<HHdI")
HELLO: Final = struct.Struct("<H")
NIGHT, DAY, END = range(3)
EVERYONE: Final = 0xFFFF
"""Destination of frames that every ToR may take."""
HERE: Final = "127.0.0.1"


class Sync(NamedTuple):
    """A synchronization frame: the kind of interval that begins, and for a day the destination and
    the timing.
    """

    kind: int
    destination: int = 0
    day_s: float = 0.0
    frame_s: float = 0.0
    """Time of a frame on the link."""


class Burst(NamedTuple):
    """Frames sent one after the other."""

    source: int
    destination: int
    begin_s: float
    """Time of the first bit, by ``CLOCK_MONOTONIC``."""
    frames: int


def main(port: int, number: int) -> None:
    came: list[float] = []
    busy_until_s = 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.connect((HERE, port))
        own.send(HELLO.pack(number))
        while (sync := Sync(*SYNC.unpack(own.recv(SYNC.size)))).kind != END:
            came.append(time.monotonic())
            count = int(sync.day_s / sync.frame_s) if sync.kind == DAY else 0
            if count:
                begin_s = max(came[-1], busy_until_s)
                busy_until_s = begin_s + count * sync.frame_s
                own.send(BURST.pack(*Burst(number, sync.destination, begin_s, count)))
    print(json.dumps(came))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
