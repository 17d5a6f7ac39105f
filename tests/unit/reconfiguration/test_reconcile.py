import random
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.forwarding.substrate import substrate_of
from hydra.model import Circuit, CrossConnect, NetworkState, PlaneId, RackId, VlanId, VlanRange
from hydra.reconfiguration.drift import device_drift, standing_cross_connects
from hydra.reconfiguration.plan import Unsettled, port_trunks
from hydra.reconfiguration.reconcile import (
    Actual,
    reconcile,
    servers_closed,
    stray_mirrors,
    wanted_vlans,
)
from hydra.roles import Mirrors, PortVlans
from tests.unit.core.fabrics import (
    PARKING_VLAN,
    circuit_between,
    first_state,
    path_of,
    random_fabric,
    random_state,
    small_fabric,
    state_of,
)
from topology.marks import marks_of

FABRIC = small_fabric(racks=4, planes=2)
FIRST, SECOND = path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3)
STATE = state_of(FABRIC, NetworkState(), FIRST, SECOND)


def devices_of(fabric, state):
    """The devices' reports if they are exactly in ``state``."""
    mirrors = {
        plane.id: Mirrors(standing_cross_connects(fabric, state, plane.id))
        for plane in fabric.planes
    }
    return Actual(mirrors, wanted_vlans(fabric, state))


def less(actual, plane, *gone):
    """Devices without these cross-connects."""
    present = actual.mirrors[plane].present
    return Actual({**actual.mirrors, plane: Mirrors(present - {*gone})}, actual.vlans)


def darkened(actual, plane, *dark):
    """Devices on which these cross-connects exist without light."""
    mirrors = Mirrors(actual.mirrors[plane].present, frozenset(dark))
    return Actual({**actual.mirrors, plane: mirrors}, actual.vlans)


def mended(fabric, actual, found):
    """The devices after the changes by :func:`reconcile`."""
    mirrors = dict(actual.mirrors)
    for plane, move in found.mirrors.items():
        before = mirrors[plane]
        mirrors[plane] = Mirrors(
            before.present - move.disconnect | move.connect, before.dark - move.disconnect
        )
    vlans = {rack: {**ports, **found.retag.get(rack, {})} for rack, ports in actual.vlans.items()}
    return Actual(mirrors, vlans)


def test_what_the_devices_confirm_is_kept_and_nothing_is_touched():
    found = reconcile(FABRIC, STATE, devices_of(FABRIC, STATE))
    assert found.state == STATE
    assert not found.mirrors
    assert not found.retag
    assert not found.dropped


def test_a_circuit_with_one_way_missing_is_dropped_and_tidied():
    actual = devices_of(FABRIC, STATE)
    there, back = FABRIC.cross_connects(FIRST.circuits[0])
    found = reconcile(FABRIC, STATE, less(actual, PlaneId(0), there))
    assert found.state.topology.paths == (SECOND,)
    assert found.dropped == {FIRST.circuits[0]}
    assert found.mirrors[PlaneId(0)].disconnect == {back}
    assert found.state.pool.resting == frozenset()  # the VLAN still serves the other path
    parked = PortVlans(frozenset({PARKING_VLAN}))
    assert found.retag == {RackId(0): {"o1.1": parked}, RackId(1): {"o1.1": parked}}


def test_a_cross_connect_that_is_half_removed_is_no_circuit_and_is_removed():
    there, back = FABRIC.cross_connects(FIRST.circuits[0])
    found = reconcile(FABRIC, STATE, darkened(devices_of(FABRIC, STATE), PlaneId(0), there))
    assert found.state.topology.paths == (SECOND,)
    assert found.mirrors[PlaneId(0)].disconnect == {there, back}
    assert not found.unlit, "no fibre is to blame"


def test_a_circuit_whose_tor_has_no_light_is_dropped_and_the_port_is_told():
    end = FIRST.circuits[0].b
    found = reconcile(FABRIC, STATE, devices_of(FABRIC, STATE), dark={end})
    assert found.state.topology.paths == (SECOND,)
    assert found.mirrors[PlaneId(0)].disconnect == set(FABRIC.cross_connects(FIRST.circuits[0]))
    assert found.unlit == {FIRST.circuits[0]: {end}}


def test_a_port_with_another_vlan_breaks_its_paths_only():
    actual = devices_of(FABRIC, STATE)
    vlans = {rack: dict(ports) for rack, ports in actual.vlans.items()}
    vlans[RackId(2)]["o1.1"] = PortVlans(frozenset({VlanId(123)}))
    found = reconcile(FABRIC, STATE, Actual(actual.mirrors, vlans))
    assert found.state.topology.paths == (FIRST,)
    assert found.dropped == set(SECOND.circuits)
    assert found.mirrors[PlaneId(0)].disconnect == set(FABRIC.cross_connects(SECOND.circuits[0]))


def test_a_port_with_more_vlans_costs_no_path_and_loses_them():
    actual = devices_of(FABRIC, STATE)
    vlans = {rack: dict(ports) for rack, ports in actual.vlans.items()}
    meant = vlans[RackId(2)]["o1.1"]
    vlans[RackId(2)]["o1.1"] = PortVlans(meant.tagged | {VlanId(123), VlanId(124)})
    found = reconcile(FABRIC, STATE, Actual(actual.mirrors, vlans))
    assert found.state == STATE
    assert not found.mirrors
    assert found.retag == {RackId(2): {"o1.1": meant}}


def test_of_paths_over_one_circuit_those_alone_are_given_up_whose_vlan_is_missing():
    """Another pair's VLAN is wrong at a port on both paths."""
    shared = circuit_between(FABRIC, 0, 1)
    over = path_of(FABRIC, 0, 2, shared, circuit_between(FABRIC, 1, 2, 1))
    state = state_of(FABRIC, NetworkState(), FIRST, over)
    state = replace(state, vlans={FIRST: VlanId(110), over: VlanId(111)})
    actual = devices_of(FABRIC, state)
    vlans = {rack: dict(ports) for rack, ports in actual.vlans.items()}
    port = FABRIC.ports[shared.a]
    vlans[port.rack][port.tor_port] = PortVlans(frozenset({VlanId(110), VlanId(150)}))
    found = reconcile(FABRIC, state, Actual(actual.mirrors, vlans))
    assert found.state.topology.paths == (FIRST,)
    assert found.state.topology.circuits == {shared}
    assert found.dropped == set(over.circuits) - {shared}
    alone = PortVlans(frozenset({VlanId(110)}))
    assert found.retag[RackId(0)] == {port.tor_port: alone}
    assert not found.standing, "nothing passes on the other one"


def test_a_path_whose_tag_a_port_takes_off_is_given_up():
    actual = devices_of(FABRIC, STATE)
    vlans = {rack: dict(ports) for rack, ports in actual.vlans.items()}
    vlans[RackId(2)]["o1.1"] = replace(vlans[RackId(2)]["o1.1"], native=STATE.vlans[SECOND])
    found = reconcile(FABRIC, STATE, Actual(actual.mirrors, vlans))
    assert found.state.topology.paths == (FIRST,)


def test_a_path_whose_vlan_is_none_of_the_fabrics_any_more_is_given_up_and_run_empty():
    one = STATE.vlans[FIRST]
    state = replace(STATE, vlans={FIRST: one, SECOND: VlanId(one + 1)})
    found = reconcile(moved_to(one + 1), state, devices_of(FABRIC, state))
    assert found.state.topology.paths == (SECOND,)
    assert found.dropped == set(FIRST.circuits)
    assert found.standing == [(FIRST, one)], "frames may be on it, until ports of servers lose it"
    assert found.sure
    assert one not in found.retag[RackId(0)][FABRIC.servers[0].tor_port].tagged
    assert not reconcile(moved_to(one + 2), state, devices_of(FABRIC, state)).state.topology.paths


def moved_to(first):
    """The fabric with VLAN-IDs for circuits from ``first`` on."""
    return replace(FABRIC, circuit_vlans=VlanRange(VlanId(first), VlanId(first + 299)))


def without(actual, *, planes=(), racks=()):
    """Devices, of which these do not answer."""
    mirrors = {plane: lit for plane, lit in actual.mirrors.items() if plane not in planes}
    vlans = {rack: ports for rack, ports in actual.vlans.items() if rack not in racks}
    return Actual(mirrors, vlans)


@pytest.mark.parametrize(
    ("silent", "unread"),
    [
        ({"racks": [0]}, {FIRST}),
        ({"planes": [0]}, {FIRST, SECOND}),
        ({"planes": [0, 1], "racks": [0, 1, 2, 3]}, {FIRST, SECOND}),
    ],
)
def test_a_device_that_does_not_answer_denies_nothing_and_is_not_written_to(silent, unread):
    found = reconcile(FABRIC, STATE, without(devices_of(FABRIC, STATE), **silent))
    assert found.state == STATE
    assert found.unread == {circuit for path in unread for circuit in path.circuits}
    assert not (found.dropped or found.mirrors or found.retag)


@pytest.mark.parametrize("silent", [{"racks": [0]}, {"planes": [0]}])
def test_what_a_change_was_moving_is_given_up_where_a_device_does_not_answer(silent):
    """The path may be half removed. Parts left alone by the change are kept."""
    actual = without(devices_of(FABRIC, STATE), **silent)
    broken_off = Unsettled.by(STATE, state_of(FABRIC, STATE, SECOND))
    found = reconcile(FABRIC, STATE, actual, broken_off)
    assert found.state.topology.paths == (SECOND,)
    assert found.dropped == set(FIRST.circuits)
    assert found.state.pool.resting == frozenset(STATE.vlans.values()) - {STATE.vlans[SECOND]}
    dark = reconcile(FABRIC, STATE, actual, broken_off, dark={FIRST.circuits[0].a})
    assert dark.state == found.state
    assert not dark.unlit or "planes" not in silent, (
        "its light was being moved: no fibre is to blame"
    )


def test_a_circuit_of_a_silent_plane_is_given_up_where_a_tor_has_no_light():
    end = FIRST.circuits[0].b
    found = reconcile(FABRIC, STATE, without(devices_of(FABRIC, STATE), planes=[0]), dark={end})
    assert found.state.topology.paths == (SECOND,)
    assert found.unlit == {FIRST.circuits[0]: {end}}


def test_server_ports_are_put_right_too():
    actual = devices_of(FABRIC, STATE)
    vlans = {rack: dict(ports) for rack, ports in actual.vlans.items()}
    vlans[RackId(1)]["s2"] = PortVlans(frozenset())
    found = reconcile(FABRIC, STATE, Actual(actual.mirrors, vlans))
    assert found.state == STATE
    assert found.retag == {RackId(1): {"s2": wanted_vlans(FABRIC, STATE)[RackId(1)]["s2"]}}


def test_a_port_that_was_closed_stays_so_until_its_vswitch_answers():
    server = FABRIC.racks[1].servers[0]
    actual = devices_of(FABRIC, STATE)
    vlans = {rack: dict(ports) for rack, ports in actual.vlans.items()}
    vlans[server.rack] |= substrate_of(FABRIC).closed_ports([server])
    actual = Actual(actual.mirrors, vlans)
    assert servers_closed(FABRIC, actual) == {server.name}
    assert not reconcile(FABRIC, STATE, actual, closed={server.name}).retag
    assert not list(device_drift(FABRIC, STATE, actual, {server.name}))
    opened = reconcile(FABRIC, STATE, actual).retag
    assert opened == {server.rack: {server.tor_port: PortVlans(
        frozenset(range(FABRIC.circuit_vlans.first, FABRIC.circuit_vlans.last + 1)),
        FABRIC.racks[server.rack].tor.native_vlan,
    )}}  # fmt: skip
    (item,) = device_drift(FABRIC, STATE, actual)
    assert item.subject == server.tor_port


def test_mirrors_of_others_are_left_alone_and_strays_on_our_ports_are_not():
    size = FABRIC.planes[0].ports
    others = CrossConnect(3 * size, 4 * size)
    onto_ours = CrossConnect(3 * size, FABRIC.ports[0].egress)
    stray = FABRIC.cross_connects(circuit_between(FABRIC, 0, 2, plane=1))[0]
    moves = stray_mirrors(
        FABRIC,
        STATE,
        {
            PlaneId(0): Mirrors(frozenset({others, onto_ours}), frozenset({onto_ours})),
            PlaneId(1): Mirrors(frozenset({stray, others})),
        },
    )
    assert moves[PlaneId(0)].disconnect == {onto_ours}
    assert moves[PlaneId(1)].disconnect == {stray}


def test_a_circuit_that_no_path_uses_does_not_survive_a_restart():
    spare = circuit_between(FABRIC, 0, 1, plane=1)
    topology = replace(STATE.topology, circuits=STATE.topology.circuits | {spare})
    state = replace(STATE, topology=topology)
    found = reconcile(FABRIC, state, devices_of(FABRIC, state))
    assert found.dropped == {spare}
    assert found.mirrors[PlaneId(1)].disconnect == set(FABRIC.cross_connects(spare))


def other(vlans, rng):
    """Other VLANs than a port's, or additional VLANs."""
    strange = frozenset({VlanId(399)})
    return PortVlans(strange | rng.choice((frozenset(), vlans.tagged)), vlans.native)


def jumbled(fabric, state, rng):
    """Devices between ``state`` and random states; some don't answer."""
    actual = devices_of(fabric, state)
    mirrors = {}
    for plane, standing in actual.mirrors.items():
        if rng.random() < 0.9:
            left = {cross for cross in sorted(standing.present) if rng.random() < 0.8}
            busy = {cross.ingress for cross in left} | {cross.egress for cross in left}
            ports = [port for port in fabric.ports if port.plane == plane]
            a, b = rng.choice(ports), rng.choice(ports)
            if not {a.ingress, b.egress} & busy:
                left.add(CrossConnect(a.ingress, b.egress))
            dark = {cross for cross in sorted(left) if rng.random() < 0.1}
            mirrors[plane] = Mirrors(frozenset(left), frozenset(dark))
    vlans = {}
    for rack, ports in actual.vlans.items():
        if rng.random() < 0.9:
            vlans[rack] = {
                name: wanted if rng.random() < 0.9 else other(wanted, rng)
                for name, wanted in ports.items()
            }
    return Actual(mirrors, vlans)


@given(st.integers(0, 2**32))
def test_once_mended_there_is_nothing_left_to_mend(seed):
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    state = random_state(fabric, first_state(fabric, rng), rng)
    actual = jumbled(fabric, state, rng)
    found = reconcile(fabric, state, actual)
    again = reconcile(fabric, found.state, mended(fabric, actual, found))
    assert again.state == found.state
    assert not again.mirrors
    assert not again.retag
    assert marks_of(fabric).problems(found.state) == []


@given(st.integers(0, 2**32))
def test_every_kept_path_is_there_to_the_last_hop(seed):
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    state = first_state(fabric, rng)
    actual = jumbled(fabric, state, rng)
    dark = {port.id for port in fabric.ports if rng.random() < 0.05}
    kept = reconcile(fabric, state, actual, dark=dark).state
    trunks = port_trunks(fabric, state)

    def stands(circuit: Circuit) -> bool:
        """As far as devices answer."""
        found = Mirrors(frozenset(fabric.cross_connects(circuit)))
        mirrors = actual.mirrors.get(circuit.plane, found)
        crosses = set(fabric.cross_connects(circuit))
        return (
            crosses <= mirrors.present
            and crosses.isdisjoint(mirrors.dark)
            and dark.isdisjoint(circuit.receivers)
        )

    def carried(path) -> bool:
        """As far as ToRs answer."""
        ends = [fabric.ports[end] for circuit in path.circuits for end in circuit.ends]
        return not trunks or all(
            state.vlans[path] in actual.vlans[end.rack][end.tor_port].tagged
            for end in ends
            if end.rack in actual.vlans
        )

    def lit(circuit: Circuit) -> bool:
        """True if all circuits of a ring stand."""
        ports = nx.Graph([one.ends for one in state.topology.circuits])
        joined = nx.node_connected_component(ports, circuit.a)
        return all(stands(one) for one in state.topology.circuits if one.a in joined)

    assert set(kept.topology.paths) == {
        path for path in state.topology.paths if carried(path) and all(map(lit, path.circuits))
    }
    for path in kept.topology.paths:
        assert kept.vlans[path] == state.vlans[path]
