"""The demand planned for by each kind of sharing, on the demo fabric and its planner."""

from dataclasses import replace

import numpy as np
import pytest

from apps.planning.engine import Planning
from apps.planning.periodic import PeriodicRequests
from apps.process.configuration import load_configuration
from hydra.model import NetworkState
from hydra.policy import DemandBasis, Policy, Sharing
from hydra.reconfiguration.plan import paths_by_pair
from hydra.reservations.reservation import Pin
from hydra.service import DemandReport, DemandSource
from tests.unit.cli import DEMO
from tests.unit.core.fabrics import small_fabric
from topology.estimator import surety

FABRIC = load_configuration(DEMO).fabric
POLICY = Policy(max_hops=1)
PLANNING = Planning(FABRIC, POLICY)


def seen(*flows, elephants_from=10.0):
    """A report in which only flows of ``elephants_from`` and more are elephants."""
    rates = np.zeros((4, 4))
    for src, dst, mbps in flows:
        rates[src, dst] = mbps
    return DemandReport(
        DemandSource.MEASURED, rates, np.where(rates >= elephants_from, rates, 0), 0.1, ()
    )


def step(rounds, sharing, report, state, planning=PLANNING):
    request = rounds.request(sharing, report)
    if request is None:
        return state
    paths = paths_by_pair(state)
    pins = [Pin(*pair, path, 0.0, ()) for pair in request.hold for path in paths.get(pair, ())]
    wanted = request.demand if request.weights is None else request.weights
    after = planning.for_demand(state, request, wanted, pins, ())
    rounds.begun(sharing, after)
    return after


ALL_PAIRS = [(a, b, 20.0 + a + b) for a in range(4) for b in range(4) if a < b]


@pytest.mark.parametrize("sharing", [Sharing.UNDIFFERENTIATED, Sharing.DIFFERENTIATED])
def test_every_pair_gets_its_turn(sharing):
    """Two planes carry four of six pairs at a time."""
    rounds, state, turns = PeriodicRequests(), NetworkState(), []
    for _ in range(3):
        state = step(rounds, sharing, seen(*ALL_PAIRS), state)
        turns.append(set(paths_by_pair(state)))
    assert len(turns[0]) == 4
    assert turns[0] | turns[1] == {(a, b) for a, b, _ in ALL_PAIRS}
    assert turns[0] != turns[1]


@pytest.mark.parametrize("sharing", [Sharing.UNDIFFERENTIATED, Sharing.DIFFERENTIATED])
def test_every_direction_gets_its_turn_where_circuits_are_one_way(sharing):
    """A ring on each of two planes carries eight of twelve directions at a time."""
    loaded = load_configuration(DEMO.with_name("one-way.yaml"))
    planning = Planning(loaded.fabric, loaded.policy)
    rounds, state, turns = PeriodicRequests(one_way=True), NetworkState(), []
    flows = [(a, b, 20.0) for a in range(4) for b in range(4) if a != b]
    for _ in range(2):
        state = step(rounds, sharing, seen(*flows), state, planning)
        turns.append({(path.src, path.dst) for path in state.topology.paths})
    assert len(turns[0]) == 8
    assert turns[0] | turns[1] == {(a, b) for a, b, _ in flows}


@pytest.mark.parametrize(
    ("basis", "joined"), [(DemandBasis.ESTIMATE, (0, 1)), (DemandBasis.BACKLOG, (0, 2))]
)
def test_edmonds_joins_those_for_whom_most_waits(basis, joined):
    """As in c-Through (section 4.1): one pair sends more, and the other pair has more backlog."""
    one_plane = small_fabric(racks=3, planes=1, servers=1)
    planning = Planning(one_plane, Policy(algorithm="edmonds"))
    sent, waiting = np.zeros((2, 3, 3))
    sent[0, [1, 2]], waiting[0, [1, 2]] = (9.0, 1.0), (8.0, 24.0)
    expected = waiting * surety(sent, waiting) if basis is DemandBasis.ESTIMATE else None
    report = DemandReport(
        DemandSource.MEASURED, sent, waiting, 0.1, (), basis=basis, expected_mbps=expected
    )
    state = step(PeriodicRequests(), Sharing.BY_DEMAND, report, NetworkState(), planning)
    assert set(paths_by_pair(state)) == {joined}


def test_of_two_guesses_the_one_that_is_expected_to_be_larger_comes_first():
    """The gain is computed from the possible demand."""
    one_plane = small_fabric(racks=3, planes=1, servers=1)
    planning = Planning(one_plane, POLICY)
    sent, wanted, expected = np.zeros((3, 3, 3))
    sent[0, [1, 2]], wanted[0, [1, 2]], expected[0, [1, 2]] = (4.0, 3.0), (60.0, 50.0), (8.0, 9.0)
    told = replace(seen(), rate_mbps=sent, estimated_mbps=wanted, expected_mbps=expected)
    state = step(PeriodicRequests(), Sharing.BY_DEMAND, told, NetworkState(), planning)
    assert set(paths_by_pair(state)) == {(0, 2)}
    request = PeriodicRequests().request(Sharing.BY_DEMAND, told)
    assert request.demand.tolist() == wanted.tolist()
    nobody_knows = replace(told, expected_mbps=None)
    state = step(PeriodicRequests(), Sharing.BY_DEMAND, nobody_knows, NetworkState(), planning)
    assert set(paths_by_pair(state)) == {(0, 1)}


@pytest.mark.parametrize("sharing", [Sharing.UNDIFFERENTIATED, Sharing.DIFFERENTIATED])
def test_gains_are_told_of_the_traffic_not_of_whose_turn_it_is(sharing):
    request = PeriodicRequests().request(sharing, seen((0, 1, 50.0), (2, 3, 20.0)))
    proposal = PLANNING.propose(NetworkState(), request, request.demand, (), ())
    assert proposal.served_then_mbps == pytest.approx(70.0)


def test_mice_get_turns_only_where_nothing_is_told_apart():
    flows = [(0, 1, 50.0), (2, 3, 0.5)]
    everybody = step(PeriodicRequests(), Sharing.UNDIFFERENTIATED, seen(*flows), NetworkState())
    elephants = step(PeriodicRequests(), Sharing.DIFFERENTIATED, seen(*flows), NetworkState())
    assert set(paths_by_pair(everybody)) == {(0, 1), (2, 3)}
    assert set(paths_by_pair(elephants)) == {(0, 1)}


def test_an_elephant_keeps_its_circuit_until_it_ends():
    """Larger elephants come later, and may have the remaining circuits."""
    rounds = PeriodicRequests()
    state = step(rounds, Sharing.ON_DEMAND, seen((0, 1, 15.0), (0, 2, 15.0)), NetworkState())
    before = paths_by_pair(state)
    assert set(before) == {(0, 1), (0, 2)}
    crowd = [(0, 1, 15.0), (0, 2, 15.0), (0, 3, 95.0), (1, 2, 90.0), (1, 3, 90.0)]
    state = step(rounds, Sharing.ON_DEMAND, seen(*crowd), state)
    after = paths_by_pair(state)
    assert {pair: after[pair] for pair in before} == before
    assert (0, 3) not in after, "rack 0 has no port left"
    state = step(rounds, Sharing.ON_DEMAND, seen(*crowd[1:]), state)
    assert (0, 3) in paths_by_pair(state), "the first one ended"


def test_an_elephant_that_gets_a_circuit_leaves_the_mice_the_electrical_network():
    """So a circuit at the electrical rate gains the rate that elephants and mice shared."""
    policy = replace(POLICY, paths_per_pair=1)
    planning = Planning(replace(FABRIC, electrical_rate_mbps=50.0), policy)  # two servers a rack
    for sharing, then in ((Sharing.ON_DEMAND, 160.0), (Sharing.BY_DEMAND, 100.0)):
        request = PeriodicRequests().request(sharing, seen((0, 1, 160.0)))
        proposal = planning.propose(NetworkState(), request, request.demand, (), ())
        assert proposal.served_now_mbps == pytest.approx(100.0)
        assert proposal.served_then_mbps == pytest.approx(then)


def test_by_demand_the_larger_one_may_have_it():
    rounds = PeriodicRequests()
    state = step(rounds, Sharing.BY_DEMAND, seen((0, 1, 15.0), (0, 2, 15.0)), NetworkState())
    crowd = seen((0, 1, 15.0), (0, 2, 15.0), (0, 3, 95.0))
    assert (0, 3) in paths_by_pair(step(rounds, Sharing.BY_DEMAND, crowd, state))


def test_nobody_wants_a_turn():
    state = step(PeriodicRequests(), Sharing.UNDIFFERENTIATED, seen((0, 1, 50.0)), NetworkState())
    assert step(PeriodicRequests(), Sharing.UNDIFFERENTIATED, seen(), state) is state


def test_without_a_measurement_nothing_is_made_up():
    nothing = DemandReport(DemandSource.NONE, np.zeros((4, 4)), np.zeros((4, 4)), None, ())
    for sharing in Sharing:
        request = PeriodicRequests().request(sharing, nothing)
        assert request.demand is None
        assert request.only_if_it_pays


@pytest.mark.parametrize("sharing", [one for one in Sharing if one is not Sharing.SLOTTED])
def test_what_rests_on_few_or_late_readings_moves_no_circuit(sharing):
    """A port for each rack: a pair in doubt neither loses its circuit nor takes another pair's."""
    planning = Planning(FABRIC, POLICY)
    state = step(PeriodicRequests(), Sharing.BY_DEMAND, seen((0, 1, 50.0)), NetworkState())
    before = paths_by_pair(state)
    assert set(before) == {(0, 1)}
    rounds = PeriodicRequests()
    few = seen((2, 3, 5.0), (0, 3, 90.0), (0, 2, 90.0))
    doubted = np.zeros((4, 4), dtype=bool)
    doubted[1, 0] = doubted[0, 3] = doubted[0, 2] = True
    after = step(rounds, sharing, replace(few, unsure=doubted), state, planning)
    assert paths_by_pair(after)[0, 1] == before[0, 1]
    assert not {(0, 2), (0, 3)} & set(paths_by_pair(after))
    sure = paths_by_pair(step(rounds, sharing, replace(few, unsure=~doubted & False), state))
    assert (0, 3) in sure, "the same readings, once they are enough"
