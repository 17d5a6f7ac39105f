"""A direct link in place of a spine's, and how to share it (Abu-Tair et al., Photonics 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from matplotlib.figure import Figure

from apps.process.configuration import load_configuration
from hydra.policy import Transition
from mininet_scenarios.experiments.abu_tair import scenario
from mininet_scenarios.experiments.abu_tair.scenario import (
    ELEPHANT,
    MOUSE,
    Case,
    Regime,
    Run,
    Scale,
)
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREY, VERMILION, legend_below
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage import building

TIME: Final = 1 / 6
"""Scale of the paper's times, epochs included: 15 repetitions take less than two hours."""
BUSIEST_MBPS: Final = 6 * scenario.PAPER_MBPS
"""Load of the busiest moment: three racks send over both uplinks."""
_LOADS: Final = (24, 48, 72)
_SHORT_LOADS: Final = (24,)
_NOISE: Final = 0.03
"""Relative difference between repetitions of the same case."""
_CLAIMS: Final[Mapping[Regime, str]] = {
    Regime.ON_DEMAND: "> DT",
    Regime.DIFFERENTIATED: "> no direct link",
    Regime.UNDIFFERENTIATED: "< no direct link",
}
_Figures = Mapping[str, tuple[tuple[float, float, float], ...]]

# Tables 1 to 4: minimum, average and maximum for 24, 48 and 72 transfers.
PAPER: Final[Mapping[tuple[str, str], _Figures]] = {
    (ELEPHANT, "throughput"): {
        "no direct link": ((607.8, 616.3, 629.5), (309.1, 324.4, 338.3), (205.4, 215.7, 226.1)),
        "UT": ((289.7, 550.0, 614.6), (262.1, 287.1, 322.5), (158.2, 187.4, 209.6)),
        "DT": ((359.5, 652.4, 738.7), (268.8, 344.8, 398.5), (194.6, 234.4, 266.1)),
        "on demand": ((936.4, 952.7, 958.4), (487.8, 510.4, 544.4), (321.9, 335.2, 396.0)),
    },
    (MOUSE, "throughput"): {
        "no direct link": ((79.6, 171.9, 259.3), (46.9, 86.8, 141.7), (34.1, 56.5, 83.6)),
        "UT": ((84.3, 150.4, 246.8), (51.5, 86.3, 123.1), (40.1, 56.5, 71.5)),
        "DT": ((90.1, 177.9, 249.8), (63.0, 99.0, 167.6), (49.6, 69.4, 98.2)),
        "on demand": ((100.4, 218.2, 282.8), (66.6, 109.7, 144.7), (40.1, 58.7, 136.2)),
    },
    (ELEPHANT, "completion"): {
        "no direct link": ((40.9, 41.8, 42.4), (77.0, 79.9, 83.4), (115.1, 120.5, 125.5)),
        "UT": ((41.9, 48.8, 94.9), (81.1, 90.8, 98.4), (123.7, 140.4, 165.5)),
        "DT": ((35.1, 44.2, 88.4), (65.8, 82.2, 117.4), (97.5, 115.2, 148.7)),
        "on demand": ((26.9, 27.0, 27.5), (49.1, 50.9, 52.8), (70.6, 77.8, 80.0)),
    },
    (MOUSE, "completion"): {
        "no direct link": ((11.8, 18.5, 26.7), (25.5, 34.1, 51.1), (39.0, 51.3, 69.0)),
        "UT": ((11.8, 19.7, 28.0), (28.5, 34.3, 46.1), (40.5, 51.0, 63.0)),
        "DT": ((10.8, 15.5, 23.7), (21.3, 28.6, 36.6), (35.5, 39.1, 46.9)),
        "on demand": ((9.6, 12.5, 20.9), (19.9, 24.6, 31.7), (26.1, 41.6, 52.4)),
    },
}
_WHY: Final = (
    "In the paper, too, a rack's transfers share one uplink without the direct link: an elephant "
    "and seven mice in 41.8 s are 970 Mb/s. What the published sharing by time loses are the "
    "seconds for which TCP stands still at each change: 2 by the paper's Table 3, which a link "
    "that is away for about 1 s explains. Mirrors take that long here, at the scale of times. But "
    "a rack that loses the link goes on over its other uplink at once, so that only one of its two "
    "moves stops it, and TCP's time-outs do not scale."
)
_WHY_FAST: Final = (
    "With the mirrors of the fabric file. What is lost above beyond this is lost by links that are "
    "away for so long, and what is lost here, by moving them at all."
)
FAST: Final = Case(Regime.UNDIFFERENTIATED, Transition.AS_PUBLISHED, _LOADS[0])
"""Case that the full form also plays with the mirrors of the fabric file."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A repetition: every case once."""

    scale: Scale
    runs: tuple[Run, ...]
    fast: Run | None
    """:data:`FAST`; None in the short form."""

    def run(self, regime: Regime, transition: Transition, transfers: int) -> Run:
        """The run of a case; without a direct link nothing moves, so both transitions share one."""
        wanted = _case(regime, transition, transfers)
        return next(
            one
            for one in self.runs
            if (one.regime, one.transition, one.transfers)
            == (wanted.regime.value, wanted.transition.value, transfers)
        )

    def holds(self, regime: Regime, transition: Transition) -> bool:
        """True if this was run, with any number of transfers."""
        wanted = _case(regime, transition, 0)
        names = wanted.regime.value, wanted.transition.value
        return any((run.regime, run.transition) == names for run in self.runs)

    @property
    def loads(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(run.transfers for run in self.runs))


def _case(regime: Regime, transition: Transition, transfers: int) -> Case:
    return Case(regime, Transition.HITLESS if regime is Regime.NONE else transition, transfers)


def cases(loads: Sequence[int], hitless: Sequence[Regime] = tuple(Regime)) -> list[Case]:
    """Cases of a repetition, each once: all regimes as published, and ``hitless`` ones, too."""
    return [
        case
        for transfers in loads
        for case in (
            *(_case(regime, Transition.AS_PUBLISHED, transfers) for regime in Regime),
            *(
                _case(regime, Transition.HITLESS, transfers)
                for regime in hitless
                if regime is not Regime.NONE
            ),
        )
    ]


def full_cases() -> list[Case]:
    """Cases of Tables 1 to 4: each number of transfers, each regime, in both transitions."""
    return cases(_LOADS)


def short_cases() -> list[Case]:
    return cases(_SHORT_LOADS, [Regime.ON_DEMAND])


def _cases(full: bool) -> list[Case]:
    return full_cases() if full else short_cases()


def _measure(setting: Setting, narrator: Narrator) -> Comparison:
    divisor = setting.rates.scale(BUSIEST_MBPS).divisor
    scale = Scale(1 / divisor, TIME)
    return measure(setting.work_dir, scale, _cases(setting.full), narrator, fast=setting.full)


def measure(
    work_dir: Path, scale: Scale, wanted: Sequence[Case], narrator: Narrator, *, fast: bool = False
) -> Comparison:
    """Play these cases, on one testbed and with one controller; if ``fast``, :data:`FAST`, too."""
    network = scenario.paper_network(scale)
    runs = _play(network, work_dir / "stage", scale, wanted, narrator)
    if not fast:
        return Comparison(scale, runs, None)
    network = building.scaled_config(scale.rate, scenario.CONFIG)
    (one,) = _play(network, work_dir / "fast", scale, [FAST], narrator)
    return Comparison(scale, runs, one)


def _play(
    network: Mapping[str, Any],
    directory: Path,
    scale: Scale,
    wanted: Sequence[Case],
    narrator: Narrator,
) -> tuple[Run, ...]:
    with (
        building.stage_with(network, directory, narrator) as stage,
        scenario.network(stage, scale) as agents,
    ):
        return tuple(scenario.run(agents, case, scale, narrator) for case in wanted)


# --- conclusions ------------------------------------------------------------------------------


def _conclude(found: Sequence[Comparison]) -> Findings:
    rows = [_scale_row(found[0].scale)]
    rows += [row for place, load in enumerate(found[0].loads) for row in _rows(found, place, load)]
    rows += _fast_row(found)
    dark = sum(
        run.dark_frames
        for one in found
        for run in one.runs
        if run.transition == Transition.HITLESS.value
    )
    rows.append(Row("hydra: frames at dark OCS ports", "", str(dark), target="0", met=dark == 0))
    return Findings(
        tuple(rows),
        tuple(
            _table(found, number, kind, metric)
            for number, (kind, metric) in enumerate(PAPER, start=1)
        ),
    )


def _scale_row(scale: Scale) -> Row:
    rate_mbps = scenario.PAPER_MBPS * scale.rate
    figure = f"scale of all rates: 1:{1 / scale.rate:.0f}, of times: 1:{1 / scale.time:.0f}"
    return Row(figure, f"uplinks: {scenario.PAPER_MBPS / 1000:g} Gb/s", f"{rate_mbps:.3g} Mb/s")


def gain(found: Sequence[Comparison], regime: Regime, transition: Transition, load: int) -> float:
    """Gain of elephants' throughput over that without a direct link, relative."""
    ours = _mean_mbps([one.run(regime, transition, load) for one in found])
    none = _mean_mbps([one.run(Regime.NONE, transition, load) for one in found])
    return ours / none - 1


def _mean_mbps(runs: Sequence[Run]) -> float:
    """Mean throughput of elephants."""
    return fmean(run.mbps(ELEPHANT) for run in runs)


def _rows(found: Sequence[Comparison], place: int, load: int) -> Iterator[Row]:
    def gains(transition: Transition) -> dict[Regime, float]:
        return {
            regime: gain(found, regime, transition, load)
            for regime in (Regime.ON_DEMAND, Regime.DIFFERENTIATED, Regime.UNDIFFERENTIATED)
            if found[0].holds(regime, transition)
        }

    published = gains(Transition.AS_PUBLISHED)
    met = {
        Regime.ON_DEMAND: published[Regime.ON_DEMAND] > published[Regime.DIFFERENTIATED],
        Regime.DIFFERENTIATED: published[Regime.DIFFERENTIATED] > 0,
        Regime.UNDIFFERENTIATED: published[Regime.UNDIFFERENTIATED] < 0,
    }
    paper = PAPER[ELEPHANT, "throughput"]
    for regime, ours in published.items():
        theirs = paper[regime.value][place][1] / paper[Regime.NONE.value][place][1] - 1
        yield Row(
            f"as published, {load} transfers: elephants against no direct link, {regime.value}",
            f"{theirs:+.0%}",
            f"{ours:+.1%}",
            (1 + ours) / (1 + theirs),
            _CLAIMS[regime],
            met[regime],
            _WHY,
        )
    for regime, ours in gains(Transition.HITLESS).items():
        yield Row(
            f"hydra, {load} transfers: elephants against no direct link, {regime.value}",
            "",
            f"{ours:+.1%}",
            target=f"≥ −{_NOISE:.0%}",
            met=ours >= -_NOISE,
        )


def _fast_row(found: Sequence[Comparison]) -> Iterator[Row]:
    fast = [one.fast for one in found if one.fast is not None]
    if not fast:
        return
    planes = load_configuration(scenario.CONFIG).fabric.planes
    slowest_ms = max(plane.switching_ms for plane in planes)
    with_none = [one.run(Regime.NONE, FAST.transition, FAST.transfers) for one in found]
    ours = _mean_mbps(fast) / _mean_mbps(with_none) - 1
    yield Row(
        f"as published, {FAST.transfers} transfers, with mirrors of {slowest_ms:g} ms: elephants "
        f"against no direct link, {FAST.regime.value}",
        "",
        f"{ours:+.1%}",
        why=_WHY_FAST,
    )


def _values(
    found: Sequence[Comparison],
    kind: str,
    metric: str,
    case: tuple[Regime, Transition],
    load: int,
) -> list[float]:
    """Mean of each repetition, in Mbps or s of the paper's network."""
    runs = [(one.scale, one.run(*case, load)) for one in found]
    if metric == "throughput":
        return [run.mbps(kind) / scale.rate for scale, run in runs]
    return [run.seconds(kind) / scale.time for scale, run in runs]


def _lines(found: Sequence[Comparison]) -> list[tuple[str, Regime, Transition]]:
    """(name, regime, transition) of the lines in tables and plots."""
    lines = [(Regime.NONE.value, Regime.NONE, Transition.HITLESS)]
    for regime in list(Regime)[1:]:
        lines.append((f"{regime.value}, as published", regime, Transition.AS_PUBLISHED))
        if found[0].holds(regime, Transition.HITLESS):
            lines.append((f"{regime.value}, hydra", regime, Transition.HITLESS))
    return lines


def _table(found: Sequence[Comparison], number: int, kind: str, metric: str) -> Table:
    unit = "Mb/s" if metric == "throughput" else "s"
    loads = found[0].loads
    rows = []
    for name, regime, transition in _lines(found):
        cells = [name]
        for place, load in enumerate(loads):
            paper = PAPER[kind, metric][regime.value][place]
            values = _values(found, kind, metric, (regime, transition), load)
            cells.append(_span(paper))
            cells.append(_span((min(values), fmean(values), max(values))))
        rows.append(tuple(cells))
    heads = [f"{load}: {whose}" for load in loads for whose in ("paper", "ours")]
    plural = "elephants" if kind == ELEPHANT else "mice"
    return Table(
        f"Table {number}: average {metric} of {plural} in {unit}, minimum / average / maximum of "
        f"{len(found)} repetitions, at the paper's scale",
        ("", *heads),
        tuple(rows),
    )


def _span(three: tuple[float, float, float]) -> str:
    return " / ".join(f"{value:.1f}" for value in three)


def _draw(found: Sequence[Comparison], directory: Path) -> Sequence[Path]:
    written = []
    for metric, unit in (("throughput", "Mb/s"), ("completion", "s")):
        written.append(directory / f"{metric}.png")
        _box_plots(found, metric, unit).savefig(written[-1])
    return written


def _box_plots(found: Sequence[Comparison], metric: str, unit: str) -> Figure:
    """Plots as in Fig. 4 to 9: boxes of the repetitions' means, their mean, and the paper's."""
    loads = found[0].loads
    figure = Figure(figsize=(4.5 * len(loads) + 1, 8.0), dpi=150, layout="constrained")
    grid = figure.subplots(2, len(loads), squeeze=False)
    lines = _lines(found)
    for row, (kind, plural) in enumerate(((ELEPHANT, "elephants"), (MOUSE, "mice"))):
        for place, load in enumerate(loads):
            axes = grid[row][place]
            values = [
                _values(found, kind, metric, (regime, transition), load)
                for _, regime, transition in lines
            ]
            at = list(range(1, len(lines) + 1))
            axes.boxplot(values, positions=at, widths=0.5, medianprops={"color": BLUE})
            means = [fmean(one) for one in values]
            axes.plot(at, means, "o", color=BLUE, label="ours, mean")
            paper = [PAPER[kind, metric][regime.value][place][1] for _, regime, _ in lines]
            axes.plot(at, paper, "*", color=VERMILION, markersize=10, label="paper, mean")
            axes.axhline(means[0], color=GREY, linewidth=0.8, linestyle=":")
            axes.set_xticks(at, [name.replace(", ", "\n") for name, _, _ in lines], fontsize=7)
            axes.set_title(f"{plural}, {load} transfers")
            axes.set_ylabel(f"{metric} [{unit}], at the paper's scale")
            axes.margins(y=0.1)
            axes.set_ylim(bottom=0)
    legend_below(figure, grid[0][0])
    return figure


def _expected_s(full: bool) -> float:
    scale = Scale(1.0, TIME)  # rates make no difference to times
    testbeds = [_cases(full)] + ([[FAST]] if full else [])
    return sum(
        building.BUILD_S + scenario.NETWORK_S + sum(scale.expected_s(case) for case in wanted)
        for wanted in testbeds
    )


EXPERIMENT: Final = Experiment(
    name="abu-tair",
    title="A direct link in place of a spine's, shared in three ways",
    source="Abu-Tair et al., Photonics 2019, sections 3 and 4, Tables 1 to 4, Fig. 4 to 9",
    topology="configs/leaf-spine.yaml: six racks in two clusters with two uplinks each, the second "
    "of which ends at an optical switch, and from there at a spine or at the direct link; mirrors "
    f"take what the paper's links do to move, {scenario.PAPER_MOVE_S:g} s by its Table 3; times "
    f"× {TIME:.2g}, sizes by rates and times",
    workload="24, 48 and 72 TCP transfers from three racks to three, seven of 250 MB to one of "
    "3 GB; all begin together (short: 24, and hitless only on demand)",
    policy="none: all through the spine; UT and DT: the controller's undifferentiated and "
    "differentiated sharing of one direct link, an epoch of 10 s; on demand: of one a pair. "
    "Hitless, and as published",
    measured="throughput and completion time of each transfer, told by its receiver",
    needs_data_plane=True,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
