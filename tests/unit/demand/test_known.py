import numpy as np

from hydra.demand.known import KnownDemand


def known_at(now_s, mbps):
    """Of two racks: the first wanted so much of the other, and nothing was in its way."""
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
