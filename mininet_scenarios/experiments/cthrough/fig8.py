"""c-Through's Fig. 7 and 8: Hadoop's sort, by buffer size, interval and oversubscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from matplotlib.figure import Figure

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.cthrough import cases as cthrough_cases
from mininet_scenarios.experiments.cthrough import fig8_scenario
from mininet_scenarios.experiments.cthrough.cases import (
    FULL_BISECTION,
    SMALL_MB,
    USUAL_MB,
    USUAL_S,
    WAYS,
    WORST,
    Repetition,
    Seconds,
    helped,
    packets_alone,
    ratio_row,
    seconds_row,
)
from mininet_scenarios.experiments.cthrough.fig8_scenario import COPY, OUTPUT, READ, SHUFFLE
from mininet_scenarios.experiments.cthrough.scenario import Case, Scale
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREEN, GREY, VERMILION, legend_below
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage.transfers import Transferred

FULL_PART: Final = 1.0
SHORT_PART: Final = 1 / 24
BUFFERS_MB: Final = (SMALL_MB, 50.0, USUAL_MB, 300.0)
INTERVALS_S: Final = (0.5, USUAL_S, 2.0, 5.0)
SERVERS: Final = 2
"""Servers in each rack, for the paper's four: Hadoop has no more than five transfers to a reducer
at once, and as many TCP connections here would leave each less than a frame in a round trip."""
_BUSIEST_MBPS: Final = 1.5 * fig8_scenario.PAPER_BYTES * 8e-6 / fig8_scenario.PAPER_WRITE_S
"""Traffic while disks write: a copy of the output goes to another rack, and a copy stays, half of
the work. Data waiting for a circuit fill the circuit for a tenth of a second after its start; there
may be two circuits.
"""
_WHY: Final = (
    "The paper prints its times in plots alone, and does not say what its disks did. Here each "
    f"server's moves {fig8_scenario.PAPER_DISKS_S:.0f} s worth of data, at an assumed 50 MB/s, of "
    "which the network has to keep up with what leaves the rack. Hadoop's own work is not played."
)
_SHORT: Final = (
    "Of half a second, a change and TCP's time-outs after it take more than they would at the "
    "paper's rates: neither shrinks with these."
)
_KINDS: Final = {
    READ: "the last block read from afar",
    SHUFFLE: "the shuffle over",
    OUTPUT: "the output's copies written",
}

Sorts = Repetition[tuple[Transferred, ...]]


def full_cases() -> list[Case]:
    """Cases of both panels of Fig. 7."""
    return cthrough_cases.both_panels(BUFFERS_MB, INTERVALS_S)


def short_cases() -> list[Case]:
    return [
        packets_alone(WORST),
        helped(WORST, USUAL_MB, USUAL_S, CycleName.AS_PUBLISHED),
        helped(WORST, USUAL_MB, USUAL_S, CycleName.HITLESS),
    ]


def _plan(full: bool) -> tuple[float, list[Case]]:
    return (FULL_PART, full_cases()) if full else (SHORT_PART, short_cases())


def _measure(setting: Setting, narrator: Narrator) -> Sorts:
    part, cases = _plan(setting.full)
    divisor = setting.rates.scale(_BUSIEST_MBPS).divisor
    return measure(setting.work_dir, Scale(1 / divisor, part), cases, narrator)


def measure(work_dir: Path, scale: Scale, cases: Sequence[Case], narrator: Narrator) -> Sorts:
    return cthrough_cases.measure(
        work_dir,
        scale,
        cases,
        narrator,
        lambda stage, case: fig8_scenario.run(stage, case, scale, narrator),
        SERVERS,
    )


# --- conclusions ------------------------------------------------------------------------------


def _conclude(found: Sequence[Sorts]) -> Findings:
    of = cthrough_cases.seconds_of(found)
    rows = list(cthrough_cases.scale_rows(found[0].scale))
    whole = all(sorts.scale.part == 1 for sorts in found)
    for cycle, name in WAYS:
        rows += _near_rows(of, cycle, name, whole)
        rows += _interval_rows(of, cycle, name)
        rows += _buffer_rows(of, cycle, name)
        rows += _step_rows(found, cycle, name, whole)
    rows += cthrough_cases.gap_rows(of, USUAL_MB, "sort")
    rows.append(cthrough_cases.dark_row(found))
    return Findings(tuple(rows), (cthrough_cases.table(found),))


def _near_rows(of: Seconds, cycle: CycleName, name: str, whole: bool) -> Iterator[Row]:
    """Rows. ``whole``: all of the paper's data; in a part, the last flows weigh too much."""
    usual = of(helped(WORST, USUAL_MB, USUAL_S, cycle))
    full, alone = of(FULL_BISECTION), of(packets_alone(WORST))
    figure = f"{name}: {WORST}, buffers of {USUAL_MB:g} MB, an interval of {USUAL_S:g} s"
    if usual is not None and alone is not None:
        target = f"less than electrical alone, {alone:.0f} s"
        yield seconds_row(figure, usual, target, alone, _WHY)
    if usual is not None and full is not None:
        what = f"buffers of {USUAL_MB:g} MB, an interval of {USUAL_S:g} s, over full bisection"
        yield ratio_row("sort near", name, usual / full, what, _WHY, whole=whole)


def _interval_rows(of: Seconds, cycle: CycleName, name: str) -> Iterator[Row]:
    shortest_s, *_, longest_s = INTERVALS_S
    longest = of(helped(WORST, USUAL_MB, longest_s, cycle))
    for interval_s in (shortest_s, USUAL_S):
        seconds = of(helped(WORST, USUAL_MB, interval_s, cycle))
        if seconds is not None and longest is not None:
            what = f"an interval of {longest_s:g} s, over one of {interval_s:g} s"
            key = f"sort {interval_s:g} s"
            why = "" if interval_s == USUAL_S else _SHORT
            yield ratio_row(key, name, longest / seconds, what, why)


def _buffer_rows(of: Seconds, cycle: CycleName, name: str) -> Iterator[Row]:
    _, enough_mb, *_, most_mb = BUFFERS_MB
    enough = of(helped(WORST, enough_mb, USUAL_S, cycle))
    most = of(helped(WORST, most_mb, USUAL_S, cycle))
    if enough is not None and most is not None:
        what = f"buffers of {most_mb:g} MB, over {enough_mb:g} MB"
        yield ratio_row("sort buffers", name, most / enough, what)


def _step_rows(found: Sequence[Sorts], cycle: CycleName, name: str, whole: bool) -> Iterator[Row]:
    """Rows of Fig. 8: steps with long tails in the electrical network. ``whole`` as above."""
    for kind, what in _KINDS.items():
        alone = _ended_s(found, packets_alone(WORST), kind)
        with_circuits = _ended_s(found, helped(WORST, USUAL_MB, USUAL_S, cycle), kind)
        if alone is not None and with_circuits is not None:
            after = f"{what} over packets' {alone:.0f} s"
            yield ratio_row(f"sort {kind}", name, with_circuits / alone, after, whole=whole)


def _ended_s(found: Sequence[Sorts], case: Case, kind: str) -> float | None:
    """End of the last transfer of a kind, scaled to all of the paper's data."""
    runs = [(sorts.find(case), sorts.scale.part) for sorts in found]
    ends = [
        fig8_scenario.ended_s([sorts for sorts in run.done if sorts.kind == kind]) / part
        for run, part in runs
        if run is not None
    ]
    return fmean(ends) if ends else None


def _draw(found: Sequence[Sorts], directory: Path) -> Sequence[Path]:
    panels, timeline = directory / "fig7.png", directory / "fig8.png"
    cthrough_cases.draw_panels(found, BUFFERS_MB, INTERVALS_S, panels)
    _timeline(found[0]).savefig(timeline)
    return [panels, timeline]


def _timeline(sorts: Sorts) -> Figure:
    """Plot of the finished share of each step's transfers, by time."""
    figure = Figure(figsize=(9.0, 7.0), dpi=150, layout="constrained")
    curves = (
        (packets_alone(WORST), "packets alone", GREY),
        (helped(WORST, USUAL_MB, USUAL_S, CycleName.AS_PUBLISHED), "as published", VERMILION),
        (helped(WORST, USUAL_MB, USUAL_S, CycleName.HITLESS), "hydra", GREEN),
        (FULL_BISECTION, "full bisection", BLUE),
    )
    steps = (("read from afar", {READ}), ("shuffle", {SHUFFLE}), ("output", {OUTPUT, COPY}))
    for axes, (title, kinds) in zip(figure.subplots(3, 1, sharex=True), steps, strict=True):
        for case, label, colour in curves:
            if (run := sorts.find(case)) is not None:
                ends = sorted(
                    each.finished_s / sorts.scale.part for each in run.done if each.kind in kinds
                )
                shares = [100 * (number + 1) / len(ends) for number in range(len(ends))]
                axes.step(ends, shares, where="post", color=colour, label=label)
        axes.set_title(f"{title}, {WORST}")
        axes.set_ylabel("transfers over [%]")
    legend_below(figure, figure.axes[0], len(curves))
    figure.axes[-1].set_xlabel("time [s]")
    return figure


def _expected_s(full: bool) -> float:
    part, cases = _plan(full)
    scale = Scale(1.0, part)  # times are not scaled
    return cthrough_cases.expected_s(cases, lambda case: fig8_scenario.expected_s(case, scale))


EXPERIMENT: Final = Experiment(
    name="cthrough-fig8",
    title="Hadoop sorts, and keeps three copies",
    source="Wang et al., c-Through, SIGCOMM 2010, section 6.2, Fig. 7 and 8",
    topology=f"configs/cthrough.yaml: four racks of {SERVERS} servers, each for two of the "
    "paper's, one circuit a rack, electrical uplinks oversubscribed 40:1, 10:1, 4:1 and not at all",
    workload="TCP transfers: blocks read from other racks, a shuffle of 10 GB from each server to "
    "each other while it is made, then two copies of the output, one in another rack; scaled as "
    "rates are (short: a twenty-fourth of it)",
    policy=f"undifferentiated: the racks with traffic in turn, every {INTERVALS_S[0]:g} to "
    f"{INTERVALS_S[-1]:g} s; as published, and at 40:1 hitless",
    measured="time until each step is over, and the last copy written",
    needs_data_plane=True,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
