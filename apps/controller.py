"""The controller: one conductor thread decides and acts, everything else asks or reports.

Reconfigurations, reservations, start-up and switch synchronisation are jobs of one queue, so they
are never interleaved. Reads take a lock for a moment and never wait for a device.
"""

from __future__ import annotations

import gc
import logging
import queue
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from apps.announcer import Announced, Announcer, reachable_on
from apps.devices import Devices
from apps.fleet import Fleet
from apps.framework import PortInfo, Post
from apps.planning import Planning
from apps.runner import Runner
from apps.stats_poller import StatsPoller
from hydra.commands import Batch
from hydra.errors import (
    AdmissionError,
    DeviceError,
    DeviceUnavailable,
    HydraError,
    PlanError,
    UnknownName,
)
from hydra.executor import Conditions, Execution
from hydra.journal import Journal, JournalError
from hydra.journal_format import read_state, state_record
from hydra.lifecycle import ReconfigurationState, ReservationState
from hydra.model import (
    Circuit,
    CrossConnect,
    DatapathId,
    DemandMatrix,
    Fabric,
    NetworkState,
    PlaneId,
    PortId,
    RackId,
    Server,
)
from hydra.pipeline import COOKIE_TAG, COOKIE_TAG_MASK, RuleKind, cookie
from hydra.plan import Pair, Plan, paths_by_pair
from hydra.policy import Mode, Policy
from hydra.reconcile import Actual, reconcile, stray_mirrors, wanted_vlans
from hydra.reservations import Pin, Reservation, ReservationBook, ReservationRequest
from hydra.roles import PortVlans
from hydra.rules import FlowRule, Install, RemoveByCookie, RuleChange, base_rules, circuit_rules
from hydra.service import (
    CircuitFailure,
    DemandReport,
    DemandSource,
    DeviceStatus,
    PlanReport,
    PlanRequest,
    Reconfiguration,
    StepTiming,
    Verdict,
)
from hydra.worth import judge

LOG = logging.getLogger("hydra.controller")
_HISTORY: Final = 200
_KEPT_RESERVATIONS: Final = 1000
_HOUSEKEEPING_S: Final = 0.25
_REOPEN_S: Final = 2.0
_FIRST_OUTAGE_S: Final = 0.3
"""Assumed cost of a reconfiguration until one has been measured."""
_PLACEMENT_ATTEMPTS: Final = 3
_QUARANTINE_S: Final = 60.0
"""How long the ports of a circuit that failed are left out of planning."""


class Controller:
    """Implements :class:`hydra.service.ControllerService` on a live network."""

    def __init__(self, fabric: Fabric, policy: Policy, journal: Journal, post: Post) -> None:
        self._fabric = fabric
        self._policy = policy
        self._journal = journal
        self.fleet = Fleet(fabric, post)
        self._devices = Devices(fabric, policy)
        self._planning = Planning(fabric, policy)
        self._poller = StatsPoller(fabric, policy, self.fleet)
        self._announcer = Announcer(self.fleet, self._announced, policy.fdb_age_s / 3)
        self._runner = Runner(fabric, policy, self.fleet, self._devices, journal, self._announcer)
        self._lock = threading.RLock()
        self._state = NetworkState()
        self._book = ReservationBook()
        self._reconfigurations: OrderedDict[str, Reconfiguration] = OrderedDict()
        self._decisions: deque[str] = deque(maxlen=_HISTORY)
        self._standing: set[Pair] = set()
        """Pairs whose path an operator or the periodic mode asked for: no release removes it."""
        self._born_s: dict[Circuit, float] = {}
        self._quarantine: dict[PortId, tuple[str, float]] = {}
        self._dead_uplinks: frozenset[str] = frozenset()
        self._synchronised: set[DatapathId] = set()
        self._uncertain_planes: set[PlaneId] = set()
        self._executing: Execution | None = None
        self._outage_s = _FIRST_OUTAGE_S
        self._reconciled = False
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._conduct, name="conductor", daemon=True)
        self.fleet.watch(self._switch_connected, self._port_changed)

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Raises HydraError if the journal can't be used."""
        remembered = self._journal.load_state(self._fabric.name)
        if remembered is not None:
            self._state = read_state(self._fabric, remembered)
        self._book = ReservationBook.from_records(self._journal.load_reservations(), self._fabric)
        self._standing = set(paths_by_pair(self._state)) - {
            reservation.pair for reservation in self._book.active()
        }
        self._thread.start()
        self._announcer.start()
        self._poller.start()

    def stop(self) -> None:
        """End after the job under way; the network goes on as it is."""
        self._poller.stop()
        self._announcer.stop()
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()
        self._runner.close()
        self._devices.close()
        self._journal.close()

    def _conduct(self) -> None:
        next_epoch_s = time.monotonic() + self._policy.epoch_s
        next_reopen_s = 0.0
        while True:
            now_s = time.monotonic()
            if now_s >= next_reopen_s:
                self._safely(self._look_after_devices)
                next_reopen_s = time.monotonic() + _REOPEN_S
            if now_s >= next_epoch_s:
                next_epoch_s = max(next_epoch_s + self._policy.epoch_s, now_s)
                if self._policy.mode is Mode.PERIODIC:
                    self._safely(self._periodic)
            self._safely(self._expire_reservations)
            try:
                job = self._jobs.get(timeout=_HOUSEKEEPING_S)
            except queue.Empty:
                continue
            if job is None:
                return
            self._safely(job)

    def _safely(self, job: Callable[[], None]) -> None:
        """No job may end the conductor: what goes wrong is logged, the next one runs."""
        try:
            job()
        except HydraError as error:
            LOG.error("%s", error)
        except Exception:
            LOG.exception("a job failed unexpectedly; the controller goes on")

    # -- events, in the OpenFlow hub's thread -----------------------------------------------------

    def _switch_connected(self, datapath: DatapathId) -> None:
        with self._lock:
            self._synchronised.discard(datapath)
        self._jobs.put(lambda: self._synchronise((datapath,)))

    def _port_changed(self, datapath: DatapathId, port: PortInfo) -> None:
        self._jobs.put(self._update_dead_uplinks)
        if datapath in self._fabric.rack_by_tor_datapath and not port.up:
            self._jobs.put(self._withdraw_dead_circuits)

    # -- keeping vswitches as they should be ------------------------------------------------------

    def _rules_for(self, server: Server) -> list[FlowRule]:
        rules = list(base_rules(self._fabric, server, self._dead_uplinks))
        rules += circuit_rules(self._state, server)
        return rules

    def _synchronise(self, datapaths: Collection[DatapathId]) -> None:
        """Bring whole vswitches to the intended state, in one atomic bundle each."""
        if not self._reconciled:
            return  # the devices come first; every connected switch is synchronised after
        changes: dict[DatapathId, list[RuleChange]] = {}
        wipe = RemoveByCookie(COOKIE_TAG, COOKIE_TAG_MASK)
        for datapath in datapaths:
            server = self._fabric.server_by_datapath.get(datapath)
            if server is not None:
                missing = self.fleet.missing_ports(datapath)
                if missing:
                    LOG.error(
                        "vswitch of %s has no port %s: check the names in the configuration",
                        server.name,
                        ", ".join(missing),
                    )
                rules = [Install(rule) for rule in self._rules_for(server)]
                changes[datapath] = [wipe, *rules]
            elif datapath in self._fabric.rack_by_tor_datapath:
                normal = FlowRule(RuleKind.TOR_NORMAL, (), cookie(RuleKind.TOR_NORMAL))
                changes[datapath] = [Install(normal)]
            else:
                LOG.warning("switch %#x is not in the configuration; it is left alone", datapath)
        errors = self.fleet.apply(changes, self._policy.timeouts.vswitch_s)
        with self._lock:
            for datapath, error in errors.items():
                if error is None:
                    self._synchronised.add(datapath)
                else:
                    LOG.error("switch %#x was not synchronised: %s", datapath, error)
        self._update_dead_uplinks()
        self._announcer.announce(
            [entry for entry in self._announced() if entry[0].vswitch.datapath_id in changes]
        )

    def _announced(self) -> Announced:
        with self._lock:
            state = self._state
        return reachable_on(self._fabric, state)

    def _uplink_down(self, server: Server) -> bool:
        """Known to be down, at either end; a switch that is silent says nothing."""
        here = self.fleet.port(server.vswitch.datapath_id, server.vswitch.optical_port)
        tor = self._fabric.racks[server.rack].tor.datapath_id
        there = None if tor is None else self.fleet.port(tor, server.tor_port)
        return any(port is not None and not port.up for port in (here, there))

    def _update_dead_uplinks(self) -> None:
        """Reroute around servers whose optical uplink went down, and back when it returned."""
        dead = frozenset(s.name for s in self._fabric.servers if self._uplink_down(s))
        with self._lock:
            old, self._dead_uplinks = self._dead_uplinks, dead
            ready = self._synchronised & self.fleet.connected()
        if dead == old:
            return
        LOG.warning("optical uplinks down: %s", ", ".join(sorted(dead)) or "none")
        servers = self._fabric.server_by_datapath
        self._synchronise([datapath for datapath in ready if datapath in servers])

    # -- circuits that die ----------------------------------------------------------------------

    def _is_dark(self, end: PortId) -> bool:
        """Known to have no carrier; a ToR that is silent says nothing."""
        port = self._fabric.ports[end]
        tor = self._fabric.racks[port.rack].tor.datapath_id
        seen = None if tor is None else self.fleet.port(tor, port.tor_port)
        return seen is not None and not seen.up

    def _withdraw_dead_circuits(self) -> None:
        """A circuit lost its light: its pairs go electrical, and reservations elsewhere."""
        dead = {
            circuit
            for circuit in self._state.topology.circuits
            if self._is_dark(circuit.a) or self._is_dark(circuit.b)
        }
        if not dead:
            return
        reason = "carrier lost at " + ", ".join(
            f"{self._fabric.racks[port.rack].name}:{port.tor_port}"
            for circuit in sorted(dead)
            for port in (self._fabric.ports[circuit.a], self._fabric.ports[circuit.b])
            if self._is_dark(port.id)
        )
        LOG.error("%s", reason)
        with self._lock:
            for circuit in dead:
                for end in (circuit.a, circuit.b):
                    self._quarantine[end] = (reason, time.monotonic())
        entry = self._enter("circuit lost", reason)
        self._execute(entry, self._planning.without_circuits(self._state, dead))
        for reservation in self.reservations():
            if reservation.holds_capacity:
                self._place(reservation.id)

    # -- devices ----------------------------------------------------------------------------------

    def _look_after_devices(self) -> None:
        """Reconcile once at the start; afterwards open again what was lost, and tidy up."""
        self._release_quarantine()
        if not self._reconciled:
            self._reconcile()
            self._reconciled = True
            self._synchronise(self.fleet.connected())
            return
        for plane in self._fabric.planes:
            if self._devices.plane_problem(plane.id) is None:
                if plane.id in self._uncertain_planes:
                    self._tidy_plane(plane.id)
            else:
                self._uncertain_planes.add(plane.id)
                self._tidy_plane(plane.id)
        for rack in self._fabric.racks:
            if self._devices.tor_problem(rack.id) is not None:
                self._restore_tor(rack.id)
        late = self.fleet.connected() - self._synchronised
        if late:
            self._synchronise(late)

    def _read_devices(self) -> Actual:
        actual_mirrors: dict[PlaneId, frozenset[CrossConnect]] = {}
        for plane in self._fabric.planes:
            try:
                actual_mirrors[plane.id] = self._devices.cross_connects(plane.id)
            except DeviceError as error:
                LOG.error("%s", error)
        actual_vlans: dict[RackId, Mapping[str, PortVlans]] = {}
        for rack, ports in wanted_vlans(self._fabric, self._state).items():
            try:
                actual_vlans[rack] = self._devices.vlans(rack, ports)
            except DeviceError as error:
                LOG.error("%s", error)
        return Actual(actual_mirrors, actual_vlans)

    def _reconcile(self) -> None:
        """Find out what the network is in, and mend what differs from it."""
        found = reconcile(self._fabric, self._state, self._read_devices())
        if found.dropped:
            LOG.warning("%d circuit(s) of the journal are not there any more", len(found.dropped))
        with self._lock:
            self._state = found.state
            self._standing &= set(paths_by_pair(found.state))
            now_s = time.monotonic()
            self._born_s = dict.fromkeys(found.state.topology.circuits, now_s)
        for rack, ports in found.retag.items():
            self._try(partial(self._devices.set_vlans, rack, ports))
        for plane, move in found.mirrors.items():
            action = partial(self._devices.change_mirrors, plane, move.disconnect, move.connect)
            self._try(action)
        self._save_state("reconciled")

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except DeviceError as error:
            LOG.error("%s", error)

    def _tidy_plane(self, plane: PlaneId) -> None:
        """Take down what stands on our ports of a plane and belongs to no circuit."""
        try:
            present = self._devices.cross_connects(plane)
            stray = stray_mirrors(self._fabric, self._state, {plane: present})
            for move in stray.values():
                self._devices.change_mirrors(plane, move.disconnect, move.connect)
        except DeviceError as error:
            LOG.debug("%s", error)
            return
        self._uncertain_planes.discard(plane)

    def _restore_tor(self, rack: RackId) -> None:
        try:
            wanted = wanted_vlans(self._fabric, self._state)[rack]
            actual = self._devices.vlans(rack, wanted)
            wrong = {name: vlans for name, vlans in wanted.items() if actual.get(name) != vlans}
            if wrong:
                self._devices.set_vlans(rack, wrong)
        except DeviceError as error:
            LOG.debug("%s", error)

    # -- quarantine -------------------------------------------------------------------------------

    def _release_quarantine(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            over = [
                p for p, (_, since_s) in self._quarantine.items() if now_s - since_s > _QUARANTINE_S
            ]
            for port in over:
                del self._quarantine[port]

    def _blocked(self) -> frozenset[PortId]:
        """Ports that no plan may use: quarantined, or on a device that can't be commanded."""
        planes = {p.id for p in self._fabric.planes if self._devices.plane_problem(p.id)}
        racks = {r.id for r in self._fabric.racks if self._devices.tor_problem(r.id)}
        with self._lock:
            quarantined = set(self._quarantine)
        return frozenset(
            port.id
            for port in self._fabric.ports
            if port.id in quarantined or port.plane in planes or port.rack in racks
        )

    # -- carrying out -----------------------------------------------------------------------------

    def _execute(self, entry: Reconfiguration, target: NetworkState) -> Execution:
        """Take the network to ``target`` and keep the record of it up to date."""
        plan = self._planning.diff(self._state, target)
        conditions = Conditions(self.fleet.connected() & self._synchronised, self._dead_uplinks)
        execution = Execution(self._fabric, self._policy, plan, conditions, self._planning.order_of)
        started_s = time.monotonic()
        with self._lock:
            self._executing = execution
        draining = False
        gc.disable()  # a full collection stops every thread for a tenth of a second
        try:

            def on_batch(batch: Batch) -> None:
                nonlocal draining
                if (batch.step == "drain") != draining:
                    draining = not draining
                    toggle = self._announcer.suspended
                    toggle.acquire() if draining else toggle.release()
                self._update(entry.id, state=execution.state)

            self._runner.run(execution.run(), on_batch)
        except Exception as error:
            self._abandon(entry, execution, error)
            raise
        finally:
            gc.enable()
            if draining:
                self._announcer.suspended.release()
            with self._lock:
                self._executing = None
                self._settle(execution)
        self._finish(entry, execution, started_s)
        return execution

    def _abandon(self, entry: Reconfiguration, execution: Execution, error: Exception) -> None:
        """It ended half-way (a journal that can't be written, a defect): find out where it stands.

        What was diverted stays so, and works, until the devices have been read again.
        """
        self._update(entry.id, state=ReconfigurationState.FAILED, reason=str(error))
        if execution.state is not ReconfigurationState.QUEUED:
            self._reconciled = False

    def _settle(self, execution: Execution) -> None:
        """Adopt the resulting state (the caller holds the lock)."""
        now_s = time.monotonic()
        self._state = execution.result
        circuits = execution.result.topology.circuits
        self._born_s = {circuit: self._born_s.get(circuit, now_s) for circuit in circuits}
        self._uncertain_planes |= execution.uncertain_planes
        for circuit, reason in execution.failures.items():
            for port in (circuit.a, circuit.b):
                self._quarantine[port] = (reason, now_s)
        names = execution.unconfirmed
        self._synchronised -= {
            server.vswitch.datapath_id for server in self._fabric.servers if server.name in names
        }

    def _finish(self, entry: Reconfiguration, execution: Execution, started_s: float) -> None:
        self._save_state("reconfigured")
        timeline = tuple(
            StepTiming(
                step.name,
                step.device,
                (step.started_s - started_s) * 1000,
                (step.finished_s - started_s) * 1000,
                step.note,
            )
            for step in execution.steps
        )
        diverted = [step for step in execution.steps if step.name in ("divert", "activate")]
        if len(diverted) == 2 and not execution.failures:
            outage_s = diverted[1].finished_s - diverted[0].started_s
            self._outage_s += 0.3 * (outage_s - self._outage_s)
        self._update(
            entry.id,
            state=execution.state,
            timeline=timeline,
            epoch=execution.result.epoch,
            rules_pushed=execution.rules_pushed,
            ports_retagged=execution.ports_retagged,
            connected=execution.plan.connect - execution.failures.keys(),
            disconnected=execution.plan.disconnect,
            failures=tuple(
                CircuitFailure(circuit, reason)
                for circuit, reason in sorted(execution.failures.items())
            ),
            unconfirmed=tuple(sorted(execution.unconfirmed)),
            reason=execution.reason or "; ".join(sorted(set(execution.failures.values()))),
        )
        LOG.info("reconfiguration %s: %s", entry.id, self._reconfigurations[entry.id].state.value)

    def _save_state(self, what: str) -> None:
        record = state_record(self._fabric, self._state)
        self._journal.save_state(self._fabric.name, record)
        self._journal.record(time.time(), what, {"state": record})

    def _enter(self, trigger: str, reason: str = "") -> Reconfiguration:
        entry = Reconfiguration(
            id=uuid.uuid4().hex[:12],
            state=ReconfigurationState.QUEUED,
            trigger=trigger,
            epoch=self._state.epoch,
            created_unix_s=time.time(),
            reason=reason,
        )
        with self._lock:
            self._reconfigurations[entry.id] = entry
            while len(self._reconfigurations) > _HISTORY:
                self._reconfigurations.popitem(last=False)
        return entry

    def _update(self, reconfiguration_id: str, **changes: object) -> None:
        with self._lock:
            entry = self._reconfigurations.get(reconfiguration_id)
            if entry is not None:
                self._reconfigurations[reconfiguration_id] = replace(entry, **changes)  # type: ignore[arg-type]

    def _refuse(self, entry: Reconfiguration, reason: str) -> None:
        self._update(entry.id, state=ReconfigurationState.REFUSED, reason=reason)

    # -- demand and plans -------------------------------------------------------------------------

    @property
    def fabric(self) -> Fabric:
        return self._fabric

    @property
    def policy(self) -> Policy:
        return self._policy

    def state(self) -> NetworkState:
        with self._lock:
            return self._state

    def demand(self) -> DemandReport:
        rates, age_s, stale, ready = self._poller.rates()
        source = DemandSource.MEASURED if ready else DemandSource.NONE
        return DemandReport(source, rates, self._planning.estimate(rates), age_s, stale)

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        return self._poller.port_rates_mbps()

    def _wanted(self, request: PlanRequest) -> DemandMatrix:
        """The request's demand, or the measured one; reserved pairs at least as reserved."""
        demand = request.demand
        if demand is None:
            report = self.demand()
            if report.source is DemandSource.NONE:
                how = (
                    "wait for two polls"
                    if self._poller.enabled
                    else "set policy.poll_interval_s above 0"
                )
                raise PlanError(f"no demand has been measured yet: {how}, or give a demand")
            demand = report.estimated_mbps
        return np.array(demand, dtype=np.float64)

    def _pins(self) -> tuple[Pin, ...]:
        with self._lock:
            return self._book.pinned()

    def plan(self, request: PlanRequest) -> PlanReport:
        """Dry run; changes nothing. Raises PlanError, UnknownName."""
        started_s = time.monotonic()
        current = self.state()
        demand = self._wanted(request)
        target = self._planning.for_demand(current, request, demand, self._pins(), self._blocked())
        plan = self._planning.diff(current, target)
        verdict, served_mbps = self._judge(plan, demand)
        return PlanReport(
            current=current,
            target=target,
            connect=plan.connect,
            disconnect=plan.disconnect,
            affected_pairs=plan.affected,
            retagged_ports=plan.retagged_ports,
            rules=self._rules(plan),
            served_mbps=served_mbps,
            demand_mbps=float(demand.sum()),
            verdict=verdict,
            planning_ms=(time.monotonic() - started_s) * 1000,
        )

    def _rules(self, plan: Plan) -> int:
        racks = self._fabric.racks
        return sum(len(racks[a].servers) + len(racks[b].servers) for a, b in plan.affected)

    def _judge(self, plan: Plan, demand: DemandMatrix) -> tuple[Verdict, float]:
        now = self._planning.served(plan.current.topology, demand)
        then = self._planning.served(plan.target.topology, demand)
        old = paths_by_pair(plan.current)
        disturbed = sum(float(now[a, b] + now[b, a]) for a, b in plan.affected if (a, b) in old)
        now_s = time.monotonic()
        ages = [now_s - self._born_s.get(circuit, 0.0) for circuit in plan.disconnect]
        verdict = judge(
            self._policy,
            served_now_mbps=float(now.sum()),
            served_then_mbps=float(then.sum()),
            disturbed_mbps=disturbed,
            outage_s=self._outage_s,
            youngest_circuit_s=min(ages, default=float("inf")),
        )
        return verdict, float(then.sum())

    def reconfigure(self, request: PlanRequest, trigger: str) -> Reconfiguration:
        """Queue a reconfiguration; poll :meth:`reconfiguration` for its end."""
        self.plan(request)  # an impossible request is refused to its face
        entry = self._enter(trigger)
        self._jobs.put(lambda: self._reconfigure(entry, request))
        return entry

    def _reconfigure(self, entry: Reconfiguration, request: PlanRequest) -> None:
        try:
            report = self.plan(request)
            if request.only_if_it_pays and not report.verdict.pays:
                self._refuse(entry, f"does not pay: {report.verdict.reason}")
                return
            self._adopt(entry, report.target)
        except JournalError:
            raise  # recorded where it happened
        except HydraError as error:
            self._refuse(entry, str(error))

    def _adopt(self, entry: Reconfiguration, target: NetworkState) -> None:
        self._execute(entry, target)
        with self._lock:
            reserved = {reservation.pair for reservation in self._book.active()}
            self._standing = set(paths_by_pair(self._state)) - reserved
            for path, vlan in self._state.vlans.items():
                self._book.place(path, vlan)

    def _periodic(self) -> None:
        """One round of monitor, plan, and reconfigure if it pays."""
        request = PlanRequest(only_if_it_pays=True)
        try:
            report = self.plan(request)
        except PlanError as error:
            self._decide(f"no plan: {error}")
            return
        if report.target == report.current:
            self._decide("keep: the topology in place is the best known for this demand")
            return
        self._decide(f"{'change' if report.verdict.pays else 'keep'}: {report.verdict.reason}")
        if report.verdict.pays:
            entry = self._enter("periodic", report.verdict.reason)
            self._adopt(entry, report.target)

    def _decide(self, words: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._lock:
            self._decisions.appendleft(f"{stamp} {words}")

    def reconfigurations(self) -> Sequence[Reconfiguration]:
        with self._lock:
            return tuple(reversed(self._reconfigurations.values()))

    def reconfiguration(self, reconfiguration_id: str) -> Reconfiguration:
        with self._lock:
            try:
                return self._reconfigurations[reconfiguration_id]
            except KeyError:
                raise UnknownName(f"no reconfiguration {reconfiguration_id!r}") from None

    def decisions(self) -> Sequence[str]:
        with self._lock:
            return tuple(self._decisions)

    # -- reservations -----------------------------------------------------------------------------

    def reserve(self, request: ReservationRequest) -> Reservation:
        """Admit and queue. Raises AdmissionError, UnknownName, DeviceUnavailable."""
        with self._lock:
            self._book.check(request, self._fabric)
        self._check_switches(request)
        with self._lock:
            reservation = self._book.add(uuid.uuid4().hex[:12], request, self._fabric, time.time())
            others, own = self._split_pins(reservation)
            try:
                self._planning.for_reservation(self._state, own, others, self._blocked())
                self._keep(reservation)
            except AdmissionError as error:
                self._forget(reservation)
                raise self._with_devices(error) from error
            except HydraError:
                self._forget(reservation)
                raise
        self._jobs.put(lambda: self._activate(reservation.id))
        return reservation

    def _with_devices(self, error: AdmissionError) -> HydraError:
        """A refusal for want of a device names the device."""
        down = [
            f"OCS {plane.name} is down ({problem})"
            for plane in self._fabric.planes
            if (problem := self._devices.plane_problem(plane.id))
        ]
        return DeviceUnavailable("; ".join(down), str(error)) if down else error

    def _check_switches(self, request: ReservationRequest) -> None:
        ready = self.fleet.connected() & self._synchronised
        for name in (request.src, request.dst):
            server = self._fabric.server_by_name.get(name)
            servers = self._fabric.rack_by_name[name].servers if server is None else (server,)
            if not any(s.vswitch.datapath_id in ready for s in servers):
                who = ", ".join(s.vswitch.bridge for s in servers)
                raise DeviceUnavailable(
                    name, f"vswitch {who} is not connected: check its controller setting"
                )

    def _split_pins(self, reservation: Reservation) -> tuple[list[Pin], Pin]:
        pins = self._book.pinned()
        own = next(pin for pin in pins if (pin.src, pin.dst) == reservation.pair)
        return [pin for pin in pins if pin is not own], own

    def _forget(self, reservation: Reservation) -> None:
        self._book = ReservationBook(r for r in self._book if r.id != reservation.id)

    def _keep(self, reservation: Reservation) -> None:
        self._journal.save_reservation(reservation.id, reservation.to_record())

    def _change(
        self, reservation_id: str, state: ReservationState, reason: str = ""
    ) -> Reservation:
        with self._lock:
            reservation = self._book.transition(reservation_id, state, reason)
            self._keep(reservation)
            self._book.prune(_KEPT_RESERVATIONS)
            return reservation

    def _activate(self, reservation_id: str) -> None:
        if self.reservation(reservation_id).state is ReservationState.ACTIVATING:
            self._place(reservation_id)

    def _place(self, reservation_id: str) -> None:
        """Give the reservation its path; on another plane if the first one fails."""
        reason = ""
        for _ in range(_PLACEMENT_ATTEMPTS):
            with self._lock:
                reservation = self._book.get(reservation_id)
                if not reservation.holds_capacity:
                    return
                others, own = self._split_pins(reservation)
            try:
                target = self._planning.for_reservation(self._state, own, others, self._blocked())
                if target != self._state:
                    entry = self._enter(f"reservation {reservation_id}")
                    execution = self._execute(entry, target)
                    reason = reason or execution.reason
                    reason = reason or "; ".join(sorted(set(execution.failures.values())))
            except HydraError as error:
                reason = reason or str(error)
                break
            path = paths_by_pair(self._state).get(reservation.pair)
            if path is not None:
                with self._lock:
                    placed = self._book.place(path, self._state.vlans[path])
                    for other in placed:
                        self._keep(other)
                if reservation.state is ReservationState.ACTIVATING:
                    self._change(reservation_id, ReservationState.ACTIVE)
                return
        self._change(reservation_id, ReservationState.FAILED, reason or "no path came up")

    def reservations(self) -> Sequence[Reservation]:
        with self._lock:
            return tuple(self._book)

    def reservation(self, reservation_id: str) -> Reservation:
        with self._lock:
            return self._book.get(reservation_id)

    def release(self, reservation_id: str) -> Reservation:
        """Raises UnknownName, LifecycleError."""
        reservation = self._change(reservation_id, ReservationState.RELEASING, "asked for")
        self._jobs.put(lambda: self._release(reservation))
        return reservation

    def _release(self, reservation: Reservation) -> None:
        self._take_down(reservation)
        self._change(reservation.id, ReservationState.RELEASED, reservation.reason)

    def _take_down(self, reservation: Reservation) -> None:
        """Remove the pair's path unless somebody else has a claim to it."""
        with self._lock:
            claimed = reservation.pair in self._standing or any(
                other.pair == reservation.pair for other in self._book.active()
            )
        if claimed or reservation.pair not in paths_by_pair(self._state):
            return
        entry = self._enter(f"release of reservation {reservation.id}")
        try:
            self._execute(entry, self._planning.without_pair(self._state, reservation.pair))
        except HydraError as error:
            self._refuse(entry, str(error))

    def _expire_reservations(self) -> None:
        with self._lock:
            over = self._book.expired(time.time())
        for reservation_id in over:
            reservation = self._change(reservation_id, ReservationState.EXPIRED, "its time is up")
            self._take_down(reservation)

    # -- what there is ----------------------------------------------------------------------------

    def devices(self) -> Sequence[DeviceStatus]:
        connected = self.fleet.connected()
        vswitches = [
            DeviceStatus(
                server.vswitch.bridge,
                "vswitch",
                "openflow",
                server.vswitch.datapath_id in connected,
                "optical uplink down" if server.name in self._dead_uplinks else "",
            )
            for server in self._fabric.servers
        ]
        return [*self._devices.statuses(), *vswitches]

    def not_ready(self) -> Sequence[str]:
        """What is still missing before the controller can do its job; empty when ready."""
        missing = [] if self._reconciled else ["devices have not been read yet"]
        with self._lock:
            ready = self._synchronised & self.fleet.connected()
        missing += [
            f"vswitch {server.vswitch.bridge} is not connected"
            for server in self._fabric.servers
            if server.vswitch.datapath_id not in ready
        ]
        return missing + [
            f"{status.kind} {status.name}: {status.detail}"
            for status in self._devices.statuses()
            if not status.connected
        ]
