"""Bar chart of a benchmark's figures: a bar for each figure, the baseline's below, a tick at the
target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from html import escape
from itertools import groupby
from math import isnan

from benchmarks._report import Result, Run

WIDTH = 1000
_BAR_X, _BAR_WIDTH = 380, 190
_TEXT_X = _BAR_X + _BAR_WIDTH + 12
_ROW, _HEAD = 22, 24
_LABEL, _TOLD = 62, 72
"""Largest number of characters before and after a bar."""
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.run{font:12px monospace}.case{font-weight:bold}"
    ".small{font-size:11px;fill:#555}.ours{fill:#0072b2}.missed{fill:#d55e00}.base{fill:#999}"
    ".target{stroke:#222;stroke-width:2}"
)


def number(value: float) -> str:
    """A figure in at most three significant digits, or all digits before the point."""
    if isnan(value):
        return "none"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def amount(value: float, unit: str) -> str:
    return f"{number(value)} {unit}".rstrip()


def bound(result: Result) -> str:
    """The target, such as ``≤ 100``; ``0`` if no smaller value is possible."""
    if result.target is None:
        return ""
    if not result.target and result.better == "lower":
        return "0"
    return f"{'≤' if result.better == 'lower' else '≥'} {number(result.target)}"


def day(iso: str) -> str:
    """A date in the form ``1 December 2026``."""
    when = date.fromisoformat(iso)
    return f"{when.day} {when:%B %Y}"


def chart(name: str, runs: Sequence[Run]) -> str:
    """SVG of all figures of a benchmark."""
    parts: list[str] = []
    height = 8
    for run in runs:
        busy = ", busy" if run.busy else ""
        machine = f"{run.machine.cores} cores, {run.machine.model}"
        height += _HEAD
        parts.append(_text(12, height - 6, run.command, "run"))
        parts.append(_text(12, height + 10, f"{day(run.date)}{busy}, {machine}", "small"))
        height += 18
        scales = _scales(run.rows)
        for case, group in groupby(run.rows, key=lambda row: row.case):
            rows = list(group)
            alone = len(rows) == 1 and len(case) + len(rows[0].metric) < _LABEL
            if not alone:
                height += _ROW
                parts.append(_text(12, height - 6, case, "case"))
            for row in rows:
                height += _ROW
                label = f"{case}: {row.metric}" if alone else row.metric
                parts.append(_text(12 if alone else 24, height - 6, _cut(label, _LABEL), ""))
                parts += _bars(row, height - 6, scales[row.metric, row.unit])
                if row.note:
                    height += _ROW - 6
                    parts.append(_text(24, height - 6, row.note, "small"))
        height += 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>Figures of {escape(name)}</title><style>{_STYLE}</style>"
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>' + "\n".join(parts) + "</svg>\n"
    )


def _scales(rows: Sequence[Result]) -> dict[tuple[str, str], float]:
    """The value of a full-length bar, by metric and unit."""
    scales: dict[tuple[str, str], float] = {}
    for row in rows:
        values = [row.ours, row.baseline or 0.0, row.target or 0.0]
        largest = max(0.0 if isnan(value) else value for value in values)
        key = row.metric, row.unit
        scales[key] = max(scales.get(key, 0.0), largest)
    return scales


def _bars(row: Result, y: int, whole: float) -> Iterator[str]:
    def length(value: float | None) -> float:
        return round(_BAR_WIDTH * value / whole, 1) if whole and value and value > 0 else 0.0

    kind = "ours" if row.meets_target else "missed"
    yield _bar(y - 10, 8, length(row.ours), kind)
    if row.baseline is not None:
        yield _bar(y - 1, 4, length(row.baseline), "base")
    if row.target is not None:
        x = _BAR_X + length(row.target)
        yield f'<line class="target" x1="{x}" x2="{x}" y1="{y - 13}" y2="{y + 4}"/>'
    parts = [amount(row.ours, row.unit)]
    if row.baseline is not None:
        parts.append(f"{number(row.baseline)}: {row.baseline_name}")
    if row.target is not None:
        parts.append(f"target {bound(row)}{'' if row.meets_target else ', missed'}")
    yield _text(_TEXT_X, y, _cut("; ".join(parts), _TOLD), "")


def _bar(y: int, height: int, length: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{_BAR_X}" y="{y}" width="{max(length, 1.0)}" height="{height}"/>'
    )


def _text(x: int, y: int, words: str, kind: str) -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<text{styled} x="{x}" y="{y}">{escape(words)}</text>'


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"
