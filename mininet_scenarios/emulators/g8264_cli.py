"""The command line of an emulated G8264: a terminal with echo, prompt and pager."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.g8264_switch import G8264, CommandError, Place

_NAME: Final = "RS G8264"
_PAGER: Final = "Press q to quit, any other key to continue"
_PAGE_LINES: Final = 20
_BREAK: Final = "\r\n"
_NOTICE: Final = ("#" * 36, f"# {'Authorised users only':32} #", "#" * 36, "")
"""Lines that a console shows before the login: any text of the owner's choice."""


class HungUpError(Exception):
    """The connection is to close at once, or has."""


class CommandLine:
    """A session. ``read`` returns some bytes, or none after the client has left.

    With ``credentials``, (user, password), the session begins with a login, as on a console.
    """

    def __init__(
        self,
        switch: G8264,
        read: Callable[[], Awaitable[bytes]],
        send: Callable[[bytes], None],
        credentials: tuple[str, str] | None = None,
    ) -> None:
        self._switch = switch
        self._credentials = credentials
        self._read = read
        self._send = send
        self._unsent = ""
        self._keys = b""
        self._place = Place()
        self._privileged = False
        self._paged = True

    async def run(self) -> None:
        """Serve until the client leaves. Raises HungUpError to break the session."""
        if self._credentials is not None:
            await self._admit(self._credentials)
        self._write(f"{_BREAK}IBM Networking Operating System RackSwitch G8264.{_BREAK}{_BREAK}")
        self._prompt()
        line = ""
        while True:
            key = await self._key()
            if self._switch.faults.active(FaultKind.MUTE):
                continue
            if key not in "\r\n":
                self._write(key)
                line += key
                continue
            self._write(_BREAK)
            if key == "\r" and not await self._carry_out(line.strip()):
                return
            line = ""

    async def _admit(self, credentials: tuple[str, str]) -> None:
        self._write("".join(f"{line}{_BREAK}" for line in _NOTICE))
        while True:
            user = await self._ask("Enter login username: ", echo=True)
            if user and credentials == (
                user,
                await self._ask("Enter login password: ", echo=False),
            ):
                return

    async def _ask(self, question: str, *, echo: bool) -> str:
        self._write(question)
        answer = ""
        while (key := await self._key()) != "\r":
            answer += key
            if echo:
                self._write(key)
        self._write(_BREAK)
        return answer

    async def _carry_out(self, command: str) -> bool:
        """Carry out a command; returns False when the session is over."""
        await asyncio.sleep(self._switch.faults.delay_s)
        changes = command.startswith("switchport")
        if changes and self._switch.faults.strikes(FaultKind.KILL):
            raise HungUpError
        try:
            over = command in ("logout", "quit")
            await self._print([] if over else self._output(command))
        except CommandError as error:
            self._write(f"{error}{_BREAK}")
            over = False
        if changes and self._switch.faults.strikes(FaultKind.LOSE_REPLY):
            raise HungUpError
        self._prompt()
        return not over

    def _output(self, command: str) -> list[str]:
        if not command or command.startswith("!"):
            return []
        if self._place.configuring:
            self._switch.configure(self._place, command)
            return []
        output: list[str] = []
        match command.split(), self._privileged:
            case ["enable"], _:
                self._privileged = True
                output = ["", "Enable privilege granted."]
            case ["terminal-length", "0"], _:
                self._paged = False
            case ["no", "prompting"] | ["end"], _:
                pass
            case ["configure", "terminal"], True:
                self._place.configuring = True
                output = ["Enter configuration commands, one per line.  End with Ctrl/Z."]
            case ["show", "running-config"], True:
                output = self._switch.running_config()
            case ["show", "interface", "status"], _:
                output = self._switch.status()
            case _:
                raise CommandError(f"% Error: unknown command: {command[:40]}")
        return output

    async def _print(self, lines: list[str]) -> None:
        paged = self._paged or self._switch.faults.active(FaultKind.PAGER)
        for number, line in enumerate(lines, 1):
            self._write(line + _BREAK)
            if paged and number % _PAGE_LINES == 0 and number < len(lines):
                self._write(_PAGER)
                key = await self._key()
                self._write("\r" + " " * len(_PAGER) + "\r")
                if key == "q":
                    return

    async def _key(self) -> str:
        if not self._keys:
            self._flush()
            self._keys = await self._read()
            if not self._keys:
                raise HungUpError
        key, self._keys = self._keys[:1], self._keys[1:]
        return key.decode("ascii", errors="replace")

    def _write(self, text: str) -> None:
        self._unsent += text

    def _flush(self) -> None:
        if self._unsent:
            self._send(self._unsent.encode())
            self._unsent = ""

    def _prompt(self) -> None:
        mode = self._place.mode if self._privileged else ">"
        self._write(f"{_NAME}{mode}")
