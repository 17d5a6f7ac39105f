"""YAML text as plain data, with the line of every value."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final

import yaml

Path = tuple[str | int, ...]
"""Keys and list positions that lead to a value, from the top of the file."""

# libyaml is an order of magnitude faster; the pure Python loader reads the same language.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# The scalars of the YAML 1.2 core schema. YAML 1.1, the default of PyYAML, would read the MAC
# address 10:20:30:40:50:59 as a number in base 60, 010 as eight and `no` as false.
_SCALARS: Final = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
)


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """PyYAML's table: first character → (tag, pattern), tried in order with ``match``."""
    by_first: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for name, pattern, firsts in _SCALARS:
        for character in firsts:
            by_first.setdefault(character, []).append(
                (f"tag:yaml.org,2002:{name}", re.compile(rf"(?:{pattern})\Z"))
            )
    return by_first


_IMPLICIT_RESOLVERS: Final = _resolvers()
_STRING_TAG: Final = "tag:yaml.org,2002:str"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"
_TAGS: Final = frozenset({None, _STRING_TAG, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_INVISIBLE: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
"""Control characters except tabs and line ends, and marks that reorder text."""
_TAB_INDENT: Final = re.compile(r" *\t")
_LONG_NUMBER: Final = re.compile(r"[-+]?[0-9]{40,}")

MOST_BYTES: Final = 16 * 1024 * 1024
MOST_VALUES: Final = 250_000
"""Limit of the keys and values of a file; the content of an alias counts for each use. Ten thousand
individually written servers have 220,000.
"""
MOST_LEVELS: Final = 64
LONGEST_TEXT: Final = 65_536


class YamlError(Exception):
    """Invalid YAML; ``line`` counts from 1; None if unknown."""

    def __init__(self, message: str, line: int | None) -> None:
        self.line = line
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """A key that is repeated in a mapping, or is not text."""

    path: Path
    line: int
    message: str
    fatal: bool
    """True if the whole mapping is unusable."""


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The data of a file, with the place of each value."""

    data: Any
    root: yaml.Node | None
    key_problems: tuple[KeyProblem, ...]

    def line_of(self, path: Path) -> int | None:
        """The line of ``path``, or of the closest existing parent; from 1."""
        if self.root is None:
            return None
        node, line = self.root, self.root.start_mark.line
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            node, line = found
        return int(line) + 1


def read_text(path: FilePath) -> str:
    """The text of a regular file of at most :data:`MOST_BYTES`.

    Raises YamlError for other files, OSError, UnicodeDecodeError.
    """
    # Without O_NONBLOCK, opening a FIFO waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise YamlError(
                "is not a regular file: write the configuration into a regular file", None
            )
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise YamlError(
            f"has more than {MOST_BYTES} bytes: let patterns such as r[1-320] stand for "
            "similar entries",
            None,
        )
    return content.decode("utf-8")


def parse_yaml(text: str) -> YamlDocument:
    """Read a YAML document safely, with plain tags only. Raises YamlError."""
    try:
        _check_extent(text)
        loader = _LOADER(text)
        loader.yaml_implicit_resolvers = _IMPLICIT_RESOLVERS
        root = loader.get_single_node()
        if root is None:
            return YamlDocument(None, None, ())
        problems = tuple(_key_problems(root, (), set()))
        # The construction resolves merge keys in place, so keys are checked first.
        data = None if any(p.fatal for p in problems) else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        if mark is None:
            raise YamlError(f"not YAML: {reason}", None) from None
        if _TAB_INDENT.match("".join(text.split("\n")[mark.line : mark.line + 1])):
            reason += "; the line is indented by a tab, where YAML wants spaces"
        elif "block" in str(error.context) or "mapping values" in str(error.problem):
            reason += _compare_indentation(text.split("\n"), mark.line)
        raise YamlError(f"not YAML: {reason}", mark.line + 1) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise YamlError(f"not YAML: {' '.join(str(error).split())}", None) from None
    return YamlDocument(data, root, problems)


def _compare_indentation(lines: Sequence[str], place: int) -> str:
    """Indentation of ``lines[place]`` and of the line of content before, if different."""
    for before in reversed(range(place if place < len(lines) else 0)):
        content = lines[before].strip()
        if content and not content.startswith("#"):
            own, other = (len(lines[i]) - len(lines[i].lstrip(" ")) for i in (place, before))
            if own != other:
                return (
                    f"; look at the indentation: {own} in line {place + 1}, {other} in line "
                    f"{before + 1}"
                )
            break
    return ""


@dataclass(slots=True)
class _Extent:
    """Number of values of a node, including itself, and number of levels."""

    values: int = 1
    levels: int = 1


def _check_extent(text: str) -> None:
    """Refuse oversized content before the construction. Raises YamlError."""
    loader = _LOADER(text)
    anchored: dict[str, _Extent] = {}
    within: list[tuple[str | None, _Extent]] = [(None, _Extent(0, 0))]
    while loader.check_event():
        event = loader.get_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            _check_tag(event, line)
            within.append((event.anchor, _Extent()))
            anchor, node = None, _Extent(0, 0)
        elif isinstance(event, yaml.ScalarEvent):
            _check_tag(event, line)
            _check_scalar(event, line)
            anchor, node = event.anchor, _Extent()
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, node = within.pop()
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == around for around, _ in within):
                raise YamlError(
                    f"*{event.anchor} stands inside of its own anchor: move the alias out", line
                )
            anchor, node = None, anchored.get(str(event.anchor), _Extent())
        else:
            continue
        if anchor is not None:
            anchored[anchor] = node
        outer = within[-1][1]
        outer.values += node.values
        outer.levels = max(outer.levels, 1 + node.levels)
        if len(within) - 1 + node.levels > MOST_LEVELS:
            raise YamlError(f"values are nested more than {MOST_LEVELS} levels deep", line)
        if sum(extent.values for _, extent in within) > MOST_VALUES:
            raise YamlError(
                f"more than {MOST_VALUES} keys and values, counting repetitions by aliases: "
                "let patterns such as r[1-320] stand for similar entries",
                line,
            )


def _check_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent, line: int) -> None:
    if event.tag not in _TAGS:
        raise YamlError(f"the tag {str(event.tag)[:40]!r} is not known: remove the tag", line)


def _check_scalar(event: yaml.ScalarEvent, line: int) -> None:
    if len(event.value) > LONGEST_TEXT:
        raise YamlError(f"a text of more than {LONGEST_TEXT} characters", line)
    if (hidden := _INVISIBLE.search(event.value)) is not None:
        code = ord(hidden.group())
        raise YamlError(
            f"a text with the invisible character U+{code:04X}: remove the character", line
        )
    if event.implicit[0] and _LONG_NUMBER.fullmatch(event.value):
        raise YamlError(f"a number of {len(event.value)} digits: put text in quotes", line)


def _key_problems(node: yaml.Node, path: Path, seen: set[int]) -> Iterator[KeyProblem]:
    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _key_problems(child, (*path, index), seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, child in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag not in {_STRING_TAG, _MERGE_TAG}:
                yield KeyProblem(
                    path, line, "a key must be text: put the key in quotes", fatal=True
                )
                continue
            if key.value in lines and key.tag != _MERGE_TAG:
                first = lines[key.value]
                message = f"stands twice: already on line {first}, remove one of the two"
                yield KeyProblem((*path, key.value), line, message, fatal=False)
            lines.setdefault(key.value, line)
            yield from _key_problems(child, (*path, key.value), seen)


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        if step < len(node.value):
            child: yaml.Node = node.value[step]
            return child, child.start_mark.line
        return None
    if isinstance(node, yaml.MappingNode):
        # The last key counts, like the last value.
        for key, value in reversed(node.value):
            if key.value == step:
                return value, key.start_mark.line
    return None
