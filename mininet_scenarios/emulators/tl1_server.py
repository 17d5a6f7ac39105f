"""TL1 over TCP in front of an emulated optical switch; vendors differ in the commands."""

from __future__ import annotations

import asyncio
import itertools
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from mininet_scenarios.emulators import tl1_language as language
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.ocs import (
    BusyPortError,
    CommandError,
    EmulatedOcs,
    NoSuchPortError,
    StandingAlarm,
)
from mininet_scenarios.emulators.sessions import ReplyLostError, SessionServer, answered
from mininet_scenarios.emulators.tl1_language import Denied, Tl1Command

_READ_BYTES: Final = 65536
_ALARM_CODES: Final = {"CR": "*C", "MJ": "**", "MN": "*^", "CL": "A"}

Records = list[str]
Handler = Callable[["Tl1Client", Tl1Command], Awaitable[Records]]


@dataclass(eq=False, slots=True)
class Tl1Client:
    """A session and its connection."""

    writer: asyncio.StreamWriter
    logged_in: bool
    receives_reports: bool


class Tl1Server(SessionServer):
    """A device. Commands of a client are answered in the order of arrival."""

    PROMPT: ClassVar[str] = ""
    ECHOES: ClassVar[bool] = False
    REPORTS_TO_ALL: ClassVar[bool] = True
    """True if autonomous messages go to every logged-in session without a request."""
    REPORTS_IN_MID_REPLY: ClassVar[bool] = False
    """True if an autonomous message may stand in the middle of a reply, before the first record."""
    USERS: ClassVar[Mapping[str, str]] = {}
    """Passwords by user; empty: no login."""
    NOT_LOGGED_IN: ClassVar[str] = "PLNA"
    MOVING: ClassVar[frozenset[str]] = frozenset()
    """Commands that move mirrors."""
    GREETING: ClassVar[str] = ""
    """Text shown to a client on connecting."""
    SESSIONS: ClassVar[int | None] = None
    """Most log-ins at a time; a log-in counts until the log-out, or until the device drops the
    session.
    """

    def __init__(self, ocs: EmulatedOcs, name: str) -> None:
        super().__init__()
        self.ocs = ocs
        self.name = name
        self._clients: set[Tl1Client] = set()
        self._log_ins: set[Tl1Client] = set()
        self._tags = itertools.count(1)
        self._handlers: dict[str, Handler] = {
            "ACT-USER": self._log_in,
            "CANC-USER": self._log_out,
            **self.handlers(),
        }
        ocs.on_alarm(self._report)

    @abstractmethod
    def handlers(self) -> Mapping[str, Handler]:
        """The vendor's commands; each handler returns the records of the reply."""

    @property
    def source(self) -> str:
        """The system identifier at the head of every message."""
        return self.name

    @abstractmethod
    def alarm_record(self, alarm: StandingAlarm) -> str:
        """A line of an alarm report."""

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Tl1Client(writer, logged_in=not self.USERS, receives_reports=self.REPORTS_TO_ALL)
        self._clients.add(client)
        try:
            self._write(client, self.GREETING.encode())
            await self._serve_commands(reader, client)
        except ReplyLostError:
            self._log_ins.discard(client)
            raise
        finally:
            self._clients.discard(client)

    async def _serve_commands(self, reader: asyncio.StreamReader, client: Tl1Client) -> None:
        buffer = bytearray()
        while data := await reader.read(_READ_BYTES):
            if self.ocs.faults.active(FaultKind.MUTE):
                continue
            buffer += data
            for text in list(language.take_commands(buffer)):
                await self._answer(client, language.parse(text))
            if len(buffer) > language.MAX_COMMAND_BYTES:
                return

    async def _answer(self, client: Tl1Client, command: Tl1Command) -> None:
        faults = self.ocs.faults
        if self.ECHOES or faults.strikes(FaultKind.ECHO):
            client.writer.write(f"{command.text};\r\n".encode())
        if client.logged_in and faults.strikes(FaultKind.IDLE_LOGOUT):
            client.logged_in = not self.USERS
        reply = await answered(
            faults, lambda: self._carry_out(client, command), moves=command.verb in self.MOVING
        )
        if faults.strikes(FaultKind.AUTONOMOUS):
            report = self._autonomous("A", "REPT EVT EQPT", '"SYSTEM:TEST,TC"')
            if self.REPORTS_IN_MID_REPLY:
                head, line_end, rest = reply.partition(b'\r\n   "')
                reply = head + report + line_end + rest if line_end else reply
            else:
                self._write(client, report)
        self._write(client, reply)
        await client.writer.drain()

    async def _carry_out(self, client: Tl1Client, command: Tl1Command) -> bytes:
        faults = self.ocs.faults
        ctag = f"{command.ctag}9"[-6:] if faults.strikes(FaultKind.WRONG_CTAG) else command.ctag
        ctag = ctag or "0"
        try:
            if not client.logged_in and command.verb != "ACT-USER":
                raise Denied(self.NOT_LOGGED_IN, "Not logged in")
            handler = self._handlers.get(command.verb)
            if handler is None:
                raise Denied("ICNV", f"unknown command {command.verb}")
            records = await handler(client, command)
        except Denied as error:
            return language.denial(self.source, _clock(), ctag, error)
        except CommandError as error:
            return language.denial(self.source, _clock(), ctag, self.denial(error))
        in_blocks = 1 if faults.strikes(FaultKind.BLOCKS) else None
        return language.reply(self.source, _clock(), ctag, records, block_records=in_blocks)

    def denial(self, error: CommandError) -> Denied:
        """The vendor's refusal; by GR-831-CORE where nothing else is known."""
        if isinstance(error, NoSuchPortError):
            return Denied("IIAC", f"{error}")
        if isinstance(error, BusyPortError):
            return Denied("SROF", f"{error}")
        return Denied("SROF", f"{error}")

    async def _log_in(self, client: Tl1Client, command: Tl1Command) -> Records:
        username, password = language.unquote(command.aid), language.unquote(command.block(1))
        if self.USERS and self.USERS.get(username) != password:
            raise Denied("PICC", "Permission denied")
        if client.logged_in and self.USERS:
            raise Denied("PICC", "Already logged in")
        if self.SESSIONS is not None and len(self._log_ins) >= self.SESSIONS:
            raise Denied("PICC", "Too many sessions")
        client.logged_in = True
        self._log_ins.add(client)
        return []

    async def _log_out(self, client: Tl1Client, _command: Tl1Command) -> Records:
        client.logged_in = False
        self._log_ins.discard(client)
        return []

    def _report(self, alarm: StandingAlarm) -> None:
        code = _ALARM_CODES[alarm.severity]
        message = self._autonomous(code, "REPT ALM EQPT", f'"{self.alarm_record(alarm)}"')
        for client in self._clients:
            if client.logged_in and client.receives_reports:
                self._write(client, message)

    def _autonomous(self, code: str, verb: str, line: str) -> bytes:
        head = f"{code} {next(self._tags)} {verb}"
        return language.message(self.source, _clock(), head, [line])

    def _write(self, client: Tl1Client, message: bytes) -> None:
        prompt = f"\r\n{self.PROMPT}" if self.PROMPT else "\r\n" if message else ""
        client.writer.write(message + prompt.encode())


def _clock() -> str:
    return time.strftime("%y-%m-%d %H:%M:%S")
