"""HydRA's Fig. 9(b): FFTW on MPI, congested, helped by hand and by the controller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Final

from mininet_scenarios.experiments.claims import judged, unjudged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.experiments.hydra_paper import (
    fig9_plots,
    fig9_table,
    fig9b_fft,
    fig9b_scenario,
    published,
)
from mininet_scenarios.experiments.hydra_paper.fig9b_scenario import Fig9bResult, TransferRun
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row, ranged
from mininet_scenarios.stage import building, mpi
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

_PAPER_MBPS: Final = 10_000.0
_BUSIEST_MBPS: Final = 2 * _PAPER_MBPS
"""Traffic of ranks in two racks that fill one circuit both ways, and of the background."""
_BACKGROUND_SHARE: Final = 2.0
"""Rate of the background relative to a circuit's: ranks that exchange two by two leave their
circuit idle for most of the time, and would hardly notice a background with room for the ranks.
"""
_BACKGROUND_STREAMS: Final = 10
"""Streams to each of two servers: TCP leaves a rank about as much of a full circuit as a stream."""
_BACKGROUND: Final = (
    "the paper does not say how much its background sent; ours fills the circuit in one direction, "
    "and the ranks' transform uses the other for half of its traffic"
)
_PEAKS: Final = (
    "the paper does not tell how much its transform computes between sending, nor how much its "
    "background sends; three ranks exchange here, eight there"
)
_EARLIER: Final = (
    "the paper's authors waited for 15 s before they changed the topology; the controller acts at "
    "the end of the epoch in which its counters have shown the demand"
)


@dataclass(frozen=True, slots=True)
class BothWays:
    """A repetition on one testbed."""

    hydra: Fig9bResult
    """Runs alone, congested, and helped by an unprompted controller."""
    as_published: TransferRun
    """Run helped by hand, without divert and drain."""
    scale: Scale

    @property
    def ratio(self) -> float:
        """Completion time as published relative to the time of the ranks alone."""
        return self.hydra.ratio(self.as_published)


def _plan(full: bool) -> fig9b_scenario.Fig9bPlan:
    plan = fig9b_scenario.FULL if full else fig9b_scenario.SHORT
    return replace(plan, background_streams=_BACKGROUND_STREAMS, background_share=_BACKGROUND_SHARE)


def _measure(setting: Setting, narrator: Narrator) -> BothWays:
    scale = setting.rates.scale(_BUSIEST_MBPS)
    times = building.times_its_rates(scale.mbps(_PAPER_MBPS))
    plan = _plan(setting.full).at_rates(times / fig9b_scenario.RATE_SCALE)
    ranks = fig9b_fft.workload(mpi.compile_kernels(setting.work_dir))
    stage_dir = setting.work_dir / "stage"
    with (
        building.stage_of(DEFAULT_CONFIG, times, stage_dir, narrator) as stage,
        stage.one_controller(),
    ):
        hydra = fig9b_scenario.run(stage, plan, narrator, ranks)
        at_s = hydra.alone.seconds * published.FIG9B_TRIGGER_S / published.FIG9B_ALONE_S
        return BothWays(hydra, fig9b_scenario.by_hand(stage, plan, at_s, narrator, ranks), scale)


def _conclude(runs: Sequence[BothWays]) -> Findings:
    return Findings(tuple(_rows(runs)))


def _rows(found: Sequence[BothWays]) -> Iterator[Row]:
    yield found[0].scale.row(_PAPER_MBPS, "circuits")
    ratios = [both.ratio for both in found]
    congested = [both.hydra.ratio(both.hydra.congested) for both in found]
    seconds = [both.hydra.congested.seconds for both in found]
    ours = fig9_table.seconds_and_ratio(seconds, congested)
    yield judged("hydra/congested", fmean(congested), "congested / alone", ours, _BACKGROUND)
    yield from _peak_rows(found)
    yield judged(
        "hydra/by-hand",
        fmean(ratios),
        "as published: congested, changed by hand after 15 s of 28.7 s / alone",
        fig9_table.seconds_and_ratio([both.as_published.seconds for both in found], ratios),
        _BACKGROUND,
    )
    dark = sum(both.as_published.losses.dark_frames for both in found)
    yield Row("as published: frames at dark OCS ports", "", str(dark))
    helped = [both.hydra.ratio(both.hydra.helped) / both.ratio for both in found]
    yield Row(
        "with HydRA / as published, completion time",
        "",
        ranged(helped, ".2f"),
        target="< 1",
        met=fmean(helped) < 1,
        why=_EARLIER,
    )
    yield from map(unjudged, fig9_table.combined([], [both.hydra for both in found]))


def _peak_rows(found: Sequence[BothWays]) -> Iterator[Row]:
    for what in ("alone", "congested"):
        runs = [both.hydra.alone if what == "alone" else both.hydra.congested for both in found]
        peaks = [
            fig9b_scenario.ONE_WAY * run.peak_mbps / both.scale.mbps(_PAPER_MBPS)
            for run, both in zip(runs, found, strict=True)
        ]
        figure = f"{what}: a third of the peak rate of all ranks (one way), share of the circuit"
        yield judged(f"hydra/peak-{what}", fmean(peaks), figure, ranged(peaks, ".1%"), _PEAKS)


def _draw(runs: Sequence[BothWays], directory: Path) -> Sequence[Path]:
    written = []
    for number, run in enumerate(runs, start=1):
        written.append(directory / f"fig9b-{number}.png")
        fig9_plots.plot_fig9b(run.hydra, written[-1], run.as_published)
    return written


EXPERIMENT: Final = Experiment(
    name="fig9b",
    title="FFTW on MPI that background traffic slows down",
    source=published.FIG9B_SOURCE,
    topology="configs/demo.yaml: four racks of two servers, two optical planes",
    workload="FFTW's transform on real MPI, three ranks in two racks, over TCP; iperf3 from one of "
    "them to a third over the same circuit",
    policy="changed by hand as published, without divert and drain; and periodic: the controller "
    "acts on its own counters",
    measured="completion time alone, congested, and helped either way",
    needs_data_plane=True,
    expected_s=lambda full: building.BUILD_S + _plan(full).expected_s + _plan(full).by_hand_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
    needs_mpi=True,
)
