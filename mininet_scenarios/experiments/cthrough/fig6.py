"""c-Through's Fig. 6: virtual machines migrate, by buffer size, interval and oversubscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.claims import judged
from mininet_scenarios.experiments.cthrough import cases as cthrough_cases
from mininet_scenarios.experiments.cthrough import fig6_scenario
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
from mininet_scenarios.experiments.cthrough.fig6_scenario import PAPER_ELECTRICAL_S, PAPER_MADE_S
from mininet_scenarios.experiments.cthrough.scenario import FULL_BISECTION_MBPS, Case, Scale
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage.transfers import Transferred

FULL_PART: Final = 1.0
SHORT_PART: Final = 1 / 16
BUFFERS_MB: Final = (SMALL_MB, 50.0, 100.0, 300.0)
INTERVALS_S: Final = (0.5, 1.0, 2.0, 5.0)
_LARGE_MB: Final = BUFFERS_MB[-1]
_WHY: Final = (
    "How KVM's compression and its eight migrations share a server is not told; here each "
    "machine's data comes at an eighth of the server's rate."
)
_GIVEN: Final = (
    "The data, and the rate of making them, were derived from the paper's times at full bisection "
    "and over the electrical network alone, which check the emulation here. Reproduced are the "
    "times with circuits."
)

Migrations = Repetition[tuple[Transferred, ...]]


def full_cases() -> list[Case]:
    """Cases of both panels of Fig. 6."""
    return cthrough_cases.both_panels(BUFFERS_MB, INTERVALS_S)


def short_cases() -> list[Case]:
    """Cases without full bisection: a part of the data is not compared with full bisection."""
    return [
        packets_alone(WORST),
        helped(WORST, SMALL_MB, USUAL_S, CycleName.AS_PUBLISHED),
        helped(WORST, _LARGE_MB, USUAL_S, CycleName.AS_PUBLISHED),
        helped(WORST, _LARGE_MB, USUAL_S, CycleName.HITLESS),
    ]


def _plan(full: bool) -> tuple[float, list[Case]]:
    return (FULL_PART, full_cases()) if full else (SHORT_PART, short_cases())


def _measure(setting: Setting, narrator: Narrator) -> Migrations:
    part, cases = _plan(setting.full)
    divisor = setting.rates.scale(FULL_BISECTION_MBPS).divisor
    return measure(setting.work_dir, Scale(1 / divisor, part), cases, narrator)


def measure(work_dir: Path, scale: Scale, cases: Sequence[Case], narrator: Narrator) -> Migrations:
    return cthrough_cases.measure(
        work_dir,
        scale,
        cases,
        narrator,
        lambda stage, case: fig6_scenario.run(stage, case, scale, narrator),
    )


# --- conclusions ------------------------------------------------------------------------------


def _conclude(found: Sequence[Migrations]) -> Findings:
    of = cthrough_cases.seconds_of(found)
    rows = [*cthrough_cases.scale_rows(found[0].scale), *_bounds(of)]
    whole = all(measured.scale.part == 1 for measured in found)
    for cycle, name in WAYS:
        rows += _buffer_rows(of, cycle, name, whole)
        rows += _interval_rows(of, cycle, name)
    rows += cthrough_cases.gap_rows(of, _LARGE_MB, "migration")
    rows.append(cthrough_cases.dark_row(found))
    return Findings(tuple(rows), (cthrough_cases.table(found),))


def _bounds(of: Seconds) -> Iterator[Row]:
    full, alone = of(FULL_BISECTION), of(packets_alone(WORST))
    for figure, paper_s, seconds in (
        ("full bisection", PAPER_MADE_S, full),
        (f"electrical network alone, {WORST}", PAPER_ELECTRICAL_S, alone),
    ):
        if seconds is not None:
            given = f"{figure}; {paper_s:g} s of the paper are given"
            yield Row(given, "", f"{seconds:.0f} s", why=_GIVEN)


def _buffer_rows(of: Seconds, cycle: CycleName, name: str, whole: bool) -> Iterator[Row]:
    """Rows by buffer. ``whole``: all the paper's data; in a part, the last flows weigh too much."""
    alone, full = of(packets_alone(WORST)), of(FULL_BISECTION)
    limits_s = {SMALL_MB: alone, _LARGE_MB: of(helped(WORST, SMALL_MB, USUAL_S, cycle))}
    for buffer_mb, limit_s in limits_s.items():
        seconds = of(helped(WORST, buffer_mb, USUAL_S, cycle))
        if seconds is None or limit_s is None:
            continue
        size = f"{buffer_mb * 1e3:g} KB" if buffer_mb < 1 else f"{buffer_mb:g} MB"
        figure = f"{name}: {WORST}, buffers of {size}"
        if whole and cycle is CycleName.AS_PUBLISHED:
            yield judged(f"c-through/migration {size}", seconds, figure, f"{seconds:.0f} s", _WHY)
        else:
            yield seconds_row(figure, seconds, f"less than {limit_s:.0f} s", limit_s, _WHY)
        if full is not None and buffer_mb == _LARGE_MB:
            what = f"buffers of {size}, over full bisection"
            yield ratio_row("migration near", name, seconds / full, what, _WHY)


def _interval_rows(of: Seconds, cycle: CycleName, name: str) -> Iterator[Row]:
    alone = of(packets_alone(WORST))
    for interval_s in INTERVALS_S:
        seconds = of(helped(WORST, USUAL_MB, interval_s, cycle))
        if seconds is not None and alone is not None:
            figure = f"{name}: {WORST}, an interval of {interval_s:g} s"
            yield seconds_row(figure, seconds, "half of electrical alone", alone / 2)


def _draw(found: Sequence[Migrations], directory: Path) -> Sequence[Path]:
    written = directory / "fig6.png"
    cthrough_cases.draw_panels(found, BUFFERS_MB, INTERVALS_S, written)
    return [written]


def _expected_s(full: bool) -> float:
    part, cases = _plan(full)
    scale = Scale(1.0, part)  # times are not scaled
    return cthrough_cases.expected_s(cases, lambda case: fig6_scenario.expected_s(case, scale))


EXPERIMENT: Final = Experiment(
    name="cthrough-fig6",
    title="Virtual machines of a rack migrate",
    source="Wang et al., c-Through, SIGCOMM 2010, section 6.1, Fig. 6",
    topology="configs/cthrough.yaml: four racks of four servers, one circuit a rack, electrical "
    "uplinks oversubscribed 40:1, 10:1, 4:1 and not at all",
    workload="32 TCP transfers from the servers of a rack to all other racks, whose data is made "
    f"in {PAPER_MADE_S:g} s (short: a sixteenth of it)",
    policy="undifferentiated: the racks with traffic in turn, every 0.5 to 5 s; as published, and "
    "at 40:1 hitless",
    measured="time until the last machine has arrived",
    needs_data_plane=True,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
