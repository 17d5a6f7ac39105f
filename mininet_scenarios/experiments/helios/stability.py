"""Helios' patterns with TCP (Fig. 8 to 13): throughput by stability.

Also the effect of conditions that keep ports down, and the loss with bidirectional circuits.
:mod:`~mininet_scenarios.experiments.helios.patterns` plans for the same patterns without a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Final

from matplotlib.figure import Figure

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.claims import judged
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
"""Stability of Fig. 8 to 10 in the short form."""
_FAST_S: Final = 1.0
_JUDGED_S: Final = (_FAST_S, _USUAL_S)
"""Stabilities played with ports that come up late."""
_NEITHER, *_SLOW = PORT_UP_S
_CYCLES: Final = (CycleName.AS_PUBLISHED, CycleName.HITLESS)
"""Cycles of all cases; the third, undiverted, is PStride's alone."""
_NOISE: Final = 0.05
_BARELY_BELOW_S: Final = 4.0
"""Stabilities below which debounce and EDC leave hardly more than the packet switch (5.2)."""
_BOTH_WAYS: Final = "bidirectional"
_STILL: Final = (
    "NOTIFY UP follows the mirrors, not the ports (4.3.4): a pod sends into circuits whose ports "
    "are not up yet, and nothing arrives. Pods that send into ports that are down can at most have "
    "{most:.2f} of the packet switch's throughput at this stability, with the paper's five "
    "circuits {fives:.2f}: so the paper's figure is one of pods that keep to the packet switch "
    "until ports are up, as with HydRA, whose row of the same stability lies in the band."
)
_DIVERTED: Final = (
    "With HydRA, a change also waits until the queues of circuits that move are empty, until ports "
    "are up, and until probes come through (the split of the loop says for how long). Random's "
    "demand, in which several hosts send to one, moves circuits about once a second whatever the "
    "stability."
)
_LOOP: Final = (
    "Counters are read all the time, apart from the loop, so that reading counters is no part of "
    "our loop; the time until a new demand shows in counters is."
)
_MANDATORY: Final = ("estimate", "plan")
_OPTIONAL: Final = (
    *("divert", "drain", "push", "move", "carrier", "announce", "probe", "activate"),
)
_PATTERN_COLOURS: Final = dict(zip(PATTERNS, (BLUE, GREEN, VERMILION), strict=True))


@dataclass(frozen=True, slots=True)
class Stability:
    """A repetition with its runs."""

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

    Fig. 11 in both ways, the packet switch alone, PStride with late ports, and with bidirectional
    circuits (Fig. 12).
    """
    cases = [Case(pattern, _USUAL_S, None) for pattern in PATTERNS]
    for cycle in _CYCLES:
        cases += [
            Case(pattern, stability_s, cycle)
            for pattern in PATTERNS
            for stability_s in STABILITIES_S
        ]
    cases += [_both_ways(_USUAL_S, cycle) for cycle in _CYCLES]
    cases += [Case("PStride", stability_s, CycleName.UNDIVERTED) for stability_s in _JUDGED_S]
    return cases + [
        Case("PStride", stability_s, cycle, port_up)
        for port_up in _SLOW
        for cycle in (*_CYCLES, CycleName.UNDIVERTED)
        for stability_s in _JUDGED_S
    ]


def _both_ways(stability_s: float, cycle: CycleName) -> Case:
    return Case("PStride", stability_s, cycle, circuits=_BOTH_WAYS)


def short_cases() -> list[Case]:
    published, hitless = CycleName.AS_PUBLISHED, CycleName.HITLESS
    return [
        Case("PStride", _SHORT_USUAL_S, None),
        Case("PStride", _FAST_S, published),
        Case("PStride", _SHORT_USUAL_S, published),
        Case("HStride", _SHORT_USUAL_S, published),
        Case("PStride", _SHORT_USUAL_S, hitless),
        Case("PStride", _FAST_S, CycleName.UNDIVERTED),
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
    """Play ``cases``, on one testbed for each condition of ports."""
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
    runs = [result.find(case) for result in found]
    rates = [run.mbps for run in runs if run is not None]
    return fmean(rates) if rates else None


def _usual_s(result: Stability) -> float:
    """Stability of the measurement of the packet switch alone, and of comparisons with the packet
    switch.
    """
    alone = (run.stability_s for run in result.runs if run.way == Case("", 0.0, None).way)
    return next(alone, _USUAL_S)


def _conclude(found: Sequence[Stability]) -> Findings:
    rows = [found[0].scale.row(_PAPER_MBPS, "circuits")]
    for cycle in _CYCLES:
        rows += _stability_rows(found, cycle)
        rows += _stride_rows(found, cycle)
        rows += _one_way_rows(found, cycle)
        rows += _port_up_rows(found, cycle)
        rows += _alone_rows(found, cycle)
    rows += _unjudged_rows(found)
    rows += _hitless_rows(found)
    rows += _loop_rows(found)
    dark = sum(
        run.dark_frames
        for result in found
        for run in result.runs
        if run.way == CycleName.HITLESS.value
    )
    rows.append(Row("hydra: frames at dark OCS ports", "", str(dark), target="0", met=dark == 0))
    return Findings(tuple(rows), (_table(found), _loop_table(found)))


_NAMES: Final = {
    CycleName.AS_PUBLISHED: "as published",
    CycleName.HITLESS: "hydra",
    CycleName.UNDIVERTED: "undiverted",
}


def _name(cycle: CycleName) -> str:
    return _NAMES[cycle]


def _row(
    cycle: CycleName, key: str, value: float, figure: str, ours: str = "", why: str = ""
) -> Row:
    """A row judged by the claim ``key`` in the paper's own cycle, and unjudged in other cycles."""
    if cycle is CycleName.AS_PUBLISHED:
        return judged(f"helios/{key}", value, figure, ours, why)
    return Row(figure, "", ours or f"{value:.2f}")


def _series(
    found: Sequence[Stability], pattern: str, cycle: CycleName
) -> list[tuple[float, float]]:
    rates = [(s, _mbps(found, Case(pattern, s, cycle))) for s in STABILITIES_S]
    return [(stability_s, rate) for stability_s, rate in rates if rate is not None]


def _stability_rows(found: Sequence[Stability], cycle: CycleName) -> Iterator[Row]:
    for pattern in PATTERNS:
        series = _series(found, pattern, cycle)
        if len(series) < 2:
            continue
        (first_s, first), (last_s, last) = series[0], series[-1]
        figure = f"{_name(cycle)}: {pattern}, from {first_s:g} to {last_s:g} s"
        ours = ", ".join(f"{rate:.0f}" for _, rate in series) + " Mb/s"
        yield _row(cycle, f"rises TCP {pattern}", last / first, figure, ours)


def _stride_rows(found: Sequence[Stability], cycle: CycleName) -> Iterator[Row]:
    pod, host = (dict(_series(found, name, cycle)) for name in ("PStride", "HStride"))
    ratios = [host[stability_s] / pod[stability_s] for stability_s in pod if stability_s in host]
    if ratios:
        figure = f"{_name(cycle)}: HStride over PStride, mean of {len(ratios)} stabilities"
        yield _row(cycle, "strides TCP", fmean(ratios), figure)


def _one_way_rows(found: Sequence[Stability], cycle: CycleName) -> Iterator[Row]:
    """Rows of Fig. 12."""
    usual_s = _usual_s(found[0])
    one_way, both_ways = (
        [run for result in found if (run := result.find(case)) is not None]
        for case in (Case("PStride", usual_s, cycle), _both_ways(usual_s, cycle))
    )
    if not one_way or not both_ways:
        return

    def ratio(series: Callable[[Run], Sequence[float]]) -> float:
        result, other = (
            fmean(stability_scenario.asymmetric_mbps(series(run), usual_s) for run in runs)
            for runs in (one_way, both_ways)
        )
        return result / other

    carried = ratio(lambda run: run.on_circuits)
    what = f"unidirectional over bidirectional, PStride at {usual_s:g} s, asymmetric periods"
    yield _row(cycle, "one-way TCP", carried, f"{_name(cycle)}: carried by circuits, {what}")
    received = ratio(lambda run: run.series)
    yield Row(
        f"{_name(cycle)}: received in all, {what}",
        "",
        f"{received:.2f}",
        why="Pods that bidirectional circuits leave out send by the packet switch, which is a "
        "quarter of a pod's uplinks here: 40 of 40 against 26.7, where all circuits are full.",
    )


def _port_up_rows(found: Sequence[Stability], cycle: CycleName) -> Iterator[Row]:
    for stability_s in (_FAST_S, _usual_s(found[0])):
        rates = {
            port_up: rate
            for port_up in PORT_UP_S
            if (rate := _mbps(found, Case("PStride", stability_s, cycle, port_up))) is not None
        }
        if len(rates) < 2:
            continue
        values = list(rates.values())
        figure = f"{_name(cycle)}: PStride at {stability_s:g} s, ports up at once, and with "
        figure += ", ".join(port_up for port_up in rates if port_up != _NEITHER)
        ours = ", ".join(f"{rate:.0f}" for rate in values) + " Mb/s"
        least = min(sooner / later for sooner, later in pairwise(values))
        if stability_s == _USUAL_S:
            yield _row(cycle, "port-up", least, figure, ours)
        else:
            yield Row(figure, "", f"{least:.2f} ({ours})")


def _alone_rows(found: Sequence[Stability], cycle: CycleName) -> Iterator[Row]:
    """Comparison with the packet switch alone: the throughput with slow ports, and a check that
    ours is no worse.
    """
    usual_s = _usual_s(found[0])
    if cycle is CycleName.AS_PUBLISHED:
        yield from _debounced_rows(found, cycle, (_FAST_S, usual_s))
        return
    for pattern in PATTERNS:
        packets = _mbps(found, Case(pattern, usual_s, None))
        for port_up in PORT_UP_S:
            ours = _mbps(found, Case(pattern, usual_s, cycle, port_up))
            if packets is not None and ours is not None:
                yield Row(
                    f"hydra: {pattern} at {usual_s:g} s, {port_up}, over the packet switch alone",
                    "",
                    f"{ours / packets:.2f}",
                    target=f"≥ {1 - _NOISE:g}",
                    met=ours / packets >= 1 - _NOISE,
                )


def into_the_dark(stability_s: float, circuits: int) -> float:
    """Greatest throughput of pods that send into ports while down, relative to the packet switch's.

    Each period begins on the packet switch, for one control loop. Then nothing arrives until the
    ports are up. ``circuits`` uplinks of the packet switch's rate carry the rest of the period.
    """
    lit_s = max(0.0, stability_s - LOOP_S - PORT_UP_S[_SLOW[-1]])
    return (min(stability_s, LOOP_S) + circuits * lit_s) / stability_s


def _debounced_rows(
    found: Sequence[Stability], cycle: CycleName, stabilities_s: Sequence[float]
) -> Iterator[Row]:
    usual_s = _usual_s(found[0])
    alone = _mbps(found, Case("PStride", usual_s, None))
    for stability_s in stabilities_s:
        slow = _mbps(found, Case("PStride", stability_s, cycle, _SLOW[-1]))
        if alone is None or slow is None:
            continue
        figure = f"{_name(cycle)}: PStride at {stability_s:g} s, {_SLOW[-1]}, over the packet "
        figure += f"switch alone at {usual_s:g} s"
        if stability_s < _BARELY_BELOW_S:
            most, fives = (into_the_dark(stability_s, circuits) for circuits in (3, 5))
            why = _STILL.format(most=most, fives=fives)
            yield _row(cycle, "debounced TCP", slow / alone, figure, why=why)
        else:
            yield Row(figure, "", f"{slow / alone:.2f}")


def _unjudged_rows(found: Sequence[Stability]) -> Iterator[Row]:
    """Rows of cycles other than the paper's, for comparison with the claims' rows."""
    yield from _debounced_rows(found, CycleName.HITLESS, (_FAST_S,))
    yield from _debounced_rows(found, CycleName.UNDIVERTED, (_FAST_S, _usual_s(found[0])))
    for stability_s in _JUDGED_S:
        rate, published = (
            _mbps(found, Case("PStride", stability_s, cycle))
            for cycle in (CycleName.UNDIVERTED, CycleName.AS_PUBLISHED)
        )
        if rate is not None and published is not None:
            yield Row(
                f"undiverted over as published, PStride at {stability_s:g} s",
                "",
                f"{rate / published:.2f}",
            )


def _hitless_rows(found: Sequence[Stability]) -> Iterator[Row]:
    """Cost of moving without loss if flows shift all the time."""
    for pattern in PATTERNS:
        published, hitless = (
            dict(_series(found, pattern, cycle))
            for cycle in (CycleName.AS_PUBLISHED, CycleName.HITLESS)
        )
        both = [s for s in published if s in hitless]
        if both:
            yield Row(
                f"hydra over as published, {pattern}, from {both[0]:g} to {both[-1]:g} s",
                "",
                ", ".join(f"{hitless[s] / published[s]:.2f}" for s in both),
                why=_DIVERTED,
            )
    for cycle in (CycleName.AS_PUBLISHED, CycleName.UNDIVERTED):
        dark = [
            run.dark_frames for result in found for run in result.runs if run.way == cycle.value
        ]
        if dark:
            yield Row(f"{_name(cycle)}: frames at dark OCS ports, all runs", "", str(sum(dark)))


def _loops(found: Sequence[Stability], cycle: CycleName) -> Mapping[str, float]:
    """Mean of each step over all runs with changes."""
    runs = [
        run.loop_ms
        for result in found
        for run in result.runs
        if run.way == cycle.value
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
    for cycle in _CYCLES:
        loop = _loops(found, cycle)
        if not loop:
            continue
        for key, what, steps in (
            ("mandatory", "every cycle", _MANDATORY),
            ("optional", "where the topology changes", _OPTIONAL),
        ):
            ours_ms = sum(loop.get(step, 0.0) for step in steps)
            figure, ours = f"{_name(cycle)}: control loop, {what}", f"{ours_ms:.1f} ms"
            yield _row(cycle, key, ours_ms, figure, ours, _LOOP)


def _table(found: Sequence[Stability]) -> Table:
    kinds = list(
        dict.fromkeys((run.pattern, run.way, run.port_up, run.circuits) for run in found[0].runs)
    )

    def cell(pattern: str, way: str, port_up: str, circuits: str, stability_s: float) -> str:
        rates = [
            run.mbps
            for result in found
            for run in result.runs
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
    loops = {cycle: _loops(found, cycle) for cycle in _CYCLES}
    steps = [step for step in (*_MANDATORY, *_OPTIONAL) if any(step in x for x in loops.values())]
    return Table(
        "Split of the control loop (Fig. 13), mean ms of each step",
        ("step", *(_name(cycle) for cycle in loops)),
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
        for cycle, style in ((CycleName.AS_PUBLISHED, "o--"), (CycleName.HITLESS, "s-")):
            series = _series(found, pattern, cycle)
            if series:
                label = f"{pattern}, {_name(cycle)}"
                axes.plot(*zip(*series, strict=True), style, color=colour, label=label)
        alone = _mbps(found, Case(pattern, _usual_s(found[0]), None))
        if alone is not None:
            axes.axhline(alone, color=colour, linestyle=":", linewidth=0.8)
    logarithmic(axes, sorted({run.stability_s for result in found for run in result.runs}))
    axes.set_xlabel("stability [s]; dotted: the packet switch alone")
    axes.set_ylabel("received by all hosts [Mb/s]")
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    return figure


def _time_figure(result: Stability) -> Figure:
    """Plots as Fig. 8 to 10: PStride over time."""
    usual_s = _usual_s(result)
    figure = Figure(figsize=(8.0, 7.0), dpi=150, layout="constrained")
    panels = figure.subplots(len(PORT_UP_S), 1, sharex=True, sharey=True)
    for axes, port_up in zip(panels, PORT_UP_S, strict=True):
        for cycle, colour in (
            (CycleName.AS_PUBLISHED, VERMILION),
            (CycleName.HITLESS, BLUE),
            (CycleName.UNDIVERTED, GREEN),
        ):
            run = result.find(Case("PStride", usual_s, cycle, port_up))
            if run is not None:
                times = [(number + 0.5) * GRID_S for number in range(len(run.series))]
                axes.plot(times, run.series, color=colour, label=_name(cycle))
        alone = result.find(Case("PStride", usual_s, None))
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
    controllers = len({(case.port_up, case.circuits, case.cycle) for case in cases})
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
    "comparison; as published, hitless, and undiverted",
    measured="traffic that all hosts receive; each step of the control loop, from the "
    "controller's metrics",
    needs_data_plane=True,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
