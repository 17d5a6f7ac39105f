"""Table 2 of c-Through: results from transfers."""

import pytest

from mininet_scenarios.experiments import load
from mininet_scenarios.experiments.cthrough import table2 as cthrough_table2
from mininet_scenarios.experiments.cthrough.table2_scenario import (
    ELECTRICAL,
    FULL,
    NETWORKS,
    OPTICAL,
    SHORT,
    TCP,
    UDP,
    Cost,
    Rate,
)
from mininet_scenarios.experiments.scaling import Scale
from tests.unit.experiments.judged import differing


def table2(worse=1.0, cpu_s=(4.2, 4.0)):
    """The paper's figures at 1:10, TCP on the circuit multiplied by ``worse``."""
    rates = [
        Rate(network, protocol, demultiplexed, figures[demultiplexed] / 10)
        for (protocol, network), figures in cthrough_table2.PAPER.items()
        for demultiplexed in (False, True)
    ]
    rates = [
        Rate(*which, one.mbps * worse) if which == (OPTICAL, TCP, True) else one
        for one in rates
        for which in [(one.network, one.protocol, one.demultiplexed)]
    ]
    costs = [
        Cost(network, demultiplexed, 190.0 if demultiplexed else 200.0, seconds)
        for network in NETWORKS
        for demultiplexed, seconds in zip((True, False), cpu_s, strict=True)
    ]
    return cthrough_table2.Table2(Scale(10, 250.0), tuple(rates), tuple(costs))


def test_what_demultiplexes_as_cheaply_as_the_paper_s_meets_every_claim(tmp_path):
    experiment = load("cthrough-table2")
    found = [table2(), table2()]
    findings = experiment.conclude(found)
    assert differing(findings.rows) == []
    checked = {row.figure: row for row in findings.rows if row.met}
    assert len(checked) == 12
    ratios = [row.ratio for row in checked.values() if row.ratio is not None]
    assert ratios == pytest.approx([1.0] * len(ratios))
    optical = checked["optical, TCP: lost by demultiplexing, of plain"]
    assert (optical.paper, optical.ours) == ("19 of 940 Mb/s: 2.0%", "2.0%")
    assert all(path.exists() for path in experiment.draw(found, tmp_path))
    assert experiment.expected_s(True) > experiment.expected_s(False) > 10


def test_the_table_is_the_paper_s_with_ours_below():
    (table,) = load("cthrough-table2").conclude([table2()]).tables
    assert table.columns == (
        *("", "plain, optical", "plain, electrical"),
        *("demultiplexed, optical", "demultiplexed, electrical"),
    )
    assert table.rows == (
        ("TCP, paper", "940", "94", "921", "94"),
        ("TCP, ours", "94.0", "9.4", "92.1", "9.4"),
        ("UDP, paper", "945", "94", "945", "94"),
        ("UDP, ours", "94.5", "9.4", "94.5", "9.4"),
    )


def test_throughput_that_demultiplexing_takes_is_told():
    rows = load("cthrough-table2").conclude([table2(worse=0.9)]).rows
    assert differing(rows) == [
        "c-through/demultiplexed TCP optical",
        "c-through/cost TCP optical",
    ]


def test_processor_time_is_told_where_it_is_known():
    def told(**figures):
        rows = load("cthrough-table2").conclude([table2(**figures)]).rows
        return {row.figure: row.ours for row in rows if "processor" in row.figure}

    assert told(cpu_s=(None, None)) == {}
    assert told() == {
        f"{network}: processor time a Gb, demultiplexed and plain": "4.20 and 4.00 s: 1.05"
        for network in (ELECTRICAL, OPTICAL)
    }


def test_the_full_form_sends_as_long_as_the_paper_s_800_mb_take():
    plain = {kind: figures[0] for kind, figures in cthrough_table2.PAPER.items()}
    for protocol in (TCP, UDP):
        assert pytest.approx(6400 / plain[protocol, OPTICAL], abs=0.5) == FULL.optical
        assert pytest.approx(6400 / plain[protocol, ELECTRICAL], abs=0.5) == FULL.electrical
    assert SHORT.rates_expected_s + SHORT.costs_expected_s < 60
