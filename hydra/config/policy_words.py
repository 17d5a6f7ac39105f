"""Documentation of the policy keys, generated from the classes in ``hydra/policy.py``."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, Final

from pydantic import TypeAdapter

from hydra.policy import Policy, PolicyKey, policy_keys

_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class KeyWords:
    """Documentation of a key."""

    default: str
    allowed: str
    """Permitted values, in Markdown."""
    choices: tuple[str, ...]
    """Permitted words; empty for a key with other values."""
    meaning: str
    """A line of Markdown."""

    @property
    def plain_meaning(self) -> str:
        """The meaning without Markdown; links become their text."""
        return _LINK.sub(r"\1", self.meaning).replace("`", "")

    @property
    def plain_allowed(self) -> str:
        return self.allowed.replace("`", "")


@cache
def key_words() -> Mapping[str, KeyWords]:
    """Documentation of each key, by path in the policy, such as ``drain.reads``."""
    return dict(_words_of(Policy, ""))


def _words_of(section: type[Any], prefix: str) -> Iterator[tuple[str, KeyWords]]:
    meanings = _attribute_docstrings(section)
    for key in policy_keys(section):
        if is_dataclass(key.default):
            yield from _words_of(type(key.default), f"{prefix}{key.name}.")
            continue
        meaning = meanings[key.name]
        if key.null is not None:
            meaning += f" Null: {key.null.meaning}."
        choices = tuple(str(choice.value) for choice in type(key.default)) if _is_word(key) else ()
        default = key.default.value if _is_word(key) else f"{key.default}"
        yield f"{prefix}{key.name}", KeyWords(default, _allowed(key), choices, meaning)


def _is_word(key: PolicyKey) -> bool:
    return isinstance(key.default, Enum)


def _allowed(key: PolicyKey) -> str:
    """Permitted values of a key."""
    if _is_word(key):
        return ", ".join(f"`{choice.value}`" for choice in type(key.default))
    schema = TypeAdapter(key.type).json_schema()
    parts = []
    for option in schema.get("anyOf", [schema]):
        match option:
            case {"minimum": low, "maximum": high}:
                parts.append(f"{low:g} to {high:,}")
            case {"minimum": low}:
                parts.append(f"{low:g} and more")
            case {"exclusiveMinimum": low, "maximum": high}:
                parts.append(f"more than {low:g}, to {high:,}")
            case {"exclusiveMinimum": low}:
                parts.append(f"more than {low:g}")
            case {"const": word}:
                parts.append(f"`{word}`")
            case {"type": "null"}:
                parts.append("null")
            case {"minLength": 1}:
                parts.append("a name")
            case {"type": "string"}:
                parts.append("`HH:MM-HH:MM`")
            case _:
                raise ValueError(f"{key.name}: no words for {option}")
    return ", ".join(parts)


def _attribute_docstrings(kind: type[Any]) -> Mapping[str, str]:
    """Docstring of each attribute of a class, as a line of Markdown."""
    definition: Any = ast.parse(inspect.getsource(kind)).body[0]
    found = {}
    for attribute, docstring in pairwise(definition.body):
        match attribute, docstring:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                found[name] = " ".join(str(text).split()).replace("``", "`")
    return found
