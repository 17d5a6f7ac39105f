"""Stages of a change that go on while another change makes up for skipped slow switches."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hydra.errors import PlanError
from hydra.journal import JournalError
from hydra.lifecycle import ReconfigurationState
from hydra.model import Topology
from hydra.reconfiguration.plan import hold, moving_pairs, pair_of
from tests.unit.controller.test_requested_beside import ELSEWHERE, FABRIC, Asked, Drawn
from tests.unit.controller.test_staging import with_paths
from tests.unit.controller.test_staging_side_by_side import path
from tests.unit.core.fabrics import random_topology

BOTH = (ELSEWHERE, path(4, 6, 2)), (path(4, 5, 1), path(4, 6, 3))
"""Two pairs of r5, with electrical room for one pair at a time."""
MADE_UP = {path(0, 1, 1), path(2, 3, 1)}


class Staged(Asked):
    """A change that skipped slow switches, and a change in stages: r5's first stage is done, and
    the next stage waits for its turn behind the rest of the first change.
    """

    def __init__(self, *more, change=BOTH):
        super().__init__(path(4, 6, 2), *more)
        self.rest = self.left_out()
        self.late = set()
        room_mbps = float(self.staging.headroom.electrical_mbps[4])
        self.sent_mbps = np.zeros((7, 7))
        self.sent_mbps[4, 5], self.sent_mbps[4, 6] = 0.55 * room_mbps, 0.3 * room_mbps
        self.target = with_paths(self.ledger.network.state, *change)
        self.number = self.begin(self.target)
        assert self.entry(self.number).stages_done == 1
        assert len(self.queue) == 2
        self.seen = None

    def make_up(self):
        """Progress of the change in stages when the other change is about to end."""
        self.before["activate"] = lambda: setattr(self, "seen", self.entry(self.number))
        super().make_up()
        assert self.entry(self.rest).is_over
        return self.seen


def test_the_next_stage_is_made_beside_what_does_not_concern_it():
    staged = Staged()
    seen = staged.make_up()
    assert (seen.state, seen.stages_done) == (ReconfigurationState.DONE, 2)
    assert set(staged.paths) == MADE_UP | set(BOTH[1])
    assert seen.connected == {one.circuits[0] for one in BOTH[1]}
    assert not staged.staging.under_way
    assert [one.id for one in staged.ledger.log.unfinished()] == []
    made = len(staged.ledger.log.reconfigurations())
    staged.finish()  # its turn
    assert len(staged.ledger.log.reconfigurations()) == made
    for datapath in staged.stage.network.names:
        assert not list(staged.stage.network.differing_rules(datapath, staged.ledger.network.state))


def test_it_keeps_its_turn_beside_a_change_that_waits_for_nobody():
    staged = Staged()
    seen = []
    perform = staged.stage.network.perform

    def performing(batch, watch):
        seen.append(staged.entry(staged.number).stages_done)
        return perform(batch, watch)

    staged.stage.network.perform = performing
    staged.begin(with_paths(staged.ledger.network.state, (path(2, 3, 1),)))
    assert set(seen) == {1}
    staged.finish()
    assert set(staged.paths) == {path(0, 1, 1), *BOTH[1]}


def test_what_concerns_slow_racks_is_made_in_its_turn():
    gone, come = BOTH
    staged = Staged(change=(gone, (*come, path(0, 6, 2))))
    seen = staged.make_up()
    assert (seen.state, seen.stages_done) == (ReconfigurationState.QUEUED, 2)
    assert set(staged.paths) == MADE_UP | set(come)
    assert [one.id for one in staged.ledger.log.unfinished()] == [staged.number]
    staged.finish()
    assert set(staged.paths) == MADE_UP | {*come, path(0, 6, 2)}
    assert staged.entry(staged.number).state is ReconfigurationState.DONE
    assert staged.entry(staged.number).stages_done == 3


@pytest.mark.parametrize("what", ["paused", "stopped"])
def test_nothing_is_made_of_one_that_is(what):
    staged = Staged()
    if what == "paused":
        staged.loop.pause(staged.number, True)
    else:
        staged.loop.stop(staged.number, "an operator")
    assert staged.make_up().stages_done == 1
    staged.loop.pause(staged.number, False) if what == "paused" else None
    staged.finish()
    ended = staged.entry(staged.number)
    done = (ReconfigurationState.DONE, 2), (ReconfigurationState.PARTIAL, 1)
    assert (ended.state, ended.stages_done) == done[what == "stopped"]


def test_what_diverts_more_than_there_is_room_for_keeps_its_turn():
    staged = Staged()
    left = pair_of(next(iter(set(BOTH[0]) & set(staged.paths))))
    staged.sent_mbps[left] = 2 * float(staged.staging.headroom.electrical_mbps[4])
    assert staged.make_up().stages_done == 1
    staged.finish()
    assert set(staged.paths) == MADE_UP | set(BOTH[1])


def test_a_circle_that_there_is_no_room_for_has_detours_in_its_turn():
    swap = (ELSEWHERE, path(4, 6, 2)), (path(4, 5, 2), path(4, 6, 0))
    first = path(5, 6, 1), path(5, 6, 3)
    staged = Staged(first[0], change=((*swap[0], first[0]), (*swap[1], first[1])))
    assert set(staged.paths) >= {*swap[0], first[1]}
    assert staged.make_up().stages_done == 1
    had = set()
    while staged.queue:
        staged.next()
        had |= {one.hops for one in staged.paths}
    assert had == {1, 2}
    assert set(staged.paths) == {*MADE_UP, *swap[1], first[1]}


def test_nobody_loses_a_path_before_the_next_one_can_come():
    """Of three pairs that need each other's ports, there is room for two that free ports for
    others: one of these two would wait for the turn.
    """
    circle = (
        (ELSEWHERE, path(4, 6, 2), path(3, 4, 3)),
        (path(4, 5, 2), path(4, 6, 3), path(3, 4, 0)),
    )
    first = path(5, 6, 3), path(5, 6, 1)
    staged = Staged(
        path(3, 4, 3), first[0], change=((*circle[0], first[0]), (*circle[1], first[1]))
    )
    room_mbps = float(staged.staging.headroom.electrical_mbps[4])
    for a, b in map(pair_of, circle[0]):
        staged.sent_mbps[a, b] = 0.0
        staged.sent_mbps[4, a + b - 4] = 0.3 * room_mbps
    assert set(staged.paths) >= {*circle[0], first[1]}
    assert staged.make_up().stages_done == 1
    assert set(staged.paths) >= set(circle[0])
    staged.finish()
    assert set(staged.paths) == {*MADE_UP, *circle[1], first[1]}
    assert staged.entry(staged.number).stages_done > 2


def has_other_ports(staged):
    """Set a port aside before the first step of the change for the slow switches."""
    free = next(port.id for port in FABRIC.ports if port.rack == 6 and port.plane == 0)
    staged.before["divert"] = lambda: staged.rooms.quarantine.put([free], "no light")


@pytest.mark.parametrize("pays", [True, False])
def test_it_is_planned_anew_where_there_is_something_else_to_plan_with(pays):
    staged = Staged()
    has_other_ports(staged)
    (waits,) = set(BOTH[0]) & set(staged.paths)
    (planned,) = (one for one in BOTH[1] if pair_of(one) == pair_of(waits))
    amended = path(*pair_of(waits), 0 if waits in (path(4, 6, 2),) else 2)
    staged.target = with_paths(staged.target, (planned,), (amended,))
    staged.pays = pays
    assert staged.make_up().stages_done == (2 if pays else 1), "that, it is told in its turn"
    staged.finish()
    assert staged.entry(staged.number).state.value == ("done" if pays else "partial")
    assert (amended in staged.paths, waits in staged.paths) == (pays, not pays)


def test_one_that_can_not_be_planned_anew_keeps_its_turn():
    staged = Staged()
    has_other_ports(staged)
    change = staged.staging.agenda.get(staged.number)
    known = change.asker

    def plan():
        raise PlanError("no such plan")

    change.asker = replace(known, plan=plan)
    assert staged.make_up().stages_done == 1
    change.asker = known
    staged.finish()
    assert set(staged.paths) == MADE_UP | set(BOTH[1])


def test_what_breaks_it_off_breaks_off_the_other(monkeypatch):
    staged = Staged()
    begin = staged.ledger.network.begin

    def begins(execution):
        begin(execution)
        if len(staged.ledger.network.under_way) == 2:
            raise JournalError("full")

    monkeypatch.setattr(staged.ledger.network, "begin", begins)
    with pytest.raises(JournalError):
        staged.make_up()
    assert staged.entry(staged.rest).state is ReconfigurationState.FAILED
    ended = staged.entry(staged.number)
    assert (ended.state, ended.reason) == (ReconfigurationState.PARTIAL, "after stage 1: full")


def test_it_leaves_out_late_switches_of_its_own_racks():
    staged = Staged()
    staged.late = {FABRIC.racks[4].servers[0].vswitch.datapath_id}
    assert staged.make_up().state is ReconfigurationState.PARTIAL
    rest = staged.ledger.log.reconfigurations()[0]
    assert rest.reason == f"the rest of {staged.number}, since switches were late"
    staged.finish()
    assert set(staged.paths) == MADE_UP | set(BOTH[1])


def test_what_failed_is_tried_again_in_its_turn_alone():
    gone, come = BOTH
    staged = Staged(change=(gone, (*come, path(0, 6, 2))))
    tries = Counter()
    perform = staged.stage.network.perform

    def no_probe_comes_through(batch, watch):
        outcomes = perform(batch, watch)
        beside = len(staged.ledger.network.under_way) == 2
        tries[batch.step] += beside
        if beside and batch.step == "probe":
            return [replace(outcome, value=("there", "back")) for outcome in outcomes]
        return outcomes

    staged.stage.network.perform = no_probe_comes_through
    assert staged.make_up().stages_done == 2
    assert tries["divert"] == 1
    assert len(set(come) & set(staged.paths)) == 1
    staged.finish()
    assert set(staged.paths) == MADE_UP | {*come, path(0, 6, 2)}


def test_a_request_that_was_begun_beside_another_goes_on_there():
    """With the stages that its traffic needs."""
    asked = Asked(path(4, 6, 2))
    asked.left_out()
    asked.late = set()
    room_mbps = float(asked.staging.headroom.electrical_mbps[4])
    asked.sent_mbps = np.zeros((7, 7))
    asked.sent_mbps[4, 5], asked.sent_mbps[4, 6] = 0.55 * room_mbps, 0.3 * room_mbps
    numbers, seen = [], []
    asked.before["move"] = lambda: numbers.append(asked.ask(*BOTH))
    asked.before["activate"] = lambda: seen.append(asked.entry(numbers[0]))
    asked.make_up()
    assert [(one.state, one.stages_done) for one in seen] == [(ReconfigurationState.DONE, 2)]
    made = len(asked.ledger.log.reconfigurations())
    asked.finish()
    assert len(asked.ledger.log.reconfigurations()) == made
    assert set(asked.paths) == MADE_UP | set(BOTH[1])


class Crowded(Drawn):
    """A change that skipped a rack's slow switch, and a change in stages of other random racks,
    which are so loaded that one stage hardly suffices.
    """

    def __init__(self, rng):
        super().__init__(rng)
        self.late = set()
        self.begin(self.draw())
        rack = rng.choice(FABRIC.racks)
        self.late = {rng.choice(rack.servers).vswitch.datapath_id}
        self.begin(self._drawn(lambda pair: rack.id in pair))
        self.late, self.slow = set(), rack.id
        most_mbps = rng.uniform(4.0, 9.0)
        self.sent_mbps = np.array(
            [[rng.uniform(0.0, most_mbps) for _ in range(7)] for _ in range(7)]
        )
        self.made = []
        """Stages made beside the other change, each with the rest of the whole change."""
        go_on_beside = self.rooms.early_stages._room._continue

        def going_on_beside(change):
            work = go_on_beside(change)
            return None if work is None else noted(change, work)

        async def noted(change, work):
            await work
            self.made.append(self.staging.agenda.get(change.entry.id) is not None)

        self.rooms.early_stages._continue = going_on_beside

    def draw(self):
        slow = getattr(self, "slow", None)
        return self._drawn(lambda pair: slow not in pair)

    def _drawn(self, moves):
        state = self.ledger.network.state
        drawn = random_topology(FABRIC, state.topology, self.rng)
        paths = {pair_of(one): one for one in drawn.paths if one.hops <= 2}
        topology = Topology(drawn.circuits, tuple(sorted(paths.values())))
        goal = self.staging._planning.toward(state, topology)
        stay = {pair for pair in moving_pairs(state, goal) if not moves(pair)}
        return hold(state, goal, stay, ())


@pytest.mark.parametrize("seeds", [range(0, 40, 2), range(1, 40, 2)], ids=str)
@pytest.mark.takes(10)
def test_whatever_is_asked_for_comes_about_and_cuts_nobody_off(seeds):
    made = []
    for seed in seeds:
        rng = random.Random(seed)
        asked = Crowded(rng)
        asked.ask_for_any()
        for _ in range(min(2, len(asked.queue))):
            asked.next()
        if rng.random() < 0.5:
            step = rng.choice(("divert", "drain", "untag", "move", "announce", "probe"))
            asked.before[step] = asked.ask_for_any
        asked.rooms.upkeep.synchronise()
        asked.staging.keep_time()
        asked.finish()
        made += asked.made
        assert all(one.is_over for one in asked.ledger.log.reconfigurations()), seed
        assert not asked.ledger.network.under_way
        network, state = asked.stage.network, asked.ledger.network.state
        for datapath in network.names:
            assert not list(network.differing_rules(datapath, state)), seed
        topology, moving = asked.wanted[-1]
        has = [one for one in state.topology.paths if pair_of(one) in moving]
        assert has == [one for one in topology.paths if pair_of(one) in moving], seed
    assert made
