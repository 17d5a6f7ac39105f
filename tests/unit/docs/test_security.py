"""docs/security.md names existing tests, for nearly every defence."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "security.md").read_text()


def test_every_named_test_exists():
    named = set(re.findall(r"`(tests/[^`]+)`", TEXT))
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_same_follows_a_test():
    """In tables of threats, a row with "the same" comes after a row that names a test."""
    before = ""
    for line in TEXT.splitlines():
        shown_by = line.rstrip(" |").rpartition("|")[2].strip() if line.startswith("|") else ""
        if shown_by == "the same":
            assert before, line
        before = shown_by if shown_by.startswith("`tests/") or shown_by == "the same" else before
        if not line.startswith("|"):
            before = ""
