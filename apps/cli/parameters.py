"""Values of options, read from the user's text, and options of several commands."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from apps.cli.output import warn

Option = Callable[[Any], Any]
Options = Sequence[Option]
_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])

FABRIC_HELP: Final = "FILE is a configuration; RxP: R racks on P planes, each circuit of MBPS."
"""Help text of a fabric from a file or made up."""
GRAPH_ENDINGS: Final = {".graphml": "graphml", ".json": "node-link"}
"""Formats of topologies as graphs, by file ending."""
_UNITS_S: Final = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(min|[dhms])")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern} *)+")
_LOCAL: Final = "%Y-%m-%dT%H:%M:%S"


class FiniteRange(click.FloatRange):
    """A range of numbers without ``nan`` and ``inf``, which click lets through."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class Duration(FiniteRange):
    """Seconds, as a number or with units: ``90``, ``90s``, ``15m``, ``1h30m``, ``2d``."""

    name = "duration"

    def convert(
        self, value: float | str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        try:
            if _DURATION.fullmatch(text):
                parts = _DURATION_PART.findall(text)
                seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
            else:
                seconds = float(text)
        except ValueError:
            self.fail(
                f"{text!r} is no duration: write seconds, or as 90s, 15m, 1h30m, 2d", param, ctx
            )
        return super().convert(seconds, param, ctx)


def rate_of(text: str) -> float:
    """A finite number from zero."""
    number = _number(text)
    if number < 0:
        raise click.BadParameter(f"{text} must not be negative")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise click.BadParameter(f"{text} is not a finite number")
    return number


def read_rate(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    return None if value is None else rate_of(value)


def read_positive(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    number = _number(value)
    if number <= 0:
        raise click.BadParameter(f"{value} must be greater than 0")
    return number


def read_moment(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Unix seconds of a point in time, in local time unless the text says otherwise.

    If clocks are put back and the local time occurs twice, the first occurrence is taken, with a
    warning. If clocks are put forward and the local time does not occur, the text is refused.
    """
    if value is None:
        return None
    try:
        given = datetime.fromisoformat(value)
        unix_s = given.timestamp()
        existing = datetime.fromtimestamp(unix_s)
        second_s = given.replace(fold=1).timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is no time: write 18:00, 2026-12-01T08:00 or 2026-12-01T08:00Z"
        ) from None
    if given.tzinfo is None and second_s != unix_s:
        first, second = (datetime.fromtimestamp(at_s).astimezone() for at_s in (unix_s, second_s))
        if existing != given:
            raise click.BadParameter(
                f"there is no {value}: clocks are put forward then; give {existing:{_LOCAL}}, or a "
                f"time with its offset, such as {first.isoformat()}"
            )
        warn(
            f"{value} occurs twice, since clocks are put back: taking the first, "
            f"{first.isoformat()}; the second is {second.isoformat()}"
        )
    return unix_s


def read_coming_moment(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | None:
    """As :func:`read_moment`; a time of day alone is the next occurrence, today or tomorrow."""
    return read_moment(ctx, param, _with_day(value, coming=True))


def read_end(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """As :func:`read_moment`; a time of day alone is the first after ``--start``, or after now.

    Warns if this is on another day than the start.
    """
    start_unix_s: float | None = ctx.params.get("start")
    dated = _with_day(value, coming=True, since_unix_s=start_unix_s)
    end_unix_s = read_moment(ctx, param, dated)
    if end_unix_s is not None and dated != value:
        start = datetime.now() if start_unix_s is None else datetime.fromtimestamp(start_unix_s)
        end = datetime.fromtimestamp(end_unix_s)
        if end.date() != start.date():
            warn(f"--end {value} is on {end:%Y-%m-%d}, {_in_hours(end - start)} after the start")
    return end_unix_s


def _in_hours(length: timedelta) -> str:
    minutes = round(length / timedelta(minutes=1))
    return f"{minutes // 60} h {minutes % 60} min"


def read_past_moment(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """As :func:`read_moment`; a time of day alone is the last occurrence, today or yesterday."""
    return read_moment(ctx, param, _with_day(value, coming=False))


def _with_day(value: str | None, *, coming: bool, since_unix_s: float | None = None) -> str | None:
    """A time of day with the day of the next or the last occurrence, seen from ``since_unix_s`` or
    from now; other text is returned unchanged.
    """
    if value is None or ":" not in value:
        return value
    try:
        of_day = time.fromisoformat(value)
    except ValueError:
        return value
    since_unix_s = datetime.now().timestamp() if since_unix_s is None else since_unix_s
    now = datetime.fromtimestamp(since_unix_s, of_day.tzinfo)
    moment = datetime.combine(now.date(), of_day)
    if coming and moment <= now:
        moment = datetime.combine(now.date() + timedelta(days=1), of_day)
    elif not coming and moment > now:
        moment = datetime.combine(now.date() - timedelta(days=1), of_day)
    return moment.isoformat()


def with_options(options: Options) -> Callable[[_CommandT], _CommandT]:
    """A decorator that gives a command these options, in the given order."""

    def decorate(command: _CommandT) -> _CommandT:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def config_option(text: str = "Configuration file; see `hydra check`.") -> Option:
    """``--config``, with ``text`` as help."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        required=True,
        envvar="HYDRA_CONFIG",
        show_envvar=True,
        help=text,
    )


def wait_option(text: str) -> Option:
    """``--wait SECONDS``, with ``text`` as help; 0: no wait."""
    return click.option(
        "--wait",
        "wait_s",
        type=FiniteRange(min=0),
        default=0.0,
        metavar="SECONDS",
        help=text,
    )


log_options = with_options(
    (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            envvar="HYDRA_LOG_FORMAT",
            show_envvar=True,
            show_default=True,
            help="Lines for people, or a JSON object a line.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            envvar="HYDRA_LOG_LEVEL",
            show_envvar=True,
            show_default=True,
            help=(
                "debug: every step and command; info: begin and end of each activity; warning: "
                "failures that the program handles; error: failures that need a person."
            ),
        ),
    )
)
"""``--log-format`` and ``--log-level``, for long-running commands."""


def read_graph_file(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> Path | None:
    """A file with an ending from :data:`GRAPH_ENDINGS`."""
    if value is not None and value.suffix not in GRAPH_ENDINGS:
        raise click.BadParameter(f"{value} must end in {' or '.join(GRAPH_ENDINGS)}")
    return value
