"""A standing topology or slots: the choice, and the sentence with the reason."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from hydra.decisions.decision import Action, Verdict
from hydra.errors import PlanError
from hydra.policy import UNWEIGHED, CurrentPolicy, Policy, Sharing, SharingChoice
from hydra.worth import choose_sharing
from tests.unit.sharing.test_slots import week_of

POLICY = Policy(sharing=Sharing.AUTO, gain_horizon_s=10.0, minimum_gain_mbps=5.0)
SLOTTED = SharingChoice(Sharing.SLOTTED, "")


def weigh(now_mbps, then_mbps, delivered_mbps, before=UNWEIGHED, *, pays=True, cost_mbit=0.0):
    """The choice for a demand of 100 Mb/s."""
    gain_mbps = then_mbps - now_mbps
    verdict = Verdict(pays, "", gain_mbps, gain_mbps * 10.0, cost_mbit)
    report = SimpleNamespace(verdict=verdict, served_mbps=then_mbps, demand_mbps=100.0)
    decision = SimpleNamespace(action=Action.CHANGE if pays else Action.KEEP, reason="")
    week = replace(week_of(2.0, 2.0), delivered_mbps=delivered_mbps)
    return choose_sharing(POLICY, before, decision, report, lambda: week)


@pytest.mark.parametrize(
    ("numbers", "chosen"),
    [
        ((50.0, 60.0, 80.0), Sharing.SLOTTED),
        ((50.0, 60.0, 65.0), Sharing.SLOTTED),
        ((50.0, 60.0, 64.9), Sharing.BY_DEMAND),
        ((50.0, 80.0, 60.0), Sharing.BY_DEMAND),
    ],
)
def test_slots_have_to_carry_more_by_the_least_gain(numbers, chosen):
    assert weigh(*numbers).sharing is chosen


def test_slots_that_are_on_stay_until_a_standing_topology_carries_more_by_the_least_gain():
    assert weigh(50.0, 64.9, 60.0, SLOTTED).sharing is Sharing.SLOTTED
    assert weigh(50.0, 65.0, 60.0, SLOTTED).sharing is Sharing.BY_DEMAND


def test_the_cost_of_the_change_counts_and_a_change_that_does_not_pay_is_not_made():
    assert weigh(50.0, 80.0, 78.0).sharing is Sharing.BY_DEMAND
    assert weigh(50.0, 80.0, 78.0, cost_mbit=40.0).sharing is Sharing.BY_DEMAND
    assert weigh(50.0, 80.0, 78.0, cost_mbit=80.0).sharing is Sharing.SLOTTED
    assert weigh(50.0, 80.0, 78.0, pays=False).sharing is Sharing.SLOTTED


def test_no_week_is_planned_where_a_standing_topology_carries_nearly_all():
    report = SimpleNamespace(
        verdict=Verdict(True, "", 0.0, 0.0, 0.0), served_mbps=96.0, demand_mbps=100.0
    )
    decision = SimpleNamespace(action=Action.KEEP, reason="")

    def never():
        raise AssertionError("a week was planned")

    choice = choose_sharing(POLICY, SLOTTED, decision, report, never)
    assert choice.sharing is Sharing.BY_DEMAND


def test_the_reason_has_both_volumes_and_the_nights():
    choice = weigh(50.0, 60.0, 80.0)
    assert choice.reason == (
        "a standing topology would carry 60.0 of 100.0 Mb/s wanted in the next 10 s, and "
        "2 slots in 4 s, with nights of 100 ms, 80.0"
    )


def test_slots_that_can_not_be_say_why():
    report = SimpleNamespace(
        verdict=Verdict(True, "", 0.0, 0.0, 0.0), served_mbps=50.0, demand_mbps=100.0
    )
    decision = SimpleNamespace(action=Action.KEEP, reason="")

    def refused():
        raise PlanError("a slot of 100 ms leaves no day")

    choice = choose_sharing(POLICY, SLOTTED, decision, report, refused)
    assert choice.sharing is Sharing.BY_DEMAND
    assert choice.reason.endswith("and slots can't be: a slot of 100 ms leaves no day")


def test_the_choice_is_in_force_for_auto_alone():
    policy = CurrentPolicy(POLICY)
    assert policy.in_force.sharing is Sharing.BY_DEMAND
    policy.choice = SLOTTED
    assert policy.in_force.sharing is Sharing.SLOTTED
    policy.now = replace(POLICY, sharing=Sharing.ON_DEMAND)
    assert policy.in_force.sharing is Sharing.ON_DEMAND
    assert policy.sharing == SharingChoice(Sharing.ON_DEMAND, "policy.sharing says so")
