"""Reconfigurations requested while another change makes up for skipped slow switches."""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from hydra.errors import PlanError
from hydra.failures import Failure, FailureKind
from hydra.journal import JournalError
from hydra.lifecycle import ReconfigurationState
from hydra.model import NetworkState, Topology
from hydra.reconfiguration.commands import ApplyRules
from hydra.reconfiguration.plan import hold, moving_pairs, pair_of
from hydra.service import PlanRequest
from tests.unit.controller.test_staging import Staged, with_paths
from tests.unit.controller.test_staging_side_by_side import FABRIC, path
from tests.unit.core.fabrics import random_topology, state_of

HERE, THERE, ELSEWHERE = path(0, 1, 0), path(2, 3, 0), path(4, 5, 0)
SLOW = FABRIC.servers[0].vswitch.datapath_id
"""Of r1."""
DONE = ["queued", "diverting", "draining", "moving", "gating", "activating", "done"]
IN_ITS_TURN = ["queued", *(one for one in DONE if one != "draining")]
"""Planned once more in its turn; the rest takes no path away."""


@dataclass
class Decided:
    trigger: str
    reconfiguration: str | None = None


class Asked(Staged):
    """A change from plane to plane that skipped a slow switch, and the change that makes up for it.

    Functions in :attr:`before` are called before that step of the second change.
    """

    def __init__(self, *more):
        """State with ``more`` paths."""
        self.standing = {HERE, THERE, ELSEWHERE, *more}
        before = state_of(FABRIC, NetworkState(), *self.standing)
        super().__init__(before=before, fabric=FABRIC)
        self.sent_mbps = None
        loop = self.loop = self.rooms.loop
        loop._enqueue = self.queue.append
        loop.plan = self._plan
        self.rooms.monitor.sent_mbps = lambda: (
            None if self.sent_mbps is None else self.sent_mbps.copy()
        )
        loop._decide = lambda _report, _request, trigger: Decided(trigger)
        self.decided = []
        self.ledger.log.decide = self.decided.append
        self.goals, self.planned = {}, []
        self.before, self.amid = {}, {}
        self.states = {}
        self.late = {SLOW}
        """Switches that are late for changes that hurry."""
        self._tell = self.ledger.log._report_progress
        self.ledger.log._report_progress = self._receive
        perform = self.stage.network.perform

        def performing(batch, watch):
            innermost = self.ledger.network.under_way[-1:]
            if innermost and innermost[0].slow and (job := self.amid.pop(batch.step, None)):
                self.stage.do(job())
            outcomes = perform(batch, watch)
            for place, command in enumerate(batch.commands):
                if isinstance(command, ApplyRules) and command.hurries:
                    late = Failure("openflow", "h11", FailureKind.LATE, "no answer yet")
                    some = self.late.intersection(command.changes)
                    value = outcomes[place].value | dict.fromkeys(some, late)
                    outcomes[place] = replace(outcomes[place], value=value)
            return outcomes

        self.stage.network.perform = performing

        def before(batch):
            innermost = self.ledger.network.under_way[-1:]
            if innermost and innermost[0].slow and (job := self.before.pop(batch.step, None)):
                self.stage.do(job())

        self.stage.doer.look = before

    def _receive(self, entry):
        self.states.setdefault(entry.id, []).append(entry.state.value)
        self._tell(entry)

    def _plan(self, request, *, urgent=False, shares=True):
        gone, come, pays = self.goals[id(request)]
        if urgent:
            self.planned.append(id(request))
        if gone is None:
            raise PlanError("no such plan")
        state = self.ledger.network.state
        come = [one for one in come if one not in state.topology.paths]
        ends = {end for one in come for end in one.circuits[0].ends}
        gone = [
            one
            for one in state.topology.paths
            if one in gone or not ends.isdisjoint(one.circuits[0].ends)
        ]
        verdict = SimpleNamespace(pays=pays, reason="too little")
        return SimpleNamespace(plan=self.plan_to(with_paths(state, gone, come)), verdict=verdict)

    def ask(self, gone, come, *, pays=True, by_worth=False):
        """Request these paths in place of those; returns the reconfiguration's id."""
        request = PlanRequest(np.ones((7, 7)), only_if_it_pays=by_worth)
        self.kept = [*getattr(self, "kept", ()), request]
        self.goals[id(request)] = gone or (), come, pays
        number = self.loop.reconfigure(request, "test").id
        if gone is None:
            self.goals[id(request)] = None, come, pays
        return number

    def left_out(self):
        """Make the first change, except for the slow switch; returns the id of the second
        change.
        """
        gone, come = (HERE, THERE), (path(0, 1, 1), path(2, 3, 1))
        self.begin(with_paths(self.ledger.network.state, gone, come))
        rest = self.ledger.log.reconfigurations()[0]
        assert rest.reason.endswith("since switches were late")
        assert set(self.paths) == self.standing - {THERE} | {path(2, 3, 1)}
        return rest.id

    def make_up(self):
        self.rooms.upkeep.synchronise()
        self.next()

    @property
    def paths(self):
        return self.ledger.network.state.topology.paths

    def finish(self):
        self.late = set()
        while self.queue:
            self.rooms.upkeep.synchronise()
            self.next()
        assert not self.staging.under_way


def asked_before(step, *wanted, **named):
    """A change during which another one was requested, before a step of the second change; the
    changes under way at its end.
    """
    asked = Asked()
    rest = asked.left_out()
    numbers = []
    asked.before[step] = lambda: numbers.extend(asked.ask(*one, **named) for one in wanted)
    asked.before["activate"] = lambda: numbers.extend(
        asked.entry(one).state for one in tuple(numbers)
    )
    asked.make_up()
    assert asked.entry(rest).state is ReconfigurationState.DONE
    return asked, numbers


OTHERS = ((ELSEWHERE,), (path(4, 5, 1),))
"""Of racks without a slow switch."""


@pytest.mark.parametrize("step", ["drain", "untag", "move", "probe"])
def test_it_is_made_beside_what_does_not_concern_it(step):
    asked, (number, state) = asked_before(step, OTHERS)
    assert state is ReconfigurationState.DONE, "while the other was under way"
    assert set(asked.paths) == {path(0, 1, 1), path(2, 3, 1), path(4, 5, 1)}
    made = len(asked.ledger.log.reconfigurations())
    asked.finish()  # its turn
    assert len(asked.ledger.log.reconfigurations()) == made
    assert asked.states[number] == DONE
    assert len(asked.planned) == 1
    for datapath in asked.stage.network.names:
        assert not list(asked.stage.network.differing_rules(datapath, asked.ledger.network.state))


def waiting(asked, let_in):
    """The change that began while the other waits for switches to activate, and its progress."""
    seen = []

    def amid():
        number = asked.ask(*OTHERS)
        let_in(asked.stage)
        seen.append(asked.entry(number).state)

    asked.amid["activate"] = amid
    return seen


def test_so_it_is_while_the_other_waits_for_the_slow_switch():
    asked = Asked()
    asked.left_out()
    seen = waiting(asked, lambda stage: stage.doer.let_in())
    asked.make_up()
    assert seen == [ReconfigurationState.DONE]
    asked.finish()
    assert set(asked.paths) == {path(0, 1, 1), path(2, 3, 1), path(4, 5, 1)}


def test_what_breaks_it_off_then_breaks_off_the_other_as_that_ends(monkeypatch):
    asked = Asked()
    rest = asked.left_out()

    def full(batch):
        if batch.step == "divert":
            raise JournalError("full")

    def breaks_off(stage):
        with monkeypatch.context() as patch, suppress(JournalError):
            patch.setattr(stage.doer, "look", full)
            stage.doer.let_in()

    seen = waiting(asked, breaks_off)
    with pytest.raises(JournalError):
        asked.make_up()
    assert seen == [ReconfigurationState.FAILED]
    assert asked.entry(rest).state is ReconfigurationState.FAILED
    assert not asked.ledger.network.under_way


PARTLY = ((ELSEWHERE, path(2, 3, 1)), (path(4, 5, 1), path(0, 2, 2), path(2, 3, 3)))


def test_what_concerns_slow_racks_is_made_in_its_turn():
    asked, (number, state) = asked_before("move", PARTLY)
    assert state is ReconfigurationState.QUEUED
    assert set(asked.paths) == {path(0, 1, 1), path(2, 3, 3), path(4, 5, 1)}
    stage = asked.ledger.log.reconfigurations()[0]
    assert stage.reason == f"stage 1 of {number}"
    assert [one.id for one in asked.ledger.log.unfinished()] == [number], "also after a restart"
    asked.finish()
    assert set(asked.paths) == {path(0, 1, 1), path(2, 3, 3), path(4, 5, 1), path(0, 2, 2)}
    assert asked.states[number] == IN_ITS_TURN
    assert asked.entry(number).stages_done == 2
    assert asked.entry(number).connected == {
        circuit for one in PARTLY[1] for circuit in one.circuits
    }


def test_what_the_other_touches_keeps_its_turn():
    asked, (number, state) = asked_before("move", ((HERE,), (path(0, 1, 2),)))
    assert state is ReconfigurationState.QUEUED
    assert set(asked.paths) == {path(0, 1, 1), path(2, 3, 1), ELSEWHERE}
    asked.goals[asked.planned[0]] = (path(0, 1, 1),), (path(0, 1, 2),), True
    asked.finish()
    assert set(asked.paths) == {path(0, 1, 2), path(2, 3, 1), ELSEWHERE}, "and has it then"
    assert asked.states[number] == DONE
    assert len(asked.planned) == 2, "it was looked at once beside the other"


def test_nothing_is_made_before_what_was_asked_for_earlier():
    asked, (first, second, *states) = asked_before("move", ((HERE,), (path(0, 1, 2),)), OTHERS)
    assert states == [ReconfigurationState.QUEUED] * 2
    asked.goals[asked.planned[0]] = (path(0, 1, 1),), (path(0, 1, 2),), True
    asked.finish()
    assert asked.states[first] == asked.states[second] == DONE


def test_a_later_one_comes_in_beside_what_was_made_in_part():
    asked, (first, second, *states) = asked_before("move", PARTLY, ((), (path(5, 6, 3),)))
    assert states == [ReconfigurationState.QUEUED, ReconfigurationState.DONE]
    asked.finish()
    assert path(5, 6, 3) in asked.paths
    assert path(0, 2, 2) in asked.paths
    assert (asked.states[first], asked.states[second]) == (IN_ITS_TURN, IN_ITS_TURN[1:])


def test_of_two_that_want_the_same_the_later_one_has_it():
    """The rest of the earlier change leaves the pair alone, and so has nothing to do."""
    again = ((path(0, 2, 2), path(4, 5, 1)), (path(0, 5, 2), path(4, 6, 1)))
    asked, (first, second, *states) = asked_before("move", PARTLY, again)
    assert states == [ReconfigurationState.QUEUED] * 2
    asked.finish()
    assert set(asked.paths) == {path(0, 1, 1), path(2, 3, 3), path(0, 5, 2), path(4, 6, 1)}
    assert asked.states[first] == ["queued", "queued", "done"]
    assert asked.states[second] == IN_ITS_TURN


def test_what_a_later_one_has_made_stays_with_it():
    """The earlier change would take the pair, as it is planned anew."""
    asked = Asked()
    asked.left_out()
    later = ((path(4, 5, 1),), (path(4, 6, 1),))
    asked.before["move"] = lambda: (asked.ask(*PARTLY), asked.ask(*later))
    asked.make_up()
    assert path(4, 6, 1) in asked.paths
    asked.finish()
    assert set(asked.paths) == {path(0, 1, 1), path(2, 3, 3), path(0, 2, 2), path(4, 6, 1)}


@pytest.mark.parametrize("pays", [True, False])
def test_one_that_has_to_pay_is_decided_on_once(pays):
    asked, (number, state) = asked_before("move", OTHERS, pays=pays, by_worth=True)
    assert state.value == ("done" if pays else "queued")
    asked.finish()
    assert asked.states[number] == (DONE if pays else ["queued", "refused"])
    assert len(asked.decided) == 1


def test_what_the_other_makes_keeps_nothing_from_one_that_wants_it_otherwise():
    both = ((ELSEWHERE, HERE, path(0, 1, 1)), (path(4, 5, 1), path(0, 1, 2)))
    asked, (number, state) = asked_before("move", both)
    assert state is ReconfigurationState.QUEUED
    assert set(asked.paths) == {path(0, 1, 1), path(2, 3, 1), path(4, 5, 1)}
    asked.finish()
    assert set(asked.paths) == {path(0, 1, 2), path(2, 3, 1), path(4, 5, 1)}
    assert asked.entry(number).state is ReconfigurationState.DONE


def test_what_an_earlier_one_has_yet_to_do_is_left_to_it():
    asked, (first, _, *states) = asked_before("move", PARTLY, ((), (path(2, 6, 2),)))
    assert states == [ReconfigurationState.QUEUED] * 2
    asked.finish()
    assert set(asked.paths) == {path(0, 1, 1), path(2, 3, 3), path(4, 5, 1), path(2, 6, 2)}
    assert asked.states[first] == IN_ITS_TURN


def test_what_diverts_more_than_there_is_room_for_keeps_its_turn():
    asked = Asked()
    asked.left_out()
    asked.sent_mbps = np.zeros((7, 7))
    asked.sent_mbps[4, 5] = 2 * float(asked.staging.headroom.electrical_mbps[4])
    asked.before["move"] = lambda: asked.ask(*OTHERS)
    asked.make_up()
    assert ELSEWHERE in asked.paths
    asked.finish()
    assert path(4, 5, 1) in asked.paths


def test_it_leaves_out_late_switches_of_its_own_racks():
    asked = Asked()
    asked.left_out()
    numbers = []

    def ask():
        asked.late = {FABRIC.racks[4].servers[0].vswitch.datapath_id}
        numbers.append(asked.ask(*OTHERS))

    asked.before["move"] = ask
    asked.make_up()
    assert asked.entry(numbers[0]).state is ReconfigurationState.PARTIAL
    rest = asked.ledger.log.reconfigurations()[0]
    assert rest.reason == f"the rest of {numbers[0]}, since switches were late"
    asked.finish()
    assert path(4, 5, 1) in asked.paths


def test_one_that_can_not_be_planned_is_refused_once():
    asked, (number, state) = asked_before("move", (None, ()))
    assert state is ReconfigurationState.QUEUED
    asked.finish()
    assert asked.states[number] == ["queued", "refused"]
    assert asked.entry(number).reason == "no such plan"


def test_there_is_room_for_what_both_divert():
    """Traffic diverted by the other change counts: without it there would be room."""
    asked = Asked()
    asked.left_out()
    room_mbps = float(asked.staging.headroom.electrical_mbps[1])
    asked.sent_mbps = np.zeros((7, 7))
    asked.sent_mbps[0, 1] = 0.6 * room_mbps
    asked.sent_mbps[1, 6] = 0.6 * room_mbps
    seen = []
    beside = asked.rooms.early_stages._parts
    foresees = beside._traffic
    beside._traffic = lambda sent: seen.append(foresees(sent)) or seen[-1]
    asked.before["move"] = lambda: asked.ask(*OTHERS)
    asked.make_up()
    (traffic,) = seen
    assert traffic.electrical_mbps[1] == pytest.approx(0.4 * room_mbps)
    assert traffic.electrical_mbps[5] == pytest.approx(room_mbps)


def test_what_breaks_it_off_breaks_off_the_other(monkeypatch):
    asked = Asked()
    rest = asked.left_out()
    asked.before["move"] = lambda: asked.ask(*OTHERS)
    record = asked.ledger.writer.record

    def recorded(*arguments):
        if len(asked.ledger.network.under_way) == 2:
            raise JournalError("full")
        record(*arguments)

    perform = asked.stage.network.perform

    def recording(batch, watch):
        for command in batch.commands:
            if hasattr(command, "details"):
                recorded(command.what, command.details)
        return perform(batch, watch)

    asked.stage.network.perform = recording
    with pytest.raises(JournalError):
        asked.make_up()
    assert asked.entry(rest).state is ReconfigurationState.FAILED
    assert not asked.ledger.network.under_way


def test_none_comes_in_beside_a_change_that_waits_for_nobody():
    asked = Asked()
    numbers = []
    perform = asked.stage.network.perform

    def asking(batch, watch):
        if batch.step == "drain" and not numbers:
            numbers.append(asked.ask(*OTHERS))
        return perform(batch, watch)

    asked.stage.network.perform = asking
    asked.begin(with_paths(asked.ledger.network.state, (THERE,), (path(2, 3, 1),)))
    assert asked.entry(numbers[0]).state is ReconfigurationState.QUEUED
    asked.finish()
    assert asked.states[numbers[0]] == DONE


class Drawn(Asked):
    """Random goals; all traffic arrives, after each change of the network."""

    def __init__(self, rng):
        super().__init__()
        self.rng = rng
        network = self.stage.network
        network.rng.seed(rng.random())
        self.wanted = []
        """Requested topologies, with the pairs that each should move."""
        self.made_beside = []
        mover = self.rooms.mover
        moving_beside, self.waits = mover._room.moving_beside, False

        async def moving(entry, plan, **named):
            self.made_beside.append("in part" if "stage 1" in entry.reason else "whole")
            self.made_beside += ["while it waits"] * self.waits
            return await moving_beside(entry, plan, **named)

        mover.moving_beside = moving
        perform = network.perform

        def performing(batch, watch):
            return perform(batch, lambda command: (watch(command), self.all_arrives()))

        network.perform = performing

    def all_arrives(self):
        network = self.stage.network
        wiring = network.wiring()
        for server in FABRIC.servers:
            for to, way in network.sent(server):
                assert wiring.arrives(way, server.rack, to)

    def _plan(self, request, *, urgent=False, shares=True):
        verdict = SimpleNamespace(pays=True, reason="")
        return SimpleNamespace(plan=self.plan_to(self.goals[id(request)]), verdict=verdict)

    def draw(self):
        """A state in which no pair has several paths, and no path has many hops."""
        state = self.ledger.network.state
        drawn = random_topology(FABRIC, state.topology, self.rng)
        paths = {pair_of(one): one for one in drawn.paths if one.hops <= 2}
        topology = Topology(drawn.circuits, tuple(sorted(paths.values())))
        goal = self.staging._planning.toward(state, topology)
        moving = sorted(moving_pairs(state, goal))
        few = self.rng.sample(moving, min(len(moving), self.rng.randint(1, 3)))
        return goal if self.rng.random() < 0.5 else hold(state, goal, {*moving} - {*few}, ())

    def ask_for_any(self):
        request, goal = PlanRequest(np.ones((7, 7))), self.draw()
        self.kept = [*getattr(self, "kept", ()), request]
        self.goals[id(request)] = goal
        self.wanted.append((goal.topology, moving_pairs(self.ledger.network.state, goal)))
        return self.loop.reconfigure(request, "test").id

    def ask_while_slow_ones_are_waited_for(self):
        self.ask_for_any()
        self.waits = True
        self.stage.doer.let_in()
        self.waits = False


@pytest.mark.parametrize("seeds", [range(12), range(12, 24)], ids=str)
@pytest.mark.takes(15)
def test_whatever_is_asked_for_comes_about_and_cuts_nobody_off(seeds):
    made = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        asked = Drawn(rng)
        asked.late = {rng.choice(FABRIC.servers).vswitch.datapath_id for _ in range(2)}
        asked.begin(asked.draw())
        for _ in range(rng.randint(1, 3)):
            step = rng.choice(("divert", "drain", "untag", "move", "announce", "probe", "activate"))
            waits = rng.random() < 0.5
            job = asked.ask_while_slow_ones_are_waited_for if waits else asked.ask_for_any
            (asked.amid if waits else asked.before)[step] = job
        asked.rooms.upkeep.synchronise()
        while asked.queue and not asked.wanted:
            asked.next()
            asked.rooms.upkeep.synchronise()
        made.update(asked.made_beside)
        asked.finish()
        assert all(one.is_over for one in asked.ledger.log.reconfigurations()), seed
        assert not asked.ledger.network.under_way
        network, state = asked.stage.network, asked.ledger.network.state
        for datapath in network.names:
            assert not list(network.differing_rules(datapath, state)), seed
        if asked.wanted:
            topology, moving = asked.wanted[-1]
            has = [one for one in state.topology.paths if pair_of(one) in moving]
            assert has == [one for one in topology.paths if pair_of(one) in moving], seed
            made["asked"] += 1
    assert min(made[one] for one in ("asked", "in part", "while it waits")) > 0
