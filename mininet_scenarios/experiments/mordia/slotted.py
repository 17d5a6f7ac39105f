"""Mordia's slots with TCP: throughput of two pairs that share a port by a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from matplotlib.figure import Figure

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.claims import judged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.experiments.mordia import slotted_scenario
from mininet_scenarios.experiments.mordia.slotted_scenario import (
    PAIRS,
    USUAL,
    Length,
    Shared,
    Worth,
)
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREY, VERMILION, legend_below, logarithmic
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage import building
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

_PAPER_MBPS: Final = 10_000.0
"""Rate of a circuit, and of all traffic together, over one port."""
FULL_SLOTS_S: Final = (0.5, 1.0, 2.0, 4.0)
SHORT_SLOTS_S: Final = (1.0, 2.0)
_SHORT: Final = Length(least_s=4, periods=2)
_SETUP_S: Final = 4.0
_EACH_S: Final = 2.5
"""Time of a run besides the sending."""
_WAYS: Final = {CycleName.AS_PUBLISHED: "as published", CycleName.HITLESS: "hydra"}
_DUTY_NOISE: Final = 0.05
_PAPER_NIGHT_US: Final = 11.5
_ALIKE: Final = 0.02
"""Largest difference of duty cycles for slots to be judged by the paper's slots."""
_WHY: Final = (
    "Slots compare by their duty cycle, {theirs:.1%} there and {ours:.1%} here. There, end hosts "
    "hold their packets back by night; here a pair goes on over the electrical network, at a tenth "
    "of the rate, and TCP grows again by day."
)
_WHY_MORE: Final = (
    "A change with HydRA begins by diverting: at each night a window that filled a circuit meets "
    "the queue of a link of a tenth of its rate, which can't hold it. As published, a pair sends "
    "into the dark for a while instead."
)


@dataclass(frozen=True, slots=True)
class Slotted:
    """A repetition with its runs."""

    scale: Scale
    worth: Worth
    runs: tuple[Shared, ...]


def _plan(full: bool) -> tuple[Sequence[float], Length]:
    return (FULL_SLOTS_S, USUAL) if full else (SHORT_SLOTS_S, _SHORT)


def _measure(setting: Setting, narrator: Narrator) -> Slotted:
    return measure(setting, *_plan(setting.full), list(_WAYS), narrator)


def measure(
    setting: Setting,
    slots_s: Sequence[float],
    length: Length,
    cycles: Sequence[CycleName],
    narrator: Narrator,
) -> Slotted:
    """Run slots of each length, with each cycle, on one testbed."""
    scale = setting.rates.scale(_PAPER_MBPS)
    times = building.times_its_rates(scale.mbps(_PAPER_MBPS))
    runs: list[Shared] = []
    with building.stage_of(DEFAULT_CONFIG, times, setting.work_dir / "stage", narrator) as stage:
        with narrator.phase("without slots", _SETUP_S + _baselines_s(length)):
            worth = slotted_scenario.baselines(stage, length.least_s)
        narrator.say(
            f"electrically {worth.electrical:.1f} Mb/s, one on a circuit "
            f"{worth.one_on_circuit:.1f} Mb/s"
        )
        for cycle in cycles:
            # A new controller for each cycle: a controller remembers the length of nights.
            with stage.one_controller(calm=False):
                runs += [_run(stage, slot_s, cycle, length, narrator) for slot_s in slots_s]
    return Slotted(scale, worth, tuple(runs))


def _run(
    stage: Stage, slot_s: float, cycle: CycleName, length: Length, narrator: Narrator
) -> Shared:
    title = f"slots of {slot_s:g} s, {_WAYS[cycle]}"
    with narrator.phase(title, _shared_s(slot_s, length)):
        run = slotted_scenario.shared(stage, slot_s, cycle, length)
    narrator.say(f"{title}: {run.mbps:.1f} Mb/s, duty cycle {run.duty_cycle:.2f}")
    return run


def _baselines_s(length: Length) -> float:
    return 2 * (length.least_s + 1)


def _shared_s(slot_s: float, length: Length) -> float:
    return _EACH_S + length.seconds(slot_s)


# --- conclusions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """Slots of one length in one way; means of all repetitions."""

    way: str
    slot_s: float
    mbps: float
    expected_mbps: float
    """Throughput by the formula, at the measured duty cycle."""
    share: float
    """Throughput relative to the same two flows with one flow on a circuit all the time."""
    duty_cycle: float
    formula: float
    retransmits: float
    dark_frames: int


def _lines(found: Sequence[Slotted], cycle: CycleName) -> list[_Line]:
    lengths = dict.fromkeys(
        run.slot_s for measured in found for run in measured.runs if run.cycle == cycle.value
    )
    return [_line(found, cycle, slot_s) for slot_s in lengths]


def _line(found: Sequence[Slotted], cycle: CycleName, slot_s: float) -> _Line:
    wanted = cycle.value, slot_s
    runs = [
        (measured.worth, run)
        for measured in found
        for run in measured.runs
        if (run.cycle, run.slot_s) == wanted
    ]
    return _Line(
        way=_WAYS[cycle],
        slot_s=slot_s,
        mbps=fmean(run.mbps for _, run in runs),
        expected_mbps=fmean(worth.of(run.duty_cycle) for worth, run in runs),
        share=fmean(run.mbps / worth.one_on_circuit for worth, run in runs),
        duty_cycle=fmean(run.duty_cycle for _, run in runs),
        formula=fmean(run.formula for _, run in runs),
        retransmits=fmean(run.retransmits for _, run in runs),
        dark_frames=sum(run.dark_frames for _, run in runs),
    )


def _conclude(found: Sequence[Slotted]) -> Findings:
    lines = {cycle: _lines(found, cycle) for cycle in _WAYS}
    rows = [found[0].scale.row(_PAPER_MBPS, "circuits")]
    rows += [row for some in lines.values() if some for row in _rows(some)]
    electrical = fmean(measured.worth.electrical for measured in found)
    for line in lines[CycleName.HITLESS]:
        figure = f"hydra: slots of {line.slot_s:g} s, against the electrical network alone"
        ours = f"{line.mbps:.1f} and {electrical:.1f} Mb/s"
        rows.append(Row(figure, "", ours, target="more", met=line.mbps > electrical))
    dark = sum(line.dark_frames for line in lines[CycleName.HITLESS])
    rows.append(Row("hydra: frames at dark OCS ports", "", str(dark), target="0", met=dark == 0))
    return Findings(tuple(rows), (_table([line for some in lines.values() for line in some]),))


def _rows(lines: Sequence[_Line]) -> Iterator[Row]:
    """Rows of a way, the shortest slots first."""
    way = lines[0].way
    for paper_us in (61, 300):  # section 6.3
        duty = 1 - _PAPER_NIGHT_US / paper_us
        line = min(lines, key=lambda line: abs(line.duty_cycle - duty))
        figure = f"{way}: slots of {line.slot_s:g} s, share of what a circuit that stays brings"
        alike = abs(line.duty_cycle - duty) <= _ALIKE
        if way == _WAYS[CycleName.AS_PUBLISHED] and alike:
            why = _WHY.format(theirs=duty, ours=line.duty_cycle)
            yield judged(f"mordia/TCP {paper_us}", line.share, figure, why=why)
        else:
            yield Row(figure, "", f"{line.share:.0%}")
    figure = f"{way}: throughput from {lines[0].slot_s:g} to {lines[-1].slot_s:g} s"
    ours = ", ".join(f"{line.mbps:.1f}" for line in lines) + " Mb/s"
    rise = lines[-1].mbps / lines[0].mbps
    if way == _WAYS[CycleName.AS_PUBLISHED]:
        yield judged("mordia/rises", rise, figure, ours)
    else:
        yield Row(figure, "", ours, target="more at the end", met=rise > 1)
    yield Row(
        f"{way}: segments retransmitted in each run",
        "",
        ", ".join(f"{line.retransmits:.0f}" for line in lines),
        why=_WHY_MORE,
    )
    off = max(abs(line.duty_cycle - line.formula) for line in lines)
    yield Row(
        f"{way}: duty cycle, largest distance from the formula",
        "",
        f"{off:.3f}",
        target=f"≤ {_DUTY_NOISE:g}",
        met=off <= _DUTY_NOISE,
    )


def _table(lines: Sequence[_Line]) -> Table:
    return Table(
        "Slots of each length, mean of all repetitions",
        (
            *("way", "slot", "duty cycle", "by the formula", "Mb/s", "by the formula"),
            *("retransmitted", "frames in the dark"),
        ),
        tuple(
            (
                line.way,
                f"{line.slot_s:g} s",
                f"{line.duty_cycle:.3f}",
                f"{line.formula:.3f}",
                f"{line.mbps:.1f}",
                f"{line.expected_mbps:.1f}",
                f"{line.retransmits:.0f}",
                str(line.dark_frames),
            )
            for line in lines
        ),
    )


def _draw(found: Sequence[Slotted], directory: Path) -> Sequence[Path]:
    figure = Figure(figsize=(10.0, 4.5), dpi=150, layout="constrained")
    throughput, duty = figure.subplots(1, 2, sharex=True)
    for cycle, colour in zip(_WAYS, (VERMILION, BLUE), strict=True):
        lines = _lines(found, cycle)
        lengths = [line.slot_s for line in lines]
        way = _WAYS[cycle]
        throughput.plot(lengths, [line.mbps for line in lines], "o-", color=colour, label=way)
        expected = [line.expected_mbps for line in lines]
        throughput.plot(lengths, expected, ":", color=colour, label=f"{way}, formula")
        duty.plot(lengths, [line.duty_cycle for line in lines], "o-", color=colour, label=way)
        duty.plot(lengths, [line.formula for line in lines], ":", color=colour)
    electrical = fmean(measured.worth.electrical for measured in found)
    throughput.axhline(electrical, color=GREY, linewidth=0.8, label="electrical alone")
    throughput.set_ylabel("both pairs [Mb/s]")
    duty.set_ylabel("duty cycle; dotted: formula")
    for axes in (throughput, duty):
        logarithmic(axes, sorted({run.slot_s for measured in found for run in measured.runs}))
        axes.set_xlabel("slot [s]")
        axes.set_ylim(bottom=0)
    legend_below(figure, throughput)
    written = directory / "slotted.png"
    figure.savefig(written)
    return [written]


def _expected_s(full: bool) -> float:
    slots_s, length = _plan(full)
    shared_s = len(_WAYS) * sum(_shared_s(slot_s, length) for slot_s in slots_s)
    return building.BUILD_S + (1 + len(_WAYS)) * _SETUP_S + _baselines_s(length) + shared_s


EXPERIMENT: Final = Experiment(
    name="mordia-slotted",
    title="A port shared by slots, on the data plane",
    source="Porter et al., Mordia, SIGCOMM 2013, sections 3.4 and 6.3",
    topology="configs/demo.yaml; rack 1 has a single optical port",
    workload=f"TCP at full speed between {len(PAIRS)} pairs of racks that share this port",
    policy="slotted: half of a week each, slots of 0.5 to 4 s (short: 1 and 2 s); as published, "
    "and hitless",
    measured="throughput of both pairs and duty cycle, beside the formula",
    needs_data_plane=True,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
