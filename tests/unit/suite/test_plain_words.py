"""Docstrings and comments name things instead of pointing at them with pronouns."""

from pathlib import Path

import pytest

from .plain_words import (
    FEW,
    MOST_OF_FILE,
    MOST_OF_PACKAGE,
    VAGUE_NAMES,
    Count,
    count,
    count_page,
    count_strings,
    sources,
    too_many,
    unnamed_clauses,
    unnamed_subjects,
    vague_help,
    vague_names,
    vague_phrases,
    vague_phrases_in,
)

ROOT = Path(__file__).parents[3]
NAMED = [
    "apps",
    "benchmarks",
    "drivers",
    "hydra",
    "hydra_hybrid_network_client",
    "mininet_scenarios",
    "scripts",
    "topology",
]
"""Packages whose docstrings, comments, log messages and help texts are in plain words, each folder.
The list may only get longer.
"""

NAMES = [*NAMED, "examples"]
"""Folders without vague names. The list may only get longer."""
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

FIELDS_OF_REST = {"apps/rest/resources/drift.py: left", "hydra/service.py: left"}
"""Vague names in the interface, which stays."""
CLAUSES = ["apps"]
"""Further packages without clauses that begin with a pronoun. The list may only get longer."""
TEXTS = [
    "apps/agent",
    "apps/cli",
    "apps/controller",
    "apps/demand",
    "apps/etcd",
    "apps/jobs",
    "apps/journal",
    "apps/offline",
    "apps/openflow",
    "apps/planning",
    "apps/prices",
    "apps/process",
    "apps/rest",
    "apps/tools",
    "apps/traces",
    "apps/workers",
    "drivers",
    "hydra",
    "hydra/config",
    "hydra/decisions",
    "hydra/faults",
    "hydra/reservations",
    "hydra_hybrid_network_client",
    "mininet_scenarios",
    "topology",
]
"""Packages whose errors, conditions and other strings name things. The list may only get longer."""


@pytest.mark.parametrize("package", NAMED)
def test_docstrings_and_comments_are_in_plain_words(package):
    folders: dict[Path, list[tuple[str, str]]] = {}
    for name, source in sources(ROOT / package, ROOT):
        folders.setdefault(Path(name).parent, []).append((name, source))
    assert folders, f"{package} has no Python files"
    found = [f"{folder}: {text}" for folder, files in folders.items() for text in too_many(files)]
    assert found == [], "see CONTRIBUTING.md, Plain words"


@pytest.mark.parametrize("package", NAMES)
def test_names_are_not_vague(package):
    files = list(sources(ROOT / package, ROOT))
    assert files, f"{package} has no Python files"
    found = {f"{name}: {vague}" for name, source in files for _, vague in vague_names(source)} | {
        name for name, _ in files if Path(name).stem in VAGUE_NAMES
    }
    assert found - FIELDS_OF_REST == set(), "name the thing or the action"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def tell(a): pass", [(1, "tell")]),
        ("async def _told(): pass", [(1, "_told")]),
        ("class Heard: pass", [(1, "heard")]),
        ("class A:\n    left: int", [(2, "left")]),
        ("key = lambda one: one.id", [(1, "one")]),
        ("class A:\n    def f(self): self._told = 1", [(2, "_told")]),
        ("def f(other, left_mbps): left = other.told", []),
        ("for one in ports: pass", [(1, "one")]),
        ("total = sum(its for port, its in ports)", [(1, "its")]),
        ("match port:\n    case [one, 2]: pass", [(2, "one")]),
    ],
)
def test_a_vague_name_is_found(source, found):
    assert list(vague_names(source)) == found


def test_pages_are_in_plain_words():
    counted = {page.relative_to(ROOT): count_page(page.read_text()) for page in PAGES}
    assert len(counted) > len(list(ROOT.glob("*.md"))), "docs has no pages"
    found = [
        f"{page}: {share}; at most {MOST_OF_FILE:.0%}"
        for page, share in counted.items()
        if share.words > FEW and share.share > MOST_OF_FILE
    ]
    together = sum(counted.values(), Count())
    if together.share > MOST_OF_PACKAGE:
        found.append(f"all pages: {together}; at most {MOST_OF_PACKAGE:.0%}")
    assert found == [], "see CONTRIBUTING.md, Plain words"


def test_pages_have_no_vague_phrases():
    found = [
        f"{page.relative_to(ROOT)}: {phrase!r}: write {remedy}"
        for page in PAGES
        for phrase, remedy in vague_phrases(page.read_text())
    ]
    assert found == []


@pytest.mark.parametrize("package", NAMED)
def test_docstrings_and_comments_have_no_vague_phrases(package):
    files = list(sources(ROOT / package, ROOT))
    assert files, f"{package} has no Python files"
    found = [
        f"{name}: {phrase!r}: write {remedy}"
        for name, source in files
        for phrase, remedy in vague_phrases_in(source)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Moved by somebody\nelse.", ["somebody else"]),
        ("Everyone waits; the gap is as there.", ["Everyone", "as there"]),
        ("as there is room", []),
        ("the time of begin, since they begin", ["of begin"]),
        ("waits for Python's lock", ["Python's lock"]),
        ("a plan in the making, and ``somebody``", ["in the making"]),
        ("[link](a/somebody.md) and `anyone`", []),
        ("```sh\nhang up\n```\n", []),
        ("switches hang up", ["hang up"]),
        ("old paths and new ones, a mask of ones", ["ones"]),
        ("written whole or not\n    at all", ["whole or not at all"]),
        ("at the beginning, some bodies", []),
    ],
)
def test_a_vague_phrase_is_found(text, found):
    assert sorted(phrase for phrase, _ in vague_phrases(text)) == sorted(found)


def test_vague_phrases_are_looked_for_in_docstrings_and_comments():
    source = '"""For somebody."""\nx = "for everybody"  # in the making'
    assert [phrase for phrase, _ in vague_phrases_in(source)] == ["somebody", "in the making"]


def test_words_of_a_page_are_counted_without_code():
    found = count_page("Its port, `it`, [that](one.md).\n\n```sh\nit that\n```\n")
    assert (found.words, found.pronouns) == (3, {"its": 1, "that": 1})


@pytest.mark.parametrize("package", NAMED)
def test_log_messages_and_help_name_their_subjects(package):
    files = list(sources(ROOT / package, ROOT))
    assert files, f"{package} has no Python files"
    found = [
        f"{name}:{line}: {words}"
        for name, source in files
        for line, words in unnamed_subjects(source)
    ]
    assert found == [], "begin the text with a noun or a verb"


def test_help_of_commands_names_things():
    files = list(sources(ROOT / "apps/cli", ROOT))
    assert files
    found = [
        f"{name}:{line}: {words}" for name, source in files for line, words in vague_help(source)
    ]
    assert found == [], "name the thing that the command shows or changes"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('@click.command\ndef show(): """Show what is wrong."""', ["Show what is wrong."]),
        ('@main.group()\ndef ca(): """Keep it."""', ["Keep it."]),
        ('@main.command()\ndef ca(): """Show items.\n\n    What follows is longer."""', []),
        ('def show(): """Show what is wrong."""', []),
        ("@main.command()\ndef show(): pass", []),
    ],
)
def test_vague_help_of_a_command_is_found(source, found):
    assert [words for _, words in vague_help(source)] == found


@pytest.mark.parametrize("package", TEXTS + CLAUSES)
def test_texts_for_users_name_their_subjects(package):
    files = list(sources(ROOT / package, ROOT))
    assert files, f"{package} has no Python files"
    found = [
        f"{name}:{line}: {words}"
        for name, source in files
        for line, words in unnamed_clauses(source)
    ]
    assert found == [], "begin each clause with a noun or a verb"


@pytest.mark.parametrize("package", TEXTS)
def test_texts_for_users_have_few_pronouns(package):
    counted = sum((count_strings(source) for _, source in sources(ROOT / package, ROOT)), Count())
    assert counted.share <= MOST_OF_PACKAGE, f"{package}: {counted}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise Error("it has ended")', ["it has ended"]),
        ('raise Error(f"rack {name}: it has no ports")', ["rack {}: it has no ports"]),
        ('x = "too much: their path is full"', ["too much: their path is full"]),
        ('x = "a rack is down, and nobody knows"', ["a rack is down, and nobody knows"]),
        ('x = f"{a} {what}; what is left"', ["{} {}; what is left"]),
        ('x = "rack r1 and its ports"', []),
        ('x = "this device, and item b"', []),
        ('"""It is a docstring."""', []),
        ('x = "its"', []),
    ],
)
def test_a_clause_that_begins_with_a_pronoun_is_found(source, found):
    assert [words for _, words in unnamed_clauses(source)] == found


def test_words_of_strings_are_counted_without_docstrings():
    found = count_strings('"""It is a docstring."""\nx = f"rack {r1} and its ports"\ny = "its"')
    assert (found.words, found.pronouns) == (4, {"its": 1})


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('LOG.info("it ended")', ["it ended"]),
        ('log.error("what was posted failed")', ["what was posted failed"]),
        ('LOG.warning("%s: it is left alone", name)', ["%s: it is left alone"]),
        ('LOG.warning(f"nobody answers {name}")', ["nobody answers "]),
        ('option("--all", help="Those that are over, too.")', ["Those that are over, too."]),
        ('LOG.info("this is late", extra={"help": "it"})', ["this is late"]),
        ('LOG.info("another controller leads")', []),
        ('LOG.info("this controller is the leader")', []),
        ('LOG.info("%s: items follow", name)', []),
        ('LOG.info("switch %s: silent since it ended", name)', []),
        ('LOG.log(10, "it ended")', []),
        ('print("it ended")', []),
        ('option("--all", help=words)', []),
    ],
)
def test_a_text_that_begins_with_a_pronoun_is_found(source, found):
    assert [words for _, words in unnamed_subjects(f"\n{source}")] == found
    assert {line for line, _ in unnamed_subjects(f"\n{source}")} <= {2}


@pytest.mark.parametrize(
    ("source", "words", "pronouns"),
    [
        ('"""A port and its VLANs."""', 5, {"its": 1}),
        (
            "x = 1\n'''That of others, what it is.'''",
            6,
            {"that": 1, "others": 1, "what": 1, "it": 1},
        ),
        ("x = 1  # those that stay\n# the one", 5, {"those": 1, "that": 1, "one": 1}),
        ('def f():\n    """Which?"""\n    return "it that those"', 1, {"which": 1}),
        ("class One:\n    it = that = 1", 0, {}),
        ('"""Item, thatch, oneself and a switch\'s port."""', 7, {}),
    ],
)
def test_words_are_counted_in_docstrings_and_comments_alone(source, words, pronouns):
    found = count(source)
    assert (found.words, found.pronouns) == (words, pronouns)


def text(pronouns: int, words: int) -> str:
    return f'"""{"it " * pronouns}{"port " * (words - pronouns)}"""'


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([("a.py", text(10, 200))], []),
        (
            [("a.py", text(11, 200))],
            ["all files: 5.5% of 200 words are pronouns (it 11); at most 5%"],
        ),
        ([("a.py", text(14, 200)), ("b.py", text(0, 100))], []),
        (
            [("a.py", text(15, 200)), ("b.py", text(0, 100))],
            ["a.py: 7.5% of 200 words are pronouns (it 15); at most 7%"],
        ),
        ([("a.py", text(8, 100)), ("b.py", text(0, 100))], []),
        (
            [("a.py", text(8, 101)), ("b.py", text(0, 100))],
            ["a.py: 7.9% of 101 words are pronouns (it 8); at most 7%"],
        ),
        ([("a.py", "")], []),
    ],
)
def test_too_many_pronouns_are_reported_with_file_share_and_words(files, expected):
    assert list(too_many(files)) == expected


def test_the_most_frequent_words_come_first():
    assert str(count('"""it that it those it that port"""')).endswith("(it 3, that 2, those 1)")
