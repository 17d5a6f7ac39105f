"""The journal in a real etcd with lost replies; other tests are in tests/conformance."""

from __future__ import annotations

import uuid
from contextlib import closing, contextmanager, suppress

import pytest

from apps.etcd.gateway import Etcd, get, put, was_created
from apps.journal.etcd import FORMAT, EtcdJournal, after
from hydra.journal import Change, JournalError, JournalOfAnotherFormat, JournalTaken, Kind
from hydra.settings import EtcdSettings
from tests.lossy import LossyWay
from tests.waiting import once

pytestmark = pytest.mark.takes(20)

SHORT_S = 0.5


@pytest.fixture
def settings(etcd):
    return etcd.settings(f"/test/{uuid.uuid4().hex}/")


@pytest.fixture
def way(etcd):
    with LossyWay(int(etcd.endpoints[0].rpartition(":")[2])) as way:
        yield way


@contextmanager
def opened(settings, **options):
    with closing(EtcdJournal(settings, **options)) as journal:
        yield journal


@contextmanager
def over(way, settings, **options):
    there = EtcdSettings((way.url,), settings.prefix)
    with opened(there, **options) as journal:
        yield journal


@contextmanager
def losing(way, journal, what, after=0):
    """Lose messages in the block, with a short time-out."""
    usual_s, journal.patience_s = journal.patience_s, SHORT_S
    with way.losing(what, after):
        yield
    journal.patience_s = usual_s


def webhook(key, **record):
    return Change(Kind.WEBHOOK, key, {"id": key, **record})


def decision(number):
    return Change(Kind.DECISION, None, {"id": number})


def line(day):
    return Change(Kind.HISTORY, None, {"unix_s": day * 86_400.0, "text": "x"})


def ids(journal, kind=Kind.WEBHOOK):
    return [record["id"] for record in journal.records(kind)]


def test_a_write_whose_reply_is_lost_is_made_once(way, settings):
    with over(way, settings) as journal:
        for number in range(5):
            before, way.replies = way.lost, 0
            with once(lambda before=before: way.lost > before, way.heal):
                journal.write([decision(number)])
        assert ids(journal, Kind.DECISION) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("what", ["replies", "requests"])
def test_a_write_that_is_never_answered_is_refused_and_stays_so(way, settings, what):
    """The write may have been made: the next step undoes it first."""
    with over(way, settings) as journal:
        journal.write([webhook("a"), webhook("b", url="old"), decision(1)])
        with (
            losing(way, journal, what),
            pytest.raises(JournalError, match=r"did not answer within 0\.5 s"),
        ):
            journal.write(
                [
                    Change(Kind.WEBHOOK, "a", None),
                    webhook("b", url="new"),
                    webhook("c"),
                    decision(2),
                ]
            )
        journal.write([webhook("d")])
        with closing(EtcdJournal(settings, read_only=True)) as other:
            for reader in (journal, other):
                assert reader.records(Kind.WEBHOOK) == [
                    {"id": "a"},
                    {"id": "b", "url": "old"},
                    {"id": "d"},
                ]
                assert ids(reader, Kind.DECISION) == [1]
        journal.write([webhook("a", url="known by its key")])
        assert ids(journal) == ["a", "b", "d"]


@pytest.mark.parametrize("lines", [1, 150])
@pytest.mark.parametrize("what", ["replies", "requests"])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5, 6])
def test_what_was_refused_is_taken_back_though_that_breaks_off_too(
    way, settings, what, after, lines
):
    """In one step or, with many lines that were left out for it, in several steps; any step may be
    lost.
    """
    with over(way, settings, kept_days=14) as journal:
        journal.write([line(20.0) for _ in range(lines)])
        forgetful = [webhook("refused"), line(40.0)]
        with losing(way, journal, "replies"), pytest.raises(JournalError):
            journal.write(forgetful)
        with losing(way, journal, what, after), suppress(JournalError):
            journal.write([])
        journal.write([webhook("a")])
        with opened(settings) as following:
            for reader in (journal, following):
                assert ids(reader) == ["a"]
                assert len(reader.records(Kind.HISTORY)) == lines


def test_what_was_read_when_it_was_opened_is_not_read_again(way, settings):
    """Not before a write: a future leader does not request each kind."""
    with over(way, settings) as first:
        first.write([webhook("a"), webhook("b"), decision(1), decision(2)])
    with over(way, settings) as journal:
        with losing(way, journal, "requests"):
            assert (ids(journal), ids(journal, Kind.DECISION)) == (["a", "b"], [1, 2])
            assert journal.records(Kind.DECISION, newest=1) == [{"id": 2}]
            assert [one.key for one in journal.changes(Kind.WEBHOOK)] == ["a", "b"]
            assert way.lost == 0
        journal.write([webhook("c")])
        with losing(way, journal, "requests"), pytest.raises(JournalError, match="can't read"):
            ids(journal)
        assert ids(journal) == ["a", "b", "c"]


def test_who_was_taken_over_while_it_did_not_know_is_told(way, settings):
    with over(way, settings) as first:
        with losing(way, first, "replies"), pytest.raises(JournalError):
            first.write([webhook("a")])
        with opened(settings) as second:
            second.write([webhook("b")])
            with pytest.raises(JournalTaken):
                first.write([webhook("c")])
            assert ids(second) == ["a", "b"]


LARGE = [webhook("b", text="y" * 1_500_000), *(webhook(str(one)) for one in range(150))]
BEFORE, AFTER = ["a", "b"], ["b", *map(str, range(150))]


@pytest.mark.parametrize("what", ["replies", "requests"])
@pytest.mark.parametrize("after", [1, 4, 6, 7, 9])
def test_a_large_write_that_breaks_off_is_made_as_a_whole_or_not_at_all(way, settings, what, after):
    """After each step, a reader from elsewhere, the next owner, and the journal itself agree."""
    with over(way, settings) as journal:
        journal.write([webhook("a"), webhook("b", text="x" * 900_000)])
        told = True
        with losing(way, journal, what, after):
            try:
                journal.write([Change(Kind.WEBHOOK, "a", None), *LARGE])
            except JournalTaken:
                raise
            except JournalError:
                told = False
        with opened(settings, read_only=True) as reader:
            seen = ids(reader)
        assert seen in (BEFORE, AFTER)
        assert seen == AFTER or not told
        journal.write([])
        assert ids(journal) == (AFTER if told else BEFORE)
        journal.write([webhook("z")])
    with opened(settings) as following:
        assert ids(following) == [*(AFTER if told else BEFORE), "z"]


@pytest.mark.parametrize("after", [4, 6])
def test_the_next_owner_carries_over_what_was_made(way, settings, after):
    with over(way, settings) as journal:
        journal.write([webhook("a")])
        with losing(way, journal, "requests", after):
            try:
                journal.write([Change(Kind.WEBHOOK, "a", None), *LARGE])
            except JournalError:
                expected = ["a"]
            else:
                expected = AFTER
    with opened(settings) as following:
        assert ids(following) == expected
        following.write([])
        etcd = Etcd(settings)
        with closing(etcd):
            left = etcd.ask(
                "/kv/range", {"key": put(f"{settings.prefix}journal/redo", "")["requestPut"]["key"]}
            )
        assert "kvs" not in left


def test_nothing_is_written_under_another_leader(settings):
    etcd = Etcd(settings)
    with closing(etcd), closing(EtcdJournal(settings, later=True)) as journal:
        with pytest.raises(JournalError, match="the journal is not open"):
            journal.records(Kind.STATE)
        key = f"{settings.prefix}leader"
        made = etcd.transaction([], [put(key, "me")]).revision
        journal.open([was_created(key, made)])
        journal.write([webhook("a")])
        etcd.ask("/kv/deleterange", {"key": put(key, "")["requestPut"]["key"]})
        etcd.transaction([], [put(key, "other")])
        with pytest.raises(JournalTaken):
            journal.write([webhook("b")])
        assert ids(journal) == ["a"]
        with pytest.raises(JournalTaken), closing(EtcdJournal(settings, later=True)) as late:
            late.open([was_created(key, made)])


@pytest.mark.parametrize("other", ["0", "2"])
def test_a_format_of_another_release_is_refused_and_left_as_it_is(settings, other):
    """Earlier or later: for the leader, the next leader, and the reader of a backup."""
    with opened(settings) as journal:
        journal.write([webhook("a")])
    with closing(Etcd(settings)) as etcd:
        etcd.transaction([], [put(f"{settings.prefix}journal/format", other)])
        everything = get(settings.prefix, after(settings.prefix))
        before = etcd.transaction([], [everything]).found
        words = f"has format {other}, this release reads {FORMAT}: start the release that wrote"
        for options in ({}, {"read_only": True}):
            with pytest.raises(JournalOfAnotherFormat, match=words):
                EtcdJournal(settings, **options)
        with closing(EtcdJournal(settings, later=True)) as late:
            with pytest.raises(JournalOfAnotherFormat, match=words):
                late.open()
            with pytest.raises(JournalError, match="the journal is not open"):
                late.write([webhook("b")])
        assert etcd.transaction([], [everything]).found == before


def test_what_a_later_release_wrote_of_a_new_kind_stays_there(settings):
    """A release without knowledge of the kind takes over, and gives the records back unchanged."""
    new, text = f"{settings.prefix}journal/records/novelty/{7:016x}/0000", '{"record": {"new": 1}}'
    with closing(Etcd(settings)) as etcd:
        etcd.transaction([], [put(new, text)])
        with opened(settings) as journal:
            journal.write([webhook("a"), *LARGE])
            journal.write([Change(Kind.WEBHOOK, "a", None), decision(1)])
        with opened(settings) as following:
            assert ids(following) == AFTER
        assert [one.value for one in etcd.transaction([], [get(new)]).found[0]] == [text]


def test_an_etcd_that_does_not_answer_is_one_clear_error():
    settings = EtcdSettings(("http://127.0.0.1:9",))
    with pytest.raises(JournalError, match=r"can't open the journal etcd http://127\.0\.0\.1:9"):
        EtcdJournal(settings, patience_s=0.2)  # timed: no answer comes
