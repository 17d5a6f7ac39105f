import numpy as np

from hydra.demand.uncongested_demand import KnownDemand


def known_at(now_s, mbps):
    """Demand of two racks: the first rack's measured demand, without congestion."""
    known = KnownDemand(2, memory_s=60.0)
    known.learn(pair(mbps), np.array([[False, True], [False, False]]), now_s)
    return known


def pair(mbps):
    return np.array([[0.0, mbps], [0.0, 0.0]])


def test_what_was_measured_is_the_most_that_is_wanted_later():
    assert np.isinf(KnownDemand(2, memory_s=60.0).most_mbps(pair(5.0), 0.0)).all()
    most = known_at(10.0, 31.5).most_mbps(pair(5.0), 20.0)
    assert most[0, 1] == 31.5
    assert np.isinf(most[1, 0])


def test_it_is_forgotten_in_time():
    assert known_at(10.0, 31.5).most_mbps(pair(5.0), 70.0)[0, 1] == 31.5
    assert np.isinf(known_at(10.0, 31.5).most_mbps(pair(5.0), 70.1)[0, 1])
    assert np.isinf(known_at(10.0, 31.5).most_mbps(pair(5.0), 9.9)[0, 1]), "the clock went back"


def test_it_is_forgotten_as_soon_as_more_is_sent():
    known = known_at(10.0, 31.5)
    assert np.isinf(known.most_mbps(pair(31.6), 11.0)[0, 1])
    assert np.isinf(known.most_mbps(pair(20.0), 12.0)[0, 1])


def test_what_was_silent_may_begin():
    known = known_at(10.0, 0.0)
    assert np.isinf(known.most_mbps(pair(0.1), 11.0)[0, 1])


SEEN = np.array([[False, True], [False, False]])


def forgotten_after_s(known, now_s):
    """Time from a measurement at ``now_s`` until it is forgotten."""
    times = (now_s + 60.0 * step for step in range(1, 100))
    return next(t for t in times if np.isinf(known.most_mbps(pair(1.0), t + 1)[0, 1])) - now_s


def test_what_is_found_again_as_it_was_is_remembered_longer_each_time():
    known, now_s, times_s = known_at(0.0, 20.0), 0.0, []
    for _ in range(5):
        times_s.append(forgotten_after_s(known, now_s))
        now_s += 10_000.0
        known.learn(pair(20.0 + len(times_s)), SEEN, now_s)
    assert times_s == [60.0, 240.0, 960.0, 3600.0, 3600.0]


def test_what_has_changed_is_forgotten_as_soon_as_at_first():
    known = known_at(0.0, 20.0)
    known.learn(pair(20.0), SEEN, 100.0)
    assert forgotten_after_s(known, 100.0) == 240.0
    known.learn(pair(30.0), SEEN, 1000.0)
    assert forgotten_after_s(known, 1000.0) == 60.0


def test_it_is_remembered_no_longer_while_it_is_seen_all_the_time():
    known = known_at(0.0, 20.0)
    for second in range(1000):
        known.learn(pair(20.0), SEEN, float(second))
    assert forgotten_after_s(known, 999.0) == 60.0
