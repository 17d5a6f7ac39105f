"""A controller without a network: keeps reservations and reconfigurations in memory.

For tests of the REST layer only; the test sets all answers beyond these.
"""

import threading
from dataclasses import replace
from functools import partial

import numpy as np

from apps.demand.agent_desk import AgentDesk
from drivers.optical.panel_store import PanelStore
from hydra.config.reload import Change, Reload, amended
from hydra.decisions.builders import Builder
from hydra.decisions.decision import Action, Decision, SeenDemand, Verdict
from hydra.decisions.decision import Proposal as ProposedChange
from hydra.decisions.explanation import Evidence, explain
from hydra.demand.load import NOT_RECORDED, LoadLog
from hydra.errors import (
    AdmissionError,
    Changed,
    HydraError,
    LifecycleError,
    UnknownName,
    WrongRequest,
)
from hydra.events import EventKind, EventLog, Progress
from hydra.failures import Failure, FailureKind
from hydra.faults.diagnosis import Watch
from hydra.faults.facts import Facts
from hydra.faults.quarantine import Quarantined
from hydra.history import HappeningKind, History
from hydra.lifecycle import ReconfigurationState, ReservationState
from hydra.model import (
    Circuit,
    Fabric,
    NetworkState,
    OneWayCircuit,
    Path,
    PlaneId,
    PortId,
    RackId,
    Topology,
    VlanId,
)
from hydra.policy import CurrentPolicy, DemandBasis, Policy, Sharing, SharingChoice
from hydra.reconfiguration.course_choice import Course, Way
from hydra.reconfiguration.drift import Drift, DriftKind
from hydra.reconfiguration.plan import Plan
from hydra.reconfiguration.stages import Stage
from hydra.reservations.book import ReservationBook
from hydra.reservations.bundle import bundle_of, divisions
from hydra.reservations.shape_search import admit_shape, with_remedy
from hydra.reservations.shapes import shape_of
from hydra.roles import Alarm, Severity
from hydra.service import (
    CircuitFailure,
    CircuitShares,
    Delivery,
    DemandReport,
    DemandSource,
    DeviceStatus,
    DriftReport,
    GroupOutcome,
    PlanReport,
    QuarantinedPort,
    Reconciliation,
    Reconfiguration,
    Refusal,
    ReservationPreview,
    StepTiming,
)
from hydra.sharing.given_schedule import GivenSchedule
from hydra.sharing.slots import Night, Schedule, Week, WeekSlot
from tests.waiting import PATIENCE_S

CREATED_UNIX_S = 1_700_000_000.0
NO_LIGHT = Failure("carrier", "r3:o3.1", FailureKind.NO_CARRIER, "no light at r3")
SILENT = Failure("divert", "h12", FailureKind.UNKNOWN, "no answer")
ALARM = Alarm(Severity.MAJOR, 3, "LOS", "no light at the input")


PAST = (
    (0, HappeningKind.CONTROLLER, "release 1.0 started"),
    (1, HappeningKind.QUARANTINE, "carrier lost at r1:hyt-r1-p1: r1:hyt-r1-p1 left out of plans"),
    (2, HappeningKind.RESERVATION, "reservation v7 (r1 to r2, 40 Mb/s) is failed: no other path"),
)
"""Events of the history: minutes, kinds, words."""


def relay_path() -> Path:
    """r1 to r2 over r3: on p1 to r3, and on p2 from r3."""
    first = Circuit(PlaneId(0), PortId(0), PortId(4))
    second = Circuit(PlaneId(1), PortId(3), PortId(5))
    return Path(RackId(0), RackId(1), (first, second))


def recorded(service) -> None:
    """Samples of 120 s: growing rates from r1 to r3 on p1, with a gap; r1 to r2 80 Mb/s, back
    none.
    """
    service.recorded = LoadLog(service.fabric, 10.0)
    topology = service.network.topology
    pairs_mbps = np.zeros((4, 4))
    pairs_mbps[0, 1], pairs_mbps[3] = 80.0, np.nan
    for number in range(13):
        heard = {} if number == 6 else {PortId(0): 5.0 * number, PortId(4): 0.0}
        service.recorded.take(10.0 * number, topology, heard, pairs_mbps, 1 + number)


def ring_state(*, backwards: bool = False) -> NetworkState:
    """One-way circuits on p1 from r1 to r2, to r3, and to r1; or in the opposite direction."""
    racks = [(0, 1), (1, 2), (2, 0)]
    ends = [(dst, src) if backwards else (src, dst) for src, dst in racks]
    circuits = [OneWayCircuit(PlaneId(0), PortId(2 * src), PortId(2 * dst)) for src, dst in ends]
    paths = [
        Path(RackId(src), RackId(dst), (circuit,))
        for (src, dst), circuit in zip(ends, circuits, strict=True)
    ]
    vlans = dict.fromkeys(paths, VlanId(7))
    return NetworkState(5, Topology(frozenset(circuits), tuple(sorted(paths))), vlans)


class FakeService:
    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._lock = threading.Lock()
        self._book = ReservationBook(fabric)
        self._reconfigurations: list[Reconfiguration] = []
        self.network = NetworkState()
        self.for_agents = CurrentPolicy(Policy())
        self.events = EventLog("run", capacity=50)
        self.agents = AgentDesk(
            fabric=fabric, policy=self.for_agents, standing=lambda: (self.network, ())
        )
        self.divides = False
        """True if a request beyond any circuit is admitted as a bundle."""
        self.unready: list[str] = []
        self.away: list[str] = []
        """Missing parts, reported for every plan, too."""
        self.shared = Sharing.BY_DEMAND
        self.amendments = {}
        self.week: Week | None = None
        self.given: GivenSchedule | None = None
        self.drifting = [
            Drift(
                kind=DriftKind.CROSS_CONNECT,
                device="p1",
                subject="1 to 18",
                intended="connected",
                actual="nothing",
            ),
            Drift(
                kind=DriftKind.VLANS,
                device="r1",
                subject="hyt-r1-p1",
                intended="100",
                actual="4000",
            ),
        ]
        self.unmendable: list[Drift] = []
        self.reloads = 0
        self.quarantined = [
            QuarantinedPort(
                Quarantined(PortId(0), "no carrier at r1", CREATED_UNIX_S, CREATED_UNIX_S + 60),
                True,
            ),
            QuarantinedPort(Quarantined(PortId(3), "no light", CREATED_UNIX_S, None), False),
        ]
        self.trouble = {}
        """Facts of :meth:`conditions`, in addition to quarantine and reservations."""
        self.watch = Watch()
        self.recorded: LoadLog | None = None
        """The load, with samples of 120 s."""
        self.past = History()
        for minute, kind, text in PAST:
            self.past.add(CREATED_UNIX_S + 60 * minute, kind, text, [("r1", "r2")])
        self.fails_with: Exception | None = None
        """Error raised by all requests from the next one on."""
        self.planned_in: str | None = None
        """Name of the thread of the last planning."""
        self.plan_requests = []
        self.panel: PanelStore | None = None
        """The tasks of p1."""
        self.blocked = threading.Event()
        """While cleared, planning blocks."""
        self.blocked.set()

    @property
    def fabric(self) -> Fabric:
        return self._fabric

    @property
    def policy(self) -> Policy:
        return replace(Policy(sharing=self.shared), **self.amendments)

    def share(self, sharing: Sharing) -> None:
        self._may_fail()
        self.shared = sharing

    def sharing(self) -> SharingChoice:
        current = CurrentPolicy(self.policy)
        current.given = None if self.given is None else self.given.for_policy
        return current.sharing

    def schedule(self) -> Schedule:
        night, given = Night.of(self.fabric, self.policy, 0.125), self.given
        of_policy = None if given is None else given.for_policy
        return Schedule(night, self.week, None, 1, 1e9, 0.8, of_policy)

    def give_schedule(self, given: GivenSchedule, *, dry_run: bool = False) -> Week:
        self._may_fail()
        if not dry_run:
            self.given = given
        states = [NetworkState(topology=slot.topology) for slot in given.slots]
        slots = tuple(
            WeekSlot(state, slot.length_s) for state, slot in zip(states, given.slots, strict=True)
        )
        return Week(slots, (), 0.125, 80.0, 0.0, 120.0, 100.0)

    def end_schedule(self) -> None:
        self._may_fail()
        self.given = None

    def _may_fail(self) -> None:
        if self.fails_with is not None:
            raise self.fails_with

    # --- what a test does behind the API's back ----------------------------------------------

    def settle(
        self,
        reservation_id: str,
        state: ReservationState,
        reason: str = "",
        path: Path | None = None,
    ) -> None:
        """``path``: the active path; None: the booked path."""
        with self._lock:
            settled = self._book.transition(reservation_id, state, reason)
            path = path or settled.booked
            if state is ReservationState.ACTIVE and path is not None:
                self._book.put_back(replace(settled, booked=path))
                self._book.place(path, VlanId(100))
                settled = self._book.get(reservation_id)
        self.tell(settled)

    def tell(self, reservation) -> None:
        self.events.publish(EventKind.RESERVATION, CREATED_UNIX_S, reservation=reservation)

    def change(self, reconfiguration_id: str, **changes) -> None:
        """Change fields of a reconfiguration."""
        with self._lock:
            index = int(reconfiguration_id.removeprefix("c"))
            self._reconfigurations[index] = replace(self._reconfigurations[index], **changes)

    def finish(self, reconfiguration_id: str) -> None:
        """A partly failed reconfiguration, with a timeline."""
        circuit, other = relay_path().circuits
        with self._lock:
            index = int(reconfiguration_id.removeprefix("c"))
            self._reconfigurations[index] = replace(
                self._reconfigurations[index],
                started_unix_s=1_700_000_001.5,
                state=ReconfigurationState.PARTIAL,
                timeline=(
                    StepTiming("divert", None, 0.0, 4.5),
                    StepTiming("divert", "h11", 0.1, 4.0, "2 rules"),
                ),
                connected=frozenset({circuit}),
                failures=(CircuitFailure(other, NO_LIGHT),),
                troubles=(SILENT, NO_LIGHT),
                unconfirmed=("h12",),
                rules_pushed=8,
                ports_retagged=4,
            )
        self._report_progress(self._reconfigurations[index])

    def _report_progress(self, one) -> None:
        progress = Progress(one.id, one.state)
        self.events.publish(EventKind.RECONFIGURATION, CREATED_UNIX_S, progress=progress)

    # --- ControllerService ------------------------------------------------------------------

    def state(self) -> NetworkState:
        self._may_fail()
        return self.network

    def port_rates_mbps(self):
        return {port.id: 12.5 for port in self.fabric.ports[:1]}

    def load(self, racks, most):
        self._may_fail()
        if self.recorded is None:
            return NOT_RECORDED
        circuits = self.network.topology.circuits
        return self.recorded.load(120.0, CREATED_UNIX_S + 120, circuits, racks, most)

    def demand(self) -> DemandReport:
        rate = np.zeros((4, 4))
        rate[0, 1], rate[2, 3] = 12.5, 3.0
        troubles = {"no answer": 3}
        estimates = self.policy.demand is DemandBasis.ESTIMATE
        return DemandReport(
            DemandSource.MEASURED,
            rate,
            rate * 2,
            0.5,
            ("h42",),
            troubles,
            rate / 10,
            rate > 10,
            basis=self.policy.demand,
            spilled=(rate > 10) / 4,
            expected_mbps=rate * np.where(rate > 10, 1.6, 2) if estimates else None,
        )

    def plan(self, request) -> PlanReport:
        self._may_fail()
        self.planned_in = threading.current_thread().name
        self.blocked.wait(PATIENCE_S)
        self.plan_requests.append(request)
        if request.algorithm not in {None, "hydra-bfs"}:
            raise UnknownName(f"no algorithm {request.algorithm!r}: there is hydra-bfs")
        path = relay_path()
        target = NetworkState(
            epoch=self.network.epoch + 1,
            topology=Topology(frozenset(path.circuits), (path,)),
            vlans={path: VlanId(100)},
        )
        return PlanReport(
            Plan(
                current=self.network,
                target=target,
                affected=frozenset({(RackId(0), RackId(1))}),
                connect=frozenset(path.circuits),
                disconnect=frozenset(),
                mirrors={},
                untag_first={},
                retag={RackId(0): dict.fromkeys(["optical1", "optical2", "optical3", "optical4"])},
                tag_last={},
            ),
            rules=8,
            served_mbps=80.0,
            demand_mbps=80.0,
            verdict=Verdict(True, "gains 70 Mb/s", 70.0, 700.0, 5.0),
            planning_ms=1.5,
            way=Way((Course(target, in_light=False, away=frozenset({(RackId(0), RackId(1))})),)),
            on_circuits=CircuitShares(0.75, 0.875),
            at_risk=tuple(self.away),
            stages=(
                Stage(
                    target=target,
                    pairs=frozenset({(RackId(0), RackId(1))}),
                    diverted_mbps=90.0,
                    beyond={RackId(0): 10.0},
                    last=True,
                    detoured=frozenset({(RackId(0), RackId(1))}),
                ),
            ),
        )

    def reconfigure(self, request, trigger: str) -> Reconfiguration:
        self._may_fail()
        self.plan_requests.append(request)
        with self._lock:
            queued = Reconfiguration(
                f"c{len(self._reconfigurations)}",
                ReconfigurationState.QUEUED,
                trigger,
                1,
                CREATED_UNIX_S,
            )
            self._reconfigurations.append(queued)
        self._report_progress(queued)
        return queued

    def reconfigurations(self):
        return self._reconfigurations[::-1]

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        for one in self._reconfigurations:
            if one.id == reconfiguration_id:
                return one
        raise UnknownName(f"no reconfiguration {reconfiguration_id!r}")

    def stop(self, reconfiguration_id: str, by: str) -> Reconfiguration:
        return self._amended(reconfiguration_id, reason=f"stopped by {by}")

    def pause(self, reconfiguration_id: str, paused: bool) -> Reconfiguration:
        return self._amended(reconfiguration_id, paused=paused)

    def _amended(self, reconfiguration_id: str, **changes) -> Reconfiguration:
        one = self.reconfiguration(reconfiguration_id)
        if one.is_over:
            raise LifecycleError(f"reconfiguration {one.id} has no stage ahead of it")
        amended = replace(one, **changes)
        self._reconfigurations[self._reconfigurations.index(one)] = amended
        return amended

    def decisions(self):
        verdict = Verdict(False, "gains 1.0 Mb/s, less than 5 Mb/s", 1.0, 10.0, 0.0)
        circuit = Circuit(PlaneId(0), PortId(0), PortId(2))
        proposal = ProposedChange("hydra-bfs", frozenset({circuit}), frozenset(), 41.0, verdict)
        return [
            Decision(
                CREATED_UNIX_S,
                "periodic",
                Action.KEEP,
                verdict.reason,
                frozenset(),
                42.0,
                (SeenDemand(RackId(0), RackId(1), 30.0, 42.0, 36.0),),
                proposal,
            )
        ]

    def history(self, since_unix_s, before_unix_s, kinds, most):
        return self.past.between(since_unix_s, before_unix_s, kinds, most)

    def explain(self, a, b):
        evidence = Evidence(
            self._fabric,
            self.policy,
            self.state(),
            self.demand().rate_mbps,
            self.demand().estimated_mbps,
            self.reservations(),
            self.decisions(),
            {
                circuit: Builder(one.id, one.trigger, one.created_unix_s)
                for one in self.reconfigurations()
                for circuit in one.connected
            },
            happened=self.past.concerning(*(self._fabric.racks[one].name for one in (a, b)), 3),
            quarantine=[one.entry for one in self.quarantined],
            now_unix_s=CREATED_UNIX_S + 90,
            expected_mbps=self.demand().expected_mbps,
        )
        return explain(evidence, a, b)

    def reserve(self, request):
        self._may_fail()
        with self._lock:
            if request.retry and (
                known := self._book.admitted_before(request.owner, request.retry)
            ):
                return known[0]
            return self._admitted(request, f"v{len(self._book)}")

    def _admitted(self, request, name: str):
        try:
            return self._book.add(name, request, CREATED_UNIX_S)
        except AdmissionError:
            way = next(divisions(self._fabric, request, 16), None)
            if not self.divides or way is None:
                raise
        parts = [
            self._book.add(f"{name}.{number}", part, CREATED_UNIX_S, group="g", bundle=name)
            for number, part in enumerate(way)
        ]
        return bundle_of(self._fabric, parts)

    def reserve_all(self, requests, *, all_or_nothing):
        self._may_fail()
        admitted, refused = [], []
        with self._lock:
            retry = requests[0].retry
            if retry and (known := self._book.admitted_before(requests[0].owner, retry)):
                return GroupOutcome(known[0].group, known, ())
            for request in requests:
                try:
                    number = f"v{len(self._book)}"
                    admitted.append(
                        self._book.add(number, request, CREATED_UNIX_S, group=f"g{number}")
                        if not admitted
                        else self._book.add(
                            number, request, CREATED_UNIX_S, group=admitted[0].group
                        )
                    )
                except WrongRequest as error:
                    for one in admitted:
                        self._book.remove(one.id)
                    error.entry = requests.index(request)
                    raise
                except AdmissionError as error:
                    if all_or_nothing:
                        for one in admitted:
                            self._book.remove(one.id)
                        raise
                    refused.append(Refusal(request, error))
        if not admitted:
            raise refused[0].error
        return GroupOutcome(admitted[0].group, tuple(admitted), tuple(refused))

    def _trial(self, requests, most, _brief, apart=()):
        refused = {}
        book = ReservationBook(self._fabric, [one for one in self._book if one not in apart])
        for place, request in enumerate(requests):
            try:
                book.add(f"t{place}", request, CREATED_UNIX_S)
            except AdmissionError as error:
                refused[place] = error
        return dict(list(refused.items())[:most])

    def availability(self, request):
        return self._book.availability(request, CREATED_UNIX_S)

    def shape(self, shape_id):
        members = self.group(shape_id)
        return with_remedy(
            self._fabric, shape_of(self._fabric, members), partial(self._trial, apart=members)
        )

    def reserve_shape(self, shape):
        self._may_fail()

        def rooms(request):
            return self._book.rooms_mbps(request, CREATED_UNIX_S)

        def reserve(requests):
            return self.reserve_all(requests, all_or_nothing=True)

        retry = shape.wish.retry
        if retry and (known := self._book.admitted_before(shape.wish.owner, retry)):
            return GroupOutcome(known[0].group, known, ())
        return admit_shape(self._fabric, shape, reserve, self._trial, rooms)

    def preview(self, request):
        self._may_fail()
        with self._lock:
            reservation = self._admitted(request, "preview")
            parts = self._book.parts("preview") or (reservation,)
            for one in parts:
                self._book.remove(one.id)
        circuits = frozenset(circuit for one in parts for circuit in one.booked.circuits)
        return ReservationPreview(reservation, circuits, frozenset(), tuple(self.away))

    def _check_seen(self, seen):
        if seen is not None and self._book.get(seen.id) != seen:
            raise Changed("it has changed")

    def commit(self, reservation_id: str, seen=None):
        with self._lock:
            self._check_seen(seen)
            self._book.transition(reservation_id, ReservationState.COMMITTED)
            return self._book.begin(reservation_id, CREATED_UNIX_S)

    def group(self, group: str):
        with self._lock:
            return self._book.members(group)

    def modify(self, reservation_id: str, change, seen=None):
        with self._lock:
            self._check_seen(seen)
            return self._book.modify(reservation_id, change, CREATED_UNIX_S)

    def delivery(self, reservation_id: str):
        return Delivery(self.reservation(reservation_id), 38.5, None, ("h12",))

    def deliveries(self):
        return [self.delivery(one.id) for one in self.reservations() if one.holds_capacity]

    def usage(self, owner):
        with self._lock:
            return self._book.usage(owner, CREATED_UNIX_S)

    def reservations(self):
        with self._lock:
            return list(self._book)

    def reservation(self, reservation_id: str):
        with self._lock:
            if parts := self._book.parts(reservation_id):
                return bundle_of(self._fabric, parts)
            return self._book.get(reservation_id)

    def release(self, reservation_id: str, seen=None):
        with self._lock:
            self._check_seen(seen)
            over = {
                ReservationState.HELD: ReservationState.CANCELLED,
                ReservationState.SCHEDULED: ReservationState.CANCELLED,
                ReservationState.FAILED: ReservationState.RELEASED,
            }.get(self._book.get(reservation_id).state, ReservationState.RELEASING)
            return self._book.transition(reservation_id, over, "released")

    def release_group(self, group: str):
        for one in self.group(group):
            if one.is_booked or one.state is ReservationState.FAILED:
                self.release(one.id)
        return self.group(group)

    def devices(self):
        return [
            DeviceStatus("p1", "optical-switch", "polatis-scpi", True, "", (ALARM,)),
            DeviceStatus("h42", "vswitch", "openflow", False, "never connected"),
        ]

    def drift(self):
        self._may_fail()
        return DriftReport(tuple(self.drifting), ("h42",))

    def reconcile(self):
        found = self.drift()
        self.drifting = self.unmendable
        return Reconciliation(found, self.drift(), ("c0", "c1"))

    def amend(self, changes):
        self._may_fail()
        policy, _ = amended(self.policy, changes)
        self.amendments |= {key: getattr(policy, key) for key in changes}

    def reload(self, *, dry_run=False):
        self._may_fail()
        self.reloads += not dry_run
        return Reload(
            (Change("policy.epoch_s", "10.0", "5.0"),), (Change("fabric.racks", "4", "5"),)
        )

    def tasks(self, device: str):
        if device not in self.fabric.plane_by_name:
            raise UnknownName(f"there is no optical switch {device!r}")
        return self.panel.tasks() if device == "p1" and self.panel else ()

    def settle_task(self, device: str, task_id: int, state, note: str):
        self._may_fail()
        if self.panel is None:
            raise UnknownName(f"there is no task {task_id} at {device}")
        return self.panel.settle(task_id, state, note, CREATED_UNIX_S + 60)

    def quarantine(self):
        return self.quarantined

    def set_aside(self, rack: str, tor_port: str, reason: str):
        port = self.fabric.port_by_name.get((rack, tor_port))
        if port is None:
            raise UnknownName(f"no optical port {rack} {tor_port}")
        entry = Quarantined(port.id, reason, CREATED_UNIX_S, None)
        self.quarantined.append(QuarantinedPort(entry, False))
        return self.quarantined[-1]

    def clear_quarantine(self, rack: str, tor_port: str):
        for one in self.quarantined:
            port = self.fabric.ports[one.entry.port]
            if (self.fabric.racks[port.rack].name, port.tor_port) == (rack, tor_port):
                self.quarantined.remove(one)
                return one
        raise UnknownName(f"not in quarantine: {rack} {tor_port}")

    def not_ready(self):
        return self.unready

    def missing(self):
        return self.away

    def note_login(self, operator, address):
        self.past.add(CREATED_UNIX_S + 90, HappeningKind.LOGIN, f"{operator} came, from {address}")

    def conditions(self):
        facts = Facts(
            self.fabric,
            self.network,
            CREATED_UNIX_S + 90,
            self.reservations(),
            [one.entry for one in self.quarantined],
            **self.trouble,
        )
        return self.watch.conditions(facts)


class SurpriseError(HydraError):
    """A kind of error without a problem type in the API."""
