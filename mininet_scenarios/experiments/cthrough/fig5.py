"""c-Through's Fig. 5: TCP over a path whose capacity changes tenfold, up and down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Final

from matplotlib.figure import Figure

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.claims import CLAIMS, judged
from mininet_scenarios.experiments.cthrough import fig5_scenario
from mininet_scenarios.experiments.cthrough.fig5_scenario import BIN_S, REACHED, Fig5Plan, Fig5Run
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREEN, GREY, legend_below
from mininet_scenarios.reporting.table import Row, ranged, spread
from mininet_scenarios.stage import building
from mininet_scenarios.testbed.links import QueueSize
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

_PAPER_MBPS: Final = 1000.0
"""Rate of the circuit, and of all traffic together."""
_QUEUES: Final = QueueSize(fastest_ms=0.0, least_frames=33)
"""Queues like the paper's switches, which keep a frame for 4 to 5 ms at 100 Mb/s (section 5.2.3);
frames do not shrink with the rates.
"""
_CYCLES: Final = (CycleName.AS_PUBLISHED, CycleName.HITLESS, CycleName.UNDIVERTED)
_MOST_SHARE: Final = 1.05
_BUSIER_ALONE: Final = (
    "More than there was to use: the machine was busier while the circuit was measured alone than "
    "afterwards. Repeat with nothing else running."
)
_SCALED: Final = (
    "So many frames take as many times as long as rates are scaled down by, so times are divided "
    "by the scale."
)
_OVERTAKEN: Final = (
    f"{_SCALED} What waits in the electrical port's queue when the circuit comes is overtaken by "
    "what follows, and TCP takes it for lost and slows down until all of it has arrived: at this "
    "scale that can take longer than the paper's time. Undiverted, that queue empties while "
    "frames go into the dark."
)


@dataclass(frozen=True, slots=True)
class ThreeWays:
    """A repetition on one testbed."""

    as_published: Fig5Run
    hitless: Fig5Run
    undiverted: Fig5Run
    scale: Scale

    @property
    def runs(self) -> tuple[tuple[str, Fig5Run], ...]:
        return (
            ("as published", self.as_published),
            ("hydra", self.hitless),
            ("undiverted", self.undiverted),
        )


def _plan(full: bool) -> Fig5Plan:
    return fig5_scenario.FULL if full else fig5_scenario.SHORT


def _measure(setting: Setting, narrator: Narrator) -> ThreeWays:
    plan, scale = _plan(setting.full), setting.rates.scale(_PAPER_MBPS)
    times = building.times_its_rates(scale.mbps(_PAPER_MBPS))
    stage_dir = setting.work_dir / "stage"
    with (
        building.stage_of(DEFAULT_CONFIG, times, stage_dir, narrator, queues=_QUEUES) as stage,
        stage.one_controller(),
    ):
        as_published, hitless, undiverted = (
            fig5_scenario.run(stage, plan, cycle, narrator) for cycle in _CYCLES
        )
    return ThreeWays(as_published, hitless, undiverted, scale)


def _conclude(found: Sequence[ThreeWays]) -> Findings:
    return Findings(tuple(_rows(found)))


def _rows(found: Sequence[ThreeWays]) -> Iterator[Row]:
    yield found[0].scale.row(_PAPER_MBPS, "circuits")
    for ways in zip(*(both.runs for both in found), strict=True):
        yield from _rows_of(ways[0][0], [run for _, run in ways], found[0].scale)


def _rows_of(way: str, runs: Sequence[Fig5Run], scale: Scale) -> Iterator[Row]:
    """Rows of a way; ``runs``: the way's run in each repetition."""
    published = runs[0].cycle == CycleName.AS_PUBLISHED.value
    ratios = [run.optical_mbps / run.electrical_mbps for run in runs]
    optical_mbps = fmean(run.optical_mbps for run in runs)
    electrical_mbps = fmean(run.electrical_mbps for run in runs)
    too_slow = scale.too_slow(optical_mbps, _PAPER_MBPS)
    figure = f"{way}: over the circuit alone, over the electrical network alone"
    ours = f"{optical_mbps:.1f} and {electrical_mbps:.1f} Mb/s: {ranged(ratios, '.1f')}"
    if published:
        yield judged("c-through/capacities", fmean(ratios), figure, ours, too_slow)
    else:
        yield Row(figure, "", ours, why=too_slow)
    for up in (True, False):
        yield _reached(way, runs, up, scale.divisor)
    for up, what in ((True, "came"), (False, "went")):
        silent = [[turn.silent_ms for turn in run.turns if turn.up == up] for run in runs]
        yield Row(
            f"{way}: longest silence at the receiver after the circuit {what}",
            "",
            _median_and_most(silent),
        )
    shares = [run.share for run in runs]
    why = _BUSIER_ALONE if max(shares) > _MOST_SHARE else ""
    yield Row(f"{way}: share of what there was to use", "", ranged(shares, ".1%"), why=why)
    retransmits = sum(run.retransmits for run in runs)
    yield Row(f"{way}: segments retransmitted", "", str(retransmits))
    hitless = runs[0].cycle == CycleName.HITLESS.value
    dark = sum(run.dark_frames for run in runs)
    yield Row(
        f"{way}: frames at dark OCS ports",
        "",
        str(dark),
        target="0" if hitless else "",
        met=dark == 0 if hitless else None,
    )


def _median_and_most(times_ms: Sequence[Sequence[float]]) -> str:
    """Median and greatest time of all changes; with several repetitions, also the range of
    medians.
    """
    together = [time for times in times_ms for time in times]
    medians = [median(times) for times in times_ms if times]
    return f"{median(together):.0f} ms{spread(medians, '.0f')}, {max(together):.0f} at most"


def _reached(way: str, runs: Sequence[Fig5Run], up: bool, slower: int) -> Row:
    """Row of the time until TCP uses the available rate; the paper's times are multiplied by
    ``slower``.

    A change after which TCP never uses the rate counts as endless.
    """
    times = [[turn.reached_ms for turn in run.turns if turn.up == up] for run in runs]
    reached = [[time for time in series if time is not None] for series in times]
    together = [time for series in reached for time in series]
    changes = sum(len(series) for series in times)
    what = "circuit's" if up else "electrical network's"
    key = f"c-through/{'up' if up else 'down'}"
    limit_ms = slower * (CLAIMS[key].band.most or inf)
    middle_ms = median(together) if len(together) == changes else inf
    ours = f"{len(together)} of {changes} times"
    if together:
        ours += f", median {_median_and_most([series for series in reached if series])}"
    figure = f"{way}: until TCP had {REACHED:.0%} of the {what} rate"
    if runs[0].cycle == CycleName.AS_PUBLISHED.value:
        figure += f", ms at the paper's rates (the time here over {slower})"
        return judged(key, middle_ms / slower, figure, ours, _OVERTAKEN if up else _SCALED)
    if runs[0].cycle == CycleName.UNDIVERTED.value:  # not played in the paper
        return Row(figure, "", ours)
    return Row(figure, "", ours, target=f"≤ {limit_ms:g} ms", met=middle_ms <= limit_ms)


def _draw(found: Sequence[ThreeWays], directory: Path) -> Sequence[Path]:
    written = []
    for number, both in enumerate(found, start=1):
        written.append(directory / f"fig5-{number}.png")
        _figure(both).savefig(written[-1])
    return written


def _figure(both: ThreeWays) -> Figure:
    figure = Figure(figsize=(9.0, 9.0), dpi=150, layout="constrained")
    for axes, (way, run) in zip(
        figure.subplots(len(both.runs), 1, sharex=True), both.runs, strict=True
    ):
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
    policy="a circuit on request, and none, by turns; as published, hitless, and undiverted",
    measured=f"frames at the receiver in {BIN_S * 1e3:g} ms, and how soon TCP uses what there is",
    needs_data_plane=True,
    expected_s=lambda full: building.BUILD_S + len(_CYCLES) * _plan(full).expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
