"""HydRA's Fig. 9(a): TCP while the topology changes, hitless and as the paper published it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hydra.policy import Transition
from mininet_scenarios import demo, fig9a, plots, published, report
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.fig9a import Fig9aResult, TcpRun
from mininet_scenarios.narrator import Narrator
from mininet_scenarios.report import Row

_FASTER: Final = (
    "the paper's prototype took seconds to retag its ports and to push its rules one by one, "
    "and its TCP stood still meanwhile; here both take milliseconds, and what is left of the "
    "outage is the mirrors' own time and TCP's recovery from it"
)


@dataclass(frozen=True, slots=True)
class BothWays:
    """One repetition on one testbed."""

    hitless: Fig9aResult
    as_published: Fig9aResult
    """Mirrors move under the traffic, without divert and drain."""


def _plan(full: bool) -> fig9a.Fig9aPlan:
    return fig9a.FULL if full else fig9a.QUICK


def _measure(setting: Setting, narrator: Narrator) -> BothWays:
    plan = _plan(setting.full)
    with demo.stage_of(demo.DEFAULT_CONFIG, 1.0, setting.work_dir / "stage", narrator) as stage:
        narrator.say("as published: without divert and drain")
        published_way = fig9a.run(
            stage, replace(plan, transition=Transition.AS_PUBLISHED.value), narrator
        )
        narrator.say("hitless")
        return BothWays(fig9a.run(stage, plan, narrator), published_way)


def _conclude(runs: Sequence[BothWays]) -> Findings:
    return Findings(tuple(row for run in runs for row in _rows(run)))


def _rows(run: BothWays) -> Iterator[Row]:
    for theirs, ours in zip(run.as_published.changing, run.hitless.changing, strict=True):
        yield from _published_rows(run, theirs, ours)
    lost = run.as_published.udp.affected
    yield Row("as published: datagrams lost, affected pair", "", f"{lost.lost} of {lost.sent}")
    yield Row("as published: frames at dark OCS ports", "", str(run.as_published.dark_frames))
    yield from report.rows(run.hitless, None)


def _published_rows(run: BothWays, theirs: TcpRun, ours: TcpRun) -> Iterator[Row]:
    paper = published.FIG9A_SHARES[theirs.rules]
    share = run.as_published.share_at(theirs, published.FIG9A_PERIOD_S)
    hitless = run.hitless.share_at(ours, published.FIG9A_PERIOD_S)
    yield Row(
        f"as published: share of static, a change every 10 s, {theirs.rules} rules",
        f"{paper:.1%}",
        f"{share:.1%}",
        share / paper,
        f"≤ hitless, {hitless:.1%}",
        share <= hitless,
        why=_FASTER,
    )


def _draw(runs: Sequence[BothWays], directory: Path) -> Sequence[Path]:
    written = []
    for number, run in enumerate(runs, start=1):
        for result, name in ((run.hitless, "hitless"), (run.as_published, "as-published")):
            written += [directory / f"fig9a-{name}-{number}.png"]
            plots.plot_fig9a(result, written[-1])
        written += [directory / f"delay-{number}.png"]
        plots.plot_delays(run.hitless.changing, written[-1])
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
    expected_s=lambda full: demo.BUILD_S + 2 * _plan(full).expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
