"""``python scripts/policy_table.py``: the table in docs/configuration.md, made of hydra/policy.py.

A test holds the page against the classes, so neither can change alone.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hydra.policy import Policy, PolicyKey, Taken, policy_keys

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
HEAD = "| key | default | may be | changes | meaning |\n|---|---|---|---|---|\n"


def page(text: str) -> str:
    """The page with its table made anew, which is the end of it."""
    return text[: text.index(HEAD)] + HEAD + "".join(f"{row}\n" for row in rows(Policy))


def rows(section: type[Any], prefix: str = "", taken: Taken | None = None) -> Iterator[str]:
    """A line for each key; ``taken`` is said of the section as a whole."""
    meanings = attribute_docstrings(section)
    for key in policy_keys(section):
        if is_dataclass(key.default):
            yield from rows(type(key.default), f"{prefix}{key.name}.", key.taken)
            continue
        meaning = meanings[key.name]
        if key.null is not None:
            meaning += f" Null: {key.null.meaning}."
        cells = (
            f"`{prefix}{key.name}`",
            key.default.value if isinstance(key.default, Enum) else f"{key.default}",
            allowed(key),
            (taken or key.taken).value,
            meaning,
        )
        yield f"| {' | '.join(cells).replace('.0 |', ' |')} |"


def allowed(key: PolicyKey) -> str:
    """The values that a key may have."""
    if isinstance(key.default, Enum):
        return ", ".join(f"`{one.value}`" for one in type(key.default))
    schema = TypeAdapter(key.type).json_schema()
    parts = []
    for one in schema.get("anyOf", [schema]):
        match one:
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
            case {"minLength": 11}:
                parts.append("`HH:MM-HH:MM`")
            case {"minLength": 1}:
                parts.append("a name")
            case _:
                raise ValueError(f"{key.name}: no words for {one}")
    return ", ".join(parts)


def attribute_docstrings(kind: type[Any]) -> Mapping[str, str]:
    """The string after each attribute of a class, on one line and in Markdown."""
    definition: Any = ast.parse(inspect.getsource(kind)).body[0]
    found = {}
    for attribute, said in pairwise(definition.body):
        match attribute, said:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                found[name] = " ".join(str(text).split()).replace("``", "`")
    return found


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
