"""Rows of an experiment, by kind: the project's own checks, and claims of a paper."""

from collections.abc import Iterable

from mininet_scenarios.reporting.table import Row


def missed(rows: Iterable[Row]) -> list[str]:
    """Figures of the project's checks that miss their targets."""
    return [row.figure for row in rows if row.met is False and not row.claim]


def differing(rows: Iterable[Row]) -> list[str]:
    """Claims that a row contradicts."""
    return [row.claim for row in rows if row.met is False and row.claim]


def agreeing(rows: Iterable[Row]) -> list[str]:
    """Claims that a row confirms."""
    return [row.claim for row in rows if row.met and row.claim]
