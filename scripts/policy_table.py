"""``python scripts/policy_table.py``: the table in docs/configuration.md, made from
hydra/policy.py.

A test compares the page with the classes, so neither can change alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from hydra.config.policy_words import key_words
from hydra.policy import Policy, Taken, policy_keys

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
HEAD = "| key | default | may be | changes | meaning |\n|---|---|---|---|---|\n"


def page(text: str) -> str:
    """The page with its table made anew; the table ends the page."""
    return text[: text.index(HEAD)] + HEAD + "".join(f"{row}\n" for row in rows(Policy))


def rows(section: type[Any], prefix: str = "", taken: Taken | None = None) -> Iterator[str]:
    """A line for each key; ``taken``: the time of adoption of the whole section."""
    for key in policy_keys(section):
        if is_dataclass(key.default):
            yield from rows(type(key.default), f"{prefix}{key.name}.", key.taken)
            continue
        path = f"{prefix}{key.name}"
        words = key_words()[path]
        changes = (taken or key.taken).value
        cells = (f"`{path}`", words.default, words.allowed, changes, words.meaning)
        yield f"| {' | '.join(cells).replace('.0 |', ' |')} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
