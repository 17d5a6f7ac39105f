"""The Polatis SCPI grammar from the device's side: commands in, reply text out.

Written independently of the controller's codec, so that tests show the codec's misreadings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PARAMETER_MISSING: Final = -109
PARAMETER_NOT_ALLOWED: Final = -108
SYNTAX_ERROR: Final = -102
UNDEFINED_HEADER: Final = -113
EXECUTION_ERROR: Final = -200
SETTINGS_CONFLICT: Final = -221
OUT_OF_RANGE: Final = -222

_COMMAND: Final = re.compile(r"(\*?[A-Za-z:]+)(\?)?(?:\s+(.*))?")
_LISTS: Final = re.compile(r"\(@([^()]*)\)")


class GrammarError(Exception):
    """An invalid command; ``code`` as in SCPI-99 volume 2 chapter 21."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Command:
    """``keyword`` is in lower case without the leading colon, but with a query's question mark."""

    keyword: str
    argument: str


def split_line(line: str) -> list[Command | GrammarError]:
    """The commands of a line, in order; for an invalid command, the error."""
    found: list[Command | GrammarError] = []
    for part in map(str.strip, line.split(";")):
        if not part:
            continue
        match = _COMMAND.fullmatch(part)
        if match is None:
            found.append(GrammarError(SYNTAX_ERROR, "Syntax error"))
        else:
            keyword = match[1].lower().removeprefix(":") + (match[2] or "")
            found.append(Command(keyword, match[3] or ""))
    return found


def one_list(argument: str) -> list[int]:
    """``(@1,2)`` → ``[1, 2]``."""
    lists = _port_lists(argument)
    if len(lists) != 1:
        raise GrammarError(PARAMETER_NOT_ALLOWED, "Parameter not allowed")
    return lists[0]


def two_lists(argument: str) -> tuple[list[int], list[int]]:
    """``(@1,2),(@17,18)`` → ``([1, 2], [17, 18])``."""
    lists = _port_lists(argument)
    if len(lists) < 2:
        raise GrammarError(PARAMETER_MISSING, "Missing parameter")
    if len(lists) > 2:
        raise GrammarError(PARAMETER_NOT_ALLOWED, "Parameter not allowed")
    return lists[0], lists[1]


def one_number(argument: str) -> int:
    if not argument.isascii() or not argument.isdigit():
        raise GrammarError(SYNTAX_ERROR, "Syntax error")
    return int(argument)


def port_list(ports: Iterable[int]) -> str:
    """``[1, 2]`` → ``(@1,2)``."""
    return "(@" + ",".join(map(str, ports)) + ")"


def error_queue(errors: Iterable[tuple[int, str]]) -> str:
    """Reply to ``:syst:err:all?``."""
    return ",".join(f'{code},"{text}"' for code, text in errors) or '0,"No error"'


def _port_lists(argument: str) -> list[list[int]]:
    if not argument:
        raise GrammarError(PARAMETER_MISSING, "Missing parameter")
    if _LISTS.sub("L", argument.replace(" ", "")).strip("L,"):
        raise GrammarError(SYNTAX_ERROR, "Syntax error")
    return [_numbers(inner) for inner in _LISTS.findall(argument)]


def _numbers(inner: str) -> list[int]:
    try:
        return list(map(int, inner.split(","))) if inner.strip() else []
    except ValueError:
        raise GrammarError(SYNTAX_ERROR, "Syntax error") from None
