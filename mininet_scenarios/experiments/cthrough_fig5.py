"""c-Through's Fig. 5: TCP over a path whose capacity changes tenfold, up and down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from matplotlib.figure import Figure

from hydra.policy import Transition
from mininet_scenarios import cthrough_fig5, demo
from mininet_scenarios.cthrough_fig5 import BIN_S, REACHED, Fig5Plan, Fig5Run
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.narrator import Narrator
from mininet_scenarios.plots import BLUE, GREEN, GREY
from mininet_scenarios.report import Row
from mininet_scenarios.testbed.links import QueueSize

_PAPER_MBPS: Final = 1000.0
"""Of the circuit; also what is carried in all."""
_PAPER_OPTICAL_MBPS: Final = 940.0
_PAPER_ELECTRICAL_MBPS: Final = 94.0
_PAPER_UP_MS: Final = 5.0
_PAPER_DOWN_MS: Final = 50.0
""""A few tens of milliseconds", at most."""
_QUEUES: Final = QueueSize(fastest_ms=0.0, least_frames=33)
"""The paper's switches keep a frame for 4 to 5 ms at 100 Mb/s (section 5.2.3), and frames do not
shrink with the rates."""
_WHY: Final = (
    "So many frames take as many times as long as rates are scaled down by: the target is the "
    "paper's time at this scale. What waits in the electrical port's queue when the circuit comes "
    "is overtaken by what follows, which TCP takes for losses until all of it has arrived: with "
    "these queues after the paper's time, at this scale. As published, that queue empties while "
    "frames go into the dark."
)


@dataclass(frozen=True, slots=True)
class BothWays:
    """One repetition on one testbed."""

    as_published: Fig5Run
    hitless: Fig5Run
    scale: Scale

    @property
    def runs(self) -> tuple[tuple[str, Fig5Run], ...]:
        return ("as published", self.as_published), ("hydra", self.hitless)


def _plan(full: bool) -> Fig5Plan:
    return cthrough_fig5.FULL if full else cthrough_fig5.SHORT


def _measure(setting: Setting, narrator: Narrator) -> BothWays:
    plan, scale = _plan(setting.full), setting.rates.scale(_PAPER_MBPS)
    times = demo.times_its_rates(scale.mbps(_PAPER_MBPS))
    stage_dir = setting.work_dir / "stage"
    with (
        demo.stage_of(demo.DEFAULT_CONFIG, times, stage_dir, narrator, queues=_QUEUES) as stage,
        stage.one_controller(),
    ):
        published = cthrough_fig5.run(stage, plan, Transition.AS_PUBLISHED, narrator)
        hitless = cthrough_fig5.run(stage, plan, Transition.HITLESS, narrator)
    return BothWays(published, hitless, scale)


def _conclude(found: Sequence[BothWays]) -> Findings:
    return Findings(tuple(row for both in found for row in _rows(both)))


def _rows(both: BothWays) -> Iterator[Row]:
    yield both.scale.row(_PAPER_MBPS, "circuits")
    for way, run in both.runs:
        yield from _rows_of(way, run, both.scale.divisor)


def _rows_of(way: str, run: Fig5Run, slower: int) -> Iterator[Row]:
    ratio = run.optical_mbps / run.electrical_mbps
    paper = _PAPER_OPTICAL_MBPS / _PAPER_ELECTRICAL_MBPS
    yield Row(
        f"{way}: over the circuit alone, over the electrical network alone",
        f"{_PAPER_OPTICAL_MBPS:g} and {_PAPER_ELECTRICAL_MBPS:g} Mb/s: {paper:.1f}",
        f"{run.optical_mbps:.1f} and {run.electrical_mbps:.1f} Mb/s: {ratio:.1f}",
        ratio / paper,
    )
    for up, paper_ms in ((True, _PAPER_UP_MS), (False, _PAPER_DOWN_MS)):
        yield _reached(way, run, up, paper_ms, slower)
    silent = [turn.silent_ms for turn in run.turns if not turn.up]
    yield Row(
        f"{way}: longest silence at the receiver after the circuit went",
        "",
        f"{median(silent):.0f} ms, {max(silent):.0f} at most",
    )
    yield Row(f"{way}: share of what there was to use", "", f"{run.share:.1%}")
    yield Row(f"{way}: segments retransmitted", "", str(run.retransmits))
    published = run.transition == Transition.AS_PUBLISHED.value
    yield Row(
        f"{way}: frames at dark OCS ports",
        "",
        str(run.dark_frames),
        target="" if published else "0",
        met=None if published else run.dark_frames == 0,
    )


def _reached(way: str, run: Fig5Run, up: bool, paper_ms: float, slower: int) -> Row:
    times = [turn.reached_ms for turn in run.turns if turn.up == up]
    reached = [time for time in times if time is not None]
    limit_ms = paper_ms * slower
    what = "circuit's" if up else "electrical network's"
    middle_ms = median(reached) if reached else None
    return Row(
        f"{way}: until TCP had {REACHED:.0%} of the {what} rate",
        f"within {paper_ms:g} ms",
        f"{len(reached)} of {len(times)} times"
        + ("" if middle_ms is None else f", median {middle_ms:.0f} ms"),
        None if middle_ms is None else middle_ms / limit_ms,
        f"≤ {limit_ms:g} ms",
        middle_ms is not None and len(reached) == len(times) and middle_ms <= limit_ms,
        _WHY,
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
    figure.axes[0].legend(fontsize="small")
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
    expected_s=lambda full: demo.BUILD_S + 2 * _plan(full).expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
