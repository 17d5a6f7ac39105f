"""Sizes of classes, files and constructors, by the syntax tree."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

MOST_LINES_OF_FILE = 600
MOST_LINES_OF_CLASS = 350
MOST_METHODS = 30
MOST_LINES_OF_INIT = 60
MOST_BY_POSITION = 3


class Shape(NamedTuple):
    name: str
    """``Class`` or ``Class.__init__``; empty for the file."""
    words: str


def too_large(source: str) -> Iterator[Shape]:
    """Oversized parts of a module."""
    lines = len(source.splitlines())
    if lines > MOST_LINES_OF_FILE:
        yield Shape("", f"{lines} lines")
    for one in classes(source):
        methods = [f for f in one.body if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)]
        if _lines(one) > MOST_LINES_OF_CLASS:
            yield Shape(one.name, f"{_lines(one)} lines")
        if len(methods) > MOST_METHODS:
            yield Shape(one.name, f"{len(methods)} methods")
        for init in methods:
            if init.name == "__init__" and _lines(init) > MOST_LINES_OF_INIT:
                yield Shape(f"{one.name}.__init__", f"{_lines(init)} lines")


def by_position(source: str) -> Iterator[Shape]:
    """Constructors with more than the allowed positional arguments."""
    for one in classes(source):
        names = _positional(one)
        if len(names) > MOST_BY_POSITION:
            yield Shape(one.name, f"by position: {', '.join(names)}")


def classes(source: str) -> list[ast.ClassDef]:
    return [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ClassDef)]


def python_files(roots: list[Path]) -> list[Path]:
    return [path for root in roots for path in sorted(root.rglob("*.py"))]


def _lines(node: ast.stmt) -> int:
    return node.end_lineno - node.lineno + 1


def _positional(one: ast.ClassDef) -> list[str]:
    for init in one.body:
        if isinstance(init, ast.FunctionDef) and init.name == "__init__":
            return [argument.arg for argument in (*init.args.posonlyargs, *init.args.args)][1:]
    decorators = [ast.unparse(decorator) for decorator in one.decorator_list]
    if not any(words.startswith("dataclass") for words in decorators):
        return []
    if any("kw_only=True" in words for words in decorators):
        return []
    names = []
    for field in one.body:
        if not isinstance(field, ast.AnnAssign):
            continue
        kind = ast.unparse(field.annotation)
        if kind == "KW_ONLY":
            break
        value = "" if field.value is None else ast.unparse(field.value)
        if "ClassVar" not in kind and not ("field(" in value and "init=False" in value):
            names.append(ast.unparse(field.target))
    return names


@dataclass(frozen=True)
class Call:
    """A constructor call with adjacent numbers of the same kind by position."""

    path: Path
    line: int
    name: str
    arguments: list[ast.expr]
    names: list[str]
    """The arguments from the first number that looks like its neighbour."""


def look_alike(files: list[Path], root: Path) -> Iterator[Call]:
    """Calls with two adjacent numbers of the same kind, only by position."""
    trees = {path: ast.parse(path.read_text()) for path in files}
    numbers = {
        (".".join(path.relative_to(root).with_suffix("").parts), one.name): parameters
        for path, tree in trees.items()
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef) and (parameters := _parameters(one))
    }
    for path, tree in trees.items():
        here = ".".join(path.relative_to(root).with_suffix("").parts)
        seen = {
            one.name: (here, one.name) for one in ast.walk(tree) if isinstance(one, ast.ClassDef)
        }
        for one in ast.walk(tree):
            if isinstance(one, ast.ImportFrom):
                seen |= {name.asname or name.name: (one.module, name.name) for name in one.names}
        for one in ast.walk(tree):
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name):
                parameters = numbers.get(seen.get(one.func.id), [])[: len(one.args)]
                first = next(
                    (
                        place
                        for place, (this, other) in enumerate(pairwise(parameters))
                        if this[1] == other[1] and this[1] in ("float", "float | None")
                    ),
                    None,
                )
                if first is not None:
                    names = [name for name, _kind in parameters[first:]]
                    yield Call(path, one.lineno, one.func.id, one.args[first:], names)


def _parameters(one: ast.ClassDef) -> list[tuple[str, str]]:
    """Names and types of a constructor's positional arguments."""
    names = _positional(one)
    kinds = {
        field.target.id: ast.unparse(field.annotation)
        for field in one.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    for init in one.body:
        if isinstance(init, ast.FunctionDef) and init.name == "__init__":
            kinds = {
                argument.arg: ast.unparse(argument.annotation)
                for argument in init.args.args
                if argument.annotation is not None
            }
    if not names and any(ast.unparse(base) == "NamedTuple" for base in one.bases):
        names = [*kinds]
    return [(name, kinds.get(name, "")) for name in names]
