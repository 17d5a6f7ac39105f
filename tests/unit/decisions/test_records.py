"""Decisions outlive the controller, as far as their elements still exist."""

import json
from dataclasses import replace

from apps.controller.record.ledger import Ledger
from apps.process.metrics import Metrics
from hydra.decisions.decision import Action, Decision, Proposal, SeenDemand, Verdict
from hydra.decisions.records import decision_record, read_decision
from hydra.journal import KEPT, Change, Kind
from hydra.model import RackId
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import circuit_between, small_fabric

FABRIC = small_fabric(racks=4, planes=2)
VERDICT = Verdict(True, "gains 70.0 Mbit for a cost of 5.0 Mbit", 7.0, 70.0, 5.0)
CHANGE = Decision(
    1_700_000_000.25,
    "periodic",
    Action.CHANGE,
    VERDICT.reason,
    frozenset({circuit_between(FABRIC, 0, 1), circuit_between(FABRIC, 2, 3)}),
    120.5,
    (
        SeenDemand(RackId(0), RackId(3), 10.0, 80.25, 20.5),
        SeenDemand(RackId(1), RackId(2), 8.0, 40.25, 40.25),
    ),
    Proposal(
        "hydra-bfs+",
        frozenset({circuit_between(FABRIC, 0, 3, plane=1)}),
        frozenset({circuit_between(FABRIC, 0, 1)}),
        101.5,
        VERDICT,
    ),
    "c0ffee",
)
NO_PLAN = replace(CHANGE, action=Action.NO_PLAN, proposal=None, reconfiguration=None, demand=())


def test_what_is_written_is_read_back():
    for decision in (CHANGE, NO_PLAN):
        record = json.loads(json.dumps(decision_record(FABRIC, decision)))
        assert read_decision(FABRIC, record) == decision


def test_what_is_no_longer_wired_is_left_out():
    smaller = small_fabric(racks=3, planes=2)
    read = read_decision(smaller, decision_record(FABRIC, CHANGE))
    assert read.demand == CHANGE.demand[1:]
    assert len(read.standing) == 1
    assert read.proposal.connect == frozenset()
    assert read.reason == CHANGE.reason


def test_a_restart_forgets_none_of_the_last(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(KEPT, Kind.DECISION, 3)
    path = str(tmp_path / "journal.db")
    before = Ledger(fabric=FABRIC, journal=SqliteJournal(path), metrics=Metrics())
    before.load()
    for number in range(5):
        before.log.decide(replace(CHANGE, unix_s=float(number)))
    before.close()
    journal = SqliteJournal(path)
    journal.write([Change(Kind.DECISION, None, {"written by": "another release"})])
    after = Ledger(fabric=FABRIC, journal=journal, metrics=Metrics())
    after.load()
    assert [one.unix_s for one in after.log.decisions()] == [4.0, 3.0]
    assert "a decision of another release is left out" in caplog.text


def test_a_full_disk_costs_the_memory_only(tmp_path, caplog):
    journal = SqliteJournal(str(tmp_path / "journal.db"))
    ledger = Ledger(fabric=FABRIC, journal=journal, metrics=Metrics())
    ledger.load()
    journal.close()
    ledger.log.decide(CHANGE)
    assert list(ledger.log.decisions()) == [CHANGE]
    assert "a decision is forgotten at the next start" in caplog.text
