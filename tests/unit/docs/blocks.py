"""The code blocks of all documents, and their commands."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SETTINGS = re.compile(r"^(?:[A-Z0-9_]+=\S+ )+")


def blocks(document: Path) -> list[tuple[str, str]]:
    """(language, text) of each."""
    return _BLOCK.findall(document.read_text())


def commands(document: Path) -> list[str]:
    """Commands that the document's readers type: lines of its shell blocks, without comments and
    without leading environment settings.
    """
    shell = [text for language, text in blocks(document) if language == "sh"]
    lines = [line for text in shell for line in text.replace("\\\n", " ").splitlines()]
    typed = (line.split(" #")[0].strip() for line in lines)
    return [_SETTINGS.sub("", command) for command in typed if command]


def all_commands() -> list[str]:
    """Each command once."""
    return sorted({command for document in DOCUMENTS for command in commands(document)})


def starting_with(program: str) -> list[str]:
    found = [command for command in all_commands() if command.startswith(program)]
    assert found, f"no document shows {program}"
    return found
