"""The controller's rooms on the simulated network, with random actions and failures at random
times.

Requests, releases, changes in stages, losses, ports set aside, a full journal and faults of devices
come in any order, also between the steps of changes under way. The shipped queue and scheduler
decide which change begins or continues. In the end, no work is stuck, no unwanted path stands, and
the devices agree with the ledger.

``HYDRA_SIMULATION_SEED=7`` plays a single seed, ``HYDRA_SIMULATION_RUNS=3000`` that many seeds.
"""

import random
import time
import traceback
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from itertools import chain

import numpy as np
import pytest

from hydra.errors import HydraError
from hydra.faults.surveillance import LostPath
from hydra.journal import JournalError
from hydra.lifecycle import ReservationState as State
from hydra.policy import OnDrift
from hydra.reconfiguration.plan import pair_of
from hydra.reconfiguration.shifting import in_use
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import Protect, ReservationRequest, ServiceClass
from hydra.service import PlanRequest
from tests.unit.controller.test_staging import EMPTY, Staged
from tests.unit.controller.test_staging_side_by_side import FABRIC
from tests.unit.reconfiguration.seeds import chunks
from tests.unit.reconfiguration.seeds import hold as hold_seeds
from tests.unit.reconfiguration.simulation.faults import Faults
from tests.unit.reconfiguration.watch import Violation
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.takes(20)

_RUNS = 20
_TURNS = 40
_DEEPEST = 2
"""Number of events between the steps of a change that is itself made between the steps of another
change.
"""
_BETWEEN = 0.15
"""Chance of an event between two steps."""
_MOST_BETWEEN = 5
"""Number of events between the steps of one turn's changes."""
_PAUSES_S = 0.0, 0.002, 0.01, 0.05
"""Time that passes before an event."""
_QUIET = 6
"""Number of turns without work after which all is quiet."""
_PATIENCE_S = PATIENCE_S
_WHAT = {
    "reserve": 5,
    "release": 4,
    "modify": 2,
    "reconfigure": 3,
    "lose": 2,
    "set_aside": 1,
    "clear": 1,
    "stop": 1,
    "pause": 1,
    "resume": 2,
    "traffic": 1,
}
"""Events, with their frequencies."""


class _Clock:
    """Time passes between events and turns only, so that a seed always plays the same events."""

    def __init__(self, patch):
        self.passed_s = 0.0
        began_unix_s = time.time()
        patch.setattr(time, "monotonic", lambda: 1e6 + self._now_s())
        patch.setattr(time, "time", lambda: began_unix_s + self._now_s())
        patch.setattr(time, "sleep", self.pass_)

    def _now_s(self):
        self.passed_s += 1e-6  # loops that wait by the clock come to an end
        return self.passed_s

    def pass_(self, seconds):
        self.passed_s += seconds


class _World:
    def __init__(self, seed, clock):
        self.rng = rng = random.Random(seed)
        self.clock = clock
        self.staged = Staged(before=EMPTY, fabric=FABRIC)
        self.rooms = rooms = self.staged.rooms
        self.network = self.staged.stage.network
        self.full = self.quiet = False
        self.depth = self.between = self.beside = 0
        self.sent_mbps = np.zeros((len(FABRIC.racks),) * 2)
        self.events = dict(_WHAT)
        self.asked_for = set()
        """Pairs named in an operator's demand."""
        if rng.random() < 0.5:
            self.events["fill_journal"] = 1
        if rng.random() < 0.5:
            self.network.faults = Faults.draw(rng)
        self._put_together(rooms)

    def _put_together(self, rooms):
        """The work of a start, and duties that are always due."""
        self.staged.policy(on_drift=OnDrift.MEND)
        self.staged.staging._put = self.staged.staging.progress._put = rooms.conductor.put
        rooms.courses.recovery.done = rooms.upkeep.in_command = True
        rooms.reach.starting = False
        rooms.upkeep.hold_reserved = lambda: None
        rooms.fleet.mute = frozenset
        rooms.fleet.connected = lambda: frozenset(self.network.connected)
        rooms.fleet.await_connected = lambda *_: None
        planning, planner = self.staged.staging._planning, rooms.planner
        planner.propose = _whenever(planning.propose)
        planner.for_pins = _whenever(planning.for_pins)
        rooms.monitor.sent_mbps = self._now_sent
        ticks = iter(range(0, 10**9, 30))
        for retries in (
            rooms.upkeep._retries,
            rooms.upkeep.devices._retries,
            rooms.upkeep.devices._port_retries,
            rooms.reservation_care._retries,
        ):
            retries._clock = lambda: float(next(ticks))
        self.queue, self.scheduler = rooms.conductor._queue, rooms.conductor._scheduler
        for duty in (
            _itself(self.staged.stage.controller)._look_after,
            _itself(self.staged.staging).keep_time,
            _itself(rooms.reservation_care).keep_time,
        ):
            rooms.conductor.duty("duty", duty, lambda: 0.0, at_once=True)
        write = rooms.ledger._journal.write

        def written(changes):
            if self.full:
                raise JournalError("full")
            write(changes)

        rooms.ledger._journal.write = written

    def _now_sent(self):
        return self.sent_mbps.copy()

    def _do(self, job):
        """As the conductor does a job; any error except a refusal is a defect."""
        with suppress(HydraError):
            work = job()
            if isinstance(work, Coroutine):
                self._see_through(work)

    def _see_through(self, work):
        """Batches of all courses under way, in any order, and changes beside each other."""
        job = self.scheduler.begin(work)
        flying = self._flying([])
        while not job.over or self.scheduler.others:
            running = next((one for one in flying if one.batch.alone), self.rng.choice(flying))
            self._between_steps()
            while (part := self.queue.next_part()) is not None:
                part()
            flying.remove(running)
            self.scheduler.outcome(running, partial(self._carried_out, running.batch))
            flying = self._flying(flying)
            while (beside := self.scheduler.next_beside()) is not None:
                self.beside += 1
                self.scheduler.begin(beside, beside=True)
                flying = self._flying(flying)
        if job.error is not None:
            raise job.error

    def _flying(self, flying):
        """The courses whose batches are to be carried out."""
        for running in self.scheduler.moved():
            if running.beside and not isinstance(running.error, HydraError | None):
                raise running.error
            flying += [running] if running.batch is not None else []
        return flying

    def _carried_out(self, batch):
        return self.staged.stage.doer._perform(batch)

    # -- events ------------------------------------------------------------------------------------

    def _between_steps(self):
        if self.quiet or self.depth == _DEEPEST or self.between == _MOST_BETWEEN:
            return
        if self.rng.random() < _BETWEEN:
            self.between += 1
            self.depth += 1
            self.happen()
            self.depth -= 1

    def happen(self):
        self.clock.pass_(self.rng.choice(_PAUSES_S))
        (event,) = self.rng.choices([*self.events], [*self.events.values()])
        with suppress(HydraError):
            getattr(self, f"_{event}")()

    def _reserve(self):
        rng, racks = self.rng, [rack for rack in FABRIC.racks if rack.servers]
        services = [ServiceClass.SHARED] * 3 + [ServiceClass.BEST_EFFORT, ServiceClass.GUARANTEED]
        request = ReservationRequest(
            *(
                rng.choice([rack.name, *(server.name for server in rack.servers)])
                for rack in rng.sample(racks, 2)
            ),
            rng.choice([5.0, 20.0, 60.0, 90.0, 150.0]),
            duration_s=rng.choice([None, None, 0.05, 0.3]),
            # timed: a past moment is refused, which is a valid outcome
            start_unix_s=rng.choice([None, None, None, time.time() + 0.1]),
            priority=rng.choice([0, 0, 0, 2]),
            service=rng.choice(services),
            protect=rng.choice([Protect.NONE] * 3 + [Protect.DISJOINT]),
        )
        self.rooms.admission.reserve(request)

    def _one_booked(self):
        booked = [one for one in self.rooms.ledger.bookings.all() if one.is_booked]
        one = self.rng.choice(booked) if booked else None
        return "none" if one is None else one.bundle or one.id

    def _release(self):
        self.rooms.admission.release(self._one_booked())

    def _modify(self):
        end = time.time() + self.rng.choice([0.2, 5.0])
        change = Modification(bandwidth_mbps=self.rng.choice([5.0, 30.0]), end_unix_s=end)
        self.rooms.admission.modify(self._one_booked(), change)

    def _random_mbps(self, most, rates):
        mbps = np.zeros_like(self.sent_mbps)
        for _ in range(self.rng.randint(0, most)):
            mbps[tuple(self.rng.sample(range(len(mbps)), 2))] = rates()
        return mbps

    def _reconfigure(self):
        wanted = self._random_mbps(5, lambda: self.rng.choice([10.0, 50.0, 90.0]))
        self.asked_for |= {(min(ends), max(ends)) for ends in zip(*wanted.nonzero(), strict=True)}
        self.rooms.loop.reconfigure(PlanRequest(demand=wanted), "operator")

    def _traffic(self):
        room_mbps = 2 * FABRIC.electrical_rate_mbps
        self.sent_mbps = self._random_mbps(6, lambda: self.rng.uniform(0.1, 0.9) * room_mbps)

    def _lose(self):
        state = self.rooms.ledger.network.state
        if state.topology.paths:
            path = self.rng.choice(state.topology.paths)
            dead = frozenset(self.rng.sample(path.circuits, self.rng.randint(0, 1)))
            self.rooms.events.paths_lost([LostPath(path, state.vlans[path], dead, "probes lost")])

    def _set_aside(self):
        port = self.rng.choice(FABRIC.ports)
        self.rooms.quarantine.set_aside(FABRIC.racks[port.rack].name, port.tor_port, "test")

    def _clear(self, most=4):
        for entry in self.rooms.quarantine.entries()[:most]:
            port = FABRIC.ports[entry.port]
            self.rooms.quarantine.clear(FABRIC.racks[port.rack].name, port.tor_port)

    def _one_in_stages(self):
        return self.rng.choice([one.entry.id for one in self.staged.staging.agenda] or ["none"])

    def _stop(self):
        self.rooms.loop.stop(self._one_in_stages(), "operator")

    def _pause(self):
        self.rooms.loop.pause(self._one_in_stages(), True)

    def _resume(self):
        self.rooms.loop.pause(self._one_in_stages(), False)

    def _fill_journal(self):
        self.full = not self.full

    # -- turns of the conductor --------------------------------------------------------------------

    def turn(self):
        """Duties, and the next job, urgent or not; False without any."""
        self.between = 0
        for datapath in sorted(set(self.network.names) - self.network.connected):
            if self.quiet or self.rng.random() < 0.5:
                self.network.connected.add(datapath)
                self.rooms.courses.switches.renewed(datapath)
        while (turn := self.queue.next(time.monotonic())) is not None:
            self._do(turn.job)
            self.queue.over(turn, time.monotonic())
            if turn.duty is None:
                return True
        return False

    def play(self):
        for _ in range(_TURNS):
            for _ in range(self.rng.randint(0, 2)):
                self.happen()
            self.turn()
        self._come_to_rest()
        if found := [*self._left_over()]:
            raise Violation("; ".join(found))

    def _come_to_rest(self):
        """No more failures; all waiting work is done."""
        rooms, staging = self.rooms, self.staged.staging
        self.quiet, self.full = True, False
        self.network.faults = Faults()
        self.network.now_s += 100.0
        self.network.catch_up()
        self.network.unreliable.clear()
        self._clear(most=None)
        for change in [one.entry.id for one in staging.agenda]:
            with suppress(HydraError):
                rooms.loop.pause(change, False)
        idle, until_s = 0, time.monotonic() + _PATIENCE_S
        while idle < _QUIET:
            if time.monotonic() > until_s:
                raise Violation(f"never quiet: {[one.entry.id for one in staging.agenda]}")
            rooms.ledger.writer._next_try_s = rooms.withdrawals._retry_s = 0.0
            rooms.ledger.writer.catch_up()
            for change in staging.agenda:
                change.late_until_s = 0.0
            idle = 0 if self.turn() or len(staging.agenda) else idle + 1
            time.sleep(0.002)
        # A command may have been carried out long after the last read of its device.
        self.staged.stage.controller._audit()
        for _ in range(_QUIET):
            self.turn()

    def _left_over(self):
        rooms, ledger = self.rooms, self.rooms.ledger
        state, changes = ledger.network.state, {one.entry.id for one in self.staged.staging.agenda}
        for one in ledger.bookings.all():
            if one.state in (State.RELEASING, State.COMMITTED, State.ACTIVATING):
                yield f"reservation {one.id} is {one.state.value} for good"
            if one.state is State.ACTIVE and (one.path, one.vlan) != (
                one.booked,
                state.vlans.get(one.booked),
            ):
                yield f"reservation {one.id} is active, and not where it is said to be"
        for entry in ledger.log.reconfigurations():
            if not entry.is_over and entry.id not in changes:
                yield f"{entry.id}, asked for by {entry.trigger}, is {entry.state.value} for good"
        # A pair whose reservation has failed with its circuit gets another circuit, like any pair.
        failed = {
            one.pair
            for one in ledger.bookings.all()
            if one.state is State.FAILED or "after the failure" in one.reason
        }
        wanted = self.asked_for | failed | {one.pair for one in ledger.bookings.active()}
        pairs = set(map(pair_of, state.topology.paths))
        unwanted = set(chain(*ledger.network.unwanted(pairs).values()))
        for path in state.topology.paths:
            if pair_of(path) not in wanted or path in unwanted:
                yield f"nobody wants {path}"
        for circuit in state.topology.circuits - in_use(state):
            if not self._is_rest_of_a_path(circuit):
                yield f"no path has ever used {circuit}"
        kept = {
            "changes in the journal": {one.id for one in ledger.log.unfinished()} ^ changes,
            "asked for": rooms.loop._asked_for,
            "reservations that wait": rooms.placement._in_turn,
            "paths to be taken down": ledger.bookings.leaving(),
            "under way": ledger.network.under_way,
            "the journal lags": ledger.writer.behind,
            "stages at work": rooms.early_stages._under_way,
            "lost and standing": rooms.withdrawals._unwithdrawn,
            "pairs cut off": rooms.withdrawals._cut,
            "announcements suspended": rooms.announcer.suspended.locked(),
            "drift": rooms.auditor.look().items,
        }
        for what, left in kept.items():
            if left:
                yield f"{what}: {left}"

    def _is_rest_of_a_path(self, circuit):
        """True if the change that set up the circuit failed at another circuit."""
        for entry in self.rooms.ledger.log.reconfigurations():  # newest first
            failed = {one.circuit for one in entry.failures}
            if circuit in failed or circuit in entry.connected:
                return bool(failed) and circuit not in failed
        return False


def _itself(room):
    """A room whose coroutines are carried out by the scheduler, not by the caller."""
    return room.__dict__.get("_room", room)


def _whenever(planned):
    """A planner's answer, for any urgency."""

    def answer(*of, urgent):
        del urgent
        return planned(*of)

    return answer


def simulate(seed):
    with pytest.MonkeyPatch.context() as patch:
        try:
            _World(seed, _Clock(patch)).play()
        except Violation:
            raise
        except Exception as error:
            raise Violation(traceback.format_exc()) from error


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_whatever_comes_and_when_all_ends_as_it_should(seeds):
    hold_seeds(simulate, seeds)
