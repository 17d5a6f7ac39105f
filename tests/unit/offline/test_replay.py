import numpy as np
import pytest

from apps.offline.recording import Reading, Trace
from apps.offline.rehearsal import Rehearsal
from apps.offline.replay import Variant, document_of, read_variant, replay
from apps.offline.study import plain_fabric
from hydra.errors import PlanError, UnknownName
from hydra.policy import Mode, Policy, Sharing, SlotPolicy
from tests.unit.core.fabrics import small_fabric

pytestmark = pytest.mark.takes(5)

FABRIC = small_fabric(racks=4, planes=2, servers=2)
BASE = Policy(epoch_s=2.0)
NOTHING = Variant("no circuits", None)


def trace(*epochs, lasts_s=20):
    """Each epoch lists the pairs that send 40 Mbps, with a reading per second."""
    readings = []
    for epoch in epochs:
        for _ in range(lasts_s):
            ends = np.array(epoch, dtype=np.intp).reshape(-1, 2)
            at_s = float(len(readings))
            readings.append(Reading(at_s, *ends.T, np.full(len(ends), 40.0)))
    return Trace("small", 0.0, tuple(readings))


MOVING = trace([(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 1), (2, 3)])


def test_circuits_serve_more_than_none():
    without = replay(FABRIC, BASE, MOVING, NOTHING, 0.3)
    configured = replay(FABRIC, BASE, MOVING, Variant("as configured", BASE), 0.3)
    assert without.wanted_gb == configured.wanted_gb
    # Two pairs want 200 Mbps each; the electrical network carries 20 of each.
    assert without.wanted_gb == pytest.approx(59 * 400 / 8000)
    assert without.served_share == pytest.approx(0.1)
    assert (without.changes, without.circuits_set_up) == (0, 0)
    assert configured.served_share > 0.4
    assert configured.changes >= 2


def test_a_policy_that_clings_to_circuits_changes_less():
    """The plan serves less only if the ports of its circuits are the only ports."""
    for planes in (1, 2):
        fabric = small_fabric(racks=4, planes=planes, servers=2)
        eager, clinging = (
            replay(fabric, BASE, MOVING, read_variant(f"minimum_circuit_life_s={s}", BASE), 0.3)
            for s in (0, 600)
        )
        assert clinging.changes < eager.changes
        if planes == 1:
            assert clinging.served_share < eager.served_share
        else:
            assert clinging.served_share == eager.served_share


def test_ways_of_sharing_side_by_side():
    """Three pairs want the only port of a rack: by one pair, by all in turn, or by slots."""
    one_plane = small_fabric(racks=4, planes=1, servers=2)
    base = Policy(epoch_s=2.0, slots=SlotPolicy(slot_s=1.0, week_s=6.0))
    wanted = trace([(0, 1), (0, 2), (0, 3)], lasts_s=60)
    runs = {
        sharing: replay(one_plane, base, wanted, read_variant(f"sharing={sharing}", base), 0.1)
        for sharing in ("by-demand", "differentiated", "on-demand", "slotted")
    }
    assert runs["by-demand"].changes == runs["on-demand"].changes == 1
    assert runs["differentiated"].changes > 20
    slotted = runs["slotted"]
    assert slotted.changes == 1, "a week that goes on is no change"
    assert slotted.moments[0].decision.reason.startswith("a week of 3 slots in 6 s")
    assert runs["by-demand"].served_share == pytest.approx(runs["on-demand"].served_share)
    # Each wants a third of 200 Mb/s. A circuit that stays carries one third; by day, pairs catch up
    # at the circuit's 100 Mb/s, for all but three nights in 6 s. 20 Mb/s go electrically.
    assert runs["by-demand"].served_share == pytest.approx((200 / 3 + 20) / 200, abs=0.02)
    assert slotted.served_share == pytest.approx((0.95 * 100 + 20) / 200, abs=0.02)
    assert document_of(slotted)["policy"]["sharing"] == "slotted"


def test_auto_is_as_good_as_the_better_of_slots_and_a_standing_topology():
    one_plane = small_fabric(racks=4, planes=1, servers=2)
    base = Policy(epoch_s=2.0, slots=SlotPolicy(slot_s=1.0, week_s=6.0))
    many, few = [(0, 1), (0, 2), (0, 3)], [(0, 1), (2, 3)]
    for pairs, better in ((many, "slotted"), (few, "by-demand")):
        wanted = trace(pairs, lasts_s=60)
        shares = {
            sharing: replay(
                one_plane, base, wanted, read_variant(f"sharing={sharing}", base), 0.1
            ).served_share
            for sharing in ("by-demand", "slotted", "auto")
        }
        assert shares["auto"] >= shares[better] - 0.01
        assert shares[better] == pytest.approx(max(shares.values()), abs=0.01)


def test_auto_begins_and_ends_slots_as_the_demand_changes():
    one_plane = small_fabric(racks=4, planes=1, servers=2)
    policy = Policy(sharing=Sharing.AUTO, epoch_s=2.0, slots=SlotPolicy(slot_s=1.0, week_s=6.0))
    loop = Rehearsal(one_plane, policy, 0.1)
    slotted = []
    for step, pairs in enumerate([[(0, 1)]] * 2 + [[(0, 1), (0, 2), (0, 3)]] * 2 + [[(0, 1)]] * 2):
        demand = np.zeros((4, 4))
        for pair in pairs:
            demand[pair] = 60.0
        loop.see(2.0 * step, demand, demand)
        loop.step(2.0 * step)
        slotted.append(loop.week is not None)
    assert slotted == [False, False, True, True, False, False]


def test_slots_are_foretold_for_their_week_whatever_the_mode():
    one_plane = small_fabric(racks=4, planes=1, servers=2)
    week = SlotPolicy(slot_s=1.0, week_s=6.0)
    wanted = trace([(0, 1), (0, 2)], [(0, 3)], [(0, 1), (1, 2)], [(2, 3)], lasts_s=13)
    errors = []
    for mode in Mode:
        base = Policy(mode=mode, epoch_s=2.0, slots=week)
        slotted = read_variant("sharing=slotted,prediction=ewma", base)
        errors.append(replay(one_plane, base, wanted, slotted, 0.1).prediction_error)
    assert errors[0] is not None
    assert len(set(errors)) == 1


def test_changes_cost_what_they_disturb():
    one_plane = small_fabric(racks=4, planes=1, servers=2)
    policy = Policy(epoch_s=2.0, gain_factor=0.0)
    half = trace([(0, 1), (2, 3)], [(0, 1), (2, 3), (0, 2), (2, 0), (3, 1), (1, 3)])
    cheap, dear = (
        replay(one_plane, policy, half, Variant("", policy), outage_s) for outage_s in (0.0, 5.0)
    )
    assert cheap.cost_gb == 0.0
    assert dear.served_gb == pytest.approx(cheap.served_gb - dear.cost_gb)


def test_the_same_trace_gives_the_same_run():
    runs = [replay(FABRIC, BASE, MOVING, Variant("", BASE), 0.3) for _ in range(2)]
    assert document_of(runs[0]) == document_of(runs[1])


def test_decisions_come_once_an_epoch():
    slow = read_variant("epoch_s=7", BASE)
    moments = replay(FABRIC, BASE, MOVING, slow, 0.3).moments
    assert [m.at_s for m in moments if m.decision is not None] == list(range(0, 60, 7))


def test_readings_that_come_a_little_late_or_early_make_no_round_later():
    """Readings as written by ``hydra record --interval 2``."""
    late_s = (0.002, 0.012, 0.004, 0.011, 0.003, 0.02, 0.005, 0.013)
    ends, rates = np.array([[0, 1]]).T, np.array([40.0])
    readings = [Reading(2.0 * n + late, *ends, rates) for n, late in enumerate(late_s)]
    run = replay(FABRIC, BASE, Trace("small", 0.0, tuple(readings)), Variant("it", BASE), 0.3)
    assert all(moment.decision is not None for moment in run.moments)


def test_an_algorithm_that_does_not_fit_is_a_remark():
    run = replay(FABRIC, BASE, MOVING, read_variant("algorithm=tms", BASE), 0.3)
    assert run.changes == 0
    assert run.refused


def test_an_algorithm_that_is_not_there():
    with pytest.raises(UnknownName, match="nonesuch"):
        replay(FABRIC, BASE, MOVING, read_variant("algorithm=nonesuch", BASE), 0.3)


def test_one_reading_is_enough():
    run = replay(FABRIC, BASE, trace([(0, 1)], lasts_s=1), Variant("", BASE), 0.3)
    assert (run.wanted_gb, run.served_share, run.changes) == (0.0, 1.0, 1)
    assert (run.served_words, document_of(run)["served_share"]) == ("-", None)


def test_a_fabric_without_servers_is_refused():
    """The possible demand is limited by the links: without links, all would be served."""
    with pytest.raises(PlanError, match="4x2 has no servers"):
        replay(plain_fabric(4, 2, 100.0), BASE, MOVING, NOTHING, 0.3)


def test_several_keys_of_one_variant():
    variant = read_variant("algorithm=hydra-bfs+, gain_factor=1,max_hops=2", BASE)
    assert variant.policy is not None
    assert variant.policy.algorithm == "hydra-bfs+"
    assert (variant.policy.gain_factor, variant.policy.max_hops) == (1, 2)
    assert variant.policy.epoch_s == BASE.epoch_s


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("edmonds", "'edmonds' is no KEY=VALUE of algorithm, "),
        ("algoritm=edmonds", "did you mean"),
        ("mode=periodic", "is no KEY=VALUE"),
        ("epoch_s=0", "epoch_s: 0: Input should be greater than or equal to 0.001"),
        ("epoch_s=soon", "epoch_s: 'soon'"),
        ("max_hops=2.5", "max_hops: 2.5"),
        ("gain_factor=[", "gain_factor: '[' is no value"),
        ("gain_factor=.inf", "gain_factor: inf"),
    ],
)
def test_what_is_no_policy_is_refused(text, says):
    with pytest.raises(PlanError) as caught:
        read_variant(text, BASE)
    assert says in str(caught.value)


def test_traffic_that_does_not_catch_up_gets_less_from_slots():
    one_plane = small_fabric(racks=4, planes=1, servers=2)
    week = SlotPolicy(slot_s=1.0, week_s=6.0)
    loop = Rehearsal(one_plane, Policy(sharing=Sharing.SLOTTED, slots=week), 0.1)
    demand = np.zeros((4, 4))
    demand[0, 1:] = 60.0
    loop.see(0.0, demand, demand)
    loop.step(0.0)
    bulk, constant = (
        loop.served_mbps(loop.planning.rates, demand, catches_up=catches_up)
        for catches_up in (True, False)
    )
    assert 0 < constant < bulk
