"""Switches played over OpenFlow, for benchmarks of a process that serves a whole fabric."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

HEADER: Final = Struct("!BBHI")
PACKET_IN, PACKET_OUT, MULTIPART_REQUEST = 10, 13, 18
_HELLO, _ECHO_REQUEST, _ECHO_REPLY, _FEATURES_REQUEST, _FEATURES_REPLY = 0, 2, 3, 5, 6
_FEATURES: Final = Struct("!QIBBxxII")
_PORT: Final = Struct("!Ixxxx6sxx16sIIIIIIII")


def port_descriptions(names: Sequence[str]) -> bytes:
    """The body of a switch's reply to OFPMP_PORT_DESC: ports from 1."""
    return b"".join(
        _PORT.pack(number, bytes(6), name.encode(), *(0,) * 8)
        for number, name in enumerate(names, start=1)
    )


async def converse(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    datapath: int,
    answer: Callable[[int, int, bytes], bytes],
) -> None:
    """Play a switch until the connection ends.

    ``answer`` gets the type, transaction id and body of each message that this function does not
    answer, and returns the reply.
    """
    features = _FEATURES.pack(datapath, 0, 254, 0, 0x47, 0)
    writer.write(HEADER.pack(4, _HELLO, 8, 0))
    try:
        while True:
            _, kind, length, xid = HEADER.unpack(await reader.readexactly(8))
            body = await reader.readexactly(length - 8)
            if kind == _ECHO_REQUEST:
                writer.write(HEADER.pack(4, _ECHO_REPLY, length, xid) + body)
            elif kind == _FEATURES_REQUEST:
                writer.write(HEADER.pack(4, _FEATURES_REPLY, 32, xid) + features)
            else:
                writer.write(answer(kind, xid, body))
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        return


async def await_listener(port: int) -> None:
    """Return once the process listens."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.2)
            continue
        writer.close()
        return


def cpu_s(pid: int) -> float:
    """User and system time used by a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
