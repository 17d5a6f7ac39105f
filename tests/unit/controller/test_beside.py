"""A reservation during a change: placed beside the change, or after it."""

import queue
import random
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from apps.controller.conductor import Conductor
from apps.controller.mover import Mover
from apps.controller.promises.admission import Admission
from apps.controller.promises.care import ReservationCare
from apps.controller.promises.limits import Limits
from apps.controller.promises.placement import Placement
from apps.controller.record.ledger import Ledger
from apps.controller.runner import Runner
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from apps.process.metrics import Metrics
from hydra.journal import JournalError, Kind
from hydra.journal_format import INTENDED, read_state
from hydra.lifecycle import ReconfigurationState, ReservationState
from hydra.model import NetworkState
from hydra.policy import CurrentPolicy, DrainPolicy, Policy
from hydra.reconfiguration.commands import MoveMirrors, Record
from hydra.reconfiguration.recovery import interrupted
from hydra.reservations.reservation import ReservationRequest
from tests.journals import SqliteJournal
from tests.unit.controller.runners import Doer, at_once, awaited
from tests.unit.controller.ways import ways_of
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of
from tests.unit.reconfiguration.simulation.faults import Faults
from tests.unit.reconfiguration.simulation.network import Network, conditions_of
from tests.waiting import PATIENCE_S, remains, wait_until

FABRIC = small_fabric(racks=5, planes=1)
POLICY = Policy(
    planning_budget_ms=300,
    planning_grace_ms=700,
    drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0),
)
HERE, THERE = path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3)
STANDING = state_of(FABRIC, NetworkState(), HERE)
LATER = path_of(FABRIC, 0, 4)
"""The target path of the change."""


class Disk(SqliteJournal):
    full = False

    def write(self, changes):
        if self.full:
            raise JournalError("disk full")
        super().write(changes)


class Stage:
    """A controller's change from a state to other paths, on a simulated network."""

    def __init__(self, fabric=FABRIC, standing=STANDING, later=(LATER,)):
        self.fabric, self.later = fabric, later
        self.journal, self.jobs = Disk(":memory:"), queue.SimpleQueue()
        ledger = self.ledger = Ledger(fabric=fabric, journal=self.journal)
        ledger.network.settle(standing)
        ledger.reservations.save("reconciled")
        self.network = Network(fabric, standing, random.Random(1))
        self.before = lambda _step: None
        """Called before each step of a change."""
        self.amid = lambda _batch: None
        """Called while a batch is carried out."""
        conditions = conditions_of(self.network, standing)
        planning = Planning(fabric, POLICY)
        self.uncertain = []
        reach = SimpleNamespace(
            conditions=lambda: conditions,
            absences=SimpleNamespace(unconfirmed=lambda: self.uncertain),
            blocked_ports=frozenset,
            blocked_with_all_planes=frozenset,
            down_planes=list,
            ready_switches=lambda: conditions.connected,
            awaited_racks=frozenset,
        )
        self.broken_off = []
        upkeep = SimpleNamespace(
            devices=SimpleNamespace(make_certain=awaited(lambda _plan: None)),
            tidy_relays=awaited(lambda: None),
            take_over=lambda _execution: None,
            start_over=self.broken_off.append,
            hold_reserved=lambda: None,
            refusal=awaited(lambda _reservation: ""),
        )
        mover = Mover(
            fabric=fabric,
            policy=CurrentPolicy(POLICY),
            planning=planning,
            upkeep=upkeep,
            reach=reach,
            announcer=SimpleNamespace(suspended=threading.Lock()),
            ledger=ledger,
            ways=ways_of(fabric, CurrentPolicy(POLICY), planning, reach, ledger),
        )
        conductor = self.conductor = Conductor(Metrics())
        doer = self.doer = Doer(conductor, self.perform)
        self.mover = at_once(mover, doer.carry_out)
        limits = Limits(
            reach=reach,
            mover=mover,
            ledger=ledger,
            max_hops=POLICY.max_hops,
            paths_per_pair=16,
        )
        planner, panels = Planner(fabric, POLICY), SimpleNamespace(awaited=lambda _path: False)
        placement = Placement(
            planning=planning,
            planner=planner,
            mover=mover,
            upkeep=upkeep,
            reach=reach,
            panels=panels,
            ledger=ledger,
            limits=limits,
            enqueue=self.jobs.put,
        )
        conductor.beside(lambda: mover.admits_other_changes, [placement.beside])
        self.placement = placement
        care = self.care = ReservationCare(
            fabric=fabric,
            planning=planning,
            mover=mover,
            upkeep=upkeep,
            reach=reach,
            ledger=ledger,
            placement=placement,
            enqueue=self.jobs.put,
        )
        self.admission = Admission(
            fabric=fabric,
            planning=planning,
            planner=planner,
            reach=reach,
            ledger=ledger,
            limits=limits,
            placement=placement,
            care=care,
            notice_s=POLICY.preemption_notice_s,
        )

        doer.look = lambda batch: self.before(batch.step)

    def take_turn(self):
        """Do the next job."""
        self.doer.do(self.jobs.get()())

    def perform(self, batch):
        outcomes = self.network.perform(batch, lambda _command: self.amid(batch))
        for command in batch.commands:
            if hasattr(command, "details"):
                self.ledger.writer.record(command.what, command.details)
        return outcomes

    def change(self, *, gives_way=False):
        entry = self.ledger.log.enter("operator")
        target = state_of(self.fabric, self.ledger.network.state, *self.later)
        self.execution = self.mover.move(entry, target, gives_way=gives_way)
        return self.ledger.log.reconfiguration(entry.id)

    def asked_before(self, step, src, dst):
        """A reservation between two racks, requested once before this step; returned as a list."""
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
    stage.take_turn()  # its turn
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
    stage.take_turn()
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVE


def test_a_change_that_gives_way_leaves_it_the_ports_as_long_as_it_drains(stage):
    made = stage.asked_before("drain", "h21", "h31")
    whole = stage.change(gives_way=True)
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVE
    assert len(stage.ledger.log.reconfigurations()) == 2, "it was made within the change"
    assert paths(stage.ledger.network.state) == {path_of(FABRIC, 1, 2)}
    assert whole.state is ReconfigurationState.PARTIAL
    assert whole.reason == "gives way to another change, of r1 - r2, r2 - r3"
    assert stage.execution.ceded is not None
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
    assert stage.execution.ceded is not None
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
    stage.asked_before(
        "drain", "h11", "h31"
    )  # based on the changed state, in which the change has another path
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
    stage.take_turn()
    assert stage.ledger.bookings.get(made[0]).state is ReservationState.ACTIVE


def test_a_reserved_path_is_taken_over_by_nobody(stage):
    first = stage.asked_before("intent", "h11", "h51")  # the change sets up its path
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


@pytest.mark.parametrize("step", ["drain", "move", "activate"])
def test_it_is_placed_while_a_step_of_the_change_is_carried_out(stage, step):
    placed = []

    def amid(batch):
        if batch.step == step and not placed:
            placed.append(stage.admission.reserve(ReservationRequest("h31", "h41", 10.0)).id)
            stage.doer.let_in()
            placed.append(stage.ledger.bookings.get(placed[0]).state)

    stage.amid = amid
    assert stage.change().state is ReconfigurationState.DONE
    assert placed[1] is ReservationState.ACTIVE
    assert paths(stage.ledger.network.state) == {LATER, THERE}


def test_one_that_breaks_off_meanwhile_breaks_off_the_change(stage):
    def amid(batch):
        if batch.step == "drain" and len(stage.ledger.network.under_way) == 1:
            stage.admission.reserve(ReservationRequest("h31", "h41", 10.0))
            stage.journal.full = True
            with suppress(JournalError):  # as the conductor does
                stage.doer.let_in()

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


def test_a_change_in_several_courses_claims_from_the_first_what_the_last_one_touches():
    """A job that arrives meanwhile may still run when the next job begins."""
    fabric = small_fabric(racks=5, planes=2, servers=1)
    moves = path_of(fabric, 0, 1, circuit_between(fabric, 0, 1, 1))
    comes, goes = path_of(fabric, 2, 4), path_of(fabric, 2, 3)
    standing = state_of(fabric, NetworkState(), path_of(fabric, 0, 1), goes)
    stage = Stage(fabric, standing, (moves, comes))
    (needed,) = comes.circuits
    seen = {}

    def before(step):
        seen[step] = stage.mover.beside.touched.ports.issuperset(needed.ends)

    stage.before = before
    assert stage.change().state is ReconfigurationState.DONE
    assert list(seen)[:2] == ["intent", "make"], "the pair that stays comes first"
    assert "divert" in seen
    assert all(seen.values())


class Live(Stage):
    """With a controller's conductor and runner, in their threads."""

    def __init__(self):
        super().__init__()
        self._one_at_a_time = threading.Lock()
        self.runner = Runner(
            fabric=FABRIC,
            policy=CurrentPolicy(POLICY),
            fleet=None,
            devices=None,
            writer=self.ledger.writer,
            reservations=self.ledger.reservations,
            announcer=None,
            metrics=Metrics(),
            mastership=None,
            policing=None,
        )
        self.runner._handlers = dict.fromkeys(self.runner._handlers, self._carried_out)
        self.conductor.carry_out_by(self.runner.submit)
        for room in (self.care, self.placement):
            room._enqueue = self.conductor.put
        self.gates = {}
        """Delays of commands of a type, by the pairs under way of the last change."""
        self.held = []

    def _carried_out(self, command):
        gate = self.gates.get((type(command), self._by(command)))
        if gate is not None:
            self.held.append(gate)
            assert gate.wait(PATIENCE_S)
        with self._one_at_a_time:
            if isinstance(command, Record):
                return self.ledger.writer.record(command.what, command.details)
            try:
                doing = self.network.start(command)
                while True:
                    next(doing)
            except StopIteration as end:
                return end.value[0]

    def _by(self, command):
        """The change of a command, by the mirrors that it moves or the paths that it sets up."""
        match command:
            case Record():
                target = read_state(FABRIC, command.details["target"])
                another = THERE in target.topology.paths
            case MoveMirrors():
                (circuit,) = THERE.circuits
                another = not command.move.connect.isdisjoint(FABRIC.cross_connects(circuit))
            case _:
                return ""
        return "another" if another else "the change"

    def hold(self, kind, whose):
        gate = self.gates[kind, whose] = threading.Event()
        return gate

    def begin(self):
        async def change():
            entry = self.ledger.log.enter("operator")
            target = state_of(FABRIC, self.ledger.network.state, *self.later)
            await self.mover._room.move(entry, target)

        self.conductor.start()
        self.conductor.put(change)

    def states(self):
        """The changes, latest first."""
        return [one.state for one in self.ledger.log.reconfigurations()]


@pytest.fixture
def live():
    live = Live()
    yield live
    for gate in live.gates.values():
        gate.set()
    live.conductor.stop()
    live.runner.close()


def test_each_goes_on_as_soon_as_its_own_devices_have_answered(live):
    first, second = live.hold(MoveMirrors, "the change"), live.hold(MoveMirrors, "another")
    live.begin()
    wait_until(lambda: first in live.held)
    made = live.admission.reserve(ReservationRequest("h31", "h41", 10.0)).id
    wait_until(lambda: second in live.held)
    assert live.states() == [ReconfigurationState.MOVING] * 2, "at the same time"
    first.set()
    wait_until(lambda: live.states()[1] is ReconfigurationState.DONE)
    assert live.states()[0] is ReconfigurationState.MOVING
    assert paths(live.ledger.network.state) == {LATER}
    what, details = live.last_entry()
    assert what == INTENDED
    assert paths(read_state(FABRIC, details["target"])) == {LATER, THERE}
    second.set()
    wait_until(lambda: live.ledger.bookings.get(made).state is ReservationState.ACTIVE)
    assert paths(live.ledger.network.state) == {LATER, THERE}
    for datapath in live.network.names:
        assert not list(live.network.differing_rules(datapath, live.ledger.network.state))


def test_the_next_job_waits_for_all_that_came_in_beside_the_one_before_it(live):
    second = live.hold(MoveMirrors, "another")
    first = live.hold(MoveMirrors, "the change")
    live.begin()
    wait_until(lambda: first in live.held)
    live.admission.reserve(ReservationRequest("h31", "h41", 10.0))
    wait_until(lambda: second in live.held)
    first.set()
    wait_until(lambda: live.states()[1] is ReconfigurationState.DONE)
    under_way = []
    live.conductor.put(lambda: under_way.append(live.ledger.network.under_way))
    threading.Timer(0.1, second.set).start()  # timed: the job waits by then
    wait_until(lambda: under_way)
    assert under_way == [()]


def test_no_change_goes_on_while_the_intent_of_another_is_written(live):
    """The journal's last entry must describe everything that may be half done."""
    first, second = live.hold(MoveMirrors, "the change"), live.hold(Record, "another")
    live.begin()
    wait_until(lambda: first in live.held)
    live.admission.reserve(ReservationRequest("h31", "h41", 10.0))
    wait_until(lambda: second in live.held)
    first.set()
    assert remains(lambda: live.states()[1] is ReconfigurationState.MOVING)
    second.set()
    wait_until(lambda: live.states() == [ReconfigurationState.DONE] * 2)
    assert paths(live.ledger.network.state) == {LATER, THERE}


def test_a_journal_that_is_full_breaks_off_all_that_is_under_way(live):
    first, second = live.hold(MoveMirrors, "the change"), live.hold(MoveMirrors, "another")
    live.begin()
    wait_until(lambda: first in live.held)
    live.admission.reserve(ReservationRequest("h31", "h41", 10.0))
    wait_until(lambda: second in live.held)
    update = live.mover._log.update

    def full(entry_id, **changes):
        if changes.get("state") is ReconfigurationState.GATING:
            raise JournalError("disk full")
        update(entry_id, **changes)

    live.mover._log.update = full
    first.set()
    wait_until(lambda: live.states()[1] is ReconfigurationState.FAILED)
    second.set()
    wait_until(lambda: live.states() == [ReconfigurationState.FAILED] * 2)
    wait_until(lambda: len(live.broken_off) == 2)
    assert not live.ledger.network.under_way
