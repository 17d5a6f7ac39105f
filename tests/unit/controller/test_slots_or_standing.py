"""``sharing: auto`` in the controller: begin and end of slots, on a simulated network."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from apps.controller.slots import WeekUnderWay
from apps.controller.slots_or_standing import SlotsOrStanding
from hydra.decisions.decision import Action, Verdict
from hydra.errors import PlanError
from hydra.policy import Sharing
from tests.unit.controller.runners import at_once, awaited
from tests.unit.controller.test_slots import BOTH, POLICY, Stage


class Auto(Stage):
    """A stage whose loop gives the test's expectation of a standing topology."""

    def __init__(self) -> None:
        super().__init__(BOTH)
        self.policy.now = replace(POLICY, sharing=Sharing.AUTO)
        self.standing_mbps = 100.0
        self.refusal = ""
        self.acted = []
        self.told = []
        self.loop = SimpleNamespace(
            round=self.round,
            act=awaited(self.acted.append),
            begin_week=self.begin,
            between_stages=False,
        )
        choosing = SlotsOrStanding(
            policy=self.policy, loop=self.loop, slots=self.slots._room, notify=self.told.append
        )
        self.choosing = at_once(choosing, self.perform)

    def keep_time(self):
        self.choosing.keep_time()

    def begin(self, night_s, given=None):
        if self.refusal:
            return WeekUnderWay.refused(PlanError(self.refusal))
        return super().begin(night_s)

    def round(self):
        report = SimpleNamespace(
            verdict=Verdict(False, "", 0.0, 0.0, 0.0),
            served_mbps=self.standing_mbps,
            demand_mbps=180.0,
        )
        return SimpleNamespace(
            decision=SimpleNamespace(action=Action.KEEP, reason=""), report=report
        )

    def weigh(self):
        """A periodic round; True if slots take the place of its decision."""
        before = len(self.acted)
        self.choosing.periodic()
        return len(self.acted) == before


@pytest.fixture
def auto():
    return Auto()


def test_slots_begin_when_they_carry_more(auto):
    assert not auto.policy.in_force.slotted
    auto.pass_time(1.0)
    assert auto.changes() == []
    assert auto.weigh()
    seen = auto.pass_time(8.0)
    assert {frozenset({(0, 1)}), frozenset({(0, 2)})} <= set(seen)
    assert len(auto.told) == 1
    assert auto.told[0].startswith("circuits are shared slotted: a standing topology would carry")


def test_no_round_waits_for_a_week(auto):
    auto.plans_slowly = True
    assert not auto.weigh()
    assert not auto.weigh()
    assert len(auto.planned_at_s) == 1, "one week is planned at a time"
    assert auto.told == []
    auto.end_planning()
    assert auto.weigh()
    assert auto.policy.in_force.slotted


def test_slots_begin_with_the_week_that_was_weighed(auto):
    assert auto.weigh()
    auto.plans_slowly = True
    auto.pass_time(0.1)
    assert len(auto.planned_at_s) == 1
    assert auto.slots.schedule().week is not None


def test_a_week_for_an_earlier_demand_is_not_weighed_later(auto):
    auto.plans_slowly = True
    assert not auto.weigh()
    auto.end_planning()
    auto.standing_mbps = 179.0
    assert not auto.weigh()
    auto.standing_mbps = 100.0
    assert not auto.weigh(), "another week is asked for"
    auto.end_planning()
    assert auto.weigh()


def test_a_week_that_a_controller_at_its_end_does_not_plan_begins_nothing(auto):
    auto.plans_slowly = True
    assert not auto.weigh()
    asked, _ = auto.asked
    asked.week.cancel()
    assert not auto.weigh()
    assert auto.policy.choice.reason.endswith("nothing is planned any more")


def test_nothing_begins_where_a_standing_topology_carries_as_much(auto):
    auto.standing_mbps = 179.0
    assert not auto.weigh()
    auto.pass_time(5.0)
    assert auto.changes() == []
    assert auto.told == []


def test_slots_end_with_the_week_in_which_a_standing_topology_carries_more(auto):
    assert auto.weigh()
    auto.pass_time(5.0)
    auto.standing_mbps = 179.0
    auto.pass_time(6.0)
    assert not auto.policy.in_force.slotted
    assert auto.slots.schedule().week is None
    assert len(auto.acted) == 1, "the round that was weighed is carried out, once"
    before = len(auto.changes())
    auto.pass_time(8.0)
    assert len(auto.changes()) == before
    assert [words.split(":")[0] for words in auto.told] == [
        "circuits are shared slotted",
        "circuits are shared by-demand",
    ]


def test_slots_that_can_not_be_planned_any_more_end(auto):
    assert auto.weigh()
    auto.pass_time(5.0)
    auto.refusal = "a slot of 500 ms leaves no day"
    auto.pass_time(6.0)
    assert not auto.policy.in_force.slotted
    assert auto.policy.choice.reason.endswith("a slot of 500 ms leaves no day")
    assert not auto.weigh()


def test_no_round_is_made_between_the_stages_of_a_change(auto):
    auto.loop.between_stages = True
    auto.choosing.periodic()
    assert (auto.acted, auto.told, auto.planned_at_s) == ([], [], [])
    auto.loop.between_stages = False
    assert auto.weigh()
    assert auto.planned_at_s != []


def test_other_ways_of_sharing_are_left_as_they_are(auto):
    auto.policy.now = replace(POLICY, sharing=Sharing.BY_DEMAND)
    assert not auto.weigh()
    assert auto.planned_at_s == []
