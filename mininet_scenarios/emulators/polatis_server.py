"""Polatis SCPI over TCP in front of an emulated optical switch; any number of clients."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, Final

from mininet_scenarios.emulators import polatis_language as language
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.ocs import (
    BusyPortError,
    CommandError,
    EmulatedOcs,
    NoSuchPortError,
)
from mininet_scenarios.emulators.polatis_language import Command, GrammarError
from mininet_scenarios.emulators.sessions import SessionServer, answered

_MAX_LINE_BYTES: Final = 65536
_MAX_ERRORS: Final = 100
_FIRMWARE: Final = "6.5.2.18"
_DARK_DBM: Final = -50.0
"""Reading of a monitor without light."""
_MOVING: Final = frozenset(
    {"oxc:swit:conn:add", "oxc:swit:conn:only", "oxc:swit:conn:sub", "oxc:swit:disc:all"}
)

_Handler = Callable[[str], Awaitable[str | None]]


class PolatisServer(SessionServer):
    """A device whose error queue is shared by all clients, as on a bench instrument."""

    SEPARATOR: ClassVar[str] = ";"
    """Between the answers to the queries of one line."""
    LINE_END: ClassVar[str] = "\r"
    START: ClassVar[str] = "AUT"
    """Mode at the start: ``DARK``, ``REST`` or ``AUT``."""

    def __init__(self, ocs: EmulatedOcs, serial: str) -> None:
        super().__init__()
        self._ocs = ocs
        self._serial = serial
        self._errors: deque[tuple[int, str]] = deque(maxlen=_MAX_ERRORS)
        self._listing, self._listed_at = "", -1
        self._handlers: Mapping[str, _Handler] = {
            "*idn?": self._identity,
            "*opc?": self._complete,
            "*cls": self._clear,
            "syst:err:all?": self._take_errors,
            "oxc:boot:mode?": self._start,
            "oxc:swit:size?": self._size,
            "oxc:swit:conn:add": self._add,
            "oxc:swit:conn:only": self._only,
            "oxc:swit:conn:sub": self._sub,
            "oxc:swit:conn:stat?": self._connections,
            "oxc:swit:conn:port?": self._peer,
            "oxc:swit:disc:all": self._disconnect_all,
            "oxc:swit:port:stat?": self._port_states,
            "pmon:pow?": self._powers,
            "oxc:swit:port:dis": self._disable,
            "oxc:swit:port:enab": self._enable,
        }

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pending = b""
        while data := await reader.read(_MAX_LINE_BYTES):
            if self._ocs.faults.active(FaultKind.MUTE):
                continue
            *lines, pending = re.split(rb"[\r\n]+", pending + data)
            for line in lines:
                await self._answer(line, writer)
            if len(pending) > _MAX_LINE_BYTES:
                return

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        parts = language.split_line(line.decode("ascii", errors="replace"))
        moving = any(isinstance(part, Command) and part.keyword in _MOVING for part in parts)
        writer.write(await answered(self._ocs.faults, lambda: self._reply(parts), moves=moving))
        await writer.drain()

    async def _reply(self, parts: Sequence[Command | GrammarError]) -> bytes:
        replies = [r for r in [await self._carry_out(part) for part in parts] if r is not None]
        return (self.SEPARATOR.join(replies) + self.LINE_END).encode() if replies else b""

    async def _carry_out(self, command: Command | GrammarError) -> str | None:
        try:
            if isinstance(command, GrammarError):
                raise command
            handler = self._handlers.get(command.keyword)
            if handler is None:
                raise GrammarError(language.UNDEFINED_HEADER, "Undefined header")
            return await handler(command.argument)
        except GrammarError as error:
            self._errors.append((error.code, str(error)))
        except NoSuchPortError as error:
            self._errors.append((language.OUT_OF_RANGE, f"Data out of range; {error}"))
        except BusyPortError as error:
            self._errors.append((language.SETTINGS_CONFLICT, f"Settings conflict; {error}"))
        except CommandError as error:
            self._errors.append((language.EXECUTION_ERROR, f"Execution error; {error}"))
        return None

    # --- commands -------------------------------------------------------------------------------

    async def _identity(self, _argument: str) -> str:
        size = self._ocs.size
        return f"Polatis,N-VST-{size}x{size}-LU1-DMHNV,{self._serial},{_FIRMWARE}"

    async def _complete(self, _argument: str) -> str:
        await self._ocs.settled()
        return "1"

    async def _clear(self, _argument: str) -> None:
        self._errors.clear()

    async def _take_errors(self, _argument: str) -> str:
        reply = language.error_queue(self._errors)
        self._errors.clear()
        return reply

    async def _start(self, _argument: str) -> str:
        return self.START

    async def _size(self, _argument: str) -> str:
        return f"{self._ocs.size},{self._ocs.size}"

    async def _add(self, argument: str) -> None:
        self._ocs.connect(_paired(argument))

    async def _only(self, argument: str) -> None:
        self._ocs.connect_only(_paired(argument))

    async def _sub(self, argument: str) -> None:
        ingress, egress = language.two_lists(argument)
        if egress:
            self._ocs.disconnect(_paired(argument))
        else:
            self._ocs.disconnect_ingress(ingress)

    async def _disconnect_all(self, _argument: str) -> None:
        self._ocs.disconnect(list(self._ocs.cross_connects.items()))

    async def _connections(self, _argument: str) -> str:
        if self._listed_at != self._ocs.moves:
            present = sorted(self._ocs.cross_connects.items())
            lists = (language.port_list(port[side] for port in present) for side in (0, 1))
            self._listing, self._listed_at = ",".join(lists), self._ocs.moves
        return self._listing

    async def _peer(self, argument: str) -> str:
        port = language.one_number(argument)
        self._ocs.check_port(port)
        present = self._ocs.cross_connects
        peers = {**present, **{egress: ingress for ingress, egress in present.items()}}
        return f'"{peers.get(port, "")}"'

    async def _port_states(self, argument: str) -> str:
        letters = ("D" if self._ocs.disabled(p) else "E" for p in language.one_list(argument))
        return f"({','.join(letters)})"

    async def _powers(self, argument: str) -> str:
        readings = [self._ocs.power_dbm(port) for port in language.one_list(argument)]
        return f"({','.join(f'{_DARK_DBM if dbm is None else dbm:.2f}' for dbm in readings)})"

    async def _disable(self, argument: str) -> None:
        self._ocs.set_enabled(language.one_list(argument), enabled=False)

    async def _enable(self, argument: str) -> None:
        self._ocs.set_enabled(language.one_list(argument), enabled=True)


class LinewiseServer(PolatisServer):
    """Answers each query in a line ended by LF, gives busy ports away, and starts dark."""

    SEPARATOR = "\n"
    LINE_END = "\n"
    START = "DARK"

    async def _add(self, argument: str) -> None:
        if not self._ocs.faults.active(FaultKind.STEAL):
            self._ocs.faults.arm(FaultKind.STEAL, 1, 0.0)
        await super()._add(argument)


def _paired(argument: str) -> list[tuple[int, int]]:
    ingress, egress = language.two_lists(argument)
    if len(ingress) != len(egress):
        raise GrammarError(language.OUT_OF_RANGE, "Data out of range; lists differ in length")
    return list(zip(ingress, egress, strict=True))
