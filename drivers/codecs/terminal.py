"""Terminal sessions of devices that print lines and a prompt: bytes in, replies out; no socket.

A device's output is cut into replies. A reply ends where its :class:`End` shows: at a prompt, at a
question of the log-in dialogue, or with a line known to be the last. A decoder is given the ends of
the log-in dialogue first and the end of every command's reply after that.

Lines end in CR LF, LF or CR. Text is printable ASCII and tabs; anything else (colours, cursor
movement, telnet negotiation) raises :class:`TerminalError`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

MAX_LINE_BYTES: Final = 16 * 1024
MAX_REPLY_BYTES: Final = 1024 * 1024

_BREAK: Final = re.compile(rb"\r\n|\r|\n")
_BAD: Final = re.compile(rb"[^\t\x20-\x7e]")
_SENDABLE: Final = re.compile(r"[\t\x20-\x7e]*", re.ASCII)
_CR: Final = 0x0D


class TerminalError(Exception):
    """Bytes that are no text, a reply of too many bytes, or a refused log-in."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a reply; exactly one of ``prompt``, ``question`` and ``is_last`` is given."""

    prompt: str | None = None
    """Beginning of the line after the reply; no part of the reply."""
    question: str | None = None
    """Text anywhere in a line that ends the reply."""
    is_last: Callable[[str], bool] | None = None
    """True of the reply's last line."""
    refuses: Callable[[str], bool] | None = None
    """True for a line that reports a failed log-in."""

    def find(self, line: str) -> int:
        """Position in an unfinished line after the reply's end; -1 if there is no end."""
        if self.prompt is not None:
            return len(self.prompt) if line.startswith(self.prompt) else -1
        if self.question is not None and (position := line.find(self.question)) >= 0:
            return position + len(self.question)
        return -1


class TerminalDecoder:
    """Cuts a byte stream into replies, however the bytes were split on their way.

    ``opening`` are the ends of the first replies, ``then`` is the end of every later reply.
    """

    def __init__(self, opening: Iterable[End], then: End) -> None:
        self._ends = deque(opening)
        self._then = then
        self._after_cr = False
        self._line = ""
        self._lines: list[str] = []
        self._bytes = 0
        self._replies: deque[str] = deque()
        self._error: TerminalError | None = None

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the device; bytes after the first bad byte are ignored."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if not data or self._error is not None:
            return
        self._after_cr = data[-1] == _CR
        *whole, rest = _BREAK.split(data)
        for text in whole:
            self._extend(text)
            self._break()
        self._extend(rest)

    def next_line(self) -> str | None:
        """The next complete reply, its lines joined by LF; None when more bytes are needed.

        If the device has sent a bad byte, raises :class:`TerminalError` once all replies before the
        bad byte are taken, and at each later call.
        """
        if self._replies:
            return self._replies.popleft()
        if self._error is not None:
            raise self._error
        return None

    @property
    def _end(self) -> End:
        return self._ends[0] if self._ends else self._then

    def _extend(self, text: bytes) -> None:
        """Append to the unfinished line."""
        while text and self._error is None:
            room = min(MAX_LINE_BYTES - len(self._line), MAX_REPLY_BYTES - self._bytes)
            if room <= 0:
                self._fail_as_too_long()
                return
            part, text = text[:room], text[room:]
            bad = _BAD.search(part)
            good = part if bad is None else part[: bad.start()]
            self._line += good.decode("ascii")
            self._bytes += len(good)
            # A reply that ends before the bad byte is complete, however the bytes were split.
            self._find_ends()
            if bad is not None:
                self._fail(f"byte 0x{bad[0][0]:02x} after {self._line[-40:]!r} is no plain text")

    def _find_ends(self) -> None:
        while (position := self._end.find(self._line)) >= 0:
            rest = self._line[position:]
            self._line = "" if self._end.prompt is not None else self._line[:position]
            self._finish(len(rest))
            self._line = rest

    def _break(self) -> None:
        """End the unfinished line."""
        if self._error is not None:
            return
        end, line = self._end, self._line
        if end.refuses is not None and end.refuses(line):
            self._fail(f"the device refuses the log-in: {line[:200]!r}")
            return
        self._lines.append(line)
        self._line = ""
        self._bytes += 1
        if end.is_last is not None and end.is_last(line):
            self._finish(0)
        elif self._bytes > MAX_REPLY_BYTES:
            self._fail_as_too_long()

    def _finish(self, remaining_bytes: int) -> None:
        if self._line:
            self._lines.append(self._line)
        self._replies.append("\n".join(self._lines))
        self._lines, self._line, self._bytes = [], "", remaining_bytes
        if self._ends:
            self._ends.popleft()

    def _fail_as_too_long(self) -> None:
        self._fail(
            f"a reply of more than {MAX_REPLY_BYTES} bytes, or {MAX_LINE_BYTES} in a line, that "
            "does not end"
        )

    def _fail(self, reason: str) -> None:
        self._error = TerminalError(reason)
        self._line, self._lines = "", []


def encode_line(text: str, line_end: str) -> bytes:
    """A line as sent to the device. Raises TerminalError if it is not printable ASCII."""
    if _SENDABLE.fullmatch(text) is None:
        raise TerminalError("a line to the device may hold printable ASCII only")
    return (text + line_end).encode("ascii")
