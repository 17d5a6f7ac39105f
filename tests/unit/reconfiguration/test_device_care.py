"""Devices and frames on their way to the devices."""

import random
from dataclasses import replace

import pytest

from hydra.failures import FailureKind
from hydra.model import NetworkState, PlaneId, RackId, VlanId
from hydra.reconfiguration.commands import (
    AwaitRounds,
    CompareRules,
    Outcome,
    PassMarkers,
    Pause,
    ReadMirrors,
    ReadPortPackets,
    ReadVlans,
    next_batch,
)
from hydra.reconfiguration.drift import RuleDrift
from hydra.reconfiguration.plan import Unsettled
from hydra.reconfiguration.reconcile import Actual, reconcile
from hydra.roles import Mirrors
from tests.unit.core.fabrics import circuit_between, openflow_only, path_of, small_fabric, state_of
from tests.unit.reconfiguration.simulation.faults import Faults, failure_of
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.test_reconcile import devices_of
from tests.unit.reconfiguration.upkeep import POLICY, SimulatedUpkeep

FABRIC = small_fabric(racks=3, planes=1, servers=2)
STATE = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1, circuit_between(FABRIC, 0, 1, 0)))


def test_a_drain_waits_for_those_alone_that_can_tell():
    """A learning ToR has no round rules: a wait would be in vain."""
    network = Network(FABRIC, STATE, random.Random(1))
    assert network.learning
    upkeep = SimulatedUpkeep.at_work(network, STATE)
    assert upkeep.switches.ready() == network.names.keys() | network.learning.keys()
    (told,) = next(upkeep.care.drain()).commands
    assert isinstance(told, AwaitRounds)
    assert told.datapaths == tuple(sorted(network.names))


@pytest.fixture
def network():
    return Network(FABRIC, STATE, random.Random(1))


def _drained(network, still_s):
    """Seconds for a drain of the state's path, while its first rack stands still."""
    upkeep = SimulatedUpkeep.at_work(network, STATE)
    began_s = network.now_s
    network.still_until_s[0] = began_s + still_s
    steps = upkeep.care.run_empty(tuple(STATE.vlans.items()), sure=True)
    batch = next_batch(steps)
    while batch is not None:
        batch = next_batch(steps, network.perform(batch, lambda _: None))
    return network.now_s - began_s


def _steps(steps, answer):
    """The batches of a course whose commands are answered so."""
    batches = []
    batch = next_batch(steps)
    while batch is not None:
        batches.append(batch)
        batch = next_batch(steps, [answer(one) for one in batch.commands])
    return batches


@pytest.mark.parametrize("doubt", ["none", "what stands", "a switch", "a second VLAN-ID"])
def test_nobody_waits_where_markers_and_counters_show_that_all_is_empty(network, doubt):
    upkeep = SimulatedUpkeep.at_work(network, STATE)
    upkeep.memory.state = NetworkState()
    lanes = list(STATE.vlans.items())
    if doubt == "a second VLAN-ID":
        lanes += [(path, VlanId(vlan + 1)) for path, vlan in lanes]
    if doubt == "a switch":
        upkeep.switches.renewed(min(upkeep.switches.owned))

    def answer(command):
        value = {AwaitRounds: frozenset(), PassMarkers: ()}.get(type(command))
        if isinstance(command, ReadPortPackets):
            value = dict.fromkeys(command.ports, 7)
        return Outcome(value, started_s=0.0, finished_s=0.001)

    batches = _steps(upkeep.care.run_empty(lanes, sure=doubt != "what stands"), answer)
    commands = [one for batch in batches for one in batch.commands]
    bounds = [one for one in commands if one == Pause(POLICY.drain.bound_ms / 1000)]
    assert len(bounds) == (doubt != "none")
    read = [one for one in commands if isinstance(one, ReadPortPackets)]
    assert len(read) == 2 * POLICY.drain.reads, "at both ends of the circuit"


@pytest.mark.parametrize("still_s", [0.5, 2.5])
def test_a_drain_lasts_until_markers_have_come_over_what_is_left(network, still_s, caplog):
    # timed: on the clock of the simulation
    assert still_s <= _drained(network, still_s) < still_s + 0.5
    assert not caplog.messages


def test_a_drain_of_what_nothing_comes_over_ends_with_a_warning(network, caplog):
    """Each attempt takes the network up to a tenth longer than its time-out, checked every 10
    ms.
    """
    tor_s = POLICY.timeouts.tor_s
    # timed: on the clock of the simulation
    assert tor_s <= _drained(network, 1000.0) < 1.2 * tor_s
    assert caplog.messages == ["packets sent by r1 over ending circuits may be lost"]


def test_a_marker_that_can_not_be_sent_is_tried_again(network):
    """For any obstacle, the drain ends."""
    upkeep = SimulatedUpkeep.at_work(network, STATE)
    batches = _steps(
        upkeep.care.run_empty(tuple(STATE.vlans.items()), sure=True),
        lambda one: Outcome(
            None, failure=failure_of(one, FailureKind.NOT_CONNECTED), started_s=0.0, finished_s=0.0
        ),
    )
    assert [type(one) for one in batches[1].commands] == [PassMarkers, Pause]
    assert 2 < len(batches) < 1000


@pytest.mark.parametrize("what", ["as it was", "one more VLAN", "other VLANs", "no light", "moved"])
def test_paths_that_are_given_up_and_may_pass_frames_are_told(network, what):
    """An extra VLAN at a port costs no path. Missing light may be there by now."""
    (path,) = STATE.topology.paths
    (vlan,) = STATE.vlans.values()
    port = FABRIC.ports[path.circuits[0].a]
    tagged = {"one more VLAN": {vlan, vlan + 1}, "other VLANs": {vlan + 1}}.get(what)
    if tagged is not None:
        network.vlans[port.id] = replace(network.vlans[port.id], tagged=frozenset(tagged))
    if what == "moved":
        network.mirrors[0] = frozenset()
    mirrors = {plane.id: Mirrors(frozenset(network.mirrors[plane.id])) for plane in FABRIC.planes}
    vlans = {
        rack.id: {
            one.tor_port: network.vlans[one.id] for one in FABRIC.ports if one.rack == rack.id
        }
        for rack in FABRIC.racks
    }
    dark = path.circuits[0].receivers if what == "no light" else ()
    found = reconcile(FABRIC, STATE, Actual(mirrors, vlans), dark=dark)
    assert not found.standing
    assert dict(found.passing) == ({path: vlan} if what == "no light" else {})
    assert (path in found.state.topology.paths) == (what in ("as it was", "one more VLAN"))


def test_paths_that_a_change_had_begun_are_told_if_they_stand(network):
    """The change may have activated the paths before it broke off, and the saved state is the state
    before.
    """
    (lane,) = STATE.vlans.items()
    before = NetworkState()
    unsettled = Unsettled.by(before, STATE)
    assert unsettled.begun == {lane}
    actual = devices_of(FABRIC, STATE)
    found = reconcile(FABRIC, before, actual, unsettled)
    assert found.standing == [lane]
    assert found.state.topology.paths == ()
    receivers = lane[0].circuits[0].receivers
    assert found.sure
    dark = reconcile(FABRIC, before, actual, unsettled, dark=receivers)
    assert (dark.standing, dark.sure) == ([], False)
    silent = replace(actual, mirrors={})
    assert reconcile(FABRIC, before, silent, unsettled).standing == [lane], "its plane is silent"
    assert reconcile(FABRIC, STATE, actual, unsettled).standing == [], "it is kept"


def test_what_two_changes_leave_open_is_what_each_does():
    (lane,) = STATE.vlans.items()
    ended, begun = Unsettled(frozenset({lane[0]})), Unsettled(begun=frozenset({lane}))
    assert ended | begun == Unsettled(frozenset({lane[0]}), frozenset({lane}))


def test_a_rack_that_does_not_confirm_its_tags_is_uncertain(network):
    care = SimulatedUpkeep.at_work(network, STATE).care

    def answer(command):
        fails = command.rack == RackId(1)
        return Outcome(failure=failure_of(command, FailureKind.UNKNOWN) if fails else None)

    _steps(care.retag(STATE, {RackId(0): {}, RackId(1): {}}), answer)
    assert care.uncertain_racks == {RackId(1)}


def test_tors_are_asked_for_the_carrier_of_the_ports_with_circuits(network):
    (path,) = STATE.topology.paths
    ends = [FABRIC.ports[end] for end in path.circuits[0].receivers]
    care = SimulatedUpkeep.at_work(network, STATE).care
    (batch,) = _steps(
        care.dark_ports([port.rack for port in ends]), lambda one: Outcome(frozenset(one.ports))
    )
    assert {(one.rack, one.ports) for one in batch.commands} == {
        (port.rack, (port.tor_port,)) for port in ends
    }


@pytest.mark.parametrize("mute", [True, False])
def test_mirrors_stay_where_a_tor_may_yet_send_probes_that_it_was_given(mute):
    """The ToR stands still: its queued commands take effect once it answers."""
    fabric = openflow_only(FABRIC)
    network = Network(fabric, NetworkState(), random.Random(1))
    upkeep = SimulatedUpkeep.at_work(network, NetworkState())
    crosses = fabric.cross_connects(circuit_between(fabric, 0, 1, 0))
    network.mirrors[0] = set(crosses)
    network.late.mute = {fabric.racks[1].tor.datapath_id} if mute else set()
    network.connected -= network.late.mute
    upkeep.run(upkeep.care.mend([0], []))
    assert network.mirrors[0] == (set(crosses) if mute else set())
    assert upkeep.care.uncertain_planes == ({0} if mute else set())
    network.late.mute = set()
    upkeep.run(upkeep.care.mend([0], []))
    assert not network.mirrors[0]
    assert not upkeep.care.uncertain_planes


def test_a_port_that_was_closed_is_known_to_be_though_its_tor_is_silent_in_a_recovery(network):
    """A change broke off. Once the ToR answers, the port stays closed until the vswitch answers."""
    upkeep = SimulatedUpkeep.at_work(network, STATE)
    (silent, *_) = FABRIC.racks[0].servers
    network.connected.discard(silent.vswitch.datapath_id)
    network.closed.add(silent.name)
    upkeep.switches.closed = frozenset({silent.name})
    upkeep.switches.doubt(network.names)
    network.faults = Faults(read=1.0)
    upkeep.start()
    network.faults = Faults()
    upkeep.care.uncertain_racks.add(silent.rack)
    upkeep.look_after()
    assert network.closed == upkeep.switches.closed == {silent.name}
    network.connected.add(silent.vswitch.datapath_id)
    upkeep.switches.renewed(silent.vswitch.datapath_id)
    upkeep.look_after()
    assert network.closed == upkeep.switches.closed == set()


def _looks(audit, silent, **everywhere):
    """Devices found silent, and devices asked, if these do not answer."""
    course, asked, outcomes = audit.look(**everywhere), [], None
    with pytest.raises(StopIteration) as over:
        while True:
            batch = course.send(outcomes)
            asked += [one for one in batch.commands if isinstance(one, ReadMirrors | ReadVlans)]
            outcomes = [
                Outcome(
                    None,
                    failure=failure_of(one, FailureKind.UNKNOWN),
                    started_s=0.0,
                    finished_s=5.0,
                )
                if one in silent
                else Outcome(_answer_of(one), started_s=0.0, finished_s=0.001)
                for one in batch.commands
            ]
    return over.value.value.silent, asked


def _answer_of(command):
    if isinstance(command, CompareRules):
        return {datapath: RuleDrift((), ()) for datapath in command.intended}
    return Mirrors(frozenset()) if isinstance(command, ReadMirrors) else {}


def test_audits_wait_once_for_a_device_that_has_fallen_silent(network):
    """A retry reads the device again, and so does a requested audit."""
    upkeep = SimulatedUpkeep.at_work(network, STATE)
    audit = upkeep.audit
    _, everything = _looks(audit, ())
    silent = [one for one in everything if one in (ReadMirrors(PlaneId(0)), everything[-1])]
    assert _looks(audit, silent) == (("p1", "r3"), everything)
    assert upkeep.care.uncertain_planes == {PlaneId(0)}
    assert upkeep.care.uncertain_racks == {RackId(2)}
    asked = [one for one in everything if one not in silent]
    assert _looks(audit, ()) == (("p1", "r3"), asked)
    assert _looks(audit, (), everywhere=True) == ((), everything)
    assert _looks(audit, ()) == ((), everything)
