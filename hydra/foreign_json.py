"""JSON from foreign sources: deeply nested values are refused.

Otherwise the limit depends on the Python version. From Python 3.14 on, a text of 60,000 levels is
read, but serializing the value, for example into a message, overflows the stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

MOST_LEVELS: Final = 64
"""Largest number of arrays and objects around a value."""
TOO_DEEP: Final = f"values are nested more than {MOST_LEVELS} levels deep"
Json: TypeAlias = Any
_Hook: TypeAlias = Callable[[list[tuple[str, Json]]], object]
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


class TooDeep(ValueError):
    """Text with more than :data:`MOST_LEVELS` levels."""

    def __init__(self) -> None:
        super().__init__(TOO_DEEP)


def loads(text: str | bytes, object_pairs_hook: _Hook | None = None) -> Json:
    """Like ``json.loads``. Raises ValueError; TooDeep even for a text that is incomplete."""
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if _is_too_deep(text):
        raise TooDeep
    return json.loads(text, object_pairs_hook=object_pairs_hook)


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MOST_LEVELS:
        return False
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MOST_LEVELS:
            return True
    return False
