"""Collection of problems: reported once per place in the file, for any number of racks of a
pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from hydra.config.source import Path, YamlDocument
from hydra.errors import Problem

_T = TypeVar("_T")

MOST_REPORTED: Final = 100


class Located(NamedTuple, Generic[_T]):
    """A value, its place in the file, and the name of the instance at the place."""

    value: _T
    path: Path
    at: str


@dataclass(slots=True)
class _Group:
    message: str
    at: str
    first: Path | None
    more: int = 0


class ProblemLog:
    """Collected problems; equal problems at the same path are counted, not repeated."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Path, str], _Group] = {}
        self._unreported = 0

    def __bool__(self) -> bool:
        return bool(self._groups) or self._unreported > 0

    def add(
        self, path: Path, text: str, *values: object, at: str = "", first: Path | None = None
    ) -> None:
        """Record ``text.format(*values)`` at ``path``, for the instance ``at``.

        If the text ends with the name of the place ``first``, and ``first`` is on a different line,
        the text gets the line number.

        Without values, ``text`` is taken verbatim, including braces. Problems with the same path
        and ``text`` are merged: the first problem is shown, the rest is counted. Problems after the
        first :data:`MOST_REPORTED` are only counted.
        """
        group = self._groups.get((path, text))
        if group is None and len(self._groups) == MOST_REPORTED:
            self._unreported += 1
        elif group is None:
            message = _cut(text.format(*values) if values else text)
            self._groups[path, text] = _Group(message, at, first)
        else:
            group.more += 1

    def count_more(self, number: int) -> None:
        """Count problems beyond :data:`MOST_REPORTED` that are not reported."""
        self._unreported += number

    def first(self) -> str | None:
        """Path and message of the first problem, for use without a document."""
        for (path, _), group in self._groups.items():
            return f"{format_path(path)}: {group.message}"
        return None

    def problems(self, document: YamlDocument) -> tuple[Problem, ...]:
        """All recorded problems, in the order of the file."""
        found = [
            Problem(
                format_path(path),
                _describe(group, path, document),
                document.line_of(path),
                1 + group.more,
            )
            for (path, _), group in self._groups.items()
        ]
        found.sort(key=lambda problem: problem.line or 0)
        if self._unreported:
            rest = f"and {self._unreported:,} more problems: correct the problems above first"
            found.append(Problem("", rest, count=self._unreported))
        return tuple(found)


def _cut(message: str) -> str:
    """``message`` without the middle of a long value."""
    return message if len(message) <= 600 else f"{message[:300]} … {message[-200:]}"


def _describe(group: _Group, path: Path, document: YamlDocument) -> str:
    line = None if group.first is None else document.line_of(group.first)
    other = f" on line {line}" if line not in {None, document.line_of(path)} else ""
    instance = f"for {group.at}" if group.at else ""
    more = f"and {group.more:,} more of the same kind" if group.more else ""
    where = " ".join(part for part in (instance, more) if part)
    return f"{group.message}{other} ({where})" if where else group.message + other


def format_path(path: Path) -> str:
    """``racks[0].prefixes[1]`` for ``("racks", 0, "prefixes", 1)``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
