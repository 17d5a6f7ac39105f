"""An optical switch of no vendor: ``python -m mininet_scenarios.emulators.craft_terminal``.

The test device of the template driver. The device is worked by a craft terminal, like many small
devices: a log-in dialogue, a prompt, an echo of the input, and answers made for people. The
language is an invention of this project. Inputs and outputs are both counted from 1::

    OXC> patch 1 to 2, 2 to 1
    ok
    OXC> show patches
    1 -> 2
    2 -> 1
    2 patches
    OXC> unpatch 1 to 2
    ok

Options and common behaviour: :mod:`mininet_scenarios.emulators.process`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.faults import OF_BAD_LINES, OF_SWITCHES, FaultKind
from mininet_scenarios.emulators.ocs import CommandError, EmulatedOcs
from mininet_scenarios.emulators.process import Product, run
from mininet_scenarios.emulators.sessions import SessionServer, answered

PROMPT: Final = "OXC> "
_DEVICE: Final = EMULATORS["template"]
_LAUNCHED_DBM: Final = -3.0
_LOSS_DB: Final = 1.5
_MAX_LINE_BYTES: Final = 65536
_LINE: Final = re.compile(rb"([^\r\n]*)\r?\n")
_PAIR: Final = re.compile(r"([0-9]{1,6}) to ([0-9]{1,6})", re.ASCII)

_Handler = Callable[[str], Awaitable[list[str]]]


class TypingError(CommandError):
    """A line without a valid command."""


class CraftTerminal(SessionServer):
    """A device with any number of logged-in people."""

    def __init__(self, ocs: EmulatedOcs, serial: str) -> None:
        super().__init__()
        self._ocs = ocs
        self._serial = serial
        self._handlers: Mapping[str, _Handler] = {
            "patch": self._patch,
            "unpatch": self._unpatch,
            "show patches": self._show_patches,
            "show size": self._show_size,
            "show power": self._show_power,
            "show ports": self._show_ports,
            "version": self._version,
        }

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = _Lines(reader)
        if not await self._log_in(lines, writer):
            return
        while (line := await lines.read()) is not None:
            if self._ocs.faults.active(FaultKind.MUTE):
                continue
            writer.write(
                await answered(self._ocs.faults, partial(self._reply, line), moves=_moves(line))
            )
            await writer.drain()

    async def _log_in(self, lines: _Lines, writer: asyncio.StreamWriter) -> bool:
        await self._print(writer, ["Optical cross-connect"], "login: ")
        while (username := await lines.read()) is not None:
            await self._print(writer, [], "password: ")
            password = await lines.read()
            if (username, password) == (_DEVICE.user, _DEVICE.password):
                await self._print(writer, [""], PROMPT)
                return True
            await self._print(writer, ["", "login incorrect"], "login: ")
        return False

    async def _print(self, writer: asyncio.StreamWriter, lines: list[str], prompt: str) -> None:
        if self._ocs.faults.active(FaultKind.MUTE):
            return
        writer.write(_printed(lines, prompt))
        await writer.drain()

    async def _reply(self, line: str) -> bytes:
        return _printed([line, *await self._answer(line)], PROMPT)

    async def _answer(self, line: str) -> list[str]:
        if not line.strip():
            return []
        try:
            for verb, handler in self._handlers.items():
                if line == verb or line.startswith(f"{verb} "):
                    return await handler(line.removeprefix(verb).strip())
        except CommandError as error:
            return [f"error: {error}"]
        return [f"error: there is no command {line.split(maxsplit=1)[0]!r}"]

    # --- commands -------------------------------------------------------------------------------

    async def _patch(self, rest: str) -> list[str]:
        self._ocs.connect(self._pairs(rest))
        await self._ocs.settled()
        return ["ok"]

    async def _unpatch(self, rest: str) -> list[str]:
        self._ocs.disconnect(self._pairs(rest))
        await self._ocs.settled()
        return ["ok"]

    async def _show_patches(self, _rest: str) -> list[str]:
        size, present = self._ocs.size, self._ocs.cross_connects
        rows = [f"{a} -> {b - size}" for a, b in sorted(present.items())]
        return [*rows, f"{len(rows)} patches"]

    async def _show_size(self, _rest: str) -> list[str]:
        return [f"{self._ocs.size} inputs, {self._ocs.size} outputs"]

    async def _show_power(self, _rest: str) -> list[str]:
        size, lit = self._ocs.size, await self._ocs.lit()
        inputs = [f"in {number}: {_LAUNCHED_DBM} dBm" for number in _up_to(size)]
        received = f"{_LAUNCHED_DBM - _LOSS_DB} dBm"
        return inputs + [
            f"out {n}: {received if size + n in lit else 'dark'}" for n in _up_to(size)
        ]

    async def _show_ports(self, _rest: str) -> list[str]:
        states = ["off" if self._ocs.disabled(p) else "on" for p in _up_to(2 * self._ocs.size)]
        size = self._ocs.size
        inputs = [f"in {number} {state}" for number, state in enumerate(states[:size], 1)]
        return inputs + [f"out {number} {state}" for number, state in enumerate(states[size:], 1)]

    async def _version(self, _rest: str) -> list[str]:
        size = self._ocs.size
        return [f"Example OXC-{size}x{size} serial {self._serial} release 1.0"]

    # --- arguments ------------------------------------------------------------------------------

    def _pairs(self, text: str) -> list[tuple[int, int]]:
        found = [_PAIR.fullmatch(part.strip()) for part in text.split(",")]
        return [self._pair(match, text) for match in found]

    def _pair(self, match: re.Match[str] | None, text: str) -> tuple[int, int]:
        if match is None:
            raise TypingError(f"{text!r} is not INPUT to OUTPUT")
        return int(match[1]), self._ocs.size + int(match[2])


class _Lines:
    """Lines typed by a person."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._pending = b""

    async def read(self) -> str | None:
        """The next line, possibly blank; None once the person has left."""
        while not (match := _LINE.match(self._pending)):
            data = await self._reader.read(_MAX_LINE_BYTES)
            if not data or len(self._pending) > _MAX_LINE_BYTES:
                return None
            self._pending += data
        self._pending = self._pending[match.end() :]
        return match[1].decode("ascii", errors="replace")


def _printed(lines: list[str], prompt: str) -> bytes:
    return "".join([*(f"{line}\r\n" for line in lines), prompt]).encode()


def _moves(line: str) -> bool:
    return line.startswith(("patch", "unpatch"))


def _up_to(count: int) -> range:
    return range(1, count + 1)


PRODUCT: Final = Product(
    "craft_terminal", __doc__, "terminal", 2323, CraftTerminal, OF_SWITCHES | OF_BAD_LINES
)

if __name__ == "__main__":
    sys.exit(run(PRODUCT))
