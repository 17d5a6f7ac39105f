"""Figures and statements of the five papers, each with a band of agreeing values.

A band follows from the paper and from one of five rules, the same for all papers; no band follows
from this project's results. Results committed before 2026-11-30 were known as the rules were
written:

- *measured*: a printed measurement, ± 10 %;
- *percent*: a printed gain or cost, ± a fifth of it, 2 points at least;
- *about*: a figure that the paper rounds ("a factor of three", "about", "near"), ± 20 %;
- *computed*: a figure that follows from a formula, ± half of its last printed digit;
- *stated*: limits that the paper names. A statement without a figure ("rises") has one limit alone.

Where the rates of a run are scaled, a claim about a rate is a claim about the share of a link, and
a claim about a time is a claim about the time at the paper's scale. A claim without a row in any
result is not played. A commit that changes a band gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from mininet_scenarios.experiments.abu_tair.published import LOADS, TABLES
from mininet_scenarios.experiments.bands import (
    FALLS,
    RISES,
    Band,
    about,
    computed,
    measured,
    percent,
    stated,
)
from mininet_scenarios.reporting.table import Row

HYDRA: Final = "HydRA"
CTHROUGH: Final = "c-Through"
HELIOS: Final = "Helios"
MORDIA: Final = "Mordia"
ABU_TAIR: Final = "Abu-Tair"


@dataclass(frozen=True, slots=True)
class Claim:
    paper: str
    where: str
    """Section, figure or table."""
    what: str
    """The compared quantity."""
    published: str
    """The paper's figure or words."""
    band: Band
    form: str = ".2f"
    """Format of the quantity."""

    @property
    def limits(self) -> str:
        """The band in words."""
        least, most = (
            None if limit is None else format(limit, self.form)
            for limit in (self.band.least, self.band.most)
        )
        if most is None:
            return f"≥ {least}"
        return f"≤ {most}" if least is None else f"{least} to {most}"


def judged(key: str, value: float, figure: str, ours: str = "", why: str = "") -> Row:
    """The row that judges ``value`` by the claim ``key``.

    ``figure`` names the run, ``ours`` shows more than the value, and ``why`` is the reason of a
    difference. The row always has the value in the claim's format, so that value and band compare.
    """
    claim = CLAIMS[key]
    compared = format(value, claim.form)
    if not re.search(rf"(?<![\d.,]){re.escape(compared)}(?!%)", ours):
        ours = f"{compared} ({ours})" if ours else compared
    return Row(
        figure,
        claim.published,
        ours,
        value / claim.band.figure if claim.band.figure else None,
        claim.limits,
        claim.band.holds(value),
        why,
        claim=key,
    )


def unjudged(row: Row) -> Row:
    """The row of a way that no paper took, without the paper's figure."""
    return replace(row, paper="", ratio=None)


def _claim_of(paper: str) -> Callable[..., tuple[str, Claim]]:
    """Function that makes (key, claim) of a paper."""

    def claim(
        key: str, where: str, what: str, published: str, band: Band, form: str = ".2f"
    ) -> tuple[str, Claim]:
        return f"{paper.lower()}/{key}", Claim(paper, where, what, published, band, form)

    return claim


def _hydra() -> Iterator[tuple[str, Claim]]:
    claim = _claim_of(HYDRA)
    for planes, beta, gain in ((32, 1, 0.30), (20, 4, 0.0), (6, 25, 0.0)):
        yield claim(
            f"price-{planes}",
            "IV, Fig. 5",
            f"K = {planes} cheaper than a fat tree of β = {beta} by",
            "about 30 %" if gain else "of the same cost",
            percent(gain),
            ".1%",
        )
    yield claim(
        "switches", "IV, Table I", "switches of a fat tree, β = 1", "800", computed(800, 1), ".1f"
    )
    for scenario in (1, 2):
        for program in ("FFTW", "NPB FT", "NPB MG", "NPB SP"):
            yield claim(
                f"speedup-{scenario}-{program.lower().replace(' ', '-')}",
                "V.A, Fig. 7",
                f"speed-up over the tree of equal cost, scenario {scenario}, {program}",
                "above 1 for almost all, up to 1.35",
                stated(1.0, 1.35),
            )
    loops = "throughput with loops over that of a spanning tree"
    for scenario in (1, 2):
        yield claim(f"loops-{scenario}", "V.A", f"{loops}, scenario {scenario}", "higher", RISES)
    share = "static TCP throughput, share of a circuit"
    yield claim("static", "V.B, Fig. 9(a)", share, "9.21 of 10 Gb/s", measured(0.921), ".1%")
    for rules, gbps, delay_s in ((100, 8.37, 1.2), (5000, 7.86, 2.2)):
        every = f"a change every 10 s, {rules} rules"
        yield claim(
            f"cost-{rules}",
            "V.B, Fig. 9(a)",
            f"throughput lost, {every}",
            f"{gbps} of 9.21 Gb/s: {1 - gbps / 9.21:.1%}",
            percent(1 - gbps / 9.21),
            ".1%",
        )
        yield claim(
            f"part-{rules}",
            "V.B, Fig. 9(a)",
            f"time at full rate that a change costs over its delay, {rules} rules",
            f"{(1 - gbps / 9.21) * 10 / delay_s:.2f}",
            measured((1 - gbps / 9.21) * 10 / delay_s),
        )
        yield claim(
            f"delay-{rules}",
            "V.B",
            f"reconfiguration delay, {rules} rules, ms",
            f"{1e3 * delay_s:.0f} ms",
            measured(1e3 * delay_s),
            ".0f",
        )
    yield claim(
        "cost-of-rules",
        "V.B, Fig. 9(a)",
        "throughput that 5000 rules cost beyond 100, share of static",
        f"{(8.37 - 7.86) / 9.21:.1%}",
        percent((8.37 - 7.86) / 9.21),
        ".1%",
    )
    yield claim("tagging", "V.B", "time to tag the ToR ports, ms", "1200 ms", measured(1200), ".0f")
    yield claim("tagging-32", "III.B.1", "time to tag 32 ToR ports", "< 1.5 s", stated(None, 1.5))
    yield claim(
        "congested",
        "V.B, Fig. 9(b)",
        "FFTW congested over alone",
        "62.2 of 28.7 s: 2.17",
        measured(62.2 / 28.7),
    )
    yield claim(
        "by-hand",
        "V.B, Fig. 9(b)",
        "FFTW reconfigured over alone",
        "36.7 of 28.7 s: 1.28",
        measured(36.7 / 28.7),
    )
    for what, gbps in (("alone", 3.54), ("congested", 1.55)):
        yield claim(
            f"peak-{what}",
            "V.B, Fig. 9(b)",
            f"peak rate of FFTW {what}, share of a circuit",
            f"{gbps} of 10 Gb/s",
            measured(gbps / 10),
            ".1%",
        )
    yield claim(
        "vlans",
        "III.B.1, Fig. 4",
        "VLANs of seven paths among six racks",
        "3",
        computed(3, 1),
        ".1f",
    )
    for what, most in (("H", 1), ("N", 3), ("K", 1), ("Z", 2)):
        yield claim(
            f"exponent {what}",
            "III.B.3",
            f"exponent of {what} in the heuristic's running time",
            "O(H·N³ + H·K·Z²·N²)",
            stated(None, most),
        )
    yield claim(
        "hops changes",
        "III.B.1",
        "reconfigurations under moving demand, up to three hops over one",
        "less frequent",
        FALLS,
    )
    yield claim(
        "hops served",
        "III.B.1",
        "throughput under moving demand, up to three hops over one",
        "preserved",
        RISES,
    )
    yield claim(
        "upgrade",
        "IV",
        "cost of an upgrade to a higher rate, K = 32 over a fat tree of β = 1",
        "much smaller",
        FALLS,
    )
    yield claim("power", "IV", "power, K = 32 over a fat tree of β = 1", "much less", FALLS)


def _cthrough() -> Iterator[tuple[str, Claim]]:
    claim = _claim_of(CTHROUGH)
    table2 = {
        "TCP optical": (940, 921, 1000),
        "TCP electrical": (94, 94, 100),
        "UDP optical": (945, 945, 1000),
        "UDP electrical": (94, 94, 100),
    }
    for name, (plain, scheduled, link) in table2.items():
        for way, mbps in (("plain", plain), ("demultiplexed", scheduled)):
            yield claim(
                f"{way} {name}",
                "5.2.2, Table 2",
                f"throughput {way}, {name}, share of the link",
                f"{mbps} of {link} Mb/s",
                measured(mbps / link),
                ".1%",
            )
        yield claim(
            f"cost {name}",
            "5.2.2, Table 2",
            f"throughput that the output scheduler costs, {name}",
            f"{plain - scheduled} of {plain} Mb/s: {1 - scheduled / plain:.1%}",
            percent(1 - scheduled / plain),
            ".1%",
        )
    yield claim(
        "capacities",
        "5.2.1, Fig. 5",
        "throughput over the circuit over that over packets",
        "940 and 94 Mb/s: 10.0",
        measured(10.0),
        ".1f",
    )
    for key, what, limit_ms, words in (
        ("up", "the circuit", 5, "within 5 ms"),
        ("down", "packets", 50, "within a few tens of ms"),
    ):
        yield claim(
            key,
            "5.2.1, Fig. 5",
            f"time until TCP uses {what} after a change, ms",
            words,
            stated(None, limit_ms),
            ".1f",
        )
    yield claim(
        "probes",
        "5.2.3",
        "longer round trip beside an 800 MB transfer, ms",
        "up to 4 to 5 ms",
        stated(0.0, 5.0),
        ".1f",
    )
    for size, seconds in (("128 KB", 120), ("300 MB", 60)):
        yield claim(
            f"migration {size}",
            "6.1, Fig. 6",
            f"migration at 40:1, buffers of {size}, s",
            f"{seconds} s",
            measured(seconds),
            ".0f",
        )
    yield claim(
        "migration near",
        "6.1, Fig. 6",
        "migration at 40:1, 300 MB, over full bisection",
        "60 of 52 s: 1.15",
        measured(60 / 52),
    )
    yield claim(
        "sort near",
        "6.2, Fig. 7",
        "Hadoop's sort at 40:1, 100 MB, over full bisection",
        "near-optimal",
        about(1.0),
    )
    yield claim(
        "sort buffers",
        "6.2, Fig. 7",
        "Hadoop's sort with 300 MB over 50 MB",
        "very little impact",
        about(1.0),
    )
    for shorter in ("0.5 s", "1 s"):
        yield claim(
            f"sort {shorter}",
            "6.2, Fig. 7",
            f"Hadoop's sort, intervals of 5 s over {shorter}",
            "more frequent is faster",
            RISES,
        )
    for step in ("read", "shuffle", "output"):
        yield claim(
            f"sort {step}",
            "6.2, Fig. 8",
            f"end of Hadoop's {step} over packets' alone",
            "sooner",
            FALLS,
        )
    yield claim(
        "gridmix",
        "6.2, Fig. 9",
        "Hadoop's Gridmix at 40:1 over full bisection",
        "very close",
        about(1.0),
    )
    yield claim(
        "fft near",
        "6.3, Fig. 10",
        "FFT at 40:1, interval 0.3 s, over full bisection",
        "twice",
        about(2.0),
    )
    yield claim(
        "fft interval",
        "6.3, Fig. 10",
        "FFT, intervals of 5 s over 0.3 s",
        "much worse",
        stated(1.5, None),
    )
    yield claim(
        "fft buffers",
        "6.3, Fig. 10",
        "FFT, buffers of 100 MB over 128 KB",
        "no substantial improvement",
        about(1.0),
    )
    for name in ("migration", "sort", "fft"):
        yield claim(
            f"{name} gap",
            "6.1 to 6.3",
            f"worth of circuits at 40:1, 10:1, 4:1, {name}: least ratio of one to the next",
            "shrinks",
            RISES,
        )
    yield claim(
        "edmonds", "7.3", "Edmonds' algorithm for 1000 racks, ms", "640 ms", measured(640), ".0f"
    )
    yield claim(
        "clos",
        "7.3",
        "320 × 320 optical switches of a fat tree for 1000 racks",
        "eleven",
        computed(11, 1),
        ".1f",
    )
    yield claim(
        "clos cost",
        "7.3",
        "optical switches a rack, fat tree of 1000 racks over zones of 320",
        "three times",
        about(3.0),
    )
    yield claim(
        "reports", "7.3", "demand reports above 1 MB, share of all", "22 %", percent(0.22), ".0%"
    )


def _helios() -> Iterator[tuple[str, Claim]]:
    claim = _claim_of(HELIOS)
    for key, what, words, figure, form in (
        ("cost, electrical / Helios", "cost, electrical / Helios", "a factor of three", 3, ".1f"),
        ("power, electrical / Helios", "power, electrical / Helios", "a factor of 9", 9, ".1f"),
        ("ports, electrical / Helios", "ports, electrical / Helios", "6.5", 6.5, ".1f"),
        ("USD saved", "saved, US $", "40 M", 40e6, ",.0f"),
        ("W saved", "saved, W", "800 kW", 800e3, ",.0f"),
        ("ports saved", "saved, ports", "55,000", 55e3, ",.0f"),
    ):
        yield claim(key, "3.2.3, Fig. 2", what, words, about(figure), form)
    for kind in ("planned", "TCP"):
        for pattern in ("PStride", "HStride", "Random"):
            yield claim(
                f"rises {kind} {pattern}",
                "5.3, Fig. 11",
                f"throughput of {pattern} at the longest over the shortest stability, {kind}",
                "rises",
                RISES,
            )
        yield claim(
            f"strides {kind}",
            "5.3, Fig. 11",
            f"HStride over PStride, {kind}",
            "generally better",
            RISES,
        )
        yield claim(
            f"one-way {kind}",
            "5.4, Fig. 12",
            f"unidirectional over bidirectional circuits, asymmetric demand, {kind}",
            "bidirectional half as efficient",
            about(2.0),
        )
        yield claim(
            f"debounced {kind}",
            "5.2",
            f"PStride below 4 s, debounce and EDC on, over the packet switch alone, {kind}",
            "barely above",
            stated(1.0, 1.25),
        )
    yield claim(
        "port-up",
        "5.2, Fig. 8 to 10",
        "PStride at 4 s: least ratio of a later to an earlier of debounce and EDC, EDC, neither",
        "rises with each",
        RISES,
    )
    yield claim(
        "stable",
        "5.4, Fig. 12",
        "unidirectional circuits over the traditional network, while stable",
        "closely matches",
        about(1.0),
    )
    yield claim("wdm", "5.3, Fig. 11", "throughput with WDM over without", "comparable", about(1.0))
    yield claim("terasort", "5.1", "Terasort, Gb/s of 240", "50", measured(50), ".0f")
    for key, what, figure_ms in (
        ("mandatory", "control loop, every cycle, ms", 96.5),
        ("optional", "control loop, where the topology changes, ms", 168.4),
    ):
        yield claim(key, "5.5, Fig. 13", what, f"{figure_ms} ms", measured(figure_ms), ".1f")


FAT_TREES: Final = (
    (48, 5, 498, 3_484),
    (96, 3, 28, 83),
    (16, 7, 33, 360),
    (16, 9, 524, 7_864),
    (24, 5, 16, 109),
    (24, 7, 560, 6_159),
)
"""Rows of Mordia's Table 1: radix, depth, thousands of nodes, thousands of core ports."""


def _mordia() -> Iterator[tuple[str, Claim]]:
    claim = _claim_of(MORDIA)
    for radix, depth, nodes, ports in FAT_TREES:
        for what, thousands in (("nodes", nodes), ("core ports", ports)):
            yield claim(
                f"{what} {radix} {depth}",
                "2.1, Table 1",
                f"thousands of {what}, radix {radix}, depth {depth}",
                f"{thousands:,}",
                computed(thousands, 1),
                ",.1f",
            )
    yield claim(
        "share", "3.4, Table 2", "share on circuits, 5 slots", "80.6 %", percent(0.806), ".1%"
    )
    yield claim("duty", "3.4, Table 2", "duty cycle, 5 slots", "95 %", computed(0.95, 0.01), ".1%")
    yield claim(
        "slots",
        "3.4",
        "most slots of a demand of four racks",
        "N² − 2N + 2 = 10",
        stated(None, 10),
        ".0f",
    )
    yield claim(
        "buffers 100 ms",
        "4.2",
        "buffers B = R(N − 1)T with T = 100 ms, GB",
        "7.1 GB",
        computed(7.1, 0.1),
    )
    yield claim(
        "buffers 100 µs",
        "4.2",
        "buffers B = R(N − 1)T with T = 100 µs, MB",
        "7.1 MB",
        computed(7.1, 0.1),
    )
    yield claim(
        "duty 106 µs",
        "6.2",
        "duty cycle of 106 µs with 11.5 µs of setup",
        "89.15 %",
        computed(0.8915, 0.0001),
        ".2%",
    )
    yield claim("capture", "6.2", "share of frames captured", "87.35 %", measured(0.8735), ".1%")
    yield claim("setup", "6.1, Fig. 8", "mean night, µs", "11.55 µs", measured(11.55), ".1f")
    for name, values in {
        "UDP": ((61, 5.726 / 8.83), (300, 8.429 / 8.83)),
        "TCP": ((61, 2.231 / 6.26), (300, 5.501 / 6.26)),
    }.items():
        for slot_us, share in values:
            yield claim(
                f"{name} {slot_us}",
                "6.3, Fig. 10",
                f"{name} over slots of {slot_us} µs, share of the packet switch's",
                f"{share:.0%}",
                measured(share),
                ".0%",
            )
    yield claim(
        "rises",
        "6.3, Fig. 10",
        "TCP over the longest over that over the shortest slots",
        "upward trend",
        RISES,
    )
    yield claim("loss", "6.2", "share of frames lost", "0.5 %", about(0.005), ".2%")
    yield claim(
        "sync",
        "6.3, Fig. 11",
        "synchronization packets on time",
        "99.31 %",
        measured(0.9931),
        ".1%",
    )


_UNITS: Final = {"throughput": "Mb/s", "completion": "s"}


def _abu_tair() -> Iterator[tuple[str, Claim]]:
    claim = _claim_of(ABU_TAIR)
    for number, ((kind, metric), regimes) in enumerate(TABLES.items(), start=1):
        for regime, loads in regimes.items():
            for load, (_, average, _) in zip(LOADS, loads, strict=True):
                yield claim(
                    f"{metric} {kind} {load} {regime}",
                    f"5, Table {number}",
                    f"average {metric} of {kind} transfers, {load} transfers, {regime}",
                    f"{average:g} {_UNITS[metric]}",
                    measured(average),
                    ".1f",
                )
    elephants = TABLES["elephant", "throughput"]
    none, *others = elephants
    for regime in others:
        for place, load in enumerate(LOADS):
            gain = elephants[regime][place][1] / elephants[none][place][1] - 1
            yield claim(
                f"gain {load} {regime}",
                "5, Table 1",
                f"gain of elephants over no direct link, {load} transfers, {regime}",
                f"{gain:+.0%}",
                percent(gain),
                "+.1%",
            )
    yield claim("epoch", "3.1, Fig. 3", "best epoch of UT, s", "10 s", measured(10.0), ".1f")


CLAIMS: Final[Mapping[str, Claim]] = MappingProxyType(
    dict([*_hydra(), *_cthrough(), *_helios(), *_mordia(), *_abu_tair()])
)
"""All claims by key; a key begins with the paper's."""
PAPERS: Final = (HYDRA, CTHROUGH, HELIOS, MORDIA, ABU_TAIR)
