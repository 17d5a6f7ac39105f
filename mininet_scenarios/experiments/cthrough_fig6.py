"""c-Through's Fig. 6: virtual machines migrate, by buffer size, interval and oversubscription."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from matplotlib.figure import Figure

from hydra.policy import Transition
from mininet_scenarios import demo, vm_migration
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.narrator import Narrator
from mininet_scenarios.plots import BLUE, GREEN, GREY, VERMILION
from mininet_scenarios.report import Row
from mininet_scenarios.vm_migration import (
    FULL_BISECTION_MBPS,
    OVERSUBSCRIBED_MBPS,
    PAPER_ELECTRICAL_S,
    PAPER_MADE_S,
    Case,
    Circuits,
    Migration,
    Scale,
)

FULL_PART: Final = 1.0
SHORT_PART: Final = 1 / 8
BUFFERS_MB: Final = (0.128, 50.0, 100.0, 300.0)
INTERVALS_S: Final = (0.5, 1.0, 2.0, 5.0)
_SMALL_MB: Final = BUFFERS_MB[0]
_LARGE_MB: Final = BUFFERS_MB[-1]
_USUAL_MB: Final = 100.0
_USUAL_S: Final = 1.0
_WORST: Final = "40:1"
_PAPER_SMALL_S: Final = 120.0
_PAPER_LARGE_S: Final = 60.0
_NEAR: Final = 1.3
"""Times full bisection that count as near it; the paper's best is 1.15 times."""
_NO_SLOWER: Final = 1.05
_WHY: Final = (
    "Buffers are scaled as rates are, but hold 16 KB at least, 0.8 MB at the paper's scale, where "
    "the paper's default holds 128 KB. How KVM's compression and its eight migrations share a "
    "server is not told; here each machine's data comes at an eighth of the server's rate."
)


@dataclass(frozen=True, slots=True)
class Migrations:
    """One repetition."""

    scale: Scale
    runs: tuple[Migration, ...]

    def find(self, case: Case) -> Migration | None:
        interval_s = None if case.circuits is None else case.circuits.interval_s
        wanted = case.electrical_mbps, case.buffer_mb, case.way, interval_s
        return next(
            (
                one
                for one in self.runs
                if (one.electrical_mbps, one.buffer_mb, one.way, one.interval_s) == wanted
            ),
            None,
        )


def helped(ratio: str, buffer_mb: float, interval_s: float, transition: Transition) -> Case:
    """With circuits beside an oversubscribed electrical network."""
    return Case(OVERSUBSCRIBED_MBPS[ratio], buffer_mb, Circuits(transition, interval_s))


def packets_alone(ratio: str) -> Case:
    return Case(OVERSUBSCRIBED_MBPS[ratio], _USUAL_MB, None)


FULL_BISECTION: Final = Case(FULL_BISECTION_MBPS, _USUAL_MB, None)


def full_cases() -> list[Case]:
    """Both panels of Fig. 6 as published, and at 40:1 hitless, too."""
    cases = [FULL_BISECTION]
    for ratio in OVERSUBSCRIBED_MBPS:
        cases.append(packets_alone(ratio))
        for transition in Transition:
            if transition is Transition.HITLESS and ratio != _WORST:
                continue
            cases += [helped(ratio, size, _USUAL_S, transition) for size in BUFFERS_MB]
            cases += [
                helped(ratio, _USUAL_MB, interval_s, transition)
                for interval_s in INTERVALS_S
                if interval_s != _USUAL_S
            ]
    return cases


def short_cases() -> list[Case]:
    return [
        FULL_BISECTION,
        packets_alone(_WORST),
        helped(_WORST, _SMALL_MB, _USUAL_S, Transition.AS_PUBLISHED),
        helped(_WORST, _LARGE_MB, _USUAL_S, Transition.AS_PUBLISHED),
        helped(_WORST, _LARGE_MB, _USUAL_S, Transition.HITLESS),
    ]


def _plan(full: bool) -> tuple[float, list[Case]]:
    return (FULL_PART, full_cases()) if full else (SHORT_PART, short_cases())


def _measure(setting: Setting, narrator: Narrator) -> Migrations:
    part, cases = _plan(setting.full)
    divisor = setting.rates.scale(FULL_BISECTION_MBPS).divisor
    return measure(setting.work_dir, Scale(1 / divisor, part), cases, narrator)


def measure(work_dir: Path, scale: Scale, cases: Sequence[Case], narrator: Narrator) -> Migrations:
    """Play these cases, on one testbed for each electrical network."""
    runs = []
    for rate_mbps in dict.fromkeys(case.electrical_mbps for case in cases):
        directory = work_dir / f"{rate_mbps:g}"
        with vm_migration.stage_of(rate_mbps, scale, directory, narrator) as stage:
            runs += [
                vm_migration.run(stage, case, scale, narrator)
                for case in cases
                if case.electrical_mbps == rate_mbps
            ]
    return Migrations(scale, tuple(runs))


# --- what it comes to -------------------------------------------------------------------------

_Seconds = Callable[[Case], float | None]


def _seconds(found: Sequence[Migrations]) -> _Seconds:
    """The mean of all repetitions; None for what was not run."""

    def of(case: Case) -> float | None:
        runs = [one.find(case) for one in found]
        seconds = [run.seconds for run in runs if run is not None]
        return fmean(seconds) if seconds else None

    return of


def _conclude(found: Sequence[Migrations]) -> Findings:
    of = _seconds(found)
    rows = [_scale_row(found[0].scale), *_bounds(of)]
    whole = all(one.scale.part == 1 for one in found)
    for transition, name in (
        (Transition.AS_PUBLISHED, "as published"),
        (Transition.HITLESS, "hydra"),
    ):
        rows += _buffer_rows(of, transition, name, whole)
        rows += _interval_rows(of, transition, name)
    rows += _gap_rows(of)
    dark = sum(
        run.dark_frames for one in found for run in one.runs if run.way == Transition.HITLESS.value
    )
    rows.append(Row("hydra: frames at dark OCS ports", "", str(dark), target="0", met=dark == 0))
    return Findings(tuple(rows), (_table(found, of),))


def _row(
    figure: str, paper_s: float | None, seconds: float, target: str, limit_s: float, why: str = ""
) -> Row:
    return Row(
        figure,
        "" if paper_s is None else f"{paper_s:g} s",
        f"{seconds:.0f} s",
        None if paper_s is None else seconds / paper_s,
        target,
        seconds <= limit_s,
        why,
    )


def _scale_row(scale: Scale) -> Row:
    rate_mbps = FULL_BISECTION_MBPS * scale.rate
    figure = f"scale of all rates and buffers: 1:{1 / scale.rate:.0f}"
    return Row(figure, f"circuits: {FULL_BISECTION_MBPS / 1000:g} Gb/s", f"{rate_mbps:.3g} Mb/s")


def _bounds(of: _Seconds) -> Iterator[Row]:
    full, alone = of(FULL_BISECTION), of(packets_alone(_WORST))
    for figure, paper_s, seconds in (
        ("full bisection", PAPER_MADE_S, full),
        (f"electrical network alone, {_WORST}", PAPER_ELECTRICAL_S, alone),
    ):
        if seconds is not None:
            yield Row(figure, f"{paper_s:g} s", f"{seconds:.0f} s", seconds / paper_s)


def _buffer_rows(of: _Seconds, transition: Transition, name: str, whole: bool) -> Iterator[Row]:
    """``whole``: all of the paper's data; of a part of it, the last flows weigh too much."""
    alone, full = of(packets_alone(_WORST)), of(FULL_BISECTION)
    small = of(helped(_WORST, _SMALL_MB, _USUAL_S, transition))
    large = of(helped(_WORST, _LARGE_MB, _USUAL_S, transition))
    figure = f"{name}: {_WORST}, buffers of"
    if small is not None and alone is not None:
        target = "less than electrical alone"
        paper_s = _PAPER_SMALL_S
        yield _row(f"{figure} {_SMALL_MB * 1e3:g} KB", paper_s, small, target, alone, _WHY)
    if large is None:
        return
    if small is not None:
        target = f"less than with {_SMALL_MB * 1e3:g} KB"
        yield _row(f"{figure} {_LARGE_MB:g} MB", _PAPER_LARGE_S, large, target, small, _WHY)
    if full is not None:
        yield Row(
            f"{figure} {_LARGE_MB:g} MB, over full bisection",
            f"{_PAPER_LARGE_S / PAPER_MADE_S:.2f}",
            f"{large / full:.2f}",
            large / full * PAPER_MADE_S / _PAPER_LARGE_S,
            f"≤ {_NEAR:g}" if whole else "",
            large / full <= _NEAR if whole else None,
            _WHY,
        )


def _interval_rows(of: _Seconds, transition: Transition, name: str) -> Iterator[Row]:
    alone = of(packets_alone(_WORST))
    for interval_s in INTERVALS_S:
        seconds = of(helped(_WORST, _USUAL_MB, interval_s, transition))
        if seconds is not None and alone is not None:
            figure = f"{name}: {_WORST}, an interval of {interval_s:g} s"
            yield _row(figure, None, seconds, "half of electrical alone", alone / 2)


def _gap_rows(of: _Seconds) -> Iterator[Row]:
    """What circuits bring, by oversubscription; and none may be slower than packets alone."""
    gaps: dict[str, float] = {}
    for ratio in OVERSUBSCRIBED_MBPS:
        alone = of(packets_alone(ratio))
        with_circuits = of(helped(ratio, _LARGE_MB, _USUAL_S, Transition.AS_PUBLISHED))
        if alone is not None and with_circuits is not None:
            gaps[ratio] = alone / with_circuits
        hitless = of(helped(ratio, _LARGE_MB, _USUAL_S, Transition.HITLESS))
        if alone is not None and hitless is not None:
            limit_s = _NO_SLOWER * alone
            figure = f"hydra: {ratio}, against the electrical network alone"
            yield _row(figure, None, hitless, f"≤ {limit_s:.0f} s", limit_s)
    if len(gaps) > 1:
        values = list(gaps.values())
        yield Row(
            "as published: electrical alone over with circuits, at " + ", ".join(gaps),
            "shrinks",
            ", ".join(f"{value:.1f}" for value in values),
            target="falling",
            met=values == sorted(values, reverse=True),
        )


def _table(found: Sequence[Migrations], of: _Seconds) -> Table:
    """Everything that was run: a line for each buffer and interval."""
    kinds = list(dict.fromkeys((run.way, run.buffer_mb, run.interval_s) for run in found[0].runs))
    names = {FULL_BISECTION_MBPS: "full bisection"} | {
        rate: ratio for ratio, rate in OVERSUBSCRIBED_MBPS.items()
    }
    rates = [rate for rate in names if any(run.electrical_mbps == rate for run in found[0].runs)]

    def cell(way: str, buffer_mb: float, interval_s: float | None, rate_mbps: float) -> str:
        circuits = None if interval_s is None else Circuits(Transition(way), interval_s)
        seconds = of(Case(rate_mbps, buffer_mb, circuits))
        return "" if seconds is None else f"{seconds:.0f}"

    return Table(
        "Completion time in s, mean of all repetitions",
        ("", "buffer", "interval", *(names[rate] for rate in rates)),
        tuple(
            (
                way,
                f"{buffer_mb:g} MB",
                "" if interval_s is None else f"{interval_s:g} s",
                *(cell(way, buffer_mb, interval_s, rate) for rate in rates),
            )
            for way, buffer_mb, interval_s in kinds
        ),
    )


def _draw(found: Sequence[Migrations], directory: Path) -> Sequence[Path]:
    of = _seconds(found)
    figure = Figure(figsize=(10.0, 4.5), dpi=150, layout="constrained")
    panels: tuple[tuple[str, Sequence[float], Callable[[float], tuple[float, float]]], ...] = (
        ("buffer size [MB], an interval of 1 s", BUFFERS_MB, lambda size: (size, _USUAL_S)),
        ("interval [s], buffers of 100 MB", INTERVALS_S, lambda interval: (_USUAL_MB, interval)),
    )
    for axes, (label, values, at) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        for ratio, colour in zip(OVERSUBSCRIBED_MBPS, (BLUE, GREEN, VERMILION), strict=True):
            alone = of(packets_alone(ratio))
            if alone is not None:
                axes.axhline(alone, color=colour, linestyle=":", label=f"{ratio}, packets alone")
            for transition, style in (
                (Transition.AS_PUBLISHED, "o--"),
                (Transition.HITLESS, "s-"),
            ):
                points = [(value, of(helped(ratio, *at(value), transition))) for value in values]
                points = [point for point in points if point[1] is not None]
                if points:
                    axes.plot(
                        *zip(*points, strict=True),
                        style,
                        color=colour,
                        label=f"{ratio}, {transition.value}",
                    )
        full = of(FULL_BISECTION)
        if full is not None:
            axes.axhline(full, color=GREY, label="full bisection")
        axes.set_xscale("log")
        axes.set_xlabel(label)
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("completion time [s]")
    figure.axes[0].legend(fontsize="x-small")
    written = directory / "fig6.png"
    figure.savefig(written)
    return [written]


def _expected_s(full: bool) -> float:
    part, cases = _plan(full)
    scale = Scale(1.0, part)  # times are not scaled
    testbeds = len({case.electrical_mbps for case in cases})
    return testbeds * demo.BUILD_S + sum(scale.expected_s(case) for case in cases)


EXPERIMENT: Final = Experiment(
    name="cthrough-fig6",
    title="Virtual machines of a rack migrate",
    source="Wang et al., c-Through, SIGCOMM 2010, section 6.1, Fig. 6",
    topology="configs/cthrough.yaml: four racks of four servers, one circuit a rack, electrical "
    "uplinks oversubscribed 40:1, 10:1, 4:1 and not at all",
    workload="32 TCP transfers from the servers of a rack to all other racks, whose data is made "
    f"in {PAPER_MADE_S:g} s (short: an eighth of it)",
    policy="undifferentiated: the racks with traffic in turn, every 0.5 to 5 s; as published, and "
    "at 40:1 hitless",
    measured="time until the last machine has arrived",
    needs_data_plane=True,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
