"""HydRA's Fig. 9(a) as ``make demo`` plays it: TCP while the topology changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mininet_scenarios import demo, fig9a, plots, published, report
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.fig9a import Fig9aResult
from mininet_scenarios.narrator import Narrator


def _plan(full: bool) -> fig9a.Fig9aPlan:
    return fig9a.FULL if full else fig9a.QUICK


def _measure(setting: Setting, narrator: Narrator) -> Fig9aResult:
    with demo.stage_of(demo.DEFAULT_CONFIG, 1.0, setting.work_dir / "stage", narrator) as stage:
        return fig9a.run(stage, _plan(setting.full), narrator)


def _conclude(runs: Sequence[Fig9aResult]) -> Findings:
    return Findings(tuple(row for run in runs for row in report.rows(run, None)))


def _draw(runs: Sequence[Fig9aResult], directory: Path) -> Sequence[Path]:
    written = []
    for number, run in enumerate(runs, start=1):
        written += [directory / f"fig9a-{number}.png", directory / f"delay-{number}.png"]
        plots.plot_fig9a(run, written[-2])
        plots.plot_delays(run.changing, written[-1])
    return written


EXPERIMENT: Final = Experiment(
    name="fig9a",
    title="TCP between two racks while the topology changes",
    source=published.FIG9A_SOURCE,
    topology="configs/demo.yaml: four racks of two servers, two optical planes",
    workload="iperf3 between two racks; datagrams between others",
    policy="a change every 10 s, with 100 and 5000 rules, hitless",
    measured="throughput, reconfiguration delay by substep, loss",
    needs_data_plane=True,
    expected_s=lambda full: demo.BUILD_S + _plan(full).expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
