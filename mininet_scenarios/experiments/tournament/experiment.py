"""Every algorithm and policy on every workload; packet networks as bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from apps.offline.replay import Variant
from apps.offline.study import Limits, plain_fabric
from apps.planning.engine import SCHEDULER
from apps.traces.comparing import Contestant, compare
from apps.traces.reading import read_trace, summarise
from apps.traces.synthetic import SAMPLE_COFLOWS, SAMPLE_RACKS, coflow_lines
from apps.traces.windows import Window, busiest_rack_mbps, rack_numbers, windows
from hydra.model import DemandMatrix, Fabric
from hydra.policy import Sharing
from mininet_scenarios.experiments.bounds import packet_share
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.experiments.helios import patterns
from mininet_scenarios.experiments.tournament import policy_matrix
from mininet_scenarios.experiments.tournament.policy_matrix import Course
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row
from topology.algorithms import ENTRIES, Product
from topology.synthetic import KINDS, synthetic_demand

_PORT_MBPS: Final = 10_000.0
_ELECTRICAL_SHARE: Final = 0.1
"""Rate of a rack's electrical link as a part of its optical rate."""
_LOAD: Final = 0.8
_TOLERANCE: Final = 1e-6
_SLOW_PLANS_S: Final = MappingProxyType({"anytime": 0.5, "tms-duplex": 0.5, "by-plane": 0.2})
_PLAN_S: Final = 0.05
_LEAST_PLAN_S: Final = 0.01
"""Processor time of a plan and its checks in full form, as measured: of slow algorithms, of all
others, and the least.
"""


@dataclass(frozen=True, slots=True)
class Size:
    racks: int
    planes: int
    periods: int
    """Number of successive demands of each workload."""
    window_s: float
    """Duration of each demand."""


FULL: Final = Size(64, 8, 10, 10.0)
SHORT: Final = Size(8, 4, 2, 4.0)


@dataclass(frozen=True, slots=True)
class Match:
    """All algorithms on one workload."""

    workload: str
    contestants: tuple[Contestant, ...]
    electrical_share: float
    bisection_share: float


@dataclass(frozen=True, slots=True)
class Tournament:
    racks: int
    planes: int
    matches: tuple[Match, ...]
    courses: tuple[Course, ...]
    """Results of every policy on every workload."""


def workloads(size: Size, seed: int) -> Mapping[str, Callable[[], list[Window]]]:
    """Functions that make the demands, by name: synthetic demands, a trace, and Helios' patterns.

    All demands are drawn from the seed.
    """
    busiest_mbps = _LOAD * size.planes * _PORT_MBPS

    def made_up(kind: str) -> list[Window]:
        seeds = range(seed * 1000, seed * 1000 + size.periods)
        made = [synthetic_demand(kind, size.racks, s, busiest_mbps) for s in seeds]
        return _numbered(made, size.window_s)

    def pattern(name: str) -> list[Window]:
        chance = np.random.default_rng(seed)
        small = [patterns.PATTERNS[name](period, chance) for period in range(size.periods)]
        made = [_tiled(demand, size.racks, busiest_mbps) for demand in small]
        return _numbered(made, size.window_s)

    made: dict[str, Callable[[], list[Window]]] = {}
    for kind in KINDS:
        made[kind] = partial(made_up, kind)
    made["coflows"] = partial(_trace, size, busiest_mbps, seed)
    for name in patterns.PATTERNS:
        made[name] = partial(pattern, name)
    return MappingProxyType(made)


def _numbered(demands: Sequence[DemandMatrix], window_s: float) -> list[Window]:
    return [
        Window(number, number * window_s, int((demand > 0).sum()), demand)
        for number, demand in enumerate(demands)
    ]


def _tiled(pods: DemandMatrix, racks: int, busiest_mbps: float) -> DemandMatrix:
    """The pattern of a few pods between as many groups of racks, rack by rack."""
    groups = len(pods)
    each = racks // groups
    demand = np.zeros((racks, racks))
    for rack in range(groups * each):
        group, position = divmod(rack, each)
        for other in range(groups):
            demand[rack, other * each + position] = pods[group, other]
    busiest = busiest_rack_mbps(demand)
    return demand * (busiest_mbps / busiest if busiest else 0.0)


def _trace(size: Size, busiest_mbps: float, seed: int) -> list[Window]:
    """Windows of a trace, each scaled like the other workloads. The trace of ``SAMPLE_SEED`` begins
    like the sample.
    """
    coflows = 2 * SAMPLE_COFLOWS  # windows enough at any spacing
    with TemporaryDirectory() as folder:
        trace = Path(folder, "coflows.txt")
        lines = coflow_lines(SAMPLE_RACKS, coflows, seed)
        trace.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        numbers = rack_numbers(summarise(trace).racks, size.racks, fold=True)
        cut = islice(windows(read_trace(trace), numbers, size.racks, size.window_s), size.periods)
        return _numbered(
            [window.demand_mbps * (busiest_mbps / window.busiest_rack_mbps) for window in cut],
            size.window_s,
        )


def _measure(setting: Setting, narrator: Narrator) -> Tournament:
    size = FULL if setting.full else SHORT
    fabric = plain_fabric(size.racks, size.planes, _PORT_MBPS)
    shared = [
        policy_matrix.fabric(
            size.racks, size.planes, _PORT_MBPS, _ELECTRICAL_SHARE, one_way=one_way
        )
        for one_way in (False, True)
    ]
    matches: list[Match] = []
    courses: list[Course] = []
    for workload, make in workloads(size, setting.seed).items():
        cut = make()
        matches.append(_match(fabric, workload, cut, size, narrator))
        for network in shared:

            def begun(variant: Variant, workload: str = workload) -> AbstractContextManager[None]:
                return narrator.phase(f"{workload}: {variant.name}", _variant_s(variant, size))

            courses += policy_matrix.courses(network, workload, cut, size.window_s, begun)
    return Tournament(size.racks, size.planes, tuple(matches), tuple(courses))


def _match(
    fabric: Fabric, workload: str, cut: list[Window], size: Size, narrator: Narrator
) -> Match:
    ports_mbps = len(fabric.planes) * _PORT_MBPS
    contestants: list[Contestant] = []
    for name in ENTRIES:
        with narrator.phase(f"{workload}: {name}", size.periods * _plan_s(name, size)):
            contestants += compare(fabric, cut, Limits(max_hops=3, window_s=1.0), (name,))
    return Match(
        workload,
        tuple(contestants),
        _weighted(cut, lambda demand: packet_share(demand, _ELECTRICAL_SHARE * ports_mbps)),
        _weighted(cut, lambda demand: packet_share(demand, ports_mbps)),
    )


def _plan_s(algorithm: str, size: Size) -> float:
    """Expected processor time of a plan and its checks, in s."""
    cells = size.racks**2 * size.planes / (FULL.racks**2 * FULL.planes)
    return max(_LEAST_PLAN_S, cells * _SLOW_PLANS_S.get(algorithm, _PLAN_S))


def _variant_s(variant: Variant, size: Size) -> float:
    """Expected processor time of a policy on a workload, in s."""
    policy = variant.policy
    if policy is None:
        return _LEAST_PLAN_S
    week_s = _plan_s(SCHEDULER, size)
    if policy.sharing is Sharing.SLOTTED:
        return size.periods * week_s
    if policy.sharing.in_turn:
        return size.periods * size.window_s / policy.epoch_s * _plan_s(policy.algorithm, size)
    # A lasting demand is planned for twice: before the change, and from the changed topology.
    each_s = _plan_s(policy.algorithm, size)
    each_s += week_s if policy.sharing is Sharing.AUTO else 0.0
    return 2 * size.periods * each_s


def _weighted(cut: Sequence[Window], share: Callable[[DemandMatrix], float]) -> float:
    total = sum(window.total_mbps for window in cut)
    return sum(share(w.demand_mbps) * w.total_mbps for w in cut) / total if total else 1.0


def _share(runs: Sequence[Tournament], workload: str, name: str) -> float | None:
    found = [
        contestant.served_share
        for run in runs
        for match in run.matches
        for contestant in match.contestants
        if match.workload == workload and contestant.algorithm == name and contestant.attempts
    ]
    return fmean(found) if found else None


def _conclude(runs: Sequence[Tournament]) -> Findings:
    attempts = [a for r in runs for m in r.matches for c in m.contestants for a in c.attempts]
    problems = sum(len(attempt.problems) for attempt in attempts)
    names = [match.workload for match in runs[0].matches]
    rows = [
        Row(
            "plans in which the checks found a problem",
            "",
            f"{problems} of {len(attempts)}",
            target="0",
            met=problems == 0,
        ),
        _never_less(runs),
        _below_bisection(runs),
        _above_packets(runs),
    ]
    tables = _matrix(runs, names), _policies(runs, names), _times(runs, names)
    return Findings(tuple(rows), tables)


def _never_less(runs: Sequence[Tournament]) -> Row:
    """Row on first windows: later windows start from the topology kept by each algorithm."""
    least = 1.0
    for run in runs:
        for match in run.matches:
            first = {
                c.algorithm: c.attempts[0].served_share for c in match.contestants if c.attempts
            }
            least = min(least, first["hydra-bfs+"] - first["hydra-bfs"])
    return Row(
        "hydra-bfs+ beyond the paper's hydra-bfs from a dark network, least over all workloads",
        "",
        f"{100 * least:+.1f} points",
        target="≥ 0",
        met=least >= -_TOLERANCE,
    )


def _below_bisection(runs: Sequence[Tournament]) -> Row:
    worst = max(
        contestant.served_share - match.bisection_share
        for run in runs
        for match in run.matches
        for contestant in match.contestants
        if contestant.attempts and ENTRIES[contestant.algorithm].product is not Product.CIRCUITS
    )
    return Row(
        "one-way plans beyond full bisection, most over all workloads",
        "",
        f"{100 * worst:+.1f} points",
        target="≤ 0",
        met=worst <= _TOLERANCE,
    )


def _above_packets(runs: Sequence[Tournament]) -> Row:
    """Row of policies' gains over packets alone; the cost of changes could make gains negative."""
    gains = []
    for run in runs:
        alone = {
            course.workload: course.served_share
            for course in run.courses
            if course.policy == policy_matrix.ALONE.name
        }
        gains += [
            course.served_share - alone[course.workload]
            for course in run.courses
            if course.policy != policy_matrix.ALONE.name
        ]
    least = min(gains)
    return Row(
        "policies beyond the electrical network alone, least over all workloads",
        "",
        f"{100 * least:+.1f} points",
        target="≥ 0",
        met=least >= -_TOLERANCE,
    )


def _served(runs: Sequence[Tournament], workload: str, policy: str) -> tuple[float, float]:
    """(share served, number of changes): means over repetitions."""
    found = [
        course
        for run in runs
        for course in run.courses
        if (course.workload, course.policy) == (workload, policy)
    ]
    return fmean(contestant.served_share for contestant in found), fmean(
        contestant.changes for contestant in found
    )


def _policy_names(runs: Sequence[Tournament]) -> list[str]:
    return list(dict.fromkeys(course.policy for course in runs[0].courses))


def _policies(runs: Sequence[Tournament], names: Sequence[str]) -> Table:
    def cell(workload: str, policy: str) -> str:
        share, changes = _served(runs, workload, policy)
        return f"{share:.0%} ({changes:.0f})"

    rows = [
        (policy, *(cell(workload, policy) for workload in names)) for policy in _policy_names(runs)
    ]
    return Table(
        "Served of what flows would take at full bisection, by circuits and packets, less what "
        f"changes cost; how many changes in {runs[0].courses[0].lasts_s:g} s",
        ("sharing, algorithm", *names),
        tuple(rows),
    )


def _matrix(runs: Sequence[Tournament], names: Sequence[str]) -> Table:
    def bound(share: Callable[[Match], float], workload: str) -> str:
        found = [share(m) for run in runs for m in run.matches if m.workload == workload]
        return f"{fmean(found):.0%}"

    rows = [
        (name, *(_percent(_share(runs, workload, name)) for workload in names)) for name in ENTRIES
    ]
    rows.append(("electrical alone", *(bound(lambda m: m.electrical_share, w) for w in names)))
    rows.append(("full bisection", *(bound(lambda m: m.bisection_share, w) for w in names)))
    run = runs[0]
    return Table(
        f"Demand that fits on circuits, {run.racks} racks, {run.planes} planes",
        ("algorithm", *names),
        tuple(rows),
    )


def _times(runs: Sequence[Tournament], names: Sequence[str]) -> Table:
    def rows() -> Iterator[tuple[str, ...]]:
        for name in ENTRIES:
            cells = []
            for workload in names:
                found = [
                    contestant.planning_ms
                    for run in runs
                    for match in run.matches
                    for contestant in match.contestants
                    if match.workload == workload
                    and contestant.algorithm == name
                    and contestant.attempts
                ]
                cells.append(f"{fmean(found):.1f}" if found else "–")
            yield (name, *cells)

    return Table("Planning time, ms", ("algorithm", *names), tuple(rows()))


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _draw(runs: Sequence[Tournament], directory: Path) -> Sequence[Path]:
    written = [directory / "tournament.png", directory / "policies.png"]
    algorithms_figure(runs).savefig(written[0])
    _policies_figure(runs).savefig(written[1])
    return written


def algorithms_figure(runs: Sequence[Tournament]) -> Figure:
    """Plot of every algorithm on every workload; a dash for a refusal, as in the table."""
    names = [match.workload for match in runs[0].matches]
    shares = [[_share(runs, workload, name) for workload in names] for name in ENTRIES]
    return _heat_map(shares, list(ENTRIES), names, "demand on circuits [%]")


def _policies_figure(runs: Sequence[Tournament]) -> Figure:
    names = [match.workload for match in runs[0].matches]
    policies = _policy_names(runs)
    served = [[_served(runs, workload, name)[0] for workload in names] for name in policies]
    return _heat_map(served, policies, names, "served [%]")


def _heat_map(
    parts: Sequence[Sequence[float | None]], rows: Sequence[str], columns: Sequence[str], label: str
) -> Figure:
    shares = 100 * np.array(parts, dtype=float)  # None becomes NaN, without a colour
    figure = Figure(figsize=(10.0, 1.5 + 0.3 * len(rows)), dpi=150, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=100, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    for (row, column), share in np.ndenumerate(shares):
        colour = "white" if share < 60 else "black"
        text = "–" if np.isnan(share) else f"{share:.0f}"
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(image, ax=axes, label=label)
    return figure


def _expected_s(full: bool) -> float:
    """The time of all phases of :func:`_measure`; the narrator corrects by measured times."""
    size = FULL if full else SHORT
    fabrics = [
        policy_matrix.fabric(
            size.racks, size.planes, _PORT_MBPS, _ELECTRICAL_SHARE, one_way=one_way
        )
        for one_way in (False, True)
    ]
    each_s = sum(size.periods * _plan_s(name, size) for name in ENTRIES)
    each_s += sum(
        _variant_s(variant, size)
        for fabric in fabrics
        for variant in policy_matrix.variants(fabric)
    )
    return len(workloads(size, 1)) * each_s


EXPERIMENT: Final = Experiment(
    name="tournament",
    title="Every algorithm and policy on every workload",
    source="this project's own; the algorithms' sources are in docs/algorithms.md",
    topology=f"{FULL.racks} racks on {FULL.planes} planes of 10 Gb/s ({SHORT.racks} on "
    f"{SHORT.planes} in short form); the electrical network a tenth of that",
    workload="made-up demands, windows of a trace made as the sample is, Helios' "
    "patterns; the busiest rack "
    f"sends or receives {_LOAD:.0%} of what its ports carry",
    policy="each algorithm in turn, from what it left standing before; schedules repeat every "
    "second, and every slot costs 25 ms. Then each way of sharing with each algorithm that the "
    "controller plans with, on one-way circuits where it plans those: a decision every "
    f"{policy_matrix.EPOCH_S:g} s, {1000 * policy_matrix.OUTAGE_S:g} ms for what moves",
    measured="share of the demand that fits on circuits, by the plan's own account, which other "
    "code checks; planning time; demand that policies serve while it changes",
    needs_data_plane=False,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
