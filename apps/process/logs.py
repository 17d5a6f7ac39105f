"""The controller's log: text for people or a JSON object a line, with the subject of each line.

Levels: DEBUG is every step and command; INFO a line at begin and end; WARNING a failure handled by
the controller; ERROR a failure for people to look at.

An unread log keeps no thread waiting: lines beyond a bound are dropped and counted.
"""

from __future__ import annotations

import io
import logging
import logging.handlers
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from pythonjsonlogger.json import JsonFormatter

from apps.process.sinks import Sink, write_whole
from hydra.errors import HydraError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
FORMAT_VARIABLE: Final = "HYDRA_LOG_FORMAT"
LEVEL_VARIABLE: Final = "HYDRA_LOG_LEVEL"
_TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s%(about)s: %(message)s"
_STDERR: Final = 2
_LAST_WORDS_S: Final = 1.0
"""Longest wait at the end of the process for unwritten lines."""
_RECONFIGURATION: ContextVar[str] = ContextVar("reconfiguration", default="")


@contextmanager
def about(reconfiguration_id: str) -> Iterator[None]:
    """Context in which log records belong to the given reconfiguration.

    Threads at work for the reconfiguration must run in this context:
    ``contextvars.copy_context().run``.
    """
    token = _RECONFIGURATION.set(reconfiguration_id)
    try:
        yield
    finally:
        _RECONFIGURATION.reset(token)


def set_up(log_format: str, level: str, descriptor: int = _STDERR) -> None:
    """Log to ``descriptor``, in this format and from this level on; nowhere else.

    Other output to ``sys.stderr``, such as tracebacks of threads, goes the same way. No thread
    waits for ``descriptor``. Raises HydraError for an unknown format or level.
    """
    _check("log format", log_format, FORMATS, FORMAT_VARIABLE)
    _check("log level", level, LEVELS, LEVEL_VARIABLE)
    formatter = _json() if log_format == "json" else _Text(_TEXT)
    sink = Sink("log", partial(write_whole, descriptor), partial(_dropped, formatter))
    handler = _Handler(sink)
    handler.addFilter(_add_context)
    handler.setFormatter(formatter)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Stderr(sink, descriptor)),
        "utf-8",
        "backslashreplace",
        line_buffering=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.INFO, _number(level)))  # details of libraries are not logged
    for name in ("hydra", "drivers"):
        logging.getLogger(name).setLevel(_number(level))
    for name in ("ryu", "os_ken", "httpx", "asyncio", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)


def flush(timeout_s: float) -> None:
    """Wait until logged lines are written, at most ``timeout_s``."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Handler):
            handler.sink.flush(timeout_s)


class _Handler(logging.handlers.QueueHandler):
    """Hands formatted lines to a sink."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink.queue)
        self.sink = sink

    def prepare(self, record: logging.LogRecord) -> bytes:
        return _line(self.format(record))

    # The name is the library's; the record is the result of `prepare`.
    def enqueue(self, record: bytes) -> None:  # type: ignore[override]
        self.sink.put(record)

    def flush(self) -> None:
        """Wait a little for unwritten lines; :mod:`logging` calls this method at the end."""
        self.sink.flush(_LAST_WORDS_S)


class _Stderr(io.RawIOBase):
    """Standard error of Python code."""

    def __init__(self, sink: Sink, descriptor: int) -> None:
        super().__init__()
        self._sink = sink
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        line = bytes(data)
        self._sink.put(line)
        return len(line)


def _line(text: str) -> bytes:
    return f"{text}\n".encode("utf-8", "backslashreplace")


def _dropped(formatter: logging.Formatter, lines: int) -> bytes:
    """The line with the number of dropped lines."""
    record = logging.LogRecord(
        "hydra.logs",
        logging.WARNING,
        "",
        0,
        "%d lines of the log were dropped: standard error was not read meanwhile",
        (lines,),
        None,
    )
    _add_context(record)
    return _line(formatter.format(record))


class _Text(logging.Formatter):
    """Lines that begin with local time and offset from UTC: a log may be read elsewhere."""

    # The name and the arguments are logging's.
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return datetime.fromtimestamp(record.created).astimezone().isoformat(" ", "milliseconds")


def _check(subject: str, value: str, allowed: tuple[str, ...], variable: str) -> None:
    if value not in allowed:
        raise HydraError(
            f"there is no {subject} {value!r}: {variable} may be one of {', '.join(allowed)}"
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
    """Add the reconfiguration in progress, unless the record names another."""
    about_id = getattr(record, "reconfiguration", "") or _RECONFIGURATION.get()
    if about_id:
        record.reconfiguration = about_id
    record.about = f" [{about_id}]" if about_id else ""
    return True
