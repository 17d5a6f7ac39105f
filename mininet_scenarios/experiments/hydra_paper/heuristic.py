"""Running time of the topology heuristic, and the worth of several hops (HydRA, III.B).

The time is swept by H, N, K and Z, the variables of the paper's bound O(H·N³ + H·K·Z²·N²). Moving
demands are followed with H = 1 and 3: the paper says that paths of several hops need fewer
reconfigurations for the same throughput. A demand for which the standing circuits carry as much as
new circuits of one hop would needs none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from hydra.model import DemandMatrix, Topology
from mininet_scenarios.experiments.claims import CLAIMS, judged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, VERMILION, legend_below, logarithmic
from mininet_scenarios.reporting.table import Row
from topology.multihop import plan_hydra_bfs
from topology.pairing import plan_edmonds_perfect
from topology.problem import Budget, FabricArrays, PlanResult, Reserved
from topology.synthetic import synthetic_demand

_RATE_MBPS: Final = 10_000.0
_REPEATS: Final = 3
_HOPS: Final = (1, 3)
_FEW, _MANY = _HOPS
_PARTNERS: Final = 4
"""Racks that each rack sends to."""
_MOVING: Final = 0.1
"""Part of all pairs that end with each demand; as many begin."""
_LOADS: Final = (0.2, 0.4, 0.8)
"""Mean traffic of a rack, as a part of the rate of its circuits."""
_ENOUGH: Final = 0.95
"""Least throughput of standing circuits, as a part of a new one-hop plan's: below, mirrors move."""
FULL_MATCHING: Final = 1000
"""Racks of c-Through's section 7.3."""
_MATCHED: Final = (
    "The paper's processor is a Xeon of 3.2 GHz, with another implementation of the algorithm."
)


@dataclass(frozen=True, slots=True)
class Size:
    """A planning problem."""

    H: int
    N: int
    K: int
    Z: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sizes that differ in one variable."""

    variable: str
    base: Size
    values: tuple[int, ...]


FULL: Final = (
    Sweep("H", Size(1, 160, 8, 1), (1, 2, 3, 4, 5, 6)),
    Sweep("N", Size(3, 40, 8, 1), (40, 80, 160, 240, 320)),
    Sweep("K", Size(3, 160, 2, 1), (2, 4, 8, 16, 32)),
    Sweep("Z", Size(3, 80, 4, 1), (1, 2, 4, 8)),
)
SHORT: Final = (
    Sweep("H", Size(1, 32, 4, 1), (1, 2, 3, 4)),
    Sweep("N", Size(3, 16, 4, 1), (16, 32, 64)),
    Sweep("K", Size(3, 32, 2, 1), (2, 4, 8)),
    Sweep("Z", Size(3, 32, 2, 1), (1, 2, 4)),
)


@dataclass(frozen=True, slots=True)
class Timed:
    variable: str
    value: int
    seconds: float
    """Processor time of a plan: the least of several."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A moving demand, followed with paths of at most ``hops`` hops."""

    load: float
    hops: int
    demands: int
    """Demands after the first."""
    changes: int
    """Reconfigurations."""
    circuits: int
    """Circuits set up."""
    served_share: float


@dataclass(frozen=True, slots=True)
class Heuristic:
    timed: tuple[Timed, ...]
    followed: tuple[Followed, ...]
    matching_s: float
    """Processor time of Edmonds' algorithm (c-Through)."""
    matched_racks: int


def fabric(size: Size) -> FabricArrays:
    """N racks with Z ports on each of K planes."""
    ports = size.K * size.Z
    return FabricArrays(
        n_racks=size.N,
        n_planes=size.K,
        port_rack=np.repeat(np.arange(size.N, dtype=np.int32), ports),
        port_plane=np.tile(np.repeat(np.arange(size.K, dtype=np.int32), size.Z), size.N),
        port_rate_mbps=np.full(size.N * ports, _RATE_MBPS),
    )


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The exponent e of y = c·x^e, by least squares of the logarithms."""
    x, y = np.log(np.array(points)).T
    slope, _ = np.polyfit(x, y, 1)
    return float(slope)


def processor_s(act: Callable[[], object]) -> float:
    """The least processor time of several calls."""
    times = []
    for _ in range(_REPEATS):
        begun = time.process_time()
        act()
        times.append(time.process_time() - begun)
    return min(times)


def _timed(sweep: Sweep, seed: int) -> Iterator[Timed]:
    for value in sweep.values:
        size = replace(sweep.base, **{sweep.variable: value})
        arrays = fabric(size)
        # All pairs want more than the ports have, so that no round runs out of demands.
        demand = synthetic_demand("uniform", size.N, seed, 4 * size.K * size.Z * _RATE_MBPS)
        budget = Budget(max_hops=size.H)
        plan = partial(plan_hydra_bfs, arrays, demand, Topology(), Reserved(), budget)
        yield Timed(sweep.variable, value, processor_s(plan))


def moving(
    racks: int, count: int, rack_mbps: float, chance: np.random.Generator
) -> list[DemandMatrix]:
    """``count`` demands, each the demand before with a part of the pairs replaced."""
    every = [(src, dst) for src in range(racks) for dst in range(racks) if src != dst]
    number = racks * _PARTNERS
    rates = dict[tuple[int, int], float]()
    demands = []
    for _ in range(count):
        before = list(rates)
        for place in chance.choice(len(before), round(_MOVING * len(before)), replace=False):
            del rates[before[place]]
        idle = [pair for pair in every if pair not in before]
        for place in chance.choice(len(idle), number - len(rates), replace=False):
            rates[idle[place]] = float(chance.uniform(0.5, 1.5)) * rack_mbps / _PARTNERS
        demands.append(_matrix(racks, rates))
    return demands


def _matrix(racks: int, rates: Mapping[tuple[int, int], float]) -> DemandMatrix:
    demand = np.zeros((racks, racks))
    for (src, dst), mbps in rates.items():
        demand[src, dst] = mbps
    return demand


def _followed(racks: int, planes: int, demands: int, seed: int) -> Iterator[Followed]:
    arrays = fabric(Size(_MANY, racks, planes, 1))
    for load in _LOADS:
        chance = np.random.default_rng(seed)
        moved = moving(racks, demands, load * planes * _RATE_MBPS, chance)
        enough = [_ENOUGH * _fresh(arrays, demand, _FEW).served_share for demand in moved]
        for hops in _HOPS:
            yield _follow(arrays, load, hops, moved, enough)


def _fresh(arrays: FabricArrays, demand: DemandMatrix, hops: int) -> PlanResult:
    return plan_hydra_bfs(arrays, demand, Topology(), Reserved(), Budget(max_hops=hops))


def _follow(
    arrays: FabricArrays,
    load: float,
    hops: int,
    moved: Sequence[DemandMatrix],
    enough: Sequence[float],
) -> Followed:
    """Mirrors move only where standing circuits serve less of a demand than ``enough``."""
    standing_only = Budget(max_hops=hops, planes=frozenset())
    plan = _fresh(arrays, moved[0], hops)
    shares, changes, circuits = [plan.served_share], 0, 0
    for demand, least in zip(moved[1:], enough[1:], strict=True):
        # Paths follow the demand on any circuits: only rules change.
        bare = Topology(plan.topology.circuits, ())
        kept = plan_hydra_bfs(arrays, demand, bare, Reserved(), standing_only)
        if kept.served_share < least:
            fresh = plan_hydra_bfs(arrays, demand, plan.topology, Reserved(), Budget(max_hops=hops))
            changes += 1
            circuits += len(fresh.topology.circuits - plan.topology.circuits)
            plan = fresh
        else:
            plan = kept
        shares.append(plan.served_share)
    return Followed(load, hops, len(moved) - 1, changes, circuits, fmean(shares))


def _measure(setting: Setting, narrator: Narrator) -> Heuristic:
    timed: list[Timed] = []
    for sweep in FULL if setting.full else SHORT:
        with narrator.phase(f"planning for several {sweep.variable}", 10.0 if setting.full else 1):
            timed += _timed(sweep, setting.seed)
    with narrator.phase("following moving demands", 10.0 if setting.full else 1.0):
        racks, planes, demands = (64, 4, 50) if setting.full else (8, 2, 3)
        followed = tuple(_followed(racks, planes, demands, setting.seed))
    with narrator.phase("matching racks", 10.0 if setting.full else 1.0):
        matched = FULL_MATCHING if setting.full else 100
        demand = synthetic_demand("uniform", matched, setting.seed, _RATE_MBPS)
        arrays, budget = fabric(Size(1, matched, 1, 1)), Budget(max_hops=1)
        matching_s = processor_s(
            lambda: plan_edmonds_perfect(arrays, demand, Topology(), Reserved(), budget)
        )
    return Heuristic(tuple(timed), followed, matching_s, matched)


def _points(runs: Sequence[Heuristic], variable: str) -> list[tuple[float, float]]:
    """(value, mean of all repetitions' times in s)."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for sample in run.timed:
            if sample.variable == variable:
                found.setdefault(sample.value, []).append(sample.seconds)
    return [(float(value), fmean(seconds)) for value, seconds in found.items()]


def _means(runs: Sequence[Heuristic], load: float, hops: int) -> tuple[float, float, float]:
    """(reconfigurations, circuits set up, served share) of a moving demand."""
    samples = [
        sample
        for run in runs
        for sample in run.followed
        if (sample.load, sample.hops) == (load, hops)
    ]
    return (
        fmean(sample.changes for sample in samples),
        fmean(sample.circuits for sample in samples),
        fmean(sample.served_share for sample in samples),
    )


def _conclude(runs: Sequence[Heuristic]) -> Findings:
    rows = []
    for sweep in FULL:
        points = _points(runs, sweep.variable)
        (low, _), (high, _) = points[0], points[-1]
        figure = f"exponent of {sweep.variable}, from {low:g} to {high:g}"
        rows.append(judged(f"hydra/exponent {sweep.variable}", exponent(points), figure))
    for load in _LOADS:
        rows += _hops_rows(runs, load)
    rows += _matching_rows(runs)
    return Findings(tuple(rows), (_time_table(runs), _hops_table(runs)))


def _hops_rows(runs: Sequence[Heuristic], load: float) -> Iterator[Row]:
    (few, _, served), (many, _, more) = (_means(runs, load, hops) for hops in _HOPS)
    demands = runs[0].followed[0].demands
    case = f"H = {_MANY} over H = {_FEW}, load {load:g}, {demands} new demands"
    ratio = many / few if few else 1.0
    yield judged(
        "hydra/hops changes",
        ratio,
        f"reconfigurations, {case}",
        f"{ratio:.2f} ({many:.3g} over {few:.3g})",
    )
    ours = f"{more / served:.2f} ({more:.1%} over {served:.1%})"
    yield judged("hydra/hops served", more / served, f"throughput, {case}", ours)


def _matching_rows(runs: Sequence[Heuristic]) -> Iterator[Row]:
    """Rows of c-Through's perfect matching, judged at the paper's size alone."""
    racks, seconds = runs[0].matched_racks, fmean(run.matching_s for run in runs)
    figure = f"Edmonds' perfect matching of {racks} racks, processor time"
    if racks == FULL_MATCHING:
        yield judged(
            "c-through/edmonds", 1e3 * seconds, figure, f"{1e3 * seconds:.0f} ms", _MATCHED
        )
    else:
        yield Row(figure, "", f"{1e3 * seconds:.0f} ms")


def _time_table(runs: Sequence[Heuristic]) -> Table:
    return Table(
        "Processor time of a plan, ms",
        ("variable", "value", "ms"),
        tuple(
            (sweep.variable, f"{value:g}", f"{1e3 * seconds:.1f}")
            for sweep in FULL
            for value, seconds in _points(runs, sweep.variable)
        ),
    )


def _hops_table(runs: Sequence[Heuristic]) -> Table:
    return Table(
        "A moving demand, followed",
        ("load", "most hops", "reconfigurations", "circuits set up", "served"),
        tuple(
            (f"{load:g}", str(hops), f"{changes:.3g}", f"{circuits:.0f}", f"{served:.1%}")
            for load, hops in product(_LOADS, _HOPS)
            for changes, circuits, served in (_means(runs, load, hops),)
        ),
    )


_COLOURS: Final = MappingProxyType(dict(zip(_HOPS, (VERMILION, BLUE), strict=True)))


def _draw(runs: Sequence[Heuristic], directory: Path) -> Sequence[Path]:
    figure = Figure(figsize=(11.0, 4.0), dpi=150, layout="constrained")
    *sweeps, last = figure.subplots(1, len(FULL) + 1)
    for axes, sweep in zip(sweeps, FULL, strict=True):
        points = _points(runs, sweep.variable)
        values, seconds = zip(*points, strict=True)
        most = CLAIMS[f"hydra/exponent {sweep.variable}"].band.most or 0.0
        bound = [seconds[-1] * (value / values[-1]) ** most for value in values]
        axes.plot(values, [1e3 * value_s for value_s in seconds], "o-", color=BLUE)
        axes.plot(values, [1e3 * value_s for value_s in bound], "--", color="black", linewidth=0.8)
        logarithmic(axes, values)
        axes.set(yscale="log", xlabel=sweep.variable)
        axes.tick_params(labelsize="x-small", which="both")
        axes.set_title(f"exponent {exponent(points):.2f} (≤ {most:g})", fontsize="small")
    sweeps[0].set_ylabel("processor time of a plan [ms]")
    for hops in _HOPS:
        changes = [_means(runs, load, hops)[0] for load in _LOADS]
        last.plot(_LOADS, changes, "o-", color=_COLOURS[hops], label=f"H = {hops}")
    last.set(xlabel="load", ylabel="reconfigurations", ylim=(0, None))
    legend_below(figure, last)
    written = directory / "heuristic.png"
    figure.savefig(written)
    return [written]


EXPERIMENT: Final = Experiment(
    name="heuristic",
    title="The heuristic's running time, and the worth of hops",
    source="Christodoulopoulos et al., HydRA, JOCN 2015, sections III.B.1 and III.B.3",
    topology="up to 320 racks, 32 planes and 8 ports on each; moving demands: 64 racks, 4 planes",
    workload="all pairs; moving demands: each rack sends to 4 others, a tenth of all pairs change",
    policy="hydra-bfs",
    measured="processor time of a plan; reconfigurations, and the part of the demand on circuits",
    needs_data_plane=False,
    expected_s=lambda full: 40.0 if full else 5.0,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
