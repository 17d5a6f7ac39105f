"""A copy of the journal in a real etcd equals the journal, after any writes in between."""

from __future__ import annotations

import json
import random
import signal
import uuid
from contextlib import closing

import pytest

from apps.etcd.gateway import Etcd, delete, put
from apps.journal import reading as reading_module
from apps.journal.copy import Copying
from apps.journal.etcd import EtcdJournal
from hydra.journal import (
    KEPT,
    Change,
    JournalError,
    JournalOfAnotherFormat,
    JournalTaken,
    Kind,
)
from mininet_scenarios.stage.etcd_members import EtcdMembers


@pytest.fixture
def settings(etcd):
    return etcd.settings(f"/test/{uuid.uuid4().hex}/")


def webhook(key, **record):
    return Change(Kind.WEBHOOK, key, {"id": key, **record})


def read(copy, kind):
    return list(copy.records(kind).values())


def test_it_is_what_the_journal_is(etcd, monkeypatch):
    monkeypatch.setattr(reading_module, "PAGE", 7)
    monkeypatch.setitem(KEPT, Kind.DECISION, 5)
    settings = etcd.settings(f"/test/{uuid.uuid4().hex}/")
    with closing(Copying(settings)) as copies:
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
                for kind in Kind:
                    assert read(now, kind) == journal.records(kind)
                    same = read(before, kind) == read(now, kind)
                    assert (before.records(kind) is now.records(kind)) == same
                assert now.as_of_unix_s > before.as_of_unix_s


def test_whatever_is_written_it_is_what_the_journal_is(settings, monkeypatch):
    """Some records go, some come back, some are large; the final content is taken over."""
    monkeypatch.setattr(reading_module, "PAGE", 7)
    monkeypatch.setattr(reading_module, "_PARTS", 4)
    monkeypatch.setitem(KEPT, Kind.DECISION, 20)
    rng, names = random.Random(4), [f"w{one}" for one in range(40)]
    with (
        closing(Copying(settings)) as copies,
        closing(EtcdJournal(settings)) as journal,
    ):
        for turn in range(25):
            for _ in range(rng.randrange(3)):
                some = [
                    Change(Kind.WEBHOOK, name, None)
                    if rng.random() < 0.5
                    else webhook(name, n=turn, text="x" * rng.choice((1, 1, 1, 500_000)))
                    for name in rng.sample(names, rng.randrange(1, 12))
                ]
                some += [Change(Kind.DECISION, None, {"n": turn})] * rng.randrange(9)
                journal.write(some)
            now = copies.look()
            for kind in Kind:
                assert read(now, kind) == journal.records(kind)
        journal.write([webhook("last")])
        last = {kind: journal.changes(kind) for kind in Kind}
        with closing(EtcdJournal(settings, later=True)) as following:
            following.open(known=copies.hand_over())
            assert {kind: following.changes(kind) for kind in Kind} == last
            following.write([webhook("w1", text="mine"), Change(Kind.WEBHOOK, "last", None)])
            with pytest.raises(JournalTaken):
                journal.write([webhook("w2")])
            with closing(EtcdJournal(settings, read_only=True)) as seen:
                assert seen.records(Kind.WEBHOOK) == following.records(Kind.WEBHOOK)


class Found:
    """Numbers of records that etcd has found, by requests without and with values."""

    def __init__(self):
        self._counted = [0, 0]

    def count(self, answer):
        for some in answer.found:
            for one in some:
                if "/records/" in one.key:
                    self._counted[bool(one.value)] += 1

    def since(self):
        counted, self._counted = tuple(self._counted), [0, 0]
        return counted


@pytest.fixture
def found(monkeypatch):
    found, transaction = Found(), Etcd.transaction

    def counting(self, *arguments, **options):
        answer = transaction(self, *arguments, **options)
        found.count(answer)
        return answer

    monkeypatch.setattr(Etcd, "transaction", counting)
    return found


MANY = 2_000


def test_a_look_and_a_takeover_read_what_has_changed_and_not_what_there_is(settings, found):
    with (
        closing(Copying(settings)) as copies,
        closing(EtcdJournal(settings)) as journal,
    ):
        for begin in range(0, MANY, 90):
            journal.write([webhook(f"w{begin + one}") for one in range(90)])
        copies.look()
        for gone in ([f"w{one}" for one in range(50)], ["w700"], ["w1500", "w90", "w1999"]):
            journal.write([webhook("new"), *(Change(Kind.WEBHOOK, one, None) for one in gone)])
            found.since()
            copies.look()
            keys, values = found.since()
            assert values == 1
            assert keys < len(gone) * MANY / 30
            assert read(copies.last, Kind.WEBHOOK) == journal.records(Kind.WEBHOOK)
        journal.write([webhook("newer")])
        found.since()
        with closing(EtcdJournal(settings, later=True)) as following:
            following.open(known=copies.hand_over())
            before = copies.last.records(Kind.WEBHOOK).values()
            for one, other in zip(before, following.records(Kind.WEBHOOK), strict=True):
                assert one is other
        assert found.since() == (0, 1)


def test_what_is_written_as_it_is_taken_over_is_not_lost(settings):
    """The former leader writes once more after its successor's look."""
    with (
        closing(Copying(settings)) as copies,
        closing(EtcdJournal(settings)) as journal,
    ):
        journal.write([webhook("a"), webhook("b")])
        known = copies.hand_over()
        journal.write([Change(Kind.WEBHOOK, "a", None), webhook("c")])
        with closing(EtcdJournal(settings, later=True)) as following:
            following.open(known=known)
            assert [one["id"] for one in following.records(Kind.WEBHOOK)] == ["b", "c"]
            with pytest.raises(JournalTaken):
                journal.write([webhook("d")])
            following.write([webhook("e")])
            assert [one["id"] for one in following.records(Kind.WEBHOOK)] == ["b", "c", "e"]
        assert copies.look() is copies.last, "whose journal it is by now"
        assert [one["id"] for one in read(copies.last, Kind.WEBHOOK)] == ["a", "b"]


def test_without_a_look_that_was_answered_all_is_read_by_who_takes_it_over(tmp_path):
    with EtcdMembers(tmp_path, 1) as members:
        with closing(EtcdJournal(members.settings())) as journal:
            journal.write([webhook("a")])
        with closing(Copying(members.settings())) as copies:
            members.signal(members.names[0], signal.SIGSTOP)
            known = copies.hand_over()
            with pytest.raises(JournalError, match="has yet to be read"):
                copies.look()
            members.signal(members.names[0], signal.SIGCONT)
            members.await_quorum()
            with closing(EtcdJournal(members.settings(), later=True)) as following:
                following.open(known=known)
                assert following.records(Kind.WEBHOOK) == [{"id": "a"}]


def test_a_staged_write_that_was_taken_back_is_forgotten(settings):
    """The write counted as long as the key `redo` existed; its keys were never carried over."""
    at, records = f"{settings.prefix}journal/", "records/webhook"
    staged = {f"{records}/{1:016x}/0000": json.dumps({"key": "a", "record": {"id": "staged"}})}
    work = json.dumps({"put": staged, "delete": [[f"{records}/{2:016x}", f"{records}0"]]})
    with closing(Copying(settings)) as copies, closing(Etcd(settings)) as etcd:
        with closing(EtcdJournal(settings)) as journal:
            journal.write([webhook("a"), webhook("b")])
        written = {"staged/00000000": work, "redo": "1", "owner": "x 1"}
        etcd.transaction([], [put(at + key, value) for key, value in written.items()])
        assert read(copies.look(), Kind.WEBHOOK) == [{"id": "staged"}]
        taken_back = [delete(f"{at}redo"), delete(f"{at}staged/00000000"), put(f"{at}owner", "x 2")]
        etcd.transaction([], taken_back)
        assert read(copies.look(), Kind.WEBHOOK) == [{"id": "a"}, {"id": "b"}]


def test_a_store_that_was_restored_from_an_earlier_copy_is_read_anew(settings):
    """The restored store's revisions repeat, so they don't identify writes."""
    with (
        closing(Copying(settings)) as copies,
        closing(EtcdJournal(settings)) as journal,
    ):
        journal.write([webhook("a", n=1)])
        copies.look()
        journal.write([webhook("a", n=2)])
        copies._reading.revision = 2**40
        assert read(copies.look(), Kind.WEBHOOK) == [{"id": "a", "n": 2}]
        assert copies._reading.revision < 2**40


def test_a_record_that_is_none_is_left_out_and_keeps_its_reader_from_leading(settings):
    bad = f"{settings.prefix}journal/records/webhook/{2:016x}/0000"
    with closing(Copying(settings)) as copies, closing(Etcd(settings)) as etcd:
        with closing(EtcdJournal(settings)) as journal:
            journal.write([webhook("a")])
        etcd.transaction([], [put(bad, "no JSON"), put(f"{settings.prefix}journal/owner", "x 1")])
        assert read(copies.look(), Kind.WEBHOOK) == [{"id": "a"}]
        with (
            closing(EtcdJournal(settings, later=True)) as following,
            pytest.raises(JournalError, match="a record is no JSON"),
        ):
            following.open(known=copies.hand_over())


def test_without_an_answer_the_last_one_stays(tmp_path):
    with EtcdMembers(tmp_path, 1) as members, closing(Copying(members.settings())) as copies:
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


def written_by_another(settings, written):
    """The format's number, and a write, as one transaction of a release with another format."""
    journal = f"{settings.prefix}journal/"
    with closing(Etcd(settings)) as etcd:
        etcd.transaction([], [put(f"{journal}format", written), put(f"{journal}owner", "x 1")])


@pytest.mark.parametrize("written", ["0", "2"])
def test_a_format_of_another_release_is_no_copy(settings, written):
    with closing(Copying(settings)) as early, closing(Copying(settings)) as late:
        with closing(EtcdJournal(settings)) as journal:
            journal.write([webhook("a")])
        seen = early.look()
        written_by_another(settings, written)
        for copies in (early, late):
            for _ in range(2):
                with pytest.raises(JournalOfAnotherFormat, match=f"has format {written}, this"):
                    copies.look()
        assert early.last is seen
