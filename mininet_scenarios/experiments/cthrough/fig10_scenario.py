"""c-Through (SIGCOMM 2010, section 6.3, Fig. 10): FFTW on MPI, with ranks that wait for each other.

A rank on each server transposes the matrix with all others, exchanging with one at a time, and goes
on when all have finished. So a long-standing circuit carries the waiting data, and then idles.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from mininet_scenarios.experiments.cthrough import scenario
from mininet_scenarios.experiments.cthrough.scenario import (
    FULL_BISECTION_MBPS,
    RACKS,
    Case,
    Completion,
    Scale,
)
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage import mpi
from mininet_scenarios.stage.mpi import Kernel, MpiRun
from mininet_scenarios.stage.stage import Stage

PAPER_RANKS: Final = 15
PAPER_NUMBERS: Final = 2**28
"""Numbers in the matrix, of 16 bytes each."""
SERVER_FLOPS: Final = 1e9
"""Assumed speed of a process of 2009 in a transform too large for the processor's caches."""
_ROUNDS: Final = 1
"""Rounds of two transposes: as many as in a transform with the result in natural order."""
_LONGEST: Final = 4.0

Transform = Completion[MpiRun]


def kernel_of(ranks: int, scale: Scale) -> Kernel:
    """The paper's transform, reduced as rates are to a cube whose side the ranks share evenly."""
    numbers = PAPER_NUMBERS * scale.rate * scale.part
    side = ranks * max(1, round(numbers ** (1 / 3) / ranks))
    return Kernel("fft", side, _ROUNDS, _computing_s(scale))


def _computing_s(scale: Scale) -> float:
    """Computing time of the paper's ranks, proportional to the part, but not to the rates."""
    operations = 5 * PAPER_NUMBERS * math.log2(PAPER_NUMBERS)
    return scale.part * operations / (PAPER_RANKS * SERVER_FLOPS)


def expected_s(case: Case, scale: Scale, ranks: int) -> float:
    """Largest wall time of a transform."""
    away = 1 - 1 / RACKS
    packets_s = 2 * 16 * PAPER_NUMBERS * 8e-6 / RACKS * away / case.electrical_mbps
    if case.interval_s is not None:  # each rack sees the three others, some racks twice
        shared_s = 2 * 16 * PAPER_NUMBERS * 8e-6 / RACKS * away / FULL_BISECTION_MBPS
        packets_s = min(packets_s, 12 * case.interval_s / scale.part + 2 * shared_s)
    started_s = scenario.SETUP_S + mpi.START_S + ranks * mpi.START_S_EACH
    return started_s + _computing_s(scale) + 1.2 * scale.part * packets_s


def run(
    stage: Stage, case: Case, scale: Scale, program: Path, ranks: int, narrator: Narrator
) -> Transform:
    """Play one case, a rank on each server; raises ScenarioError for a run that can't be
    counted.
    """
    servers = [server.name for server in stage.fabric.servers][:ranks]
    kernel = kernel_of(ranks, scale)
    job = mpi.Job(program, servers, window_bytes=None)
    case_s = expected_s(case, scale, ranks)

    def transform() -> tuple[float, MpiRun]:
        done = mpi.run_kernel(stage, job, kernel, PATIENCE_S + _LONGEST * case_s)
        return done.seconds, done

    with narrator.phase(str(case), case_s):
        completion = scenario.play(stage, case, scale, servers, transform)
    narrator.say(f"{case}: {completion.seconds:.1f} s, {completion.changes} changes")
    return completion
