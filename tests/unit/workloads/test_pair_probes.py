"""A server's received probes: losses, late datagrams, and senders stopped by the machine."""

from __future__ import annotations

import json
from dataclasses import asdict

from mininet_scenarios.workloads.pair_probes import Flow, Missing, Received, Report

LATER_S = 100.0


def heard(*numbers):
    """A flow whose datagrams are sent every 100 ms and arrive 1 ms later."""
    flow = Flow()
    for number in numbers:
        flow.arrived(number, number / 10, number / 10 + 0.001)
    return flow


def test_what_was_before_the_first_is_not_missing():
    flow = heard(7, 8, 9)
    assert (flow.received, flow.next) == (3, 10)
    assert flow.missing(LATER_S) == ()


def test_a_run_that_never_came_is_between_its_neighbours():
    assert heard(0, 1, 5, 6, 8).missing(LATER_S) == (Missing(3, 0.1, 0.5), Missing(1, 0.6, 0.8))


def test_a_late_one_is_not_missing_and_a_repeated_one_counts_once():
    flow = heard(0, 1, 5)
    for number in (3, 3, 5):
        flow.arrived(number, number / 10, 2.3)
    assert flow.missing(LATER_S) == (Missing(2, 0.1, 0.5),)
    assert flow.received == 4
    assert flow.longest_delay_s == 2.3 - 0.3


def test_what_may_be_under_way_still_is_not_missing_yet():
    flow = heard(0, 2)
    assert flow.missing(0.3) == ()
    assert flow.missing(0.2 + 0.51) == (Missing(1, 0.0, 0.2),)


def test_a_report_survives_its_way():
    flow = heard(0, 3)
    told = Received(flow.next, flow.last_sent_s, flow.received, 0.001, flow.missing(LATER_S))
    report = Report(1.5, 4, {"h11/6": told})
    assert Report.from_json(json.loads(json.dumps(asdict(report)))) == report
