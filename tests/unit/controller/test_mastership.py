"""Two controllers at one switch, which keeps the generation as specified by OpenFlow."""

from __future__ import annotations

import struct
import time
from contextlib import contextmanager

import pytest

import apps.controller.mastership as mastership_module
from apps.controller.mastership import Mastership
from apps.openflow.fleet import Fleet
from apps.openflow.interface import PortInfo
from apps.process.term import Alone
from drivers.codecs.openflow.rules import NO_GENERATION, ROLE_MASTER, TAKEN_OVER
from hydra.errors import HeldElsewhere
from hydra.failures import FailureKind
from tests.unit.core.fabrics import small_fabric
from tests.waiting import HANGS_S, PATIENCE_S, wait_until

FABRIC = small_fabric(racks=2, planes=1, servers=1)
ALONE = Alone()
V1 = FABRIC.servers[0].vswitch.datapath_id


@pytest.fixture
def long_looks(monkeypatch):
    """A check for another master takes longer than a busy machine delays a test."""
    monkeypatch.setattr(mastership_module, "_LOOK_S", PATIENCE_S)


class SharedSwitch:
    """A switch with several controllers (OpenFlow 1.3.5, section 6.3.6)."""

    def __init__(self):
        self.generation = NO_GENERATION
        self.master = None

    def serve(self, fleet):
        self.connection = _Connection(self, fleet)
        fleet.switch_connected(V1, self.connection, {1: PortInfo(1, "host", True)})


class _Connection:
    address = "192.0.2.1:40000"

    def __init__(self, switch, fleet):
        self.switch, self.fleet = switch, fleet

    def send(self, message):
        xid, role, told = struct.unpack_from("!4xIIxxxxQ", message)
        stale = self.switch.generation != NO_GENERATION and told < self.switch.generation
        if role == ROLE_MASTER and stale:
            self.fleet.error_replied(self, xid, FailureKind.TAKEN_OVER, TAKEN_OVER)
        else:
            if role == ROLE_MASTER:
                self.switch.generation, self.switch.master = told, self.fleet
            self.fleet.role_replied(self, xid, self.switch.generation)
        self.fleet.barrier_replied(self, xid)


@contextmanager
def commanding(switch, *, counts=True, term=ALONE):
    fleet = Fleet(FABRIC, lambda function: function())
    switch.serve(fleet)
    mastership = Mastership(
        fleet=fleet, names={V1: "h11"}, timeout_s=PATIENCE_S, term=term, counts=counts
    )
    try:
        mastership.take([V1])
        mastership.start()
        yield mastership, fleet
    finally:
        mastership.stop()


def test_a_fresh_switch_is_taken_at_once(long_looks):
    switch = SharedSwitch()
    started = time.monotonic()
    with commanding(switch) as (_, fleet):
        assert time.monotonic() - started < HANGS_S
        assert switch.master is fleet


class Term:
    """Of a leader, by its generation."""

    def __init__(self, generation, *, leads=True):
        self.generation = generation
        self.exceeded = []
        self._leads = leads
        self.looks = 0

    def look_at_once(self):
        self.looks += 1

    def exceed(self, generation):
        self.exceeded.append(generation)
        if self._leads:
            self.generation = generation + 100
        return self._leads


def test_a_leader_names_its_own_generation_and_an_earlier_one_can_not_come_back(long_looks):
    """Not even by another request, as after a pause; and no controller waits for a count."""
    switch = SharedSwitch()
    started = time.monotonic()
    earlier = Term(7)
    with commanding(switch, term=earlier) as (first, fleet):
        assert (switch.master, switch.generation) == (fleet, 7)
        with commanding(switch, term=Term(9)) as (_, second):
            assert (switch.master, switch.generation) == (second, 9)
            first.forget(V1)
            assert first.take([V1]) == frozenset(), "it did not take it"
            assert (switch.master, switch.generation) == (second, 9)
    assert earlier.exceeded == [], "it has been the master, so that another one leads"
    assert time.monotonic() - started < HANGS_S


def test_a_leader_by_a_new_store_goes_beyond_what_switches_know_of_the_one_before(caplog):
    switch, term = SharedSwitch(), Term(3)
    switch.generation = 7000
    with commanding(switch, term=term) as (mastership, fleet):
        assert (switch.master, switch.generation) == (fleet, 7100)
        assert term.exceeded == [7000]
        mastership.forget(V1)
        assert mastership.take([V1]) == {V1}
        assert switch.generation == 7101
    assert "did not take" not in caplog.text


def test_a_leader_that_leads_no_more_goes_beyond_nobody(caplog):
    """Also at a switch that it never mastered: its store refuses."""
    switch, term = SharedSwitch(), Term(3, leads=False)
    switch.generation = 7
    with commanding(switch, term=term) as (mastership, _):
        assert mastership.take([V1]) == frozenset()
    assert (switch.master, switch.generation, term.exceeded) == (None, 7, [7, 7])
    assert f"switch {V1:#x} did not take this controller as master" in caplog.text


def test_a_leader_names_one_more_on_each_connection():
    """A message on the former connection, still under way, can't make that connection the
    master's.
    """
    switch = SharedSwitch()
    with commanding(switch, term=Term(7)) as (first, _):
        first.forget(V1)
        assert first.take([V1]) == {V1}
        assert switch.generation == 8
        first.forget(V1)
        assert first.take([V1]) == {V1}
        assert switch.generation == 9


def test_a_living_master_is_left_alone():
    switch = SharedSwitch()
    with commanding(switch) as (_, first):
        with (
            pytest.raises(HeldElsewhere, match="h11: another controller commands it"),
            commanding(switch),
        ):
            pass
        assert switch.master is first


def test_one_that_ended_is_followed_and_takes_nothing_back():
    switch = SharedSwitch()
    with commanding(switch) as (old, _):
        old.stop()
        with commanding(switch) as (_, second):
            assert switch.master is second
            old.forget(V1)
            old.take([V1])
            assert switch.master is second


def test_one_that_was_only_stopped_hears_that_it_is_not_the_master_any_more(caplog):
    switch = SharedSwitch()
    with commanding(switch) as (_, first):
        switch.generation += 1 << 16  # as reported by another controller
        wait_until(lambda: TAKEN_OVER in caplog.text)
        assert first.generations([V1], 1.0) == {V1: switch.generation}


def test_its_own_switch_comes_back_without_delay(long_looks):
    switch = SharedSwitch()
    with commanding(switch) as (mastership, fleet):
        mastership.forget(V1)
        fleet.switch_disconnected(V1, switch.connection)
        switch.serve(fleet)
        started = time.monotonic()
        mastership.take([V1])
        assert time.monotonic() - started < HANGS_S


def test_where_devices_are_claimed_the_later_one_wins_at_once():
    switch = SharedSwitch()
    with commanding(switch, counts=False), commanding(switch, counts=False) as (_, second):
        assert switch.master is second


def test_a_count_that_fails_is_logged_and_the_next_one_follows(monkeypatch, caplog):
    monkeypatch.setattr(mastership_module, "_COUNT_S", 0.01)
    switch = SharedSwitch()
    with commanding(switch) as (_, fleet):
        become_master, fails = fleet.become_master, iter([True])

        def once_wrong(*arguments):
            if next(fails, False):
                raise KeyError(V1)
            return become_master(*arguments)

        monkeypatch.setattr(fleet, "become_master", once_wrong)
        words = "a count of generations failed; continuing with the next"
        wait_until(lambda: words in caplog.messages)
        before = switch.generation
        wait_until(lambda: switch.generation > before)


def test_a_leader_that_a_switch_says_is_followed_asks_the_store_whether_it_leads(caplog):
    """Not if the later master is the same controller, on another connection."""
    switch, term = SharedSwitch(), Term(7)
    with commanding(switch, term=term) as (first, fleet):
        fleet.watch_rivals(lambda _alarm: None, first.taken_over)
        fleet.role_taken(V1, switch.connection, 7)
        fleet.role_taken(V1, object(), 9)
        assert term.looks == 0
        fleet.role_taken(V1, switch.connection, 9)
        assert term.looks == 1
        assert (
            "h11: the switch has another controller as master now, by generation 9" in caplog.text
        )
        assert first.take([V1]) == {V1}, "it is taken anew: a switch may say anything"
