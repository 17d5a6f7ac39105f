"""The controller: its rooms, how they are joined, and when the conductor does what.

One conductor thread decides and acts (:mod:`apps.controller.conductor`), everything else asks
(:mod:`apps.controller.desk`) or reports. Reads never wait for a device.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from apps.controller.announcer import Announcer
from apps.controller.auditor import Auditor
from apps.controller.classifier import Classifier
from apps.controller.conductor import Conductor
from apps.controller.desk import Desk
from apps.controller.devices import Devices
from apps.controller.health import Health
from apps.controller.loop import Loop
from apps.controller.mastership import Mastership
from apps.controller.mover import Mover
from apps.controller.patch_panels import PatchPanels
from apps.controller.policing import Policing
from apps.controller.policy_desk import PolicyDesk
from apps.controller.prober import Prober
from apps.controller.quarantine import Quarantine
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.reservation_care import ReservationCare
from apps.controller.runner import Runner
from apps.controller.slots import Slots
from apps.controller.spiller import Spiller
from apps.controller.staging import Staging
from apps.controller.upkeep import Upkeep
from apps.controller.withdrawals import Withdrawals
from apps.demand.agent_desk import AgentDesk
from apps.demand.estimator import DemandEstimator
from apps.demand.load_recorder import LoadRecorder
from apps.demand.poller import StatsPoller
from apps.demand.tor_counters import TorCounters
from apps.openflow.fleet import Fleet
from apps.openflow.requests import CatchUp, read_first
from apps.openflow.seam import PortInfo, Post
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from apps.process.metrics import Metrics
from apps.process.term import Alone, Term
from apps.process.tracing import Traces
from hydra.config import Loaded
from hydra.errors import HydraError
from hydra.faults.conditions import RefusedWorker
from hydra.faults.server_links import Dead
from hydra.faults.surveillance import LostPath
from hydra.forwarding.substrate import substrate_of
from hydra.history import HappeningKind
from hydra.journal import Journal, JournalCopy
from hydra.model import DatapathId, Server
from hydra.policy import MOST_PATHS_PER_PAIR, CurrentPolicy, Mode
from hydra.reconfiguration.audit import Audit
from hydra.reconfiguration.device_care import DeviceCare
from hydra.reconfiguration.recovery import Recovery
from hydra.reconfiguration.switches import MovedPort, Switches
from hydra.sharing.spill import Spills

LOG = logging.getLogger("hydra.controller")
_UPKEEP_S: Final = 2.0
_RESUME_S: Final = 10.0
"""Longest wait of reservations after a start, for switches that are missing."""


class Controller:
    """A live network's controller: :attr:`desk` answers, :attr:`fleet` hears the switches."""

    def __init__(
        self,
        loaded: Loaded,
        journal: Journal,
        post: Post,
        read_file: Callable[[], Loaded],
        traces: Traces | None = None,
        give_up: Callable[[HydraError], None] = LOG.critical,
        term: Term | None = None,
        catch_up: CatchUp = read_first,
        workers_refused: Callable[[], Sequence[RefusedWorker]] = lambda: (),
    ) -> None:
        """``read_file`` reads the configuration file again; ``give_up`` ends the process, where
        another controller is at work. ``term``: when this one leads; None: always. ``catch_up``:
        see :class:`~apps.openflow.switchboard.Switchboard`. ``workers_refused``: as of now.
        """
        term = self._term = term or Alone()
        fabric, at_start = loaded.fabric, loaded.policy
        policy = self._policy = CurrentPolicy(at_start)
        substrate, timeout_s = substrate_of(fabric), at_start.timeouts.vswitch_s
        self._fabric = fabric
        metrics = self.metrics = Metrics()
        fleet = self.fleet = Fleet(fabric, post, term.over, catch_up)
        metrics.count_connections(lambda: len(fleet.connected()) + len(fleet.mute()))
        conductor = self._conductor = Conductor(metrics)

        # What is known: the journal's state, devices, switches
        ledger = self._ledger = Ledger(
            fabric, journal, metrics, traces, stored_events=term.is_shared
        )
        devices = self._devices = Devices(fabric, at_start, metrics, ledger.log.tell_alarm, term)
        panels = PatchPanels(fabric, devices)
        quarantine = self._quarantine = Quarantine(
            fabric, journal, policy, partial(ledger.log.note, HappeningKind.QUARANTINE)
        )
        policing = self._policing = Policing(fabric, fleet, timeout_s)
        mastership = self._mastership = Mastership(
            fleet, substrate.owned(), timeout_s, term, counts=not substrate.retags
        )

        # Demand and plans
        planning = Planning(fabric, at_start)
        planner = self._planner = Planner(fabric, at_start)
        poller = self._poller = StatsPoller(fabric, at_start, fleet)
        tor_counters = self._tor_counters = TorCounters(fabric, at_start, devices)
        agents = AgentDesk(
            fabric, policy, ledger.network.standing, on_elephants=self._elephants_changed
        )
        ledger.events.listen(agents.circuits_may_have_changed)
        spills = Spills(len(fabric.racks))
        classifier = self._classifier = Classifier(
            fabric, fleet, agents.elephants, policy, lambda: spills.parts
        )

        # Courses of the core, and who carries them out
        switches = self._switches = Switches(
            fabric,
            policy,
            ledger.network,
            fleet,
            lambda datapath: (*classifier.rules_for(datapath), *policing.rules_for(datapath)),
            self._ports_followed,
        )
        people = frozenset(p.id for p in fabric.planes if devices.worked_by_people(p.id))
        care = DeviceCare(fabric, policy, ledger.network, switches, people)
        recovery = self._recovery = Recovery(fabric, ledger.network, switches, care)
        reach = self._reach = Reach(
            fabric, fleet, devices, ledger, quarantine, panels, switches, care, recovery
        )
        announcer = self._announcer = Announcer(
            fleet, substrate, reach.announced, at_start.fdb_age_s / 3
        )
        runner = self._runner = Runner(
            fabric,
            policy,
            fleet,
            devices,
            ledger.writer,
            ledger.reservations,
            announcer,
            metrics,
            mastership,
            policing,
            conductor.wait_for,
            self._look_soon,
        )
        upkeep = self._upkeep = Upkeep(
            fabric,
            fleet,
            devices,
            ledger,
            quarantine,
            panels,
            policing,
            mastership,
            runner,
            switches,
            care,
            recovery,
            give_up,
            conductor.put,
            lambda: conductor.put_once(self._synchronise),
        )
        mover = self._mover = Mover(
            fabric, policy, planning, runner, upkeep, reach, announcer, ledger
        )
        audit = Audit(fabric, ledger.network, switches, care, recovery)
        auditor = self._auditor = Auditor(policy, ledger, reach, mover, planning, runner, audit)
        mover.while_waiting(self._audit_while_waiting)

        # What is asked for and decided
        staging = self._staging = Staging(
            fabric, policy, planning, ledger, reach, mover, conductor.put
        )
        loop = self._loop = Loop(
            fabric,
            policy,
            metrics,
            planner,
            DemandEstimator(fabric, policy),
            poller,
            tor_counters,
            agents,
            policing,
            ledger,
            reach,
            mover,
            staging,
            panels,
            spills,
            conductor.put,
            self._look_soon,
        )
        load_recorder = self._load_recorder = LoadRecorder(
            fabric,
            at_start,
            poller,
            loop.port_rates_mbps,
            lambda: ledger.network.state.topology.circuits,
        )
        slots = self._slots = Slots(fabric, policy, mover, ledger, loop.draft_week)
        reservations = self._reservations = ReservationCare(
            fabric,
            planning,
            planner,
            mover,
            upkeep,
            reach,
            panels,
            ledger,
            at_start.max_hops,
            fabric.paths_per_pair(at_start.paths_per_pair) or MOST_PATHS_PER_PAIR,
            at_start.preemption_notice_s,
            conductor.put,
            self._look_soon,
        )
        withdrawals = self._withdrawals = Withdrawals(
            planning, ledger, upkeep, quarantine, panels, reach, mover, reservations
        )
        mover.let_in(loop.beside)  # after what is lost, and what is reserved
        self._prober = Prober(
            fabric,
            at_start,
            fleet,
            ledger.network.standing,
            reach.on_circuits,
            self._paths_lost,
            metrics,
            switches.linked,
            self._uplinks_one_way,
        )
        health = self._health = Health(
            fabric,
            ledger,
            reach,
            quarantine,
            poller,
            auditor,
            reservations,
            policing,
            workers_refused,
            term.risks,
            lambda: upkeep.one_way_uplinks,
        )
        self.policies = PolicyDesk(
            loaded,
            read_file,
            policy,
            slots,
            classifier,
            switches,
            self._synchronise,
            conductor,
            partial(ledger.log.note, HappeningKind.POLICY),
        )
        self._spiller = Spiller(fabric, policy, spills, loop.room, self.policies.classify)
        self.desk = Desk(
            fabric,
            policy,
            conductor,
            ledger,
            loop,
            load_recorder,
            reservations,
            policing,
            self.policies,
            slots,
            auditor,
            quarantine,
            panels,
            reach,
            health,
            agents,
            withdrawals.hear_people,
        )
        fleet.watch(
            self._switch_connected,
            self._port_changed,
            self._switches.answers_again,
            self._switch_answers,
            self._ports_renumbered,
        )
        fleet.watch_rivals(ledger.log.tell_alarm, mastership.taken_over)

    # -- life -------------------------------------------------------------------------------------

    def look_ahead(self, copy: JournalCopy) -> None:
        """Read what another controller has written, so that :meth:`start` has less to do."""
        self._ledger.look_ahead(copy)

    def start(self) -> None:
        """Raises HydraError if the journal can't be used, or another controller is at work."""
        self._devices.claim()
        self._ledger.load()
        self._loop.take_over(self._ledger.log.unfinished())
        self._quarantine.load()
        self._planner.start()
        self._give_duties()
        self._conductor.start(self._slots.patience_s)
        self._announcer.start()
        self._poller.start()
        self._tor_counters.start()
        self._load_recorder.start()
        self._prober.start()
        self._policing.start()

    def end_soon(self) -> None:
        """Begin nothing more by itself; what is asked for is done until :meth:`stop`, but for what
        the journal has others go on with, where others may lead.
        """
        if self._term.is_shared:
            self._conductor.end_soon()
            self._reservations.end_soon()
        self._devices.end_soon()
        self._policing.stop()
        self._prober.stop()
        self._tor_counters.stop()
        self._announcer.stop()

    def stop(self, nothing_follows: Callable[[], None] = lambda: None) -> None:
        """End after the jobs that have been asked for; the network goes on as it is.

        ``nothing_follows`` is called once no device and no journal is written any more: another
        controller may lead from then on, while the rest of this one ends.
        """
        self.end_soon()
        self._conductor.stop()
        self._mastership.stop()
        self._runner.close()
        self._devices.close()
        self._ledger.close()
        nothing_follows()
        self._load_recorder.stop()
        self._poller.stop()
        self._planner.close()

    def alive(self) -> bool:
        """True if the conductor's thread runs."""
        return self._conductor.alive

    def put(self, job: Callable[[], None]) -> None:
        """Have the conductor do a job between two others."""
        self._conductor.put(job)

    # -- the conductor's duties -------------------------------------------------------------------

    def _give_duties(self) -> None:
        policy, reach, duty = self._policy, self._reach, self._conductor.duty
        self._began_s = time.monotonic()
        duty("upkeep", self._look_after, lambda: _UPKEEP_S, at_once=True)
        duty("upkeep", self._health.look, lambda: _UPKEEP_S)
        duty("people", self._withdrawals.hear_people, lambda: _UPKEEP_S)
        duty(
            "upkeep",  # agents fall silent, too
            self.policies.classify,
            lambda: _UPKEEP_S if policy.now.sharing.elephants_only else None,
        )
        duty("spill", self._spiller.look, self._spiller.interval_s)
        duty("reservations", self._resume, lambda: 0.0 if reach.starting else None)
        duty("prediction", self._loop.foretell, lambda: policy.now.poll_interval_s or None)
        duty("periodic", self._loop.periodic, self._epoch_s)
        duty("stages", self._staging.keep_time, lambda: _UPKEEP_S)
        duty("stages", self._loop.resume, self._resume_s)
        self._audit_duty = duty("audit", self._audit, lambda: policy.now.audit_interval_s or None)
        duty("reservations", self._reservations.keep_time, lambda: None if reach.starting else 0.0)
        duty("policing", self._upkeep.hold_reserved, lambda: 0.0)
        duty("slots", self._slots.keep_time, lambda: 0.0)

    def _look_after(self) -> None:
        recovered, before = self._recovery.done, self._ledger.network.state
        if self._upkeep.look_after():
            self._conductor.put_once(self._synchronise)
        if self._recovery.done and not recovered:  # fibres may have been cut meanwhile
            self._withdrawals.after_recovery(before)
        elif self._withdrawals.due:
            self._withdrawals.of_dead_circuits()

    def _synchronise(self) -> None:
        """Changes that wait come in between, where switches are many."""
        if self._upkeep.synchronise():
            self._conductor.put_once(self._synchronise)
        elif self._withdrawals.due:  # a switch may be there that an attempt was short of
            self._withdrawals.of_dead_circuits()

    def _follow_numbers(self) -> None:
        if self._upkeep.follow_numbers():
            self._synchronise()

    def _resume(self) -> None:
        """Resume reservations once everything is there, or ``_RESUME_S`` after the start.

        What has been away for as long before this controller began to lead is not waited for.
        """
        awaited = not self._recovery.done or self._reach.awaits(_RESUME_S, self._began_s)
        if not awaited or time.monotonic() > self._began_s + _RESUME_S:
            self._reach.starting = False
            self._reservations.resume()

    def _resume_s(self) -> float | None:
        return _UPKEEP_S if self._loop.resuming and not self._reach.starting else None

    def _epoch_s(self) -> float | None:
        now = self._policy.now
        return now.epoch_s if now.mode is Mode.PERIODIC and not now.slotted else None

    def _look_soon(self) -> None:
        """Have a change that only waits call what it may let in: for any thread."""
        self._conductor.put_meanwhile(self._mover.let_in_meanwhile)

    def _audit_while_waiting(self) -> None:
        if self._upkeep.in_command:
            self._conductor.in_part(self._audit_duty, self._auditor.audit_rules)

    def _audit(self) -> None:
        if not self._upkeep.in_command:
            return
        before = self._ledger.network.state
        self._auditor.audit()
        if self._ledger.network.state != before:
            self._reservations.restore()

    # -- events, in the OpenFlow hub's thread and agents' -----------------------------------------

    def _switch_connected(self, datapath: DatapathId) -> None:
        self._mastership.forget(datapath)  # before it is brought, which takes it anew
        self._switches.renewed(datapath)
        self._conductor.put_once(self._synchronise, first=True)
        self._look_at_tor(datapath)

    def _switch_answers(self, datapath: DatapathId) -> None:
        """Have a switch brought to the present state that owed an answer. Where attempts at it have
        failed, the next one has its time.
        """
        self._conductor.put_once(self._synchronise)
        self._look_at_tor(datapath)

    def _look_at_tor(self, datapath: DatapathId) -> None:
        if datapath in self._fabric.rack_by_tor_datapath:  # it can tell carrier again
            self._conductor.put_once(self._withdrawals.of_dead_circuits, first=True)
            self._conductor.put_meanwhile(self._upkeep.divert_meanwhile)

    def _port_changed(self, datapath: DatapathId, port: PortInfo) -> None:
        if self._switches.is_of_uplink(datapath, port.name):
            self._conductor.put_once(self._upkeep.follow_uplinks, first=True)
            self._conductor.put_meanwhile(self._upkeep.follow_uplinks_meanwhile)
        if datapath in self._fabric.rack_by_tor_datapath and not port.up:
            self._conductor.put_once(self._withdrawals.of_dead_circuits, first=True)
            self._conductor.put_meanwhile(self._upkeep.divert_meanwhile)

    def _ports_followed(self, ports: Sequence[MovedPort]) -> None:
        self._upkeep.note_followed(ports)

    def _ports_renumbered(self, datapath: DatapathId, earlier: Mapping[str, int]) -> None:
        self._switches.renumbered(datapath, earlier)
        self._conductor.put_once(self._follow_numbers, first=True)
        self._conductor.put_meanwhile(self._upkeep.follow_numbers_meanwhile)

    def _paths_lost(self, lost: Sequence[LostPath]) -> None:
        self._conductor.put(lambda: self._withdrawals.of_lost_paths(lost), first=True)
        self._conductor.put_meanwhile(lambda: self._withdrawals.divert_meanwhile(lost))

    def _uplinks_one_way(self, dead: Dead) -> None:
        self._upkeep.note_one_way_uplinks(dead)
        self._conductor.put_once(self._upkeep.follow_uplinks, first=True)
        self._conductor.put_meanwhile(self._upkeep.follow_uplinks_meanwhile)

    def _elephants_changed(self, server: Server) -> None:
        switch = self._classifier.switch_of(server)
        self._conductor.put(lambda: self.policies.classify((switch,)))
