"""The closing table: each figure beside the paper's, and whether it is what was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from mininet_scenarios import published
from mininet_scenarios.delays import DelaySplit
from mininet_scenarios.fig9a import Fig9aResult, TcpRun
from mininet_scenarios.fig9b import PERIODIC, Fig9bResult

SHARE_TARGETS: Final = {100: 0.98, 5000: 0.97}
"""Least share of static throughput at a change every 10 s, by rules pushed."""
DELAY_TARGET_MS: Final = 250.0
"""Longest reconfiguration delay with 5000 rules, without mirrors and drain."""
LEAST_AFFECTED_DATAGRAMS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Texts carry their units."""

    figure: str
    paper: str
    ours: str
    ratio: float | None = None
    """Ours over the paper's; None where the paper has no such figure."""
    target: str = ""
    met: bool | None = None
    """None where nothing was asked for."""
    why: str = ""
    """Where ours differs from the paper's: why, in a sentence."""


def rows(fig9a: Fig9aResult | None, fig9b: Fig9bResult | None) -> list[Row]:
    """All lines for what was run."""
    lines: list[Row] = []
    if fig9a is not None:
        lines += _fig9a_rows(fig9a)
    if fig9b is not None:
        lines += _fig9b_rows(fig9b)
    dark = sum(result.dark_frames for result in (fig9a, fig9b) if result is not None)
    lines.append(Row("frames at dark OCS ports", "", str(dark), target="0", met=dark == 0))
    return lines


def table(lines: Iterable[Row], title: str = "HydRA, section V.B: the paper and this run") -> Table:
    """For the terminal; readable without colour as well."""
    result = Table(title=title)
    for heading in ("figure", "paper", "ours", "ours / paper", "target", "met"):
        result.add_column(heading, justify="left" if heading == "figure" else "right")
    for line in lines:
        result.add_row(
            line.figure,
            line.paper,
            line.ours,
            "" if line.ratio is None else f"{line.ratio:.2f}",
            line.target,
            "" if line.met is None else ("[green]yes[/]" if line.met else "[bold red]NO[/]"),
        )
    return result


def _fig9a_rows(result: Fig9aResult) -> Iterator[Row]:
    yield Row(
        "(a) static throughput",
        f"{published.FIG9A_STATIC_GBPS:.2f} Gb/s",
        f"{result.static.average_mbps:.1f} Mb/s",
    )
    for run in result.changing:
        yield from _share_rows(result, run)
    for run in result.changing:
        yield from _delay_rows(run)
    yield from _loss_rows(result)


def _share_rows(result: Fig9aResult, run: TcpRun) -> Iterator[Row]:
    paper = published.FIG9A_SHARES[run.rules]
    target = SHARE_TARGETS[run.rules]
    scaled = result.share_at(run, published.FIG9A_PERIOD_S)
    period_s = result.plan.period_s
    if period_s != published.FIG9A_PERIOD_S:
        yield Row(
            f"(a) share of static, a change every {period_s:g} s, {run.rules} rules",
            "",
            f"{result.share(run):.1%}",
        )
    yield Row(
        f"(a) share of static, a change every 10 s, {run.rules} rules",
        f"{paper:.1%}",
        f"{scaled:.1%}",
        scaled / paper,
        f"≥ {target:.0%}",
        scaled >= target,
    )


def _delay_rows(run: TcpRun) -> Iterator[Row]:
    delay = run.mean_delay
    if delay is None:
        return
    paper_ms = published.FIG9A_DELAYS_S[run.rules] * 1e3
    yield Row(
        f"(a) reconfiguration delay, {run.rules} rules",
        f"{paper_ms:.0f} ms",
        f"{delay.delay_ms:.0f} ms",
        delay.delay_ms / paper_ms,
    )
    yield _without_mirrors(run.rules, delay)
    yield Row(f"(a)   drain, on top, {run.rules} rules", "none", f"{delay.drain_ms:.0f} ms")
    tagging_ms = published.FIG9A_TAGGING_S * 1e3
    yield Row(
        f"(a)   ToR retag, {run.rules} rules",
        f"{tagging_ms:.0f} ms",
        f"{delay.retag_ms:.0f} ms",
        delay.retag_ms / tagging_ms,
    )


def _without_mirrors(rules: int, delay: DelaySplit) -> Row:
    asked = rules == max(published.FIG9A_DELAYS_S)
    return Row(
        f"(a)   without the mirrors' own time, {rules} rules",
        "",
        f"{delay.delay_without_mirrors_ms:.0f} ms",
        target=f"≤ {DELAY_TARGET_MS:.0f} ms" if asked else "",
        met=delay.delay_without_mirrors_ms <= DELAY_TARGET_MS if asked else None,
    )


def _loss_rows(result: Fig9aResult) -> Iterator[Row]:
    runs = (result.static, *result.changing)
    yield Row(
        "(a) TCP retransmissions: static, " + ", ".join(f"{r.rules} rules" for r in runs[1:]),
        "",
        ", ".join(str(run.retransmits) for run in runs),
    )
    lost = sum(run.bystander.lost for run in runs)
    sent = sum(run.bystander.sent for run in runs)
    yield Row(
        "(a) datagrams lost, unaffected pair", "", f"{lost} of {sent}", target="0", met=lost == 0
    )
    affected = result.udp.affected
    yield Row(
        f"(a) datagrams lost, affected pair at {result.udp.load_mbps:g} Mb/s",
        "",
        f"{affected.lost} of {affected.sent}",
        target=f"0 of ≥ {LEAST_AFFECTED_DATAGRAMS}",
        met=affected.lost == 0 and affected.sent >= LEAST_AFFECTED_DATAGRAMS,
    )


def _fig9b_rows(result: Fig9bResult) -> Iterator[Row]:
    yield Row(
        "(b) completion alone", f"{published.FIG9B_ALONE_S} s", f"{result.alone.seconds:.1f} s"
    )
    congested = result.ratio(result.congested)
    paper = published.FIG9B_CONGESTED_RATIO
    yield Row(
        "(b) congested / alone",
        f"{published.FIG9B_CONGESTED_S} s = {paper:.2f}",
        f"{result.congested.seconds:.1f} s = {congested:.2f}",
        congested / paper,
        "> 1.5",
        congested > 1.5,
        f"our background, {result.plan.background_flows} TCP flows, fills up to "
        f"{result.plan.background_share:.0%} of a circuit; the paper does not say how much its own "
        "sent",
    )
    helped = result.ratio(result.helped)
    paper = published.FIG9B_HYDRA_RATIO
    yield Row(
        "(b) congested with HydRA / alone",
        f"{published.FIG9B_HYDRA_S} s = {paper:.2f}",
        f"{result.helped.seconds:.1f} s = {helped:.2f}",
        helped / paper,
        f"≤ {paper:.2f}",
        helped <= paper,
    )
    acted_at_s = result.helped.acted_at_s
    yield Row(
        "(b) topology changed at",
        f"{published.FIG9B_TRIGGER_S:.0f} s, by hand",
        "never" if acted_at_s is None else f"{acted_at_s:.1f} s, by itself",
        target=PERIODIC,
        met=acted_at_s is not None,
    )
