"""Common cases, tables and plots of the applications in c-Through's section 6."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Final, Generic, TypeVar

from matplotlib.figure import Figure

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.claims import judged
from mininet_scenarios.experiments.cthrough import scenario
from mininet_scenarios.experiments.cthrough.scenario import (
    FULL_BISECTION_MBPS,
    OVERSUBSCRIBED_MBPS,
    Case,
    Circuits,
    Completion,
    Scale,
)
from mininet_scenarios.experiments.frame import Table
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import (
    BLUE,
    GREEN,
    GREY,
    VERMILION,
    legend_below,
    logarithmic,
)
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage import building
from mininet_scenarios.stage.stage import Stage

T = TypeVar("T")

WORST: Final = "40:1"
SMALL_MB: Final = 0.128
"""Socket buffers of 2010: Linux's default of the time."""
USUAL_MB: Final = 100.0
"""Socket buffers while the interval varies."""
USUAL_S: Final = 1.0
"""Interval while the buffers vary."""
WAYS: Final = ((CycleName.AS_PUBLISHED, "as published"), (CycleName.HITLESS, "hydra"))
_NAMES: Final = {cycle.value: name for cycle, name in WAYS}
FULL_BISECTION: Final = Case(FULL_BISECTION_MBPS, USUAL_MB, None)
_NO_SLOWER: Final = 1.05


def helped(ratio: str, buffer_mb: float, interval_s: float, cycle: CycleName) -> Case:
    """A case with circuits beside an oversubscribed electrical network."""
    return Case(OVERSUBSCRIBED_MBPS[ratio], buffer_mb, Circuits(cycle, interval_s))


def packets_alone(ratio: str) -> Case:
    return Case(OVERSUBSCRIBED_MBPS[ratio], USUAL_MB, None)


def both_panels(buffers_mb: Sequence[float], intervals_s: Sequence[float]) -> list[Case]:
    """Cases as published at each oversubscription, and hitless cases at the worst."""
    cases = [FULL_BISECTION]
    for ratio in OVERSUBSCRIBED_MBPS:
        cases.append(packets_alone(ratio))
        for cycle, _ in WAYS:
            if cycle is CycleName.HITLESS and ratio != WORST:
                continue
            cases += [helped(ratio, size, USUAL_S, cycle) for size in buffers_mb]
            cases += [
                helped(ratio, USUAL_MB, interval_s, cycle)
                for interval_s in intervals_s
                if interval_s != USUAL_S
            ]
    return cases


@dataclass(frozen=True, slots=True)
class Repetition(Generic[T]):
    """A repetition with its runs."""

    scale: Scale
    runs: tuple[Completion[T], ...]

    def find(self, case: Case) -> Completion[T] | None:
        wanted = case.electrical_mbps, case.buffer_mb, case.way, case.interval_s
        return next(
            (
                run
                for run in self.runs
                if (run.electrical_mbps, run.buffer_mb, run.way, run.interval_s) == wanted
            ),
            None,
        )


def measure(
    work_dir: Path,
    scale: Scale,
    cases: Sequence[Case],
    narrator: Narrator,
    run: Callable[[Stage, Case], Completion[T]],
    servers: int = scenario.RACK_SERVERS,
) -> Repetition[T]:
    """Play ``cases``, on one testbed for each electrical network, with ``servers`` in a rack."""
    runs: list[Completion[T]] = []
    for rate_mbps in _electrical(cases):
        directory = work_dir / f"{rate_mbps:g}"
        with (
            scenario.stage_of(rate_mbps, scale, directory, narrator, servers) as stage,
            stage.one_controller(),
        ):
            runs += [run(stage, case) for case in cases if case.electrical_mbps == rate_mbps]
    return Repetition(scale, tuple(runs))


def expected_s(cases: Sequence[Case], each_s: Callable[[Case], float]) -> float:
    """Wall time of a repetition; ``each_s``: time of a case."""
    testbeds_s = len(_electrical(cases)) * (building.BUILD_S + scenario.CONTROLLER_S)
    return testbeds_s + sum(each_s(case) for case in cases)


def _electrical(cases: Sequence[Case]) -> list[float]:
    return list(dict.fromkeys(case.electrical_mbps for case in cases))


# --- conclusions ------------------------------------------------------------------------------

Seconds = Callable[[Case], float | None]


def seconds_of(found: Sequence[Repetition[T]]) -> Seconds:
    """Function from a case to the mean time in all repetitions; None for a case not run."""

    def of(case: Case) -> float | None:
        runs = [measured.find(case) for measured in found]
        seconds = [run.seconds for run in runs if run is not None]
        return fmean(seconds) if seconds else None

    return of


def scale_rows(scale: Scale) -> Iterator[Row]:
    """Rows of the scale of rates and buffers, and of the real size of the smallest buffers."""
    rate_mbps = FULL_BISECTION_MBPS * scale.rate
    yield Row(
        f"scale of all rates and buffers: 1:{1 / scale.rate:.0f}; circuits of "
        f"{FULL_BISECTION_MBPS / 1000:g} Gb/s",
        "",
        f"{rate_mbps:.3g} Mb/s",
    )
    held_mb = scenario.buffer_bytes(SMALL_MB, scale) / 1e6 / scale.rate
    if held_mb > 1.01 * SMALL_MB:
        yield Row(
            f"smallest buffers, {SMALL_MB * 1e3:g} KB in the paper, at its scale",
            "",
            f"{held_mb * 1e3:.0f} KB",
            why=f"Sockets hold {scenario.LEAST_BUFFER_BYTES // 1024} KB at least, since smaller "
            f"sockets could not hold TCP's data under way: so {SMALL_MB * 1e3:g} KB are more, the "
            "more the rates are scaled down.",
        )


def seconds_row(figure: str, seconds: float, target: str, limit_s: float, why: str = "") -> Row:
    """A row, met if ``seconds`` is at most ``limit_s``; ``target``: the limit in words."""
    met = seconds <= limit_s
    return Row(figure, "", f"{seconds:.0f} s", target=target, met=met, why=why)


def ratio_row(
    key: str, name: str, ratio: float, what: str, why: str = "", *, whole: bool = True
) -> Row:
    """A row of a ratio at the worst oversubscription in the way ``name``.

    The claim ``key`` judges only the way of the paper, with all of the paper's data (``whole``).
    """
    figure = f"{name}: {WORST}, {what}"
    if whole and name == _NAMES[CycleName.AS_PUBLISHED.value]:
        return judged(f"c-through/{key}", ratio, figure, why=why)
    return Row(figure, "", f"{ratio:.2f}")


def gap_rows(of: Seconds, buffer_mb: float, application: str) -> Iterator[Row]:
    """Rows of circuits' gain, by oversubscription; and none may be slower than packets alone."""
    gaps: dict[str, float] = {}
    for ratio in OVERSUBSCRIBED_MBPS:
        alone = of(packets_alone(ratio))
        with_circuits = of(helped(ratio, buffer_mb, USUAL_S, CycleName.AS_PUBLISHED))
        if alone is not None and with_circuits is not None:
            gaps[ratio] = alone / with_circuits
        hitless = of(helped(ratio, buffer_mb, USUAL_S, CycleName.HITLESS))
        if alone is not None and hitless is not None:
            limit_s = _NO_SLOWER * alone
            figure = f"hydra: {ratio}, against the electrical network alone"
            yield seconds_row(figure, hitless, f"≤ {limit_s:.0f} s", limit_s)
    if len(gaps) > 1:
        yield judged(
            f"c-through/{application} gap",
            min(more / less for more, less in pairwise(gaps.values())),
            "as published: electrical alone over with circuits, at " + ", ".join(gaps),
            ", ".join(f"{value:.1f}" for value in gaps.values()),
        )


def dark_row(found: Sequence[Repetition[T]]) -> Row:
    dark = sum(
        run.dark_frames
        for measured in found
        for run in measured.runs
        if run.way == CycleName.HITLESS.value
    )
    return Row("hydra: frames at dark OCS ports", "", str(dark), target="0", met=dark == 0)


def table(found: Sequence[Repetition[T]]) -> Table:
    """Table of all runs: a line for each buffer and interval."""
    of = seconds_of(found)
    kinds = list(dict.fromkeys((run.way, run.buffer_mb, run.interval_s) for run in found[0].runs))
    names = {FULL_BISECTION_MBPS: "full bisection"} | {
        rate: ratio for ratio, rate in OVERSUBSCRIBED_MBPS.items()
    }
    rates = [rate for rate in names if any(run.electrical_mbps == rate for run in found[0].runs)]

    def cell(way: str, buffer_mb: float, interval_s: float | None, rate_mbps: float) -> str:
        circuits = None if interval_s is None else Circuits(CycleName(way), interval_s)
        seconds = of(Case(rate_mbps, buffer_mb, circuits))
        return "" if seconds is None else f"{seconds:.0f}"

    return Table(
        "Completion time in s, mean of all repetitions",
        ("", "buffer", "interval", *(names[rate] for rate in rates)),
        tuple(
            (
                _NAMES.get(way, way),
                f"{buffer_mb:g} MB",
                "" if interval_s is None else f"{interval_s:g} s",
                *(cell(way, buffer_mb, interval_s, rate) for rate in rates),
            )
            for way, buffer_mb, interval_s in kinds
        ),
    )


def draw_panels(
    found: Sequence[Repetition[T]],
    buffers_mb: Sequence[float],
    intervals_s: Sequence[float],
    written: Path,
) -> None:
    """The paper's two panels: completion time by buffer size, and by interval."""
    of = seconds_of(found)
    figure = Figure(figsize=(10.0, 4.5), dpi=150, layout="constrained")
    panels: tuple[tuple[str, Sequence[float], Callable[[float], tuple[float, float]]], ...] = (
        ("buffer size [MB], an interval of 1 s", buffers_mb, lambda size: (size, USUAL_S)),
        ("interval [s], buffers of 100 MB", intervals_s, lambda interval: (USUAL_MB, interval)),
    )
    for axes, (label, values, at) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        for ratio, colour in zip(OVERSUBSCRIBED_MBPS, (BLUE, GREEN, VERMILION), strict=True):
            alone = of(packets_alone(ratio))
            if alone is not None:
                axes.axhline(alone, color=colour, linestyle=":", label=f"{ratio}, packets alone")
            for cycle, style in (
                (CycleName.AS_PUBLISHED, "o--"),
                (CycleName.HITLESS, "s-"),
            ):
                points = [(value, of(helped(ratio, *at(value), cycle))) for value in values]
                points = [point for point in points if point[1] is not None]
                if points:
                    axes.plot(
                        *zip(*points, strict=True),
                        style,
                        color=colour,
                        label=f"{ratio}, {_NAMES[cycle.value]}",
                    )
        full = of(FULL_BISECTION)
        if full is not None:
            axes.axhline(full, color=GREY, label="full bisection")
        logarithmic(axes, values)
        axes.set_xlabel(label)
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("completion time [s]")
    legend_below(figure, figure.axes[0])
    figure.savefig(written)
