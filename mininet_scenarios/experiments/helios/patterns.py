"""Helios' patterns of demand, planned for: throughput against stability (Helios, 5.1 to 5.4).

Four pods of six hosts. Every host sends to other hosts; after each stability period, to new
destinations. The control loop sees the new demand one cycle later, plans with the controller's own
algorithms, and moves mirrors; until the switches' ports are up, changed circuits are dark. Until
the change, the old circuits carry a part of the new demand; the packet switch takes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from apps.offline.study import plain_fabric
from hydra.model import DemandMatrix, Topology
from mininet_scenarios.experiments.bounds import packet_share
from mininet_scenarios.experiments.claims import judged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREEN, VERMILION, legend_below, logarithmic
from mininet_scenarios.reporting.table import Row, ranged
from topology.algorithms import algorithm
from topology.problem import Budget, FabricArrays, PlanResult, Reserved

PODS: Final = 4
HOSTS: Final = 6
_LINK_MBPS: Final = 10_000.0
_FIVE: Final = (_LINK_MBPS,) * 5
_BY_CONSTRUCTION: Final = "5 circuits for 6 hosts carry 5/6, whatever is planned"
_SUPERLINKS: Final = (_LINK_MBPS, 2 * _LINK_MBPS, 2 * _LINK_MBPS)
"""Rates of a pod's circuits without and with WDM (Helios, Fig. 3 and 4): a superlink of two
wavelengths is one port of an optical switch.
"""
STABILITIES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_ROUND: Final = 39
"""Number of periods until both strides have come around: 3 · 13."""
LOOP_S: Final = 0.0965 + 0.1684
"""Helios, 5.6: mandatory and optional part of the control loop."""
_SWITCHING_S: Final = 0.025
_DEBOUNCE_S: Final = 2.0
_EDC_S: Final = 0.6
"""Times for which debounce and EDC hide a circuit from the switch port after the return of light
(Helios, 5.2).
"""
PORT_UP_S: Final[Mapping[str, float]] = MappingProxyType(
    {"neither": 0.0, "EDC": _EDC_S, "debounce and EDC": _DEBOUNCE_S + _EDC_S}
)
_WDM: Final = "unidirectional, WDM"
_CIRCUITS: Final[Mapping[str, tuple[str, tuple[float, ...]]]] = MappingProxyType(
    {
        "unidirectional": ("helios", _FIVE),
        "bidirectional": ("edmonds", _FIVE),
        _WDM: ("helios", _SUPERLINKS),
    }
)
"""Planning algorithm, and rate of a pod's port at each optical switch, by kind of circuit."""
_COLOURS: Final = dict(zip(_CIRCUITS, (BLUE, VERMILION, GREEN), strict=True))
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """A pattern at one stability."""

    pattern: str
    stability_s: float
    circuits: str
    """A key of :data:`_CIRCUITS`."""
    port_up: str
    share: float
    """Share of the throughput of an ideal packet switch with full bisection."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Results of all patterns."""

    runs: tuple[Run, ...]
    electrical: Mapping[str, float]
    """Share of full-bisection throughput for the packet switch alone, by pattern."""

    def share(self, pattern: str, stability_s: float, circuits: str, port_up: str) -> float:
        wanted = (pattern, stability_s, circuits, port_up)
        return next(
            run.share
            for run in self.runs
            if (run.pattern, run.stability_s, run.circuits, run.port_up) == wanted
        )


def pod_stride(period: int, _chance: np.random.Generator) -> DemandMatrix:
    """PStride: all hosts of pod i send to pod i + k, k cycling through 1 to 3."""
    stride = 1 + period % (PODS - 1)
    demand = np.zeros((PODS, PODS))
    for pod in range(PODS):
        demand[pod, (pod + stride) % PODS] = HOSTS * _LINK_MBPS
    return demand


def host_stride(period: int, _chance: np.random.Generator) -> DemandMatrix:
    """HStride: host i sends to host i + 6 + k, k cycling through 0 to 12."""
    hosts = PODS * HOSTS
    stride = HOSTS + period % 13
    return _between_pods([(host, (host + stride) % hosts, 1.0) for host in range(hosts)])


def random_hosts(_period: int, chance: np.random.Generator) -> DemandMatrix:
    """Random: each host sends to a host in another pod; hosts with the same receiver share its
    link.
    """
    hosts = np.arange(PODS * HOSTS)
    away = chance.integers(HOSTS, PODS * HOSTS, len(hosts))
    # A step of ``away`` hosts from the first host of a pod never ends in the same pod.
    to = (hosts // HOSTS * HOSTS + away) % len(hosts)
    meeting = np.bincount(to, minlength=len(hosts))
    return _between_pods([(h, int(to[h]), 1 / meeting[to[h]]) for h in hosts.tolist()])


def _between_pods(flows: Sequence[tuple[int, int, float]]) -> DemandMatrix:
    demand = np.zeros((PODS, PODS))
    for src, dst, share in flows:
        if src // HOSTS != dst // HOSTS:
            demand[src // HOSTS, dst // HOSTS] += share * _LINK_MBPS
    return demand


PATTERNS: Final[Mapping[str, Callable[[int, np.random.Generator], DemandMatrix]]] = (
    MappingProxyType({"PStride": pod_stride, "HStride": host_stride, "Random": random_hosts})
)


def _measure(setting: Setting, narrator: Narrator) -> Patterns:
    runs: list[Run] = []
    electrical: dict[str, float] = {}
    periods = 1 + _ROUND * (3 if setting.full else 1)
    with narrator.phase("playing the patterns", _expected_s(setting.full)):
        for pattern, make in PATTERNS.items():
            chance = np.random.default_rng(setting.seed)
            demands = [make(period, chance) for period in range(periods)]
            electrical[pattern] = fmean(packet_share(d, _LINK_MBPS) for d in demands)
            for circuits in _CIRCUITS:
                changes = _changes(circuits, demands)
                runs += [
                    Run(
                        pattern,
                        stability_s,
                        circuits,
                        label,
                        fmean(change.mean(stability_s, port_up_s) for change in changes),
                    )
                    for label, port_up_s in PORT_UP_S.items()
                    for stability_s in STABILITIES_S
                ]
    return Patterns(tuple(runs), electrical)


@dataclass(frozen=True, slots=True)
class Change:
    """Carried shares of a new demand while the topology follows."""

    before: float
    """Share over the circuits of the previous demand."""
    dark: float
    """Share over the old circuits that need not move."""
    after: float

    def mean(self, stability_s: float, port_up_s: float) -> float:
        """Mean over a stability period: old circuits for a control loop, then no light, then new
        circuits.
        """
        blind_s = min(LOOP_S, stability_s)
        dark_s = min(_SWITCHING_S + port_up_s, stability_s - blind_s)
        lit_s = stability_s - blind_s - dark_s
        carried_s = blind_s * self.before + dark_s * self.dark + lit_s * self.after
        return carried_s / stability_s


def _changes(circuits: str, demands: Sequence[DemandMatrix]) -> list[Change]:
    """Changes from each demand to the next; the same for all stabilities."""
    capacities = [_capacity(circuits, demand) for demand in demands]
    return [
        Change(
            hybrid_share(demand, before),
            hybrid_share(demand, np.minimum(before, after)),
            hybrid_share(demand, after),
        )
        for demand, (before, after) in zip(demands[1:], pairwise(capacities), strict=True)
    ]


def _capacity(circuits: str, demand: DemandMatrix) -> Array:
    """Shape (N, N): Mbps from pod to pod over ``circuits`` set up for a demand.

    Optical switches are planned for one after the other, each for the demand left by the previous
    switches (Helios, 4.3.3). So two pods may be joined several times, also by algorithms with a
    single path per pair.
    """
    name, rates_mbps = _CIRCUITS[circuits]
    capacity = np.zeros((PODS, PODS))
    for rate_mbps in rates_mbps:
        fabric = FabricArrays.of(plain_fabric(PODS, 1, rate_mbps))
        left = np.maximum(0, demand - capacity)
        result = algorithm(name)(fabric, left, Topology(), Reserved(), Budget(1))
        capacity += circuit_capacity(fabric, result)
    return capacity


def circuit_capacity(fabric: FabricArrays, result: PlanResult) -> Array:
    """Shape (N, N): Mbps from rack to rack over circuits or light paths of one hop."""
    capacity = np.zeros((fabric.n_racks, fabric.n_racks))
    for slot in result.slots:
        for light in slot.lightpaths:
            rate = min(fabric.port_rate_mbps[light.sender], fabric.port_rate_mbps[light.receiver])
            capacity[fabric.port_rack[light.sender], fabric.port_rack[light.receiver]] += rate
    for circuit in result.topology.circuits:
        a, b = fabric.racks_of(circuit)
        capacity[a, b] += fabric.rate_of(circuit)
        capacity[b, a] += fabric.rate_of(circuit)
    return capacity


def hybrid_share(demand: DemandMatrix, capacity: Array) -> float:
    """Share of a demand carried by circuits with ``capacity`` and, for the rest, a packet link per
    pod.
    """
    total = float(demand.sum())
    if not total:
        return 1.0
    on_circuits = np.minimum(demand, capacity)
    left = demand - on_circuits
    packets = packet_share(left, _LINK_MBPS) * float(left.sum())
    return (float(on_circuits.sum()) + packets) / total


def _conclude(runs: Sequence[Patterns]) -> Findings:
    def mean(pattern: str, stability_s: float, circuits: str, port_up: str = "neither") -> float:
        return fmean(run.share(pattern, stability_s, circuits, port_up) for run in runs)

    one_way = next(iter(_CIRCUITS))
    rows = []
    for pattern in PATTERNS:
        series = [mean(pattern, stability_s, one_way) for stability_s in STABILITIES_S]
        figure = f"{pattern}: share of full bisection from 0.5 to 16 s"
        ours = f"{series[0]:.0%} to {series[-1]:.0%}"
        rows.append(judged(f"helios/rises planned {pattern}", series[-1] / series[0], figure, ours))
    strides = [(mean("PStride", s, one_way), mean("HStride", s, one_way)) for s in STABILITIES_S]
    least = min(h / p for p, h in strides)
    figure = "HStride over PStride, least over all stabilities"
    rows.append(judged("helios/strides planned", least, figure))
    rows.append(_wdm_row(mean))
    rows += _asymmetric_rows()
    worst = mean("PStride", 1.0, one_way, "debounce and EDC")
    alone = fmean(run.electrical["PStride"] for run in runs)
    figure = "PStride at 1 s, debounce and EDC on, over the packet switch alone"
    rows.append(judged("helios/debounced planned", worst / alone, figure))
    return Findings(tuple(rows), tuple(_table(runs, circuits) for circuits in _CIRCUITS))


def _wdm_row(mean: Callable[[str, float, str], float]) -> Row:
    """Row of all patterns and stabilities, judged by the ratio farthest from 1."""
    one_way = next(iter(_CIRCUITS))
    ratios = [
        mean(pattern, stability_s, _WDM) / mean(pattern, stability_s, one_way)
        for pattern in PATTERNS
        for stability_s in STABILITIES_S
    ]
    farthest = max(ratios, key=lambda ratio: abs(ratio - 1))
    figure = "superlinks of two wavelengths over single links, farthest from 1"
    return judged("helios/wdm", farthest, figure, ranged(ratios, ".2f"))


def _asymmetric_rows() -> Iterator[Row]:
    """Rows of Fig. 12: circuits carry all traffic, since the prototype does not split traffic."""
    demand = pod_stride(0, np.random.default_rng(0))
    one_way, two_way = (
        float(np.minimum(demand, _capacity(circuits, demand)).sum())
        for circuits in ("unidirectional", "bidirectional")
    )
    figure = "unidirectional over bidirectional circuits, stride 1: all demand asymmetric"
    yield judged("helios/one-way planned", one_way / two_way, figure)
    figure = "unidirectional circuits alone over full bisection, stride 1, while nothing moves"
    yield Row(figure, "", f"{one_way / float(demand.sum()):.2f}", why=_BY_CONSTRUCTION)


def _table(runs: Sequence[Patterns], circuits: str) -> Table:
    return Table(
        f"Share of full bisection by stability, {circuits}",
        ("pattern", "ports come up after", *(f"{s:g} s" for s in STABILITIES_S), "packets alone"),
        tuple(
            (
                pattern,
                f"{label}: {PORT_UP_S[label]:g} s",
                *(
                    f"{fmean(run.share(pattern, s, circuits, label) for run in runs):.0%}"
                    for s in STABILITIES_S
                ),
                f"{fmean(run.electrical[pattern] for run in runs):.0%}",
            )
            for pattern in PATTERNS
            for label in PORT_UP_S
        ),
    )


def _draw(runs: Sequence[Patterns], directory: Path) -> Sequence[Path]:
    figure = Figure(figsize=(10.0, 4.5), dpi=150, layout="constrained")
    styles = {"neither": "-", "EDC": "--", "debounce and EDC": ":"}
    for axes, pattern in zip(figure.subplots(1, len(PATTERNS), sharey=True), PATTERNS, strict=True):
        for label, style in styles.items():
            for circuits, colour in _COLOURS.items():
                shares = [
                    100 * fmean(run.share(pattern, s, circuits, label) for run in runs)
                    for s in STABILITIES_S
                ]
                name = f"{circuits}, {label}"
                axes.plot(STABILITIES_S, shares, style, color=colour, label=name)
        alone = 100 * runs[0].electrical[pattern]
        axes.axhline(alone, color="black", linewidth=0.8, label="packets alone")
        logarithmic(axes, STABILITIES_S)
        axes.set_title(pattern)
        axes.set_xlabel("stability [s]")
        axes.set_ylim(0, 102)
    figure.axes[0].set_ylabel("share of full bisection [%]")
    legend_below(figure, figure.axes[0], 4)
    written = directory / "patterns.png"
    figure.savefig(written)
    return [written]


def _expected_s(full: bool) -> float:
    return 12.0 if full else 4.0


EXPERIMENT: Final = Experiment(
    name="helios-patterns",
    title="Throughput against stability, planned",
    source="Helios, SIGCOMM 2010, sections 5.1 to 5.6, Fig. 8 to 12",
    topology=f"{PODS} pods of {HOSTS} hosts, {len(_FIVE)} circuits and a packet link a pod, "
    f"10 Gb/s each; with WDM {len(_SUPERLINKS)} circuits, two of them of 20 Gb/s",
    workload="PStride, HStride and Random, new destinations every 0.5 to 16 s",
    policy=f"a control loop of {LOOP_S * 1000:.0f} ms; helios (unidirectional) and edmonds "
    "(bidirectional)",
    measured="rates that fit on circuits and packet links, as a share of full bisection; no "
    "packets are sent",
    needs_data_plane=False,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
