"""Values of options, read from the user's text."""

from __future__ import annotations

import math
from datetime import datetime

import click


def rate_of(text: str) -> float:
    """A finite number from zero."""
    try:
        number = float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number") from None
    if not (math.isfinite(number) and number >= 0):
        raise click.BadParameter(f"{text} must be finite and not negative")
    return number


def read_rate(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    return None if value is None else rate_of(value)


def read_positive(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    number = rate_of(value)
    if not number:
        raise click.BadParameter(f"{value} must be greater than 0")
    return number


def read_moment(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Unix seconds of a point in time, in local time unless the text says otherwise."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        raise click.BadParameter(f"{value!r} is not like 2026-12-01T08:00 or …T08:00Z") from None
