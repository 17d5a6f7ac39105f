"""HydRA's Fig. 9(b) as ``make demo`` plays it: an all-to-all transfer, congested and helped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mininet_scenarios import demo, fig9b, plots, published, report
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.fig9b import Fig9bResult
from mininet_scenarios.narrator import Narrator


def _plan(full: bool) -> fig9b.Fig9bPlan:
    return fig9b.FULL if full else fig9b.QUICK


def _measure(setting: Setting, narrator: Narrator) -> Fig9bResult:
    work_dir = setting.work_dir / "stage"
    with demo.stage_of(demo.DEFAULT_CONFIG, fig9b.RATE_SCALE, work_dir, narrator) as stage:
        return fig9b.run(stage, _plan(setting.full), narrator)


def _conclude(runs: Sequence[Fig9bResult]) -> Findings:
    return Findings(tuple(row for run in runs for row in report.rows(None, run)))


def _draw(runs: Sequence[Fig9bResult], directory: Path) -> Sequence[Path]:
    written = []
    for number, run in enumerate(runs, start=1):
        written.append(directory / f"fig9b-{number}.png")
        plots.plot_fig9b(run, written[-1])
    return written


EXPERIMENT: Final = Experiment(
    name="fig9b",
    title="An all-to-all transfer that background traffic slows down",
    source=published.FIG9B_SOURCE,
    topology="configs/demo.yaml at half its rates: four racks of two servers, two optical planes",
    workload="three ranks that exchange data; TCP between two other racks over the same circuit",
    policy="periodic: the controller acts on its own counters",
    measured="completion time alone, congested, and with the controller watching",
    needs_data_plane=True,
    expected_s=lambda full: demo.BUILD_S + _plan(full).expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
