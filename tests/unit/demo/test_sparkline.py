from mininet_scenarios.reporting.sparkline import sparkline
from mininet_scenarios.workloads.iperf3 import Sample, ThroughputRun


def test_a_dip_shows_where_it_was_and_idleness_is_low() -> None:
    rates_mbps = (100.0, 100.0, 0.0, 50.0)
    samples = tuple(Sample(at, at + 1.0, rate) for at, rate in enumerate(rates_mbps))
    run = ThroughputRun(samples, 62.5, None, 4.0)
    assert run.means_mbps(4) == list(rates_mbps)
    assert sparkline(run.means_mbps(8)) == "████▁▁▅▅"
    assert sparkline([0.0, 0.0]) == "▁▁"
