"""Due times of courses, parts out of reach meanwhile, and no assumptions."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from apps.controller import device_upkeep, upkeep
from apps.controller.between_jobs import BetweenJobs
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.controller.retries import Retries
from apps.controller.upkeep import Upkeep
from hydra.errors import DeviceUnavailable
from hydra.failures import Failure, FailureKind
from hydra.faults.server_links import LinkDirection
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import match_key
from hydra.lifecycle import ReconfigurationState
from hydra.model import NetworkState, PlaneId, RackId
from hydra.policy import OnSilence
from hydra.reconfiguration.commands import Announce, next_batch
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Unsettled, diff
from hydra.reconfiguration.recovery import interrupted
from hydra.reconfiguration.relaying import relay_rules
from hydra.service import DeviceStatus, PlanRequest
from tests.journals import SqliteJournal
from tests.unit.controller.runners import at_once, awaited
from tests.unit.core.fabrics import (
    circuit_between,
    openflow_only,
    order_of,
    path_of,
    small_fabric,
    state_of,
)
from tests.unit.reconfiguration.simulation.faults import Faults
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.upkeep import POLICY, SimulatedUpkeep

FABRIC = small_fabric(racks=3, planes=2, servers=1)
EMPTY = NetworkState()
FIRST = PlaneId(0)


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_what_stays_away_is_tried_ever_more_rarely():
    clock = Clock()
    retries = Retries(clock)
    tried = []
    while clock.now_s < 300:
        if retries.due(["p1"]):
            tried.append(clock.now_s)
            retries.note(["p1"], {"p1"})
        clock.now_s += 1.0
    assert tried == [0, 2, 6, 14, 30, 62, 122, 182, 242]
    retries.note(["p1"], set())
    assert retries.due(["p1", "p2"]) == ["p1", "p2"]


class Stage:
    """The live upkeep over the core's courses, which run on the simulated network."""

    def __init__(self, fabric=FABRIC, state=EMPTY):
        self.network = Network(fabric, state, random.Random(1))
        self.core = SimulatedUpkeep(self.network, state)
        self.down = {}
        self.missing = {}
        self.ledger = Ledger(fabric=fabric, journal=SqliteJournal(":memory:"))
        self.statuses = []
        devices = SimpleNamespace(
            plane_problem=self.down.get,
            tor_problem=lambda rack: self.down.get(f"r{rack}"),
            out_of_command=lambda: (
                frozenset(plane.id for plane in fabric.planes if plane.id in self.down),
                frozenset(rack.id for rack in fabric.racks if f"r{rack.id}" in self.down),
            ),
            all_missing_ports=self.missing.items,
            statuses=lambda: self.statuses,
            missing_ports=lambda rack: self.missing.get(rack, frozenset()),
            worked_by_people=lambda _plane: False,
        )
        self.mute = set()
        fleet = SimpleNamespace(
            connected=lambda: frozenset(self.network.connected),
            mute=lambda: frozenset(self.mute),
            expected=lambda datapaths, _timeout_s, _began_s: (
                frozenset(datapaths) - frozenset(self.network.connected)
            ),
        )
        self.ledger.network.settle(state)
        self.quarantined = {}
        quarantine = SimpleNamespace(
            blocked=lambda: frozenset(self.quarantined),
            put=lambda ends, why, _paths: self.quarantined.update(dict.fromkeys(ends, why)),
            put_each=lambda failed, _paths: self.quarantined.update(
                (end, why) for ends, why in failed for end in ends
            ),
        )
        quarantine.passed = lambda _ends: None
        panels = SimpleNamespace(
            ports=frozenset, waiting=lambda _execution: (), described=lambda status: status
        )
        self.policing = SimpleNamespace(unanswered=frozenset())
        core = self.core
        upkeep = Upkeep(
            fabric=fabric,
            fleet=fleet,
            devices=devices,
            ledger=self.ledger,
            quarantine=quarantine,
            panels=panels,
            policing=self.policing,
            mastership=SimpleNamespace(),
            runner=core,
            courses=core.courses,
            give_up=lambda _error: None,
            put=core.jobs.append,
            synchronise_again=lambda: core.jobs.append(upkeep.synchronise),
        )
        self.upkeep = at_once(upkeep, core.perform)
        self.reach = Reach(
            fabric=fabric,
            fleet=fleet,
            devices=devices,
            ledger=self.ledger,
            quarantine=quarantine,
            panels=panels,
            courses=core.courses,
        )

    def plan(self, *paths):
        return diff(FABRIC, EMPTY, state_of(FABRIC, EMPTY, *paths), order_of(FABRIC))


@pytest.fixture(autouse=True)
def slow_ones_answer_later(monkeypatch):
    """Switches with time alone answer at once; other switches answer as the network goes on."""
    begin = BetweenJobs.begin

    async def by_patience(one, alone_s):
        if not alone_s:
            one._submit = one._submit.__self__.submit_beside
        await begin(one, alone_s)

    monkeypatch.setattr(BetweenJobs, "begin", by_patience)


@pytest.fixture
def stage():
    return Stage()


def test_it_recovers_first_and_brings_who_comes_later(stage):
    away = next(iter(stage.network.names))
    stage.network.connected.discard(away)
    assert not stage.core.recovery.done
    stage.upkeep.look_after()
    assert stage.core.recovery.done
    assert away not in stage.reach.ready_switches()
    assert stage.reach.ready_switches() >= stage.network.names.keys() - {away}
    stage.network.connected.add(away)
    stage.upkeep.look_after()
    assert stage.reach.ready_switches() >= stage.network.names.keys()


STANDING = state_of(FABRIC, EMPTY, path_of(FABRIC, 0, 1))
(CIRCUIT,) = STANDING.topology.circuits
END = FABRIC.ports[CIRCUIT.a]
TOLD = f"carrier lost at r1:{END.tor_port}"


def begun(fabric=FABRIC, state=STANDING):
    """A controller that starts after an interrupted change had begun the paths of ``state``, with a
    missing switch that may send there.
    """
    stage = Stage(fabric, state)
    core = stage.core
    core.memory.settle(EMPTY)
    core.memory.unsettle(Unsettled.by(EMPTY, state))
    path = state.topology.paths[0]
    away = stage.network.substrate.steering(path.src)[0].datapath
    stage.network.connected.discard(away)
    stage.upkeep.in_command = True
    stage.upkeep.look_after()
    assert core.recovery.done
    return stage, away


def stands(stage, circuit=CIRCUIT):
    crosses = stage.network.fabric.cross_connects(circuit)
    return stage.network.mirrors[circuit.plane].issuperset(crosses)


def test_what_a_switch_may_be_sending_on_stands_until_the_switch_has_been_brought():
    stage, away = begun()
    network, care = stage.network, stage.core.care
    racks = set(FABRIC.racks_of(CIRCUIT))
    assert stage.core.memory.state.topology.paths == ()
    assert stands(stage)
    assert network.vlans[END.id].tagged == set(STANDING.vlans.values())
    assert care.uncertain_racks == racks, "plans leave out their ports"
    stage.upkeep.look_after()
    assert stands(stage)
    assert care.uncertain_racks == racks
    network.connected.add(away)
    for _ in range(2):
        stage.upkeep.look_after()
    assert not stands(stage)
    assert network.vlans[END.id].tagged == {FABRIC.parking_vlan}
    assert not care.uncertain_racks


def test_the_next_controller_leaves_standing_what_one_before_did():
    stage, _ = begun()
    network = stage.network
    what, details = network.journal[-1]
    unsettled = interrupted(FABRIC, EMPTY, (what, details))
    assert dict(unsettled.begun) == dict(STANDING.vlans)
    following = SimulatedUpkeep(network, EMPTY, unsettled)
    following.start()
    assert stands(stage)
    assert following.memory.held.lanes == unsettled.begun


def test_who_does_not_come_back_is_not_waited_for_for_ever(monkeypatch, caplog):
    monkeypatch.setattr(device_upkeep, "HELD_S", 0.0)
    stage, _ = begun()
    stage.upkeep.look_after()
    assert not stands(stage)
    assert not stage.core.care.uncertain_racks
    assert "r1 - r2: switches that may send on earlier paths have not answered" in caplog.text


def test_relays_of_what_stands_stay_and_go_with_it():
    fabric = openflow_only(small_fabric(racks=3, planes=2, servers=1))
    path = path_of(fabric, 0, 2, circuit_between(fabric, 0, 1), circuit_between(fabric, 1, 2, 1))
    stage, away = begun(fabric, state_of(fabric, EMPTY, path))
    network, relay = stage.network, fabric.racks[1].tor.datapath_id
    assert relay in stage.core.switches.ready()
    stage.core.run(stage.core.courses.synchronisation.tidy_relays())
    assert len(list(relay_rules(network.tables[relay].values()))) == 2
    assert all(stands(stage, circuit) for circuit in path.circuits)
    network.connected.add(away)
    for _ in range(2):
        stage.upkeep.look_after()
    assert not any(stands(stage, circuit) for circuit in path.circuits)
    assert not list(relay_rules(network.tables[relay].values()))
    assert not stage.core.switches.spares_relays


def cut(network):
    """No light at r1's end, regardless of the mirrors."""
    lit = network.lit
    network.lit = lambda port: port.id != END.id and lit(port)


def test_a_circuit_without_carrier_is_not_adopted_at_a_start():
    stage = Stage(state=STANDING)
    cut(stage.network)
    stage.upkeep.look_after()
    assert stage.core.memory.state.topology.circuits == frozenset()
    assert stage.upkeep.dead.abandoned_circuits(STANDING) == ({CIRCUIT}, TOLD)
    assert stage.quarantined == dict.fromkeys(CIRCUIT.ends, TOLD)


@pytest.mark.parametrize("there", [True, False])
def test_a_circuit_of_a_plane_that_is_silent_at_a_start_is_kept_until_the_plane_answers(there):
    """A fibre is not blamed if a person has worked on the optical switch meanwhile."""
    stage = Stage(state=STANDING)
    stage.network.away = {CIRCUIT.plane}
    stage.upkeep.look_after()
    assert stage.core.memory.state == STANDING
    assert stage.core.care.uncertain_planes == {CIRCUIT.plane}
    stage.network.away = set()
    if not there:
        stage.network.mirrors[CIRCUIT.plane].clear()
    plane = FABRIC.planes[CIRCUIT.plane].name
    stage.upkeep.look_after()
    assert stage.core.care.uncertain_planes == set()
    gone = frozenset() if there else STANDING.topology.circuits
    assert stage.upkeep.dead.denied == gone
    dead, reason = stage.upkeep.dead.find()
    assert dead == gone
    assert there or reason == f"{plane} does not have r1 ={plane}= r2"
    assert not stage.quarantined
    assert stage.upkeep.dead.find()[0] == frozenset(), "told once"


def test_a_tor_that_was_away_is_asked_for_its_carrier():
    """A ToR without OpenFlow sends no report by itself."""
    stage = Stage(state=STANDING)
    stage.upkeep.look_after()
    assert stage.core.memory.state == STANDING
    stage.down["r0"] = "no connection"
    cut(stage.network)
    stage.network.faults = Faults(read=1.0)
    stage.upkeep.look_after()
    assert not stage.upkeep.dead.dark, "an unanswered question says nothing"
    stage.network.faults = Faults()
    del stage.down["r0"]
    stage.upkeep.devices.make_certain(stage.plan(path_of(FABRIC, 1, 2)))
    assert stage.upkeep.dead.dark == {(CIRCUIT, END.id)}
    assert stage.upkeep.dead.find() == ({CIRCUIT}, TOLD)
    assert stage.quarantined == dict.fromkeys(CIRCUIT.ends, TOLD)
    assert stage.upkeep.dead.find()[0] == frozenset(), "told once"


@pytest.mark.parametrize(
    ("kind", "put_out"), [(FailureKind.PROBE_LOST, True), (FailureKind.NOT_PROBED, False)]
)
def test_only_ports_of_circuits_that_were_tried_are_quarantined(kind, put_out):
    stage = Stage()
    plan = stage.plan(*STANDING.topology.paths)
    conditions = stage.reach.conditions()
    execution = Execution(
        fabric=FABRIC, policy=POLICY, plan=plan, conditions=conditions, order_of=order_of(FABRIC)
    )
    execution.failures[CIRCUIT] = Failure("probe", "r1 - r2", kind, "why")
    stage.upkeep.take_over(execution)
    assert set(stage.quarantined) == (set(CIRCUIT.ends) if put_out else set())


def test_circuits_that_die_while_a_change_waits_are_withdrawn_after_it(stage):
    stage = Stage(state=STANDING)
    stage.upkeep.look_after()
    stage.core.switches.is_dark = lambda end: end == END.id
    stage.upkeep.dead.divert_meanwhile()
    diverted = [
        dp
        for dp, table in stage.network.tables.items()
        if any(rule.kind is RuleKind.DIVERT for rule in table.values())
    ]
    assert sorted(diverted) == sorted(stage.network.names)[:2]
    stage.core.switches.is_dark = lambda _end: False
    assert stage.upkeep.dead.find() == ({CIRCUIT}, TOLD), "although its light is back"
    assert stage.upkeep.dead.find()[0] == frozenset(), "told once"


def test_circuits_that_traffic_has_left_are_withdrawn_although_their_light_is_back(stage):
    stage = Stage(state=STANDING)
    stage.upkeep.look_after()
    stage.core.switches.is_dark = lambda end: end == END.id
    assert stage.upkeep.dead.leave() == {CIRCUIT}
    stage.core.switches.is_dark = lambda _end: False
    assert stage.upkeep.dead.find() == ({CIRCUIT}, TOLD)
    assert stage.upkeep.dead.find()[0] == frozenset(), "told once"


def test_circuits_that_a_change_takes_down_itself_have_not_died(stage):
    stage = Stage(state=STANDING)
    stage.upkeep.look_after()
    plan = diff(FABRIC, STANDING, state_of(FABRIC, STANDING), order_of(FABRIC))
    execution = Execution(
        fabric=FABRIC,
        policy=POLICY,
        plan=plan,
        conditions=stage.reach.conditions(),
        order_of=order_of(FABRIC),
    )
    stage.ledger.network.begin(execution)
    stage.core.switches.is_dark = lambda end: end == END.id
    stage.upkeep.dead.divert_meanwhile()
    stage.core.switches.is_dark = lambda _end: False
    stage.core.run(execution.run())
    stage.ledger.network.end(execution)
    stage.upkeep.take_over(execution)
    assert CIRCUIT not in stage.ledger.network.state.topology.circuits
    stage.ledger.network.settle(STANDING)
    assert stage.upkeep.dead.find()[0] == frozenset(), "it was set up again"
    assert not stage.quarantined


def test_a_tor_that_refuses_to_open_a_port_is_asked_ever_more_rarely(stage, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(stage.upkeep.devices, "_port_retries", Retries(clock))
    stage.upkeep.look_after()
    (server, *_) = FABRIC.servers
    stage.core.switches.closed = frozenset({server.name})
    stage.network.closed.add(server.name)
    stage.network.faults = Faults(tor=1.0)
    run, asked_s = stage.network.perform, []

    def perform(batch, *rest):
        if batch.step == "open":
            asked_s.append(clock.now_s)
        return run(batch, *rest)

    stage.network.perform = perform
    while clock.now_s < 60:
        stage.upkeep.look_after()
        clock.now_s += 2.0
    assert asked_s == [0, 2, 6, 14, 30]
    stage.network.faults = Faults()
    clock.now_s = 100.0
    announced = []

    def listen(batch, *rest):
        announced.extend(one.servers for one in batch.commands if isinstance(one, Announce))
        return run(batch, *rest)

    stage.network.perform = listen
    stage.upkeep.look_after()
    assert not stage.core.switches.closed
    assert not stage.network.closed
    assert [[one.name for one, _ in servers] for servers in announced] == [[server.name]]


def gone_around(stage):
    """Servers to which all other vswitches send electrically because of their uplink."""
    own_rules = stage.network.substrate.own_rules

    def of_uplink(datapath, name):
        with_it, without_it = (
            {match_key(rule) for rule in own_rules(datapath, dead, POLICY.source_check)}
            for dead in ((name,), ())
        )
        return with_it - without_it

    switches = [(one.vswitch.datapath_id, one.name) for one in FABRIC.servers]
    return {
        server.name
        for server in FABRIC.servers
        if all(
            of_uplink(datapath, server.name) <= stage.network.tables[datapath].keys()
            for datapath, name in switches
            if name != server.name
        )
    }


def test_a_server_whose_port_is_closed_is_gone_around_until_it_is_open():
    """A change closes the port for a silent vswitch, whose dead uplink then comes back."""
    stage = Stage(state=STANDING)
    stage.upkeep.in_command = True
    stage.upkeep.look_after()
    assert gone_around(stage) == set()
    (silent, *_), network = FABRIC.servers, stage.network
    network.dead_uplinks.add(silent.name)
    stage.upkeep.follow_uplinks()
    network.connected.discard(silent.vswitch.datapath_id)
    plan = diff(FABRIC, STANDING, state_of(FABRIC, STANDING), order_of(FABRIC))
    execution = Execution(
        fabric=FABRIC,
        policy=POLICY,
        plan=plan,
        conditions=stage.reach.conditions(),
        order_of=order_of(FABRIC),
    )
    stage.ledger.network.begin(execution)
    steps = execution.run()
    batch = next(steps)
    while batch.step != "move":
        batch = steps.send(stage.core.perform(batch))
    network.uplink_back(silent)
    stage.upkeep.follow_uplinks_meanwhile()
    assert gone_around(stage) == execution.conditions.dead_uplinks == {silent.name}
    while batch is not None:
        batch = next_batch(steps, stage.core.perform(batch))
    assert execution.state is ReconfigurationState.DONE
    stage.ledger.network.end(execution)
    stage.ledger.network.settle(execution.result)
    stage.core.memory.settle(execution.result)
    stage.upkeep.take_over(execution)
    stage.core.do_jobs()
    assert gone_around(stage) == network.closed == {silent.name}
    network.connected.add(silent.vswitch.datapath_id)
    stage.upkeep.look_after()
    assert gone_around(stage) == network.closed == stage.core.switches.closed == set()


def test_a_server_that_a_change_closes_is_gone_around_while_the_change_is_under_way():
    """The server's uplink is up all the time: there is no report."""
    stage = Stage(state=STANDING)
    stage.upkeep.in_command = True
    stage.upkeep.look_after()
    (silent, *_), network = FABRIC.servers, stage.network
    network.connected.discard(silent.vswitch.datapath_id)
    plan = diff(FABRIC, STANDING, state_of(FABRIC, STANDING), order_of(FABRIC))
    policy = replace(POLICY, on_silent_vswitch=OnSilence.CLOSE)
    execution = Execution(
        fabric=FABRIC,
        policy=policy,
        plan=plan,
        conditions=stage.reach.conditions(),
        order_of=order_of(FABRIC),
    )
    stage.ledger.network.begin(execution)
    steps = execution.run()
    batch = next(steps)
    while batch.step != "drain":
        stage.upkeep.follow_closed_meanwhile(execution)
        assert gone_around(stage) == set()
        batch = steps.send(stage.core.perform(batch))
    stage.core.steps.clear()
    for _ in range(2):
        stage.upkeep.follow_closed_meanwhile(execution)
        assert gone_around(stage) == execution.conditions.dead_uplinks == {silent.name}
    assert stage.core.steps == ["go around"]


def test_switches_that_connect_together_are_brought_together_and_some_at_a_time(stage, monkeypatch):
    monkeypatch.setattr(upkeep, "_AT_ONCE", 2)
    stage.upkeep.look_after()
    stage.core.steps.clear()
    for datapath in stage.network.names:
        stage.core.switches.renewed(datapath)
    names = stage.network.names.keys()
    assert stage.upkeep.synchronise()
    assert len(stage.reach.ready_switches() & names) == 2
    assert not stage.upkeep.synchronise()
    assert len(stage.reach.ready_switches() & names) == len(names) == 3
    assert not stage.upkeep.synchronise()
    assert stage.core.steps.count("confirm") == 2


def test_no_more_are_under_way_at_a_time_than_go_together(stage, monkeypatch):
    """For any number of switches, and any duration."""
    monkeypatch.setattr(upkeep, "_AT_ONCE", 2)
    stage.upkeep.look_after()
    every = sorted(stage.network.names)
    for datapath in every:
        stage.network.tables[datapath].clear()
        stage.core.switches.answers_again(datapath)  # no job waits for these
    for _ in range(3):
        assert not stage.upkeep.synchronise()
    assert stage.core.switches.being_brought == set(every[:2])
    stage.core.finish_beside()
    assert stage.reach.ready_switches() >= set(every)


def test_a_switch_that_connects_anew_does_not_wait_for_another_attempt(stage):
    stage.upkeep.look_after()
    first = next(iter(stage.network.names))
    stage.network.tables[first].clear()
    stage.network.faults = Faults(vswitch=1.0)
    stage.core.switches.doubt([first])
    stage.upkeep.synchronise()
    stage.network.tables[first].clear()
    stage.network.faults = Faults()
    stage.upkeep.synchronise()
    assert first not in stage.reach.ready_switches()
    stage.network.connected.add(first)  # the refusal may have ended the switch's connection
    stage.core.switches.renewed(first)
    stage.upkeep.synchronise()
    assert first not in stage.reach.ready_switches(), "others do not wait for it again"
    stage.core.finish_beside()
    assert first in stage.reach.ready_switches()


@pytest.fixture
def slow(stage):
    """A switch that was given up, and has answered."""
    stage.upkeep.look_after()
    first = min(stage.network.names)
    stage.network.tables[first].clear()
    stage.core.switches.answers_again(first)
    stage.core.steps.clear()
    return first


def test_a_change_does_not_wait_for_a_slow_switch_that_is_being_brought(stage, slow):
    stage.upkeep.synchronise()
    assert slow not in stage.reach.ready_switches()
    plan = stage.plan(path_of(FABRIC, 1, 2), path_of(FABRIC, 0, 1))
    assert slow not in stage.reach.conditions().connected
    execution = Execution(
        fabric=FABRIC,
        policy=POLICY,
        plan=plan,
        conditions=stage.reach.conditions(),
        order_of=order_of(FABRIC),
    )
    stage.core.run(execution.run())
    stage.core.take_over(execution)
    assert slow not in stage.reach.ready_switches(), "the change has not waited for it"
    stage.core.finish_beside()
    assert slow in stage.reach.ready_switches()
    assert stage.network.synchronised(execution.result) >= stage.network.names.keys()
    assert stage.core.steps.count("synchronise") == 1, "given the state that there is by then"


def test_who_connects_is_brought_at_once_beside_slow_ones(stage, slow):
    stage.upkeep.synchronise()
    other = max(stage.network.names)
    stage.network.tables[other].clear()
    stage.core.switches.renewed(other)
    stage.upkeep.synchronise()
    assert other in stage.reach.ready_switches()
    assert slow not in stage.reach.ready_switches()
    stage.core.finish_beside()
    assert slow in stage.reach.ready_switches()


def test_slow_ones_that_answer_later_do_not_wait_for_those(stage, slow):
    stage.upkeep.synchronise()
    other = max(stage.network.names)
    stage.network.tables[other].clear()
    stage.core.switches.answers_again(other)
    stage.upkeep.synchronise()
    stage.upkeep.synchronise()
    assert stage.core.steps.count("take") == 2, "and each is brought once"
    stage.core.finish_beside()
    assert stage.core.steps.count("take") == 2
    assert stage.reach.ready_switches() >= {slow, other}


def test_nothing_of_a_slow_switch_is_under_way_when_devices_are_read_anew(stage, slow):
    stage.upkeep.synchronise()
    ended = []
    dropped = SimpleNamespace(drop=lambda: ended.append(list(stage.core.steps)))
    stage.upkeep._beside = [dropped]
    stage.core.recovery.done = False
    stage.upkeep.look_after()
    assert ended == [["take"]], "before anything else"
    assert "read" in stage.core.steps


def test_a_mute_switch_is_not_said_to_be_away(stage):
    stage.upkeep.look_after()
    one, other, *_ = sorted(stage.network.names)
    stage.network.connected -= {one, other}
    stage.mute.add(other)
    names = stage.core.switches.owned
    assert stage.reach.absences.missing() == [
        f"vswitch {names[one]} is not connected",
        f"vswitch {names[other]} is connected, and not answering",
    ]
    assert [away.name for away in stage.reach.absences.switches_away()] == [names[one]]
    assert [mute.name for mute in stage.reach.absences.switches_mute()] == [names[other]]
    told = {s.name: (s.connected, s.answers, s.detail) for s in stage.reach.absences.devices()}
    assert told[names[one]] == (False, True, "")
    assert told[names[other]] == (True, False, "connected, and not answering")
    assert stage.reach.why_not_ready(other).startswith(f"switch {names[other]} is connected, and")


def test_it_is_ready_though_switches_are_away_once_they_had_their_time(stage):
    assert stage.reach.not_ready()[0] == "devices have not been read yet"
    stage.upkeep.look_after()
    stage.network.connected.discard(min(stage.network.names))
    assert stage.reach.not_ready()[1:] == ["vswitch v-h11 is not connected"]
    stage.reach.starting = False
    assert stage.reach.not_ready() == []
    assert stage.reach.absences.missing() == ["vswitch v-h11 is not connected"]


def test_switches_that_are_missing_are_named_once_with_what_keeps_them(stage):
    stage.upkeep.look_after()
    assert stage.reach.absences.missing() == []
    one, *others = sorted(stage.network.names)
    stage.network.connected.discard(one)
    assert stage.reach.absences.missing() == ["vswitch v-h11 is not connected"]
    stage.core.switches.doubt(others)
    assert stage.reach.absences.missing()[1] == (
        "2 vswitches are being brought to the present state: v-h21, v-h31"
    )


def test_what_is_missing_for_a_change_is_told_before_it(stage):
    stage.upkeep.look_after()
    pair = RackId(0), RackId(1)
    planes, racks = [PlaneId(1)], [RackId(2)]
    assert stage.reach.absences.at_risk([pair], planes, racks) == ()
    stage.network.connected.clear()
    stage.down |= {PlaneId(0): "no answer", PlaneId(1): "no answer"}
    stage.down |= {"r1": "not known", "r2": "not known"}  # by the rack's number from 0
    assert stage.reach.absences.at_risk([pair], planes, racks) == (
        "2 vswitches are not connected: v-h11, v-h21",
        "optical switch p2 is left out: no answer",
        "rack r3 is left out, for its ToR: not known",
    )
    assert (
        stage.reach.absences.at_risk([(RackId(2), RackId(2))])[0]
        == "vswitch v-h31 is not connected"
    )


def test_where_many_are_missing_some_are_named_and_the_others_counted():
    stage = Stage(small_fabric(racks=4, planes=2, servers=2))
    stage.upkeep.look_after()
    stage.network.connected.clear()
    stage.statuses = [
        DeviceStatus(f"r{number}", "tor", "ovs-ovsdb", number == 2, "no answer")
        for number in range(1, 9)
    ]
    assert stage.reach.absences.missing() == [
        "8 vswitches are not connected: v-h11, v-h12, v-h21, v-h22, v-h31 and 3 more",
        *(f"ToR r{number}: no answer" for number in (1, 3, 4, 5, 6)),
        "2 more ToRs",
    ]


def test_a_plane_that_was_down_is_read_again_before_it_is_used(stage):
    stage.upkeep.look_after()
    stage.down[FIRST] = "no connection"
    assert {FABRIC.ports[end].plane for end in stage.reach.blocked_ports()} == {FIRST}
    assert stage.reach.blocked_with_all_planes() == frozenset()
    others = {port.id for port in FABRIC.ports if port.plane != FIRST}
    stage.quarantined = dict.fromkeys((port.id for port in FABRIC.ports), "refused")
    assert stage.reach.blocked_with_all_planes() == others
    stage.quarantined = {}
    assert stage.reach.within_reach(PlanRequest()).planes == {PlaneId(1)}
    with pytest.raises(DeviceUnavailable, match="p1: down: wait, or name other planes"):
        stage.reach.within_reach(PlanRequest(planes=frozenset({FIRST})))
    stage.network.faults = Faults(read=1.0)
    stage.upkeep.look_after()
    assert stage.core.care.uncertain_planes == {FIRST}
    stage.network.faults = Faults()
    del stage.down[FIRST]
    stage.upkeep.devices.make_certain(stage.plan(path_of(FABRIC, 0, 1)))
    assert not stage.core.care.uncertain_planes


def test_a_device_that_was_away_for_long_is_looked_at_soon_when_it_fails_again(stage):
    """Also if a change has read the device meanwhile, and not the upkeep itself."""
    clock = stage.upkeep.devices._retries._clock = Clock()
    stage.upkeep.look_after()

    def goes_away(seconds):
        stage.down[FIRST], stage.network.faults = "no connection", Faults(read=1.0)
        until_s = clock.now_s + seconds
        while clock.now_s < until_s:
            stage.upkeep.look_after()
            clock.now_s += 1.0
        assert stage.core.care.uncertain_planes == {FIRST}
        del stage.down[FIRST]
        stage.network.faults = Faults()

    goes_away(600.0)
    stage.upkeep.devices.make_certain(stage.plan(path_of(FABRIC, 0, 1)))
    clock.now_s += 60.0
    stage.upkeep.look_after()
    goes_away(1.0)
    clock.now_s += 1.0
    stage.upkeep.look_after()
    assert not stage.core.care.uncertain_planes


def test_nothing_is_set_up_on_a_device_that_does_not_say_what_it_has(stage):
    stage.upkeep.look_after()
    stage.core.care.uncertain_planes.add(FIRST)
    stage.core.care.uncertain_racks.add(RackId(1))
    stage.network.faults = Faults(read=1.0)
    with pytest.raises(DeviceUnavailable, match="p1, r2: the device's state is not known yet"):
        stage.upkeep.devices.make_certain(stage.plan(path_of(FABRIC, 0, 1)))
    stage.upkeep.devices.make_certain(stage.plan())  # taking circuits down is always right


def test_a_rack_whose_vlans_are_not_known_is_out_of_reach(stage):
    stage.upkeep.look_after()
    stage.core.care.uncertain_racks.add(RackId(1))
    assert stage.reach.within_reach(PlanRequest()).racks == {RackId(0), RackId(2)}
    assert {FABRIC.ports[end].rack for end in stage.reach.blocked_ports()} == {RackId(1)}


def test_a_rack_whose_tor_lacks_a_port_is_within_reach_and_read_until_it_is_back(stage):
    stage.upkeep.look_after()
    gone = next(port for port in FABRIC.ports if port.rack == RackId(1))
    stage.missing[RackId(1)] = frozenset({gone.tor_port})
    asked = []
    stage.upkeep.devices._mend = awaited(
        lambda planes, racks: asked.append((list(planes), list(racks)))
    )
    assert stage.reach.blocked_ports() == {gone.id}
    assert stage.reach.within_reach(PlanRequest()).racks is None
    stage.upkeep.look_after()
    stage.missing.clear()
    stage.upkeep.look_after()
    assert asked == [([], [RackId(1)]), ([], [])]
    assert stage.reach.blocked_ports() == frozenset()


def test_a_tor_without_vlans_that_missed_a_rule_is_within_reach_again():
    stage = Stage(openflow_only(FABRIC))
    stage.upkeep.in_command = True
    stage.upkeep.look_after()
    stage.core.care.uncertain_racks.add(RackId(1))
    stage.upkeep.look_after()
    assert not stage.core.care.uncertain_racks
    assert stage.reach.blocked_ports() == frozenset()


def test_a_vswitch_that_gave_no_answer_about_its_meters_is_brought_again(stage):
    stage.upkeep.look_after()
    stage.upkeep.look_after()
    clock = stage.upkeep._meter_retries._clock = Clock()
    datapath = FABRIC.servers[0].vswitch.datapath_id
    stage.policing.unanswered = frozenset({datapath})
    doubted, doubt = [], stage.core.switches.doubt

    def noted(datapaths):
        doubted.extend((clock.now_s, one) for one in datapaths)
        doubt(datapaths)

    stage.core.switches.doubt = noted
    for _ in range(8):
        stage.upkeep.look_after()
        assert datapath in stage.core.switches.ready()
        clock.now_s += 1.0
    assert doubted == [(at_s, datapath) for at_s in (0, 2, 6)]


def on_circuits(stage, *dead):
    """Steering switches reported as able to use circuits, with these uplinks dead."""
    switches = stage.core.switches
    switches.dead_uplinks = frozenset(dead)
    on = stage.reach.on_circuits()
    return {switch.name for datapath, switch in switches.steering.items() if datapath in on}


def test_a_vswitch_whose_uplink_is_dead_is_not_on_circuits(stage):
    stage.upkeep.look_after()
    assert on_circuits(stage) == {"h11", "h21", "h31"}
    assert on_circuits(stage, "h11", "h31") == {"h21"}
    stage.core.switches.closed = frozenset({"h21"})
    assert on_circuits(stage, "h11") == {"h31"}, "nor one whose port is closed to them"


def test_a_tor_is_on_circuits_while_one_of_its_servers_is():
    stage = Stage(openflow_only(small_fabric(racks=2, planes=1, servers=2)))
    stage.upkeep.in_command = True
    stage.upkeep.look_after()
    assert on_circuits(stage, "h11", "h22") == {"r1", "r2"}
    assert on_circuits(stage, "h11", "h12") == {"r2"}


def test_a_vswitch_whose_loss_is_noted_during_the_round_is_restored_in_the_next_round():
    """The prober's thread notes losses at any time, also between two reads of the last losses."""
    stage = Stage(state=STANDING)
    stage.upkeep.in_command = True
    stage.upkeep.look_after()
    datapath = FABRIC.servers[0].vswitch.datapath_id
    stage.network.tables[datapath].clear()
    stage.network.rules_changed(datapath)

    class Replaced(dict):
        def keys(self):
            keys = set(super().keys())
            note()
            return keys

        def __iter__(self):
            return iter(self.keys())

    def note():
        dead = {FABRIC.servers[0].name: frozenset(LinkDirection)}
        stage.upkeep.note_one_way_uplinks(dead)

    stage.upkeep.one_way_uplinks = Replaced()
    restored = stage.upkeep.follow_uplinks() | stage.upkeep.follow_uplinks()
    assert restored == {datapath}


def test_a_vswitch_whose_probes_are_lost_gets_missing_rules_and_is_named():
    stage = Stage(state=STANDING)
    stage.upkeep.in_command = True
    stage.upkeep.look_after()
    first = FABRIC.servers[0].vswitch.datapath_id
    whole = dict(stage.network.tables[first])
    stage.network.tables[first].clear()
    stage.network.rules_changed(first)
    stage.upkeep.note_one_way_uplinks(
        {server.name: frozenset(LinkDirection) for server in FABRIC.servers[:2]}
    )
    stage.network.connected.discard(FABRIC.servers[1].vswitch.datapath_id)  # answers nothing
    assert stage.upkeep.follow_uplinks() == {first}
    assert stage.upkeep.follow_uplinks() == frozenset()
    stage.upkeep.note_one_way_uplinks({})
    stage.upkeep.follow_uplinks()
    assert stage.network.tables[first].keys() == whole.keys()
