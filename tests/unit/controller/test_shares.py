"""The rate of each sender on a circuit, by reservations and offers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.controller.shares import IDLE, Offer, shares
from hydra.model import Circuit, PlaneId, PortId, RackId
from hydra.sharing.policing import Aggregate, Flow, Holdings

LINKS = [(Circuit(PlaneId(0), PortId(n), PortId(n + 1)), True) for n in range(3)]
R2 = RackId(1)
MINE = Aggregate("h11", R2, "h21", reserved=True)
OTHERS = [Aggregate(name, R2) for name in ("h11", "h12", "h13")]


def flow(mbps, *aggregates):
    return Flow("a", mbps, RackId(0), aggregates, ())


def holding(remaining_mbps, *flows, best_effort=()):
    aggregates = [aggregate for one in flows for aggregate in one.aggregates]
    routes = dict.fromkeys([*aggregates, *best_effort], (LINKS[0],))
    return Holdings(flows, routes, {LINKS[0]: remaining_mbps})


def greedy(mbps):
    return Offer(mbps, held_back=True)


def steady(mbps):
    return Offer(mbps, held_back=False)


def test_what_is_reserved_is_there_before_anything_is_sent():
    rates = shares(holding(57.0, flow(40.0, MINE), best_effort=OTHERS), {})
    assert rates[MINE] >= 40.0
    assert sum(rates.values()) == pytest.approx(97.0)
    assert min(rates.values()) > 0


def test_best_effort_uses_the_rest():
    held = holding(57.0, flow(40.0, MINE), best_effort=OTHERS)
    rates = shares(held, {OTHERS[1]: greedy(57.0), MINE: steady(36.0)})
    assert rates[OTHERS[1]] > 0.94 * 57.0
    assert rates[MINE] >= 40.0
    assert sum(rates.values()) <= 97.0 + 1e-6


def test_greedy_ones_share_the_rest_evenly_however_much_they_sent():
    held = holding(60.0, flow(30.0, MINE), best_effort=OTHERS)
    rates = shares(held, {OTHERS[0]: greedy(50.0), OTHERS[1]: greedy(1.0), OTHERS[2]: steady(2.0)})
    assert rates[OTHERS[0]] == pytest.approx(rates[OTHERS[1]])
    assert rates[OTHERS[2]] < 4.0


def test_a_reservation_may_grow_beyond_its_own_while_nobody_else_wants_it():
    held = holding(57.0, flow(40.0, MINE), best_effort=OTHERS)
    rate = 40.0
    for _ in range(5):
        rate = shares(held, {MINE: greedy(rate)})[MINE]
    assert rate > 90.0


def test_a_reservation_of_a_rack_goes_to_those_of_its_servers_that_use_it():
    one, other = Aggregate("h11", R2, reserved=True), Aggregate("h12", R2, reserved=True)
    held = holding(0.0, flow(60.0, one, other))
    assert shares(held, {}) == pytest.approx({one: 30.0, other: 30.0})
    rates = shares(held, {one: greedy(90.0), other: steady(5.0)})
    assert rates == pytest.approx({one: 54.5, other: 5.5})


def test_aggregates_that_meet_nobody_are_not_held_back():
    held = Holdings((flow(40.0, MINE),), {MINE: ()}, {})
    assert shares(held, {MINE: greedy(90.0)}) == {MINE: math.inf}


def test_the_tightest_link_counts():
    routes = {OTHERS[0]: (LINKS[0], LINKS[1]), OTHERS[1]: (LINKS[1],)}
    held = Holdings((), routes, {LINKS[0]: 10.0, LINKS[1]: 80.0})
    rates = shares(held, dict.fromkeys(routes, greedy(50.0)))
    assert rates[OTHERS[0]] <= 10.0
    assert rates[OTHERS[1]] > 65.0


rates_mbps = st.floats(min_value=0.0, max_value=200.0)
offers = st.builds(Offer, rates_mbps, held_back=st.booleans()) | st.just(IDLE)
routes = st.lists(st.sampled_from(LINKS), max_size=3, unique=True).map(tuple)


@given(
    st.lists(st.tuples(routes, offers, st.sampled_from([None, 0, 1])), min_size=1, max_size=8),
    st.lists(rates_mbps, min_size=3, max_size=3),
    st.lists(rates_mbps, min_size=2, max_size=2),
)
def test_no_link_is_given_more_than_it_has_and_every_reservation_has_its_own(drawn, left, reserved):
    """``drawn``: each aggregate's links, its offer, and its reservation."""
    aggregates = [
        Aggregate(f"s{n}", R2, reserved=of is not None) for n, (_, _, of) in enumerate(drawn)
    ]
    members = {
        number: tuple(c for c, (_, _, of) in zip(aggregates, drawn, strict=True) if of == number)
        for number in (0, 1)
    }
    flows = tuple(flow(mbps, *members[number]) for number, mbps in enumerate(reserved))
    route_of = {
        aggregate: links for aggregate, (links, _, _) in zip(aggregates, drawn, strict=True)
    }
    held = Holdings(flows, route_of, dict(zip(LINKS, left, strict=True)))
    rates = shares(
        held, {aggregate: offer for aggregate, (_, offer, _) in zip(aggregates, drawn, strict=True)}
    )
    assert rates.keys() == route_of.keys()
    assert {c for c, rate in rates.items() if math.isinf(rate)} == {
        c for c, links in route_of.items() if not links
    }
    meeting = {number: [c for c in some if route_of[c]] for number, some in members.items()}
    for number, some in meeting.items():
        assert sum(rates[c] for c in some) >= (reserved[number] if some else 0.0) - 1e-6
    for link, spare in zip(LINKS, left, strict=True):
        using = [c for c, links in route_of.items() if link in links]
        promised = sum(
            reserved[number] for number, some in meeting.items() if set(some) & set(using)
        )
        assert sum(rates[c] for c in using) <= spare + promised + 1e-6
