"""HydRA's Fig. 9(a): TCP while the topology changes, in three cycles.

In the full form, a fourth cycle is as slow as the paper's prototype: 1.2 s to tag ports, and rules
pushed one by one. The delay of a whole change and the throughput that TCP loses are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.claims import judged, unjudged
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
from mininet_scenarios.testbed.bare_tor import tagging_s
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

_PAPER_MBPS: Final = 10_000.0
"""Rate of every link but the electrical links, and of all traffic together: one TCP connection
fills one circuit, and the bystander's datagrams are few.
"""
_PROTOTYPE: Final = "prototype"
_TAGGINGS: Final = 5
_CYCLES: Final = (CycleName.DIVERT_FIRST, CycleName.AS_PUBLISHED, CycleName.UNDIVERTED)
_RECOVERS: Final = (
    "TCP's own recovery, from what overtakes and from a queue that is full at a tenth of the rate, "
    "takes as long after a delay of milliseconds as after the paper's seconds"
)
_FASTER: Final = (
    "the paper's prototype took seconds to retag its ports and to push its rules one by one, "
    "while TCP stood still; here both take milliseconds, and the outage is the "
    "mirrors' own time and TCP's recovery"
)


@dataclass(frozen=True, slots=True)
class ThreeWays:
    """A repetition on one testbed."""

    divert_first: Fig9aResult
    """In HydRA's order, with drain and gate."""
    as_published: Fig9aResult
    """Diverted, moved and activated: without drain and gate."""
    undiverted: Fig9aResult
    """Mirrors move under the traffic; unpublished for the paper's network."""
    scale: Scale
    prototype: Fig9aResult | None = None
    """As published, as slowly as the paper's prototype; None in the short form."""
    tagging_s: float | None = None
    """Time to tag a ToR's 32 ports; None in earlier results."""

    @property
    def by_name(self) -> dict[str, Fig9aResult]:
        ways = {
            "divert first": self.divert_first,
            "as published": self.as_published,
            "undiverted": self.undiverted,
        }
        return ways if self.prototype is None else {**ways, _PROTOTYPE: self.prototype}


def _cycles(full: bool) -> tuple[CycleName, ...]:
    return (*_CYCLES, CycleName.PROTOTYPE) if full else _CYCLES


def _plan(full: bool) -> fig9a_scenario.Fig9aPlan:
    return fig9a_scenario.FULL if full else fig9a_scenario.SHORT


def _measure(setting: Setting, narrator: Narrator) -> ThreeWays:
    plan = _plan(setting.full)
    scale = setting.rates.scale(_PAPER_MBPS)
    times = building.times_its_rates(scale.mbps(_PAPER_MBPS))
    with building.stage_of(DEFAULT_CONFIG, times, setting.work_dir / "stage", narrator) as stage:
        ways = fig9a_scenario.run_ways(stage, plan, _cycles(setting.full), narrator)
        tagged_s = tagging_s(_TAGGINGS)
    ours, as_published, undiverted, *further = ways
    prototype = further[0] if further else None
    return ThreeWays(ours, as_published, undiverted, scale, prototype, tagged_s)


def _conclude(runs: Sequence[ThreeWays]) -> Findings:
    return Findings(tuple(_rows(runs)))


def _rows(found: Sequence[ThreeWays]) -> Iterator[Row]:
    yield found[0].scale.row(_PAPER_MBPS, "circuits")
    published_ways = [measured.as_published for measured in found]
    slow = [measured.prototype for measured in found if measured.prototype is not None]
    yield _static_row(published_ways, found[0].scale)
    costs = list(_cost_rows("as published", published_ways, _FASTER, _RECOVERS))
    yield from map(_for_comparison, costs) if slow else costs
    if slow:
        yield from _cost_rows(_PROTOTYPE, slow)
    delays = list(_delay_rows("as published", published_ways, _FASTER))
    yield from map(_for_comparison, delays) if slow else delays
    if slow:
        yield from _delay_rows(_PROTOTYPE, slow)
    yield from _tagging_rows(found)
    for way in found[0].by_name:
        if way != "divert first":
            yield from _loss_rows(way, [measured.by_name[way] for measured in found])
    yield from map(unjudged, fig9_table.combined([measured.divert_first for measured in found], []))


def _for_comparison(row: Row) -> Row:
    """The row without a verdict: the claim is judged by the prototype's row."""
    return Row(row.figure, "", row.ours)


def _static_row(published_ways: Sequence[Fig9aResult], scale: Scale) -> Row:
    static_mbps = [result.static.average_mbps for result in published_ways]
    static = [mbps / scale.mbps(_PAPER_MBPS) for mbps in static_mbps]
    figure = "as published: static throughput, share of the circuit"
    why = scale.too_slow(fmean(static_mbps), _PAPER_MBPS)
    return judged("hydra/static", fmean(static), figure, ranged(static, ".1%"), why)


def _cost_rows(
    way: str, results: Sequence[Fig9aResult], why: str = "", why_part: str = ""
) -> Iterator[Row]:
    shares: dict[int, list[float]] = {}
    for result in results:
        for run in result.changing:
            share = result.share_at(run, published.FIG9A_PERIOD_S)
            shares.setdefault(run.rules, []).append(share)
    for rules, values in shares.items():
        costs = [1 - share for share in values]
        figure = f"{way}: lost, share of static, a change every 10 s, {rules} rules"
        yield judged(f"hydra/cost-{rules}", fmean(costs), figure, ranged(costs, ".1%"), why)
    few, many = min(shares), max(shares)
    costs = [a - b for a, b in zip(shares[few], shares[many], strict=True)]
    figure = f"{way}: cost of {many} rules beyond {few}, share of static"
    yield judged("hydra/cost-of-rules", fmean(costs), figure, ranged(costs, ".1%"), why)
    yield from _part_rows(way, results, why_part)


def _delay_rows(way: str, results: Sequence[Fig9aResult], why: str = "") -> Iterator[Row]:
    for runs in zip(*(result.changing for result in results), strict=True):
        delays = [delay for run in runs if (delay := run.mean_delay) is not None]
        if delays:
            delays_ms = [delay.delay_ms for delay in delays]
            figure = f"{way}: reconfiguration delay, {runs[0].rules} rules"
            key = f"hydra/delay-{runs[0].rules}"
            yield judged(key, fmean(delays_ms), figure, ranged(delays_ms, ".0f", " ms"), why)


def _tagging_rows(found: Sequence[ThreeWays]) -> Iterator[Row]:
    """Rows of the time to tag ToR ports, which no rule delays."""
    runs = [run for measured in found for run in measured.as_published.changing]
    retags_ms = [delay.retag_ms for run in runs if (delay := run.mean_delay) is not None]
    if retags_ms:
        ours = ranged(retags_ms, ".0f", " ms")
        yield judged("hydra/tagging", fmean(retags_ms), "as published: ToR retag", ours, _FASTER)
    tagged_s = [measured.tagging_s for measured in found if measured.tagging_s is not None]
    if tagged_s:
        figure = f"32 ports of a ToR tagged, longest of {_TAGGINGS}"
        yield judged("hydra/tagging-32", max(tagged_s), figure, f"{1e3 * max(tagged_s):.0f} ms")


def _part_rows(way: str, results: Sequence[Fig9aResult], why: str) -> Iterator[Row]:
    """Cost of a change to TCP, as time at full rate, relative to the change's own delay.

    Meanwhile TCP goes on over the electrical network, at a tenth of the rate, and dives and jumps
    sharply (section V.B): a change costs something, and less than the change's delay.
    """
    for runs in zip(*(result.changing for result in results), strict=True):
        rules = runs[0].rules
        parts = [
            (1 - result.share(run)) * result.plan.period_s / (delay.delay_ms / 1e3)
            for result, run in zip(results, runs, strict=True)
            if (delay := run.mean_delay) is not None
        ]
        if not parts:
            continue
        figure = f"{way}: time that a change costs TCP over its delay, {rules} rules"
        yield judged(f"hydra/part-{rules}", fmean(parts), figure, ranged(parts, ".2f"), why)


def _loss_rows(way: str, results: Sequence[Fig9aResult]) -> Iterator[Row]:
    lost = sum(result.udp.affected.lost for result in results)
    sent = sum(result.udp.affected.sent for result in results)
    yield Row(f"{way}: datagrams lost, affected pair", "", f"{lost} of {sent}")
    dark = sum(result.dark_frames for result in results)
    yield Row(f"{way}: frames at dark OCS ports", "", str(dark))


def _draw(runs: Sequence[ThreeWays], directory: Path) -> Sequence[Path]:
    written = []
    for number, run in enumerate(runs, start=1):
        for way, result in run.by_name.items():
            written += [directory / f"fig9a-{way.replace(' ', '-')}-{number}.png"]
            fig9_plots.plot_fig9a(result, written[-1], way)
        written += [directory / f"delay-{number}.png"]
        fig9_plots.plot_delays(run.divert_first.changing, written[-1])
    return written


EXPERIMENT: Final = Experiment(
    name="fig9a",
    title="TCP between two racks while the topology changes",
    source=published.FIG9A_SOURCE,
    topology="configs/demo.yaml: four racks of two servers, two optical planes",
    workload="iperf3 between two racks; datagrams between others",
    policy="a change every 10 s, 100 and 5000 rules; divert first, as published, "
    "undiverted; in full also as slowly as the paper's prototype",
    measured="throughput, reconfiguration delay by substep, loss",
    needs_data_plane=True,
    expected_s=lambda full: building.BUILD_S + _plan(full).expected_s(len(_cycles(full))),
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
