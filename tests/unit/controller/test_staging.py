"""A large change is made in stages, with other jobs in between: on a simulated network."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from apps.controller.between_jobs import BetweenJobs
from apps.controller.service import Desk
from hydra.errors import HydraError, LifecycleError, PlanError
from hydra.failures import Failure, FailureKind
from hydra.journal import JournalError
from hydra.lifecycle import ReconfigurationState
from hydra.model import RackId, Topology
from hydra.policy import Beyond, Transition
from hydra.reconfiguration.commands import ApplyRules
from hydra.reconfiguration.plan import hold, pair_of
from hydra.reconfiguration.scheduler import carried_out
from hydra.reconfiguration.touched import Touched
from hydra.staged_changes import Asker
from tests.unit.controller.runners import awaited
from tests.unit.controller.test_policy_in_force import EMPTY, FABRIC, RACKS, Stage
from tests.unit.core.fabrics import circuit_between, path_of, state_of

ROOM_MBPS = 2 * FABRIC.electrical_rate_mbps
"""Electrical rate of a rack: the sum of its two servers."""


def joined(before, *ends):
    """The state after ``before`` with a circuit for each (rack, rack, plane)."""
    return state_of(
        FABRIC,
        before,
        *(path_of(FABRIC, a, b, circuit_between(FABRIC, a, b, p)) for a, b, p in ends),
    )


BEFORE = joined(EMPTY, (0, 1, 0), (2, 3, 0), (0, 2, 1), (1, 3, 1))
AFTER = joined(BEFORE, (0, 1, 1), (2, 3, 1), (0, 2, 0), (1, 3, 0))
"""Each pair gets its circuit on the other plane."""


class Staged:
    """The controller with its network in a state, and r3's traffic to r1 and r4."""

    def __init__(self, to_r1=0.3, to_r4=0.55, before=BEFORE, fabric=FABRIC):
        self.stage = Stage(fabric)
        self.stage.move(before)
        self.rooms = self.stage.controller.rooms
        self.policy(transition=Transition.DIVERT_FIRST)  # pairs that stay in the light need no room
        self.rooms.devices.plane_problem = self.rooms.devices.tor_problem = lambda _device: None
        self.staging = self.rooms.loop._staging
        self.queue = []
        self.staging._put = self.staging.progress._put = self.queue.append
        self.sent_mbps = np.zeros((len(fabric.racks),) * 2)
        self.sent_mbps[2, 0], self.sent_mbps[2, 3] = to_r1 * ROOM_MBPS, to_r4 * ROOM_MBPS
        self.wanted_mbps = None
        self.recurs = False
        self.pays = True
        self.target = AFTER
        self.told = []
        self.plans = 0

    @property
    def ledger(self):
        return self.rooms.ledger

    @property
    def pairs(self):
        return {pair_of(path) for path in self.ledger.network.state.topology.paths}

    def policy(self, **changes):
        self.rooms.policy.now = replace(self.rooms.policy.now, **changes)

    def plan_to(self, target=AFTER):
        planning = self.staging._planning
        state = self.ledger.network.state
        return planning.diff(state, planning.toward(state, target.topology))

    def _plan_again(self):
        self.plans += 1
        return self.plan_to(self.target) if self.pays else None

    def asker(self):
        return Asker(
            lambda: None if self.sent_mbps is None else self.sent_mbps.copy(),
            self._plan_again,
            lambda: None if self.wanted_mbps is None else self.wanted_mbps.copy(),
            self.recurs,
            lambda execution, first: self.told.append((execution.state.value, first)),
        )

    def begin(self, target=AFTER):
        entry = self.ledger.log.enter("test")
        self.staging.carry_out(entry, self.plan_to(target), self.asker())
        return entry.id

    def started_anew(self, prepare=lambda _new: None):
        """The network as it is, under a controller that knows what the journal says."""
        (unfinished,) = self.ledger.log.unfinished()
        new = Staged(before=self.ledger.network.state)
        new.sent_mbps = self.sent_mbps
        prepare(new)
        entry = new.staging.resume(unfinished, new.asker(), new.sent_mbps)
        return new, entry.id

    def next(self):
        self.stage.do(self.queue.pop(0)())

    def entry(self, number):
        return self.ledger.log.reconfiguration(number)


def test_what_fits_is_one_change_as_before():
    staged = Staged(to_r4=0.4)
    before = len(staged.ledger.log.reconfigurations())
    entry = staged.begin()
    assert staged.entry(entry).state is ReconfigurationState.DONE
    assert staged.ledger.network.state.topology == AFTER.topology
    assert staged.queue == []
    assert len(staged.ledger.log.reconfigurations()) == before + 1
    assert staged.told == [("done", True)]


def test_without_a_measurement_it_is_one_change():
    staged = Staged()
    staged.sent_mbps = None
    assert staged.entry(staged.begin()).state is ReconfigurationState.DONE
    assert staged.queue == []


def test_a_stage_is_a_reconfiguration_of_its_own_and_the_whole_ends_with_the_last():
    staged = Staged()
    entry = staged.begin()
    assert staged.pairs == {(0, 1), (2, 3)}, "the others wait, electrically"
    assert staged.entry(entry).state is ReconfigurationState.QUEUED
    assert staged.staging.under_way
    newest = staged.ledger.log.reconfigurations()[0]
    assert newest.state is ReconfigurationState.DONE
    assert newest.reason == f"stage 1 of about 2 of {entry}"
    staged.next()
    assert staged.ledger.network.state.topology == AFTER.topology
    whole = staged.entry(entry)
    assert whole.state is ReconfigurationState.DONE
    assert whole.connected == AFTER.topology.circuits
    assert whole.disconnected == BEFORE.topology.circuits
    assert not staged.staging.under_way
    assert staged.queue == []
    assert staged.told == [("done", True), ("done", False)]


def test_periodic_rounds_wait_for_the_last_stage(monkeypatch):
    staged = Staged()
    staged.begin()
    rounds = []
    monkeypatch.setattr(staged.rooms.monitor, "demand", lambda: rounds.append(1))
    staged.rooms.choosing.periodic()
    assert rounds == []


def test_a_port_that_failed_between_stages_has_the_rest_planned_anew():
    staged = Staged()
    entry = staged.begin()
    staged.rooms.quarantine.put([FABRIC.ports_of(FABRIC.racks[2].id)[0].id], "no light")
    staged.next()
    assert staged.plans == 1
    assert staged.entry(entry).is_over


def test_who_waits_counts_with_what_it_sent_before():
    staged = Staged()
    staged.begin()
    staged.sent_mbps[2, 0] = 0.0  # hardly any traffic gets through now
    staged.policy(beyond_room=Beyond.REFUSE)
    seen = staged.staging.headroom.traffic
    asked = []
    staged.staging.headroom.traffic = lambda sent: asked.append(sent[2, 0]) or seen(sent)
    staged.next()
    assert asked == [pytest.approx(0.3 * ROOM_MBPS)]


@pytest.mark.parametrize("beyond", [Beyond.REFUSE, Beyond.AT_HOURS])
def test_what_stays_in_the_light_is_one_change_however_little_room_there_is(beyond):
    before = joined(EMPTY, (0, 1, 0), (2, 3, 0))
    after = joined(before, (0, 1, 1), (2, 3, 1))
    staged = Staged(before=before)
    staged.policy(transition=Transition.HITLESS, beyond_room=beyond, beyond_hours="00:00-00:01")
    staged.sent_mbps[0, 1] = staged.sent_mbps[2, 3] = 4 * ROOM_MBPS
    staged.rooms.ways._sent_mbps = lambda: staged.sent_mbps
    (stage,) = staged.staging.foresee(staged.plan_to(after), staged.sent_mbps)
    assert (stage.diverted_mbps, stage.beyond) == (0.0, {})
    staged.stage.batches.clear()
    assert staged.entry(staged.begin(after)).state is ReconfigurationState.DONE
    assert staged.ledger.network.state.topology == after.topology
    assert staged.queue == []
    assert "divert" not in {batch.step for batch in staged.stage.batches}


def test_too_much_for_a_rack_is_announced_or_refused(caplog):
    staged = Staged(to_r1=0.9, to_r4=0.9)
    staged.policy(beyond_room=Beyond.REFUSE)
    state = staged.ledger.network.state
    with pytest.raises(PlanError, match=r"no room .* r3 by .*policy.beyond_room"):
        staged.begin()
    assert staged.ledger.network.state == state
    staged.policy(beyond_room=Beyond.ANNOUNCE)
    entry = staged.begin()
    while staged.queue:
        staged.next()
    assert staged.entry(entry).state is ReconfigurationState.DONE
    assert (
        "diverts more than the electrical network has room for: r1 by 2 Mb/s, r3 by 20 Mb/s"
        in caplog.text
    )


def test_a_change_goes_on_after_a_restart():
    staged = Staged()
    first = staged.begin()
    new, entry = staged.started_anew()
    assert entry == first
    assert new.staging.under_way
    assert new.entry(entry).reason == "goes on after a restart, with stage 2"
    while new.queue:
        new.next()
    assert new.ledger.network.state.topology == AFTER.topology
    assert new.entry(entry).state is ReconfigurationState.DONE
    assert new.entry(entry).stages_done == 2
    assert new.ledger.log.unfinished() == []


def test_so_does_one_that_was_paused_once_somebody_says_so():
    staged = Staged()
    staged.rooms.loop.pause(staged.begin(), True)
    new, entry = staged.started_anew()
    new.next()
    assert (new.entry(entry).paused, new.queue) == (True, [])
    new.rooms.loop.pause(entry, False)
    while new.queue:
        new.next()
    assert new.ledger.network.state.topology == AFTER.topology


@pytest.mark.parametrize("ended", ["done", "stopped"])
def test_what_is_over_is_not_gone_on_with(ended):
    staged = Staged()
    entry = staged.begin()
    if ended == "stopped":
        staged.rooms.loop.stop(entry, "an operator")
    while staged.queue:
        staged.next()
    assert staged.ledger.log.unfinished() == []


@pytest.mark.parametrize(
    ("recurs", "then"), [(True, "the next decision plans anew"), (False, "ask for")]
)
def test_what_a_failure_contradicts_does_not_go_on(recurs, then):
    staged = Staged()
    staged.begin()

    def fail(new):
        new.recurs = recurs
        new.rooms.quarantine.put([FABRIC.ports_of(FABRIC.racks[2].id)[0].id], "no light")

    new, entry = staged.started_anew(fail)
    assert new.queue == []
    ended = new.entry(entry)
    assert ended.state is ReconfigurationState.PARTIAL
    assert "does not go on after a restart: ports of the change are set aside" in ended.reason
    assert then in ended.reason
    assert any(then in one for one in said_of(new, entry))
    assert new.ledger.network.state == staged.ledger.network.state
    assert new.ledger.log.unfinished() == []


def test_without_a_measurement_it_does_not_go_on():
    staged = Staged()
    staged.begin()
    new, entry = staged.started_anew(lambda new: setattr(new, "sent_mbps", None))
    assert "no traffic is measured" in new.entry(entry).reason
    assert new.queue == []


def test_an_end_that_can_not_be_written_is_written_later(monkeypatch):
    def full(_changes):
        raise JournalError("full")

    staged = Staged()
    entry = staged.begin()
    journal = staged.ledger._journal
    with monkeypatch.context() as patch:
        patch.setattr(journal, "write", full)
        staged.ledger.log.note_finished(entry)
    assert staged.ledger.writer.behind
    assert staged.ledger.log.unfinished() != []
    staged.ledger.writer._next_try_s = 0.0
    staged.ledger.writer.catch_up()
    assert (staged.ledger.writer.behind, staged.ledger.log.unfinished()) == (False, [])


WANTED = np.full((RACKS, RACKS), 10.0)


def moved_demand(goal=AFTER, pays=True, to_mbps=20.0):
    """A change after its first stage, with a changed demand."""
    staged = Staged()
    staged.wanted_mbps = WANTED.copy()
    entry = staged.begin()
    staged.target, staged.pays = goal, pays
    staged.wanted_mbps = np.full((RACKS, RACKS), to_mbps)
    return staged, entry


def said_of(staged, entry):
    return [one.text for one in staged.ledger.log.history(0, np.inf, (), 99) if entry in one.text]


def test_steady_demand_has_nothing_planned_anew():
    staged, _ = moved_demand(to_mbps=12.4)  # by less than a quarter
    while staged.queue:
        staged.next()
    assert staged.plans == 0
    assert staged.ledger.network.state.topology == AFTER.topology


def test_pairs_that_wait_want_what_they_did():
    staged, _ = moved_demand(to_mbps=10.0)
    for a, b in ((0, 2), (2, 0), (1, 3), (3, 1)):  # they wait, electrically
        staged.wanted_mbps[a, b] = 0.0
    staged.next()
    assert staged.plans == 0


def test_demand_that_has_moved_leaves_the_goal_if_that_is_still_the_best():
    staged, entry = moved_demand()
    while staged.queue:
        staged.next()
    assert staged.plans == 1, "the demand of then is the one to compare with"
    assert staged.entry(entry).state is ReconfigurationState.DONE
    (said,) = [one for one in said_of(staged, entry) if "goes on" in one]
    assert said.endswith("demand has moved by 100% since the plan: goes on as planned")


def test_demand_that_has_moved_amends_the_goal():
    other = joined(BEFORE, (0, 1, 1), (2, 3, 1), (0, 3, 0))
    staged, entry = moved_demand(goal=other)
    while staged.queue:
        staged.next()
    assert staged.ledger.network.state.topology == other.topology
    assert staged.entry(entry).state is ReconfigurationState.DONE
    assert any(one.endswith("is amended") for one in said_of(staged, entry))


def test_demand_that_has_moved_stops_what_does_not_pay_any_more():
    staged, entry = moved_demand(pays=False)
    state = staged.ledger.network.state
    staged.next()
    assert staged.queue == []
    assert staged.ledger.network.state == state
    ended = staged.entry(entry)
    assert ended.state is ReconfigurationState.PARTIAL
    assert ended.reason == (
        "after stage 1: demand has moved by 100% since the plan: "
        "the remaining stages do not pay any more"
    )
    assert not staged.staging.under_way


class Clock:
    """The time of day, by hours and minutes."""

    def __init__(self, staged, hour):
        self.hour = hour
        staged.staging.headroom._minute_of_day = lambda: 60 * self.hour
        staged.policy(beyond_room=Beyond.AT_HOURS, beyond_hours="22:00-04:00")


def test_too_much_for_a_rack_waits_for_its_hours():
    staged = Staged(to_r1=0.9, to_r4=0.9)
    clock = Clock(staged, 12)
    entry = staged.begin()
    waiting = staged.entry(entry)
    assert waiting.state is ReconfigurationState.QUEUED
    assert waiting.reason.startswith("waits for 22:00-04:00: no room now at r1 by 2 Mb/s, r3 by")
    assert said_of(staged, entry)
    assert not staged.staging.under_way, "others go on meanwhile"
    staged.staging.keep_time()
    assert staged.ledger.network.state.topology == BEFORE.topology
    clock.hour = 23
    staged.staging.keep_time()
    while staged.queue:
        staged.next()
    assert staged.entry(entry).state is ReconfigurationState.DONE
    assert staged.ledger.network.state.topology == AFTER.topology
    assert staged.plans == 1, "the network may be another by then"


def test_what_waits_for_its_hours_need_not_once_the_policy_is_another():
    staged = Staged(to_r1=0.9, to_r4=0.9)
    Clock(staged, 12)
    entry = staged.begin()
    staged.policy(beyond_room=Beyond.ANNOUNCE)
    staged.staging.keep_time()
    while staged.queue:
        staged.next()
    assert staged.entry(entry).state is ReconfigurationState.DONE


def test_what_waits_for_its_hours_can_be_stopped():
    staged = Staged(to_r1=0.9, to_r4=0.9)
    Clock(staged, 12)
    entry = staged.begin()
    staged.rooms.loop.stop(entry, "an operator")
    staged.next()
    stopped = staged.entry(entry)
    assert stopped.state is ReconfigurationState.REFUSED
    assert stopped.reason == "stopped by an operator"


def test_a_periodic_change_is_asked_for_again_instead_of_waiting_for_hours():
    staged = Staged(to_r1=0.9, to_r4=0.9)
    clock = Clock(staged, 12)
    staged.recurs = True
    with pytest.raises(PlanError, match=r"no room .* r3 by .*beyond_hours are 22:00-04:00"):
        staged.begin()
    clock.hour = 22
    entry = staged.begin()
    while staged.queue:
        staged.next()
    assert staged.entry(entry).state is ReconfigurationState.DONE


@pytest.mark.parametrize("stuck", [{(0, 1)}, {(0, 2)}, {(0, 1), (2, 3)}, {(0, 1), (0, 2), (1, 3)}])
def test_pairs_that_can_not_be_moved_are_tried_again_with_the_last_stage_alone(monkeypatch, stuck):
    staged = Staged()
    move, moves = staged.staging._mover.move, []

    @awaited
    def held(entry, target, _plan=None, **_named):
        moves.append(entry.id)
        return move(entry, hold(staged.ledger.network.state, target, stuck, ()))

    monkeypatch.setattr(staged.staging._mover, "move", held)
    entry = staged.begin()
    while staged.queue:
        assert len(moves) < 4
        staged.next()
    assert moves[-1] == entry
    assert staged.entry(entry).is_over


def test_what_is_left_for_two_racks_is_told_between_stages():
    staged = Staged()
    entry = staged.begin()
    made = f"reconfiguration {entry}, asked for by test, has made 1 of about 2 stages"
    assert staged.staging.changes_of(0, 1) == [
        f"{made}; further stages leave the paths of the two racks alone"
    ]
    assert staged.staging.changes_of(2, 0) == [
        f"{made}; further stages change the paths of the two racks"
    ]
    assert staged.staging.changes_of(2, 0) == [
        f"{made}; further stages change the paths of the two racks"
    ]
    assert (
        f"{made}; further stages change the paths of the two racks"
        in Desk(staged.rooms).explain(0, 2).lines
    )
    staged.next()
    assert staged.staging.changes_of(2, 0) == []


def test_it_can_be_stopped_between_stages():
    staged = Staged()
    entry = staged.begin()
    assert staged.entry(entry).stages_expected == 2
    staged.rooms.loop.stop(entry, "an operator")
    state = staged.ledger.network.state
    staged.next()
    stopped = staged.entry(entry)
    assert staged.ledger.network.state == state
    assert (stopped.state, stopped.stages_done) == (ReconfigurationState.PARTIAL, 1)
    assert stopped.reason == "after stage 1: stopped by an operator"
    assert stopped.connected == state.topology.circuits - BEFORE.topology.circuits
    assert not staged.staging.under_way
    with pytest.raises(LifecycleError, match=r"no stage ahead .*partial.*before its last"):
        staged.rooms.loop.stop(entry, "an operator")


def test_it_can_be_paused_between_stages_and_goes_on():
    staged = Staged()
    entry = staged.begin()
    staged.rooms.loop.pause(entry, True)
    while staged.queue:
        staged.next()
    assert staged.entry(entry).paused
    assert staged.entry(entry).stages_done == 1
    assert staged.staging.under_way
    staged.rooms.loop.pause(entry, False)
    while staged.queue:
        staged.next()
    whole = staged.entry(entry)
    assert (whole.state, whole.paused) == (ReconfigurationState.DONE, False)
    assert staged.ledger.network.state.topology == AFTER.topology


def test_a_pause_that_ends_before_the_next_turn_begins_no_stage_twice():
    staged = Staged()
    entry = staged.begin()
    staged.rooms.loop.pause(entry, True)
    staged.rooms.loop.pause(entry, False)
    while staged.queue:
        staged.next()
    assert staged.entry(entry).state is ReconfigurationState.DONE
    assert staged.entry(entry).stages_done == staged.entry(entry).stages_expected


def test_a_paused_change_can_be_stopped():
    staged = Staged()
    entry = staged.begin()
    staged.rooms.loop.pause(entry, True)
    while staged.queue:
        staged.next()
    staged.rooms.loop.stop(entry, "an operator")
    while staged.queue:
        staged.next()
    stopped = staged.entry(entry)
    assert (stopped.state, stopped.paused) == (ReconfigurationState.PARTIAL, False)
    assert not staged.staging.under_way


@pytest.mark.parametrize("error", [HydraError("broken"), JournalError("full"), KeyError("defect")])
def test_a_stage_that_breaks_off_ends_the_whole(monkeypatch, error):
    @awaited
    def fails(*_arguments, **_named):
        raise error

    staged = Staged()
    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(staged.staging._mover, "move", fails)
        staged.begin()
    (entry,) = [one for one in staged.ledger.log.reconfigurations() if one.reason == str(error)]
    assert entry.state is ReconfigurationState.REFUSED
    assert not staged.staging.under_way


@pytest.mark.parametrize("error", [HydraError("broken"), JournalError("full"), KeyError("defect")])
def test_so_does_a_later_one_with_what_is_done(monkeypatch, error):
    @awaited
    def fails(*_arguments, **_named):
        raise error

    staged = Staged()
    entry = staged.begin()
    monkeypatch.setattr(staged.staging._mover, "move", fails)
    with suppress(JournalError, KeyError):
        staged.next()
    assert staged.entry(entry).state is ReconfigurationState.PARTIAL
    assert staged.entry(entry).reason == f"after stage 1: {error}"
    assert not staged.staging.under_way


def leaves_something(monkeypatch, staged):
    """Have the next change leave a part to another change, which takes nothing of the goal here."""
    mover = staged.staging._mover
    move, first = mover.move, [True]

    @awaited
    def left(*arguments, **named):
        moved = move(*arguments, **named)
        if first:
            first.pop()
            moved.courses[-1].ceded = Touched()
        return moved

    monkeypatch.setattr(mover, "move", left)


def test_what_one_change_leaves_to_others_another_sees_to(monkeypatch):
    staged = Staged(to_r4=0.4)
    leaves_something(monkeypatch, staged)
    first = staged.begin()
    assert staged.entry(first).state is ReconfigurationState.DONE
    newest = staged.ledger.log.reconfigurations()[0]
    assert newest.reason == f"the rest of {first}, since the stage gave way to other changes"
    assert [one.id for one in staged.ledger.log.unfinished()] == [newest.id], "also after a restart"
    while staged.queue:
        staged.next()
    assert staged.entry(newest.id).state is ReconfigurationState.DONE
    assert staged.ledger.network.state.topology == AFTER.topology
    assert not staged.staging.under_way


def test_a_change_that_recurs_is_planned_anew_by_the_next_decision(monkeypatch):
    staged = Staged(to_r4=0.4)
    staged.recurs = True
    leaves_something(monkeypatch, staged)
    staged.begin()
    assert staged.queue == []
    assert not staged.staging.under_way


LATE = FABRIC.servers[0]
"""Of r1."""


def has_a_late_switch(staged):
    """Make a switch late for changes that hurry, as reported by the fleet."""
    perform = staged.stage.network.perform

    def late(batch, watch):
        outcomes = perform(batch, watch)
        for place, command in enumerate(batch.commands):
            if isinstance(command, ApplyRules) and command.hurries:
                failure = Failure("openflow", LATE.name, FailureKind.LATE, "no answer yet")
                value = outcomes[place].value | {LATE.vswitch.datapath_id: failure}
                outcomes[place] = replace(outcomes[place], value=value)
        return outcomes

    staged.stage.network.perform = late


def test_what_waited_for_no_late_switch_another_does_once_that_is_there():
    staged = Staged(to_r4=0.4)
    has_a_late_switch(staged)
    first = staged.begin()
    assert staged.entry(first).state is ReconfigurationState.PARTIAL
    goal, before = AFTER.topology.circuits, BEFORE.topology.circuits
    circuits = staged.ledger.network.state.topology.circuits
    assert {one for one in before - goal if RackId(0) in FABRIC.racks_of(one)} <= circuits
    rest = staged.ledger.log.reconfigurations()[0]
    assert rest.reason == f"the rest of {first}, since switches were late"
    staged.next()
    staged.staging.keep_time()
    assert staged.ledger.network.state.topology.circuits == circuits, "it is not there yet"
    staged.rooms.upkeep.synchronise()
    staged.staging.keep_time()
    assert staged.entry(rest.id).state is ReconfigurationState.DONE
    assert staged.ledger.network.state.topology == AFTER.topology
    assert not staged.staging.under_way


def test_a_late_switch_that_never_comes_is_waited_for_no_longer_than_any():
    staged = Staged(to_r4=0.4)
    has_a_late_switch(staged)
    staged.begin()
    rest = staged.ledger.log.reconfigurations()[0]
    staged.next()
    staged.staging.keep_time()
    assert staged.staging.under_way
    (change,) = staged.staging.agenda
    change.late_until_s = 0.0
    staged.staging.keep_time()
    assert staged.entry(rest.id).state is ReconfigurationState.PARTIAL
    assert not staged.staging.under_way
    assert staged.queue == [], "and that is not tried for ever"


def test_what_waited_for_a_late_switch_and_waits_for_hours_is_not_looked_at_before_these():
    staged = Staged(to_r4=0.4)
    has_a_late_switch(staged)
    staged.begin()
    rest = staged.ledger.log.reconfigurations()[0]
    staged.rooms.upkeep.synchronise()
    staged.sent_mbps[0, 1] = staged.sent_mbps[1, 0] = 5 * ROOM_MBPS
    clock = Clock(staged, 12)
    while staged.queue:
        staged.next()
    assert staged.entry(rest.id).reason.startswith("waits for 22:00-04:00")
    staged.staging.keep_time()
    assert staged.plans == 0
    clock.hour = 23
    staged.staging.keep_time()
    while staged.queue:
        staged.next()
    assert staged.plans == 1
    assert staged.ledger.network.state.topology == AFTER.topology


def test_one_that_has_answered_is_waited_for_until_it_is_brought(monkeypatch):
    """Although other changes come first, which takes longer."""
    staged = Staged(to_r4=0.4)
    has_a_late_switch(staged)
    staged.begin()
    rest = staged.ledger.log.reconfigurations()[0]
    staged.next()
    (change,) = staged.staging.agenda
    change.late_until_s = 0.0
    course = []

    @awaited
    def begin(one, _alone_s):
        course.append(one._running.steps)

    monkeypatch.setattr(BetweenJobs, "begin", begin)
    staged.rooms.courses.switches.answers_again(LATE.vswitch.datapath_id)
    staged.rooms.events.switch_answers(LATE.vswitch.datapath_id)
    staged.rooms.upkeep.synchronise()
    staged.staging.keep_time()
    assert staged.staging.under_way, "it is about to be ready"
    staged.stage.do(carried_out(course[0]))
    staged.staging.keep_time()
    assert staged.entry(rest.id).state is ReconfigurationState.DONE
    assert staged.ledger.network.state.topology == AFTER.topology


def test_who_owes_an_answer_at_the_begin_is_made_up_for_as_well():
    """As a switch that was late for the change before, and is still missing."""
    staged = Staged(to_r4=0.4)
    rooms = staged.rooms
    rooms.courses.switches.doubt([LATE.vswitch.datapath_id])
    first = staged.begin()
    assert staged.entry(first).state is ReconfigurationState.PARTIAL
    rest = staged.ledger.log.reconfigurations()[0]
    assert rest.reason == f"the rest of {first}, since switches were late"
    rooms.upkeep.synchronise()
    staged.next()
    assert staged.entry(rest.id).state is ReconfigurationState.DONE
    assert staged.ledger.network.state.topology == AFTER.topology


def with_paths(state, gone=(), come=()):
    """The state without and with paths, and their circuits; other circuits stand, used or
    unused.
    """
    topology = state.topology
    circuits = frozenset(topology.circuits).difference(*(path.circuits for path in gone))
    circuits = circuits.union(*(path.circuits for path in come))
    paths = tuple(sorted([*(one for one in topology.paths if one not in gone), *come]))
    return replace(state, topology=Topology(circuits, paths))


@pytest.mark.parametrize("restarted", [False, True])
def test_what_another_change_has_made_between_two_stages_stays(restarted):
    staged = Staged()
    number = staged.begin()
    assert staged.pairs == {(0, 1), (2, 3)}, "the others wait"
    state = staged.ledger.network.state
    (gone,) = [path for path in state.topology.paths if pair_of(path) == (0, 1)]
    staged.begin(with_paths(state, gone=[gone]))
    if restarted:
        staged, number = staged.started_anew()
    while staged.queue:
        staged.next()
    assert staged.pairs == {(2, 3), (0, 2), (1, 3)}, "each has reached its goal"
    assert staged.entry(number).state is ReconfigurationState.DONE


def test_what_a_later_change_asks_for_is_its_own():
    staged = Staged()
    staged.begin()
    state = staged.ledger.network.state
    (gone,) = [path for path in state.topology.paths if pair_of(path) == (0, 1)]
    wanted = path_of(FABRIC, 0, 1, circuit_between(FABRIC, 0, 1, 0))
    staged.begin(with_paths(state, gone=[gone], come=[wanted]))
    while staged.queue:
        staged.next()
    assert wanted in staged.ledger.network.state.topology.paths, "its ports were to be others'"
    assert not staged.staging.under_way
