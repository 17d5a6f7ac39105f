"""Obstacles to a takeover: dead members of etcd, different clocks, different files."""

from __future__ import annotations

import uuid
from contextlib import closing, contextmanager

import pytest

from apps.etcd.gateway import Etcd
from apps.etcd.survey import CLOCK_TOLERANCE_S, Survey
from mininet_scenarios.stage.etcd_members import EtcdMembers
from tests.unit.etcd.candidates import LONG_S, candidate
from tests.waiting import wait_until

LEASE_S = 60
NOW_S = 1_000_000.0


class Clock:
    def __init__(self, ahead_s=0.0):
        self.ahead_s = ahead_s

    def __call__(self):
        return NOW_S + self.ahead_s


@pytest.fixture
def settings(etcd):
    return etcd.settings(f"/test/{uuid.uuid4().hex}/", LEASE_S)


@contextmanager
def survey(settings, name, *, clock, leads=True, file="f"):
    """A survey for a controller with a lease; its thread does not run."""
    with closing(Etcd(settings)) as etcd:
        lease = int(etcd.ask("/lease/grant", {"TTL": str(LEASE_S), "ID": "0"})["ID"])
        one = Survey(settings, name, name, lambda: lease, lambda: leads, lambda: file, clock)
        one.publish()
        try:
            yield one
        finally:
            one.stop()
            etcd.ask("/lease/revoke", {"ID": str(lease)})


def told(one):
    one.look()
    return [(risk.name, risk.why) for risk in one.risks]


@pytest.mark.parametrize("ahead_s", [-30.0, 30.0])
def test_a_clock_that_is_apart_is_told_until_it_is_right(settings, ahead_s):
    ours, theirs = Clock(), Clock(ahead_s)
    with survey(settings, "a", clock=ours) as a, survey(settings, "b", clock=theirs) as b:
        told(a)  # the first look can't give the time since which a member lags
        b.publish()
        ((name, why),) = told(a)
        how = "ahead of" if ahead_s > 0 else "behind"
        assert (name, f"the clock of b is 30 s or more {how} this" in why) == ("b", True)
        theirs.ahead_s = 0.0
        b.publish()
        assert told(a) == []


@pytest.mark.parametrize("between_s", [0.0, 5.0, 600.0])
def test_clocks_that_agree_are_not_told_however_rarely_they_are_looked_at(settings, between_s):
    time = Clock()
    with survey(settings, "a", clock=time) as a, survey(settings, "b", clock=time) as b:
        for _ in range(3):
            assert told(a) == []
            time.ahead_s += between_s
            b.publish()
            time.ahead_s += between_s
            assert told(a) == []


def test_a_difference_that_little_hangs_on_is_not_told(settings):
    ours, theirs = Clock(), Clock(CLOCK_TOLERANCE_S / 2)
    with survey(settings, "a", clock=ours) as a, survey(settings, "b", clock=theirs) as b:
        told(a)
        b.publish()
        assert told(a) == []


def test_files_that_differ_are_told(settings):
    clock = Clock()
    with survey(settings, "a", clock=clock) as a:
        with survey(settings, "b", clock=clock, file="another"):
            ((name, why),) = told(a)
            assert (name, "b has a different configuration file" in why) == ("b", True)
        assert told(a) == [], "it has ended"


def test_who_does_not_lead_tells_nothing(settings):
    clock = Clock()
    with (
        survey(settings, "a", clock=clock, leads=False) as a,
        survey(settings, "b", clock=clock, file="another"),
    ):
        assert told(a) == []


def test_a_dead_member_is_told_by_the_leader(tmp_path):
    with EtcdMembers(tmp_path, 3) as etcd:
        settings = etcd.settings("/test/", LEASE_S)
        with candidate(settings, "a") as a:
            a.leads.get(timeout=LONG_S)
            wait_until(lambda: a.leadership._survey._looked_unix_s > 0)
            assert a.leadership.risks() == ()
            name = next(one for one in ("m1", "m2", "m3") if one != etcd.leader())
            endpoint = etcd.endpoint(name)
            etcd.kill(name)
            wait_until(lambda: [one.name for one in a.leadership.risks()] == [endpoint])
            (risk,) = a.leadership.risks()
            assert risk.why == f"etcd {endpoint} does not answer: start the member again"
