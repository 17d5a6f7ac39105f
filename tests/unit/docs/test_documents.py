"""Links of the documents lead to existing targets, and every block names its language."""

from __future__ import annotations

import re

import pytest

from .blocks import DOCUMENTS, blocks

LINK = re.compile(r"\]\(([^)\s]+)\)")
LANGUAGES = {"json", "mermaid", "python", "sh", "text", "toml", "yaml"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    targets = [link for link in LINK.findall(document.read_text()) if "://" not in link]
    missing = [link for link in targets if not (document.parent / link.partition("#")[0]).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_are_told_from_other_text(document):
    """Blocks other than `sh` are not typed, and no test runs them."""
    assert {language for language, _ in blocks(document)} <= LANGUAGES
