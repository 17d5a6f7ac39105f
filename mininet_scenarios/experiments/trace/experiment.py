"""A trace's windows on the data plane: times of the coflows, with circuits and without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from apps.traces.reading import summarise
from apps.traces.synthetic import SAMPLE
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.experiments.trace import scenario
from mininet_scenarios.experiments.trace.scenario import (
    CIRCUIT_MBPS,
    DEMO_RACK_MBPS,
    DEMO_RACKS,
    STAGES,
    Excerpt,
    Network,
    Run,
    Way,
)
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREEN, GREY, VERMILION, legend_below
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage import building
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

FULL_WINDOW_S: Final = 10.0
SHORT_WINDOW_S: Final = 3.0
_BUSY_SHARE: Final = 0.5
"""Share of all circuits at the busiest moment: not all racks send, or receive, at full rate."""
_CONTROLLER_S: Final = 4.0
_NO_LATER: Final = 1.05
_WHY_BISECTION: Final = (
    "A circuit comes after the controller has seen its traffic for a moment, and a rack has few."
)


@dataclass(frozen=True, slots=True)
class Replay:
    """A repetition: a window in every way."""

    trace: str
    """Name of the trace's file."""
    scale: Scale
    played: Excerpt
    runs: tuple[Run, ...]
    fabric: str = "demo"
    racks: int = DEMO_RACKS
    rack_mbps: float = DEMO_RACK_MBPS
    """Rate of a rack's circuits, before scaling."""

    def run(self, way: Way) -> Run:
        return next(run for run in self.runs if run.way == way.value)


def _window_s(full: bool) -> float:
    return FULL_WINDOW_S if full else SHORT_WINDOW_S


def _measure(setting: Setting, narrator: Narrator) -> Replay:
    trace = setting.trace or SAMPLE
    network = scenario.network_of(setting.fabric or DEFAULT_CONFIG)
    many = len(network.racks)
    played = scenario.excerpt(trace, network.racks, _window_s(setting.full), setting.seed)
    scale = setting.rates.scale(_BUSY_SHARE * many * network.rack_mbps)
    if (racks := len(summarise(trace).racks)) > many:
        narrator.say(f"{trace.name} has {racks} racks, the network {many}: racks are folded")
    runs = measure(setting.work_dir, played, network, 1 / scale.divisor, narrator)
    return Replay(trace.name, scale, played, runs, network.name, many, network.rack_mbps)


def measure(
    work_dir: Path,
    played: Excerpt,
    network: Network,
    rate: float,
    narrator: Narrator,
    stages: Sequence[Sequence[Way]] = STAGES,
) -> tuple[Run, ...]:
    """Play a window in each way; ``rate`` is the factor of the network's rates."""
    runs: list[Run] = []
    for number, ways in enumerate(stages):
        config = scenario.network(ways[0], network, rate)
        with (
            building.stage_with(config, work_dir / f"stage-{number}", narrator) as stage,
            stage.one_controller(),
        ):
            runs += [scenario.run(stage, played, network, way, rate, narrator) for way in ways]
    return tuple(runs)


# --- conclusions ------------------------------------------------------------------------------


def _coflow_s(found: Sequence[Replay], way: Way) -> float:
    """Mean time of all coflows of all repetitions."""
    return fmean(seconds for replay in found for seconds in replay.run(way).coflows_s())


def _last_s(found: Sequence[Replay], way: Way) -> float:
    return fmean(replay.run(way).last_s for replay in found)


def _conclude(found: Sequence[Replay]) -> Findings:
    rows = [found[0].scale.row(CIRCUIT_MBPS, "circuits")]
    for way in (Way.AS_PUBLISHED, Way.HITLESS):
        rows += _rows(found, way)
    dark = sum(replay.run(Way.HITLESS).dark_frames for replay in found)
    rows.append(Row("hydra: frames at dark OCS ports", "", str(dark), target="0", met=dark == 0))
    return Findings(tuple(rows), (_windows_table(found), _ways_table(found)))


def _rows(found: Sequence[Replay], way: Way) -> Iterator[Row]:
    alone_s, ours_s = _coflow_s(found, Way.ELECTRICAL), _coflow_s(found, way)
    yield Row(
        f"{way.value}: mean time of a coflow, electrical network alone over it",
        "",
        f"{alone_s / ours_s:.2f}",
        target="> 1",
        met=alone_s > ours_s,
    )
    bisection_s = _coflow_s(found, Way.FULL_BISECTION)
    yield Row(
        f"{way.value}: mean time of a coflow, over full bisection's",
        "",
        f"{ours_s / bisection_s:.2f}",
        why=_WHY_BISECTION,
    )
    limit_s = _NO_LATER * _last_s(found, Way.ELECTRICAL)
    last_s = _last_s(found, way)
    yield Row(
        f"{way.value}: until everything has arrived",
        "",
        f"{last_s:.1f} s",
        target=f"≤ {limit_s:.1f} s",
        met=last_s <= limit_s,
    )


def _windows_table(found: Sequence[Replay]) -> Table:
    return Table(
        f"Windows of {found[0].trace}, on {found[0].racks} racks of {found[0].fabric}",
        ("window", "from s", "length s", "coflows", "transfers", "sizes ×", "busiest rack Mb/s"),
        tuple(
            (
                f"{played.number}",
                f"{played.start_s:g}",
                f"{played.length_s:g}",
                f"{played.coflows}",
                f"{len(played.flows)}",
                f"{scenario.size_factor(played, rack_mbps):.3g}",
                f"{played.busiest_rack_mbps:.1f}",
            )
            for played, rack_mbps in ((replay.played, replay.rack_mbps) for replay in found)
        ),
    )


def _ways_table(found: Sequence[Replay]) -> Table:
    rows = []
    for way in Way:
        runs = [replay.run(way) for replay in found]
        coflows_s = [seconds for run in runs for seconds in run.coflows_s()]
        rows.append(
            (
                way.value,
                f"{fmean(coflows_s):.2f}",
                f"{np.percentile(coflows_s, 50):.2f}",
                f"{np.percentile(coflows_s, 95):.2f}",
                f"{fmean(run.last_s for run in runs):.1f}",
                f"{fmean(run.on_circuits_share for run in runs):.2f}",
                f"{fmean(run.changes for run in runs):.1f}",
                f"{fmean(run.dark_frames for run in runs):.0f}",
            )
        )
    return Table(
        "Times of coflows in s, and until everything has arrived",
        ("", "mean", "median", "95 %", "all", "on circuits / received", "changes", "dark frames"),
        tuple(rows),
    )


def _draw(found: Sequence[Replay], directory: Path) -> Sequence[Path]:
    """Plot of the share of finished coflows, by time."""
    figure = Figure(figsize=(8.0, 4.5), dpi=150, layout="constrained")
    axes = figure.subplots()
    styles = ((GREY, "-"), (VERMILION, "--"), (BLUE, "-"), (GREEN, ":"))
    for way, (colour, style) in zip(Way, styles, strict=True):
        seconds = sorted(
            duration_s for replay in found for duration_s in replay.run(way).coflows_s()
        )
        share = np.arange(1, len(seconds) + 1) / len(seconds)
        axes.step(seconds, 100 * share, style, where="post", color=colour, label=way.value)
    axes.set_xscale("log")
    axes.set_xlabel("time of a coflow [s]")
    axes.set_ylabel("coflows that are over [%]")
    axes.set_ylim(0, 100)
    axes.grid(alpha=0.3)
    legend_below(figure, axes, len(styles))
    written = directory / "coflows.png"
    figure.savefig(written)
    return [written]


def _expected_s(full: bool) -> float:
    window_s = _window_s(full)
    return sum(
        building.BUILD_S + _CONTROLLER_S + sum(scenario.expected_s(way, window_s) for way in ways)
        for ways in STAGES
    )


EXPERIMENT: Final = Experiment(
    name="trace",
    title="Coflows of a trace, with circuits and without",
    source="this project's own; coflows as in coflow-benchmark (Chowdhury et al., SIGCOMM 2014)",
    topology="configs/demo.yaml: four racks, two circuits of a rack, an electrical network of a "
    "tenth of what both carry; or a fabric of yours; and full bisection, by packets",
    workload=f"{FULL_WINDOW_S:g} s (short: {SHORT_WINDOW_S:g} s) of a trace, by default "
    "the sample: TCP transfers at its times, sizes such that the busiest rack needs "
    f"{scenario.BUSIEST_SHARE:.0%} of its circuits; repetition N plays the N-th busiest window",
    policy=f"periodic, hydra-bfs+ every {scenario.EPOCH_S:g} s from counters alone; as "
    "published, and hitless",
    measured="time from the start of a coflow until its last flow has arrived",
    needs_data_plane=True,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
    takes_trace=True,
    takes_fabric=scenario.network_of,
)
