"""When meters may be changed, and by how much, so that no circuit gets more than it carries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from apps.controller.refills import MOST_S, PART, Refills, borne
from hydra.sharing.policing import Aggregate
from tests.unit.sharing.test_policing import BACK, R2, THERE

LINKS = (THERE, BACK)
SENDERS = tuple(Aggregate(f"h{number}", R2) for number in range(6))


def test_a_debt_is_paid_off_by_a_part_of_the_link_s_rate():
    refills = Refills(lambda link: 100.0)
    refills.pass_to(50.0)
    assert refills.bears(LINKS)
    refills.charge([THERE], 3.0)
    refills.pass_to(50.0 + 2.9 / (PART * 100.0))
    assert not refills.bears([THERE, BACK])
    assert refills.bears([BACK])
    refills.pass_to(50.0 + 3.1 / (PART * 100.0))
    assert refills.bears(LINKS)


def test_meters_follow_again_in_time_however_often_they_were_changed():
    refills = Refills(lambda link: 100.0)
    refills.pass_to(50.0)
    for _ in range(1000):
        refills.charge(LINKS, 1.0)
    refills.pass_to(50.0 + MOST_S + 0.1)
    assert refills.bears(LINKS)


def news(old, new):
    return abs(new - old) > 0.02 * old


def test_what_can_not_be_lowered_is_not_given_to_others():
    a, b, c = SENDERS[:3]
    routes = {a: (THERE,), b: (THERE, BACK), c: (BACK,)}
    old = {a: 10.0, b: 50.0, c: 10.0}
    wanted = {a: 30.0, b: 20.0, c: 30.0}
    assert borne(old, wanted, routes, lambda one: one != b, news) == {}
    assert borne(old, wanted, routes, lambda one: True, news) == {b: 20.0, a: 30.0, c: 30.0}


def test_one_that_meets_nobody_is_told_what_it_may():
    a = SENDERS[0]
    assert borne({a: 10.0}, {a: float("inf")}, {a: ()}, lambda one: True, news) == {a: float("inf")}


rates = some.lists(some.floats(0.1, 100.0), min_size=len(SENDERS), max_size=len(SENDERS))


@given(
    rates,
    rates,
    some.lists(some.sets(some.sampled_from(LINKS), min_size=1), min_size=6, max_size=6),
    some.sets(some.sampled_from(SENDERS)),
)
def test_no_link_gets_more_than_before_or_than_all_together_want(old, wanted, along, frozen):
    was, wants = dict(zip(SENDERS, old, strict=True)), dict(zip(SENDERS, wanted, strict=True))
    routes = {one: tuple(links) for one, links in zip(SENDERS, along, strict=True)}
    changed = borne(was, wants, routes, lambda one: one not in frozen, news)
    assert frozen.isdisjoint(changed)
    now = was | changed
    for link in LINKS:
        totals = [sum(r[one] for one in SENDERS if link in routes[one]) for r in (was, wants, now)]
        assert totals[2] <= max(totals[:2]) + 1e-6
    for one, mbps in changed.items():
        assert min(was[one], wants[one]) <= mbps <= max(was[one], wants[one]) + 1e-9
        assert mbps != pytest.approx(was[one], rel=0.0199)
