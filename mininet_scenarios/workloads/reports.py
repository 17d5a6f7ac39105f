"""Reports of workloads, in files that are complete or absent, and a polite stop."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hydra.errors import HydraError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_POLL_S: Final = 0.01

_ReportT = TypeVar("_ReportT", bound="DataclassInstance")


class WorkloadError(HydraError):
    """A workload that did not run as asked, or has an unreadable report."""


class StopFlag:
    """Flag set by SIGTERM or SIGINT; a workload then finishes its report and ends."""

    def __init__(self) -> None:
        self.is_set = False

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True


def write_moment(path: Path, moment_s: float) -> None:
    """Write a time of ``CLOCK_MONOTONIC`` for processes waiting by :func:`awaited_s`."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(f"{moment_s:.6f}", encoding="utf-8")
    unfinished.replace(path)


def awaited_s(path: Path) -> float:
    """Wait for a file, and return the time in the file."""
    while not path.exists():
        time.sleep(_POLL_S)
    return float(path.read_text(encoding="utf-8"))


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write ``report`` as JSON so that a reader sees all of the report or nothing."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(report) + "\n", encoding="utf-8")
    unfinished.replace(path)


def read_report(path: Path) -> dict[str, Any]:
    """Read the report of :func:`write_report`. Raises WorkloadError if there is none."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise WorkloadError(f"{path}: no report; the workload did not finish") from error
    except ValueError as error:
        raise WorkloadError(f"{path}: the report is not JSON: {error}") from error
    if not isinstance(report, dict):
        raise WorkloadError(f"{path}: the report is a {type(report).__name__}, not an object")
    return report


def report_as(kind: type[_ReportT], data: Mapping[str, Any]) -> _ReportT:
    """Read a report back as its dataclass. Raises WorkloadError if a field is missing.

    Fields with objects stay dictionaries.
    """
    names = [item.name for item in fields(kind)]
    missing = [name for name in names if name not in data]
    if missing:
        raise WorkloadError(f"{kind.__module__}: the report lacks {', '.join(missing)}")
    return kind(**{name: data[name] for name in names})
