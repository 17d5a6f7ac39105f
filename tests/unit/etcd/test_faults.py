"""Faults of etcd, after which a leader goes on or ends as intended; on real members.

A lost quorum is in tests/integration/test_replicas.py, a stopped member in test_leadership.py, lost
requests and replies in tests/unit/journal/test_etcd.py.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import apps.journal.reading as reading_module
from apps.etcd.gateway import Etcd, EtcdRefused, delete, put
from apps.journal.copy import Copying
from apps.journal.etcd import EtcdJournal
from hydra.journal import Change, JournalError, Kind
from mininet_scenarios.stage.etcd_members import QUICK, EtcdMembers
from tests.unit.etcd.candidates import LONG_S, candidate
from tests.waiting import wait_until

pytestmark = pytest.mark.takes(90)
LEASE_S, LONG_LEASE_S = 7, 10
"""Longer than the default: a busy machine delays a renewal by up to 3 s."""
QUOTA_BYTES = 16 << 20
DEPLOY = Path(__file__).parents[3] / "deploy"


def webhook(key):
    return Change(Kind.WEBHOOK, key, {"id": key})


def ids(journal):
    return [record["id"] for record in journal.records(Kind.WEBHOOK)]


def goes_on(leader, journal, lease_s):
    """The candidate leads, and its journal can be written, for longer than its lease."""
    until_s = time.monotonic() + 1.5 * lease_s
    while time.monotonic() < until_s:
        journal.write([webhook("a")])
        assert leader.lost.empty()
        assert not leader.leadership.over()
        time.sleep(0.1)


@contextmanager
def leading(settings):
    with candidate(settings, "a") as leader, closing(EtcdJournal(settings, later=True)) as journal:
        leader.leads.get(timeout=LONG_S)
        journal.open(leader.leadership.conditions())
        yield leader, journal


def test_the_leader_of_etcd_is_killed(tmp_path):
    """Another etcd leader is elected within a second or two, and the lease is renewed there."""
    with (
        EtcdMembers(tmp_path, 3) as members,
        leading(members.settings(lease_s=LONG_LEASE_S)) as (leader, journal),
    ):
        for _ in range(2):
            name = members.leader()
            members.kill(name)
            goes_on(leader, journal, LONG_LEASE_S)
            members.start(name)
            members.await_quorum()


def test_members_of_the_benchmark_elect_as_those_that_operators_are_given():
    told = (DEPLOY / "three-machines" / "etcd").read_text()
    options = dict(zip(QUICK[::2], QUICK[1::2], strict=True))
    assert f"\nETCD_HEARTBEAT_INTERVAL={options['--heartbeat-interval']}\n" in told
    assert f"\nETCD_ELECTION_TIMEOUT={options['--election-timeout']}\n" in told


def test_a_slow_etcd_is_waited_for(tmp_path):
    """As with a slow disk or machine: the member stands still most of the time."""
    with (
        EtcdMembers(tmp_path, 1) as members,
        leading(members.settings(lease_s=LONG_LEASE_S)) as (leader, journal),
    ):
        over = threading.Event()

        def stand_still():
            while not over.wait(0.1):
                members.signal("m1", signal.SIGSTOP)
                time.sleep(0.4)
                members.signal("m1", signal.SIGCONT)

        slow = threading.Thread(target=stand_still)
        slow.start()
        try:
            goes_on(leader, journal, LONG_LEASE_S)
        finally:
            over.set()
            slow.join()


def fill(etcd):
    """Fill the store, as other clients might; versions of a key count."""
    with pytest.raises(EtcdRefused, match="space exceeded"):
        for _ in range(1000):
            etcd.transaction([], [put("others", "x" * 300_000)], patience_s=LONG_S)


def free(etcd):
    """The commands in the operator's guide."""
    revision = etcd.transaction([], [delete("others")]).revision
    etcd.ask("/kv/compaction", {"revision": str(revision), "physical": True})
    etcd.ask("/maintenance/defragment", {}, patience_s=LONG_S)
    raised = etcd.ask("/maintenance/alarm", {"action": "GET"})["alarms"]
    for alarm in raised:
        etcd.ask("/maintenance/alarm", {**alarm, "action": "DEACTIVATE"})


def test_the_space_of_etcd_is_full(tmp_path):
    """The leader goes on leading, without new promises; no other controller leads. With space, the
    fault is over.
    """
    with EtcdMembers(tmp_path, 1, [f"--quota-backend-bytes={QUOTA_BYTES}"]) as members:
        settings = members.settings(lease_s=LEASE_S)
        with closing(Etcd(settings)) as etcd, leading(settings) as (leader, journal):
            journal.write([webhook("a")])
            with candidate(settings, "b") as other:
                wait_until(lambda: leader.leadership.replicas().standing_by)
                fill(etcd)
                for _ in range(2 * LEASE_S):
                    with pytest.raises(JournalError, match=r"etcd's space is full.*disarm"):
                        journal.write([webhook("b")])
                    time.sleep(1)  # timed: for two leases
                assert leader.lost.empty()
                assert not leader.leadership.over()
                assert "a leads: ask at" in other.words
                other.switches += 1  # a difference that the client can't see
                with candidate(settings, "c") as late:
                    wait_until(lambda: late.leadership.standby().leader)
                    time.sleep(LEASE_S)
                    for one in (other, late):
                        assert "a leads: ask at" in one.words
                        assert one.leadership.standby().store_lost is None
                (member,) = leader.leadership.replicas().store
                assert "NOSPACE" in str(member.problems)
                leader.leadership.close()
                time.sleep(LEASE_S)
                assert other.leads.empty()
                assert "space exceeded" in other.words
                free(etcd)
                other.leads.get(timeout=LONG_S)
                journal.open(other.leadership.conditions())
                journal.write([webhook("c")])
                assert ids(journal) == ["a", "c"]


def signed_by(folder):
    """Options of an etcd with JSON Web Tokens, as in its documents."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / "private.pem", folder / "public.pem"
    unsealed = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(pem, pkcs8, unsealed))
    told = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(pem, told))
    return ("--auth-token", f"jwt,pub-key={public},priv-key={private},sign-method=ES256,ttl=10m")


@pytest.mark.parametrize("options", [lambda _folder: (), signed_by], ids=["simple", "jwt"])
def test_users_of_etcd_change_and_the_leader_goes_on(tmp_path, monkeypatch, options):
    monkeypatch.setenv("HYDRA_TEST_ETCD_PASSWORD", "secret")
    cheap = (
        "--bcrypt-cost",
        "4",
    )  # otherwise a busy etcd takes longer to check a password than a lease lasts
    with EtcdMembers(tmp_path / "members", options=(*options(tmp_path), *cheap)) as members:
        settings = replace(
            members.settings(lease_s=LEASE_S), password_env="HYDRA_TEST_ETCD_PASSWORD"
        )
        # A user is added only once: the request is not repeated.
        with closing(Etcd(members.settings(), try_s=LONG_S)) as anybody:
            anybody.ask("/auth/role/add", {"name": "root"})
            for name in ("root", "hydra"):
                anybody.ask("/auth/user/add", {"name": name, "password": "secret"})
                anybody.ask("/auth/user/grant", {"user": name, "role": "root"})
            anybody.ask("/auth/enable", {})
        with (
            closing(Etcd(replace(settings, username="root"), try_s=LONG_S)) as operator,
            leading(replace(settings, username="hydra")) as (leader, journal),
        ):
            for number in range(2):
                operator.ask("/auth/user/add", {"name": f"monitor{number}", "password": "other"})
                journal.write([webhook("a")])
            goes_on(leader, journal, LEASE_S)


def test_clocks_that_are_set_change_nothing(etcd, monkeypatch):
    """A lease is counted by a clock that can't be set."""
    with leading(etcd.settings(f"/test/{uuid.uuid4().hex}/", LEASE_S)) as (leader, journal):
        now_s = time.time
        for by_s in (86_400.0, -86_400.0):
            with monkeypatch.context() as patch:
                patch.setattr(time, "time", lambda by_s=by_s: now_s() + by_s)
                goes_on(leader, journal, LEASE_S)


@pytest.mark.parametrize("reader", ["journal", "copy"])
def test_etcd_compacts_what_is_being_read(etcd, monkeypatch, reader):
    """A read is of one revision, which a compaction removes between two pages."""
    monkeypatch.setattr(reading_module, "PAGE", 2)
    settings = etcd.settings(f"/test/{uuid.uuid4().hex}/")
    with closing(EtcdJournal(settings)) as journal, closing(Etcd(settings)) as other:
        journal.write([webhook(str(one)) for one in range(7)])
        ask, compacted = Etcd.ask, []

        def compacting(self, path, body, **more):
            answer = ask(self, path, body, **more)
            if self is not other and not compacted:
                compacted.append(True)
                journal.write([webhook("7")])
                revision = other.transaction([], []).revision
                other.ask("/kv/compaction", {"revision": str(revision), "physical": True})
            return answer

        if reader == "journal":
            with closing(EtcdJournal(settings, read_only=True)) as looking:
                monkeypatch.setattr(Etcd, "ask", compacting)
                assert ids(looking) == [*map(str, range(8))]
        else:
            with closing(Copying(settings)) as copies:
                monkeypatch.setattr(Etcd, "ask", compacting)
                assert len(copies.look().records(Kind.WEBHOOK)) == 8
        assert compacted
