"""Lost circuits that can't be withdrawn: diverted, retried ever more rarely, logged once."""

from types import SimpleNamespace

import pytest

from apps.controller.withdrawals import Withdrawals
from apps.planning.engine import Planning
from hydra.errors import HydraError
from hydra.faults.surveillance import LostPath
from hydra.model import NetworkState, RackId
from hydra.policy import Policy
from hydra.reconfiguration.touched import Touched
from tests.unit.controller.runners import at_once, awaited
from tests.unit.core.fabrics import path_of, small_fabric, state_of

FABRIC = small_fabric(racks=4, planes=1)
PATH = path_of(FABRIC, 0, 1)
NOTHING = NetworkState()


class Stage:
    """Withdrawals with scripted moves, and their results."""

    def __init__(self):
        self.now_s = 0.0
        self.attempts, self.lost, self.diverted, self.told = [], [], [], []
        self.read = []
        """Times at which uncertain devices were read."""
        self.held, self.fails, self.dark = True, False, True
        self.late = frozenset()
        log = SimpleNamespace(
            enter=lambda _trigger, why: self.told.append(why),
            note_loss=lambda circuits: self.lost.append(list(circuits)),
        )
        promises = SimpleNamespace(keep_standing=lambda: None)
        self.network = SimpleNamespace(
            state=state_of(FABRIC, NOTHING, PATH),
            wishes=lambda pairs: dict.fromkeys(pairs, frozenset()),
        )
        ledger = SimpleNamespace(
            network=self.network, log=log, reservations=promises, bookings=None
        )
        self.upkeep = SimpleNamespace(
            dead=SimpleNamespace(
                leave=awaited(frozenset),
                dark=frozenset(),
                denied=frozenset(),
                find=lambda: (self.dead(), "carrier lost"),
                divert=awaited(lambda circuits, paths: self.diverted.append([*circuits, *paths])),
            ),
            late_switches=lambda: self.late,
            devices=SimpleNamespace(read_uncertain=awaited(lambda: self.read.append(self.now_s))),
        )
        self.awaited = frozenset()
        placement = SimpleNamespace(restore=awaited(lambda: None), awaits_racks=False)
        rejoining = SimpleNamespace(rejoin=awaited(lambda _: None))
        planning = SimpleNamespace(reduced=lambda *_: None)
        mover = self.mover = SimpleNamespace(
            move=awaited(self._move), beside=SimpleNamespace(touched=Touched())
        )
        withdrawals = Withdrawals(
            planning=planning,
            ledger=ledger,
            upkeep=self.upkeep,
            quarantine=SimpleNamespace(put=lambda *_: None),
            panels=None,
            reach=SimpleNamespace(awaited_racks=lambda: self.awaited),
            mover=mover,
            placement=placement,
            rejoining=rejoining,
            clock_s=lambda: self.now_s,
        )
        self.withdrawals = at_once(withdrawals)

    def _move(self, *_):
        self.attempts.append(self.now_s)
        if self.fails:
            raise HydraError("the journal is full")
        if not self.held:
            self.network.state = NOTHING

    def dead(self):
        return self.network.state.topology.circuits if self.dark else frozenset()

    def look_until(self, end_s):
        while self.now_s <= end_s:
            if self.dark or self.withdrawals.due:
                self.withdrawals.of_dead_circuits()
            self.now_s += 2.0


@pytest.fixture
def stage():
    return Stage()


def test_what_is_held_is_tried_again_after_ever_longer_pauses(stage):
    stage.look_until(300.0)
    assert stage.attempts == [0.0, 4.0, 12.0, 28.0, 60.0, 120.0, 180.0, 240.0, 300.0]
    assert stage.lost == [list(PATH.circuits)], "told once"
    assert stage.diverted == [list(PATH.circuits)], "once: that lasts until they are withdrawn"


def test_it_is_tried_again_at_once_when_a_switch_that_was_missed_is_there(stage):
    stage.late = frozenset({0x2101})
    stage.look_until(6.0)
    assert stage.attempts == [0.0, 4.0]
    stage.late = frozenset()
    stage.held = False
    stage.look_until(30.0)
    assert stage.attempts == [0.0, 4.0, 8.0], "not only after 12 s"


def test_what_has_light_again_is_withdrawn_all_the_same(stage):
    stage.look_until(10.0)
    stage.held = stage.dark = False
    stage.look_until(40.0)
    assert stage.attempts == [0.0, 4.0, 12.0]
    assert set(stage.told) == {"carrier lost"}
    assert not stage.withdrawals.due


def test_a_path_that_is_held_is_tried_again_although_there_is_light(stage):
    stage.dark = False
    vlan = stage.network.state.vlans[PATH]
    stage.withdrawals.of_lost_paths([LostPath(PATH, vlan, frozenset(), "probes lost")])
    stage.look_until(60.0)
    assert stage.attempts == [0.0, 4.0, 12.0, 28.0, 60.0]
    assert stage.diverted == [[PATH]]
    assert set(stage.told) == {"probes lost"}


def test_what_is_withdrawn_at_last_is_over(stage):
    stage.look_until(10.0)
    stage.held = False
    stage.look_until(40.0)
    assert stage.attempts == [0.0, 4.0, 12.0]
    assert len(stage.diverted) == 1
    stage.network.state, stage.held = state_of(FABRIC, NOTHING, PATH), True
    stage.look_until(50.0)
    assert len(stage.lost) == 2, "the same circuit, made anew and lost again"
    assert len(stage.attempts) == 5


def test_it_stays_diverted_where_the_journal_can_not_be_written(stage):
    stage.fails = True
    with pytest.raises(HydraError, match="the journal is full"):
        stage.withdrawals.of_dead_circuits()
    assert stage.diverted == [list(PATH.circuits)]


def test_a_pair_whose_tor_is_about_to_be_in_reach_is_planned_around_once_it_is(stage):
    """A ToR has connected, and reported its dark port, before it has its rules."""
    rejoined, stage.held = [], False
    stage.withdrawals._rejoining.rejoin = awaited(rejoined.append)
    stage.awaited = frozenset({RackId(0)})
    stage.withdrawals.of_dead_circuits()
    assert stage.network.state == NOTHING, "its pair is electrical at once"
    assert (rejoined, stage.withdrawals.due) == ([set()], True)
    stage.awaited = frozenset()
    stage.withdrawals.of_dead_circuits()
    assert rejoined[1:] == [set(PATH.directions)]
    assert not stage.withdrawals.due


def test_uncertain_devices_are_read_before_pairs_are_planned_around_a_loss(stage):
    """Otherwise all ports of a returned ToR are left out, and its pairs stay electrical."""
    stage.held, seen = False, []
    stage.withdrawals._rejoining.rejoin = awaited(lambda _lost: seen.append(list(stage.read)))
    stage.withdrawals.of_dead_circuits()
    assert seen == [[0.0]]


def test_reservations_that_wait_for_a_tor_are_restored_once_it_is_in_reach(stage):
    stage.dark, restored = False, []
    stage.withdrawals._placement.restore = awaited(lambda: restored.append(True))
    assert not stage.withdrawals.due
    stage.withdrawals._placement.awaits_racks = True
    assert stage.withdrawals.due
    stage.withdrawals.of_dead_circuits()
    assert restored


class Beside(Stage):
    """Withdrawals that a change under way lets in between two of its steps."""

    OTHER = path_of(FABRIC, 2, 3)

    def __init__(self):
        super().__init__()
        self.network.state = state_of(FABRIC, NOTHING, PATH, self.OTHER)
        self.network.under_way = ("a change",)
        planning = Planning(FABRIC, Policy())
        self.withdrawals._planning = planning
        self.why_not = None
        self.moved, self.quarantined = [], []
        self.mover.beside.plan = self._plan_beside
        self.mover.moving_beside = awaited(self._moving_beside)
        self.upkeep.dead.divert_meanwhile = lambda circuits, paths: self.diverted.append([*paths])
        self.withdrawals._quarantine.put = lambda ends, why, _paths: self.quarantined.append(why)
        self.again = None
        """The path that a pair gets after its loss."""
        self.withdrawals._rejoining.rejoined_beside = lambda _lost: (
            state_of(
                FABRIC,
                self.network.state,
                *self.network.state.topology.paths,
                self.again,
            )
            if self.again
            else self.network.state
        )

    def _plan_beside(self, target, _who):
        plan = self.withdrawals._planning.diff(self.network.state, target)
        return None if plan.empty or self.why_not else plan

    def _moving_beside(self, _entry, plan):
        self.moved.append(plan)
        self.network.state = plan.target

    def begins_beside(self):
        """True if the withdrawal was made beside the change."""
        before = self.network.state
        self.withdrawals.beside()
        return self.network.state != before

    def lose(self, path=PATH):
        vlan = self.network.state.vlans[path]
        lost = [LostPath(path, vlan, frozenset(path.circuits), "probes lost")]
        self.withdrawals.divert_meanwhile(lost)
        return lost


def test_it_is_withdrawn_and_planned_around_between_the_steps_of_a_change():
    stage = Beside()
    lost = stage.lose()
    assert stage.begins_beside()
    assert set(stage.network.state.topology.paths) == {stage.OTHER}
    assert stage.told == ["probes lost"]
    assert stage.quarantined == ["probes lost"]
    stage.again = PATH
    assert stage.begins_beside()
    assert set(stage.network.state.topology.paths) == {PATH, stage.OTHER}
    assert stage.told[1:] == ["planned around it"]
    assert not stage.begins_beside(), "nothing is left to do"
    stage.withdrawals.of_lost_paths(lost[:0])
    assert stage.attempts == [], "nor in its turn"


def test_what_can_not_be_planned_around_beside_a_change_is_in_its_turn():
    stage = Beside()
    asked = []
    stage.withdrawals._rejoining.rejoin = awaited(asked.append)
    lost = stage.lose()
    assert stage.begins_beside()
    assert not stage.begins_beside()
    assert stage.withdrawals.due
    stage.withdrawals.of_lost_paths(lost)
    assert asked == [set(PATH.directions)]
    assert not stage.withdrawals.due


def test_what_a_change_touches_keeps_its_turn():
    stage = Beside()
    lost = stage.lose()
    stage.why_not = "changes under way touch the same pairs, ports or VLAN-IDs"
    assert not stage.begins_beside()
    assert stage.quarantined == []
    stage.why_not = None
    assert not stage.begins_beside(), "it is looked at once for each change under way"
    stage.held = False
    stage.withdrawals.of_lost_paths(lost)
    assert stage.attempts == [0.0]
