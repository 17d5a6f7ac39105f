"""Traces in their common text forms, read line by line.

The first line shows which of three forms a trace has:

- coflow-benchmark (Chowdhury et al.): ``RACKS COFLOWS``, then a line for each coflow: its number,
  its arrival in ms, the number of mappers and their racks, the number of reducers and for each
  ``RACK:MEGABYTES``. A reducer fetches equal parts from all mappers.
- flows: ``src dst bytes start`` on each line, start in seconds. Racks have any names.
- CSV: a header with the columns ``src``, ``dst``, ``bytes`` and ``start`` in any order, then a flow
  on each line. Other columns are ignored.

Empty lines, and text after ``#``, mean nothing.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from hydra.errors import PlanError

MEGABYTE: Final = 1_000_000
"""Bytes, as coflow sizes are counted."""
_COLUMNS: Final = ("src", "dst", "bytes", "start")
_LARGEST_FABRIC: Final = 4096
_YEAR_S: Final = 365.25 * 86_400
_LONGEST_YEARS: Final = 2
"""Longest plausible trace: the longest published traces last for months."""
_LATEST_S: Final = 200 * _YEAR_S
"""Latest plausible beginning, in seconds since 1970."""


class TraceError(PlanError):
    """A trace that can't be read; names the file, the line and the problem."""


class Flow(NamedTuple):
    """Bytes from one rack to another."""

    src: str
    dst: str
    size_bytes: float
    start_s: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Contents of a trace, from one pass over it."""

    racks: tuple[str, ...]
    """Racks in the order of the fabric's racks: numbers first, by value. For coflows, all racks
    announced by the first line.
    """
    flows: int
    local_flows: int
    """Number of flows within a rack, invisible to a network between racks."""
    size_bytes: float
    local_bytes: float
    first_s: float
    last_s: float

    def doubt(self) -> str | None:
        """Why the times may be in another unit than assumed; None if the times are plausible."""
        years = (self.last_s - self.first_s) / _YEAR_S
        if years > _LONGEST_YEARS:
            why = f"the trace lasts {years:,.0f} years"
        elif self.first_s > _LATEST_S:
            why = f"the trace begins {self.first_s / _YEAR_S:,.0f} years after 1970"
        else:
            return None
        return (
            f"{why} if the starts of flows are seconds, or the arrivals of coflows milliseconds: "
            "divide finer units before (flows in nanoseconds: "
            """awk '{$4 = sprintf("%.9f", $4 / 1e9)} 1')"""
        )


def seconds(moment_s: float) -> str:
    """A moment in full, also in seconds since 1970: as ``1700000000.25``, not ``1.7e+09``."""
    return f"{moment_s:.15g}"


def read_trace(path: Path, announced: set[str] | None = None) -> Iterator[Flow]:
    """The flows of a trace in the order of their starts, a line at a time.

    The racks announced by the first line are added to ``announced``. Raises TraceError, also while
    reading: at a malformed line, or a line that starts before the line above.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:  # some editors write a byte order mark
            yield from _flows(path, file, set() if announced is None else announced)
    except OSError as error:
        raise TraceError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error


def summarise(path: Path) -> Summary:
    """Summary from one pass over a trace; memory grows with the racks only. Raises TraceError."""
    racks: set[str] = set()
    flows = local_flows = 0
    size = local = 0.0
    first_s, last_s = math.inf, 0.0
    for flow in read_trace(path, racks):
        racks.update((flow.src, flow.dst))
        flows += 1
        size += flow.size_bytes
        if flow.src == flow.dst:
            local_flows += 1
            local += flow.size_bytes
        first_s, last_s = min(first_s, flow.start_s), flow.start_s
    if not flows:
        raise TraceError(f"{path} holds no flow")
    return Summary(
        in_order(racks),
        flows,
        local_flows,
        size_bytes=size,
        local_bytes=local,
        first_s=first_s,
        last_s=last_s,
    )


def in_order(racks: set[str]) -> tuple[str, ...]:
    """Racks in order: numbers by their value, then other names."""

    def place(name: str) -> tuple[bool, int, str, str]:
        counted = name.lstrip("0") if name.isdecimal() else name
        return not name.isdecimal(), len(counted), counted, name

    return tuple(sorted(racks, key=place))


def _flows(path: Path, file: TextIO, announced: set[str]) -> Iterator[Flow]:
    content = _content(file)
    number, first = next(content, (0, ""))
    if not first:
        raise TraceError(f"{path} is empty: give a file with flows or coflows")
    previous_s = 0.0
    if "," in first:
        found = _csv(number, first, content)
    else:
        lines = ((number, text.split()) for number, text in content)
        cells = first.split()
        of_form = partial(_coflows, announced) if len(cells) == 2 else _plain
        found = of_form(number, cells, lines)
    try:
        for line, flow in found:
            if flow.start_s < previous_s:
                raise _BadLine(
                    line,
                    f"starts at {seconds(flow.start_s)} s, the line above at "
                    f"{seconds(previous_s)} s: sort the trace by its starts",
                )
            previous_s = flow.start_s
            yield flow
    except _BadLine as bad:
        raise TraceError(f"{path}:{bad.number}: {bad}") from bad


class _BadLine(Exception):
    def __init__(self, number: int, message: object) -> None:
        super().__init__(message)
        self.number = number


class _UnknownRack(ValueError): ...


def _content(file: TextIO) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(file, start=1):
        text = line.partition("#")[0].strip()
        if text:
            yield number, text


def _csv(first: int, heading: str, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Flow]]:
    columns = _fields(heading)
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise _BadLine(
            first,
            f"the header has {', '.join(columns)}, and no {', '.join(missing)}: name the columns "
            "src, dst, bytes and start (in seconds), in any order",
        )
    places = [columns.index(name) for name in _COLUMNS]
    for number, line in lines:
        cells = _fields(line)
        if len(cells) != len(columns):
            raise _BadLine(number, f"{len(cells)} fields: the header has {len(columns)}")
        chosen = [cells[place] for place in places]
        bad = [cell for cell in chosen if len(cell.split()) != 1 or "," in cell]
        if bad:
            raise _BadLine(number, f"{bad[0]!r}: no field is empty or has blanks or commas in it")
        try:
            yield number, _flow(chosen)
        except ValueError as error:
            raise _BadLine(number, error) from error


def _fields(line: str) -> list[str]:
    (cells,) = csv.reader([line], skipinitialspace=True)
    return [cell.strip() for cell in cells]


def _plain(
    number: int, cells: Sequence[str], lines: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, Flow]]:
    while cells:
        try:
            yield number, _flow(cells)
        except ValueError as error:
            raise _BadLine(number, error) from error
        number, cells = next(lines, (0, []))


def _flow(cells: Sequence[str]) -> Flow:
    if len(cells) != 4:
        raise ValueError(f"{len(cells)} fields: src dst bytes start are four")
    src, dst, size, start = cells
    return Flow(src, dst, size_bytes=_number("bytes", size), start_s=_number("start", start))


def _coflows(
    announced: set[str], first: int, heading: Sequence[str], lines: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, Flow]]:
    try:
        racks, coflows = _whole("the number of racks", heading[0]), int(heading[1])
    except ValueError:
        forms = "neither `RACKS COFLOWS`, nor `src dst bytes start`, nor a header of CSV"
        raise _BadLine(first, forms) from None
    if not 1 <= racks <= _LARGEST_FABRIC:
        raise _BadLine(first, f"{racks} racks: 1 to {_LARGEST_FABRIC} can be planned for")
    announced.update(map(str, range(racks)))
    seen, number = 0, first
    for number, cells in lines:
        seen += 1
        try:
            found = _coflow(cells, racks)
        except _UnknownRack as error:
            bounds = f"line {first} announces racks 0 to {racks - 1}"
            raise _BadLine(number, f"{error}: {bounds}") from error
        except ValueError as error:
            raise _BadLine(number, error) from error
        for flow in found:
            yield number, flow
    if seen != coflows:
        raise _BadLine(number, f"line {first} announces {coflows} coflows, there are {seen}")


def _coflow(cells: Sequence[str], racks: int) -> Iterator[Flow]:
    """The flows of a coflow: from each of its mappers to each of its reducers."""
    fields = iter(cells)
    try:
        next(fields)
        start_s = _number("arrival", next(fields)) / 1000
        mappers = [_rack(next(fields), racks) for _ in range(_whole("mappers", next(fields)))]
        reducers = [_reducer(next(fields), racks) for _ in range(_whole("reducers", next(fields)))]
    except StopIteration:
        raise ValueError(
            f"ends after {len(cells)} fields: number, arrival, mappers, racks, reducers and "
            "RACK:MEGABYTES are needed"
        ) from None
    left = list(fields)
    if left:
        raise ValueError(f"{left[0]!r} stands after the last reducer")
    if reducers and not mappers:
        raise ValueError("has reducers and no mapper")
    return (
        Flow(mapper, reducer, size_bytes=size / len(mappers), start_s=start_s)
        for reducer, size in reducers
        for mapper in mappers
    )


def _reducer(text: str, racks: int) -> tuple[str, float]:
    rack, colon, megabytes = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is not RACK:MEGABYTES")
    return _rack(rack, racks), _number("megabytes", megabytes) * MEGABYTE


def _rack(text: str, racks: int) -> str:
    if not text.isdecimal() or int(text) >= racks:
        raise _UnknownRack(f"rack {text!r}")
    return str(int(text))


def _whole(subject: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{subject}: {text!r} is not a whole number")
    return int(text)


def _number(subject: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{subject}: {text!r} is not a number") from None
    if not 0 <= number < math.inf:
        raise ValueError(f"{subject}: {text} must be finite and not negative")
    return number
