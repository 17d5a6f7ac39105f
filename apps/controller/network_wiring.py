"""Rooms that know the network or change its state, and the links between the rooms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from apps.controller.announcer import Announcer
from apps.controller.auditor import Auditor
from apps.controller.classifier import Classifier
from apps.controller.conductor import Conductor
from apps.controller.course_choice import PresentWays
from apps.controller.demand_sources import DemandSources
from apps.controller.devices import Devices
from apps.controller.mastership import Mastership
from apps.controller.mover import Mover
from apps.controller.patch_panels import PatchPanels
from apps.controller.policing import Policing
from apps.controller.quarantine import Quarantine
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.runner import Runner
from apps.controller.upkeep import Upkeep
from apps.demand.agent_desk import AgentDesk
from apps.openflow.fleet import Fleet
from apps.openflow.interface import Post
from apps.openflow.requests import CatchUp
from apps.planning.engine import Planning
from apps.planning.planner import Planner
from apps.process.metrics import Metrics
from apps.process.term import Term
from apps.process.tracing import Traces
from hydra.config import Loaded
from hydra.errors import HydraError
from hydra.forwarding.substrate import substrate_of
from hydra.history import HappeningKind
from hydra.journal import Journal
from hydra.model import Server
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.courses import Courses
from hydra.reconfiguration.readiness import RenumberedPort
from hydra.reconfiguration.substeps import Cycle
from hydra.sharing.spill import Spills


class NetworkRooms:
    """Records, devices, switches, traffic; courses, upkeep and changes. Nothing here decides."""

    def __init__(
        self,
        *,
        loaded: Loaded,
        journal: Journal,
        post: Post,
        traces: Traces | None,
        give_up: Callable[[HydraError], None],
        term: Term,
        catch_up: CatchUp,
        on_elephants: Callable[[Server], None],
        synchronise_again: Callable[[], None],
        cycle: Cycle,
    ) -> None:
        """``on_elephants``: called in agents' threads with a server whose elephants have changed.
        ``synchronise_again`` queues a job to bring switches to the present state.
        """
        self._at_start = loaded.policy
        self._cycle = cycle
        self.term, self.fabric = term, loaded.fabric
        self.policy = CurrentPolicy(loaded.policy)
        self.metrics = Metrics()
        self.conductor = Conductor(self.metrics)
        self._know(journal, traces, post, catch_up)
        self._measure_and_plan(on_elephants)
        self._carry_out()
        self._keep_up(give_up, synchronise_again)

    def _know(self, journal: Journal, traces: Traces | None, post: Post, catch_up: CatchUp) -> None:
        """Records, devices, switches."""
        fabric, term = self.fabric, self.term
        substrate = substrate_of(fabric)
        fleet = self.fleet = Fleet(fabric, post, term.over, catch_up)
        self.metrics.count_connections(lambda: len(fleet.connected()) + len(fleet.mute()))
        ledger = self.ledger = Ledger(
            fabric=fabric,
            journal=journal,
            metrics=self.metrics,
            traces=traces,
            stored_events=term.is_shared,
        )
        self.devices = Devices(
            fabric=fabric,
            policy=self._at_start,
            metrics=self.metrics,
            report_alarm=ledger.log.report_alarm,
            term=term,
        )
        self.panels = PatchPanels(fabric, self.devices)
        self.quarantine = Quarantine(
            fabric=fabric,
            journal=journal,
            policy=self.policy,
            report=partial(ledger.log.note, HappeningKind.QUARANTINE),
        )
        timeout_s = self._at_start.timeouts.vswitch_s
        self.policing = Policing(fabric=fabric, fleet=fleet, timeout_s=timeout_s)
        self.mastership = Mastership(
            fleet=fleet,
            names=substrate.owned(),
            timeout_s=timeout_s,
            term=term,
            counts=not substrate.retags,
        )
        fleet.watch_rivals(ledger.log.report_alarm, self.mastership.taken_over)

    def _measure_and_plan(self, on_elephants: Callable[[Server], None]) -> None:
        """Counters, agents, planners."""
        fabric, at_start = self.fabric, self._at_start
        self.planning = Planning(fabric, at_start)
        self.planner, self.week_planner = Planner(fabric, at_start), Planner(fabric, at_start)
        self.agents = AgentDesk(
            fabric=fabric,
            policy=self.policy,
            standing=self.ledger.network.standing,
            on_elephants=on_elephants,
        )
        self.ledger.events.listen(self.agents.circuits_may_have_changed)
        self.spills = Spills(len(fabric.racks))
        self.classifier = Classifier(
            fabric=fabric,
            fleet=self.fleet,
            elephants=self.agents.elephants,
            policy=self.policy,
            spills=lambda: self.spills.parts,
        )
        self.monitor = DemandSources(
            fabric=fabric,
            at_start=at_start,
            policy=self.policy,
            metrics=self.metrics,
            network=self.ledger.network,
            fleet=self.fleet,
            devices=self.devices,
            agents=self.agents,
            policing=self.policing,
            spills=self.spills,
            reservations=lambda: len(self.ledger.bookings.active()),
        )

    def _carry_out(self) -> None:
        """Courses of the core, and their executors."""
        fabric, policy, ledger, fleet = self.fabric, self.policy, self.ledger, self.fleet
        devices, panels, quarantine = self.devices, self.panels, self.quarantine
        rules_of, metered = self.classifier.rules_for, self.policing.rules_for
        people = frozenset(p.id for p in fabric.planes if devices.worked_by_people(p.id))
        courses = self.courses = Courses(
            fabric=fabric,
            policy=policy,
            memory=ledger.network,
            connections=fleet,
            added_rules=lambda datapath: (*rules_of(datapath), *metered(datapath)),
            protection=self.policing,
            followed=self._ports_followed,
            by_people=people,
        )
        reach = self.reach = Reach(
            fabric=fabric,
            fleet=fleet,
            devices=devices,
            ledger=ledger,
            quarantine=quarantine,
            panels=panels,
            courses=courses,
        )
        self.announcer = Announcer(
            fleet=fleet,
            substrate=substrate_of(fabric),
            current=reach.announced,
            interval_s=self._at_start.fdb_age_s / 3,
        )
        self.runner = Runner(
            fabric=fabric,
            policy=policy,
            fleet=fleet,
            devices=devices,
            writer=ledger.writer,
            reservations=ledger.reservations,
            announcer=self.announcer,
            metrics=self.metrics,
            mastership=self.mastership,
            policing=self.policing,
        )
        self.conductor.carry_out_by(self.runner.submit)

    def _keep_up(
        self, give_up: Callable[[HydraError], None], synchronise_again: Callable[[], None]
    ) -> None:
        """Start-up, upkeep, changes and audits."""
        fabric, policy, ledger, reach = self.fabric, self.policy, self.ledger, self.reach
        upkeep = self.upkeep = Upkeep(
            fabric=fabric,
            fleet=self.fleet,
            devices=self.devices,
            ledger=ledger,
            quarantine=self.quarantine,
            panels=self.panels,
            policing=self.policing,
            mastership=self.mastership,
            runner=self.runner,
            courses=self.courses,
            give_up=give_up,
            put=self.conductor.put,
            synchronise_again=synchronise_again,
        )
        self.ways = PresentWays(
            fabric=fabric,
            policy=policy,
            planning=self.planning,
            reach=reach,
            bookings=ledger.bookings,
            network=ledger.network,
            sent_mbps=self.monitor.sent_mbps,
        )
        self.mover = Mover(
            fabric=fabric,
            policy=policy,
            planning=self.planning,
            upkeep=upkeep,
            reach=reach,
            announcer=self.announcer,
            ledger=ledger,
            ways=self.ways,
            cycle=self._cycle,
        )
        self.auditor = Auditor(
            policy=policy,
            ledger=ledger,
            reach=reach,
            mover=self.mover,
            planning=self.planning,
            audit=self.courses.audit,
        )

    def _ports_followed(self, ports: Sequence[RenumberedPort]) -> None:
        self.upkeep.note_followed(ports)
