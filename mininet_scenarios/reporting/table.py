"""Tables of figures: each beside the paper's figure, with the verdict on the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. Texts include units."""

    figure: str
    paper: str
    ours: str
    ratio: float | None = None
    """Ours over the paper's; None if the paper has no such figure."""
    target: str = ""
    met: bool | None = None
    """True if the target is met; None if there is none."""
    why: str = ""
    """Reason why ours differs from the paper's, in a sentence."""
    claim: str = ""
    """Key of the paper's claim judged by the row; empty for a figure or check of our own."""


def spread(values: Sequence[float], form: str) -> str:
    """Range of several repetitions' values; empty for a single one."""
    return f" ({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else ""


def ranged(values: Sequence[float], form: str, unit: str = "") -> str:
    """Mean of all repetitions, and the range of several."""
    return f"{fmean(values):{form}}{unit}{spread(values, form)}"


def table(lines: Iterable[Row], title: str) -> Table:
    """A table for the terminal; readable without colour as well."""
    result = Table(title=title)
    for heading in ("figure", "paper", "ours", "ours / paper", "target", "met"):
        result.add_column(heading, justify="left" if heading == "figure" else "right")
    for line in lines:
        result.add_row(
            line.figure,
            line.paper,
            line.ours,
            "" if line.ratio is None else f"{line.ratio:.2f}",
            line.target,
            "" if line.met is None else ("[green]yes[/]" if line.met else "[bold red]NO[/]"),
        )
    return result
