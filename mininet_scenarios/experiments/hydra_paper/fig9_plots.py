"""HydRA's Fig. 9: plots in the paper's manner, and the reconfiguration delay by substep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mininet_scenarios.experiments.hydra_paper.fig9a_scenario import Fig9aResult, TcpRun
from mininet_scenarios.experiments.hydra_paper.fig9b_scenario import Fig9bResult, TransferRun
from mininet_scenarios.reporting.plots import BLUE, GREEN, GREY, PURPLE, VERMILION, legend_below
from mininet_scenarios.stage.delays import SUBSTEPS
from mininet_scenarios.workloads.iperf3 import Sample

_SIZE_INCHES: Final = (8.0, 4.5)
_DPI: Final = 150
_SECONDS: Final = "time [s]"
_MBPS: Final = "throughput [Mb/s]"


def plot_fig9a(
    result: Fig9aResult, path: Path, way: str = "", made_first: Fig9aResult | None = None
) -> None:
    """Throughput over time: static, and with a changing topology for each number of rules.

    ``way``: the cycle, for the title, if there are several. ``made_first``: the same scenario with
    make-before-break changes.
    """
    title = "TCP between two racks while the topology changes" + (f", {way}" if way else "")
    figure, axes = _axes(title, _SECONDS, _MBPS)
    static = f"static ({result.static.average_mbps:.1f} Mb/s)"
    _draw(axes, result.static.throughput.samples, static, BLUE, "-")
    for run, colour, style in zip(result.changing, (VERMILION, GREEN), ("--", "-"), strict=False):
        label = f"{run.rules} rules ({run.average_mbps:.1f} Mb/s)"
        if made_first is not None:
            label = f"HydRA's order, {label}"
        _draw(axes, run.throughput.samples, label, colour, style)
    if made_first is not None:
        run = made_first.changing[-1]
        label = f"in the light, {run.rules} rules ({run.average_mbps:.1f} Mb/s)"
        _draw(axes, run.throughput.samples, label, PURPLE, "-")
    _mark_changes(axes, result.changing)
    _save(figure, axes, path)


def plot_fig9b(result: Fig9bResult, path: Path, by_hand: TransferRun | None = None) -> None:
    """Transfer of the parallel program over time, in the three runs or four."""
    figure, axes = _axes("A parallel program in two racks, congested and helped", _SECONDS, _MBPS)
    runs: tuple[tuple[TransferRun, str, str], ...] = (
        (result.alone, BLUE, "-"),
        (result.congested, VERMILION, "--"),
        (result.helped, GREEN, "-"),
    )
    for run, colour, style in runs:
        _draw(axes, run.series, f"{run.label} ({run.seconds:.1f} s)", colour, style)
    if by_hand is not None:
        label = f"{by_hand.label}, by hand ({by_hand.seconds:.1f} s)"
        _draw(axes, by_hand.series, label, GREY, "-.")
        _mark_action(axes, by_hand, GREY, "topology changed by hand")
    _mark_action(axes, result.helped, GREEN, "controller changes the topology")
    _save(figure, axes, path)


def plot_delays(runs: Sequence[TcpRun], path: Path) -> None:
    """Mean duration of each substep; retag, push and mirrors run in parallel."""
    figure, axes = _axes(
        "Reconfiguration delay by substep (retag, push and mirrors in parallel)",
        "substep",
        "duration [ms]",
    )
    delays = [(run.rules, run.mean_delay) for run in runs if run.mean_delay is not None]
    width = 0.8 / max(1, len(delays))
    names = (*SUBSTEPS, "delay")
    for index, (rules, delay) in enumerate(delays):
        heights = [delay.substep(name) for name in names]
        positions = [place + (index - (len(delays) - 1) / 2) * width for place in range(len(names))]
        hatch = "//" if index % 2 else None
        colour = (VERMILION, GREEN, BLUE)[index % 3]
        label = f"{rules} rules ({delay.delay_ms:.0f} ms)"
        bars = axes.bar(positions, heights, width, label=label, color=colour, hatch=hatch)
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    labels = [*SUBSTEPS, "delay\n(no drain)"]
    axes.set_xticks(range(len(names)), labels)
    _save(figure, axes, path)


def _axes(title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    # Figure instead of pyplot, which would leave global state behind.
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(visible=True, axis="y", alpha=0.3)
    return figure, axes


def _draw(axes: Axes, samples: Sequence[Sample], label: str, colour: str, style: str) -> None:
    usual_s = samples[0].end_s - samples[0].start_s
    # A run's last interval is often a sliver, too short to have an average.
    whole = [sample for sample in samples if sample.end_s - sample.start_s > usual_s / 2]
    middles = [(sample.start_s + sample.end_s) / 2 for sample in whole]
    mbps = [sample.mbps for sample in whole]
    axes.plot(middles, mbps, label=label, color=colour, linestyle=style, linewidth=1.5)


def _mark_changes(axes: Axes, runs: Sequence[TcpRun]) -> None:
    times_s = sorted({change.at_s for run in runs for change in run.changes})
    for number, at_s in enumerate(times_s):
        label = "topology changed" if number == 0 else None
        axes.axvline(at_s, color=GREY, linestyle=":", linewidth=1, label=label)


def _mark_action(axes: Axes, run: TransferRun, colour: str, label: str) -> None:
    """Mark the time at which the topology was changed in a run, in its curve's colour."""
    if run.acted_at_s is not None:
        axes.axvline(run.acted_at_s, color=colour, linestyle=":", label=label)


def _save(figure: Figure, axes: Axes, path: Path) -> None:
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    figure.savefig(path)
