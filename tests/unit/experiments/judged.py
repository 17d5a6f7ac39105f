"""Rows of an experiment, apart: checks of our own, and claims of a paper."""

from collections.abc import Iterable

from mininet_scenarios.reporting.table import Row


def missed(rows: Iterable[Row]) -> list[str]:
    """Figures of our own checks that are not met."""
    return [row.figure for row in rows if row.met is False and not row.claim]


def differing(rows: Iterable[Row]) -> list[str]:
    """Claims with which a row differs."""
    return [row.claim for row in rows if row.met is False and row.claim]


def agreeing(rows: Iterable[Row]) -> list[str]:
    """Claims with which a row agrees."""
    return [row.claim for row in rows if row.met and row.claim]
