"""c-Through's Fig. 10: FFTW on MPI, by buffer size, interval and oversubscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.cthrough import cases as cthrough_cases
from mininet_scenarios.experiments.cthrough import fig10_scenario, scenario
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
from mininet_scenarios.experiments.cthrough.scenario import FULL_BISECTION_MBPS, RACKS, Case, Scale
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage import mpi
from mininet_scenarios.stage.mpi import MpiRun

BUFFERS_MB: Final = (SMALL_MB, 50.0, USUAL_MB)
INTERVALS_S: Final = (0.3, 0.5, USUAL_S, 2.0, 5.0)
SHORTEST_S: Final = INTERVALS_S[0]
_BUSIEST_MBPS: Final = RACKS * FULL_BISECTION_MBPS * (1 - 1 / RACKS)
"""Traffic when all servers send, a quarter of the traffic within racks."""
_WHY: Final = (
    "Frames do not shrink with the rates, so that a queue of 30 of them in front of an electrical "
    "uplink takes as many times as long as rates are scaled down by, and so do TCP's time-outs "
    "after losses, each of which ends a rank's part in an interval."
)


@dataclass(frozen=True, slots=True)
class Form:
    """Size of a repetition."""

    part: float
    """Part of the paper's matrix."""
    servers: int
    """Servers in each rack; with fewer servers than the paper's, links are faster in proportion."""
    cases: tuple[Case, ...]

    @property
    def ranks(self) -> int:
        return min(fig10_scenario.PAPER_RANKS, RACKS * self.servers)

    def expected_s(self, scale: Scale) -> float:
        return cthrough_cases.expected_s(
            self.cases, lambda case: fig10_scenario.expected_s(case, scale, self.ranks)
        )


LONG_S: Final = 3.0
"""Time between decisions, in the short form."""
FULL: Final = Form(
    1.0, scenario.RACK_SERVERS, tuple(cthrough_cases.both_panels(BUFFERS_MB, INTERVALS_S))
)
SHORT: Final = Form(
    1 / 16,
    2,
    (
        packets_alone(WORST),
        helped(WORST, USUAL_MB, LONG_S, CycleName.AS_PUBLISHED),
        helped(WORST, USUAL_MB, SHORTEST_S, CycleName.AS_PUBLISHED),
        helped(WORST, USUAL_MB, SHORTEST_S, CycleName.HITLESS),
    ),
)

Transforms = Repetition[MpiRun]


def _form(full: bool) -> Form:
    return FULL if full else SHORT


def _measure(setting: Setting, narrator: Narrator) -> Transforms:
    form = _form(setting.full)
    scale = Scale(1 / setting.rates.scale(_BUSIEST_MBPS).divisor, form.part)
    return measure(setting.work_dir, scale, form, narrator)


def measure(work_dir: Path, scale: Scale, form: Form, narrator: Narrator) -> Transforms:
    program = mpi.compile_kernels(work_dir)
    return cthrough_cases.measure(
        work_dir,
        scale,
        form.cases,
        narrator,
        lambda stage, case: fig10_scenario.run(stage, case, scale, program, form.ranks, narrator),
        form.servers,
    )


# --- conclusions ------------------------------------------------------------------------------


def _conclude(found: Sequence[Transforms]) -> Findings:
    of = cthrough_cases.seconds_of(found)
    rows = list(cthrough_cases.scale_rows(found[0].scale))
    whole = all(measured.scale.part == 1 for measured in found)
    for cycle, name in WAYS:
        rows += _interval_rows(of, cycle, name, whole)
        rows += _buffer_rows(of, cycle, name)
    rows += cthrough_cases.gap_rows(of, USUAL_MB, "fft")
    rows.append(cthrough_cases.dark_row(found))
    least = min(run.done.least_on_wire for measured in found for run in measured.runs)
    rows.append(
        Row(
            "bytes at servers' ports / sent by their ranks, least of all runs",
            "",
            f"{least:.3f}",
            target="≥ 1: nothing through shared memory",
            met=least >= 1,
        )
    )
    return Findings(tuple(rows), (cthrough_cases.table(found),))


def _interval_rows(of: Seconds, cycle: CycleName, name: str, whole: bool) -> Iterator[Row]:
    """Rows by interval. ``whole``: all of the matrix; in a part, time-outs weigh too much."""
    alone, full = of(packets_alone(WORST)), of(FULL_BISECTION)
    times = {
        interval_s: seconds
        for interval_s in sorted({*INTERVALS_S, LONG_S})
        if (seconds := of(helped(WORST, USUAL_MB, interval_s, cycle))) is not None
    }
    if SHORTEST_S not in times:
        return
    shortest, longest_s = times[SHORTEST_S], max(times)
    figure = f"{name}: {WORST}, an interval of {SHORTEST_S:g} s"
    if full is not None:
        what = f"an interval of {SHORTEST_S:g} s, over full bisection"
        yield ratio_row("fft near", name, shortest / full, what, _WHY)
    if alone is not None:
        yield seconds_row(figure, shortest, f"less than electrical alone, {alone:.0f} s", alone)
    if longest_s > SHORTEST_S:
        what = f"an interval of {longest_s:g} s, over one of {SHORTEST_S:g} s"
        slower = times[longest_s] / shortest
        yield ratio_row("fft interval", name, slower, what, _WHY, whole=whole)


def _buffer_rows(of: Seconds, cycle: CycleName, name: str) -> Iterator[Row]:
    least, *_, most = BUFFERS_MB
    small = of(helped(WORST, least, USUAL_S, cycle))
    large = of(helped(WORST, most, USUAL_S, cycle))
    if small is not None and large is not None:
        what = f"buffers of {most:g} MB, over {least * 1e3:g} KB"
        yield ratio_row("fft buffers", name, large / small, what)


def _draw(found: Sequence[Transforms], directory: Path) -> Sequence[Path]:
    written = directory / "fig10.png"
    cthrough_cases.draw_panels(found, BUFFERS_MB, sorted({*INTERVALS_S, LONG_S}), written)
    return [written]


def _expected_s(full: bool) -> float:
    form = _form(full)
    return form.expected_s(Scale(1.0, form.part))  # times are not scaled


EXPERIMENT: Final = Experiment(
    name="cthrough-fig10",
    title="FFTW on MPI, whose ranks wait for each other",
    source="Wang et al., c-Through, SIGCOMM 2010, section 6.3, Fig. 10",
    topology="configs/cthrough.yaml: four racks of four servers (short: two), one circuit a rack, "
    "electrical uplinks oversubscribed 40:1, 10:1, 4:1 and not at all",
    workload="real MPI, 15 ranks (short: 8), each in namespaces of its own, over TCP: FFTW's "
    "transform of 2²⁸ complex numbers, scaled as rates are (short: of a sixteenth of them)",
    policy=f"undifferentiated: the racks with traffic in turn, every {SHORTEST_S:g} to "
    f"{INTERVALS_S[-1]:g} s; as published, and at 40:1 hitless",
    measured="completion time; bytes at the servers' ports against those that the ranks sent",
    needs_data_plane=True,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
    needs_mpi=True,
)
