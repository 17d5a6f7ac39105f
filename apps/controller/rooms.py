"""The rooms of a controller, and how they are joined: by reference, and by what they tell.

Each floor knows those below. What a room tells upward is a method of :class:`Rooms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from apps.controller.announcer import Announcer
from apps.controller.auditor import Auditor
from apps.controller.choosing import slots_of
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
from apps.controller.promises.admission import Admission
from apps.controller.promises.care import ReservationCare
from apps.controller.promises.limits import Limits
from apps.controller.promises.placement import Placement
from apps.controller.quarantine import Quarantine
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.rejoining import Rejoining
from apps.controller.runner import Runner
from apps.controller.spiller import Spiller
from apps.controller.stages.beside import StagesBeside
from apps.controller.stages.staging import Staging
from apps.controller.upkeep import Upkeep
from apps.controller.withdrawals import Withdrawals
from apps.demand.agent_desk import AgentDesk
from apps.demand.estimator import DemandEstimator
from apps.demand.load_recorder import LoadRecorder
from apps.demand.poller import StatsPoller
from apps.demand.tor_counters import TorCounters
from apps.openflow.fleet import Fleet
from apps.openflow.requests import CatchUp
from apps.openflow.seam import PortInfo, Post
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from apps.process.metrics import Metrics
from apps.process.term import Term
from apps.process.tracing import Traces
from hydra.config import Loaded
from hydra.errors import HydraError
from hydra.faults.conditions import RefusedWorker
from hydra.faults.server_links import Dead
from hydra.faults.surveillance import LostPath
from hydra.forwarding.substrate import substrate_of
from hydra.history import HappeningKind
from hydra.journal import Journal
from hydra.model import DatapathId, Server
from hydra.policy import MOST_PATHS_PER_PAIR, CurrentPolicy
from hydra.reconfiguration.audit import Audit
from hydra.reconfiguration.device_care import DeviceCare
from hydra.reconfiguration.readiness import MovedPort
from hydra.reconfiguration.recovery import Recovery
from hydra.reconfiguration.switches import Switches
from hydra.sharing.spill import Spills


class Rooms:
    """All rooms, public by their names.

    Methods are called in the OpenFlow hub's thread and agents', but :meth:`synchronise` in the
    conductor's.
    """

    def __init__(
        self,
        *,
        loaded: Loaded,
        journal: Journal,
        post: Post,
        read_file: Callable[[], Loaded],
        traces: Traces | None,
        give_up: Callable[[HydraError], None],
        term: Term,
        catch_up: CatchUp,
        workers_refused: Callable[[], Sequence[RefusedWorker]],
    ) -> None:
        """The arguments are those of :class:`~apps.controller.controller.Controller`."""
        self._at_start = loaded.policy
        self.term, self.fabric = term, loaded.fabric
        self.policy = CurrentPolicy(loaded.policy)
        self.metrics = Metrics()
        self.conductor = Conductor(self.metrics)
        self._know(journal, traces, post, catch_up)
        self._measure_and_plan()
        self._carry_out(give_up)
        self._promise()
        self._decide()
        self._watch(workers_refused)
        self._answer(loaded, read_file)

    def _know(self, journal: Journal, traces: Traces | None, post: Post, catch_up: CatchUp) -> None:
        """Records, devices, switches."""
        fabric, term = self.fabric, self.term
        substrate = substrate_of(fabric)
        fleet = self.fleet = Fleet(fabric, post, term.over, catch_up)
        self.metrics.count_connections(lambda: len(fleet.connected()) + len(fleet.mute()))
        ledger = self.ledger = Ledger(
            fabric, journal, self.metrics, traces, stored_events=term.is_shared
        )
        self.devices = Devices(fabric, self._at_start, self.metrics, ledger.log.tell_alarm, term)
        self.panels = PatchPanels(fabric, self.devices)
        self.quarantine = Quarantine(
            fabric, journal, self.policy, partial(ledger.log.note, HappeningKind.QUARANTINE)
        )
        timeout_s = self._at_start.timeouts.vswitch_s
        self.policing = Policing(fabric, fleet, timeout_s)
        self.mastership = Mastership(
            fleet, substrate.owned(), timeout_s, term, counts=not substrate.retags
        )
        fleet.watch_rivals(ledger.log.tell_alarm, self.mastership.taken_over)

    def _measure_and_plan(self) -> None:
        """Counters, agents, planners."""
        fabric, at_start = self.fabric, self._at_start
        self.planning = Planning(fabric, at_start)
        self.planner = Planner(fabric, at_start)
        self.poller = StatsPoller(fabric, at_start, self.fleet)
        self.tor_counters = TorCounters(fabric, at_start, self.devices)
        self.agents = AgentDesk(
            fabric,
            self.policy,
            self.ledger.network.standing,
            on_elephants=self._elephants_changed,
        )
        self.ledger.events.listen(self.agents.circuits_may_have_changed)
        self.spills = Spills(len(fabric.racks))
        self.classifier = Classifier(
            fabric, self.fleet, self.agents.elephants, self.policy, lambda: self.spills.parts
        )

    def _carry_out(self, give_up: Callable[[HydraError], None]) -> None:
        """Courses of the core, and who carries them out."""
        fabric, policy, ledger, fleet = self.fabric, self.policy, self.ledger, self.fleet
        devices, panels, quarantine = self.devices, self.panels, self.quarantine
        rules_of, metered = self.classifier.rules_for, self.policing.rules_for
        switches = self.switches = Switches(
            fabric,
            policy,
            ledger.network,
            fleet,
            lambda datapath: (*rules_of(datapath), *metered(datapath)),
            self._ports_followed,
        )
        people = frozenset(p.id for p in fabric.planes if devices.worked_by_people(p.id))
        care = DeviceCare(fabric, policy, ledger.network, switches, people)
        recovery = self.recovery = Recovery(fabric, ledger.network, switches, care)
        reach = self.reach = Reach(
            fabric, fleet, devices, ledger, quarantine, panels, switches, care, recovery
        )
        self.announcer = Announcer(
            fleet, substrate_of(fabric), reach.announced, self._at_start.fdb_age_s / 3
        )
        runner = self.runner = Runner(
            fabric,
            policy,
            fleet,
            devices,
            ledger.writer,
            ledger.reservations,
            self.announcer,
            self.metrics,
            self.mastership,
            self.policing,
            self.conductor.wait_for,
            self.conductor.wake,
        )
        upkeep = self.upkeep = Upkeep(
            fabric,
            fleet,
            devices,
            ledger,
            quarantine,
            panels,
            self.policing,
            self.mastership,
            runner,
            switches,
            care,
            recovery,
            give_up,
            self.conductor.put,
            lambda: self.conductor.put_once(self.synchronise),
        )
        self.mover = Mover(
            fabric,
            policy,
            self.planning,
            runner,
            upkeep,
            reach,
            self.announcer,
            ledger,
            self.conductor.come_in,
        )
        audit = Audit(fabric, ledger.network, switches, care, recovery)
        self.auditor = Auditor(policy, ledger, reach, self.mover, self.planning, runner, audit)

    def _promise(self) -> None:
        """Reservations, and what becomes of lost circuits."""
        fabric, ledger, mover, reach = self.fabric, self.ledger, self.mover, self.reach
        planning, planner, put = self.planning, self.planner, self.conductor.put
        at_start = self._at_start
        paths_per_pair = fabric.paths_per_pair(at_start.paths_per_pair) or MOST_PATHS_PER_PAIR
        limits = Limits(reach, mover, ledger, at_start.max_hops, paths_per_pair)
        placement = self.placement = Placement(
            planning,
            planner,
            mover,
            self.upkeep,
            reach,
            self.panels,
            ledger,
            limits,
            put,
        )
        self.reservation_care = ReservationCare(
            fabric, planning, mover, self.upkeep, reach, ledger, placement, put
        )
        self.admission = Admission(
            fabric,
            planning,
            planner,
            reach,
            ledger,
            limits,
            placement,
            self.reservation_care,
            at_start.preemption_notice_s,
        )
        self.withdrawals = Withdrawals(
            planning,
            ledger,
            self.upkeep,
            self.quarantine,
            self.panels,
            reach,
            mover,
            placement,
            Rejoining(fabric, planning, mover, reach, ledger),
        )

    def _decide(self) -> None:
        """Plans that are asked for, and those of the periodic mode."""
        fabric, policy, ledger, mover = self.fabric, self.policy, self.ledger, self.mover
        put = self.conductor.put
        planning = self.planning
        staging = self.staging = Staging(fabric, policy, planning, ledger, self.reach, mover, put)
        self.stages_beside = StagesBeside(fabric, policy, planning, ledger, mover, staging)
        loop = self.loop = Loop(
            fabric,
            policy,
            self.metrics,
            self.planner,
            DemandEstimator(fabric, policy),
            self.poller,
            self.tor_counters,
            self.agents,
            self.policing,
            ledger,
            self.reach,
            mover,
            staging,
            self.stages_beside,
            self.panels,
            self.spills,
            put,
        )
        self.load_recorder = LoadRecorder(
            fabric,
            self._at_start,
            self.poller,
            loop.port_rates_mbps,
            lambda: ledger.network.state.topology.circuits,
        )
        told = partial(ledger.log.note, HappeningKind.POLICY)
        self.slots = slots_of(fabric, policy, mover, ledger, loop, told)
        for come_in in (self.withdrawals.beside, self.placement.beside, loop.beside):
            self.conductor.beside(come_in)  # the most urgent first

    def _watch(self, workers_refused: Callable[[], Sequence[RefusedWorker]]) -> None:
        """Probes, conditions, and what switches tell."""
        self.prober = Prober(
            self.fabric,
            self._at_start,
            self.fleet,
            self.ledger.network.standing,
            self.reach.on_circuits,
            self._paths_lost,
            self.metrics,
            self.switches.linked,
            self._uplinks_one_way,
        )
        self.health = Health(
            self.fabric,
            self.ledger,
            self.reach,
            self.quarantine,
            self.poller,
            self.auditor,
            self.admission,
            self.policing,
            workers_refused,
            self.term.risks,
            lambda: self.upkeep.one_way_uplinks,
        )
        self.fleet.watch(
            self._switch_connected,
            self._port_changed,
            self.switches.answers_again,
            self._switch_answers,
            self._ports_renumbered,
        )

    def _answer(self, loaded: Loaded, read_file: Callable[[], Loaded]) -> None:
        """What REST asks."""
        policies = self.policies = PolicyDesk(
            loaded,
            read_file,
            self.policy,
            self.slots,
            self.classifier,
            self.switches,
            self.synchronise,
            self.conductor,
            partial(self.ledger.log.note, HappeningKind.POLICY),
        )
        self.spiller = Spiller(
            self.fabric, self.policy, self.spills, self.loop.room, policies.classify
        )
        self.desk = Desk(
            fabric=self.fabric,
            current_policy=self.policy,
            ledger=self.ledger,
            admission=self.admission,
            policing=self.policing,
            loop=self.loop,
            load_recorder=self.load_recorder,
            slots=self.slots,
            agents=self.agents,
            auditor=self.auditor,
            conductor=self.conductor,
            health=self.health,
            hear_people=self.withdrawals.hear_people,
            panels=self.panels,
            placement=self.placement,
            policies=policies,
            quarantined=self.quarantine,
            reach=self.reach,
        )

    # -- what rooms tell --------------------------------------------------------------------------

    def synchronise(self) -> None:
        """Changes that wait come in between, where switches are many."""
        if self.upkeep.synchronise():
            self.conductor.put_once(self.synchronise)
        elif self.withdrawals.due:  # a switch may be there that an attempt was short of
            self.withdrawals.of_dead_circuits()

    def _follow_numbers(self) -> None:
        if self.upkeep.follow_numbers():
            self.synchronise()

    def _switch_connected(self, datapath: DatapathId) -> None:
        self.mastership.forget(datapath)  # before it is brought, which takes it anew
        self.switches.renewed(datapath)
        self.conductor.put_once(self.synchronise, first=True)
        self._look_at_tor(datapath)

    def _switch_answers(self, datapath: DatapathId) -> None:
        """Have a switch brought to the present state that owed an answer. Where attempts at it have
        failed, the next one has its time.
        """
        self.conductor.put_once(self.synchronise)
        self._look_at_tor(datapath)

    def _look_at_tor(self, datapath: DatapathId) -> None:
        if datapath in self.fabric.rack_by_tor_datapath:  # it can tell carrier again
            self.conductor.put_once(
                self.withdrawals.of_dead_circuits,
                first=True,
                meanwhile=self.upkeep.divert_meanwhile,
            )

    def _port_changed(self, datapath: DatapathId, port: PortInfo) -> None:
        if self.switches.is_of_uplink(datapath, port.name):
            self.conductor.put_once(
                self.upkeep.follow_uplinks,
                first=True,
                meanwhile=self.upkeep.follow_uplinks_meanwhile,
            )
        if datapath in self.fabric.rack_by_tor_datapath and not port.up:
            self.conductor.put_once(
                self.withdrawals.of_dead_circuits,
                first=True,
                meanwhile=self.upkeep.divert_meanwhile,
            )

    def _ports_followed(self, ports: Sequence[MovedPort]) -> None:
        self.upkeep.note_followed(ports)

    def _ports_renumbered(self, datapath: DatapathId, earlier: Mapping[str, int]) -> None:
        self.switches.renumbered(datapath, earlier)
        self.conductor.put_once(
            self._follow_numbers, first=True, meanwhile=self.upkeep.follow_numbers_meanwhile
        )

    def _paths_lost(self, lost: Sequence[LostPath]) -> None:
        self.conductor.put(
            lambda: self.withdrawals.of_lost_paths(lost),
            first=True,
            meanwhile=lambda: self.withdrawals.divert_meanwhile(lost),
        )

    def _uplinks_one_way(self, dead: Dead) -> None:
        self.upkeep.note_one_way_uplinks(dead)
        self.conductor.put_once(
            self.upkeep.follow_uplinks, first=True, meanwhile=self.upkeep.follow_uplinks_meanwhile
        )

    def _elephants_changed(self, server: Server) -> None:
        switch = self.classifier.switch_of(server)
        self.conductor.put(lambda: self.policies.classify((switch,)))
