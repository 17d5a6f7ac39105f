"""A reservation that comes while a change is under way: between two steps of it, or after it."""

import queue
import random
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from apps.controller.mover import Mover
from apps.controller.promises.admission import Admission
from apps.controller.promises.care import ReservationCare
from apps.controller.promises.limits import Limits
from apps.controller.promises.placement import Placement
from apps.controller.record.ledger import Ledger
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from hydra.journal import JournalError, Kind
from hydra.journal_format import INTENDED, read_state
from hydra.lifecycle import ReconfigurationState, ReservationState
from hydra.model import NetworkState
from hydra.policy import CurrentPolicy, DrainPolicy, Policy
from hydra.reconfiguration.commands import Pause
from hydra.reconfiguration.recovery import interrupted
from hydra.reservations.reservation import ReservationRequest
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import path_of, small_fabric, state_of
from tests.unit.reconfiguration.simulation import Faults, Network, conditions_of

FABRIC = small_fabric(racks=5, planes=1)
POLICY = Policy(
    planning_budget_ms=300,
    planning_grace_ms=700,
    drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0),
)
HERE, THERE = path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3)
STANDING = state_of(FABRIC, NetworkState(), HERE)
LATER = path_of(FABRIC, 0, 4)
"""The path that the change leads to."""


class Disk(SqliteJournal):
    full = False

    def write(self, changes):
        if self.full:
            raise JournalError("disk full")
        super().write(changes)


class Stage:
    """A controller's change from STANDING to LATER on a simulated network."""

    def __init__(self):
        self.journal, self.jobs = Disk(":memory:"), queue.SimpleQueue()
        ledger = self.ledger = Ledger(FABRIC, self.journal)
        ledger.network.settle(STANDING)
        ledger.reservations.save("reconciled")
        self.network = Network(FABRIC, STANDING, random.Random(1))
        self.before = lambda _step: None
        """Called before each step of a change."""
        self.amid = lambda _batch: None
        """Called while a batch is carried out."""
        self.only_waits, self.over_since_s = False, None
        conditions = conditions_of(self.network, STANDING)
        planning = Planning(FABRIC, POLICY)
        self.uncertain = []
        reach = SimpleNamespace(
            conditions=lambda: conditions,
            unconfirmed=lambda: self.uncertain,
            blocked_ports=frozenset,
            blocked_with_all_planes=frozenset,
            down_planes=list,
            ready_switches=lambda: conditions.connected,
            awaited_racks=frozenset,
        )
        self.broken_off = []
        upkeep = SimpleNamespace(
            make_certain=lambda _plan: None,
            tidy_relays=lambda: None,
            take_over=lambda _execution: None,
            start_over=self.broken_off.append,
            hold_reserved=lambda: None,
            refusal=lambda _reservation: "",
        )
        self.mover = Mover(
            FABRIC,
            CurrentPolicy(POLICY),
            planning,
            self,
            upkeep,
            reach,
            SimpleNamespace(suspended=threading.Lock()),
            ledger,
            lambda: any(come_in() for come_in in self.comes_in),
        )
        limits = Limits(reach, self.mover, ledger, POLICY.max_hops, 16)
        planner, panels = Planner(FABRIC, POLICY), SimpleNamespace(awaited=lambda _path: False)
        placement = Placement(
            planning, planner, self.mover, upkeep, reach, panels, ledger, limits, self.jobs.put
        )
        self.comes_in = [placement.beside]
        care = ReservationCare(
            FABRIC, planning, self.mover, upkeep, reach, ledger, placement, self.jobs.put
        )
        self.admission = Admission(
            FABRIC,
            planning,
            planner,
            reach,
            ledger,
            limits,
            placement,
            care,
            POLICY.preemption_notice_s,
        )

    def run(self, steps, on_batch=lambda _batch: None):
        try:
            batch = next(steps)
            while True:
                self.before(batch.step)
                on_batch(batch)
                outcomes = self.network.perform(batch, lambda _command, its=batch: self.amid(its))
                for command in batch.commands:
                    if hasattr(command, "details"):
                        self.ledger.writer.record(command.what, command.details)
                batch = steps.send(outcomes)
        except StopIteration:
            return

    def change(self, *, gives_way=False):
        entry = self.ledger.log.enter("operator")
        target = state_of(FABRIC, self.ledger.network.state, LATER)
        self.execution = self.mover.move(entry, target, gives_way=gives_way)
        return self.ledger.log.reconfiguration(entry.id)

    def asked_before(self, step, src, dst):
        """A reservation between two racks, asked for once before this step; a list of it."""
        made = []

        def before(name):
            if name == step and not made:
                made.append(self.admission.reserve(ReservationRequest(src, dst, 10.0)).id)

        self.before = before
        return made

    def last_entry(self):
        (last,) = self.journal.records(Kind.ENTRY, newest=1)
        return last["what"], last["details"]


@pytest.fixture
def stage():
    return Stage()


def paths(state):
    return set(state.topology.paths)


@pytest.mark.parametrize("step", ["drain", "move", "carrier", "probe"])
def test_it_is_placed_before_the_next_step(stage, step):
    made = stage.asked_before(step, "h31", "h41")
    asked = stage.before
    seen = []

    def before(name):
        asked(name)
        if name == "activate" and made:
            seen.append(stage.ledger.bookings.get(made[0]).state)

    stage.before = before
    assert stage.change().state is ReconfigurationState.DONE
    assert seen[-1] is ReservationState.ACTIVE, "while the change was under way"
    assert paths(stage.ledger.network.state) == {LATER, THERE}
    assert stage.ledger.network.state.epoch > STANDING.epoch
    for datapath in stage.network.names:
        assert not list(stage.network.differing_rules(datapath, stage.ledger.network.state))
    stage.jobs.get()()  # its turn
    assert len(stage.ledger.log.reconfigurations()) == 2


def test_what_a_death_leaves_half_done_is_in_the_journal_last_entry(stage):
    made = stage.asked_before("move", "h31", "h41")
    told = []

    def before(name, asked=stage.before):
        asked(name)
        if name == "carrier" and made and not told and len(stage.ledger.network.under_way) == 1:
            told.append(stage.last_entry())

    stage.before = before
    stage.change()
    ((what, details),) = told
    assert what == INTENDED
    current, target = (read_state(FABRIC, details[one]) for one in ("current", "target"))
    assert paths(current) == {HERE, THERE}
    assert paths(target) == {LATER, THERE}
    assert interrupted(FABRIC, current, (what, details)).ended == {HERE}, (
        "what was made beside it stands"
    )


def test_one_that_needs_what_the_change_moves_has_its_turn_after_it(stage):
    made = stage.asked_before("drain", "h21", "h31")
    assert stage.change().state is ReconfigurationState.DONE
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVATING
    stage.jobs.get()()
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVE


def test_a_change_that_gives_way_leaves_it_the_ports_as_long_as_it_drains(stage):
    made = stage.asked_before("drain", "h21", "h31")
    whole = stage.change(gives_way=True)
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVE
    assert len(stage.ledger.log.reconfigurations()) == 2, "it was made within the change"
    assert paths(stage.ledger.network.state) == {path_of(FABRIC, 1, 2)}
    assert whole.state is ReconfigurationState.PARTIAL
    assert whole.reason == "gives way to another change, of r1 - r2, r2 - r3"
    assert stage.execution.left is not None
    for datapath in stage.network.names:
        assert not list(stage.network.differing_rules(datapath, stage.ledger.network.state))


@pytest.mark.parametrize("seed", range(4))
def test_a_switch_that_refused_the_others_rules_is_not_activated_by_the_change(stage, seed):
    stage.network.rng.seed(seed)
    stage.asked_before("drain", "h21", "h31")

    def before(name, asked=stage.before):
        asked(name)
        of_the_other = len(stage.ledger.network.under_way) == 2
        stage.network.faults = Faults(vswitch=float(of_the_other and name == "move"))

    stage.before = before
    stage.change(gives_way=True)
    assert stage.execution.left is not None
    for server in FABRIC.servers:
        for rack in {one.id for one in FABRIC.racks} - {server.rack}:
            for way in stage.network.sends_on(server, rack):
                assert stage.network.arrives(way, server.rack, rack)


def test_what_could_not_be_placed_beside_a_change_is_tried_again_in_its_turn_alone(stage):
    made = stage.asked_before("drain", "h31", "h41")

    def before(name, asked=stage.before):
        asked(name)
        of_the_other = len(stage.ledger.network.under_way) == 2
        stage.network.faults = Faults(vswitch=float(of_the_other and name == "move"))

    stage.before = before
    stage.change()
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVATING
    assert len(stage.ledger.log.reconfigurations()) == 2


def test_what_it_leaves_is_no_part_of_its_intent_any_more(stage):
    stage.asked_before("drain", "h11", "h31")  # from where the change has another path planned
    told = []

    def before(name, asked=stage.before):
        asked(name)
        if name == "move" and len(stage.ledger.network.under_way) == 2:
            told.append(stage.last_entry())

    stage.before = before
    stage.change(gives_way=True)
    ((_, details),) = told
    target = read_state(FABRIC, details["target"])
    ends = [end for circuit in target.topology.circuits for end in circuit.ends]
    assert len(ends) == len(set(ends))


@pytest.mark.parametrize("step", ["move", "carrier"])
def test_it_leaves_nothing_once_it_moves(stage, step):
    made = stage.asked_before(step, "h21", "h31")
    assert stage.change(gives_way=True).state is ReconfigurationState.DONE
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVATING
    stage.jobs.get()()
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVE


def test_a_reserved_path_is_taken_over_by_nobody(stage):
    first = stage.asked_before("intent", "h11", "h51")  # the change brings its path
    second = []

    def before(name, asked=stage.before):
        asked(name)
        if name == "drain" and not second:
            request = ReservationRequest("h21", "h31", 10.0)
            second.append(stage.admission.reserve(request).id)

    stage.before = before
    stage.change(gives_way=True)
    assert LATER in paths(stage.ledger.network.state)
    assert stage.ledger.bookings.get(second[0]).state is ReservationState.ACTIVATING
    assert first


def test_it_is_placed_while_the_change_only_waits(stage):
    placed = []

    def amid(batch):
        stage.only_waits = all(isinstance(one, Pause) for one in batch.commands)
        if batch.step == "drain" and stage.only_waits and not placed:
            placed.append(stage.admission.reserve(ReservationRequest("h31", "h41", 10.0)).id)
            stage.mover.let_in_meanwhile()
            placed.append(stage.ledger.bookings.get(placed[0]).state)

    stage.amid = amid
    assert stage.change().state is ReconfigurationState.DONE
    assert placed[1] is ReservationState.ACTIVE
    assert paths(stage.ledger.network.state) == {LATER, THERE}


def test_nothing_is_placed_while_a_device_is_at_work(stage):
    seen = []

    def amid(batch):
        if batch.step == "move" and not seen:
            seen.append(stage.admission.reserve(ReservationRequest("h31", "h41", 10.0)).id)
            stage.mover.let_in_meanwhile()
            seen.append(stage.ledger.bookings.get(seen[0]).state)

    stage.amid = amid
    stage.change()
    assert seen[1] is ReservationState.ACTIVATING


def test_one_that_breaks_off_while_the_change_waits_breaks_that_off(stage):
    def amid(batch):
        stage.only_waits = all(isinstance(one, Pause) for one in batch.commands)
        if batch.step == "drain" and stage.only_waits and len(stage.ledger.network.under_way) == 1:
            stage.admission.reserve(ReservationRequest("h31", "h41", 10.0))
            stage.journal.full = True
            with suppress(JournalError):  # as the conductor does
                stage.mover.let_in_meanwhile()

            stage.journal.full = False

    stage.amid = amid
    with pytest.raises(JournalError):
        stage.change()
    assert not stage.ledger.network.under_way
    assert stage.ledger.network.state.topology == STANDING.topology


def test_one_on_a_device_of_which_something_is_open_has_its_turn(stage):
    made = stage.asked_before("drain", "h31", "h41")
    stage.uncertain = ["r3"]
    stage.change()
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVATING


@pytest.fixture
def _seconds_fly(monkeypatch):
    """Each look of the mover's at the clock is a second later."""
    clock = iter(range(1000))
    monkeypatch.setattr(
        "apps.controller.mover.time",
        SimpleNamespace(monotonic=lambda: float(next(clock)), time=lambda: 0.0),
    )


@pytest.mark.usefixtures("_seconds_fly")
def test_a_change_does_not_stand_still_for_others_for_good(stage):
    asked = []
    stage.comes_in = [lambda: asked.append(len(stage.ledger.network.under_way)) or True]
    assert stage.change().state is ReconfigurationState.DONE
    assert asked == [1]


@pytest.mark.usefixtures("_seconds_fly")
def test_while_it_waits_anyway_it_does_not_stand_still(stage):
    asked = []
    stage.comes_in = [lambda: stage.only_waits and len(asked) < 9 and not asked.append(1)]

    def amid(batch):
        stage.only_waits = batch.step == "drain" and len(asked) < 5
        if stage.only_waits:
            stage.mover.let_in_meanwhile()
        stage.only_waits = False

    stage.amid = amid
    assert stage.change().state is ReconfigurationState.DONE
    assert len(asked) == 9
    asked.clear()
    stage.over_since_s = 0.0
    stage.mover.move(stage.ledger.log.enter("operator"), STANDING)
    assert len(asked) == 1


def test_what_breaks_it_off_breaks_off_the_change_too(stage):
    made = stage.asked_before("move", "h31", "h41")

    def before(name, asked=stage.before):
        asked(name)
        stage.journal.full = bool(made) and len(stage.ledger.network.under_way) == 2

    stage.before = before
    with pytest.raises(JournalError):
        stage.change()
    assert not stage.ledger.network.under_way
    assert len(stage.broken_off) == 1, "its intent was not written: it touched nothing"
    assert stage.ledger.network.state.topology == STANDING.topology
