"""JSON values out of a stream of text, with the standard library's decoder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from hydra.foreign_json import MOST_LEVELS, TOO_DEEP

_REST_OF_STRING: Final = r'[^"\\]*(?:\\.[^"\\]*)*("?)'
_IN_STRING: Final = re.compile(_REST_OF_STRING, re.DOTALL)
_TOKEN: Final = re.compile(rf'[\[\]{{}}]|"{_REST_OF_STRING}', re.DOTALL)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


class JsonStream:
    """Takes in text piece by piece until an object or array is complete."""

    def __init__(self, made_of: Callable[[dict[str, Any]], object] | None = None) -> None:
        """``made_of`` converts each object; None: unchanged. Raises ValueError for invalid JSON."""
        self._made_of = made_of
        self._pieces: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False
        """The last piece ended with a backslash in a string."""
        self._done = False

    def feed(self, text: str) -> int:
        """Take text; return how many characters belong to this value. The rest is not taken."""
        if self._done:
            return 0
        end = self._end(text)
        self._pieces.append(text[:end])
        return len(text) if end is None else end

    def is_done(self) -> bool:
        """True if the value is complete, or can't be completed any more."""
        return self._done

    def finish(self) -> object:
        """The value, or an error message."""
        if not self._done:
            return "the value is not complete"
        if self._depth > MOST_LEVELS:
            return f"no JSON: {TOO_DEEP}"
        try:
            text = "".join(self._pieces)
            value = json.loads(text, parse_constant=_refuse, object_hook=self._made_of)
        except ValueError as error:
            return f"no JSON: {error}"
        return value if isinstance(value, dict | list) else "no JSON object or array"

    def _end(self, text: str) -> int | None:
        """Position after the value's end; None if the end is not in ``text``."""
        position = 0
        if self._in_string:
            rest = _IN_STRING.match(text, 1 if self._escaped else 0)
            if rest is None or not self._leaves_string(rest, text):
                return None
            position = rest.end()
        if self._depth == 0 and text[position:].lstrip()[:1] not in ("", "{", "["):
            self._done = True
            return None
        for token in _TOKEN.finditer(text, position):
            opening = text[token.start()]
            if opening == '"':
                if not self._leaves_string(token, text):
                    return None
            elif opening in "[{":
                self._depth += 1
                if self._depth > MOST_LEVELS:
                    self._done = True
                    return None
            else:
                self._depth -= 1
                if self._depth == 0:
                    self._done = True
                    return token.end()
        return None

    def _leaves_string(self, token: re.Match[str], text: str) -> bool:
        self._in_string = not token.group(1)
        self._escaped = self._in_string and token.end() < len(text)
        return not self._in_string
