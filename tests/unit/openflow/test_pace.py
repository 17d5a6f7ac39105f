"""How fast a connection on TLS is read."""

from apps.openflow.seam import BURST, MESSAGES_PER_S, REST_S, Pace


def test_who_says_no_more_than_others_never_rests():
    pace = Pace(0.0)
    assert not any(pace.rest_s(100, second / 10) for second in range(1000))


def test_who_says_too_much_rests_and_is_heard_at_the_rate():
    pace, now_s, said = Pace(0.0), 0.0, 0
    while now_s < 100.0:
        said += 32
        now_s += pace.rest_s(32, now_s)
    most = BURST + MESSAGES_PER_S * (100.0 + REST_S)
    assert 0.9 * most < said <= most + 32


def test_after_a_silence_a_burst_is_heard_and_no_more():
    pace = Pace(0.0)
    assert pace.rest_s(int(BURST) + 1, 0.0) == REST_S
    assert pace.rest_s(0, 1e6) == 0.0
    assert pace.rest_s(int(BURST), 1e6) == 0.0
    assert pace.rest_s(1, 1e6) == REST_S


def test_a_stranger_rests_after_each_look():
    pace = Pace(0.0)
    pace.is_stranger = True
    assert pace.rest_s(1, 0.0) == REST_S
    assert pace.rest_s(0, REST_S) == 0.0
