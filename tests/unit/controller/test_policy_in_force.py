"""Every key that a reload applies, from a reload of a controller to its effect.

The controller is the shipped one, with all of its rooms; the simulated network stands in for
devices and switches.
"""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apps.controller.controller import Controller
from apps.planning.engine import PlannedChange
from apps.planning.rounds import NetworkNow
from apps.process.configuration import load_configuration
from hydra.config import Loaded
from hydra.config.reload import AT_ONCE
from hydra.demand.counters import Sent
from hydra.errors import PlanError
from hydra.forwarding.pipeline import RuleKind
from hydra.lifecycle import StagePhase
from hydra.model import NetworkState, PortId, Topology, VlanId
from hydra.policy import (
    AgentPolicy,
    Beyond,
    DemandBasis,
    DrainPolicy,
    Mode,
    OnDrift,
    OnSilence,
    Policy,
    Prediction,
    Sharing,
    SlotPolicy,
    SourceCheck,
    Spill,
    Transition,
)
from hydra.reconfiguration.commands import Pause
from hydra.service import PlanRequest
from hydra.settings import ControllerSettings
from hydra.staged_changes import Asker
from hydra.vlan_pool import VlanPool
from tests.journals import SqliteJournal
from tests.unit.controller.runners import Doer, at_once, submitted
from tests.unit.controller.ways import all_at_once
from tests.unit.core.fabrics import circuit_between, path_of, state_of
from tests.unit.reconfiguration.simulation.network import Network

FABRIC = load_configuration(Path(__file__).parents[3] / "configs" / "demo.yaml").fabric
RACKS = len(FABRIC.racks)
EMPTY = NetworkState()
JOINED = state_of(FABRIC, EMPTY, path_of(FABRIC, 0, 1))
ELSEWHERE = state_of(FABRIC, JOINED, path_of(FABRIC, 0, 1, circuit_between(FABRIC, 0, 1, plane=1)))
OTHERWISE = state_of(FABRIC, JOINED, path_of(FABRIC, 1, 2))
POLICY = Policy(
    mode=Mode.PERIODIC,
    minimum_circuit_life_s=0.0,
    drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0),
    audit_interval_s=30.0,
    on_drift=OnDrift.REPORT,
)
FIRST = FABRIC.servers[0]


class Stage:
    """A controller whose courses run on a simulated network; its file can be changed."""

    def __init__(self, fabric=FABRIC):
        self.file = self.loaded = Loaded(fabric, POLICY, ControllerSettings(), "fabric.yaml")
        self.network = Network(fabric, EMPTY, random.Random(1))
        self.batches = []
        controller = Controller(
            loaded=self.loaded,
            journal=SqliteJournal(":memory:"),
            post=lambda job: job(),
            read_file=lambda: self.file,
        )
        controller.rooms.runner.close()
        self.doer = Doer(controller.rooms.conductor, self.perform)
        self.do = self.doer.do
        submit = submitted(self.perform)
        controller.rooms.runner.submit = submit
        controller.rooms.conductor.carry_out_by(submit)
        controller.rooms.conductor.ask = lambda question: self.do(question())
        self.controller = at_once(controller, self.doer.carry_out)
        rooms = self.controller.rooms
        rooms.fleet.connected = lambda: frozenset(self.network.names)
        rooms.courses.switches.settled = True
        rooms.upkeep.synchronise()
        self.controller._give_duties()
        self.batches.clear()

    def perform(self, batch):
        self.batches.append(batch)
        return self.network.perform(batch, lambda _command: None)

    def move(self, target):
        """Reconfigure; returns the steps of the change."""
        rooms = self.controller.rooms
        self.batches.clear()
        rooms.auditor._mover.move(rooms.ledger.log.enter("test"), target)
        return [batch.step for batch in self.batches]

    def diverts(self):
        """True if a pair is diverted although its new circuit needs only free ports."""
        self.move(JOINED)
        return "divert" in self.move(ELSEWHERE)

    def rests(self):
        """True if a path waits for the VLAN-ID that another path has just lost."""
        self.move(JOINED)
        self.move(EMPTY)
        (path,) = OTHERWISE.topology.paths
        taken = replace(OTHERWISE, vlans={path: VlanId(100)}, pool=VlanPool())
        return "rest" in self.move(taken)

    @staticmethod
    def standing():
        return NetworkNow(state=JOINED, outage_s=0.1, age_s=lambda _circuit: 1.0, way=all_at_once)

    def verdict(self):
        """Duration for a change that takes a circuit down."""
        standing = self.standing()
        nothing = frozenset()
        change = PlannedChange(
            target=OTHERWISE,
            disconnect_first=nothing,
            connect_last=nothing,
            served_now_mbps=10.0,
            served_then_mbps=40.0,
            moving_mbps={(0, 1): 50.0},
        )
        report = self.controller.rooms.loop._rounds.plan(
            standing, PlanRequest(), np.zeros((RACKS, RACKS)), lambda *_asked: change
        )
        return report.verdict

    def plans_around_young(self):
        """True if a change that should pay is planned around a circuit that has stood for 1 s."""
        standing, pinned = self.standing(), []

        def propose(_state, _request, _demand, pins, _blocked):
            pinned.extend(pin.path for pin in pins)
            return PlannedChange(
                target=OTHERWISE,
                disconnect_first=frozenset(),
                connect_last=frozenset(),
                served_now_mbps=10.0,
                served_then_mbps=40.0,
                moving_mbps={(0, 1): 50.0},
            )

        request = PlanRequest(only_if_it_pays=True)
        self.controller.rooms.loop._rounds.plan(
            standing, request, np.zeros((RACKS, RACKS)), propose
        )
        return tuple(pinned) == JOINED.topology.paths

    def foretell(self, *demands_mbps, every_s=1.0):
        """The prediction for a pair after these demands; the last demand and the default
        prediction.
        """
        forecast = self.controller.rooms.monitor._forecast
        for number, mbps in enumerate(demands_mbps or (30.0, 20.0)):
            forecast.see(np.full((RACKS, RACKS), mbps), number * every_s)
        predicted = forecast.latest_report().predicted_mbps
        return None if predicted is None else float(predicted[0, 1])

    def seasonal(self):
        """Prediction after 20 s of 10 Mb/s and 20 s of 50 Mb/s, twice."""
        policy = replace(self.controller.rooms.policy.now, prediction=Prediction.SEASONAL)
        self.controller.rooms.policy.now = replace(policy, gain_horizon_s=10.0)
        return self.foretell(*([10.0] * 20 + [50.0] * 20) * 2)

    def every_s(self, stage):
        """The time between two turns of a duty."""
        (duty,) = [
            one for one in self.controller.rooms.conductor._queue._duties if one.stage == stage
        ]
        return duty.every_s()

    def quarantined_s(self):
        room = self.controller.rooms.quarantine
        room.put([PortId(0)], "no light")
        (entry,) = room.entries()
        return (
            None if entry.until_unix_s is None else round(entry.until_unix_s - entry.since_unix_s)
        )

    def pauses_ms(self):
        self.move(JOINED)
        self.move(EMPTY)
        pauses = [c for b in self.batches for c in b.commands if isinstance(c, Pause)]
        return {round(pause.seconds * 1000) for pause in pauses}

    def after_drift(self):
        """Rules that differ after an audit."""
        datapath = next(iter(self.network.names))
        table = self.network.tables[datapath]
        key = next(iter(table))
        del table[key]
        self.controller.rooms.auditor.audit()
        return key in table

    def after_silence(self):
        """Closed servers after a path was to go whose vswitch had fallen silent."""
        self.move(JOINED)
        self.network.connected.discard(FIRST.vswitch.datapath_id)
        self.move(EMPTY)
        return set(self.network.closed)

    def checks_sources(self):
        """The tables of ready switches, and whether all switches are ready."""
        kinds = {rule.kind for table in self.network.tables.values() for rule in table.values()} & {
            RuleKind.PORT_OWN,
            RuleKind.PORT_ANY,
        }
        return kinds, self.controller.rooms.courses.switches.all_ready

    def beyond_room(self):
        """Racks at which a change diverts more than nine tenths of their electrical room; None:
        refused.
        """
        staging, planning = (
            self.controller.rooms.loop._staging,
            self.controller.rooms.loop._staging._planning,
        )
        sent_mbps = np.zeros((RACKS, RACKS))
        sent_mbps[0, 1] = 0.9 * len(FABRIC.racks[0].servers) * FABRIC.electrical_rate_mbps
        self.move(JOINED)
        plan = planning.diff(JOINED, planning.toward(JOINED, OTHERWISE.topology))
        asker = Asker(
            lambda: sent_mbps, lambda: plan, lambda: None, False, lambda _execution, _first: None
        )
        try:
            staging.carry_out(self.controller.rooms.ledger.log.enter("test"), plan, asker)
        except PlanError:
            return None
        return {rack for one in staging.foresee(plan, sent_mbps) for rack in one.beyond}

    def waits_for_hours(self):
        """True if a change without room waits at ten in the morning."""
        policy, staging = self.controller.rooms.policy, self.controller.rooms.loop._staging
        policy.now = replace(policy.now, beyond_room=Beyond.AT_HOURS)
        staging.headroom._minute_of_day = lambda: 600
        self.beyond_room()
        return any(change.phase is StagePhase.AWAITS_HOURS for change in staging.agenda)

    def plans_anew(self):
        """True if trebled demand makes the planner plan a change in stages anew."""
        staging = self.controller.rooms.loop._staging
        one, three = np.full((2, RACKS, RACKS), 1000.0) * [[[1]], [[3]]]
        asker = Asker(lambda: one, lambda: None, three.copy, False, lambda *_: None)
        change = staging.progress.begun(None, Topology(), asker, one)
        change.wanted_mbps = one
        return staging.replanning.planned_anew(change, "") is not None

    def slots_fit(self):
        try:
            self.controller.rooms.slots.check()
        except PlanError:
            return False
        return True

    def wanted_mbps(self):
        """Estimate for a server that fills its electrical uplink."""
        one, mbps = np.array([0]), np.array([FABRIC.electrical_rate_mbps])
        self.controller.rooms.monitor.poller.sent = lambda: Sent(one, one + 1, mbps, mbps, mbps)
        return self.controller.desk.demand().estimated_mbps[0, 1]

    def classes(self):
        setup = self.controller.desk.agents.setup(FIRST.name)
        rules = self.controller.rooms.classifier.rules_for(FIRST.vswitch.datapath_id)
        return setup.elephant_mb, len(rules)


EFFECTS = {
    "mode": (Mode.ON_REQUEST, lambda s: s.every_s("periodic"), 10.0, None),
    "epoch_s": (7.5, lambda s: s.every_s("periodic"), 10.0, 7.5),
    "sharing": (Sharing.ON_DEMAND, Stage.classes, (None, 0), (10.0, 1)),
    "spill": (Spill.ON, lambda s: s.controller.rooms.spiller.interval_s(), None, 1.0),
    "demand": (
        DemandBasis.RATE,
        Stage.wanted_mbps,
        FABRIC.server_rate_mbps,
        FABRIC.electrical_rate_mbps,
    ),
    "prediction": (Prediction.PEAK, Stage.foretell, None, 30.0),
    "season_s": (40.0, lambda s: s.seasonal() < 20, False, True),
    "gain_horizon_s": (5.0, lambda s: s.verdict().gain_mbit, 300.0, 150.0),
    "gain_factor": (1000.0, lambda s: s.verdict().pays, True, False),
    "minimum_gain_mbps": (31.0, lambda s: s.verdict().pays, True, False),
    "minimum_circuit_life_s": (2.0, Stage.plans_around_young, False, True),
    "vlan_rest_s": (0.0, lambda s: s.rests(), True, False),
    "audit_interval_s": (5.0, lambda s: s.every_s("audit"), 30.0, 5.0),
    "on_drift": (OnDrift.MEND, Stage.after_drift, False, True),
    "divert_share": (0.95, Stage.beyond_room, {0, 1}, set()),
    "beyond_room": (Beyond.REFUSE, Stage.beyond_room, {0, 1}, None),
    "beyond_hours": ("00:00-12:00", Stage.waits_for_hours, True, False),
    "replan_share": (5.0, Stage.plans_anew, True, False),
    "on_silent_vswitch": (OnSilence.CLOSE, Stage.after_silence, set(), {FIRST.name}),
    "source_check": (
        SourceCheck.OFF,
        Stage.checks_sources,
        ({RuleKind.PORT_OWN}, True),
        ({RuleKind.PORT_ANY}, True),
    ),
    "quarantine_s": (None, Stage.quarantined_s, 60, None),
    "drain": (replace(POLICY.drain, interval_ms=25.0), Stage.pauses_ms, {12}, {25}),
    "agents": (
        AgentPolicy(report_above_mb=2.0),
        lambda s: s.controller.desk.agents.setup(FIRST.name).report_above_mb,
        AgentPolicy().report_above_mb,
        2.0,
    ),
    "slots": (SlotPolicy(slot_s=0.2), Stage.slots_fit, True, False),
    "transition": (
        Transition.DIVERT_FIRST,
        Stage.diverts,
        False,
        True,
    ),
}
"""By key: another value, the function that shows the effect, and its results before and after."""


@pytest.fixture
def stage():
    return Stage()


def test_no_key_is_left_out():
    assert EFFECTS.keys() == AT_ONCE


@pytest.mark.parametrize("key", sorted(EFFECTS))
def test_it_shows_what_was_in_the_file_at_the_start(stage, key):
    _, shown, before, _ = EFFECTS[key]
    assert shown(stage) == before


@pytest.mark.parametrize("key", sorted(EFFECTS))
def test_it_shows_what_the_file_says_after_a_reload(stage, key):
    value, shown, _, after = EFFECTS[key]
    stage.file = replace(stage.loaded, policy=replace(POLICY, **{key: value}))
    done = stage.controller.policies.reload()
    assert done.applied
    assert not done.waiting
    assert shown(stage) == after


def test_slots_that_the_file_may_not_ask_for_are_refused(stage):
    stage.controller.rooms.policy.now = policy = replace(POLICY, mode=Mode.ON_REQUEST)
    told = "slotted has no schedule with the mode on-request: set mode to periodic"
    with pytest.raises(PlanError, match=told):
        stage.controller.policies.share(Sharing.SLOTTED)
    assert stage.controller.rooms.policy.now == policy
    stage.controller.rooms.policy.now = POLICY
    stage.controller.policies.share(Sharing.SLOTTED)
    assert stage.controller.rooms.policy.now.sharing is Sharing.SLOTTED


def test_the_desk_tells_the_load_of_what_stands(stage):
    stage.move(JOINED)
    stage.controller.rooms.monitor.load_recorder.sample()
    found = stage.controller.desk.load((), 10)
    assert [one.circuit for one in found.circuits] == sorted(JOINED.topology.circuits)
    assert len(found.unix_s) == 1
    assert np.isnan(found.circuits[0].a_to_b_mbps).all(), "nobody has been polled"
