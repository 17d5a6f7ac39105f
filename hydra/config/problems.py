"""Collects problems, once per place in the file however many racks a pattern stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from hydra.config.source import Path, YamlDocument
from hydra.errors import Problem

_T = TypeVar("_T")


class Located(NamedTuple, Generic[_T]):
    """A value, its place in the file, and in words which instance of that place it is."""

    value: _T
    path: Path
    at: str


@dataclass(slots=True)
class _Group:
    message: str
    at: str
    more: int = 0


class ProblemLog:
    """Problems in the making; equal ones at one path are counted, not repeated."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Path, str], _Group] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, path: Path, text: str, *values: object, at: str = "") -> None:
        """Record ``text.format(*values)`` at ``path``, for the instance ``at``.

        Without values ``text`` is taken as it stands, braces and all. Problems with the same path
        and ``text`` are one: the first is shown, the rest are counted.
        """
        group = self._groups.get((path, text))
        if group is None:
            self._groups[path, text] = _Group(text.format(*values) if values else text, at)
        else:
            group.more += 1

    def problems(self, document: YamlDocument) -> tuple[Problem, ...]:
        """Everything recorded, in the order of the file."""
        found = [
            Problem(format_path(path), _describe(group), document.line_of(path))
            for (path, _), group in self._groups.items()
        ]
        return tuple(sorted(found, key=lambda problem: problem.line or 0))


def _describe(group: _Group) -> str:
    instance = f"for {group.at}" if group.at else ""
    more = f"and {group.more} more like it" if group.more else ""
    where = " ".join(part for part in (instance, more) if part)
    return f"{group.message} ({where})" if where else group.message


def format_path(path: Path) -> str:
    """``racks[0].prefixes[1]`` for ``("racks", 0, "prefixes", 1)``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
