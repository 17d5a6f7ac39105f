"""JSON-RPC of an OVSDB server (RFC 7047): bytes to messages, and VLANs to text.

A trunk has up to 4094 VLANs, and most ports have equal VLANs. So a long set of numbers is not
parsed as JSON: a cache maps the set's text to a frozen set, and ports with equal texts share one
frozen set. For writing, a second cache maps frozen sets to texts.
"""

from __future__ import annotations

import codecs
from typing import Any, Final

from drivers.codecs.json_stream import JsonStream

_SET: Final = b'["set",['
_END: Final = b"]]"
_SHORT: Final = 128
"""Longest text of numbers, in bytes, that is read like any other JSON."""
_MARK: Final = "hydra:set"
"""Key of an object that replaces a long set in the text read as JSON. OVSDB's values are no
objects, and no table or column has such a name.
"""
_KEPT: Final = 128
"""Largest number of cached long sets; a full cache is emptied."""
_LONGEST: Final = 64 << 20
"""Longest accepted message, in bytes."""


class OvsdbError(Exception):
    """Bytes that are no message of OVSDB."""


class SharedSets:
    """Cache of long sets of numbers: from the text in a server's message to the set, and from the
    set to the text. Thread-safe.
    """

    def __init__(self) -> None:
        self._sets: dict[bytes, frozenset[int]] = {}
        self._texts: dict[frozenset[int], bytes] = {}

    def numbers(self, text: bytes) -> frozenset[int]:
        """The set of the numbers in a comma-separated text. Raises OvsdbError."""
        known = self._sets.get(text)
        if known is not None:
            return known
        try:
            found = [int(number) for number in text.split(b",")]
        except ValueError:
            raise OvsdbError("a set of numbers has an element of a different type") from None
        known = frozenset(found)
        if len(known) != len(found):
            raise OvsdbError("a set has a number twice")
        self._keep(text, known)
        return known

    def text(self, numbers: frozenset[int]) -> bytes:
        """The text of a set in a message: ascending numbers, separated by commas."""
        known = self._texts.get(numbers)
        if known is None:
            known = ",".join(map(str, sorted(numbers))).encode()
            if len(known) > _SHORT:
                self._keep(known, numbers)
        return known

    def shared(self, numbers: frozenset[int]) -> frozenset[int]:
        """The object shared by all users of an equal set."""
        return self._sets.get(self.text(numbers), numbers)

    def _keep(self, text: bytes, numbers: frozenset[int]) -> None:
        if len(self._sets) >= _KEPT:
            self._sets, self._texts = {}, {}
        self._sets[text] = numbers
        self._texts[numbers] = text


SETS: Final = SharedSets()


class Messages:
    """JSON-RPC messages, which follow each other without separators."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._long: list[frozenset[int]] = []
        self._stream = JsonStream(self._resolved)
        self._taken = 0

    def receive(self, data: bytes) -> list[dict[str, Any]]:
        """Take the next bytes; return the completed messages. Raises OvsdbError."""
        messages = []
        self._taken += len(data)
        if self._taken > _LONGEST:
            raise OvsdbError(f"a message is longer than {_LONGEST} bytes")
        self._waiting += data
        try:
            self._text += self._decoder.decode(self._without_long_sets())
        except UnicodeDecodeError:
            raise OvsdbError("the text is not UTF-8") from None
        while self._text:
            self._text = self._text[self._stream.feed(self._text) :]
            if self._stream.is_done():
                message = self._stream.finish()
                self._stream = JsonStream(self._resolved)
                if not isinstance(message, dict):
                    raise OvsdbError(message if isinstance(message, str) else "no JSON object")
                self._taken = len(self._waiting)
                if not self._text and not self._waiting:
                    self._long.clear()
                messages.append(message)
        return messages

    def _resolved(self, value: dict[str, Any]) -> object:
        """The long set that an object stands for; other objects unchanged."""
        place = value.get(_MARK)
        if place is None:
            return value
        try:
            return self._long[place]
        except (IndexError, TypeError):
            raise ValueError(f"{_MARK} is not a name of OVSDB") from None

    def _without_long_sets(self) -> bytes:
        """The readable part of the received bytes, with marks in place of long sets of numbers."""
        waiting, begun = self._waiting, 0
        pieces: list[bytes | bytearray] = []
        while (at := waiting.find(_SET, begun)) >= 0:
            numbers = at + len(_SET)
            end = waiting.find(_END, numbers)
            if end < 0:
                break
            if end - numbers > _SHORT and waiting[numbers : numbers + 1].isdigit():
                pieces.append(waiting[begun:at])
                pieces.append(b'{"%s":%d}' % (_MARK.encode(), len(self._long)))
                self._long.append(SETS.numbers(bytes(waiting[numbers:end])))
            else:
                pieces.append(waiting[begun : end + len(_END)])
            begun = end + len(_END)
        if at < 0:
            at = len(waiting) - _begun(waiting)
        pieces.append(waiting[begun:at])
        del waiting[:at]
        return b"".join(pieces)


def _begun(waiting: bytearray) -> int:
    """Number of bytes at the end that may begin a set."""
    return next(n for n in reversed(range(len(_SET))) if waiting.endswith(_SET[:n]))
