"""Helios' patterns with TCP (Fig. 8 to 13): throughput by stability.

Also the effect of conditions that keep ports down, and the loss with bidirectional circuits.


:mod:`~mininet_scenarios.experiments.helios.patterns` plans for the same patterns without a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from matplotlib.figure import Figure

from hydra.policy import Transition
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.experiments.helios import stability_scenario
from mininet_scenarios.experiments.helios.patterns import LOOP_S, PORT_UP_S, STABILITIES_S
from mininet_scenarios.experiments.helios.stability_scenario import (
    GRID_S,
    PATTERNS,
    Case,
    Length,
    Run,
)
from mininet_scenarios.experiments.scaling import Scale
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

BUSIEST_MBPS: Final = 160_000.0
"""Traffic of all hosts, over all uplinks of their pods."""
_PAPER_MBPS: Final = 10_000.0
FULL: Final = Length(least_s=12.0, least_periods=3)
SHORT: Final = Length(least_s=3.0, least_periods=3)
_USUAL_S: Final = 4.0
"""Stability of Fig. 8 to 10."""
_SHORT_USUAL_S: Final = 2.0
"""Stability in its place in the short form."""
_FAST_S: Final = 1.0
_NEITHER, *_SLOW = PORT_UP_S
_WAYS: Final = (Transition.AS_PUBLISHED, Transition.HITLESS)
_NOISE: Final = 0.05
_BARELY: Final = 1.25
_BOTH_WAYS: Final = "bidirectional"
_HALF: Final = (1.6, 2.4)
"""Range of the ratio of unidirectional to bidirectional circuits if demand is asymmetric."""
_STILL: Final = (
    "As published, a pod goes on sending into circuits whose ports are not up yet, so that nothing "
    "arrives meanwhile; the paper's fell to the packet switch's rate."
)
_DIVERTED: Final = (
    "With HydRA, a change first sends all pairs on the rings of the circuits that move over the "
    "packet switch, and waits until their queues are empty (the split of the loop says for how "
    "long), where as published they lose frames. Random's demand, in which several hosts send to "
    "one, moves circuits about once a second whatever the stability."
)
_PAPER_MANDATORY_MS: Final = 96.5
_PAPER_OPTIONAL_MS: Final = 168.4
_MANDATORY: Final = ("estimate", "plan")
_OPTIONAL: Final = (
    *("divert", "drain", "push", "move", "carrier", "announce", "probe", "activate"),
)
_PATTERN_COLOURS: Final = dict(zip(PATTERNS, (BLUE, GREEN, VERMILION), strict=True))


@dataclass(frozen=True, slots=True)
class Stability:
    """A repetition: its runs."""

    scale: Scale
    runs: tuple[Run, ...]

    def find(self, case: Case) -> Run | None:
        wanted = case.pattern, case.stability_s, case.way, case.port_up, case.circuits
        return next(
            (
                run
                for run in self.runs
                if (run.pattern, run.stability_s, run.way, run.port_up, run.circuits) == wanted
            ),
            None,
        )


def full_cases() -> list[Case]:
    """Cases of the full form.

    Fig. 11 in both ways, the packet switch alone, PStride with ports that come up late, and with
    bidirectional circuits (Fig. 12).
    """
    cases = [Case(pattern, _USUAL_S, None) for pattern in PATTERNS]
    for transition in _WAYS:
        cases += [
            Case(pattern, stability_s, transition)
            for pattern in PATTERNS
            for stability_s in STABILITIES_S
        ]
    cases += [_both_ways(_USUAL_S, transition) for transition in _WAYS]
    return cases + [
        Case("PStride", stability_s, transition, port_up)
        for port_up in _SLOW
        for transition in _WAYS
        for stability_s in (_FAST_S, _USUAL_S)
    ]


def _both_ways(stability_s: float, transition: Transition) -> Case:
    return Case("PStride", stability_s, transition, circuits=_BOTH_WAYS)


def short_cases() -> list[Case]:
    published, hitless = Transition.AS_PUBLISHED, Transition.HITLESS
    return [
        Case("PStride", _SHORT_USUAL_S, None),
        Case("PStride", _FAST_S, published),
        Case("PStride", _SHORT_USUAL_S, published),
        Case("HStride", _SHORT_USUAL_S, published),
        Case("PStride", _SHORT_USUAL_S, hitless),
        Case("PStride", _SHORT_USUAL_S, published, _SLOW[-1]),
        _both_ways(_SHORT_USUAL_S, published),
    ]


def _plan(full: bool) -> tuple[Length, list[Case]]:
    return (FULL, full_cases()) if full else (SHORT, short_cases())


def _measure(setting: Setting, narrator: Narrator) -> Stability:
    length, cases = _plan(setting.full)
    return measure(setting, length, cases, narrator)


def measure(
    setting: Setting, length: Length, cases: Sequence[Case], narrator: Narrator
) -> Stability:
    """Play these cases, on one testbed for each way that ports come up."""
    runs, scale = [], setting.rates.scale(BUSIEST_MBPS)
    for number, (port_up, port_up_s) in enumerate(PORT_UP_S.items()):
        wanted = [case for case in cases if case.port_up == port_up]
        if not wanted:
            continue
        directory = setting.work_dir / f"stage-{number}"
        rates = 1 / scale.divisor
        with stability_scenario.stage_of(rates, port_up_s, directory, narrator) as stage:
            for circuits in dict.fromkeys(case.circuits for case in wanted):
                with stability_scenario.with_circuits(stage, circuits) as view:
                    runs += [
                        stability_scenario.run(view, case, length, setting.seed, narrator)
                        for case in wanted
                        if case.circuits == circuits
                    ]
    return Stability(scale, tuple(runs))


# --- conclusions ------------------------------------------------------------------------------


def _mbps(found: Sequence[Stability], case: Case) -> float | None:
    """Mean throughput of all repetitions; None for a case not run."""
    runs = [one.find(case) for one in found]
    rates = [run.mbps for run in runs if run is not None]
    return fmean(rates) if rates else None


def _usual_s(one: Stability) -> float:
    """Stability at which the packet switch alone was measured, and with which it is compared."""
    alone = (run.stability_s for run in one.runs if run.way == Case("", 0.0, None).way)
    return next(alone, _USUAL_S)


def _conclude(found: Sequence[Stability]) -> Findings:
    rows = [found[0].scale.row(_PAPER_MBPS, "circuits")]
    for transition in _WAYS:
        rows += _stability_rows(found, transition)
        rows += _stride_rows(found, transition)
        rows += _one_way_rows(found, transition)
        rows += _port_up_rows(found, transition)
        rows += _alone_rows(found, transition)
    rows += _hitless_rows(found)
    rows += _loop_rows(found)
    dark = sum(
        run.dark_frames for one in found for run in one.runs if run.way == Transition.HITLESS.value
    )
    rows.append(Row("hydra: frames at dark OCS ports", "", str(dark), target="0", met=dark == 0))
    return Findings(tuple(rows), (_table(found), _loop_table(found)))


def _name(transition: Transition) -> str:
    return "hydra" if transition is Transition.HITLESS else "as published"


def _series(
    found: Sequence[Stability], pattern: str, transition: Transition
) -> list[tuple[float, float]]:
    rates = [(s, _mbps(found, Case(pattern, s, transition))) for s in STABILITIES_S]
    return [(stability_s, rate) for stability_s, rate in rates if rate is not None]


def _stability_rows(found: Sequence[Stability], transition: Transition) -> Iterator[Row]:
    for pattern in PATTERNS:
        series = _series(found, pattern, transition)
        if len(series) < 2:
            continue
        (first_s, first), (last_s, last) = series[0], series[-1]
        yield Row(
            f"{_name(transition)}: {pattern}, from {first_s:g} to {last_s:g} s",
            "rises (Fig. 11)",
            ", ".join(f"{rate:.0f}" for _, rate in series) + " Mb/s",
            target="more at the end",
            met=last > first,
        )


def _stride_rows(found: Sequence[Stability], transition: Transition) -> Iterator[Row]:
    pod, host = (dict(_series(found, name, transition)) for name in ("PStride", "HStride"))
    ratios = [host[stability_s] / pod[stability_s] for stability_s in pod if stability_s in host]
    if ratios:
        yield Row(
            f"{_name(transition)}: HStride over PStride, mean of {len(ratios)} stabilities",
            "≥ 1, generally (5.3)",
            f"{fmean(ratios):.2f}",
            target="≥ 1",
            met=fmean(ratios) >= 1,
            why="HStride moves on by one host at a time, so that most circuits stay.",
        )


def _one_way_rows(found: Sequence[Stability], transition: Transition) -> Iterator[Row]:
    """Rows of Fig. 12."""
    usual_s = _usual_s(found[0])
    one_way, both_ways = (
        [run for one in found if (run := one.find(case)) is not None]
        for case in (Case("PStride", usual_s, transition), _both_ways(usual_s, transition))
    )
    if not one_way or not both_ways:
        return

    def ratio(series: Callable[[Run], Sequence[float]]) -> float:
        one, other = (
            fmean(stability_scenario.asymmetric_mbps(series(run), usual_s) for run in runs)
            for runs in (one_way, both_ways)
        )
        return one / other

    carried = ratio(lambda run: run.on_circuits)
    what = f"unidirectional over bidirectional, PStride at {usual_s:g} s, asymmetric periods"
    yield Row(
        f"{_name(transition)}: carried by circuits, {what}",
        "2: half as efficient (5.4, Fig. 12)",
        f"{carried:.2f}",
        carried / 2,
        target=f"{_HALF[0]:g} to {_HALF[1]:g}",
        met=_HALF[0] <= carried <= _HALF[1],
        why="Of the two directions of a bidirectional circuit one carries acknowledgements alone.",
    )
    received = ratio(lambda run: run.series)
    yield Row(
        f"{_name(transition)}: received in all, {what}",
        "2 (Fig. 12)",
        f"{received:.2f}",
        received / 2,
        why="Pods that bidirectional circuits leave out send by the packet switch, which is a "
        "quarter of a pod's uplinks here: 40 of 40 against 26.7, where all circuits are full.",
    )


def _port_up_rows(found: Sequence[Stability], transition: Transition) -> Iterator[Row]:
    for stability_s in (_FAST_S, _usual_s(found[0])):
        rates = {
            port_up: rate
            for port_up in PORT_UP_S
            if (rate := _mbps(found, Case("PStride", stability_s, transition, port_up))) is not None
        }
        if len(rates) < 2:
            continue
        values = list(rates.values())
        yield Row(
            f"{_name(transition)}: PStride at {stability_s:g} s, ports up at once, and with "
            + ", ".join(port_up for port_up in rates if port_up != _NEITHER),
            "falls (Fig. 8 to 10)",
            ", ".join(f"{rate:.0f}" for rate in values) + " Mb/s",
            target="most at once",
            met=values[0] == max(values),
        )


def _alone_rows(found: Sequence[Stability], transition: Transition) -> Iterator[Row]:
    """Comparison with the packet switch alone: what slow ports leave, and that ours is no worse."""
    usual_s = _usual_s(found[0])
    alone = _mbps(found, Case("PStride", usual_s, None))
    slow = _mbps(found, Case("PStride", _FAST_S, transition, _SLOW[-1]))
    if alone is not None and slow is not None and transition is Transition.AS_PUBLISHED:
        yield Row(
            f"as published: PStride at {_FAST_S:g} s, {_SLOW[-1]}, over the packet switch alone at "
            f"{usual_s:g} s",
            "barely above 1 (5.2)",
            f"{slow / alone:.2f}",
            target=f"< {_BARELY:g}: no use",
            met=slow / alone < _BARELY,
            why=_STILL,
        )
    if transition is Transition.AS_PUBLISHED:
        return
    for pattern in PATTERNS:
        packets = _mbps(found, Case(pattern, usual_s, None))
        for port_up in PORT_UP_S:
            ours = _mbps(found, Case(pattern, usual_s, transition, port_up))
            if packets is not None and ours is not None:
                yield Row(
                    f"hydra: {pattern} at {usual_s:g} s, {port_up}, over the packet switch alone",
                    "",
                    f"{ours / packets:.2f}",
                    target=f"≥ {1 - _NOISE:g}",
                    met=ours / packets >= 1 - _NOISE,
                )


def _hitless_rows(found: Sequence[Stability]) -> Iterator[Row]:
    """Cost of moving without loss if flows shift all the time."""
    for pattern in PATTERNS:
        published, hitless = (
            dict(_series(found, pattern, transition))
            for transition in (Transition.AS_PUBLISHED, Transition.HITLESS)
        )
        both = [s for s in published if s in hitless]
        if both:
            yield Row(
                f"hydra over as published, {pattern}, from {both[0]:g} to {both[-1]:g} s",
                "",
                ", ".join(f"{hitless[s] / published[s]:.2f}" for s in both),
                why=_DIVERTED,
            )
    dark = [
        run.dark_frames
        for one in found
        for run in one.runs
        if run.way == Transition.AS_PUBLISHED.value
    ]
    if dark:
        yield Row("as published: frames at dark OCS ports, all runs", "", str(sum(dark)))


def _loops(found: Sequence[Stability], transition: Transition) -> Mapping[str, float]:
    """Mean of each step over all runs that changed something."""
    runs = [
        run.loop_ms
        for one in found
        for run in one.runs
        if run.way == transition.value
        and run.changes
        and (run.port_up, run.circuits) == (_NEITHER, "unidirectional")
    ]
    steps = (*_MANDATORY, *_OPTIONAL)
    return {
        step: fmean([run[step] for run in runs if step in run])
        for step in steps
        if any(step in run for run in runs)
    }


def _loop_rows(found: Sequence[Stability]) -> Iterator[Row]:
    """Rows of Fig. 13: measuring and planning always, the rest if something changes."""
    for transition in _WAYS:
        loop = _loops(found, transition)
        if not loop:
            continue
        for what, steps, paper_ms in (
            ("every cycle", _MANDATORY, _PAPER_MANDATORY_MS),
            ("where the topology changes", _OPTIONAL, _PAPER_OPTIONAL_MS),
        ):
            ours_ms = sum(loop.get(step, 0.0) for step in steps)
            yield Row(
                f"{_name(transition)}: control loop, {what}",
                f"{paper_ms:g} ms",
                f"{ours_ms:.1f} ms",
                ours_ms / paper_ms,
                why="Counters are read all the time, apart from the loop, so that reading them is "
                "no part of ours; what passes until a new demand shows in them is.",
            )


def _table(found: Sequence[Stability]) -> Table:
    kinds = list(
        dict.fromkeys((run.pattern, run.way, run.port_up, run.circuits) for run in found[0].runs)
    )

    def cell(pattern: str, way: str, port_up: str, circuits: str, stability_s: float) -> str:
        rates = [
            run.mbps
            for one in found
            for run in one.runs
            if (run.pattern, run.way, run.port_up, run.circuits)
            == (pattern, way, port_up, circuits)
            and run.stability_s == stability_s
        ]
        return f"{fmean(rates):.1f}" if rates else ""

    return Table(
        "Received by all hosts, Mb/s, by stability; ports are up after light by "
        + ", ".join(f"{seconds:g} s ({name})" for name, seconds in PORT_UP_S.items()),
        (
            "pattern",
            "way",
            "ports",
            "circuits",
            *(f"{stability_s:g} s" for stability_s in STABILITIES_S),
        ),
        tuple(
            (*kind, *(cell(*kind, stability_s) for stability_s in STABILITIES_S)) for kind in kinds
        ),
    )


def _loop_table(found: Sequence[Stability]) -> Table:
    loops = {transition: _loops(found, transition) for transition in _WAYS}
    steps = [step for step in (*_MANDATORY, *_OPTIONAL) if any(step in x for x in loops.values())]
    return Table(
        "Split of the control loop (Fig. 13), mean ms of each step",
        ("step", *(_name(transition) for transition in loops)),
        tuple(
            (step, *(f"{loop[step]:.1f}" if step in loop else "" for loop in loops.values()))
            for step in steps
        ),
    )


def _draw(found: Sequence[Stability], directory: Path) -> Sequence[Path]:
    written = [directory / "stability.png", directory / "port-up.png"]
    _stability_figure(found).savefig(written[0])
    _time_figure(found[0]).savefig(written[1])
    return written


def _stability_figure(found: Sequence[Stability]) -> Figure:
    """Plot as Fig. 11."""
    figure = Figure(figsize=(8.0, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for pattern, colour in _PATTERN_COLOURS.items():
        for transition, style in ((Transition.AS_PUBLISHED, "o--"), (Transition.HITLESS, "s-")):
            series = _series(found, pattern, transition)
            if series:
                label = f"{pattern}, {_name(transition)}"
                axes.plot(*zip(*series, strict=True), style, color=colour, label=label)
        alone = _mbps(found, Case(pattern, _usual_s(found[0]), None))
        if alone is not None:
            axes.axhline(alone, color=colour, linestyle=":", linewidth=0.8)
    logarithmic(axes, sorted({run.stability_s for one in found for run in one.runs}))
    axes.set_xlabel("stability [s]; dotted: the packet switch alone")
    axes.set_ylabel("received by all hosts [Mb/s]")
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    return figure


def _time_figure(one: Stability) -> Figure:
    """Plots as Fig. 8 to 10: PStride over time."""
    usual_s = _usual_s(one)
    figure = Figure(figsize=(8.0, 7.0), dpi=150, layout="constrained")
    panels = figure.subplots(len(PORT_UP_S), 1, sharex=True, sharey=True)
    for axes, port_up in zip(panels, PORT_UP_S, strict=True):
        for transition, colour in (
            (Transition.AS_PUBLISHED, VERMILION),
            (Transition.HITLESS, BLUE),
        ):
            run = one.find(Case("PStride", usual_s, transition, port_up))
            if run is not None:
                times = [(number + 0.5) * GRID_S for number in range(len(run.series))]
                axes.plot(times, run.series, color=colour, label=_name(transition))
        alone = one.find(Case("PStride", usual_s, None))
        if alone is not None:
            axes.axhline(alone.mbps, color=GREY, linestyle=":", label="packets alone")
        axes.set_title(f"PStride at {usual_s:g} s, {port_up}")
        axes.set_ylabel("[Mb/s]")
        axes.set_ylim(bottom=0)
    legend_below(figure, panels[0])
    panels[-1].set_xlabel("time [s]")
    return figure


def _expected_s(full: bool) -> float:
    length, cases = _plan(full)
    testbeds = len({case.port_up for case in cases})
    controllers = len({(case.port_up, case.circuits) for case in cases})
    starts_s = testbeds * building.BUILD_S + controllers * stability_scenario.CONTROLLER_S
    return starts_s + sum(length.expected_s(case.stability_s) for case in cases)


EXPERIMENT: Final = Experiment(
    name="helios-stability",
    title="Flows that shift, on the data plane",
    source="Farrington et al., Helios, SIGCOMM 2010, section 5, Fig. 8 to 13",
    topology="configs/helios.yaml: four pods of four hosts, three optical switches and a packet "
    "link a pod; times as in the paper",
    workload="PStride, HStride and Random: 64 TCP flows, to new destinations every 0.5 to 16 s "
    "(short: PStride and HStride, 1 and 2 s)",
    policy=f"by-demand every {1e3 * stability_scenario.LOOP_S:g} ms "
    f"(Helios: {1e3 * LOOP_S:.0f} ms), "
    "unidirectional circuits (helios), up to three a pair, and bidirectional ones (edmonds) for "
    "comparison; as published, and hitless",
    measured="what all hosts receive; each step of the control loop, from the controller's metrics",
    needs_data_plane=True,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
