"""Helios on the data plane: pairs of senders and receivers, and results of runs."""

import numpy as np
import pytest

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments import load
from mininet_scenarios.experiments.helios import stability as helios_stability
from mininet_scenarios.experiments.helios import stability_scenario as scenario
from mininet_scenarios.experiments.helios.stability_scenario import HOSTS, PODS, Case, Length, Run
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.workloads.shifting import Sample
from tests.unit.experiments.judged import differing, missed

CHANCE = np.random.default_rng(7)


@pytest.mark.parametrize("pattern", scenario.PATTERNS)
def test_every_host_has_as_many_flows_as_a_pod_has_hosts(pattern):
    for period in range(20):
        destinations = scenario.PATTERNS[pattern](period, CHANCE)
        assert len(destinations) == PODS * HOSTS
        for host, flows in enumerate(destinations):
            assert len(flows) == HOSTS
            assert all(0 <= to < PODS * HOSTS and to // HOSTS != host // HOSTS for to in flows)


def test_pods_stride_and_hosts_shift():
    assert scenario.pod_stride(1, CHANCE)[5] == [12, 13, 14, 15]
    assert scenario.host_stride(0, CHANCE)[5] == [9] * HOSTS
    assert scenario.host_stride(8, CHANCE)[5] == [1] * HOSTS
    assert scenario.host_stride(9, CHANCE) == scenario.host_stride(0, CHANCE)


def test_runs_are_whole_rounds_of_the_strides():
    assert Length(6.0, 3).periods(4.0) == 3
    assert Length(6.0, 3).periods(1.0) == 6
    assert Length(12.0, 3).periods(0.5) == 24


def test_throughput_is_of_all_hosts_together():
    samples = [
        [Sample(10.0, 0), Sample(11.0, 1_000_000)],
        [Sample(9.0, 0), Sample(11.0, 2_000_000)],
    ]
    series = scenario.throughput_mbps(samples, 10.0, 11.0)
    assert series.tolist() == pytest.approx([16.0] * 4)


METRICS = """# TYPE hydra_loop_stage_duration_seconds histogram
hydra_loop_stage_duration_seconds_bucket{le="+Inf",stage="plan"} 4.0
hydra_loop_stage_duration_seconds_count{stage="plan"} 4.0
hydra_loop_stage_duration_seconds_sum{stage="plan"} 0.08
# TYPE hydra_reconfiguration_substep_duration_seconds histogram
hydra_reconfiguration_substep_duration_seconds_count{substep="drain"} 0.0
hydra_reconfiguration_substep_duration_seconds_sum{substep="drain"} 0.0
# TYPE hydra_other_seconds histogram
hydra_other_seconds_count{stage="plan"} 1.0
hydra_other_seconds_sum{stage="plan"} 9.0
"""


def test_the_loop_is_split_by_the_controller_s_metrics():
    assert scenario.loop_split("", METRICS) == pytest.approx({"plan": 20.0})


def test_the_loop_of_cases_before_does_not_count():
    assert scenario.loop_split(METRICS, METRICS) == {}
    more = METRICS.replace('"} 4.0', '"} 6.0').replace('"} 0.08', '"} 0.28')
    assert scenario.loop_split(METRICS, more) == pytest.approx({"plan": 100.0})


def test_asymmetric_periods_are_those_in_which_pods_do_not_exchange():
    """Four samples a period; strides 1, 2 and 3; the later half of the samples of 1 and 3."""
    series = (0.0, 0.0, 1.0, 3.0, 9.0, 9.0, 9.0, 9.0, 0.0, 0.0, 5.0, 7.0)
    assert scenario.asymmetric_mbps(series, 1.0) == 4.0


def stability(cases, mbps):
    return helios_stability.Stability(
        Scale(1600, 250.0),
        tuple(
            Run(
                pattern=case.pattern,
                stability_s=case.stability_s,
                way=case.way,
                port_up=case.port_up,
                circuits=case.circuits,
                mbps=mbps(case),
                series=(mbps(case),) * round(3 * case.stability_s / scenario.GRID_S),
                on_circuits=(mbps(case),) * round(3 * case.stability_s / scenario.GRID_S),
                changes=0 if case.cycle is None else 4,
                dark_frames=5 * (case.cycle is CycleName.AS_PUBLISHED),
                loop_ms={} if case.cycle is None else {"plan": 10.0, "move": 40.0},
            )
            for case in cases
        ),
    )


def like_the_paper(case):
    if case.cycle is None:
        return 36.0
    late = {"neither": 1.0, "EDC": 0.95, "debounce and EDC": 0.9}[case.port_up]
    if case.port_up == "debounce and EDC" and case.cycle is not CycleName.HITLESS:
        return 40.0  # barely above the packet switch, for any stability
    rising = 40 + 5 * np.log2(2 * case.stability_s) + (case.pattern == "HStride")
    hitless = 40.0 * (case.cycle is CycleName.HITLESS)
    useful = 0.5 if case.circuits == "bidirectional" else 1.0
    return float((rising * late + hitless) * useful)


def test_rates_like_the_paper_s_meet_every_claim(tmp_path):
    for cases in (helios_stability.full_cases(), helios_stability.short_cases()):
        found = [stability(cases, like_the_paper)]
        experiment = load("helios-stability")
        findings = experiment.conclude(found)
        assert missed(findings.rows) == []
        assert set(differing(findings.rows)) == {"helios/mandatory", "helios/optional"}
        assert findings.tables[1].rows == (("plan", "10.0", "10.0"), ("move", "40.0", "40.0"))
        assert all(path.exists() for path in experiment.draw(found, tmp_path))
    assert experiment.expected_s(True) > experiment.expected_s(False) > 10


def test_circuits_that_are_worse_than_packets_are_told():
    def mbps(case):
        hitless = case.cycle is CycleName.HITLESS
        return 20.0 if hitless and case.port_up == "EDC" else like_the_paper(case)

    found = [stability(helios_stability.full_cases(), mbps)]
    rows = load("helios-stability").conclude(found).rows
    assert missed(rows) == ["hydra: PStride at 4 s, EDC, over the packet switch alone"]


@pytest.mark.parametrize("rate", [35.0, 46.0])
def test_a_debounced_circuit_is_barely_above_the_packet_switch_or_told(rate):
    """1.0 to 1.25 of 36 Mb/s."""

    def mbps(case):
        late = case.port_up == "debounce and EDC" and case.cycle is CycleName.AS_PUBLISHED
        return rate if late else like_the_paper(case)

    found = [stability(helios_stability.full_cases(), mbps)]
    assert "helios/debounced TCP" in differing(load("helios-stability").conclude(found).rows)


@pytest.mark.parametrize(
    ("stability_s", "circuits", "most"),
    # A loop of 0.265 s, and 2.6 s until ports are up
    [(1.0, 3, 0.265), (2.0, 5, 0.132), (4.0, 3, 0.918), (4.0, 5, 1.485)],
)
def test_pods_that_send_into_the_dark_fall_below_the_packet_switch(stability_s, circuits, most):
    ours = helios_stability.into_the_dark(stability_s, circuits)
    assert ours == pytest.approx(most, abs=0.001)


def test_the_packet_switch_alone_is_a_case_without_a_cycle():
    assert Case("PStride", 4.0, None).way == "packets alone"
