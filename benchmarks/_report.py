"""Results of the benchmarks: a table for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks"


@dataclass(frozen=True, slots=True)
class Result:
    """A figure of ours beside the one that it is compared with."""

    case: str
    metric: str
    unit: str
    better: str
    """``lower`` or ``higher``."""
    ours: float
    baseline: float | None
    """None: nothing was measured beside it."""
    baseline_name: str
    target: float | None = None
    """Target that the project sets itself; None: no target."""

    @property
    def meets_target(self) -> bool:
        if self.target is None:
            return True
        return self.ours <= self.target if self.better == "lower" else self.ours >= self.target


def report(name: str, results: Sequence[Result]) -> Path:
    """Print the results and write ``results/benchmarks/NAME.json``; returns its path."""
    headings = ("case", "metric", "ours", "baseline", "ours is", "target")
    rows = [headings, *map(_row, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    print(f"written to {path}")
    return path


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
        _baseline(result),
        _comparison(result),
        target,
    )


def _baseline(result: Result) -> str:
    if result.baseline is None:
        return "-"
    return f"{result.baseline:.4g} {result.unit} ({result.baseline_name})"


def _comparison(result: Result) -> str:
    if result.ours == 0 or not result.baseline:
        return "-"
    factor = result.baseline / result.ours
    if result.better == "higher":
        factor = 1 / factor
    return f"{factor:.3g} x as good" if factor >= 1 else f"{1 / factor:.3g} x as bad"
