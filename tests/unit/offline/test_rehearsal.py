"""The loop of counters, estimate, plan and verdict on a virtual clock: times of circuit moves."""

from dataclasses import replace

import numpy as np
import pytest

from apps.offline.rehearsal import Rehearsal
from apps.planning.engine import Planning
from hydra.decisions.decision import Action
from hydra.demand.counters import DemandMeter
from hydra.errors import UnknownName
from hydra.policy import DemandBasis, Policy, Sharing
from tests.unit.core.fabrics import small_fabric

pytestmark = pytest.mark.takes(8)

FABRIC = small_fabric(racks=4, planes=2, servers=2)
EIGHT = small_fabric(racks=8, planes=1, servers=1)
ELECTRICAL = FABRIC.electrical_rate_mbps
POLICY = Policy(epoch_s=2.0, elephant_mbps=1.0, minimum_gain_mbps=5.0)
MBIT = 125_000
TEN_MINUTES = 600
RACKS = len(FABRIC.racks)


class Loop:
    """Servers with counters set by a test, polled once a second, with epochs of two seconds."""

    def __init__(self, policy=POLICY):
        self.rehearsal = Rehearsal(FABRIC, policy, outage_s=0.3)
        self.meter = DemandMeter(FABRIC, policy.demand_window_s)
        self.totals = np.zeros((len(FABRIC.servers), RACKS), dtype=np.uint64)
        self.now_s = 1000.0
        self.clock_error_s = 0.0

    def run(self, seconds, sent_mbit):
        """``sent_mbit(second)``: shape (servers, racks). Returns the decisions."""
        decisions = []
        for second in range(seconds):
            self.now_s += 1.0
            self.totals += (np.asarray(sent_mbit(second)) * MBIT).astype(np.uint64)
            self.poll()
            if second % 2:
                self.rehearsal.see(self.now_s, self.meter.matrix())
                decisions.append(self.rehearsal.step(self.now_s))
        return decisions

    def poll(self):
        for server in range(len(FABRIC.servers)):
            age_s = self.now_s - 900.0
            read_s = self.now_s + self.clock_error_s
            self.meter.update(server, self.totals[server].copy(), read_s, age_s)


def changes(decisions):
    return [one for one in decisions if one.action is Action.CHANGE]


def hot(*pairs):
    """The first server of each source rack sends at four times the electrical rate."""
    sent = np.zeros((len(FABRIC.servers), RACKS))
    for src, dst in pairs:
        sent[2 * src, dst] = 4 * ELECTRICAL
    return sent


STABLE = hot((0, 1), (1, 0), (2, 3))


def rehearsed(basis):
    rates = np.zeros((RACKS, RACKS))
    rates[0, 1], rates[2, 3] = 30.0, 0.5
    rehearsal = Rehearsal(FABRIC, replace(POLICY, demand=basis), 0.3)
    rehearsal.see(0.0, rates)
    return rehearsal.step(0.0)


def test_a_demand_may_be_what_is_sent():
    assert rehearsed(DemandBasis.RATE).demand_mbps == 30.0
    assert rehearsed(DemandBasis.ESTIMATE).demand_mbps > 30.0


def test_what_waits_is_in_no_trace():
    decision = rehearsed(DemandBasis.BACKLOG)
    assert decision.action is Action.NO_PLAN
    assert "no trace has sockets' queues: rehearse estimate or rate" in decision.reason


@pytest.fixture
def settled():
    loop = Loop()
    assert changes(loop.run(20, lambda _: STABLE))
    return loop


def test_a_hot_pair_gets_a_circuit_at_the_first_epoch_after_two_polls():
    loop = Loop()
    decisions = loop.run(4, lambda _: hot((0, 1)))
    assert [one.action for one in decisions] == [Action.CHANGE, Action.KEEP]
    (circuit,) = decisions[0].proposal.connect
    assert {FABRIC.ports[circuit.a].rack, FABRIC.ports[circuit.b].rack} == {0, 1}


def test_a_stable_demand_changes_nothing_in_ten_minutes(settled):
    assert changes(settled.run(TEN_MINUTES, lambda _: STABLE)) == []


def test_a_demand_that_is_stable_but_for_noise_changes_nothing_in_ten_minutes(settled):
    random = np.random.default_rng(1)
    decisions = settled.run(TEN_MINUTES, lambda _: STABLE * random.uniform(0.7, 1.3, STABLE.shape))
    assert changes(decisions) == []


def test_noisy_mice_change_nothing_in_ten_minutes():
    random = np.random.default_rng(2)

    def mice(_second):
        return random.exponential(0.15, STABLE.shape) * (random.random(STABLE.shape) < 0.3)

    assert changes(Loop().run(TEN_MINUTES, mice)) == []


def test_mice_beside_elephants_change_nothing_in_ten_minutes(settled):
    random = np.random.default_rng(3)
    assert not changes(
        settled.run(TEN_MINUTES, lambda _: STABLE + random.exponential(0.1, STABLE.shape))
    )


def test_circuits_follow_a_demand_that_moves(settled):
    moved = changes(settled.run(40, lambda _: hot((0, 2), (1, 3))))
    assert moved
    joined = {
        frozenset(FABRIC.racks_of(circuit)) for circuit in settled.rehearsal.state.topology.circuits
    }
    assert {frozenset({0, 2}), frozenset({1, 3})} <= joined


def test_a_circuit_lives_its_minimum_life():
    loop = Loop(Policy(epoch_s=2.0, minimum_circuit_life_s=30.0, minimum_gain_mbps=5.0))
    born = changes(loop.run(10, lambda _: STABLE))[0].unix_s
    flipping = [hot((0, 2), (1, 3)), STABLE]
    for decision in loop.run(120, lambda second: flipping[second // 10 % 2]):
        if decision.action is Action.CHANGE and decision.proposal.disconnect:
            assert decision.unix_s - born >= 30.0
            born = decision.unix_s


def test_a_young_circuit_keeps_no_others_where_they_are():
    """Racks 5 to 8 want another pairing every epoch; the pairing of racks 1 to 4 is old."""
    policy = Policy(epoch_s=2.0, minimum_circuit_life_s=15.0, minimum_gain_mbps=5.0)
    rehearsal = Rehearsal(EIGHT, policy, 0.3)

    def epoch(now_s, *pairs):
        rates = np.zeros((8, 8))
        for src, dst in pairs:
            rates[src, dst] = 4 * EIGHT.electrical_rate_mbps
        rehearsal.see(now_s, rates)
        return rehearsal.step(now_s)

    def joined():
        return {frozenset(map(int, EIGHT.racks_of(c))) for c in rehearsal.state.topology.circuits}

    old, early, late = ((0, 1), (2, 3)), ((4, 5), (6, 7)), ((4, 6), (5, 7))
    epoch(0.0, *old)
    epoch(20.0, *old, *early)
    assert joined() == {frozenset(pair) for pair in (*old, *early)}
    decision = epoch(22.0, (0, 2), (1, 3), *late)
    assert decision.action is Action.CHANGE
    assert joined() == {frozenset(pair) for pair in ((0, 2), (1, 3), *early)}
    assert "; 2 circuits younger than 15 s left alone" in decision.reason
    epoch(36.0, (0, 2), (1, 3), *late)
    assert {frozenset(pair) for pair in late} <= joined()


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_clock_that_steps_moves_no_circuit(settled, step_s):
    settled.clock_error_s = step_s
    assert changes(settled.run(60, lambda _: STABLE)) == []


def test_switches_that_restart_move_no_circuit(settled):
    settled.totals[:] = 0
    assert changes(settled.run(60, lambda _: STABLE)) == []


def test_counters_that_jump_move_no_circuit(settled):
    settled.totals += np.uint64(2**60)
    assert changes(settled.run(60, lambda _: STABLE)) == []


def test_counters_that_jump_to_and_fro_move_no_circuit(settled):
    def jumping(second):
        settled.totals[second % 4] = np.uint64(second * 997 % 13) * np.uint64(2**58)
        return STABLE * 0

    assert changes(settled.run(60, jumping)) == []
    assert settled.meter.anomalies.total() >= 60


def test_what_an_algorithm_can_not_plan_is_a_decision_too():
    rehearsal = Rehearsal(FABRIC, Policy(algorithm="nonesuch"), 0.3)
    rehearsal.see(0.0, np.zeros((4, 4)))
    with pytest.raises(UnknownName):
        rehearsal.step(0.0)


def test_what_has_not_changed_is_not_planned_for_again(monkeypatch):
    one_plane = small_fabric(racks=4, planes=1, servers=2)
    policy = Policy(sharing=Sharing.AUTO, epoch_s=2.0, minimum_circuit_life_s=2.0)
    loop = Rehearsal(one_plane, policy, 0.1)
    asked = []
    for method in ("propose", "week"):
        plan = getattr(Planning, method)

        def counted(*args, plan=plan, method=method, **options):
            asked.append(method)
            return plan(*args, **options)

        monkeypatch.setattr(Planning, method, counted)
    demand = np.zeros((4, 4))
    demand[0, 1] = demand[0, 2] = 60.0

    def rounds(times_s):
        for at_s in times_s:
            loop.see(at_s, demand, demand)
            loop.step(at_s)
        seen = len(asked)
        asked.clear()
        return seen

    assert rounds([0.0, 2.0, 4.0]) > 0
    assert rounds([6.0, 8.0, 10.0]) == 0
    demand[0, 1] = 50.0
    assert rounds([12.0]) == 2
