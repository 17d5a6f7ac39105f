"""When which course is due, what is out of reach meanwhile, and that nothing is assumed."""

import random
from types import SimpleNamespace

import pytest

from apps.controller.ledger import Ledger
from apps.controller.reach import Reach
from apps.controller.upkeep import Retries, Upkeep
from apps.journal.sqlite import SqliteJournal
from hydra.errors import DeviceUnavailable
from hydra.model import NetworkState, PlaneId, RackId
from hydra.reconfiguration.plan import diff
from hydra.service import PlanRequest
from tests.unit.core.fabrics import order_of, path_of, small_fabric, state_of
from tests.unit.reconfiguration.simulation import Faults, Network
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep

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

    def __init__(self, state=EMPTY):
        self.network = Network(FABRIC, state, random.Random(1))
        self.core = SimulatedUpkeep(self.network, state)
        self.down = {}
        self.ledger = Ledger(FABRIC, SqliteJournal(":memory:"))
        devices = SimpleNamespace(
            plane_problem=self.down.get, tor_problem=lambda rack: self.down.get(f"r{rack}")
        )
        fleet = SimpleNamespace(connected=lambda: frozenset(self.network.connected))
        self.ledger.settle(state)
        self.quarantined = {}
        quarantine = SimpleNamespace(
            blocked=frozenset,
            put=lambda ends, why: self.quarantined.update(dict.fromkeys(ends, why)),
        )
        panels = SimpleNamespace(ports=frozenset)
        core = self.core
        self.upkeep = Upkeep(
            FABRIC,
            fleet,
            devices,
            self.ledger,
            quarantine,
            panels,
            SimpleNamespace(),
            SimpleNamespace(),
            core,
            core.switches,
            core.care,
            core.recovery,
            lambda _error: None,
        )
        self.reach = Reach(
            FABRIC,
            fleet,
            devices,
            self.ledger,
            quarantine,
            panels,
            core.switches,
            core.care,
            core.recovery,
        )

    def plan(self, *paths):
        return diff(FABRIC, EMPTY, state_of(FABRIC, EMPTY, *paths), order_of(FABRIC))


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


def cut(network):
    """No light at r1's end, whatever the mirrors say."""
    lit = network._lit
    network._lit = lambda port: port.id != END.id and lit(port)


def test_a_circuit_without_carrier_is_not_adopted_at_a_start():
    stage = Stage(STANDING)
    cut(stage.network)
    stage.upkeep.look_after()
    assert stage.core.memory.state.topology.circuits == frozenset()
    assert stage.upkeep.given_up() == ({CIRCUIT}, TOLD)
    assert stage.quarantined == dict.fromkeys(CIRCUIT.ends, TOLD)


def test_a_tor_that_was_away_is_asked_for_its_carrier():
    """One that does not speak OpenFlow tells nobody of it unasked."""
    stage = Stage(STANDING)
    stage.upkeep.look_after()
    assert stage.core.memory.state == STANDING
    stage.down["r0"] = "no connection"
    cut(stage.network)
    stage.network.faults = Faults(read=1.0)
    stage.upkeep.look_after()
    assert not stage.upkeep.dark, "an unanswered question says nothing"
    stage.network.faults = Faults()
    del stage.down["r0"]
    stage.upkeep.make_certain(stage.plan(path_of(FABRIC, 1, 2)))
    assert stage.upkeep.dark == {END.id}
    assert stage.upkeep.dead_circuits() == ({CIRCUIT}, TOLD)
    assert stage.quarantined == dict.fromkeys(CIRCUIT.ends, TOLD)
    assert stage.upkeep.dead_circuits()[0] == frozenset(), "told once"


def test_a_plane_that_was_down_is_read_again_before_it_is_used(stage):
    stage.upkeep.look_after()
    stage.down[FIRST] = "no connection"
    assert {FABRIC.ports[end].plane for end in stage.reach.blocked_ports()} == {FIRST}
    assert stage.reach.within_reach(PlanRequest()).planes == {PlaneId(1)}
    with pytest.raises(DeviceUnavailable, match="p1: down: wait, or name other planes"):
        stage.reach.within_reach(PlanRequest(planes=frozenset({FIRST})))
    stage.network.faults = Faults(read=1.0)
    stage.upkeep.look_after()
    assert stage.core.care.uncertain_planes == {FIRST}
    stage.network.faults = Faults()
    del stage.down[FIRST]
    stage.upkeep.make_certain(stage.plan(path_of(FABRIC, 0, 1)))
    assert not stage.core.care.uncertain_planes


def test_nothing_is_set_up_on_a_device_that_does_not_say_what_it_has(stage):
    stage.upkeep.look_after()
    stage.core.care.uncertain_planes.add(FIRST)
    stage.core.care.uncertain_racks.add(RackId(1))
    stage.network.faults = Faults(read=1.0)
    with pytest.raises(DeviceUnavailable, match="p1, r2: what it has is not known yet"):
        stage.upkeep.make_certain(stage.plan(path_of(FABRIC, 0, 1)))
    stage.upkeep.make_certain(stage.plan())  # to take circuits away is always right


def test_a_rack_whose_vlans_are_not_known_is_out_of_reach(stage):
    stage.upkeep.look_after()
    stage.core.care.uncertain_racks.add(RackId(1))
    assert stage.reach.within_reach(PlanRequest()).racks == {RackId(0), RackId(2)}
    assert {FABRIC.ports[end].rack for end in stage.reach.blocked_ports()} == {RackId(1)}
