"""A copy of the journal in a real etcd is what the journal is, whatever was written in between."""

from __future__ import annotations

import json
import signal
import uuid
from contextlib import closing

import pytest

from apps.etcd.gateway import Etcd, put
from apps.journal import copy as copy_module
from apps.journal.copy import Copying
from apps.journal.etcd import EtcdJournal
from hydra.journal import KEPT, Change, JournalError, JournalOfAnotherFormat, Kind
from mininet_scenarios.stage.etcd_members import EtcdMembers

KINDS = (Kind.WEBHOOK, Kind.DECISION)


def webhook(key, **record):
    return Change(Kind.WEBHOOK, key, {"id": key, **record})


def read(copy, kind):
    return [json.loads(text)["record"] for text in copy.texts(kind).values()]


def test_it_is_what_the_journal_is(etcd, monkeypatch):
    monkeypatch.setattr(copy_module, "_PAGE", 7)
    monkeypatch.setitem(KEPT, Kind.DECISION, 5)
    settings = etcd.settings(f"/test/{uuid.uuid4().hex}/")
    with closing(Copying(settings, KINDS)) as copies:
        assert copies.last is None
        assert read(copies.look(), Kind.WEBHOOK) == []
        with closing(EtcdJournal(settings)) as journal:
            large = [webhook(f"l{one}", text="x" * 300_000) for one in range(5)]
            for changes in (
                [webhook("a", n=1), webhook("b", n=1)],
                [webhook("b", n=2)],
                [webhook("a", n=3), Change(Kind.WEBHOOK, "b", None), webhook("c", n=4)],
                [Change(Kind.DECISION, None, {"n": n}) for n in range(12)],
                large,
                [webhook("l1", text="short")],
            ):
                before = copies.look()
                journal.write(changes)
                now = copies.look()
                for kind in (Kind.WEBHOOK, Kind.DECISION):
                    assert read(now, kind) == journal.records(kind)
                    same = read(before, kind) == read(now, kind)
                    assert (before.texts(kind) is now.texts(kind)) == same
                assert now.as_of_unix_s > before.as_of_unix_s


def test_without_an_answer_the_last_one_stays(tmp_path):
    with EtcdMembers(tmp_path, 1) as members, closing(Copying(members.settings(), KINDS)) as copies:
        with closing(EtcdJournal(members.settings())) as journal:
            journal.write([webhook("a")])
        seen = copies.look()
        members.signal(members.names[0], signal.SIGSTOP)
        with pytest.raises(JournalError, match="can't read the journal in etcd"):
            copies.look()
        assert copies.last is seen
        members.signal(members.names[0], signal.SIGCONT)
        members.await_quorum()
        assert copies.look().as_of_unix_s > seen.as_of_unix_s


@pytest.fixture
def settings(etcd):
    return etcd.settings(f"/test/{uuid.uuid4().hex}/")


def written_by_another(settings, written):
    """The format's number, and a write, as one transaction of a release that writes otherwise."""
    journal = f"{settings.prefix}journal/"
    with closing(Etcd(settings)) as etcd:
        etcd.transaction([], [put(f"{journal}format", written), put(f"{journal}owner", "x 1")])


@pytest.mark.parametrize("written", ["0", "2"])
def test_a_format_of_another_release_is_no_copy(settings, written):
    with closing(Copying(settings, KINDS)) as early, closing(Copying(settings, KINDS)) as late:
        with closing(EtcdJournal(settings)) as journal:
            journal.write([webhook("a")])
        seen = early.look()
        written_by_another(settings, written)
        for copies in (early, late):
            for _ in range(2):
                with pytest.raises(JournalOfAnotherFormat, match=f"has format {written}, this"):
                    copies.look()
        assert early.last is seen
