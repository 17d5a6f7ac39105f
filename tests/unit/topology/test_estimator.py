import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.errors import PlanError
from topology.estimator import COMPARABLE, FULL, HEADROOM, ODD, Observation, estimate, surety

LINK = 100.0


def traffic(*entries, **more):
    """Flows of (sender, rack, Mb/s, resources); resources are lists of the same length."""
    sender, to, mbps, uses = zip(*entries, strict=True)
    return Observation(
        np.array(sender), np.array(to), np.array(mbps, dtype=float), np.array(uses), **more
    )


def estimated(seen, load, capacity, out=(LINK,) * 4, into=(LINK,) * 4, came=None):
    arrays = (np.array(one, dtype=float) for one in (load, capacity, out, into))
    return estimate(seen, *arrays, None if came is None else np.array(came))


def test_what_met_nothing_full_was_measured():
    found = estimated(traffic((0, 1, 5.0, [0]), (0, 2, 2.0, [0])), [7.0], [10.0])
    assert found.mbps == pytest.approx([5 * HEADROOM, 2 * HEADROOM])
    assert not found.constrained.any()


def test_behind_one_full_resource_sizes_stay_what_they_are():
    """The larger demand stays larger by as much, up to the server's link."""
    found = estimated(traffic((0, 1, 7.2, [0]), (0, 2, 1.35, [0])), [9.5], [10.0])
    assert found.mbps == pytest.approx([LINK * 7.2 / 8.55, LINK * 1.35 / 8.55])
    assert found.constrained.all()


def test_connections_count_where_they_are_known():
    seen = traffic((0, 1, 9.0, [0]), (0, 2, 1.0, [0]), connections=np.array([1.0, 3.0]))
    assert estimated(seen, [10.0], [10.0]).mbps == pytest.approx([25.0, 75.0])
    unknown = traffic((0, 1, 9.0, [0]), (0, 2, 1.0, [0]), connections=np.zeros(2))
    assert estimated(unknown, [10.0], [10.0]).mbps == pytest.approx([90.0, 10.0])


def test_one_whose_connections_nobody_counts_has_as_many_as_its_rate_shows():
    rows = [(0, to, mbps, [0]) for to, mbps in enumerate((6.0, 3.0, 1.0), 1)]
    seen = traffic(*rows, connections=np.array([2.0, 1.0, 0.0]))
    assert estimated(seen, [10.0], [10.0]).mbps == pytest.approx([60.0, 30.0, 10.0])


def test_what_was_measured_is_left_out_of_what_the_rest_shares():
    """One of a server's flows on a circuit that is not full, the other flows behind a full
    uplink.
    """
    seen = traffic((0, 1, 40.0, [1]), (0, 2, 6.0, [0]), (0, 3, 3.0, [0]))
    found = estimated(seen, [9.0, 40.0], [10.0, 100.0])
    assert found.constrained.tolist() == [False, True, True]
    assert found.mbps == pytest.approx([42.0, 58 * 2 / 3, 58 / 3])


def test_a_receiver_is_shared_by_its_senders():
    seen = traffic((0, 2, 5.0, [0]), (1, 2, 5.0, [0]))
    assert estimated(seen, [10.0], [10.0]).mbps == pytest.approx([50.0, 50.0])


def test_nothing_wants_more_than_it_can():
    seen = traffic((0, 1, 5.0, [0]), (0, 2, 5.0, [0]), most_mbps=np.array([12.0, np.inf]))
    assert estimated(seen, [10.0], [10.0]).mbps == pytest.approx([12.0, 88.0])


@pytest.mark.parametrize("connections", [None, np.array([1.0, 1.0])])
def test_one_that_gets_what_others_are_kept_from_wants_its_share(connections):
    seen = traffic((0, 1, 90.0, [1]), (0, 2, 1.0, [0]), connections=connections)
    found = estimated(seen, [1.0, 95.0], [1.0, 100.0])
    assert found.constrained.all()
    assert found.mbps == pytest.approx([50.0, 50.0])


def test_shares_behind_one_bottleneck_say_nothing_of_another():
    seen = traffic((0, 1, 60.0, [1]), (0, 2, 30.0, [1]), (0, 3, 0.75, [0]), (0, 3, 0.25, [0]))
    found = estimated(seen, [1.0, 95.0], [1.0, 100.0])
    assert found.mbps == pytest.approx([100 / 3, 50 / 3, 37.5, 12.5])


@pytest.mark.parametrize("load", [float("nan"), 10 * ODD * 1.01, float("inf")])
def test_a_counter_that_is_missing_or_wrong_is_named_and_changes_nothing(load):
    """Also for traffic with a further full resource."""
    seen = traffic((0, 1, 5.0, [0, 1]), (0, 2, 2.0, [1, 2]), (1, 2, 4.0, [2, 2]))
    found = estimated(seen, [load, 10.0, 1.0, float("nan")], [10.0, 10.0, 10.0, 10.0])
    assert found.odd.tolist() == [0], "the last one is in nobody's way"
    assert found.constrained.tolist() == [False, True, False]
    assert found.mbps[0] == 5.0
    assert found.mbps[1] == pytest.approx(95.0)


def test_a_link_that_is_configured_too_small_makes_no_demand_smaller():
    seen = traffic((0, 1, 150.0, [0]), (0, 2, 30.0, [0]))
    found = estimated(seen, [180.0], [LINK])
    assert found.odd.tolist() == [0]
    assert found.mbps.tolist() == [150.0, 30.0]


def test_silence_is_no_demand():
    found = estimated(traffic((0, 1, 0.0, [0]), (0, 2, 10.0, [0])), [10.0], [10.0])
    assert found.mbps == pytest.approx([0.0, LINK])
    nothing = Observation(
        *(np.zeros(0, dtype=np.intp),) * 2, np.zeros(0), np.zeros((0, 1), np.intp)
    )
    assert estimated(nothing, [1.0], [1.0]).mbps.shape == (0,)


@pytest.mark.parametrize("mbps", [-1.0, float("nan")])
def test_a_rate_that_can_t_be_is_refused(mbps):
    with pytest.raises(PlanError, match=r"traffic 1 sends (-1\.0|nan) Mbps"):
        estimated(traffic((0, 1, 1.0, [0]), (0, 2, mbps, [0])), [1.0], [10.0])


rates = st.floats(0.01, 40.0)
entries = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), rates, st.integers(0, 4)),
    min_size=1,
    max_size=12,
)
fullness = st.lists(st.sampled_from([0.0, 0.5, FULL, 1.0, 2.0, np.nan]), min_size=5, max_size=5)


def drawn(rows, load, connections):
    seen = traffic(
        *((sender, to, mbps, [way]) for sender, to, mbps, way in rows),
        connections=np.array(connections[: len(rows)], dtype=float),
    )
    return estimated(seen, load, np.ones(5)), seen


@given(entries, fullness, st.lists(st.integers(0, 64), min_size=12, max_size=12))
def test_no_estimate_is_nothing_or_above_what_links_carry(rows, load, connections):
    found, seen = drawn(rows, load, connections)
    assert found.mbps.shape == found.constrained.shape == seen.mbps.shape
    assert (found.mbps > 0).all()
    for ends in (seen.sender, seen.to):
        sent = np.bincount(ends, seen.mbps, 4)
        assert (np.bincount(ends, found.mbps, 4) <= np.maximum(LINK, sent) + 1e-6).all()
    free = ~found.constrained
    assert (found.mbps[free] >= seen.mbps[free]).all()
    assert (found.mbps[free] <= HEADROOM * seen.mbps[free] * (1 + 1e-12)).all()


@given(entries, fullness, st.floats(1.0, 4.0))
def test_who_sends_more_is_not_taken_to_want_less(rows, load, factor):
    before, _ = drawn(rows, load, [0] * 12)
    (sender, to, mbps, way), *others = rows
    after, _ = drawn([(sender, to, mbps * factor, way), *others], load, [0] * 12)
    assert after.mbps[0] >= before.mbps[0] * (1 - 1e-9)


@given(entries, fullness, st.randoms())
def test_the_order_is_of_no_matter(rows, load, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    one, _ = drawn(rows, load, [0] * 12)
    other, _ = drawn([rows[place] for place in order], load, [0] * 12)
    assert np.allclose(one.mbps[order], other.mbps)


def test_where_nothing_was_measured_all_may_be_greedy():
    found = estimated(traffic((0, 1, 6.0, [0]), (0, 2, 3.0, [0])), [9.5], [10.0])
    assert found.expected_mbps.tolist() == found.mbps.tolist()


def test_what_was_measured_tells_how_much_is_hidden():
    """Of rates of 30, more than 5 and more than 4 Mb/s the mean is 39, beyond a least of 0.45."""
    seen = traffic((0, 1, 30.0 / HEADROOM, [1]), (1, 2, 5.0, [0]), (2, 3, 4.0, [0]))
    found = estimated(seen, [9.0, 30.0], [10.0, 100.0])
    beyond = 30 + 5 + 4 - 3 * COMPARABLE * 4.5
    assert found.constrained.tolist() == [False, True, True]
    assert found.expected_mbps == pytest.approx([30.0, 5 + beyond, 4 + beyond])
    assert found.mbps == pytest.approx([30.0, LINK, LINK])


def test_more_than_twice_what_a_queue_lets_through_shows_what_datagrams_want():
    seen = traffic((0, 1, 20.0, [0, 2]), (1, 2, 5.0, [0, 2]), (2, 3, 4.0, [1, 2]))
    load, capacity = [10.0, 10.0, 20.0], [10.0, 10.0, 100.0]
    found = estimated(seen, load, capacity, came=[25.0, 4.0, 0.0])
    beyond = 20 * HEADROOM + 5 * HEADROOM + 4 - 3 * COMPARABLE * 4
    assert found.constrained.all()
    assert found.expected_mbps == pytest.approx([20 * HEADROOM, 5 * HEADROOM, 4 + beyond / 2])
    less = estimated(seen, load, capacity, came=[20.0, 4.0, 0.0])
    assert less.expected_mbps.tolist() == less.mbps.tolist(), "TCP may send as much"


def test_mice_are_no_sample_of_elephants():
    """A thousand small flows do not reduce a greedy elephant's demand."""
    mice = [(3, 1, 0.001, [1])] * 1000
    found = estimated(traffic((0, 1, 9.0, [0]), *mice), [9.0, 1.0], [10.0, 100.0])
    assert found.expected_mbps[0] == found.mbps[0] == pytest.approx(LINK, rel=0.02)


def test_what_is_known_from_before_is_no_guess():
    seen = traffic(
        (0, 1, 5.0, [0]), (1, 2, 5.0, [0]), most_mbps=np.array([20.0, np.inf]),
    )  # fmt: skip
    found = estimated(seen, [10.0], [10.0])
    assert found.expected_mbps == pytest.approx([20.0, 5 + 20 + 5 - 2 * COMPARABLE * 5])


@given(entries, fullness, st.lists(st.integers(0, 64), min_size=12, max_size=12))
def test_nothing_is_expected_to_want_more_than_it_may(rows, load, connections):
    found, seen = drawn(rows, load, connections)
    assert (found.expected_mbps > 0).all()
    assert (found.expected_mbps <= found.mbps).all()
    free = ~found.constrained
    assert (found.expected_mbps[free] == found.mbps[free]).all()
    assert (found.expected_mbps >= np.minimum(seen.mbps, found.mbps)).all()


def test_plans_are_made_for_something_between_what_is_sent_and_what_is_wanted():
    sent, wanted = np.array([[0.0, 4.0], [9.0, 0.0]]), np.array([[0.0, 100.0], [0.0, 0.0]])
    assert (wanted * surety(sent, wanted)).tolist() == [[0.0, 20.0], [0.0, 0.0]]
    assert (surety(25 * sent + 100, wanted) == 1).all(), "who sends more is no surer than sure"
    assert surety(sent, np.zeros((2, 2))).tolist() == [[1.0, 1.0], [1.0, 1.0]]
