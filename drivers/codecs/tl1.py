"""TL1, for all vendors: commands out, bytes in, events out; no socket and no clock.

A command is ``NAME:TID:AID:CTAG:block:…;``. The device sends replies, each with its command's ctag,
and autonomous messages, also between a command and its reply, or in the middle of a reply. A long
reply comes in several blocks, all but the last ended by ``>`` instead of ``;``; the decoder joins
the blocks. Text between messages (echoes, prompts, banners, terminal control sequences) becomes
:class:`Echo` and is otherwise ignored.

Source: Telcordia GR-831-CORE (message structure) and GR-833-CORE (alarm reports). Vendors' dialects
are in ``polatis_tl1``, ``calient_tl1`` and ``glimmerglass_tl1``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

MAX_MESSAGE_BYTES: Final = 1024 * 1024
"""Most bytes kept of unfinished messages: 1000 cross-connects of 250 bytes fit four times."""
MAX_LINE_BYTES: Final = 64 * 1024
"""Longest text between messages: the echo of a command for 1000 cross-connects fits."""
MAX_COMMAND_CHARS: Final = 32 * 1024

_PENDING_REPLIES: Final = 64
_INTERRUPTED: Final = 8
"""Largest number of unfinished messages, each interrupted by the next."""
_SHOWN_CHARS: Final = 80

_LINE_END: Final = re.compile(rb"[\r\n]")
_SPECIAL: Final = re.compile(rb'[\r\n";*/\x00-\x08\x0b\x0c\x0e-\x1f\x7f]')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_BACKSLASH: Final = ord("\\")
_HEADER: Final = re.compile(
    r"(\S(?:.{0,63}\S)?) +([0-9]{2,4}-[0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2})", re.ASCII
)
_REPLY: Final = re.compile(
    r"M +(\S{1,32}) (COMPLD|DENY|PRTL|DELAY|RTRV)(?:[ \t]+(\S.*))?", re.ASCII
)
_LOGGED_OUT: Final = re.compile(
    r"not (?:yet )?logged[- ]?in|login (?:is )?not active|no active login", re.IGNORECASE
)
_LOGGED_IN: Final = re.compile(r"already logged[- ]?in", re.IGNORECASE)
_NO_SESSION_FREE: Final = re.compile(
    r"too many|session limit|max(?:imum)?\b.*\b(?:sessions?|users?|logins?)\b", re.IGNORECASE
)
_AUTONOMOUS: Final = re.compile(r"(\*C|\*\*|\*\^|\*|A) +(\S{1,32}) (\S.*)", re.ASCII)
_ACKNOWLEDGEMENT: Final = re.compile(r"(IP|PF|OK|NA|NG|RL) (\S{1,32})", re.ASCII)

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*", re.ASCII)
_CTAG: Final = re.compile(r"[A-Za-z0-9]{1,6}", re.ASCII)
_BLOCK: Final = re.compile(
    r'(?:[^;:"\x00-\x1f\x7f-\U0010ffff]|"(?:[^"\\\x00-\x1f\x7f-\U0010ffff]|\\["\\])*")*'
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]*")


class Tl1Error(Exception):
    """Bytes or text outside the grammar."""


class Completion(Enum):
    """Outcome of a command (GR-831-CORE section 3.2.2)."""

    COMPLETED = "COMPLD"
    DENIED = "DENY"
    PARTIAL = "PRTL"
    DELAYED = "DELAY"
    RETRIEVED = "RTRV"
    """A part of a long reply."""


@dataclass(frozen=True, slots=True)
class Header:
    """Sender of a message, and the time by its clock."""

    source: str
    date: str
    time: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply, its blocks joined; lines are stripped and not empty."""

    header: Header
    ctag: str
    completion: Completion
    lines: tuple[str, ...]

    @property
    def records(self) -> tuple[str, ...]:
        """The quoted lines, without quotes."""
        return tuple(_unquoted(line) for line in self.lines if line.startswith('"'))

    @property
    def code(self) -> str:
        """Code of a denial, e.g. ``IDNV``; empty if the device gives none."""
        first = self.lines[0] if self.lines else ""
        return first if re.fullmatch(r"[A-Z]{4}", first) else ""

    @property
    def reason(self) -> str:
        """The device's whole text, on one line."""
        return " ".join(_bare(line) for line in self.lines) or "without a reason"


@dataclass(frozen=True, slots=True)
class Autonomous:
    """A message that the device sent unasked."""

    header: Header
    alarm_code: str
    """``*C``, ``**``, ``*^`` or ``*``: critical, major, minor; ``A``: no alarm."""
    tag: str
    verb: str
    """E.g. ``REPT ALM EQPT``."""
    lines: tuple[str, ...]

    @property
    def records(self) -> tuple[str, ...]:
        """The quoted lines, without quotes."""
        return tuple(_unquoted(line) for line in self.lines if line.startswith('"'))


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """``IP`` or similar: the device has received a command and may answer later."""

    code: str
    ctag: str


@dataclass(frozen=True, slots=True)
class Echo:
    """Text between messages, without prompts and control characters."""

    text: str


Event = Reply | Autonomous | Acknowledgement | Echo


# --- decoding -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Message:
    header: Header
    identification: tuple[str, str] | tuple[str, str, str] | None = None
    """(ctag, completion) of a reply; (alarm code, tag, verb) of an autonomous message."""
    lines: list[str] = field(default_factory=list)
    heading: str | None = None
    """Header line of an interrupting message, if the next line identifies a message."""


class Decoder:
    """Cuts a byte stream into events, however the bytes were split on their way.

    ``prompts`` are the texts with which the device asks for a command. At most
    :data:`MAX_MESSAGE_BYTES` of unfinished messages are kept. Before the first message, a line that
    looks like a message's header may be part of a banner, and is then ignored.
    """

    def __init__(self, prompts: Iterable[str] = ()) -> None:
        # GR-831-CORE: an acknowledgement ends with ``<``.
        self._prompts = tuple(sorted({"<", *prompts}, key=len, reverse=True))
        self._line = bytearray()
        self._message: _Message | None = None
        self._interrupted: list[_Message] = []
        self._greeting = True
        self._in_quote = False
        self._in_comment = False
        self._begun: dict[str, list[str]] = {}
        self._kept = 0
        self._events: deque[Event] = deque()
        self._error: Tl1Error | None = None

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the device; bytes after the first bad byte are ignored."""
        position = 0
        while position < len(data) and self._error is None:
            if self._message is None:
                position = self._take_chatter(data, position)
            else:
                position = self._take_message(self._message, data, position)

    def next_event(self) -> Event | None:
        """The next event, or None when more bytes are needed.

        Raises :class:`Tl1Error` once all events before the bad byte are taken; a decoder that has
        raised never recovers.
        """
        if self._events:
            return self._events.popleft()
        if self._error is not None:
            raise self._error
        return None

    # Between messages: lines of anything.

    def _take_chatter(self, data: bytes, position: int) -> int:
        end = _LINE_END.search(data, position)
        stop = len(data) if end is None else end.start()
        if len(self._line) + stop - position > MAX_LINE_BYTES:
            self._fail(f"more than {MAX_LINE_BYTES} bytes without a line end between messages")
            return len(data)
        self._line += data[position:stop]
        if end is None:
            return stop
        self._classify(self._take_line())
        return end.end()

    def _classify(self, line: str) -> None:
        line = self._without_prompts(line)
        if (header := self._header(line)) is not None:
            self._message = _Message(header)
        elif (acknowledgement := _ACKNOWLEDGEMENT.fullmatch(line)) is not None:
            self._events.append(Acknowledgement(acknowledgement[1], acknowledgement[2]))
        elif line:
            self._events.append(Echo(line))

    def _header(self, line: str) -> Header | None:
        match = _HEADER.fullmatch(self._without_prompts(line))
        return None if match is None else Header(match[1], match[2], match[3])

    def _without_prompts(self, line: str) -> str:
        line = _CONTROL.sub(" ", line).strip()
        while (prompt := next(filter(line.startswith, self._prompts), None)) is not None:
            line = line[len(prompt) :].strip()
        return line

    # Inside a message: lines up to an unquoted semicolon.

    def _take_message(self, message: _Message, data: bytes, position: int) -> int:
        """Take a line, or its part in ``data``; return the position after the line or part."""
        start = position
        for special in _SPECIAL.finditer(data, position):
            at, sign = special.start(), special[0]
            self._extend(data[start:at])
            start = at + 1
            if self._error is not None:
                return start
            if sign in b"\r\n":
                self._end_line(message)
                return start
            if sign == b";" and not self._in_quote and not self._in_comment:
                self._end_message(message)
                return start
            self._note(sign)
            self._extend(sign)
        self._extend(data[start:])
        return len(data)

    def _extend(self, piece: bytes) -> None:
        if self._kept + len(self._line) + len(piece) > MAX_MESSAGE_BYTES:
            self._fail(f"messages of more than {MAX_MESSAGE_BYTES} bytes")
        elif self._error is None:
            self._line += piece

    def _note(self, sign: bytes) -> None:
        """Keep track of quotes and comments; ``sign`` is about to join the line."""
        if self._in_comment:
            if sign == b"/" and self._line.endswith(b"*"):
                self._in_comment = False
        elif sign == b'"':
            self._in_quote = not self._in_quote or self._is_escaped()
        elif sign == b"*" and not self._in_quote:
            self._in_comment = self._line.endswith(b"/")
        elif sign not in b"*/;":
            self._fail(f"byte 0x{sign[0]:02x} in a message")

    def _is_escaped(self) -> bool:
        """True if an odd number of backslashes stands before the next byte."""
        first = len(self._line)
        while first > 0 and self._line[first - 1] == _BACKSLASH:
            first -= 1
        return (len(self._line) - first) % 2 == 1

    def _end_line(self, message: _Message) -> None:
        if self._in_comment:  # a comment may run over several lines
            self._extend(b" ")
            return
        line = self._take_line()
        if message.identification is not None and line == ">":
            self._take_heading(message)
            self._continue(message)
        elif message.identification is None and self._is_banner(line):
            self._message = None
            self._classify(line)
        elif line:
            self._add(message, line)

    def _end_message(self, message: _Message) -> None:
        if line := self._take_line():
            self._add(message, line)
        if self._error is None:
            last = self._message or message
            self._take_heading(last)
            self._finish(last)

    def _take_line(self) -> str:
        line = self._line.decode("latin-1").strip()
        self._line.clear()
        # A quote left open on its line must not swallow the rest of the session.
        self._in_quote = False
        return line

    def _is_banner(self, line: str) -> bool:
        """True if no message begins with this line, though the line before looked like a header."""
        marks = any(mark in line for mark in ('"', "/*"))
        return bool(self._greeting and line and not marks and not _is_identification(line))

    def _add(self, message: _Message, line: str) -> None:
        if message.identification is None:
            self._identify(message, line)
            return
        if message.heading is not None and _is_identification(line):
            self._interrupt(message, message.heading, line)
            return
        self._take_heading(message)
        if self._header(line) is not None:
            message.heading = line
        else:
            self._keep(message, line)

    def _identify(self, message: _Message, line: str) -> None:
        self._greeting = False
        if (reply := _REPLY.fullmatch(line)) is not None:
            message.identification = (reply[1], reply[2])
            if reply[3]:
                self._add(message, reply[3].strip())
        elif (autonomous := _AUTONOMOUS.fullmatch(line)) is not None:
            message.identification = (autonomous[1], autonomous[2], autonomous[3].strip())
        else:
            self._fail(f"neither a reply nor an autonomous message: {shown(line)}")

    def _interrupt(self, message: _Message, heading: str, line: str) -> None:
        """Begin a message in the middle of ``message``, which goes on once the new one ends."""
        header = self._header(heading)
        if header is None or len(self._interrupted) == _INTERRUPTED:
            self._fail(f"more than {_INTERRUPTED} messages, each in the middle of another")
            return
        message.heading = None
        self._interrupted.append(message)
        self._message = _Message(header)
        self._identify(self._message, line)

    def _take_heading(self, message: _Message) -> None:
        """Keep a supposed header as text."""
        if message.heading is not None:
            self._keep(message, message.heading)
            message.heading = None

    def _leave(self) -> None:
        """After the end of a message, go back to the message that was interrupted, if any."""
        self._message = self._interrupted.pop() if self._interrupted else None

    def _keep(self, message: _Message, line: str) -> None:
        if line != ">":  # ``>`` ends a block and is never text
            message.lines.append(line)
            self._kept += len(line) + 1

    def _continue(self, message: _Message) -> None:
        """End a block; a further block will follow."""
        if message.identification is not None and len(message.identification) == 2:
            self._leave()
            ctag = message.identification[0]
            self._begun[ctag] = self._joined(ctag, message.lines)
            if len(self._begun) > _PENDING_REPLIES:
                self._fail(f"more than {_PENDING_REPLIES} replies were begun and not ended")
        else:
            self._finish(message)

    def _joined(self, ctag: str, lines: Sequence[str]) -> list[str]:
        """The lines of a reply's earlier blocks, followed by ``lines``."""
        before = self._begun.pop(ctag, [])
        if before and lines and self._header(before[-1]) and _is_identification(lines[0]):
            self._fail("the header of a message at the end of a block, the rest in the next")
        return [*before, *lines]

    def _finish(self, message: _Message) -> None:
        self._leave()
        if message.identification is None:
            self._fail("a message without a type")
            return
        lines = tuple(message.lines)
        if len(message.identification) == 2:
            ctag, completion = message.identification
            lines = tuple(self._joined(ctag, lines))
            if self._error is not None:
                return
            self._events.append(Reply(message.header, ctag, Completion(completion), lines))
        else:
            alarm_code, tag, verb = message.identification
            self._events.append(Autonomous(message.header, alarm_code, tag, verb, lines))
        self._kept -= sum(len(line) + 1 for line in lines)

    def _fail(self, reason: str) -> None:
        self._error = Tl1Error(reason)
        self._line.clear()
        self._message = None
        self._interrupted.clear()
        self._begun.clear()


# --- encoding -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """``name:tid:aid:CTAG:blocks…;`` without its ctag, which the sender chooses."""

    name: str
    aid: str = ""
    blocks: tuple[str, ...] = ()
    tid: str = ""


def login(username: str, password: str) -> Command:
    """Log-in (GR-831-CORE); only the encoded command shows the password, never :func:`repr`."""
    return _Secret("ACT-USER", quoted(username), ("", quoted(password)))


def logout(username: str) -> Command:
    """Log-out (GR-831-CORE)."""
    return Command("CANC-USER", quoted(username), ("",))


class _Secret(Command):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"Command({self.name!r}, {self.aid!r}, …)"


def encode_command(command: Command, ctag: str) -> str:
    """The command as sent, including its semicolon.

    Raises Tl1Error, with any ctag or with none; the error shows the invalid value, unless the
    command has a password.
    """
    fields = (command.tid, command.aid, ctag, *command.blocks)
    if _NAME.fullmatch(command.name) is None or _CTAG.fullmatch(ctag) is None:
        raise Tl1Error(f"not a command and its ctag: {shown(command.name)}, {shown(ctag)}")
    bad = next((block for block in fields if _BLOCK.fullmatch(block) is None), None)
    if bad is not None:
        value = "a value" if isinstance(command, _Secret) else shown(bad)
        raise Tl1Error(
            f"{command.name}: {value} can't be sent: only printable ASCII is permitted, with ; and "
            ": in quotes only; rename the object on the device or in the configuration"
        )
    text = ":".join((command.name, *fields)) + ";"
    if len(text) - len(ctag) > MAX_COMMAND_CHARS:
        raise Tl1Error(
            f"{command.name}: {len(text)} characters, of at most {MAX_COMMAND_CHARS}: "
            "ask for fewer ports at once"
        )
    return text


def quoted(text: str) -> str:
    """A parameter's value: in quotes if it holds more than letters, digits and ``_.-``."""
    if _PRINTABLE.fullmatch(text) is None:
        raise Tl1Error("a parameter may hold printable ASCII only")
    if _PLAIN.fullmatch(text) is not None:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, slots=True)
class Dialect:
    """Properties of a vendor's TL1 as needed by a session."""

    prompts: tuple[str, ...]
    line_end: str
    """Line end sent after a command's semicolon."""
    logged_out: frozenset[str]
    """Codes of refusals because nobody is logged in, or not as the right user."""
    no_right: frozenset[str] = frozenset()
    """Codes among ``logged_out`` that may also mean missing rights of the logged-in user."""
    reports_on: tuple[Command, ...] = ()
    """Commands that turn on autonomous messages for a session; the first accepted command is
    enough.

    Empty: the messages are sent unasked.
    """

    def is_logged_out(self, reply: Reply) -> bool:
        """True for the refusal of a command that may be missing only a log-in."""
        if reply.completion is not Completion.DENIED:
            return False
        return reply.code in self.logged_out or _LOGGED_OUT.search(reply.reason) is not None


def is_logged_in(reply: Reply) -> bool:
    """True if a log-in was carried out, or was not needed: the session is logged in already."""
    denied = reply.completion is Completion.DENIED
    return not denied or _LOGGED_IN.search(reply.reason) is not None


def has_no_session_free(reply: Reply) -> bool:
    """True if a log-in was refused since too many are logged in."""
    return _NO_SESSION_FREE.search(reply.reason) is not None


def _is_identification(line: str) -> bool:
    return _REPLY.fullmatch(line) is not None or _AUTONOMOUS.fullmatch(line) is not None


def _unquoted(line: str) -> str:
    inner = line[1:].rstrip(",")
    inner = inner.removesuffix('"')
    return inner.replace('\\"', '"')


def _bare(line: str) -> str:
    return line.removeprefix("/*").removesuffix("*/").strip().strip('"')


def shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}...")
