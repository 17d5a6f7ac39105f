"""``sharing: auto`` in the controller: who begins and ends slots, on a simulated network."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from apps.controller.choosing import Choosing
from hydra.decisions.decision import Action, Verdict
from hydra.errors import PlanError
from hydra.policy import Sharing
from tests.unit.controller.test_slots import BOTH, POLICY, Stage


class Auto(Stage):
    """A stage whose loop foretells what the test says of a standing topology."""

    def __init__(self) -> None:
        super().__init__(BOTH)
        self.policy.now = replace(POLICY, sharing=Sharing.AUTO)
        self.standing_mbps = 100.0
        self.refusal = ""
        self.acted = []
        self.told = []
        loop = SimpleNamespace(round=self.round, act=self.acted.append, draft_week=self.draft)
        self.choosing = Choosing(self.policy, loop, self.told.append)
        self.slots._plan = self.choosing.draft_week

    def draft(self, night_s):
        if self.refusal:
            raise PlanError(self.refusal)
        return self.plan(night_s)

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
        """What a periodic round does."""
        return self.choosing.shares_by_slots(self.round(), self.slots)


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


def test_other_ways_of_sharing_are_left_as_they_are(auto):
    auto.policy.now = replace(POLICY, sharing=Sharing.BY_DEMAND)
    assert not auto.weigh()
    assert auto.planned_at_s == []
