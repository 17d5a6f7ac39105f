"""The slotted mode on a simulated clock and network: circuits of each slot, and their durations."""

import random
import threading
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from apps.controller.mover import Mover
from apps.controller.record.ledger import Ledger
from apps.controller.slots import TRIGGER, Slots, WeekUnderWay
from apps.offline.rehearsal import Rehearsal
from apps.planning.engine import Planning
from hydra.decisions.decision import Action
from hydra.errors import PlanError
from hydra.lifecycle import ReconfigurationState
from hydra.model import NetworkState, RackId, Topology
from hydra.policy import (
    CurrentPolicy,
    DrainPolicy,
    Mode,
    Policy,
    Rotation,
    Sharing,
    SlotPolicy,
)
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import paths_by_pair
from hydra.reservations.reservation import Pin
from hydra.service import PlanRequest
from hydra.sharing.given_schedule import GivenSchedule, GivenSlot
from tests.journals import SqliteJournal
from tests.unit.controller.runners import at_once, awaited
from tests.unit.controller.ways import ways_of
from tests.unit.core.fabrics import (
    path_of,
    random_fabric,
    small_fabric,
    state_of,
    with_one_way_circuits,
)
from tests.unit.reconfiguration.simulation.faults import Faults
from tests.unit.reconfiguration.simulation.network import Network, conditions_of
from tests.unit.reconfiguration.upkeep import mend
from tests.unit.reconfiguration.watch import Watch
from topology.rotors import rotation_topologies
from topology.synthetic import synthetic_demand

FABRIC = small_fabric(racks=4, planes=1)
POLICY = Policy(
    mode=Mode.PERIODIC,
    sharing=Sharing.SLOTTED,
    drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=1000.0),
    slots=SlotPolicy(slot_s=0.5, week_s=4.0),
)


def demand_of(*flows):
    demand = np.zeros((4, 4))
    for src, dst, mbps in flows:
        demand[src, dst] = mbps
    return demand


BOTH = demand_of((0, 1, 90.0), (0, 2, 90.0))
"""Two pairs that want the only port of rack 1."""


class Stage:
    """A controller's slots, with time that passes on request, or during work."""

    def __init__(self, demand) -> None:
        self.network = Network(FABRIC, NetworkState(), random.Random(1))
        self.demand = demand
        self.pins = ()
        self.planned_at_s = []
        self.plans_slowly = False
        self.ledger = Ledger(fabric=FABRIC, journal=SqliteJournal(":memory:"))
        self.planning = Planning(FABRIC, POLICY)
        upkeep = SimpleNamespace(
            devices=SimpleNamespace(make_certain=awaited(lambda _plan: None)),
            tidy_relays=awaited(lambda: None),
            take_over=lambda one: mend(self.network, one) if one.failures else None,
        )
        reach = SimpleNamespace(
            conditions=lambda: conditions_of(self.network, self.ledger.network.state),
            blocked_ports=frozenset,
        )
        announcer = SimpleNamespace(suspended=threading.Lock())
        self.policy = CurrentPolicy(POLICY)
        mover = Mover(
            fabric=FABRIC,
            policy=self.policy,
            planning=self.planning,
            upkeep=upkeep,
            reach=reach,
            announcer=announcer,
            ledger=self.ledger,
            ways=ways_of(FABRIC, self.policy, self.planning, reach, self.ledger),
        )
        slots = Slots(
            fabric=FABRIC,
            policy=self.policy,
            mover=mover,
            ledger=self.ledger,
            clock=lambda: self.network.now_s,
        )
        self.mover, self.slots = at_once(mover, self.perform), at_once(slots, self.perform)

    def perform(self, batch):
        return self.network.perform(batch, lambda _command: None)

    def keep_time(self):
        given = self.slots.given
        begin = self.begin if given is None else partial(self.begin_given, given)
        self.slots.keep_time(begin, awaited(WeekUnderWay.draft))

    def begin(self, night_s):
        self.planned_at_s.append(self.network.now_s)
        if self.demand is None:
            return WeekUnderWay.not_wanted()
        current = self.ledger.network.state
        asked = WeekUnderWay(Future(), (), current)
        request = current, PlanRequest(), self.demand, self.pins, (), self.policy.now.slots, night_s
        self.asked = asked, request
        if not self.plans_slowly:
            self.end_planning()
        return asked

    def follow(self, given):
        """Follow a given schedule."""
        self.slots.give(given, self.slots.plan_given(given, partial(self.begin_given, given)))

    def begin_given(self, given, night_s):
        current = self.ledger.network.state
        asked = WeekUnderWay(Future(), (), current)
        request = current, PlanRequest(), np.zeros((4, 4)), self.pins, (), given, night_s
        try:
            asked.week.set_result(self.planning.week(*request))
        except PlanError as refusal:
            asked.week.set_exception(refusal)
        return asked

    def end_planning(self):
        """Plan the last requested week."""
        asked, request = self.asked
        try:
            asked.week.set_result(self.planning.week(*request))
        except PlanError as refusal:
            asked.week.set_exception(refusal)

    def pass_time(self, seconds, step_s=0.05):
        """The pairs with circuits at each step."""
        seen = []
        end_s = self.network.now_s + seconds
        while self.network.now_s < end_s:
            self.keep_time()
            seen.append(frozenset(paths_by_pair(self.ledger.network.state)))
            self.network.now_s += min(step_s, max(1e-6, self.slots.patience_s(step_s)))
        return seen

    def changes(self):
        return [
            one for one in reversed(self.ledger.log.reconfigurations()) if one.trigger == TRIGGER
        ]


@pytest.fixture
def stage():
    return Stage(BOTH)


def test_two_pairs_have_the_port_in_turn(stage):
    seen = stage.pass_time(12.0)
    assert set(seen) == {frozenset({(0, 1)}), frozenset({(0, 2)})}
    share = seen.count(frozenset({(0, 1)})) / len(seen)
    assert share == pytest.approx(0.5, abs=0.05)
    changes = stage.changes()
    assert {one.state for one in changes} == {ReconfigurationState.DONE}
    assert len(changes) == pytest.approx(6, abs=1)
    assert [one.reason for one in changes[1:3]] == ["slot 2 of 2", "slot 1 of 2"]


def test_a_week_is_planned_by_day_and_decided_once(stage):
    """The week has precomputed changes: a repeated change is not planned again more than once a
    week.
    """
    stage.pass_time(12.0)
    (decision,) = stage.ledger.log.decisions()
    assert decision.action is Action.CHANGE
    assert decision.reason.startswith("a week of 2 slots in 4 s, duty cycle ")
    assert decision.reconfiguration == stage.changes()[0].id
    assert stage.planned_at_s[0] == 0.0
    begins_s = [2.0 + 4.0 * week for week in range(3)]
    assert stage.planned_at_s[1:] == pytest.approx(begins_s, abs=0.5)


def test_vlans_are_the_same_in_every_week(stage):
    vlans = set()
    for _ in range(6):
        stage.pass_time(2.0)
        vlans |= {(path, vlan) for path, vlan in stage.ledger.network.state.vlans.items()}
    assert len(vlans) == 2


def test_the_duty_cycle_is_measured_beside_the_formula(stage):
    assert stage.slots.schedule().measured_duty_cycle is None
    stage.pass_time(12.0)
    schedule = stage.slots.schedule()
    nights_s = [
        max(s.finished_ms for s in one.timeline if s.step == "activate")
        - min(s.started_ms for s in one.timeline if s.step == "divert")
        for one in stage.changes()
    ]
    expected = 1 - sum(nights_s[:-1]) / 1000 / (2.0 * len(nights_s[:-1]))
    assert schedule.measured_duty_cycle == pytest.approx(expected, abs=0.01)
    assert schedule.week.duty_cycle == pytest.approx(1 - 2 * schedule.week.night_s / 4.0)


def test_another_week_s_duty_cycle_is_measured_on(stage):
    stage.pass_time(
        12.0
    )  # several nights: after a single night, the duty cycle would be 0.985, not 0.93
    before = stage.slots.schedule().measured_duty_cycle
    stage.demand = demand_of((0, 1, 90.0), (0, 3, 90.0))
    while len(stage.ledger.log.decisions()) < 2:
        stage.pass_time(0.05)
        assert stage.network.now_s < 24.0
    assert stage.slots.schedule().measured_duty_cycle == pytest.approx(before, abs=0.01)


def test_another_demand_is_another_week(stage):
    stage.pass_time(3.0)
    stage.demand = demand_of((0, 1, 90.0), (0, 3, 90.0))
    seen = stage.pass_time(10.0)
    assert seen[-1] <= {(0, 1), (0, 3)}
    assert frozenset({(0, 3)}) in seen
    assert len(stage.ledger.log.decisions()) == 2


def test_the_next_week_is_known_ahead(stage):
    stage.pass_time(1.0)
    stage.demand = demand_of((0, 1, 90.0), (0, 3, 90.0))
    stage.pass_time(2.0)
    schedule = stage.slots.schedule()
    assert (0, 2) in schedule.week.light_s()
    assert (0, 3) in schedule.ahead.light_s()


def test_slots_take_turns_while_the_next_week_is_planned(stage):
    stage.pass_time(1.0)
    stage.demand = demand_of((0, 1, 90.0), (0, 3, 90.0))
    stage.plans_slowly = True
    seen = stage.pass_time(8.0)
    assert set(seen) == {frozenset({(0, 1)}), frozenset({(0, 2)})}
    assert seen.count(frozenset({(0, 1)})) / len(seen) == pytest.approx(0.5, abs=0.05)
    assert len(stage.planned_at_s) == 2, "one week is planned at a time"
    stage.end_planning()
    stage.plans_slowly = False
    assert frozenset({(0, 3)}) in stage.pass_time(6.0)


def test_nothing_changes_until_the_first_week_is_planned(stage):
    stage.plans_slowly = True
    assert set(stage.pass_time(3.0)) == {frozenset()}
    assert stage.slots.patience_s(0.25) == 0.25
    stage.end_planning()
    assert frozenset() not in stage.pass_time(3.0)


def test_a_week_that_was_planned_for_another_state_is_planned_anew(stage):
    stage.plans_slowly = True
    stage.pass_time(1.0)
    path = path_of(FABRIC, 0, 3)
    stage.pins = (Pin(RackId(0), RackId(3), path, 40.0, ()),)
    state = stage.planning.for_pins(stage.ledger.network.state, stage.pins, ())
    stage.mover.move(stage.ledger.log.enter("reservation 1"), state)
    stage.end_planning()
    stage.plans_slowly = False
    assert set(stage.pass_time(3.0)) == {frozenset({(0, 3)})}
    assert len(stage.planned_at_s) == 2


def test_a_demand_that_ends_leaves_the_week_as_it_is(stage):
    stage.pass_time(3.0)
    stage.demand = None
    assert len(set(stage.pass_time(8.0))) == 2


def test_what_changes_the_network_ends_the_week(stage):
    """The reservation takes the port, for all slots."""
    stage.pass_time(3.0)
    path = path_of(FABRIC, 0, 3)
    stage.pins = (Pin(RackId(0), RackId(3), path, 40.0, ()),)
    state = stage.planning.for_pins(stage.ledger.network.state, stage.pins, ())
    stage.mover.move(stage.ledger.log.enter("reservation 1"), state)
    assert set(stage.pass_time(8.0)) == {frozenset({(0, 3)})}


@pytest.mark.parametrize("begins_s", [1.0, 3.0], ids=["first slot", "last, with a week ahead"])
def test_a_reservation_of_a_path_that_stands_ends_the_week(stage, monkeypatch, begins_s):
    """The reservation changes nothing in the network, and has the path in all slots from then
    on.
    """
    stage.pass_time(begins_s)
    (path,) = stage.ledger.network.state.topology.paths
    stage.pins = (Pin(path.src, path.dst, path, 40.0, ("1",)),)
    monkeypatch.setattr(stage.ledger.bookings, "pins", lambda: stage.pins)
    assert set(stage.pass_time(8.0)) == {frozenset({(path.src, path.dst)})}


def test_a_week_is_planned_around_a_reserved_path_that_is_yet_to_be_set_up(stage):
    """The release of a reservation whose circuit has just failed."""
    path = path_of(FABRIC, 0, 3)
    stage.pins = (Pin(path.src, path.dst, path, 40.0, ("1",)),)
    assert set(stage.pass_time(3.0)) == {frozenset({(0, 3)})}


def test_it_ends_when_told_and_leaves_what_stands(stage):
    stage.pass_time(3.0)
    stage.policy.now = replace(POLICY, sharing=Sharing.BY_DEMAND)
    assert len(set(stage.pass_time(8.0))) == 1
    assert stage.slots.schedule().week is None
    assert stage.slots.patience_s(0.25) == 0.25


def test_nobody_has_to_share():
    stage = Stage(demand_of((0, 1, 90.0), (2, 3, 20.0)))
    assert set(stage.pass_time(12.0)) == {frozenset({(0, 1), (2, 3)})}
    assert len(stage.changes()) == 1
    assert stage.slots.schedule().week.duty_cycle == 1.0


def test_slots_that_leave_no_day_are_not_begun(stage):
    stage.policy.now = replace(POLICY, slots=SlotPolicy(slot_s=0.25, week_s=4.0))
    with pytest.raises(PlanError, match="a slot of 250 ms leaves no day after its night of 300 ms"):
        stage.slots.check()
    stage.pass_time(1.0)
    assert stage.changes() == []
    (decision,) = stage.ledger.log.decisions()
    assert decision.action is Action.NO_PLAN


def test_one_way_circuits_are_not_shared_by_slots(stage):
    fabric = with_one_way_circuits(FABRIC)
    slots = Slots(
        fabric=fabric,
        policy=stage.policy,
        mover=stage.mover,
        ledger=stage.ledger,
        clock=lambda: 0.0,
    )
    with pytest.raises(PlanError, match="circuits of this fabric are unidirectional"):
        slots.check()
    demand = demand_of((0, 1, 90.0))
    slotted = replace(POLICY, algorithm="helios")
    rehearsal = Rehearsal(fabric, slotted, outage_s=0.1)
    rehearsal.see(0.0, demand)
    decision = rehearsal.step(0.0)
    assert (decision.action, decision.proposal) == (Action.NO_PLAN, None)
    assert "unidirectional" in decision.words


def test_nights_that_grow_too_long_end_it_and_it_is_tried_again(stage):
    """A night made long by reads of counters that take more than a second."""
    quick = replace(POLICY, slots=SlotPolicy(slot_s=1.0, week_s=8.0))
    slow_drain = DrainPolicy(reads=100, interval_ms=12.0, bound_ms=1500.0)
    stage.policy.now = replace(quick, drain=slow_drain)
    stage.pass_time(40.0)
    refused = [one for one in stage.ledger.log.decisions() if one.action is Action.NO_PLAN]
    assert refused
    assert "leaves no day after its night of" in refused[0].reason
    stage.policy.now = quick
    assert len(set(stage.pass_time(40.0)[-160:])) == 2


def test_a_circuit_that_fails_ends_the_week(stage):
    """The pair stays electrical until the next slot is due; then the rest is planned."""
    stage.pass_time(1.0)
    stage.network.faults = Faults(no_carrier=1.0)
    stage.pass_time(2.0)
    stage.network.faults = Faults()
    assert stage.changes()[1].state is ReconfigurationState.PARTIAL
    assert not stage.ledger.network.state.topology.paths, (
        "as long as there is light to be waited for"
    )
    seen = stage.pass_time(8.0)
    assert set(seen[-80:]) == {frozenset({(0, 1)}), frozenset({(0, 2)})}


@pytest.mark.parametrize("seed", range(12))
def test_no_frame_is_lost_in_any_week(seed):
    """Two periods of the prepared changes, on all substrates, checked after every command."""
    rng = random.Random(seed)
    fabric = replace(random_fabric(rng), one_way=False)
    planning = Planning(fabric, POLICY)
    demand = synthetic_demand("gravity", len(fabric.racks), seed, 150.0)
    state = NetworkState()
    week = planning.week(state, PlanRequest(), demand, (), (), POLICY.slots, 0.1)
    network = Network(fabric, state, rng)
    entry = planning.diff(state, week.slots[0].state)
    for number in range(2 * len(week.slots) + 1):
        plan = entry if number == 0 else week.change_to(number % len(week.slots), state)
        execution = Execution(
            fabric=fabric,
            policy=POLICY,
            plan=plan,
            conditions=conditions_of(network, state),
            order_of=planning.order_of,
        )
        network.journal.clear()
        network.unsettle(sorted(plan.disconnect))
        state = Watch(network, execution).run().result
        assert week.slots[number % len(week.slots)].stands(state)


def rotation(length_s=1.0):
    topologies = rotation_topologies(Rotation.ROTORNET, FABRIC)
    return GivenSchedule("rotornet", tuple(GivenSlot(one, length_s) for one in topologies))


@pytest.mark.parametrize("policy", [POLICY, Policy(drain=POLICY.drain)], ids=["slotted", "request"])
def test_a_given_schedule_is_followed_whatever_the_policy_until_it_is_ended(stage, policy):
    stage.policy.now = policy
    stage.follow(rotation())
    seen = stage.pass_time(9.0)
    both = [frozenset(pairs) for pairs in ({(0, 1), (2, 3)}, {(0, 2), (1, 3)}, {(0, 3), (1, 2)})]
    assert set(seen) - {frozenset()} == set(both)
    for pairs in both:
        assert seen.count(pairs) / len(seen) == pytest.approx(1 / 3, abs=0.05)
    assert stage.slots.schedule().given.name == "rotornet"
    assert stage.policy.sharing.sharing is Sharing.SLOTTED
    (decision,) = stage.ledger.log.decisions()
    assert decision.proposal.algorithm == "rotornet"
    stage.slots.end_given()
    stands, count = frozenset(paths_by_pair(stage.ledger.network.state)), len(stage.changes())
    assert stage.slots.schedule().given is None
    after = stage.pass_time(3.0)
    if policy is POLICY:
        assert {frozenset({(0, 1)}), frozenset({(0, 2)})} >= set(after[1:]), "as planned again"
    else:
        assert (set(after), len(stage.changes())) == ({stands}, count), "the last slot stays"


def test_another_given_schedule_takes_its_place(stage):
    stage.follow(rotation())
    stage.pass_time(1.5)
    path = path_of(FABRIC, 1, 3)
    alone = GivenSlot(Topology(frozenset(path.circuits), (path,)), 1.0)
    stage.follow(GivenSchedule("listed", (alone,)))
    assert set(stage.pass_time(4.0)) == {frozenset({(1, 3)})}


def test_a_given_schedule_without_a_day_or_with_a_reserved_port_changes_nothing(stage):
    with pytest.raises(PlanError, match=r"no day after its night of 300 ms .* give longer slots"):
        stage.follow(rotation(0.2))
    path = path_of(FABRIC, 0, 3)
    stage.pins = (Pin(path.src, path.dst, path, 10.0, ("one",)),)
    with pytest.raises(PlanError, match=r"slot . of rotornet: .* needs a port of r1 =p1= r4"):
        stage.follow(rotation())
    assert (stage.slots.given, stage.policy.given, stage.changes()) == (None, None, [])


def test_a_given_schedule_goes_on_once_what_it_needs_is_free_again(stage):
    stage.follow(rotation())
    stage.pass_time(1.5)
    stands = stage.ledger.network.state
    taken = path_of(FABRIC, 0, 3)
    stage.pins = (Pin(taken.src, taken.dst, taken, 10.0, ("one",)),)
    other = state_of(FABRIC, stands, taken)
    entry = stage.ledger.log.enter("reservation")
    stage.mover.move(entry, other)
    stage.pass_time(3.0)
    assert (0, 3) in paths_by_pair(stage.ledger.network.state), "the reservation's circuit stays"
    assert stage.ledger.log.decisions()[0].action is Action.NO_PLAN
    stage.pins = ()
    seen = stage.pass_time(8.0)
    assert {pair for pairs in seen for pair in pairs} >= {(0, 1), (0, 2), (0, 3)}
