"""Leadership on a real etcd: the lease, its end, and the standbys' reports."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
import uuid
from contextlib import closing
from dataclasses import replace

import pytest

from apps.controller.mastership import Mastership
from apps.etcd.gateway import Etcd, EtcdUnanswered, delete, get, put
from apps.etcd.leadership import boot_s
from apps.etcd.roster import leader_name
from apps.openflow.fleet import Fleet
from hydra.errors import LifecycleError
from mininet_scenarios.stage.etcd_members import EtcdMembers
from tests.unit.controller.test_mastership import FABRIC, V1, SharedSwitch
from tests.unit.etcd.candidates import LONG_S, Candidate, candidate
from tests.waiting import HANGS_S, PATIENCE_S, wait_until

pytestmark = pytest.mark.takes(20)

LEASE_S = 7
"""Longer than the default: a busy machine delays a renewal by up to 3 s."""


def await_standby(leader):
    wait_until(lambda: leader.leadership.replicas().standing_by)


@pytest.fixture
def settings(etcd):
    return etcd.settings(f"/test/{uuid.uuid4().hex}/", LEASE_S)


def test_one_leads_and_the_next_as_soon_as_it_ends(etcd):
    settings = etcd.settings(f"/test/{uuid.uuid4().hex}/", 120)
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        assert not a.leadership.over()
        assert "reads the journal: ask again" in a.leadership.standby().words
        a.leadership.note_begun()
        assert a.leadership.standby() is None
        with candidate(settings, "b") as b:
            await_standby(a)
            found, seen_by_a = b.leadership.replicas(), a.leadership.replicas()
            assert (found.leader, found.standing_by) == (seen_by_a.leader, seen_by_a.standing_by)
            assert (found.leader.name, found.leader.url) == ("a", "http://a:8080")
            assert [one.name for one in found.standing_by] == ["b"]
            assert [(one.answers, one.leads) for one in found.store] == [(True, True)]
            assert b.leadership.over()
            assert b.leadership.generation is None
            wait_until(lambda: b.leadership.standby().leader == found.leader)
            assert b.leadership.standby().words == (
                "this controller stands by, and a leads: ask at http://a:8080"
            )
            first = a.leadership.generation
            a.leadership.take_no_more()
            assert "this controller ends, and another controller leads soon" in a.words
            assert not a.leadership.over(), "what is under way is finished"
            assert 0 < a.leadership.remaining_s() < 120
            assert b.leadership.remaining_s() == 0
            a.leadership.resign()
            assert a.leadership.over()
            assert (b.leadership.over(), leader_name(settings)) == (True, "a"), "not yet"
            given_back_s = boot_s()
            a.leadership.close()
            assert b.leads.get(timeout=LONG_S) - given_back_s < HANGS_S
            assert b.leadership.generation > first
            assert a.leadership.over()
            assert leader_name(settings) == "b"
    assert leader_name(settings) is None
    assert a.leads.empty()


def floor(settings):
    """The offset of generations stored in etcd; None: none."""
    with closing(Etcd(settings)) as etcd:
        found = etcd.transaction([], [get(f"{settings.prefix}floor")]).found[0]
    return int(found[0].value) if found else None


def test_generations_exceed_those_of_a_store_before_and_so_do_those_of_later_leaders(settings):
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        first = a.leadership.generation
        assert a.leadership.exceed(first - 1), "it does"
        assert (a.leadership.generation, floor(settings)) == (first, None)
        highest = first
        for ahead in (1 << 40, 1, 1 << 50):
            known = highest + ahead
            assert a.leadership.exceed(known)
            highest = a.leadership.generation
            assert known < highest <= known + (1 << 28)
        assert not a.leadership.exceed(1 << 62), "that is no leader's"
        assert not a.leadership.exceed(2**64 - 2)
        assert a.leadership.generation == highest
        with candidate(settings, "b") as b:
            await_standby(a)
            assert not b.leadership.exceed(0)
            a.leadership.close()
            b.leads.get(timeout=LONG_S)
            assert b.leadership.generation >= highest + (1 << 28)
            assert not a.leadership.exceed(highest)


def test_a_leader_whose_place_another_one_has_raises_no_generations(settings):
    """As after a pause: the leader's own clock has not shown the end yet."""
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        first, leader = a.leadership.generation, f"{settings.prefix}leader"
        with closing(Etcd(settings)) as etcd:
            text = etcd.transaction([], [get(leader)]).found[0][0].value
            etcd.transaction([], [delete(leader)])
            etcd.transaction([], [put(leader, text)])
        assert not a.leadership.exceed(first + (1 << 40))
        assert (a.leadership.generation, floor(settings)) == (first, None)


def test_an_answer_about_generations_that_is_lost_is_found_out(settings, monkeypatch):
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        known, observer = a.leadership.generation + (1 << 40), a.leadership._observer
        ask = observer.transaction

        def lose(*arguments, **named):
            ask(*arguments, **named)
            raise EtcdUnanswered("no answer")

        with monkeypatch.context() as losing:
            losing.setattr(observer, "transaction", lose)
            assert not a.leadership.exceed(known)
        assert a.leadership.generation <= known
        raised = floor(settings)
        assert a.leadership.exceed(known)
        assert floor(settings) == raised
        assert a.leadership.generation > known


def test_switches_take_the_leader_of_an_etcd_that_was_set_up_anew(tmp_path):
    """The new etcd's revisions begin at 1, below the generations that switches know."""
    switch, generations = SharedSwitch(), []
    for name in ("old", "new", "newer"):
        with EtcdMembers(tmp_path / name) as members, closing(Etcd(members.settings())) as etcd:
            for _ in range(0 if name == "new" else 20):
                etcd.transaction([], [put("others", "x")])
            with candidate(members.settings(lease_s=LEASE_S), name) as one:
                one.leads.get(timeout=LONG_S)
                fleet = Fleet(FABRIC, lambda function: function())
                switch.serve(fleet)
                mastership = Mastership(
                    fleet=fleet,
                    names={V1: "h11"},
                    timeout_s=PATIENCE_S,
                    term=one.leadership,
                    counts=False,
                )
                assert mastership.take([V1]) == {V1}
                assert switch.master is fleet
        generations.append(switch.generation)
    assert generations == sorted(set(generations))


def test_a_leader_is_asked_to_hand_over_only_where_somebody_stands_by(settings):
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        with pytest.raises(LifecycleError, match="no controller stands by to lead"):
            a.leadership.hand_over()
        with candidate(settings, "b"):
            await_standby(a)
            assert [one.name for one in a.leadership.hand_over()] == ["b"]
        assert "handed over, as requested, to a controller of b" in str(a.ended.get_nowait())


def test_a_leader_hands_over_to_nobody_whom_switches_have_yet_to_find(settings):
    with candidate(settings, "a") as a, candidate(settings, "b") as b:
        wait_until(lambda: a.leadership.leads or b.leadership.leads)
        leader, other = (a, b) if a.leadership.leads else (b, a)
        leader.switches = 14
        await_standby(leader)
        with pytest.raises(LifecycleError, match="has 0 of the 14 switches connected"):
            leader.leadership.hand_over()
        other.switches = 14
        wait_until(lambda: leader.leadership.replicas().standing_by[0].switches == 14)
        assert leader.leadership.replicas().leader.switches == 14
        assert len(leader.leadership.hand_over()) == 1


def test_a_controller_of_another_release_may_tell_less_of_itself_or_more(settings):
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        other = {"id": "x", "name": "b", "url": "", "release": "0", "since_unix_s": 0.0, "new": 1}
        etcd = Etcd(settings)
        etcd.transaction([], [put(f"{settings.prefix}replicas/x", json.dumps(other))])
        etcd.close()
        assert [one.switches for one in a.leadership.replicas().standing_by] == [None]
        assert [one.name for one in a.leadership.hand_over()] == ["b"]


def test_releases_hand_over_to_each_other_and_back(settings):
    """As in a rolling upgrade, and a handover that is given up."""
    with candidate(settings, "a", "1.0") as a:
        a.leads.get(timeout=LONG_S)
        with candidate(settings, "b", "2.0") as b:
            await_standby(a)
            found = a.leadership.replicas()
            assert [found.leader.release, *(one.release for one in found.standing_by)] == [
                "1.0",
                "2.0",
            ]
            assert [one.name for one in a.leadership.hand_over()] == ["b"]
            first = a.leadership.generation
            a.leadership.close()
            b.leads.get(timeout=LONG_S)
            with candidate(settings, "a", "1.0") as again:
                await_standby(b)
                assert [one.release for one in b.leadership.hand_over()] == ["1.0"]
                second = b.leadership.generation
                b.leadership.close()
                again.leads.get(timeout=LONG_S)
                assert first < second < again.leadership.generation


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"name": "b", "url": "http://b:1", "release": "9", "since_unix_s": 1.0, "new": [1]}, "b"),
        ({"id": "x"}, "unnamed"),
    ],
)
def test_a_leader_of_another_release_may_tell_less_of_itself_or_more(settings, told, words):
    """A standby keeps looking, and leads after the former leader."""
    with closing(Etcd(settings)) as etcd:
        key = f"{settings.prefix}leader"
        etcd.transaction([], [put(key, json.dumps(told))])
        with candidate(settings, "a") as a:
            wait_until(lambda: a.leadership.standby().leader is not None)
            assert f"{words} leads: ask at {told.get('url', '')}" in a.leadership.standby().words
            assert a.leadership.replicas().leader.release == told.get("release", "")
            assert leader_name(settings) == words
            etcd.transaction([], [delete(key)])
            a.leads.get(timeout=LONG_S)


def test_whoever_stands_by_looks_more_often_once_the_leader_ends(etcd):
    """With a lease of twenty minutes, a standby otherwise looks every two minutes."""
    settings = etcd.settings(f"/test/{uuid.uuid4().hex}/", 1200)
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        asked_s = boot_s()
        a.leadership.end_soon()
        assert boot_s() - asked_s < HANGS_S, "it waits for nobody where nobody stands by"
        with candidate(settings, "b") as b:
            await_standby(a)
            wait_until(lambda: b.leadership.standby().leader is not None)
            given_back_s = boot_s()
            a.leadership.close()
            assert b.leads.get(timeout=LONG_S) - given_back_s < HANGS_S
            assert not b.leadership._leader_ends


@pytest.mark.quiet("tells 1.5 s from 3 s")
def test_a_leader_leads_until_those_that_stand_by_look_more_often(etcd, monkeypatch):
    """The standbys looked just before the notice, and would look next after three seconds."""
    settings = etcd.settings(f"/test/{uuid.uuid4().hex}/", 30)
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        with candidate(settings, "b") as b:
            await_standby(a)
            looked, look = threading.Event(), b.leadership._look

            def looking():
                another = look()
                looked.set()
                return another

            monkeypatch.setattr(b.leadership, "_look", looking)
            assert looked.wait(LONG_S)
            a.leadership.end_soon()
            assert not a.leadership.over()
            given_back_s = boot_s()
            a.leadership.close()
            assert b.leads.get(timeout=LONG_S) - given_back_s < 1.5


@pytest.mark.quiet("asks whether a leader ends within its lease")
def test_a_leader_that_etcd_does_not_answer_ends_before_its_lease(tmp_path):
    """By the leader's own clock, from before the request of the last answered renewal."""
    with EtcdMembers(tmp_path, 1) as members:
        settings = members.settings(lease_s=LEASE_S)
        with candidate(settings, "a") as a:
            a.leads.get(timeout=LONG_S)
            members.signal(members.names[0], signal.SIGSTOP)
            stopped_s = boot_s()
            ended_s, why = a.lost.get(timeout=LONG_S)
            members.signal(members.names[0], signal.SIGCONT)
            assert ended_s - stopped_s < LEASE_S
            assert a.leadership.over()
            assert why.startswith(f"the lease of {LEASE_S} s was not renewed: etcd http://127")
            assert "did not answer within" in why


@pytest.mark.quiet("asks for a part of a lease")
def test_a_renewal_that_is_not_answered_is_repeated_at_once(tmp_path, monkeypatch):
    """etcd may elect a leader meanwhile, and every part of a lease counts."""
    with (
        EtcdMembers(tmp_path, 1) as members,
        candidate(members.settings(lease_s=LEASE_S), "a") as a,
    ):
        a.leads.get(timeout=LONG_S)
        asked: list[tuple[float, float]] = []

        def ask(*args, **options):
            began_s = boot_s()
            try:
                return renew(*args, **options)
            except EtcdUnanswered:
                asked.append((began_s, boot_s()))
                raise

        renew = a.leadership._etcd.ask
        monkeypatch.setattr(a.leadership._etcd, "ask", ask)
        members.signal(members.names[0], signal.SIGSTOP)
        wait_until(lambda: len(asked) > 1)
        members.signal(members.names[0], signal.SIGCONT)
        (began_s, gave_up_s), (again_s, _) = asked[:2]
        assert again_s - gave_up_s < LEASE_S / 10
        assert gave_up_s - began_s < LEASE_S / 3, "the lease counts from when it was asked for"


def test_a_leader_says_that_etcd_has_not_answered_yet(tmp_path):
    """The lease ends while the leader still waits for an answer."""
    with (
        EtcdMembers(tmp_path, 1) as members,
        candidate(members.settings(lease_s=LEASE_S), "a") as a,
    ):
        a.leadership._patience_s = a.leadership._try_s = LONG_S
        a.leads.get(timeout=LONG_S)
        members.signal(members.names[0], signal.SIGSTOP)
        _, why = a.lost.get(timeout=LONG_S)
        members.signal(members.names[0], signal.SIGCONT)
        words = rf"the lease of {LEASE_S} s was not renewed: etcd \S+ has not answered for \d"
        assert re.match(words, why), why


def test_a_leader_that_was_paused_says_so(settings):
    one = Candidate(settings, "a").leadership
    paused = "the process did not run when the lease ended, 4.2 s ago"
    assert one._why_not_renewed(4.2) == paused
    late = "the thread that renews the lease did not run in time"
    assert one._why_not_renewed(0.01) == late
    one._granted_s = boot_s() - LEASE_S
    one._asked_s = boot_s()
    assert one._why_not_renewed(0.01).startswith(f"{late}, and etcd http://")


def test_a_leader_whose_lease_etcd_has_ended_ends(settings):
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        etcd = Etcd(settings)
        etcd.ask("/lease/revoke", {"ID": str(a.leadership._lease)})
        etcd.close()
        _, why = a.lost.get(timeout=LONG_S)
        assert why == "etcd has ended the lease of this controller"


def test_a_leader_that_a_switch_says_is_followed_asks_etcd_at_once(settings, monkeypatch):
    """The leader does not wait for the next renewal of its lease."""
    with candidate(settings, "a") as a, closing(Etcd(settings)) as etcd:
        a.leads.get(timeout=LONG_S)
        monkeypatch.setattr(a.leadership, "_renew", lambda: None)
        a.leadership._look_at_once()
        assert a.lost.empty(), "a switch may say anything"
        etcd.transaction([], [delete(a.leadership._roster.leader_key)])
        a.leadership.look_at_once()
        _, why = a.lost.get(timeout=LONG_S)
        assert "no longer belongs to this controller" in why


def test_a_leader_that_has_lost_its_key_ends(settings):
    with candidate(settings, "a") as a:
        a.leads.get(timeout=LONG_S)
        etcd = Etcd(settings)
        etcd.transaction([], [delete(f"{settings.prefix}leader")])
        etcd.close()
        _, why = a.lost.get(timeout=LONG_S)
        assert (
            why == f"the key {settings.prefix}leader of etcd no longer belongs to this controller"
        )


def test_a_password_that_is_not_there_is_told(settings):
    without = replace(settings, username="hydra", password_env="HYDRA_TEST_NO_PASSWORD")
    with candidate(without, "a") as a:
        words = "HYDRA_TEST_NO_PASSWORD is not set"
        wait_until(lambda: words in a.leadership.standby().words)


@pytest.mark.parametrize("missing", ["authority", "certificate"])
def test_a_certificate_s_file_that_is_not_there_for_a_moment_is_told(settings, tmp_path, missing):
    """As during a renewal of the files: requests reads the files before each request."""
    files = {"authority": None, "certificate": None, "key": None}
    named = {missing: str(tmp_path / "new.pem"), **({} if missing == "authority" else {"key": "k"})}
    tls = tuple(one.replace("http:", "https:") for one in settings.endpoints)
    with candidate(replace(settings, endpoints=tls, **{**files, **named}), "a") as a:
        wait_until(lambda: f"invalid path: {tmp_path / 'new.pem'}" in a.words)


def test_a_standby_outlives_what_is_no_leader_s_key(settings):
    etcd = Etcd(settings)
    key = f"{settings.prefix}leader"
    etcd.transaction([], [put(key, "somebody's")])
    with candidate(settings, "a") as a:
        words = f"the key {key} of etcd has content that no controller writes: delete the key"
        wait_until(lambda: words in a.words)
        assert words in a.leadership.replicas().problem
        etcd.transaction([], [delete(key)])
        etcd.close()
        a.leads.get(timeout=LONG_S)


def test_a_standby_whose_lease_has_ended_takes_another(settings):
    with candidate(settings, "a") as a, candidate(settings, "b") as b:
        wait_until(lambda: not (a.leadership.over() and b.leadership.over()))
        leader, other = (b, a) if a.leadership.over() else (a, b)
        await_standby(leader)
        wait_until(lambda: other.leadership._lease)  # None while the client requests a new token
        etcd = Etcd(settings)
        etcd.ask("/lease/revoke", {"ID": str(other.leadership._lease)})
        etcd.close()
        await_standby(leader)
        leader.leadership.close()
        other.leads.get(timeout=LONG_S)
        assert other.lost.empty()


def test_one_member_of_three_may_be_stopped(tmp_path):
    """A stopped member accepts requests and never answers: the client asks other members."""
    with (
        EtcdMembers(tmp_path, 3) as members,
        candidate(members.settings(lease_s=LEASE_S), "a") as a,
    ):
        a.leads.get(timeout=LONG_S)
        members.signal(members.names[0], signal.SIGSTOP)
        time.sleep(1.5 * LEASE_S)  # timed: a lease without renewals ends
        assert a.lost.empty()
        members.signal(members.names[0], signal.SIGCONT)
        assert not a.leadership.over()
