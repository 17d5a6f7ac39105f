"""Longest slots first: share of the traffic against number of slots, and the duty cycle.

Mordia, SIGCOMM 2013, section 3.4, Table 2, and section 4.1: random demands are scaled and
decomposed into permutations; the n longest permutations become slots of a 1 ms schedule with
changes of 10 µs each, the rest is left to the packet switch. Also the paper's formulas: ports of
fat trees (Table 1), and buffers of hosts (section 4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from apps.offline.study import plain_fabric
from hydra.model import Topology
from mininet_scenarios.experiments.claims import CLAIMS, FAT_TREES, judged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREY, VERMILION, legend_below
from mininet_scenarios.reporting.table import Row
from topology.decomposition import WHOLE, Permutation, birkhoff, longest_first, scaled
from topology.problem import Budget, FabricArrays, Reserved, Timing
from topology.schedules import plan_tms

_RACKS: Final = 4
_SETUP_S: Final = 10e-6
_SCHEDULE_S: Final = 1e-3
_PAPER_SLOTS: Final = 5
_DUTY_NOISE: Final = 1e-4
_MOST_SLOTS: Final = _RACKS * _RACKS - 2 * _RACKS + 2
"""Largest number of permutations of a matrix (k ≤ N² − 2N + 2)."""
_RATE_MBPS: Final = 10_000.0


Decompose = Callable[[NDArray[np.int64]], Iterator[tuple[int, Permutation]]]
"""Takes a matrix apart into (length, permutation)."""


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """Schedule made by the controller's own planner for a demand."""

    slots: int
    lit_s: float

    @property
    def duty(self) -> float:
        return self.lit_s / _SCHEDULE_S

    @property
    def duty_by_formula(self) -> float:
        return duty(self.slots) if self.slots > 1 else 1.0


@dataclass(frozen=True, slots=True)
class Slots:
    """Results of many random demands."""

    shares: tuple[tuple[float, ...], ...]
    """Part of each demand carried by the 1, 2, … longest slots, decomposed by `tms`."""
    widest: tuple[tuple[float, ...], ...]
    """The demand decomposed by `tms+`, with each permutation the longest of the rest."""
    schedules: tuple[PlannedSchedule, ...]


def duty(slots: int, setup_s: float = _SETUP_S, schedule_s: float = _SCHEDULE_S) -> float:
    """D = T_stable / T_schedule, where each slot costs one setup (equations 2 and 3)."""
    return 1 - slots * setup_s / schedule_s


def _measure(setting: Setting, narrator: Narrator) -> Slots:
    chance = np.random.default_rng(setting.seed)
    demands = 1000 if setting.full else 100
    with narrator.phase(f"taking {demands} demands apart", _expected_s(setting.full)):
        matrices = [chance.random((_RACKS, _RACKS)) for _ in range(demands)]
        return Slots(
            tuple(cumulative_shares(matrix, birkhoff) for matrix in matrices),
            tuple(cumulative_shares(matrix, longest_first) for matrix in matrices),
            tuple(_planned(matrix) for matrix in matrices),
        )


def cumulative_shares(matrix: NDArray[np.float64], decompose: Decompose) -> tuple[float, ...]:
    """Part of the scaled matrix in the 1, 2, … longest permutations; the last is 1."""
    lengths = [length / WHOLE for length, _ in decompose(scaled(matrix))]
    return tuple(accumulate(sorted(lengths, reverse=True)))


def fat_tree(radix: int, depth: int) -> tuple[float, float]:
    """(nodes, core ports) of a fully provisioned fat tree of the given depth (section 2.1)."""
    nodes = (radix / 2) ** depth / 2 ** (depth - 1)
    return nodes, (2 * depth - 3) * nodes


def buffer_bytes(rate_bps: float, racks: int, slot_s: float) -> float:
    """B = R(N − 1)T: a host's buffer for all destinations (section 4.2)."""
    return rate_bps * (racks - 1) * slot_s / 8


def _planned(matrix: NDArray[np.float64]) -> PlannedSchedule:
    demand = matrix * (1 - np.eye(_RACKS)) * _RATE_MBPS / (_RACKS - 1)
    fabric = FabricArrays.of(plain_fabric(_RACKS, 1, _RATE_MBPS))
    budget = Budget(1, timing=Timing(_SCHEDULE_S, _SETUP_S))
    result = plan_tms(fabric, demand, Topology(), Reserved(), budget)
    return PlannedSchedule(len(result.slots), sum(slot.duration_s for slot in result.slots))


def _conclude(runs: Sequence[Slots]) -> Findings:
    shares = _padded(runs, "shares")
    at_five = shares[:, _PAPER_SLOTS - 1]
    low, high = np.percentile(at_five, [5, 95])
    schedules = [schedule for run in runs for schedule in run.schedules]
    widest = float(_padded(runs, "widest")[:, _PAPER_SLOTS - 1].mean())
    most = max(len(row) for run in runs for row in run.shares)
    off = max(abs(schedule.duty - schedule.duty_by_formula) for schedule in schedules)
    mean = float(at_five.mean())
    return Findings(
        (
            judged(
                "mordia/share",
                mean,
                f"tms: share on circuits with {_PAPER_SLOTS} slots, {len(at_five)} demands",
                f"{mean:.1%}, {low:.1%} to {high:.1%} for nine demands in ten",
            ),
            Row(f"tms+: share on circuits with {_PAPER_SLOTS} slots", "", f"{widest:.1%}"),
            *_duty_row(schedules),
            Row(
                "duty cycle of planned schedules, largest distance from the formula",
                "",
                f"{100 * off:.2g} %",
                target="< 0.01 %",
                met=off < _DUTY_NOISE,
            ),
            judged("mordia/slots", most, "most slots that a demand needs"),
            *_formula_rows(),
        ),
        (
            Table(
                "Mean over all demands (Mordia, Table 2)",
                ("slots", "circuits", "packet switch", "duty cycle"),
                tuple(
                    (str(n), f"{share:.1%}", f"{1 - share:.1%}", f"{duty(n):.1%}")
                    for n, share in enumerate(shares.mean(axis=0).tolist(), start=1)
                ),
            ),
        ),
    )


def _duty_row(schedules: Sequence[PlannedSchedule]) -> Iterator[Row]:
    """Row of the controller's own schedules with the paper's number of slots."""
    duties = [schedule.duty for schedule in schedules if schedule.slots == _PAPER_SLOTS]
    if duties:
        mean = fmean(duties)
        figure = f"duty cycle of the {len(duties)} planned schedules of {_PAPER_SLOTS} slots"
        yield judged("mordia/duty", mean, figure)


def _formula_rows() -> Iterator[Row]:
    for radix, depth, *_ in FAT_TREES:
        figures = zip(("nodes", "core ports"), fat_tree(radix, depth), strict=True)
        for what, number in figures:
            figure = f"thousands of {what} of a fat tree, radix {radix}, depth {depth}"
            yield judged(f"mordia/{what} {radix} {depth}", number / 1e3, figure)
    figure = "duty cycle of one slot, setup of 11.5 µs in 106 µs"
    yield judged("mordia/duty 106 µs", duty(1, 11.5e-6, 106e-6), figure)
    for slot, slot_s, unit in (("100 ms", 0.1, 1e9), ("100 µs", 1e-4, 1e6)):
        held = buffer_bytes(9e9, 64, slot_s) / unit
        figure = f"buffers of a host, 64 racks at 9 Gb/s, slots of {slot}"
        yield judged(f"mordia/buffers {slot}", held, figure)


def _padded(runs: Sequence[Slots], which: str) -> NDArray[np.float64]:
    """Shape (demands, slots): a fully carried demand stays so with more slots."""
    shares = [row for run in runs for row in getattr(run, which)]
    width = max(_PAPER_SLOTS, *(len(row) for row in shares))
    return np.array([[*row, *[row[-1]] * (width - len(row))] for row in shares])


def _draw(runs: Sequence[Slots], directory: Path) -> Sequence[Path]:
    shares = 100 * _padded(runs, "shares")
    paper = CLAIMS["mordia/share"].band.figure or 0.0
    numbers = np.arange(1, shares.shape[1] + 1)
    figure = Figure(figsize=(8.0, 4.5), dpi=150, layout="constrained")
    axes = figure.subplots()
    low, middle, high = np.percentile(shares, [5, 50, 95], axis=0)
    axes.fill_between(numbers, low, high, color=BLUE, alpha=0.2, label="nine demands in ten")
    axes.plot(numbers, middle, color=BLUE, marker="o", label="share on circuits, median")
    duties = [100 * duty(int(n)) for n in numbers]
    axes.plot(numbers, duties, color=GREY, linestyle="--", label="duty cycle")
    axes.plot([_PAPER_SLOTS], [100 * paper], "*", color=VERMILION, ms=12, label="paper")
    axes.set_xlabel("slots")
    axes.set_ylabel("[%]")
    axes.set_ylim(0, 102)
    legend_below(figure, axes, 4)
    written = directory / "slots.png"
    figure.savefig(written)
    return [written]


def _expected_s(full: bool) -> float:
    return 8.0 if full else 2.0


EXPERIMENT: Final = Experiment(
    name="mordia-slots",
    title="Longest slots first",
    source="Mordia, SIGCOMM 2013, sections 3.4 and 4.1, Table 2",
    topology=f"{_RACKS} racks on one optical switch; setup 10 µs, schedule 1 ms",
    workload="demands with entries drawn evenly, scaled to equal sums (Sinkhorn)",
    policy="permutations by Birkhoff and von Neumann, the longest first; `tms` for whole schedules",
    measured="share of the traffic on circuits, and share of the time with light",
    needs_data_plane=False,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
