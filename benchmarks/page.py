"""Write docs/benchmarks.md and its pictures from the committed figures.

``python -m benchmarks.page [--results FOLDER]``. FOLDER holds the figures, by default
``docs/results/benchmarks``; the page lies next to ``docs/results``. A benchmark's section is the
first paragraph of its docstring and a picture of all of its figures. To commit new figures, run
``python -m benchmarks.NAME --results docs/results/benchmarks``, then this command.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks._chart import amount, bound, chart, number
from benchmarks._report import Figures, Result, read

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "results" / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Changes of circuits": (
        "demo", "make_before_break", "reconfigurations", "control_plane", "stages", "stages_live",
        "retag", "rule_encoding", "whole_tables", "cross_connects", "netconf",
    ),
    "Planning": (
        "optimum", "multihop", "matchings", "schedules", "makespan", "topology", "planner",
    ),
    "Demand and sharing": (
        "demand", "demand_live", "demand_slots", "prediction", "reaction", "stability", "sharing",
        "tournament", "both_networks", "slotted", "output_scheduling",
    ),
    "Servers and reservations": (
        "agent", "reserved", "meter_changes", "policing", "source_check", "jobs", "ring",
        "calendars",
    ),
    "The controller at work": (
        "whole_fabric", "workers", "rest", "undisturbed", "dashboard", "statistics", "sweep",
        "processor", "probing", "openflow_packages", "soak",
    ),
    "Faults": (
        "detection", "protection", "recovery", "kills", "replicas", "chaos", "simulation",
        "fuzz_api", "fuzz_openflow", "fuzz_files", "fuzz_codecs", "incidents",
    ),
}  # fmt: skip
"""Benchmarks by subject, in the page's order."""
WITHOUT_FIGURES: Mapping[str, str] = {
    "page": "writes the page",
    "screenshots": "makes pictures of the dashboard",
}
"""Modules of this package without figures, and the reason."""
_INTRODUCTION = """\
# Figures

`python -m benchmarks.page` makes this page from the files of `docs/results/benchmarks/`, to which
pictures link. `python -m benchmarks.NAME` repeats a benchmark (often as root; its
docstring has the options); `make bench` runs all but long benchmarks. *Busy*: other work ran
beside; compare with the baseline, not with a clock.

## Summary

Of each benchmark the figure that is nearest to its target or farthest beyond. *Times*: how many
times as good as what it is held against. *Met*: targets met, of all.

| benchmark | figure | HydRA | held against | times | target | met |
|---|---|---|---|---|---|---|
"""


def page(folder: Path) -> str:
    """The page, in Markdown."""
    figures = {name: read(folder / f"{name}.json") for name in _names()}
    summary = "".join(_summary(name, figures[name]) for name in _names())
    sections = "\n".join(
        f"## {title}\n\n" + "\n".join(_section(name, figures[name]) for name in names)
        for title, names in SECTIONS.items()
    )
    return f"{_INTRODUCTION}{summary}\n{sections}"


def pictures(folder: Path) -> Iterator[tuple[Path, str]]:
    """(path, SVG) of each benchmark."""
    for name in _names():
        yield folder / f"{name}.svg", chart(name, read(folder / f"{name}.json").runs)


def _names() -> list[str]:
    return [name for names in SECTIONS.values() for name in names]


def _rows(figures: Figures) -> list[Result]:
    return [row for run in figures.runs for row in run.rows]


def _summary(name: str, figures: Figures) -> str:
    rows = _rows(figures)
    targets = [row for row in rows if row.target is not None]
    held = [row for row in rows if row.baseline]
    shown = max(targets, key=_strain) if targets else (held or rows)[0]
    against = "–"
    if shown.baseline is not None:
        against = f"{number(shown.baseline)}: {shown.baseline_name}"
    met = sum(row.meets_target for row in targets)
    cells = (
        f"[{name}](#{name})",
        f"{shown.case}: {shown.metric}",
        amount(shown.ours, shown.unit),
        against,
        "–" if shown.ratio is None else f"{number(shown.ratio)}×",
        (bound(shown) or "–") + ("" if shown.meets_target else ", missed"),
        f"{met}/{len(targets)}" if targets else "–",
    )
    return f"| {' | '.join(cells)} |\n"


def _strain(row: Result) -> float:
    """Ratio of a figure to its target: beyond 1, the target is missed."""
    if row.target is None or math.isnan(row.ours):
        return math.inf
    if not row.target or not row.ours:
        return 0.0 if row.meets_target else math.inf
    return row.ours / row.target if row.better == "lower" else row.target / row.ours


def _section(name: str, figures: Figures) -> str:
    about = figures.about or _docstring(name)
    return (
        f"### {name}\n\n{about}\n\n[![{name}](results/benchmarks/{name}.svg)]"
        f"(results/benchmarks/{name}.json)\n"
    )


def _docstring(name: str) -> str:
    """First paragraph of a benchmark's docstring, in Markdown."""
    source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    first = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0].replace("\n", " ")
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", first.replace("``", "`"))


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page")
    parser.add_argument("--results", type=Path, default=DATA, metavar="FOLDER")
    folder = parser.parse_args(argv).results
    if missing := [name for name in _names() if not (folder / f"{name}.json").is_file()]:
        parser.error(f"{folder}: no figures of {', '.join(missing)}; run these benchmarks")
    made = folder.parents[1] / PAGE.name
    made.write_text(page(folder), encoding="utf-8")
    for path, picture in pictures(folder):
        path.write_text(picture, encoding="utf-8")
    print(f"written to {made}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
