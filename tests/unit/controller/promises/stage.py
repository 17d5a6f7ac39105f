"""Reservations with their ledger, journal and planning, and doors at which checks wait."""

import os
import queue
import signal
import threading
from contextlib import contextmanager
from types import SimpleNamespace

from apps.controller.promises.admission import Admission
from apps.controller.promises.care import ReservationCare
from apps.controller.promises.limits import Limits
from apps.controller.promises.placement import Placement
from apps.controller.record.ledger import Ledger
from apps.controller.rejoining import Rejoining
from apps.planning import single_paths
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from hydra.forwarding.substrate import substrate_of
from hydra.journal import JournalError, Kind
from hydra.lifecycle import ReconfigurationState
from hydra.model import NetworkState
from hydra.policy import Policy
from hydra.reconfiguration.touched import Touched
from hydra.reservations.reservation import ReservationRequest
from tests.journals import SqliteJournal
from tests.unit.controller.runners import at_once, awaited, do
from tests.unit.core.fabrics import (
    path_of,
    small_fabric,
    state_of,
)
from tests.waiting import HANGS_S, PATIENCE_S

FABRIC = small_fabric(racks=4, planes=1)
POLICY = Policy(planning_budget_ms=300, planning_grace_ms=1700)
STANDING = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1))
"""A path without a reservation, whose port TO_R3 needs."""
TO_R3 = ReservationRequest("h11", "r3", 40.0)
SOON_S = HANGS_S
"""Without a wait, a call takes milliseconds; a wait at a door takes DOOR_S."""
DOOR_S = PATIENCE_S


class Door:
    """A call waits here until the door is open."""

    def __init__(self):
        self._open = threading.Event()
        self.reached = threading.Event()
        self.open, self.knocks = self._open.set, 0

    def pass_through(self):
        self.knocks += 1
        self.reached.set()
        assert self._open.wait(DOOR_S)


class Stage:
    """Reservations with their ledger, journal and planning; devices that carry out every change."""

    def __init__(self, journal, fabric=FABRIC, policy=POLICY, paths_per_pair=16):
        self.fabric, self.journal = fabric, journal
        self.ledger = Ledger(fabric=fabric, journal=journal)
        self.planning, self.planner = Planning(fabric, policy), Planner(fabric, policy)
        self.blocked = self.blocked_with_all_planes = frozenset()
        self.awaited = frozenset()
        self.refusal = ""
        """Reason why traffic of r1's reservations can't take its circuits."""
        self.jobs = queue.SimpleQueue()
        steering = substrate_of(fabric).steering
        switches = frozenset(one.datapath for rack in fabric.racks for one in steering(rack.id))
        self.upkeep = SimpleNamespace(
            hold_reserved=lambda: None,
            refuses=True,
            refusal=awaited(lambda reservation: self.refusal if reservation.src == "r1" else ""),
        )
        self.reach = SimpleNamespace(
            blocked_ports=lambda: self.blocked,
            absences=SimpleNamespace(at_risk=lambda _pairs: ()),
            blocked_with_all_planes=lambda: self.blocked_with_all_planes,
            down_planes=list,
            ready_switches=lambda: switches,
            awaited_racks=lambda: self.awaited,
        )
        panels = SimpleNamespace(awaited=lambda _path: False)
        self.mover = SimpleNamespace(
            move=awaited(self.move), beside=SimpleNamespace(touched=Touched())
        )
        limits = Limits(
            reach=self.reach,
            mover=self.mover,
            ledger=self.ledger,
            max_hops=policy.max_hops,
            paths_per_pair=paths_per_pair,
        )
        placement = Placement(
            planning=self.planning,
            planner=self.planner,
            mover=self.mover,
            upkeep=self.upkeep,
            reach=self.reach,
            panels=panels,
            ledger=self.ledger,
            limits=limits,
            enqueue=self.jobs.put,
        )
        care = ReservationCare(
            fabric=fabric,
            planning=self.planning,
            mover=self.mover,
            upkeep=self.upkeep,
            reach=self.reach,
            ledger=self.ledger,
            placement=placement,
            enqueue=self.jobs.put,
        )
        rejoining = Rejoining(
            fabric=fabric,
            planning=self.planning,
            mover=self.mover,
            reach=self.reach,
            ledger=self.ledger,
        )
        self.placement, self.care = at_once(placement), at_once(care)
        self.rejoining = at_once(rejoining)
        self.reservations = Admission(
            fabric=fabric,
            planning=self.planning,
            planner=self.planner,
            reach=self.reach,
            ledger=self.ledger,
            limits=limits,
            placement=placement,
            care=care,
            notice_s=policy.preemption_notice_s,
        )

    def move(self, entry, target):
        self.planning.diff(self.ledger.network.state, target)
        self.ledger.network.settle(target)
        self.ledger.reservations.save("reconfigured")
        self.ledger.log.update(entry.id, state=ReconfigurationState.DONE)
        return SimpleNamespace(reason="", failures={})

    def conduct(self):
        """The jobs that are waiting."""
        while not self.jobs.empty():
            do(self.jobs.get()())

    def told(self):
        """All parts of a reservation that other rooms see."""
        return self.ledger.bookings.all(), self.ledger.bookings.pins(), self.ledger.events.last

    def on_disk(self):
        return sorted(record["id"] for record in self.journal.records(Kind.RESERVATION))


class Disk(SqliteJournal):
    """A journal on a disk that can be full."""

    full = False

    def write(self, changes):
        if self.full:
            raise JournalError("database or disk is full")
        super().write(changes)


def shut_vlans(monkeypatch, door, failing=None):
    """The choice of VLAN-IDs waits at the door, and is refused behind the door if ``failing``."""
    real = single_paths.marks_of

    def marks_of(fabric):
        marks = real(fabric)

        def state(current, target):
            door.pass_through()
            if failing is not None:
                raise failing
            return marks.state(current, target)

        return SimpleNamespace(
            state=state,
            order=marks.order,
            problems=marks.problems,
            transit_problems=marks.transit_problems,
        )

    monkeypatch.setattr(single_paths, "marks_of", marks_of)


def change(stage, state):
    """The calls of a reconfiguration's end to the ledger."""
    stage.ledger.network.settle(state)
    stage.ledger.reservations.save("reconfigured")


@contextmanager
def planner_of(stage, *, stopped=False):
    """A planner process; ``stopped``: without answers."""
    stage.planner.start()
    try:
        stage.planner.for_pins(NetworkState(), (), (), urgent=True)
        if stopped:
            os.kill(stage.planner.pid, signal.SIGSTOP)
        yield
    finally:
        stage.planner.close()
