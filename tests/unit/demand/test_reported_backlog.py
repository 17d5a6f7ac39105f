"""Agents' reports, and their credible part."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.demand.reported_backlog import BacklogReports, ReportedBacklog, believed
from hydra.model import RackId
from hydra.policy import AgentPolicy, CurrentPolicy, Policy

POLICY = Policy(gain_horizon_s=10.0, agents=AgentPolicy(empty_within_s=1.0, confirmed_times=100.0))
LINK_MBPS = 1000.0


def reported(*rows, connections=0):
    server, rack, mb = map(np.array, zip(*rows, strict=True))
    nothing = np.zeros(len(mb))
    return ReportedBacklog(server, rack, mb.astype(float), nothing + connections, nothing)


def believe(claimed, counted, sending):
    counted, sending = np.array(counted, dtype=float), np.array(sending, dtype=float)
    return believed(claimed, counted, sending, LINK_MBPS, POLICY)


@pytest.mark.parametrize(
    ("mb", "counted_mbps", "mbps"),
    [
        (10, 9, 80),
        (10, 0, 0),  # no counter saw a byte
        (10, 0.5, 50),  # a trickle does not support any claim
        (1000, 10, 990),  # no more than the link's remaining rate
        (1000, 1000, 0),
    ],
)
def test_what_is_believed_of_one_claim(mb, counted_mbps, mbps):
    found = believe(reported((0, 1, mb)), [counted_mbps], [counted_mbps])
    assert found.mbps.tolist() == [pytest.approx(mbps)]


@pytest.mark.parametrize(
    ("mb", "counted_mbps", "mbps"),
    [
        (10, 9, 8),  # within ten seconds, and beyond the sent rate
        (10, 0, 0),
        (100, 0.5, 50),
        (1000, 1000, 800),  # also on a full link
        (2000, 1000, 1000),
    ],
)
def test_what_is_believed_of_a_volume(mb, counted_mbps, mbps):
    found = believe(reported((0, 1, mb)), [counted_mbps], [counted_mbps])
    assert found.volume_mbps.tolist() == [pytest.approx(mbps)]


@given(st.floats(0, 10), st.floats(0, 3 * LINK_MBPS))
def test_what_is_believed_comes_on_top_of_what_is_counted(mb, counted_mbps):
    """An agent that claims too little, or sends beyond its link's stated rate, takes nothing from
    others.
    """
    found = believe(reported((0, 1, mb), connections=1), [counted_mbps], [counted_mbps])
    assert found.mbps[0] >= 0
    assert found.mbps[0] + counted_mbps <= max(LINK_MBPS, counted_mbps) * (1 + 1e-9)


def test_connections_without_traffic_do_not_count():
    claimed = reported((0, 1, 0), (0, 2, 0), (3, 1, 0), connections=64)
    found = believe(claimed, [10, 0, 0.01], [10, 10, 0.01])
    assert found.connections.tolist() == [64, 0, 1]


def test_a_server_shares_its_link_among_its_claims():
    claimed = reported((0, 1, 300), (0, 2, 100), (3, 1, 10))
    found = believe(claimed, [100, 100, 5], [200, 200, 5])
    assert found.mbps.tolist() == pytest.approx([600, 200, 80])


rows = st.tuples(st.integers(0, 3), st.integers(0, 5), st.floats(0, 1e6), st.floats(0, 2000))


@given(st.lists(rows, min_size=1, max_size=20))
def test_no_lie_is_worth_more_than_a_link(table):
    server, rack, mb, counted = (np.array(column) for column in zip(*table, strict=True))
    sending = np.bincount(server, counted)[server]
    claimed = ReportedBacklog(server, rack, *np.array([mb, mb, mb * 0], dtype=float))
    found = believe(claimed, counted, sending)
    added = found.mbps
    assert (np.bincount(server, found.volume_mbps)[server] <= LINK_MBPS + 1e-6).all()
    assert (found.volume_mbps <= 100 * counted + 1e-6).all()
    assert (found.connections <= 100 * counted).all()
    room = np.maximum(LINK_MBPS - sending, 0)
    assert (np.bincount(server, added)[server] <= room + 1e-6).all()
    assert (added <= 100 * counted + 1e-6).all()
    assert (added >= 0).all()


def test_a_report_replaces_the_one_before_and_grows_stale():
    book = BacklogReports(CurrentPolicy(Policy(agents=AgentPolicy(repeat_s=5.0))))
    book.take(2, {RackId(0): 3.0, RackId(1): 7.0}, {}, now_s=100.0)
    book.take(2, {RackId(1): 8.0}, {}, now_s=101.0)
    now = book.in_force(101.0)
    assert (now.server.tolist(), now.rack.tolist(), now.mb.tolist()) == ([2], [1], [8.0])
    assert now.since_s.tolist() == [100.0], "claimed since the first report of it"
    assert book.in_force(116.0).mb.tolist() == [8.0]
    assert book.in_force(116.1).mb.tolist() == []
    assert book.stale(2, 116.1)
    book.take(2, {RackId(1): 8.0}, {}, now_s=130.0)
    assert book.in_force(130.0).since_s.tolist() == [130.0], "what was silent begins anew"


def test_connections_are_as_told_before_until_they_are_told_anew():
    book = BacklogReports(CurrentPolicy(Policy(agents=AgentPolicy(repeat_s=5.0))))
    book.take(0, {RackId(1): 8.0}, {RackId(1): 3, RackId(2): 4}, now_s=100.0)
    book.take(0, {RackId(1): 9.0}, None, now_s=101.0)
    now = book.in_force(101.0)
    told = zip(now.rack.tolist(), now.mb.tolist(), now.connections.tolist(), strict=True)
    assert sorted(told) == [(1, 9.0, 3.0), (2, 0.0, 4.0)]
    book.take(0, {RackId(1): 9.0}, {}, now_s=102.0)
    assert book.in_force(102.0).connections.tolist() == [0.0]
    book.take(0, {RackId(1): 9.0}, {RackId(1): 3}, now_s=103.0)
    book.take(0, {RackId(1): 9.0}, None, now_s=200.0)
    assert book.in_force(200.0).connections.tolist() == [0.0], "they were told too long ago"


def test_a_clock_that_steps_back_makes_stale_and_not_eternal():
    book = BacklogReports(CurrentPolicy(Policy(agents=AgentPolicy(repeat_s=5.0))))
    book.take(0, {RackId(1): 8.0}, {}, now_s=1000.0)
    assert book.in_force(10.0).mb.tolist() == []
