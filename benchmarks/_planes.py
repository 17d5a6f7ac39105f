"""Many planes in one process: ``python -m benchmarks._planes COUNT PORTS SWITCHING_MS``.

They speak the part of a Polatis' SCPI that the driver needs for a change, and take little of this
machine: real planes compute on processors of their own. The answer to a command in a state is kept
for all planes, since all are sent the same commands.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from functools import cache
from typing import NamedTuple

from mininet_scenarios.emulators import polatis_language as language

ALWAYS = {"syst:err:all?": '0,"No error"', "*opc?": "1", "*cls": None}


class Answer(NamedTuple):
    reply: bytes
    cross_connects: tuple[tuple[int, int], ...]
    """Cross-connects that stand afterwards."""
    moved: bool


@cache
def answer(size: int, present: tuple[tuple[int, int], ...], line: str) -> Answer:
    """Raises GrammarError, and ValueError for commands that these planes don't know or can't do."""
    standing = dict(present)
    replies = []
    for command in language.split_line(line):
        if isinstance(command, language.GrammarError):
            raise command
        if (reply := carry_out(size, standing, command)) is not None:
            replies.append(reply)
    after = tuple(sorted(standing.items()))
    return Answer(";".join(replies).encode() + b"\r", after, after != present)


def carry_out(size: int, standing: dict[int, int], command: language.Command) -> str | None:
    """Change the cross-connects, or return them as text. Raises ValueError as above."""
    match command.keyword:
        case "oxc:swit:conn:sub":
            for ingress, egress in zip(*language.two_lists(command.argument), strict=True):
                if standing.pop(ingress, None) != egress:
                    raise ValueError(f"{ingress} is not connected to {egress}")
        case "oxc:swit:conn:add":
            for ingress, egress in zip(*language.two_lists(command.argument), strict=True):
                if standing.setdefault(ingress, egress) != egress:
                    raise ValueError(f"{ingress} is connected to {standing[ingress]}")
            if len(set(standing.values())) < len(standing):
                raise ValueError("an egress port is used twice")
        case "oxc:swit:conn:stat?":
            listed = sorted(standing.items())
            return ",".join(language.port_list(pair[end] for pair in listed) for end in (0, 1))
        case "oxc:swit:size?":
            return f"{size},{size}"
        case other if other in ALWAYS:
            return ALWAYS[other]
        case other:
            raise ValueError(f"these planes do not know {other}")
    return None


class Plane(asyncio.Protocol):
    """A plane with one client; every change takes the mirrors' time, which ``*opc?`` waits for."""

    def __init__(self, size: int, switching_s: float) -> None:
        self._size = size
        self._switching_s = switching_s
        self._present: tuple[tuple[int, int], ...] = ()
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        line, end, self._pending = (self._pending + data).partition(b"\r\n")
        if not end:
            self._pending = line
            return
        reply, self._present, moved = answer(self._size, self._present, line.decode())
        if moved:
            loop = asyncio.get_running_loop()
            loop.call_later(self._switching_s, self._transport.write, reply)
        else:
            self._transport.write(reply)


async def serve(count: int, size: int, switching_s: float) -> None:
    """Serve until SIGTERM; prints the planes' addresses in one line once all of them listen."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    addresses = []
    for _ in range(count):
        server = await loop.create_server(lambda: Plane(size, switching_s), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        addresses.append(f"{host}:{port}")
    print(*addresses, flush=True)
    await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000))
