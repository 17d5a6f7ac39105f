"""c-Through's Table 2: throughput with and without demultiplexing at the server, and the price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mininet_scenarios.experiments.claims import judged
from mininet_scenarios.experiments.cthrough import table2_scenario
from mininet_scenarios.experiments.cthrough.table2_scenario import (
    ELECTRICAL,
    NETWORKS,
    OPTICAL,
    PROTOCOLS,
    TCP,
    UDP,
    Cost,
    Length,
    Rate,
)
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, VERMILION
from mininet_scenarios.reporting.table import Row, ranged
from mininet_scenarios.stage import building

_PAPER_MBPS: Final = 1000.0
"""Rate of the circuit, and of all traffic together."""
PAPER: Final[Mapping[tuple[str, str], tuple[float, float]]] = MappingProxyType(
    {
        (TCP, OPTICAL): (940.0, 921.0),
        (TCP, ELECTRICAL): (94.0, 94.0),
        (UDP, OPTICAL): (945.0, 945.0),
        (UDP, ELECTRICAL): (94.0, 94.0),
    }
)
"""Mb/s without and with the output scheduler."""
_LINK_MBPS: Final = {"optical": 1000.0, "electrical": 100.0}
"""Rates of the paper's links."""
"""Relative difference between runs of some seconds."""
_WHY: Final = (
    "The paper's scheduler is in the server's kernel, and the paper counts throughput alone. Ours "
    "are Open vSwitch's rules, of which a flow's first frame walks all tables and the others match "
    "a cached entry; forwarding in user space costs most by the copies to and from each port. "
    "The controller runs on the same machine, and takes processors away from the traffic; the "
    "processor time is Open vSwitch's alone, answers to the controller included. Rounds of "
    "the same way differ by as much as both ways do: no price can be seen, and no gain."
)


@dataclass(frozen=True, slots=True)
class Table2:
    """A repetition with its rates and costs."""

    scale: Scale
    rates: tuple[Rate, ...]
    costs: tuple[Cost, ...]


def _length(full: bool) -> Length:
    return table2_scenario.FULL if full else table2_scenario.SHORT


def _measure(setting: Setting, narrator: Narrator) -> Table2:
    length, scale = _length(setting.full), setting.rates.scale(_PAPER_MBPS)
    rated, unlimited = setting.work_dir / "rated", setting.work_dir / "unlimited"
    with table2_scenario.stage_of(scale.mbps(_PAPER_MBPS), rated, narrator) as stage:
        rates = table2_scenario.rates(stage, length, narrator)
    with table2_scenario.stage_of_any_rate(unlimited, narrator) as stage:
        costs = table2_scenario.costs(stage, length, narrator)
    return Table2(scale, rates, costs)


# --- conclusions ------------------------------------------------------------------------------


def _mbps(found: Sequence[Table2], protocol: str, network: str, demultiplexed: bool) -> float:
    wanted = protocol, network, demultiplexed
    return fmean(
        rate.mbps
        for measured in found
        for rate in measured.rates
        if (rate.protocol, rate.network, rate.demultiplexed) == wanted
    )


def _costs(found: Sequence[Table2], network: str, demultiplexed: bool) -> list[Cost]:
    wanted = network, demultiplexed
    return [
        cost
        for measured in found
        for cost in measured.costs
        if (cost.network, cost.demultiplexed) == wanted
    ]


def _cpu_s(found: Sequence[Table2], network: str, demultiplexed: bool) -> float | None:
    costs = _costs(found, network, demultiplexed)
    known = [cost.cpu_s_per_gbit for cost in costs if cost.cpu_s_per_gbit is not None]
    return fmean(known) if known else None


def _conclude(found: Sequence[Table2]) -> Findings:
    rows = [found[0].scale.row(_PAPER_MBPS, "circuits"), *_rate_rows(found), *_cost_rows(found)]
    return Findings(tuple(rows), (_table(found),))


def _rate_rows(found: Sequence[Table2]) -> Iterator[Row]:
    for protocol, network in PAPER:
        name = f"{protocol} {network}"
        link_mbps = found[0].scale.mbps(_LINK_MBPS[network])
        rates = {way: _mbps(found, protocol, network, way) for way in (False, True)}
        for way, mbps in rates.items():
            kind = "demultiplexed" if way else "plain"
            ours = f"{mbps:.1f} of {link_mbps:.1f} Mb/s"
            key, figure = f"c-through/{kind} {name}", f"{network}, {protocol}: {kind}"
            why = found[0].scale.too_slow(mbps, _LINK_MBPS[network])
            yield judged(key, mbps / link_mbps, figure, ours, why)
        yield judged(
            f"c-through/cost {name}",
            1 - rates[True] / rates[False],
            f"{network}, {protocol}: lost by demultiplexing, of plain",
        )


def _cost_rows(found: Sequence[Table2]) -> Iterator[Row]:
    for network in NETWORKS:
        ours, plain = ([cost.mbps for cost in _costs(found, network, way)] for way in (True, False))
        ratio = fmean(ours) / fmean(plain)
        yield Row(
            f"{network}, TCP over links of any rate: demultiplexed, of plain",
            "",
            f"{ranged(ours, '.0f')} of {ranged(plain, '.0f')} Mb/s: {ratio:.2f}",
            why=_WHY,
        )
        ours_s, plain_s = _cpu_s(found, network, True), _cpu_s(found, network, False)
        if ours_s is not None and plain_s is not None:
            yield Row(
                f"{network}: processor time a Gb, demultiplexed and plain",
                "",
                f"{ours_s:.2f} and {plain_s:.2f} s: {ours_s / plain_s:.2f}",
                why=_WHY,
            )


def _table(found: Sequence[Table2]) -> Table:
    """Table as in the paper."""
    columns = [(demultiplexed, network) for demultiplexed in (False, True) for network in NETWORKS]

    def lines(protocol: str) -> Iterator[tuple[str, ...]]:
        yield (
            f"{protocol}, paper",
            *(f"{PAPER[protocol, network][way]:g}" for way, network in columns),
        )
        yield (
            f"{protocol}, ours",
            *(f"{_mbps(found, protocol, network, way):.1f}" for way, network in columns),
        )

    return Table(
        f"Table 2: throughput in Mb/s; the paper's, and ours at 1:{found[0].scale.divisor}",
        (
            "",
            *(
                f"{'demultiplexed' if demultiplexed else 'plain'}, {network}"
                for demultiplexed, network in columns
            ),
        ),
        tuple(line for protocol in PROTOCOLS for line in lines(protocol)),
    )


def _draw(found: Sequence[Table2], directory: Path) -> Sequence[Path]:
    figure = Figure(figsize=(10.0, 4.5), dpi=150, layout="constrained")
    throughput, cost = figure.subplots(1, 2, width_ratios=(2, 1))
    kinds = list(PAPER)
    ours = [_mbps(found, *kind, True) / _mbps(found, *kind, False) for kind in kinds]
    paper = [with_it / without for without, with_it in PAPER.values()]
    _bars(throughput, [", ".join(kind) for kind in kinds], {"ours": ours, "paper": paper})
    throughput.set_ylabel("throughput, demultiplexed / plain")
    mbps = {
        name: [fmean(cost.mbps for cost in _costs(found, network, way)) for network in NETWORKS]
        for name, way in (("demultiplexed", True), ("plain", False))
    }
    _bars(cost, NETWORKS, mbps)
    cost.set_ylabel("TCP over links of any rate [Mb/s]")
    written = directory / "table2.png"
    figure.savefig(written)
    return [written]


def _bars(axes: Axes, labels: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """Draw two bars for each label."""
    for number, ((name, heights), colour) in enumerate(
        zip(series.items(), (BLUE, VERMILION), strict=True)
    ):
        places = [place + (number - 0.5) * 0.4 for place in range(len(labels))]
        bars = axes.bar(places, heights, 0.38, label=name, color=colour)
        axes.bar_label(bars, fmt="%.3g", fontsize=8)
    axes.set_xticks(range(len(labels)), [label.replace(", ", "\n") for label in labels])
    above = (0.5, 1.0)
    axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=above, ncols=len(series))


EXPERIMENT: Final = Experiment(
    name="cthrough-table2",
    title="Throughput with and without demultiplexing at the server",
    source="Wang et al., c-Through, SIGCOMM 2010, section 5.2.2, Table 2",
    topology="configs/demo.yaml: the electrical network has a tenth of a circuit's rate; and the "
    "same with links of any rate",
    workload="iperf3 between two racks, TCP CUBIC and UDP, over the electrical network and over a "
    "circuit",
    policy="on request: the controller's rules at the servers' vswitches; against a rule each way, "
    "without a controller",
    measured="throughput at the receiver; over links of any rate also the processor time of "
    "forwarding",
    needs_data_plane=True,
    expected_s=lambda full: (
        2 * building.BUILD_S + _length(full).rates_expected_s + _length(full).costs_expected_s
    ),
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
