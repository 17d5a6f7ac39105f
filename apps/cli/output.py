"""Output of the commands: JSON for programs, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from rich.console import Console
from rich.table import Table

from hydra.errors import PlanError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH_OF_A_PIPE: Final = 200
_ElementT = TypeVar("_ElementT")


class ExitCode(IntEnum):
    OK = 0
    PROBLEM = 1
    USAGE = 2
    UNREACHABLE = 3
    UNKNOWN = 4
    UNHEALTHY = 5


class CommandError(click.ClickException):
    """Ends the command: the message goes to stderr, the exit code to the shell."""

    exit_code = ExitCode.PROBLEM

    def __init__(self, message: str, document: Mapping[str, object] | None = None) -> None:
        """``document``: the controller's refusal, printed to stdout by commands with ``--json``."""
        self.document = document
        super().__init__(message)


class UnreachableError(CommandError):
    """Nothing answers at the address of the controller or device."""

    exit_code = ExitCode.UNREACHABLE


class UnknownOutcomeError(CommandError):
    """A change was sent to a device, and the outcome is unknown."""

    exit_code = ExitCode.UNKNOWN


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


def drawn_by(module: str) -> ModuleType:
    """Import a drawing module of this package, which takes half a second. Raises CommandError."""
    try:
        return import_module(f"apps.cli.{module}")
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is needed for --plot: pip install {error.name}") from None


def save_figure(figure: Figure, path: Path) -> None:
    """Write a plot. Raises PlanError."""
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise PlanError(f"{path} can't be written: {error}") from error


def print_json(document: object) -> None:
    click.echo(json.dumps(document, indent=2))


def print_outcome(document: object, words: str, as_json: bool) -> None:
    """JSON, or a sentence."""
    if as_json:
        print_json(document)
    else:
        click.echo(words)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "none",
) -> None:
    """Print a table to stdout; columns whose heading ends in ``>`` are right-aligned.

    Nothing is cut off: wide cells go on in the next line. Names and ids in the first column are not
    wrapped, so that users can copy them.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        click.echo(f"{title}: {empty}")
        return
    console = _console()
    widest = max((row[0] for row in cells), key=len)
    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(
            column.removesuffix(">"),
            justify="right" if column.endswith(">") else "left",
            overflow="fold",
            no_wrap=not number and " " not in widest and len(widest) <= console.width // 2,
        )
    for row in cells:
        table.add_row(*row)
    console.print(table)


def print_columns(
    title: str,
    elements: Iterable[_ElementT],
    columns: Mapping[str, str | Callable[[_ElementT], object]],
    *,
    empty: str = "none",
) -> None:
    """Print a table as :func:`print_table` does, with a row for each element.

    ``columns``: by heading, the key of the cell in a document, or a function of the element.
    """
    cells: list[Callable[[Any], object]] = [
        itemgetter(cell) if isinstance(cell, str) else cell for cell in columns.values()
    ]
    rows = ([cell(element) for cell in cells] for element in elements)
    print_table(title, tuple(columns), rows, empty=empty)


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """Aligned ``name  value`` lines on stdout."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        click.echo(f"{name:<{width}}  {value}")


def agreed(question: str) -> bool:
    """The user's answer to a question. Raises CommandError if standard input ends first."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise CommandError("no answer on standard input: add --yes") from None


def insist(question: str) -> None:
    """End the command unless the user agrees. Raises as :func:`agreed`."""
    if not agreed(question):
        raise click.Abort


def warn(message: str) -> None:
    click.echo(f"Warning: {message}", err=True)


def print_error(message: str) -> None:
    click.echo(f"Error: {message}", err=True)


def mbps(rate: float) -> str:
    return f"{rate:,.1f}"


def _console() -> Console:
    # Console() takes the present sys.stdout, which click's test runner replaces.
    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    return Console(width=width, highlight=False, markup=False, emoji=False)
