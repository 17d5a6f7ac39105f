"""HydRA's Fig. 9(a): TCP while the topology changes, hitless and as the paper published it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from hydra.policy import Transition
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.experiments.hydra_paper import (
    fig9_plots,
    fig9_table,
    fig9a_scenario,
    published,
)
from mininet_scenarios.experiments.hydra_paper.fig9a_scenario import Fig9aResult
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row, ranged
from mininet_scenarios.stage import building

_PAPER_MBPS: Final = 10_000.0
"""Rate of every link but the electrical ones, and of all traffic together: one TCP connection fills
one circuit, and the bystander's datagrams are few."""
_WAYS: Final = (Transition.HITLESS, Transition.AS_PUBLISHED)
_NOISE: Final = 0.02
"""Difference between shares of runs of some seconds."""
_FASTER: Final = (
    "the paper's prototype took seconds to retag its ports and to push its rules one by one, "
    "and its TCP stood still meanwhile; here both take milliseconds, and what is left of the "
    "outage is the mirrors' own time and TCP's recovery from it"
)


@dataclass(frozen=True, slots=True)
class BothWays:
    """A repetition on one testbed."""

    hitless: Fig9aResult
    as_published: Fig9aResult
    """Result when mirrors move under the traffic, without divert and drain."""
    scale: Scale


def _plan(full: bool) -> fig9a_scenario.Fig9aPlan:
    return fig9a_scenario.FULL if full else fig9a_scenario.SHORT


def _measure(setting: Setting, narrator: Narrator) -> BothWays:
    plan = _plan(setting.full)
    scale = setting.rates.scale(_PAPER_MBPS)
    times = building.times_its_rates(scale.mbps(_PAPER_MBPS))
    with building.stage_of(
        building.DEFAULT_CONFIG, times, setting.work_dir / "stage", narrator
    ) as stage:
        hitless, as_published = fig9a_scenario.run_ways(stage, plan, _WAYS, narrator)
    return BothWays(hitless, as_published, scale)


def _conclude(runs: Sequence[BothWays]) -> Findings:
    return Findings(tuple(_rows(runs)))


def _rows(found: Sequence[BothWays]) -> Iterator[Row]:
    yield found[0].scale.row(_PAPER_MBPS, "circuits")
    published_ways = [both.as_published for both in found]
    shares: dict[int, list[float]] = {}
    for result in published_ways:
        for run in result.changing:
            share = result.share_at(run, published.FIG9A_PERIOD_S)
            shares.setdefault(run.rules, []).append(share)
    for rules, values in shares.items():
        yield _published_row(rules, values)
    few, many = min(shares), max(shares)
    costs = [a - b for a, b in zip(shares[few], shares[many], strict=True)]
    yield Row(
        f"as published: what {many} rules cost beyond {few}, share of static",
        f"{published.FIG9A_SHARES[few] - published.FIG9A_SHARES[many]:.1%}",
        ranged(costs, ".1%"),
        target=f"≥ −{_NOISE:.0%}: no less",
        met=fmean(shares[many]) <= fmean(shares[few]) + _NOISE,
    )
    hitless_ways = [both.hitless for both in found]
    yield from _loss_rows(published_ways, hitless_ways)
    yield from fig9_table.combined(hitless_ways, [])


def _published_row(rules: int, shares: Sequence[float]) -> Row:
    paper, share = published.FIG9A_SHARES[rules], fmean(shares)
    return Row(
        f"as published: share of static, a change every 10 s, {rules} rules",
        f"{paper:.1%}",
        ranged(shares, ".1%"),
        share / paper,
        "below static, 100 %",
        share < 1,
        _FASTER,
    )


def _loss_rows(
    as_published: Sequence[Fig9aResult], hitless: Sequence[Fig9aResult]
) -> Iterator[Row]:
    lost = sum(one.udp.affected.lost for one in as_published)
    sent = sum(one.udp.affected.sent for one in as_published)
    lost_hitless = sum(one.udp.affected.lost for one in hitless)
    yield Row(
        "as published: datagrams lost, affected pair",
        "",
        f"{lost} of {sent}",
        target=f"more than hitless, {lost_hitless}",
        met=lost > lost_hitless,
    )
    dark = sum(one.dark_frames for one in as_published)
    yield Row("as published: frames at dark OCS ports", "", str(dark))


def _draw(runs: Sequence[BothWays], directory: Path) -> Sequence[Path]:
    written = []
    for number, run in enumerate(runs, start=1):
        for result, way in ((run.hitless, "hitless"), (run.as_published, "as published")):
            written += [directory / f"fig9a-{way.replace(' ', '-')}-{number}.png"]
            fig9_plots.plot_fig9a(result, written[-1], way)
        written += [directory / f"delay-{number}.png"]
        fig9_plots.plot_delays(run.hitless.changing, written[-1])
    return written


EXPERIMENT: Final = Experiment(
    name="fig9a",
    title="TCP between two racks while the topology changes",
    source=published.FIG9A_SOURCE,
    topology="configs/demo.yaml: four racks of two servers, two optical planes",
    workload="iperf3 between two racks; datagrams between others",
    policy="a change every 10 s, with 100 and 5000 rules; hitless, and as published",
    measured="throughput, reconfiguration delay by substep, loss",
    needs_data_plane=True,
    expected_s=lambda full: building.BUILD_S + _plan(full).expected_s(len(_WAYS)),
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
