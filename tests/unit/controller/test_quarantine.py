from dataclasses import replace

import pytest

from apps.controller import quarantine as room
from apps.controller.quarantine import Quarantine
from hydra.errors import UnknownName
from hydra.faults.quarantine import Quarantined, quarantine_record, read_quarantine
from hydra.journal import JournalError
from hydra.model import PortId
from hydra.policy import CurrentPolicy, Policy
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric

FABRIC = small_fabric(racks=4, planes=2)
FIRST, SECOND = PortId(0), PortId(3)
PORT = FABRIC.ports[SECOND]
NAMES = (FABRIC.racks[PORT.rack].name, PORT.tor_port)


def lasting(length_s):
    return CurrentPolicy(Policy(quarantine_s=length_s))


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(room, "time", clock)
    return clock


@pytest.fixture
def journal(tmp_path):
    journal = SqliteJournal(str(tmp_path / "journal.db"))
    yield journal
    journal.close()


def test_it_blocks_for_its_time_and_is_on_trial_then(clock, journal):
    quarantine = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    quarantine.put([FIRST, SECOND], "no carrier")
    assert quarantine.blocked() == {FIRST, SECOND}
    clock.now_s += 60
    assert quarantine.blocked() == frozenset()
    assert [entry.port for entry in quarantine.entries()] == [FIRST, SECOND]


def test_several_are_written_down_at_once_and_told_of_one_by_one(clock, journal, monkeypatch):
    told, written, write = [], [], journal.write
    monkeypatch.setattr(journal, "write", lambda changes: (written.append(changes), write(changes)))
    quarantine = Quarantine(
        fabric=FABRIC,
        journal=journal,
        policy=lasting(60.0),
        report=lambda text, _pairs: told.append(text),
    )
    quarantine.put_each([([FIRST], "no carrier"), ([], "nothing"), ([SECOND], "no probe came")])
    assert len(written) == 1
    assert [entry.reason for entry in quarantine.entries()] == ["no carrier", "no probe came"]
    assert [text.partition(":")[0] for text in told] == ["no carrier", "no probe came"]
    later = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    later.load()
    assert later.blocked() == {FIRST, SECOND}
    quarantine.put_each([([FIRST], "no carrier"), ([SECOND], "no light")])
    assert len(told) == 3, "one that stays for the same reason is no news"
    quarantine.put_each([])
    assert len(written) == 2


def test_a_success_on_trial_ends_it_and_a_failure_renews_it(clock, journal):
    quarantine = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    quarantine.put([FIRST, SECOND], "no carrier")
    quarantine.passed([FIRST])
    assert quarantine.blocked() == {FIRST, SECOND}, "not on trial yet"
    clock.now_s += 60
    quarantine.passed([FIRST])
    quarantine.put([SECOND], "no probe came through")
    (entry,) = quarantine.entries()
    assert entry == Quarantined(SECOND, "no probe came through", 1060.0, 1120.0)
    assert quarantine.blocked() == {SECOND}


def test_a_port_of_two_circuits_that_passed_is_freed_once(clock, journal):
    """One-way circuits: a circuit begins at the port, another circuit ends there."""
    quarantine = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    quarantine.put([FIRST, SECOND], "no carrier")
    clock.now_s += 60
    quarantine.passed([FIRST, SECOND, FIRST])
    assert not quarantine.entries()


def test_without_a_length_only_an_operator_ends_it(clock, journal):
    quarantine = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(None))
    quarantine.put([SECOND], "no light")
    clock.now_s += 1e9
    quarantine.passed([SECOND])
    assert quarantine.blocked() == {SECOND}
    assert quarantine.clear(*NAMES).reason == "no light"
    assert quarantine.blocked() == frozenset()
    with pytest.raises(UnknownName, match="not in quarantine"):
        quarantine.clear(*NAMES)
    with pytest.raises(UnknownName, match="no optical port r9"):
        quarantine.clear("r9", "o1.1")


def test_a_restart_frees_nothing(clock, journal):
    before = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    before.put([FIRST, SECOND], "no carrier")
    before.clear(*NAMES)
    after = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(None))
    after.load()
    assert after.entries() == before.entries()
    assert after.blocked() == {FIRST}


def test_a_journal_that_fails_keeps_the_port_where_it_was(clock, journal):
    quarantine = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    quarantine.put([SECOND], "no carrier")
    journal.close()
    quarantine.put([FIRST], "no carrier")
    assert quarantine.blocked() == {FIRST, SECOND}
    with pytest.raises(JournalError):
        quarantine.clear(*NAMES)
    assert quarantine.blocked() == {FIRST, SECOND}


def test_a_clock_set_back_does_not_block_for_ever(clock, journal):
    quarantine = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    quarantine.put([FIRST], "no carrier")
    clock.now_s -= 4
    assert quarantine.blocked() == {FIRST}
    clock.now_s -= 86_400
    assert quarantine.blocked() == frozenset()


def test_records_go_by_name():
    entry = Quarantined(SECOND, "no light", 5.0, None)
    record = quarantine_record(FABRIC, entry)
    assert read_quarantine(FABRIC, record) == entry
    assert read_quarantine(FABRIC, {**record, "port": "gone"}) is None
    reordered = replace(FABRIC, ports=(replace(PORT, id=PortId(0)),))
    assert read_quarantine(reordered, record) == replace(entry, port=PortId(0))


def test_a_port_is_set_aside_by_hand_until_it_is_cleared(journal, clock):
    quarantine = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    quarantine.set_aside(*NAMES, "fibre is cleaned")
    clock.now_s += 1e6
    quarantine.passed([SECOND])
    assert quarantine.blocked() == {SECOND}
    again = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    again.load()
    assert [entry.reason for entry in again.entries()] == ["fibre is cleaned"]
    with pytest.raises(UnknownName, match="no optical port nowhere x"):
        quarantine.set_aside("nowhere", "x", "why")


def test_what_can_not_be_written_down_is_not_set_aside(journal):
    quarantine = Quarantine(fabric=FABRIC, journal=journal, policy=lasting(60.0))
    journal.close()
    with pytest.raises(JournalError):
        quarantine.set_aside(*NAMES, "fibre is cleaned")
    assert quarantine.entries() == []


def test_what_fails_again_for_the_same_reason_is_no_news(clock, journal):
    told = []
    quarantine = Quarantine(
        fabric=FABRIC,
        journal=journal,
        policy=lasting(60.0),
        report=lambda words, _pairs: told.append(words),
    )
    quarantine.put([FIRST], "no carrier")
    clock.now_s += 30
    quarantine.put([FIRST], "no carrier")
    (entry,) = quarantine.entries()
    assert (entry.since_unix_s, entry.until_unix_s) == (1000.0, 1090.0)
    assert len(told) == 1
    quarantine.put([FIRST], "no probe came")
    quarantine.put([FIRST, SECOND], "no probe came")
    assert len(told) == 3
    assert [one.since_unix_s for one in quarantine.entries()] == [1030.0, 1030.0]


def test_a_port_that_is_set_aside_stays_so_when_its_circuit_fails(journal, clock):
    told = []
    quarantine = Quarantine(
        fabric=FABRIC,
        journal=journal,
        policy=lasting(60.0),
        report=lambda text, _pairs: told.append(text),
    )
    quarantine.set_aside(*NAMES, "fibre is replaced")
    told.clear()
    quarantine.put(
        [SECOND], "carrier lost", [path_of(FABRIC, 0, 1, circuit_between(FABRIC, 0, 1, 1))]
    )
    assert not told, "it was left out of plans before"
    clock.now_s += 61
    quarantine.passed([SECOND])
    (entry,) = quarantine.entries()
    assert entry == Quarantined(SECOND, "fibre is replaced", 1000.0, None, ((0, 1),))
    assert quarantine.blocked() == {SECOND}
