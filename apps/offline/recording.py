"""Recorded demand in a file: of ``hydra record`` and ``hydra trace convert``, for ``hydra replay``.

JSON, an object per line. The first is the header::

    {"hydra_trace": 1, "fabric": "demo", "racks": ["r1", "r2"], "started_unix_s": 1795000000.0}

and each further line a reading of the whole matrix, times counted from ``started_unix_s``::

    {"at_s": 12.0, "mbps": [[0, 1, 88.5], [1, 0, 3.25]]}

with [source, destination, Mbps], racks by their position in the header; other pairs sent nothing. A
last line without an end, or not in JSON, was being written, and is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hydra import foreign_json
from hydra.errors import PlanError
from hydra.model import DemandMatrix, Fabric
from hydra.names import did_you_mean

VERSION: Final = 1
_DECIMALS: Final = 3
MOST_BYTES: Final = 1 << 30
"""Most bytes of a file that is read: the largest limit that ``hydra record`` takes."""
_LARGEST: Final = sys.float_info.max

Entry = tuple[int, int, float]
"""Source and destination, as positions in the header, and Mbps."""


class TraceFull(PlanError):
    """The next reading would exceed the size limit of the file."""


class TraceWriter:
    """Appends readings to a new file, which never grows beyond ``limit_bytes``.

    Raises PlanError if the file exists or can't be written.
    """

    def __init__(
        self,
        path: Path,
        fabric: str,
        racks: Sequence[str],
        started_unix_s: float,
        limit_bytes: int,
    ) -> None:
        self._started_unix_s = round(started_unix_s, _DECIMALS)
        header = {
            "hydra_trace": VERSION,
            "fabric": fabric,
            "racks": list(racks),
            "started_unix_s": self._started_unix_s,
        }
        self._remaining_bytes = limit_bytes
        try:
            self._file = path.open("x", encoding="ascii")
        except FileExistsError:
            raise PlanError(f"{path} exists: name a new file") from None
        except OSError as error:
            raise PlanError(f"{path} can't be written: {error.strerror}") from error
        self._write(header)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, unix_s: float, entries: Iterable[Entry]) -> None:
        """Append a reading.

        Raises TraceFull if the reading does not fit, PlanError if the disk is full; then nothing is
        written.
        """
        self._write(
            {
                "at_s": round(unix_s - self._started_unix_s, _DECIMALS),
                "mbps": [[src, dst, round(mbps, _DECIMALS)] for src, dst, mbps in entries],
            }
        )

    def _write(self, document: dict[str, Any]) -> None:
        line = json.dumps(document, separators=(",", ":")) + "\n"
        if len(line) > self._remaining_bytes:
            raise TraceFull(f"{self._file.name} is full: the last reading is whole")
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise PlanError(f"{self._file.name} can't be written: {error.strerror}") from error
        self._remaining_bytes -= len(line)


@dataclass(frozen=True, slots=True)
class Reading:
    at_s: float
    src: NDArray[np.intp]
    dst: NDArray[np.intp]
    mbps: NDArray[np.float64]

    def matrix(self, racks: int) -> DemandMatrix:
        demand = np.zeros((racks, racks))
        np.add.at(demand, (self.src, self.dst), self.mbps)
        return demand


@dataclass(frozen=True, slots=True)
class Trace:
    """Readings in the order of time, with rack numbers of the fabric."""

    fabric: str
    started_unix_s: float
    readings: tuple[Reading, ...]
    torn_line: int | None = None
    """Number of an omitted last line, whose writing was cut short."""


def read_trace(path: Path, fabric: Fabric) -> Trace:
    """The trace in a file. Raises PlanError, with the line, if the file has no trace of the
    fabric.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise PlanError(f"{path} is larger than {MOST_BYTES >> 20} MiB: cut the file")
        content = path.read_bytes()
    except OSError as error:
        raise PlanError(f"{path} can't be read: {error}") from error
    if not content:
        raise PlanError(f"{path} is empty: hydra record writes such files")
    lines = content.split(b"\n")
    torn_line = _torn_line(lines)
    try:
        rack_of, name, started_unix_s = _header(_object(lines[0], 1), fabric)
        readings: list[Reading] = []
        for number, line in enumerate(lines[1 : (torn_line or len(lines)) - 1], start=2):
            reading = _reading(_object(line, number), rack_of, number)
            if readings and reading.at_s <= readings[-1].at_s:
                raise PlanError(f"line {number}: at_s does not grow")
            readings.append(reading)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from None
    if not readings:
        raise PlanError(f"{path} has no reading")
    return Trace(name, started_unix_s, tuple(readings), torn_line)


def _torn_line(lines: Sequence[bytes]) -> int | None:
    """Number of the last line after the first if its writing was cut short.

    ``lines`` are the texts between the ends of lines: the last is empty in a whole file.
    """
    if lines[-1]:
        return len(lines) if len(lines) > 1 else None
    last = len(lines) - 1
    if last > 1:
        try:
            foreign_json.loads(lines[last - 1].decode("ascii"))
        except ValueError:
            return last
    return None


def _object(line: bytes, number: int) -> dict[str, Any]:
    try:
        found = foreign_json.loads(line.decode("ascii"))
    except ValueError as error:
        raise PlanError(f"line {number} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise PlanError(f"line {number} is no JSON object")
    return found


def _header(header: dict[str, Any], fabric: Fabric) -> tuple[NDArray[np.intp], str, float]:
    """(number of each rack in ``fabric``, name of the recorded fabric, start)."""
    if header.get("hydra_trace") != VERSION:
        raise PlanError(f'line 1: no header of a trace, "hydra_trace": {VERSION}')
    names, started = header.get("racks"), header.get("started_unix_s")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PlanError('line 1: "racks" is no list of names')
    if len(set(names)) < len(names):
        raise PlanError('line 1: "racks" names one twice')
    if not _is_moment(started):
        raise PlanError('line 1: "started_unix_s" is no number')
    known = fabric.rack_by_name
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise PlanError(f"line 1: rack {name!r} is not in fabric {fabric.name}{hint}")
    racks = np.array([known[name].id for name in names], dtype=np.intp)
    return racks, str(header.get("fabric", "")), float(started)


def _is_moment(value: object) -> TypeGuard[int | float]:
    """True for a number of seconds that a float can represent."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST <= value <= _LARGEST


def _reading(found: dict[str, Any], rack_of: NDArray[np.intp], number: int) -> Reading:
    at_s, entries = found.get("at_s"), found.get("mbps")
    if not _is_moment(at_s):
        raise PlanError(f'line {number}: "at_s" is no number')
    try:
        columns = np.array(entries, dtype=np.float64).reshape(-1, 3)
    except (TypeError, ValueError, OverflowError):
        raise PlanError(
            f'line {number}: "mbps" is no list of [source, destination, Mbps]'
        ) from None
    ends, mbps = columns[:, :2], columns[:, 2]
    if not ((ends >= 0) & (ends < len(rack_of)) & (ends == np.floor(ends))).all():
        raise PlanError(f"line {number}: a rack is no position among the {len(rack_of)} racks")
    if (ends[:, 0] == ends[:, 1]).any():
        raise PlanError(f"line {number}: a rack sends to itself")
    if not (np.isfinite(mbps) & (mbps >= 0)).all():
        raise PlanError(f"line {number}: a rate is negative or not finite")
    src, dst = rack_of[ends.astype(np.intp)].T
    return Reading(float(at_s), src, dst, mbps)
