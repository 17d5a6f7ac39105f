"""The rooms of a controller, joined by references and by callbacks.

Each floor knows the floors below. A callback to an upper room is a method of :class:`Rooms`, or of
:class:`~apps.controller.network_events.NetworkEvents`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from apps.controller.health import Health
from apps.controller.network_events import NetworkEvents
from apps.controller.network_wiring import NetworkRooms
from apps.controller.planning_loop import PlanningLoop
from apps.controller.policy_desk import PolicyDesk
from apps.controller.promises.admission import Admission
from apps.controller.promises.care import ReservationCare
from apps.controller.promises.limits import Limits
from apps.controller.promises.placement import Placement
from apps.controller.promises.shapes import Shapes
from apps.controller.rejoining import Rejoining
from apps.controller.slots import Slots
from apps.controller.slots_or_standing import SlotsOrStanding
from apps.controller.spiller import Spiller
from apps.controller.stages.early_stages import EarlyStages
from apps.controller.stages.staging import Staging
from apps.controller.withdrawals import Withdrawals
from apps.openflow.interface import Post
from apps.openflow.requests import CatchUp
from apps.process.term import Term
from apps.process.tracing import Traces
from hydra.config import Loaded
from hydra.errors import HydraError
from hydra.faults.facts import RefusedWorker
from hydra.history import HappeningKind
from hydra.journal import Journal
from hydra.model import Server
from hydra.policy import MOST_PATHS_PER_PAIR
from hydra.reconfiguration.substeps import Cycle


class Rooms(NetworkRooms):
    """All rooms, public by name: promises, decisions and answers above the network's rooms."""

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
        cycle: Cycle,
    ) -> None:
        """The arguments are documented at :class:`~apps.controller.controller.Controller`."""
        super().__init__(
            loaded=loaded,
            journal=journal,
            post=post,
            traces=traces,
            give_up=give_up,
            term=term,
            catch_up=catch_up,
            on_elephants=self._elephants_changed,
            synchronise_again=self._synchronise_soon,
            cycle=cycle,
        )
        self._promise()
        self._decide()
        self._watch(workers_refused)
        self._answer(loaded, read_file)

    def _promise(self) -> None:
        """Reservations, and replacement of lost circuits."""
        fabric, ledger, mover, reach = self.fabric, self.ledger, self.mover, self.reach
        planning = self.planning
        enqueue = self.conductor.put
        policy = self._at_start
        limits = Limits(
            reach=reach,
            mover=mover,
            ledger=ledger,
            max_hops=policy.max_hops,
            paths_per_pair=fabric.paths_per_pair(policy.paths_per_pair) or MOST_PATHS_PER_PAIR,
        )
        placement = self.placement = Placement(
            planning=planning,
            planner=self.planner,
            mover=mover,
            upkeep=self.upkeep,
            reach=reach,
            panels=self.panels,
            ledger=ledger,
            limits=limits,
            enqueue=enqueue,
        )
        self.reservation_care = ReservationCare(
            fabric=fabric,
            planning=planning,
            mover=mover,
            upkeep=self.upkeep,
            reach=reach,
            ledger=ledger,
            placement=placement,
            enqueue=enqueue,
        )
        self.admission = Admission(
            fabric=fabric,
            planning=planning,
            planner=self.planner,
            reach=reach,
            ledger=ledger,
            limits=limits,
            placement=placement,
            care=self.reservation_care,
            notice_s=policy.preemption_notice_s,
        )
        self.shapes = Shapes(fabric=fabric, admission=self.admission, ledger=ledger, limits=limits)
        self.withdrawals = Withdrawals(
            planning=planning,
            ledger=ledger,
            upkeep=self.upkeep,
            quarantine=self.quarantine,
            panels=self.panels,
            reach=reach,
            mover=mover,
            placement=placement,
            rejoining=Rejoining(
                fabric=fabric, planning=planning, mover=mover, reach=reach, ledger=ledger
            ),
        )

    def _decide(self) -> None:
        """Plans on request and of the periodic mode."""
        fabric, policy, ledger, mover = self.fabric, self.policy, self.ledger, self.mover
        put = self.conductor.put
        planning = self.planning
        staging = self.staging = Staging(
            fabric=fabric,
            policy=policy,
            planning=planning,
            ledger=ledger,
            reach=self.reach,
            mover=mover,
            ways=self.ways,
            put=put,
        )
        self.early_stages = EarlyStages(
            fabric=fabric,
            policy=policy,
            planning=planning,
            ledger=ledger,
            mover=mover,
            ways=self.ways,
            staging=staging,
        )
        loop = self.loop = PlanningLoop(
            fabric=fabric,
            policy=policy,
            metrics=self.metrics,
            planner=self.planner,
            week_planner=self.week_planner,
            monitor=self.monitor,
            ledger=ledger,
            reach=self.reach,
            mover=mover,
            ways=self.ways,
            staging=staging,
            early_stages=self.early_stages,
            panels=self.panels,
            enqueue=put,
        )
        note_policy = partial(ledger.log.note, HappeningKind.POLICY)
        slots = self.slots = Slots(fabric=fabric, policy=policy, mover=mover, ledger=ledger)
        self.choosing = SlotsOrStanding(policy=policy, loop=loop, slots=slots, notify=note_policy)
        self.conductor.beside(
            lambda: mover.admits_other_changes,
            (
                self.withdrawals.beside,
                self.placement.beside,
                loop.beside,
                self.early_stages.next_stage,
            ),
        )

    def _watch(self, workers_refused: Callable[[], Sequence[RefusedWorker]]) -> None:
        """Probes, conditions, and events of switches."""
        self.events = NetworkEvents(
            fabric=self.fabric,
            policy=self._at_start,
            fleet=self.fleet,
            standing=self.ledger.network.standing,
            reach=self.reach,
            metrics=self.metrics,
            conductor=self.conductor,
            switches=self.courses.switches,
            mastership=self.mastership,
            upkeep=self.upkeep,
            withdrawals=self.withdrawals,
        )
        self.health = Health(
            fabric=self.fabric,
            ledger=self.ledger,
            reach=self.reach,
            quarantine=self.quarantine,
            poller=self.monitor.poller,
            auditor=self.auditor,
            admission=self.admission,
            policing=self.policing,
            workers_refused=workers_refused,
            takeover_risks=self.term.risks,
            one_way_uplinks=lambda: self.upkeep.one_way_uplinks,
        )

    def _answer(self, loaded: Loaded, read_file: Callable[[], Loaded]) -> None:
        """Answers to REST."""
        policies = self.policies = PolicyDesk(
            loaded=loaded,
            read_file=read_file,
            policy=self.policy,
            slots=self.slots,
            classifier=self.classifier,
            switches=self.courses.switches,
            synchronise=self.events.synchronise,
            conductor=self.conductor,
            report=partial(self.ledger.log.note, HappeningKind.POLICY),
        )
        self.spiller = Spiller(
            fabric=self.fabric,
            policy=self.policy,
            spills=self.spills,
            measure=self.monitor.room,
            classify=policies.classify,
        )

    # -- calls from lower rooms --------------------------------------------------------------------

    def _synchronise_soon(self) -> None:
        self.events.synchronise_soon()

    def _elephants_changed(self, server: Server) -> None:
        switch = self.classifier.switch_of(server)
        self.conductor.put(lambda: self.policies.classify((switch,)))
