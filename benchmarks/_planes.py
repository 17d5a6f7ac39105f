"""Many planes in one process: ``python -m benchmarks._planes COUNT PORTS SWITCHING_MS [SOCKET]``.

The planes speak the part of Polatis' SCPI that the driver needs for a change, and use little
processor time, since real planes have processors of their own. Answers are cached by state and
command, as all planes get the same commands.

A listener at SOCKET gets the standing cross-connects after each change, in lines: ``light PLANE
1:321,2:322``.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from benchmarks._teller import Teller, teller
from mininet_scenarios.emulators import polatis_language as language

ALWAYS = {
    "syst:err:all?": '0,"No error"',
    "*opc?": "1",
    "*cls": None,
    "*idn?": "Polatis,benchmark,0,0",
    "oxc:boot:mode?": "AUT",
}


class Answer(NamedTuple):
    reply: bytes
    cross_connects: tuple[tuple[int, int], ...]
    """The resulting cross-connects."""
    moved: bool


@cache
def answer(size: int, present: tuple[tuple[int, int], ...], line: str) -> Answer:
    """Raises GrammarError for invalid commands, and ValueError for unknown or impossible
    commands.
    """
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


@dataclass
class Mirrors:
    """Mirrors of a plane; the mirrors stay when the client disconnects."""

    number: int
    size: int
    switching_s: float
    switches: Teller | None
    present: tuple[tuple[int, int], ...] = ()

    def show(self, lit: Iterable[tuple[int, int]], then: Callable[[], None] = lambda: None) -> None:
        """Report the lit cross-connects to the listener, and call ``then`` after its answer."""
        if self.switches is None:
            then()
            return
        listed = ",".join(f"{ingress}:{egress}" for ingress, egress in lit)
        self.switches.send(f"light {self.number} {listed}", then)


class Plane(asyncio.Protocol):
    """The only client of a plane; every change takes the mirrors' time, and ``*opc?`` waits for the
    end.
    """

    def __init__(self, mirrors: Mirrors) -> None:
        self._mirrors = mirrors
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        line, end, self._pending = (self._pending + data).partition(b"\r\n")
        if not end:
            self._pending = line
            return
        mirrors, before = self._mirrors, self._mirrors.present
        reply, mirrors.present, moved = answer(mirrors.size, before, line.decode())
        if moved:
            mirrors.show(sorted(set(before) & set(mirrors.present)))
            asyncio.get_running_loop().call_later(mirrors.switching_s, self._settle, reply)
        else:
            self._transport.write(reply)

    def _settle(self, reply: bytes) -> None:
        self._mirrors.show(self._mirrors.present, partial(self._transport.write, reply))


async def serve(count: int, size: int, switching_s: float, listener: str | None) -> None:
    """Serve until SIGTERM; prints all planes' addresses in a line once all planes listen."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    switches = None
    if listener is not None:
        switches = await teller(listener)
        hearing = asyncio.create_task(switches.receive())
        hearing.add_done_callback(lambda _: stop.set())
    addresses = []
    for number in range(count):
        mirrors = Mirrors(number, size, switching_s, switches)
        server = await loop.create_server(partial(Plane, mirrors), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        addresses.append(f"{host}:{port}")
    print(*addresses, flush=True)
    await stop.wait()


if __name__ == "__main__":
    socket = sys.argv[4] if len(sys.argv) > 4 else None
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000, socket))
