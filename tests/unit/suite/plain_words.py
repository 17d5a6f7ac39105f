"""Find pronouns in a Python file: docstrings, comments, log messages, help, and other texts."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

PRONOUNS: Final = frozenset(
    {
        "another", "it", "its", "nobody", "one", "others", "that", "their", "them", "these",
        "they", "this", "those", "what", "which", "who", "whoever",
    }
)  # fmt: skip
"""Words that make a reader look for the thing meant."""
MOST_OF_PACKAGE: Final = 0.05
"""Limit of the share of pronouns in the words of a package."""
MOST_OF_FILE: Final = 0.07
"""Limit of the share in the words of a file, for files of more than ``FEW`` words."""
FEW: Final = 100
VAGUE_NAMES: Final = frozenset(
    {"apart", "hear", "heard", "hears", "left", "one", "tell", "tells", "told", "who", "whom"}
)
"""Words that are no names of functions, classes, fields, parameters and modules."""
VAGUE_VARIABLES: Final = frozenset(
    {"another", "its", "mine", "one", "them", "told", "who", "whom", "whose"}
)
"""Words that are no names of variables: a loop variable is named after its element."""
VAGUE_PHRASES: Final = {
    "another's": "the noun",
    "as there(?=[.,;:)]| for)": "the function or the case that is meant",
    "(?:any|every|some)(?:body|one)(?: else)?": "the person, client, server or program",
    "asked nothing": "gets no requests",
    "(?:its|of|the|their) begin": "start",
    "hang(?:s|ing)? up": "close the connection",
    "in the making": "unfinished",
    r"(?<!of\s)(?<!with\s)ones": "the noun",
    "(?:interpreter|Python)'s lock": "GIL",
    "whole or not at all": "atomic",
    "without sense": "invalid",
}
"""Phrases for which a reader has to look for the meaning, by regular expression; what to write."""
_GAP: Final = r"\s+"
_VAGUE: Final = {
    words: re.compile(rf"\b{words.replace(' ', _GAP)}(?![\w-])", re.IGNORECASE)
    for words in VAGUE_PHRASES
}
_QUOTED: Final = re.compile(r"^```.*?^```|``[^`]*``|`[^`]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
"""Code and addresses in a page or a docstring."""
_LOG_CALLS: Final = frozenset({"critical", "debug", "error", "exception", "info", "warning"})
_WORD: Final = re.compile(r"[a-z']+")
_BEFORE_NOUNS: Final = frozenset({"another", "this"})
_NO_SUBJECT: Final = re.compile(
    r"(?:%s: )?(?:"
    rf"(?:{'|'.join(sorted(PRONOUNS - _BEFORE_NOUNS | {'nothing', 'somebody', 'something'}))})\b"
    rf"|(?:{'|'.join(sorted(_BEFORE_NOUNS))}) (?:can|does|has|is|may|was|will)\b)",
    re.IGNORECASE,
)
"""The beginning of a sentence without a named subject; *this switch* is a named subject."""
_UNNAMED: Final = PRONOUNS - {"another", "one", "that", "these", "this", "which"}
_UNNAMED_CLAUSE: Final = re.compile(
    rf"(?:^|[.:;] |, (?:and|but|or) )(?:{'|'.join(sorted(_UNNAMED))})\b(?!: )", re.IGNORECASE
)
"""A clause without a named subject, first in a text or behind punctuation."""
_COMMAND: Final = re.compile(r"\b(?:command|group)\b")
"""A decorator of a command: the docstring is the command's help."""
_VAGUE_HELP: Final = re.compile(
    r"\b(?:it|nobody|somebody|them|they|those|what|whatever|who|whoever)\b", re.IGNORECASE
)
_FEWEST_WORDS: Final = 3
"""Strings of fewer words are names or keys."""
_SHOWN: Final = 5


@dataclass(frozen=True)
class Count:
    """Words of a text."""

    words: int = 0
    pronouns: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Count") -> "Count":
        return Count(self.words + other.words, self.pronouns + other.pronouns)

    @property
    def share(self) -> float:
        """Share of pronouns, 0 to 1; 0 for no words."""
        return self.pronouns.total() / max(1, self.words)

    def __str__(self) -> str:
        frequent = ", ".join(f"{word} {n}" for word, n in self.pronouns.most_common(_SHOWN))
        return f"{self.share:.1%} of {self.words} words are pronouns ({frequent})"


def count(source: str) -> Count:
    """Count the words in the docstrings and comments of a module's source."""
    words = [word for text in _texts(source) for word in _WORD.findall(text.lower())]
    return Count(len(words), Counter(filter(PRONOUNS.__contains__, words)))


def count_strings(source: str) -> Count:
    """Count the words of a module's texts for users: strings that are not docstrings."""
    words = [w for _, text in _strings(source) for w in _WORD.findall(text.lower())]
    return Count(len(words), Counter(filter(PRONOUNS.__contains__, words)))


def unnamed_clauses(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each string in which a clause begins with a pronoun."""
    for line, text in _strings(source):
        if _UNNAMED_CLAUSE.search(text):
            yield line, text


def count_page(text: str) -> Count:
    """Count the words of a Markdown page, without code and addresses."""
    words = _WORD.findall(_QUOTED.sub(" ", text).lower())
    return Count(len(words), Counter(filter(PRONOUNS.__contains__, words)))


def vague_phrases(text: str) -> Iterator[tuple[str, str]]:
    """Yield (phrase, what to write) of each vague phrase in a text, outside code."""
    written = _QUOTED.sub(" ", text)
    for words, pattern in _VAGUE.items():
        for match in pattern.finditer(written):
            yield " ".join(match[0].split()), VAGUE_PHRASES[words]


def vague_phrases_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield (phrase, what to write) of each vague phrase in docstrings and comments."""
    for text in _texts(source):
        yield from vague_phrases(text)


def too_many(files: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a message for each file, then for all files together, with too many pronouns.

    ``files``: (name, source) of each file.
    """
    total = Count()
    for name, source in files:
        found = count(source)
        total += found
        if found.words > FEW and found.share > MOST_OF_FILE:
            yield f"{name}: {found}; at most {MOST_OF_FILE:.0%}"
    if total.share > MOST_OF_PACKAGE:
        yield f"all files: {total}; at most {MOST_OF_PACKAGE:.0%}"


def vague_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of each vague name of a function, a class, a field, a parameter or a
    variable.
    """
    for node in ast.walk(ast.parse(source)):
        named: list[tuple[int, str]] = []
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                named = [(node.lineno, node.name)]
            case ast.ClassDef():
                fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
                named = [(node.lineno, node.name.lower())]
                named += [(f.lineno, f.target.id) for f in fields if isinstance(f.target, ast.Name)]
            case ast.arg():
                named = [(node.lineno, node.arg)]
            case ast.Attribute(ctx=ast.Store()):
                named = [(node.lineno, node.attr)]
            case ast.Name(ctx=ast.Store(), id=name) if name.strip("_") in VAGUE_VARIABLES:
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) if name.strip("_") in VAGUE_VARIABLES:
                yield node.lineno, name
        yield from ((line, name) for line, name in named if name.strip("_") in VAGUE_NAMES)


def sources(package: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Yield (path from ``root``, source) of each Python file in a package."""
    for path in sorted(package.rglob("*.py")):
        yield str(path.relative_to(root)), path.read_text()


def unnamed_subjects(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each log message, and ``help=`` text, that begins with a pronoun.

    In a log message, ``%s: `` may stand before the sentence. Texts held in variables are not seen.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=logger), attr=name), args=[text, *_]
            ):
                shown = [text] if logger.upper() == "LOG" and name in _LOG_CALLS else []
            case ast.Call():
                shown = []
            case _:
                continue
        shown += [keyword.value for keyword in node.keywords if keyword.arg == "help"]
        for words in filter(None, map(_beginning, shown)):
            if _NO_SUBJECT.match(words):
                yield node.lineno, words


def vague_help(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each command's help whose first paragraph has a pronoun for a thing."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and any(
            _COMMAND.search(ast.unparse(decorator)) for decorator in node.decorator_list
        ):
            first = (ast.get_docstring(node) or "").partition("\n\n")[0]
            if _VAGUE_HELP.search(first):
                yield node.lineno, first


def _beginning(node: ast.expr) -> str | None:
    match node:
        case (
            ast.Constant(value=str(text))
            | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])
        ):
            return text
        case _:
            return None


@cache
def _strings(source: str) -> Sequence[tuple[int, str]]:
    """(line, text) of strings with at least three words; ``{}`` stands for inserted values."""

    def found(node: ast.AST) -> Iterator[tuple[int, str]]:
        match node:
            case ast.Expr(value=ast.Constant()):
                return  # a docstring
            case ast.Constant(value=str(text)):
                yield node.lineno, text
            case ast.JoinedStr(values=parts):
                pieces = (part.value if isinstance(part, ast.Constant) else "{}" for part in parts)
                yield node.lineno, "".join(map(str, pieces))
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from found(child)

    texts = found(ast.parse(source))
    return [(line, text) for line, text in texts if len(text.split()) >= _FEWEST_WORDS]


def _texts(source: str) -> Iterator[str]:
    """Docstrings, strings below attributes included, and comments."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
