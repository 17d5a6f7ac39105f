"""Name patterns (``r[1-4]``) and templates (``10.0.{rack}.0/24``) of the configuration.

Templates contain integer expressions over the positions in scope. No text is passed to ``eval``: an
expression is parsed, checked against a short list of node types and compiled to closures, so that
ten thousand servers cost ten thousand calls and no parsing.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from math import prod
from typing import Final

MAX_NAMES: Final = 65_536
"""Largest number of names of a pattern, against mistakes such as ``[1-99999999]``."""
MAX_NAME_LENGTH: Final = 255
MAX_TEMPLATE_LENGTH: Final = 4096
MAX_EXPRESSION_LENGTH: Final = 200
_LONGEST_TYPO: Final = 64
_MOST_COMPARED: Final = 1000
_MOST_SUGGESTIONS: Final = 20

Scope = Mapping[str, int]
"""Names that an expression may use, with their values."""
_Evaluator = Callable[[Scope], int]

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_MEANT_RANGE = re.compile(
    r"([0-9]+|[A-Za-z])?\s*(?:-|\.\.\.?|:|~|/|\u2013|\u2014|…|\bto\b)\s*([0-9]+|[A-Za-z])?"
)
_NUMBER_RANGE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
_FORMAT_SPEC = re.compile(r"0?[0-9]{0,2}[bdoxX]?")
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class PatternError(ValueError):
    """An unreadable pattern or template; the message describes the mistake."""


@dataclass(frozen=True, slots=True)
class _Hole:
    """``{expression:format}`` in a template."""

    evaluate: _Evaluator
    format: str


@dataclass(frozen=True, slots=True)
class Template:
    """Parsed text with holes, to be filled for each described object."""

    text: str
    parts: tuple[str | _Hole, ...]

    def render(self, scope: Scope) -> str:
        """The text for ``scope``. Raises PatternError if an expression divides by zero."""
        if len(self.parts) == 1 and isinstance(self.parts[0], str):
            return self.parts[0]
        return "".join(
            [
                part if isinstance(part, str) else format(self._value(part, scope), part.format)
                for part in self.parts
            ]
        )

    def number(self, scope: Scope, check: Callable[[str], None] = lambda _text: None) -> int:
        """The integer value of the template. Raises PatternError if the text is no integer.

        If the template has text beside its expression, ``check`` gets the resulting text, and may
        raise an error.
        """
        if len(self.parts) == 1 and isinstance(self.parts[0], _Hole) and not self.parts[0].format:
            return self._value(self.parts[0], scope)
        text = self.render(scope)
        check(text)
        try:
            return int(text, 0)
        except ValueError:
            raise PatternError(f"must come to a whole number, got {text!r}") from None

    def _value(self, hole: _Hole, scope: Scope) -> int:
        try:
            return hole.evaluate(scope)
        except ZeroDivisionError:
            raise PatternError(f"{self.text!r} divides by zero") from None


@lru_cache(maxsize=4096)
def parse_template(text: str, names: tuple[str, ...]) -> Template:
    """Parse ``text``, whose expressions may use ``names``; ``{{`` and ``}}`` are plain braces.

    An expression consists of integers, ``+ - * // %``, parentheses and ``names``; a format such as
    ``02x`` may follow a colon. Raises PatternError.
    """
    if len(text) > MAX_TEMPLATE_LENGTH:
        raise PatternError(f"template is longer than {MAX_TEMPLATE_LENGTH} characters")
    parts: list[str | _Hole] = []
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise PatternError(f"{text!r} is not a template: {error}") from None
    for literal, expression, spec, conversion in pieces:
        if literal:
            parts.append(literal)
        if expression is None:
            continue
        if conversion is not None:
            raise PatternError(
                f"{text!r}: '!{conversion}' is not supported, use a format like :02x"
            )
        if not _FORMAT_SPEC.fullmatch(spec or ""):
            raise PatternError(
                f"{text!r}: format {spec!r} is not supported, use a width and d, x, X, o or b"
            )
        parts.append(_Hole(_parse_expression(expression, names), spec or ""))
    return Template(text, tuple(parts))


def _parse_expression(text: str, names: Sequence[str]) -> _Evaluator:
    source = text.strip()
    if not source:
        raise PatternError("empty braces: write an expression such as {rack}, or {{ for a brace")
    if len(source) > MAX_EXPRESSION_LENGTH:
        raise PatternError(f"expression is longer than {MAX_EXPRESSION_LENGTH} characters")
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise PatternError(f"{{{source}}} is not an expression") from None
    return _compile(tree.body, source, names)


def _compile(node: ast.expr, source: str, names: Sequence[str]) -> _Evaluator:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int(number)):
            return lambda _scope: number
        case ast.Name(id=name):
            return _compile_name(name, source, names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _compile(operand, source, names)
            return lambda scope: -value(scope)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            apply = _OPERATORS[type(op)]
            first, second = _compile(left, source, names), _compile(right, source, names)
            return lambda scope: apply(first(scope), second(scope))
    raise PatternError(
        f"{{{source}}}: only whole numbers, + - * // %, parentheses and the names "
        f"{', '.join(names)} are allowed"
    )


def _compile_name(name: str, source: str, names: Sequence[str]) -> _Evaluator:
    if name in names:
        return operator.itemgetter(name)
    raise PatternError(f"{{{source}}}: unknown name {name!r}; {suggest(name, names)}")


def expand_names(pattern: str) -> tuple[str, ...]:
    """All names of ``pattern``, in order; the last bracket varies fastest.

    ``r[1-3]`` is r1, r2, r3; ``[08-10]`` keeps the width; ``x[a,c,1-2]`` is a list. A pattern
    without brackets is a name. Raises PatternError.
    """
    choices = _read_choices(pattern)
    return tuple(
        "".join(parts)
        for parts in itertools.product(
            *[[n for i in items for n in i.names()] for items in choices]
        )
    )


def count_names(pattern: str) -> int:
    """Number of names that :func:`expand_names` would return. Raises PatternError for an invalid
    pattern.
    """
    return _count(_read_choices(pattern))


@dataclass(frozen=True, slots=True)
class _Item:
    """Part of a bracket: a text, or a range of numbers with at least ``width`` digits."""

    text: str
    numbers: range | None = None
    width: int = 0

    def __len__(self) -> int:
        return 1 if self.numbers is None else len(self.numbers)

    def names(self) -> Sequence[str]:
        if self.numbers is None:
            return [self.text]
        return [f"{number:0{self.width}d}" for number in self.numbers]


def _count(choices: Sequence[Sequence[_Item]]) -> int:
    return prod(sum(map(len, items)) for items in choices)


def _read_choices(pattern: str) -> list[list[_Item]]:
    """Choices at each place of ``pattern``, counted before the expansion."""
    pieces = _BRACKETS.split(pattern)
    if any("[" in piece or "]" in piece for piece in pieces[::2]):
        raise PatternError(f"{pattern!r}: unbalanced brackets")
    choices = [
        _read_brackets(piece, pattern) if index % 2 else [_Item(piece)]
        for index, piece in enumerate(pieces)
        if index % 2 or piece
    ]
    total = _count(choices)
    if total > MAX_NAMES:
        raise PatternError(f"{pattern!r} stands for {total} names; the most is {MAX_NAMES}")
    if sum(max(len(item.text) for item in items) for items in choices) > MAX_NAME_LENGTH:
        raise PatternError(
            f"{pattern!r} stands for names of more than {MAX_NAME_LENGTH} characters"
        )
    return choices


def _read_brackets(inside: str, pattern: str) -> list[_Item]:
    items: list[_Item] = []
    for item in (item.strip() for item in inside.split(",")):
        if not item:
            raise PatternError(f"{pattern!r}: empty item in brackets")
        numbers = _NUMBER_RANGE.fullmatch(item)
        if numbers is None:
            _refuse_meant_range(item, pattern)
            items.append(_Item(item))
            continue
        first, last = numbers.groups()
        if int(last) < int(first):
            raise PatternError(f"{pattern!r}: the range {first}-{last} runs backwards")
        width = len(first) if first.startswith("0") else 0
        items.append(_Item(last, range(int(first), int(last) + 1), width))
    return items


def _refuse_meant_range(item: str, pattern: str) -> None:
    """Raise PatternError for a text in brackets that looks like a range but is invalid."""
    meant = _MEANT_RANGE.fullmatch(item)
    if meant is None or len(item) > MAX_NAME_LENGTH:
        return
    first, last = meant[1] or "", meant[2] or ""
    if first.isdigit() and last.isdigit() and max(len(first), len(last)) <= 18:
        remedy = f"write [{first}-{last}]"
    elif first.isalpha() and last.isalpha():
        remedy = "letters have no ranges, list the letters: [a,b,c]"
    else:
        remedy = "write two numbers with a hyphen between: [1-4]"
    raise PatternError(f"{pattern!r}: [{item}] is no range: {remedy}")


def suggest(word: str, known: Sequence[str]) -> str:
    """A hint for a word outside ``known``: the closest match, or else the known words."""
    return _suggest(word, tuple(known[:_MOST_COMPARED]), len(known))


@lru_cache(maxsize=256)
def _suggest(word: str, known: tuple[str, ...], count: int) -> str:
    close = get_close_matches(word, known, n=1) if len(word) <= _LONGEST_TYPO else []
    if close:
        return f"did you mean {close[0]!r}?"
    if not known:
        return "none is known"
    more = ", …" if count > _MOST_SUGGESTIONS else ""
    return f"known: {', '.join(known[:_MOST_SUGGESTIONS])}{more}"
