"""Honest, lying and flooding agents, and reports about missing elements."""

import logging
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import ip_address

import numpy as np
import pytest

from apps.demand.agent_desk import AgentDesk
from hydra.demand.agent_protocol import (
    AgentTrouble,
    TooManyFollowers,
    TooOften,
    WrongReport,
)
from hydra.errors import UnknownName
from hydra.forwarding.class_table import TcpConnection
from hydra.model import NetworkState
from hydra.policy import AgentPolicy, CurrentPolicy, Policy
from tests.unit.core.fabrics import parallel_paths, small_fabric, state_of

FABRIC = small_fabric(racks=3, planes=1, servers=1)
AGENTS = AgentPolicy(sample_s=0.25, repeat_s=5.0)
FIRST, SECOND, _ = (server.name for server in FABRIC.servers)
R1, R2, R3 = (rack.name for rack in FABRIC.racks)


EMPTY = NetworkState()


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def policy():
    return CurrentPolicy(Policy(agents=AGENTS))


@pytest.fixture
def desk(clock, policy):
    return AgentDesk(fabric=FABRIC, policy=policy, standing=lambda: (EMPTY, ()), clock=clock)


def counting(mbps):
    """Counters with the same rate for all pairs."""
    return lambda server, _rack: (np.full(len(server), mbps), np.full(len(server), mbps))


def test_a_confirmed_backlog_is_demand(desk):
    desk.take_report(FIRST, {R2: 10.0})
    backlog = desk.backlog(counting(5.0))
    assert (backlog.server, backlog.rack) == (0, 1)
    assert backlog.mbps == pytest.approx(min(80, FABRIC.server_rate_mbps - 5))


@pytest.fixture
def network():
    """The state, and the moving pairs; a desk gets each change."""
    return [EMPTY, ()]


@pytest.fixture
def moving_desk(clock, policy, network):
    return AgentDesk(
        fabric=small_fabric(racks=3, planes=2, servers=1),
        policy=policy,
        standing=lambda: tuple(network),
        clock=clock,
    )


def test_circuits_are_told_once_a_rack_and_not_while_they_move(moving_desk, network):
    fabric = small_fabric(racks=3, planes=2, servers=1)
    assert moving_desk.circuits(FIRST) == ()
    network[:] = state_of(fabric, EMPTY, *parallel_paths(fabric)), ()
    assert moving_desk.circuits(FIRST) == (R2,)
    network[1] = frozenset({(0, 1)})
    assert moving_desk.circuits(FIRST) == ()
    with pytest.raises(UnknownName, match="no server 'h99'"):
        moving_desk.circuits("h99")


def test_circuits_are_worked_out_once_while_others_move(clock, policy, monkeypatch):
    """Not for each of thousands of agents: a change of the moving pairs comes as a new set."""
    fabric = small_fabric(racks=3, planes=2, servers=1)
    state, moving = state_of(fabric, EMPTY, *parallel_paths(fabric)), {(1, 2)}
    desk = AgentDesk(
        fabric=fabric, policy=policy, standing=lambda: (state, frozenset(moving)), clock=clock
    )
    worked_out, work_out = [], desk._neighbours
    monkeypatch.setattr(
        desk, "_neighbours", lambda *standing: worked_out.append(1) or work_out(*standing)
    )
    assert [desk.circuits(FIRST) for _ in range(3)] == [(R2,)] * 3
    assert len(worked_out) == 1
    moving.add((0, 1))
    assert desk.circuits(FIRST) == ()
    assert len(worked_out) == 2


def test_those_are_woken_whose_circuits_have_changed(moving_desk, network):
    fabric = small_fabric(racks=3, planes=2, servers=1)
    woken = []
    third = fabric.servers[2].name
    with (
        moving_desk.following(FIRST, lambda: woken.append(FIRST)),
        moving_desk.following(third, lambda: woken.append(third)),
    ):
        moving_desk.circuits_may_have_changed()
        assert woken == []
        network[0] = state_of(fabric, EMPTY, *parallel_paths(fabric))
        assert moving_desk.circuits(FIRST) == (R2,), "asking wakes nobody, and hides nothing"
        moving_desk.circuits_may_have_changed()
        assert woken == [FIRST]
        moving_desk.circuits_may_have_changed()
        assert woken == [FIRST]
    network[0] = EMPTY
    moving_desk.circuits_may_have_changed()
    assert woken == [FIRST], "who has left is not called"


def test_a_server_follows_its_circuits_a_few_times_at_most(desk):
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(desk.following(FIRST, lambda: None))
        stack.enter_context(desk.following(SECOND, lambda: None))
        with pytest.raises(TooManyFollowers, match=f"{FIRST} follows its circuits 4 times"):
            stack.enter_context(desk.following(FIRST, lambda: None))
    with desk.following(FIRST, lambda: None):
        pass


def test_connections_count_without_a_backlog(desk, clock):
    desk.take_report(FIRST, {R3: 2.0}, connections={R2: 5})
    clock.now_s += 10
    found = desk.backlog(counting(5.0))
    told = zip(found.rack.tolist(), found.connections.tolist(), strict=True)
    assert sorted(told) == [(1, 5.0), (2, 0.0)]
    desk.backlog(counting(0.0))
    assert desk.troubles() == {AgentTrouble.UNCONFIRMED.value: 1}, "the backlog alone"


def test_a_lie_moves_nothing_and_is_counted_once(desk, clock, caplog):
    for _ in range(80):
        clock.now_s += 0.5
        desk.take_report(FIRST, {R2: 1e6})
        assert not desk.backlog(counting(0.0)).mbps.any()
    assert desk.troubles() == {AgentTrouble.UNCONFIRMED.value: 1}
    assert len(caplog.records) == 1
    assert f"{FIRST}: backlog without traffic (for {R2})" in caplog.text


@pytest.mark.parametrize(
    ("rack", "trouble"),
    [("r99", AgentTrouble.UNKNOWN_RACK), (R1, AgentTrouble.OWN_RACK)],
)
def test_what_no_honest_agent_says(desk, clock, caplog, rack, trouble):
    desk.take_report(FIRST, {R2: 10.0})
    for _ in range(3):
        clock.now_s += 1
        with pytest.raises(WrongReport, match=rack):
            desk.take_report(FIRST, {R3: 20.0, rack: 5.0})
    assert desk.troubles() == {trouble.value: 3}
    assert len(caplog.records) == 1
    backlog = desk.backlog(counting(5.0))
    assert backlog.rack.tolist() == [1], "the good report before still counts, and no other"
    assert backlog.mbps[0] > 0


def test_a_flood_is_refused(desk, clock, caplog):
    desk.take_report(FIRST, {R2: 10.0})
    for _ in range(100):
        clock.now_s += 0.001
        with pytest.raises(TooOften):
            desk.take_report(FIRST, {R2: 99.0})
    assert desk.troubles() == {AgentTrouble.TOO_OFTEN.value: 100}
    assert len(caplog.records) == 1
    assert desk.agents()[0].waiting_mb == 10.0


def test_one_that_flooded_is_heard_again(desk, clock):
    desk.take_report(FIRST, {R2: 10.0})
    with pytest.raises(TooOften):
        desk.take_report(FIRST, {R2: 20.0})
    clock.now_s += 0.25
    desk.take_report(FIRST, {R2: 30.0})
    (one,) = desk.agents()
    assert (one.server, one.waiting_mb, one.age_s, one.stale) == (FIRST, 30.0, 0.0, False)


def test_what_is_stale_does_not_count(desk, clock):
    desk.take_report(SECOND, {R1: 10.0})
    clock.now_s += 15.1
    assert not desk.backlog(counting(5.0)).mbps.any()
    assert desk.agents()[0].stale


def test_nobody_of_that_name(desk):
    with pytest.raises(UnknownName, match="no server 'h99'"):
        desk.take_report("h99", {})
    with pytest.raises(UnknownName):
        desk.setup("h99")


def test_the_setup_names_the_other_racks_and_its_revision_follows_the_policy(desk, policy):
    before = desk.setup(FIRST)
    assert before.rack == R1
    assert set(before.prefixes) == {R2, R3}
    assert desk.take_report(FIRST, {}) == before.revision
    policy.now = Policy(agents=AgentPolicy(report_above_mb=2.0))
    assert desk.setup(FIRST).revision != before.revision
    assert desk.setup(FIRST).report_above_mb == 2.0


def test_each_cause_is_logged_once(desk, caplog):
    with caplog.at_level(logging.WARNING):
        for who in (FIRST, SECOND, FIRST):
            desk.note(AgentTrouble.FOREIGN, who, "h12")
    assert len(caplog.records) == 1
    assert desk.troubles() == {AgentTrouble.FOREIGN.value: 3}


def test_a_transfer_that_begins_has_time_to_be_counted(desk, clock):
    """Also for a connection that had too little to report, for longer."""
    desk.take_report(FIRST, {}, connections={R2: 1})
    clock.now_s += 6
    desk.take_report(FIRST, {R2: 40.0})
    desk.backlog(counting(0.0))
    assert desk.troubles() == {}
    for _ in range(2):
        clock.now_s += 3
        desk.take_report(FIRST, {R2: 40.0})
    desk.backlog(counting(0.0))
    assert desk.troubles() == {AgentTrouble.UNCONFIRMED.value: 1}


@pytest.fixture
def told():
    """Elephants of the first server at each call of ``on_elephants``."""
    return []


@pytest.fixture
def telling_desk(clock, policy, told):
    desk = AgentDesk(
        fabric=FABRIC,
        policy=policy,
        standing=lambda: (EMPTY, ()),
        clock=clock,
        on_elephants=lambda server: told.append(desk.elephants(server)),
    )
    return desk


FLOW = frozenset({TcpConnection(ip_address("10.0.1.1"), 40000, 5201)})


def test_an_elephant_of_an_agent_that_was_silent_is_told_of_again(telling_desk, clock, told):
    """Switches may have been classed anew meanwhile, without it."""
    telling_desk.take_report(FIRST, {R2: 10.0}, FLOW)
    clock.now_s += 60
    assert telling_desk.elephants(FABRIC.servers[0]) == frozenset()
    telling_desk.take_report(FIRST, {R2: 10.0}, FLOW)
    clock.now_s += 5
    telling_desk.take_report(FIRST, {R2: 10.0}, FLOW)
    assert told == [FLOW, FLOW]


def test_one_that_ended_during_the_silence_is_told_of_too(telling_desk, clock, told):
    telling_desk.take_report(FIRST, {R2: 10.0}, FLOW)
    clock.now_s += 60
    telling_desk.take_report(FIRST, {})
    assert told == [FLOW, frozenset()]


def test_elephants_of_an_agent_that_becomes_silent_are_gone_once(telling_desk, clock, told):
    telling_desk.take_report(FIRST, {R2: 10.0}, FLOW)
    clock.now_s += 10
    telling_desk.backlog(counting(5.0))
    assert told == [FLOW]
    clock.now_s += 60
    for _ in range(2):
        telling_desk.backlog(counting(5.0))
    assert told == [FLOW, frozenset()]
    telling_desk.take_report(FIRST, {R2: 10.0}, FLOW)
    assert told == [FLOW, frozenset(), FLOW]


def exchanged():
    """The fabric with the servers of the first two racks exchanged."""
    one, other, *more = FABRIC.racks
    moved = [
        replace(to, servers=tuple(replace(server, rack=to.id) for server in of.servers))
        for to, of in ((one, other), (other, one))
    ]
    return replace(FABRIC, racks=(*moved, *more))


@pytest.mark.parametrize(
    "other",
    [
        replace(FABRIC, server_rate_mbps=4 * FABRIC.server_rate_mbps),
        replace(FABRIC, racks=(*FABRIC.racks[:2], replace(FABRIC.racks[2], name="new"))),
        exchanged(),
    ],
    ids=["link rate", "rack name", "own rack"],
)
def test_a_revision_tells_of_all_that_is_in_a_setup(desk, policy, clock, other):
    new = AgentDesk(fabric=other, policy=policy, standing=lambda: (EMPTY, ()), clock=clock)
    assert new.setup(FIRST).revision != desk.setup(FIRST).revision
    assert new.take_report(FIRST, {}) == new.setup(FIRST).revision
