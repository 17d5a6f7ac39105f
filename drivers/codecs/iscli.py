"""The "industry standard" CLI of IBM and Lenovo switches (Networking OS): bytes in, replies out.

A session is a terminal: sent text comes back as an echo, a reply is everything from there to the
next prompt, long output stops at a pager, and lines are redrawn with carriage returns. The prompt
is the switch's name (which may hold spaces), the mode in parentheses, and ``>`` or ``#``: ``RS
G8264>``, ``RS G8264(config-if)#``.

The name is not known when a session starts, and a greeting may look like a prompt. So a client
waits until nothing follows, sends :data:`MARK`, a comment, and takes the name from the line with
the echo. If a log line came after the prompt, the echo stands alone, and the name is in the prompt
after the echo.

Sources: the configuration and output that owners of these switches have published (``interface
port``, ``switchport``, ``show interface status``), and the error texts that Ansible's ENOS terminal
looks for. Inferred: a VLAN list too long for a line is continued on the next line, and the words in
which a console asks for user and password.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from drivers.codecs.unasked import is_echo, is_log_line

MAX_LINE_CHARACTERS: Final = 4096
MAX_REPLY_CHARACTERS: Final = 1 << 20
MAX_COMMAND_CHARACTERS: Final = 240
"""Longest line sent; longer VLAN lists are split into several commands."""

MARK: Final = "!hydra"
PAGER: Final = "Press q to quit, any other key to continue"
PAGER_KEY: Final = b" "

_BACKSPACE: Final = 0x08
_LF: Final = 0x0A
_CR: Final = 0x0D
_IGNORED: Final = frozenset({0x00, 0x07})
_TAB: Final = 0x09
_MODE: Final = r"(?:\([A-Za-z][A-Za-z0-9 -]{0,30}\))?[>#]"
_NAME: Final = r"[^\s>#][^>#]{0,63}?"
_PROMPT: Final = re.compile(rf"(?P<name>{_NAME}){_MODE} *")
_MARKED: Final = re.compile(rf"(?P<name>{_NAME}){_MODE} ?{re.escape(MARK)}")
_USER: Final = re.compile(r"(?i)(?:enter )?(?:login )?(?:user ?name|user|login):")
_PASSWORD: Final = re.compile(r"(?i)(?:enter )?(?:login |enable )?password:")
_ERROR: Final = re.compile(
    r"(?i)\s*(?:% ?(?:error|invalid|bad secret|incomplete|ambiguous|unknown|no such)\b|error\b"
    r"|invalid input|(?:incomplete|ambiguous) command|.*\breturned error code)"
)
_SENDABLE: Final = re.compile(r"[\x20-\x7e]*", re.ASCII)
_NUMBERS: Final = re.compile(r"[0-9]{1,4}(?:-[0-9]{1,4})?(?:,[0-9]{1,4}(?:-[0-9]{1,4})?)*,?")
_PORT_HEADER: Final = re.compile(r"interface port ([0-9A-Za-z,:/-]+)")
_OLD_MEMBERSHIP: Final = re.compile(r"tagging|pvid [0-9]+|member [0-9][0-9,-]*")
_LINK: Final = re.compile(r"[a-z][a-z-]*")
_LAST_VLAN: Final = 4094


class IscliError(Exception):
    """Bytes or text outside the grammar."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The switch's answer to a line, without echo and prompt."""

    echo: str
    """The command as the switch echoed it; empty for unasked output."""
    lines: tuple[str, ...]
    mode: str
    """``>``, ``#``, ``(config)#`` and so on."""

    @property
    def error(self) -> str | None:
        """The first line that reports an error."""
        answer_lines = (line for line in self.lines if not is_log_line(line))
        return next((line.strip() for line in answer_lines if _ERROR.match(line)), None)


@dataclass(frozen=True, slots=True)
class Pager:
    """Output has stopped until a key is pressed: send :data:`PAGER_KEY`."""


@dataclass(frozen=True, slots=True)
class UserWanted:
    """A console asks for a user name."""


@dataclass(frozen=True, slots=True)
class PasswordWanted:
    """The switch asks for a password instead of showing its prompt."""


Event = Reply | Pager | UserWanted | PasswordWanted


@dataclass(frozen=True, slots=True)
class Membership:
    """VLANs of a port by its configuration."""

    trunk: bool
    native: int
    """The untagged VLAN; an access port's only VLAN."""
    allowed: frozenset[int]
    """VLANs of a trunk, with the untagged VLAN if the trunk carries it."""


DEFAULT_MEMBERSHIP: Final = Membership(
    trunk=False, native=1, allowed=frozenset(range(1, _LAST_VLAN + 1))
)
"""Membership of a port that the configuration does not mention."""


# --- the terminal -------------------------------------------------------------------------------


class Terminal:
    """Cuts a byte stream into events, however the bytes were split on their way.

    Holds at most :data:`MAX_REPLY_CHARACTERS` of a reply and :data:`MAX_LINE_CHARACTERS` of a line.
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._line = ""
        self._lines: list[str] = []
        self._size = 0
        self._returned = False
        self._echo: str | None = None
        self._events: deque[Event] = deque()
        self._error: IscliError | None = None
        self._prompt: re.Pattern[str] | None = None
        self._expected: str | None = None
        self._last_line = ""  # until the name is known: the last whole line with text
        self._marked = False  # the mark's echo stood alone: the next prompt has the name

    def expect(self, command: str) -> None:
        """Expect the echo of ``command``, sent next, as the beginning of a reply.

        Lines before the echo, such as log messages after the prompt, are dropped.
        """
        self._expected = command
        self._echo = None
        self._lines = []
        self._size = 0

    @property
    def named(self) -> bool:
        """True once the switch's name, and thereby the prompt, is known."""
        return self._name is not None

    @property
    def may_be_prompt(self) -> bool:
        """True if the last line other than log messages could be a prompt: if nothing follows, the
        mark is due.
        """
        line = _without_log(self._line) or self._last_line
        return not self.named and _PROMPT.fullmatch(line) is not None

    @property
    def asks_for_user(self) -> bool:
        """True if a line since the last prompt is the question for a user: between commands, the
        switch has ended the session.
        """
        lines = (*self._lines, self._echo or "", self._line)
        return any(_USER.fullmatch(line.strip()) is not None for line in lines)

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the device; bytes after the first bad byte are ignored."""
        for byte in data:
            if self._error is None:
                self._take(byte)

    def next_event(self) -> Event | None:
        """The next event, or None when more bytes are needed.

        Raises :class:`IscliError` once all events before the bad byte are taken, and ever after.
        """
        if self._events:
            return self._events.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _take(self, byte: int) -> None:
        if byte == _LF:
            self._end_line()
        elif byte == _CR:
            self._returned = True
        elif byte == _BACKSPACE:
            self._line = self._line[:-1]
        elif byte not in _IGNORED:
            if not (0x20 <= byte <= 0x7E or byte == _TAB or byte >= 0x80):
                self._fail(f"byte 0x{byte:02x} in the output")
                return
            self._print("?" if byte >= 0x80 else chr(byte))

    def _print(self, character: str) -> None:
        if self._returned:  # to the start of the line, which is overwritten
            self._returned = False
            self._line = ""
        if character == " " and not self._line and self.named and self._echo is None:
            return  # spaces between a prompt and its echo
        if len(self._line) >= MAX_LINE_CHARACTERS:
            self._fail(f"a line of more than {MAX_LINE_CHARACTERS} characters")
            return
        self._line += character
        if character in ">#":
            self._look_for_prompt()
        elif character == PAGER[-1] and self._line.endswith(PAGER):
            self._line = ""
            self._events.append(Pager())
        elif character == ":":
            self._look_for_question()

    def _look_for_question(self) -> None:
        if not any(self._lines) and _PASSWORD.fullmatch(self._line):
            self._ask(PasswordWanted())
        elif not self.named and _USER.fullmatch(self._line):
            self._ask(UserWanted())

    def _ask(self, question: UserWanted | PasswordWanted) -> None:
        self._line = self._last_line = ""
        self._marked = False
        self._events.append(question)

    def _look_for_prompt(self) -> None:
        if self._marked and not self.named and not is_log_line(self._line):
            self._learn(_PROMPT.fullmatch(self._line))
        if self._prompt is not None and (match := self._prompt.fullmatch(self._line)):
            self._finish(Reply(self._echo or "", tuple(self._lines), match["mode"]))

    def _finish(self, reply: Reply) -> None:
        self._events.append(reply)
        if reply.echo:
            self._expected = None
        self._line = ""
        self._lines = []
        self._size = 0
        self._echo = None

    def _end_line(self) -> None:
        line, self._line, self._returned = self._line.rstrip(), "", False
        if self._name is None:
            self._learn(_MARKED.fullmatch(line))
            self._marked = self._marked or is_echo(line, MARK)
            self._last_line = _without_log(line) or self._last_line
        elif self._echo is None:
            if self._expected is None or is_echo(line, self._expected):
                self._echo = line
        else:
            self._size += len(line) + 1
            if self._size > MAX_REPLY_CHARACTERS:
                self._fail(f"a reply of more than {MAX_REPLY_CHARACTERS} characters")
                return
            self._lines.append(line)

    def _learn(self, match: re.Match[str] | None) -> None:
        if match is not None:
            self._name = match["name"]
            self._prompt = re.compile(rf"{re.escape(self._name)}(?P<mode>{_MODE})")
            self._echo = MARK

    def _fail(self, reason: str) -> None:
        self._error = IscliError(reason)
        self._line = ""
        self._lines = []


def _without_log(line: str) -> str:
    """A line, or its prompt at the beginning, without a log message."""
    if is_log_line(line):
        return ""
    prompt = _PROMPT.match(line)
    return prompt[0] if prompt and is_log_line(line[prompt.end() :]) else line


def encode_line(text: str) -> bytes:
    """A command line as sent. Raises IscliError if it is too long or not printable ASCII."""
    if len(text) > MAX_COMMAND_CHARACTERS:
        raise IscliError(f"a command of {len(text)} characters (at most {MAX_COMMAND_CHARACTERS})")
    if _SENDABLE.fullmatch(text) is None:
        raise IscliError(f"a command may hold printable ASCII only: {text!r}")
    return text.encode("ascii") + b"\r"


# --- commands -----------------------------------------------------------------------------------


def parse_numbers(text: str) -> frozenset[int]:
    """``1-5,19`` → its numbers. Raises IscliError."""
    if _NUMBERS.fullmatch(text) is None:
        raise IscliError(f"not a list of numbers: {_shown(text)}")
    if text.endswith(","):  # unasked text before the next line hides the rest
        raise IscliError(f"an incomplete list of numbers: {_shown(text)}")
    found: set[int] = set()
    for run in text.split(","):
        first, _, last = run.partition("-")
        if int(last or first) < int(first):
            raise IscliError(f"a range that runs backwards: {_shown(run)}")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def trunk_commands(ports: Collection[int], allowed: Collection[int], native: int) -> Iterator[str]:
    """Make the given ports trunks of exactly the given VLANs, with ``native`` untagged.

    The list comes before the mode: a trunk without a list carries all VLANs.
    """
    for run in _folded(_runs(ports), len("interface port ")):
        yield f"interface port {run}"
        lead = "switchport trunk allowed vlan "
        for number, part in enumerate(_folded(_runs(allowed), len(lead) + len("add "))):
            yield f"{lead}{'add ' if number else ''}{part}"
        yield f"switchport trunk native vlan {native}"
        yield "switchport mode trunk"
        yield "exit"


def _folded(runs: Iterable[str], taken: int) -> Iterator[str]:
    """Runs joined by commas, in pieces that fit a command line."""
    piece = ""
    for run in runs:
        if piece and taken + len(piece) + 1 + len(run) > MAX_COMMAND_CHARACTERS:
            yield piece
            piece = ""
        piece = f"{piece},{run}" if piece else run
    if piece:
        yield piece


def _runs(numbers: Iterable[int]) -> Iterator[str]:
    ascending = sorted(set(numbers))
    start = 0
    for index, number in enumerate(ascending):
        if index + 1 == len(ascending) or ascending[index + 1] != number + 1:
            first, last = ascending[start], number
            yield f"{first}" if first == last else f"{first}-{last}"
            start = index + 1


# --- replies ------------------------------------------------------------------------------------


def parse_memberships(
    lines: Sequence[str], wanted: Collection[int] | None = None
) -> Mapping[int, Membership]:
    """Memberships by port, from ``show running-config``, of the ports named there.

    Membership of ports that are not ``wanted`` is not read; None: all are wanted.

    An unnamed port is an access port of VLAN 1; a trunk without a list carries all VLANs. Raises
    IscliError also for the configuration of an older command line, with other commands for ports'
    VLANs: read in the new grammar, all of its ports would be in VLAN 1.
    """
    found: dict[int, Membership] = {}
    ports: frozenset[int] = frozenset()
    new = any(line.strip() == "iscli-new" for line in lines)
    for line in _unwrapped(lines):
        header = _PORT_HEADER.fullmatch(line)
        if not new and _OLD_MEMBERSHIP.fullmatch(line) is not None:
            raise IscliError(
                f"{_shown(line)} is of the older command line, unsupported by this driver: update"
                " the switch to software with iscli-new"
            )
        if header is not None:
            ports = parse_numbers(header[1]) if _NUMBERS.fullmatch(header[1]) else frozenset()
        elif line in ("exit", "!", "end") or line.startswith("interface "):
            ports = frozenset()  # a block of something else may follow without an end
        elif line.startswith("switchport "):
            for port in ports if wanted is None else ports.intersection(wanted):
                before = found.get(port, DEFAULT_MEMBERSHIP)
                found[port] = _with(before, line)
    return found


def parse_links(lines: Sequence[str]) -> Mapping[str, bool]:
    """Link state by port (True: up), from ``show interface status``.

    Raises IscliError also for text between two rows of the table that is no row and no log message:
    such text may be a part of a row.
    """
    column: int | None = None
    found: dict[str, bool] = {}
    last_port = 0
    strange: str | None = None
    for line in lines:
        words = line.split()
        if column is None:
            if "Link" in words and "Port" in words:
                # The heading names two flow-control columns at once.
                column = 6 if words[0] == "Alias" else 5
        elif is_log_line(line):
            continue
        elif _is_row(words, column) and int(words[column - 5]) > last_port:
            if strange is not None:
                raise IscliError(f"{_shown(strange)} stands in the middle of the table of ports")
            last_port = int(words[column - 5])
            found[words[column - 5]] = words[column] == "up"
            if column == 6:
                found[words[0]] = words[column] == "up"
        elif found and words and strange is None:
            strange = line
    if column is None:
        raise IscliError("no table of ports in the reply to show interface status")
    return found


def _is_row(words: Sequence[str], column: int) -> bool:
    """True for a line with a number in the column of ports and a word in the column of links."""
    long = len(words) > column
    return long and words[column - 5].isdigit() and _LINK.fullmatch(words[column]) is not None


def _with(before: Membership, line: str) -> Membership:
    """A membership after a further line of configuration."""
    match line.split()[1:]:
        case ["mode", mode]:
            return replace(before, trunk=mode == "trunk")
        case ["access", "vlan", vlan] | ["trunk", "native", "vlan", vlan]:
            return replace(before, native=_vlan(vlan))
        case ["trunk", "allowed", "vlan", *how]:
            return replace(before, allowed=_allowed(before.allowed, how))
        case _:
            return before


def _allowed(before: frozenset[int], how: list[str]) -> frozenset[int]:
    match how:
        case ["all"]:
            return DEFAULT_MEMBERSHIP.allowed
        case ["none"]:
            return frozenset()
        case ["add", listed]:
            return before | _vlans(listed)
        case ["remove", listed]:
            return before - _vlans(listed)
        case [listed]:
            return _vlans(listed)
        case _:
            raise IscliError(f"not a list of VLANs: {_shown(' '.join(how))}")


def _unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Lines without indentation; a line that continues a list is joined to the previous line.

    Log messages are left out.
    """
    held: str | None = None
    for raw in lines:
        if is_log_line(raw):
            continue
        line = " ".join(raw.split())
        if held is not None and held.endswith(",") and _NUMBERS.fullmatch(line):
            held += line
            continue
        if held is not None:
            yield held
        held = line
    if held is not None:
        yield held


def _vlan(text: str) -> int:
    (vlan,) = _vlans(text) if text.isdigit() else (0,)
    if vlan == 0:
        raise IscliError(f"not a VLAN: {_shown(text)}")
    return vlan


def _vlans(text: str) -> frozenset[int]:
    vlans = parse_numbers(text)
    if not vlans <= DEFAULT_MEMBERSHIP.allowed:
        raise IscliError(f"VLANs outside 1..{_LAST_VLAN}: {_shown(text)}")
    return vlans


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
