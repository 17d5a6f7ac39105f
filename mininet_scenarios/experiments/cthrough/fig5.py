"""c-Through's Fig. 5: TCP over a path whose capacity changes tenfold, up and down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

from matplotlib.figure import Figure

from hydra.policy import Transition
from mininet_scenarios.experiments.cthrough import fig5_scenario
from mininet_scenarios.experiments.cthrough.fig5_scenario import BIN_S, REACHED, Fig5Plan, Fig5Run
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREEN, GREY, legend_below
from mininet_scenarios.reporting.table import Row, ranged, spread
from mininet_scenarios.stage import building
from mininet_scenarios.testbed.links import QueueSize

_PAPER_MBPS: Final = 1000.0
"""Rate of the circuit, and of all traffic together."""
_PAPER_OPTICAL_MBPS: Final = 940.0
_PAPER_ELECTRICAL_MBPS: Final = 94.0
_PAPER_UP_MS: Final = 5.0
_PAPER_DOWN_MS: Final = 50.0
""""A few tens of milliseconds", at most."""
_QUEUES: Final = QueueSize(fastest_ms=0.0, least_frames=33)
"""Queues like those of the paper's switches, which keep a frame for 4 to 5 ms at 100 Mb/s (section
5.2.3); frames do not shrink with the rates."""
_SCALED: Final = (
    "So many frames take as many times as long as rates are scaled down by: the target is the "
    "paper's time at this scale."
)
_OVERTAKEN: Final = (
    f"{_SCALED} What waits in the electrical port's queue when the circuit comes is overtaken by "
    "what follows, and TCP takes it for lost and slows down until all of it has arrived: at this "
    "scale that can take longer than the paper's time. As published, that queue empties while "
    "frames go into the dark."
)


@dataclass(frozen=True, slots=True)
class BothWays:
    """A repetition on one testbed."""

    as_published: Fig5Run
    hitless: Fig5Run
    scale: Scale

    @property
    def runs(self) -> tuple[tuple[str, Fig5Run], ...]:
        return ("as published", self.as_published), ("hydra", self.hitless)


def _plan(full: bool) -> Fig5Plan:
    return fig5_scenario.FULL if full else fig5_scenario.SHORT


def _measure(setting: Setting, narrator: Narrator) -> BothWays:
    plan, scale = _plan(setting.full), setting.rates.scale(_PAPER_MBPS)
    times = building.times_its_rates(scale.mbps(_PAPER_MBPS))
    stage_dir = setting.work_dir / "stage"
    with (
        building.stage_of(
            building.DEFAULT_CONFIG, times, stage_dir, narrator, queues=_QUEUES
        ) as stage,
        stage.one_controller(),
    ):
        published = fig5_scenario.run(stage, plan, Transition.AS_PUBLISHED, narrator)
        hitless = fig5_scenario.run(stage, plan, Transition.HITLESS, narrator)
    return BothWays(published, hitless, scale)


def _conclude(found: Sequence[BothWays]) -> Findings:
    return Findings(tuple(_rows(found)))


def _rows(found: Sequence[BothWays]) -> Iterator[Row]:
    yield found[0].scale.row(_PAPER_MBPS, "circuits")
    for ways in zip(*(both.runs for both in found), strict=True):
        yield from _rows_of(ways[0][0], [run for _, run in ways], found[0].scale.divisor)


def _rows_of(way: str, runs: Sequence[Fig5Run], slower: int) -> Iterator[Row]:
    """Rows of one way; ``runs`` has one run of each repetition."""
    ratios = [run.optical_mbps / run.electrical_mbps for run in runs]
    optical_mbps = fmean(run.optical_mbps for run in runs)
    electrical_mbps = fmean(run.electrical_mbps for run in runs)
    paper = _PAPER_OPTICAL_MBPS / _PAPER_ELECTRICAL_MBPS
    yield Row(
        f"{way}: over the circuit alone, over the electrical network alone",
        f"{_PAPER_OPTICAL_MBPS:g} and {_PAPER_ELECTRICAL_MBPS:g} Mb/s: {paper:.1f}",
        f"{optical_mbps:.1f} and {electrical_mbps:.1f} Mb/s: {ranged(ratios, '.1f')}",
        fmean(ratios) / paper,
    )
    for up, paper_ms in ((True, _PAPER_UP_MS), (False, _PAPER_DOWN_MS)):
        yield _reached(way, runs, up, paper_ms, slower)
    for up, what in ((True, "came"), (False, "went")):
        silent = [[turn.silent_ms for turn in run.turns if turn.up == up] for run in runs]
        yield Row(
            f"{way}: longest silence at the receiver after the circuit {what}",
            "",
            _median_and_most(silent),
        )
    yield Row(
        f"{way}: share of what there was to use", "", ranged([run.share for run in runs], ".1%")
    )
    retransmits = sum(run.retransmits for run in runs)
    yield Row(f"{way}: segments retransmitted", "", str(retransmits))
    published = runs[0].transition == Transition.AS_PUBLISHED.value
    dark = sum(run.dark_frames for run in runs)
    yield Row(
        f"{way}: frames at dark OCS ports",
        "",
        str(dark),
        target="" if published else "0",
        met=None if published else dark == 0,
    )


def _median_and_most(times_ms: Sequence[Sequence[float]]) -> str:
    """Median and greatest time of all changes; with several repetitions, their medians' range."""
    together = [time for times in times_ms for time in times]
    medians = [median(times) for times in times_ms if times]
    return f"{median(together):.0f} ms{spread(medians, '.0f')}, {max(together):.0f} at most"


def _reached(way: str, runs: Sequence[Fig5Run], up: bool, paper_ms: float, slower: int) -> Row:
    times = [[turn.reached_ms for turn in run.turns if turn.up == up] for run in runs]
    reached = [[time for time in one if time is not None] for one in times]
    together = [time for one in reached for time in one]
    changes = sum(len(one) for one in times)
    limit_ms = paper_ms * slower
    what = "circuit's" if up else "electrical network's"
    middle_ms = median(together) if together else None
    ours = f"{len(together)} of {changes} times"
    if together:
        ours += f", median {_median_and_most([one for one in reached if one])}"
    return Row(
        f"{way}: until TCP had {REACHED:.0%} of the {what} rate",
        f"within {paper_ms:g} ms; {limit_ms:g} ms at this scale",
        ours,
        None if middle_ms is None else middle_ms / limit_ms,
        f"≤ {limit_ms:g} ms",
        middle_ms is not None and len(together) == changes and middle_ms <= limit_ms,
        _OVERTAKEN if up else _SCALED,
    )


def _draw(found: Sequence[BothWays], directory: Path) -> Sequence[Path]:
    written = []
    for number, both in enumerate(found, start=1):
        written.append(directory / f"fig5-{number}.png")
        _figure(both).savefig(written[-1])
    return written


def _figure(both: BothWays) -> Figure:
    figure = Figure(figsize=(9.0, 6.0), dpi=150, layout="constrained")
    for axes, (way, run) in zip(figure.subplots(2, 1, sharex=True), both.runs, strict=True):
        times = [(number + 0.5) * BIN_S for number in range(len(run.mbps))]
        axes.plot(times, run.mbps, color=BLUE, linewidth=1, label="received")
        axes.axhline(run.optical_mbps, color=GREEN, linestyle="--", label="circuit alone")
        axes.axhline(run.electrical_mbps, color=GREY, linestyle="--", label="electrical alone")
        for turn in run.turns:
            axes.axvline(turn.at_s, color=GREY, linestyle=":", linewidth=0.8)
        axes.set_title(way)
        axes.set_ylabel("[Mb/s]")
    legend_below(figure, figure.axes[0])
    figure.axes[-1].set_xlabel("time [s]")
    return figure


EXPERIMENT: Final = Experiment(
    name="cthrough-fig5",
    title="TCP while its circuit comes and goes",
    source="Wang et al., c-Through, SIGCOMM 2010, section 5.2.1, Fig. 5",
    topology="configs/demo.yaml: the electrical network has a tenth of a circuit's rate",
    workload="iperf3 between two racks, TCP CUBIC",
    policy="a circuit on request, and none, by turns; as published, and hitless",
    measured=f"frames at the receiver in {BIN_S * 1e3:g} ms, and how soon TCP uses what there is",
    needs_data_plane=True,
    expected_s=lambda full: building.BUILD_S + 2 * _plan(full).expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
