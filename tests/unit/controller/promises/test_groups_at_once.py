"""Reservations of a group begin and end together, with the work of a single reservation."""

from dataclasses import replace

from hydra.lifecycle import ReservationState as State
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import small_fabric

from .stage import TO_R3, Stage

BOTH = [TO_R3, replace(TO_R3, src="h21", dst="r4")]


class Counting(SqliteJournal):
    """A journal in memory that counts its writes."""

    writes = 0

    def write(self, changes):
        self.writes += 1
        super().write(changes)


def work_for(number):
    """Holds of the meters, and writes of the journal, while two pairs of ``number`` reservations
    begin and end.
    """
    journal, holds = Counting(":memory:"), []
    stage = Stage(journal, small_fabric(racks=4, planes=2))
    stage.upkeep.hold_reserved = lambda: holds.append(stage.ledger.bookings.active())
    wanted = [replace(one, bandwidth_mbps=5.0) for one in BOTH for _ in range(number)]
    made = stage.reservations.reserve_all(wanted, all_or_nothing=True)
    journal.writes = 0
    stage.conduct()
    assert {one.state for one in stage.ledger.bookings.all()} == {State.ACTIVE}
    begun, journal.writes = journal.writes, 0
    assert len(holds[0]) == 2 * number
    stage.reservations.release_group(made.group)
    stage.conduct()
    assert {one.state for one in stage.ledger.bookings.all()} == {State.RELEASED}
    return len(holds), begun, journal.writes


def test_many_reservations_of_a_group_begin_and_end_with_the_work_for_one():
    assert work_for(4) == work_for(1)
