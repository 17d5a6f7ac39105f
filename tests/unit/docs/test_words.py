"""The documents stay short: for each new fact, another fact goes, or becomes a link."""

from __future__ import annotations

import re

import pytest

from .blocks import ROOT

MOST_WORDS = 45_000
"""Limit for all pages below docs/ together."""
PAGES = {"benchmarks.md": 2_500}
"""Further pages with a limit."""
MADE_FROM_CODE = ("| key | default |", "| type | status |")
"""Headings of tables made from code: the policy's keys, the API's problems."""
_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\S*\w\S*")


def words(text: str) -> int:
    """Tokens with a letter or a digit, outside code blocks and tables made from code."""
    paragraphs = _BLOCK.sub("", text).split("\n\n")
    written = (part for part in paragraphs if not part.lstrip().startswith(MADE_FROM_CODE))
    return sum(len(_WORD.findall(part)) for part in written)


def test_all_pages_together_are_short():
    pages = {
        str(page.relative_to(ROOT)): words(page.read_text()) for page in ROOT.glob("docs/**/*.md")
    }
    longest = sorted(pages, key=pages.__getitem__, reverse=True)[:10]
    shown = "\n".join(f"{pages[name]:6} {name}" for name in longest)
    total = sum(pages.values())
    assert total <= MOST_WORDS, f"{total} words; drop what another page says:\n{shown}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short(name):
    assert words((ROOT / "docs" / name).read_text()) <= PAGES[name]


def test_words_are_counted_without_code_and_without_markup():
    text = "# One word\n\n- two `three`, – 4\n\n```sh\nfive six\n```\n\n| seven | – |\n|---|---|\n"
    assert words(text) == 6
    assert words("| key | default |\n|---|---|\n| `mode` | periodic |\n\nOne.\n") == 1
