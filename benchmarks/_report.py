"""Figures of the benchmarks: a table for people, and the same rows as JSON for
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks"
BUSY_LOAD = 0.5
"""If the load before a run is above this, the run counts as busy."""


@dataclass(frozen=True, slots=True)
class Result:
    """A figure, with its baseline and its target."""

    case: str
    """Conditions."""
    metric: str
    unit: str
    better: str
    """``lower`` or ``higher``."""
    ours: float
    """NaN: no measurement; the target is missed then."""
    baseline: float | None = None
    """None: no baseline was measured."""
    baseline_name: str = ""
    target: float | None = None
    """Target set by the project; None: no target."""
    note: str = ""
    """A known limit, or another remark for readers of the figure."""

    @property
    def meets_target(self) -> bool:
        if self.target is None:
            return True
        return self.ours <= self.target if self.better == "lower" else self.ours >= self.target

    @property
    def ratio(self) -> float | None:
        """The improvement over the baseline, as a factor; None without a baseline, and for a
        zero.
        """
        if not self.baseline or not self.ours:
            return None
        lower = self.better == "lower"
        return self.baseline / self.ours if lower else self.ours / self.baseline


@dataclass(frozen=True, slots=True)
class Machine:
    """The computer of a benchmark's run."""

    model: str
    cores: int
    system: str

    @classmethod
    def this(cls) -> Machine:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        system = f"Linux {platform.release()}, Python {platform.python_version()}"
        return cls((names or [platform.machine()])[0], os.cpu_count() or 1, system)


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of a command."""

    command: str
    date: str
    """Day, YYYY-MM-DD."""
    busy: bool
    """True if other work ran at the same time: ratios are valid, absolute times are not."""
    machine: Machine
    rows: tuple[Result, ...]

    def document(self) -> dict[str, Any]:
        """JSON; :meth:`of` reads it."""
        return asdict(self) | {"rows": [_row_document(row) for row in self.rows]}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Run:
        known = {part.name for part in fields(Result)}
        rows = tuple(
            Result(**{key: value for key, value in row.items() if key in known} | _nan(row))
            for row in document["rows"]
        )
        return cls(**{**document, "machine": Machine(**document["machine"]), "rows": rows})


@dataclass(frozen=True, slots=True)
class _Call:
    """Folder and arguments of the benchmark under way, and the load before the run."""

    folder: Path = RESULTS
    arguments: Sequence[str] = ()
    load: float = field(default_factory=lambda: os.getloadavg()[0])


_CALL: ContextVar[_Call] = ContextVar("_CALL")


def run_benchmark(main: Callable[..., int]) -> NoReturn:
    """Run a benchmark with the process's arguments, except ``--results FOLDER``, which is used
    here.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    given, arguments = parser.parse_known_args()
    sys.exit(play(main, arguments, given.results))


def play(main: Callable[..., int], arguments: Sequence[str], folder: Path) -> int:
    """Run a benchmark that writes its figures into ``folder``; returns its exit status."""
    _CALL.set(_Call(folder, arguments))
    if inspect.signature(main).parameters:
        return main(arguments)
    if arguments:
        raise SystemExit(f"{arguments[0]}: this benchmark takes no option but --results FOLDER")
    return main()


def report(name: str, results: Sequence[Result]) -> int:
    """Print the figures of benchmark ``name`` and write the figures into the folder of results.

    Figures of other commands stay in the benchmark's file. Returns an exit status: 1 if a figure
    misses its target.
    """
    headings = ("case", "metric", "ours", "baseline", "ours is", "target")
    rows = [headings, *map(_row, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    call = _CALL.get(None) or _Call()
    made = Run(
        shlex.join(["python", "-m", f"benchmarks.{name}", *call.arguments]),
        datetime.now(UTC).date().isoformat(),
        call.load > BUSY_LOAD,
        Machine.this(),
        tuple(results),
    )
    path = call.folder / f"{name}.json"
    kept = read(path).runs if path.exists() else ()
    write(path, [*(run for run in kept if run.command != made.command), made])
    print(f"written to {path}")
    return 0 if all(result.meets_target for result in results) else 1


@dataclass(frozen=True, slots=True)
class Figures:
    """A file of results."""

    runs: tuple[Run, ...]
    about: str = ""
    """A sentence for readers, if the name is not that of a benchmark with a docstring."""


def read(path: Path) -> Figures:
    """Read a file written by :func:`write`."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return Figures(tuple(map(Run.of, document["runs"])), document.get("about", ""))


def write(path: Path, runs: Sequence[Run], about: str = "") -> None:
    """Write a file of results."""
    document = ({"about": about} if about else {}) | {"runs": [run.document() for run in runs]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _row_document(row: Result) -> dict[str, Any]:
    """A row in rounded numbers, with the ratio and the verdict computed from the rounded
    numbers.
    """
    numbers = {key: _number(getattr(row, key)) for key in ("ours", "baseline", "target")}
    rounded = replace(row, **numbers | _nan(numbers))
    met = None if rounded.target is None else rounded.meets_target
    return asdict(row) | numbers | {"ratio": _number(rounded.ratio), "met": met}


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.9g}")


def _nan(row: Mapping[str, Any]) -> dict[str, float]:
    return {"ours": math.nan} if row["ours"] is None else {}


def _row(result: Result) -> tuple[str, ...]:
    target = "-"
    if result.target is not None:
        verdict = "met" if result.meets_target else "MISSED"
        bound = "at most" if result.better == "lower" else "at least"
        target = f"{bound} {result.target:g} {result.unit}: {verdict}"
    return (
        result.case,
        result.metric,
        f"{result.ours:.4g} {result.unit}",
        "-"
        if result.baseline is None
        else f"{result.baseline:.4g} {result.unit} ({result.baseline_name})",
        _comparison(result.ratio),
        target,
    )


def _comparison(ratio: float | None) -> str:
    if not ratio:
        return "-"
    return f"{ratio:.3g} x as good" if ratio >= 1 else f"{1 / ratio:.3g} x as bad"
