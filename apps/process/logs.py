"""The controller's log: text for people or a JSON object a line, and what a line is about.

Levels: DEBUG is every step and command; INFO one line when something begins and one when it ends;
WARNING something failed that the controller deals with itself; ERROR somebody should look.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Final, TextIO

from pythonjsonlogger.json import JsonFormatter

from hydra.errors import HydraError

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
FORMAT_VARIABLE: Final = "HYDRA_LOG_FORMAT"
LEVEL_VARIABLE: Final = "HYDRA_LOG_LEVEL"
_TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s%(about)s: %(message)s"
_RECONFIGURATION: ContextVar[str] = ContextVar("reconfiguration", default="")


@contextmanager
def about(reconfiguration_id: str) -> Iterator[None]:
    """Context in which whatever is logged belongs to this reconfiguration.

    Threads that work for it must be given this context: ``contextvars.copy_context().run``.
    """
    token = _RECONFIGURATION.set(reconfiguration_id)
    try:
        yield
    finally:
        _RECONFIGURATION.reset(token)


def set_up(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Log to ``stream``, or standard error, in this format and from this level on; nowhere else.

    Raises HydraError for an unknown format or level.
    """
    _check("log format", log_format, FORMATS, FORMAT_VARIABLE)
    _check("log level", level, LEVELS, LEVEL_VARIABLE)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(_add_context)
    handler.setFormatter(_json() if log_format == "json" else _Text(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.INFO, _number(level)))  # libraries' own details are not ours to tell
    for name in ("hydra", "drivers"):
        logging.getLogger(name).setLevel(_number(level))
    for name in ("ryu", "os_ken", "httpx", "asyncio", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Text(logging.Formatter):
    """Lines that begin with local time and its distance from UTC: a log may be read elsewhere."""

    # The name and the arguments are logging's.
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return datetime.fromtimestamp(record.created).astimezone().isoformat(" ", "milliseconds")


def _check(what: str, value: str, allowed: tuple[str, ...], variable: str) -> None:
    if value not in allowed:
        raise HydraError(
            f"there is no {what} {value!r}: {variable} may be one of {', '.join(allowed)}"
        )


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _json() -> logging.Formatter:
    return JsonFormatter(
        "%(created)f %(levelname)s %(name)s %(threadName)s %(message)s",
        rename_fields={
            "created": "unix_s",
            "levelname": "level",
            "name": "logger",
            "threadName": "thread",
            "exc_info": "traceback",
        },
        reserved_attrs=[*logging.makeLogRecord({}).__dict__, "message", "asctime", "about"],
    )


def _add_context(record: logging.LogRecord) -> bool:
    """Add the reconfiguration that a record is about, unless it says so itself."""
    about_id = getattr(record, "reconfiguration", "") or _RECONFIGURATION.get()
    if about_id:
        record.reconfiguration = about_id
    record.about = f" [{about_id}]" if about_id else ""
    return True
