"""Values of options, read from the user's text, and options of several commands."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


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


def log_options(command: _CommandT) -> _CommandT:
    """``--log-format`` and ``--log-level``, of commands that are processes."""
    log_format = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        envvar="HYDRA_LOG_FORMAT",
        show_envvar=True,
        show_default=True,
        help="Lines for people, or a JSON object a line.",
    )
    log_level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        envvar="HYDRA_LOG_LEVEL",
        show_envvar=True,
        show_default=True,
        help="debug: every step and command; info: what begins and ends; warning: what failed and "
        "is dealt with; error: what somebody should look at.",
    )
    return log_format(log_level(command))
