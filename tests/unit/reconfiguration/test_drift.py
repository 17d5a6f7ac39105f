import random

from hypothesis import given
from hypothesis import strategies as st

from hydra.model import CrossConnect, PlaneId, RackId, VlanId
from hydra.reconfiguration.drift import DriftKind, broken_circuits, describe_vlans, device_drift
from hydra.reconfiguration.reconcile import Actual
from hydra.roles import Mirrors, PortVlans
from tests.unit.core.fabrics import first_state, random_fabric
from tests.unit.reconfiguration.test_reconcile import (
    FABRIC,
    FIRST,
    SECOND,
    STATE,
    darkened,
    devices_of,
    jumbled,
    less,
)

INTENDED = devices_of(FABRIC, STATE)
THERE, BACK = FABRIC.cross_connects(FIRST.circuits[0])


def drift_of(actual):
    return list(device_drift(FABRIC, STATE, actual))


def test_devices_as_intended_show_none():
    assert drift_of(INTENDED) == []
    assert broken_circuits(FABRIC, STATE, INTENDED) == frozenset()


def test_devices_that_do_not_answer_show_none():
    silent = Actual({}, {})
    assert drift_of(silent) == []
    assert broken_circuits(FABRIC, STATE, silent) == frozenset()


def test_a_cross_connect_that_is_gone_and_one_that_came():
    stray = CrossConnect(THERE.ingress, 3 * FABRIC.planes[0].ports)
    present = INTENDED.mirrors[PlaneId(0)].present - {THERE} | {stray}
    mirrors = {**INTENDED.mirrors, PlaneId(0): Mirrors(present)}
    actual = Actual(mirrors, INTENDED.vlans)
    gone, came = drift_of(actual)
    assert (gone.kind, gone.device, gone.intended, gone.actual) == (
        DriftKind.CROSS_CONNECT,
        FABRIC.planes[0].name,
        "connected",
        "nothing",
    )
    assert came.subject == f"{stray.ingress} to {stray.egress}"
    assert (came.intended, came.actual) == ("nothing", "connected")
    assert broken_circuits(FABRIC, STATE, actual) == {FIRST.circuits[0]}


def test_a_half_that_still_stands_is_not_stray():
    (gone,) = drift_of(less(INTENDED, PlaneId(0), THERE))
    assert gone.subject == f"{THERE.ingress} to {THERE.egress}"


def test_one_without_light_breaks_its_circuit():
    actual = darkened(INTENDED, PlaneId(0), BACK)
    (found,) = drift_of(actual)
    assert (found.subject, found.actual) == (f"{BACK.ingress} to {BACK.egress}", "without light")
    assert broken_circuits(FABRIC, STATE, actual) == {FIRST.circuits[0]}


def test_a_port_with_other_vlans_breaks_its_circuit():
    vlans = {rack: dict(ports) for rack, ports in INTENDED.vlans.items()}
    vlans[RackId(2)]["o1.1"] = PortVlans(frozenset({VlanId(7), VlanId(8), VlanId(9)}))
    actual = Actual(INTENDED.mirrors, vlans)
    (item,) = drift_of(actual)
    assert (item.kind, item.subject, item.actual) == (DriftKind.VLANS, "o1.1", "7-9")
    assert broken_circuits(FABRIC, STATE, actual) == set(SECOND.circuits)


def test_a_port_with_more_vlans_breaks_no_circuit():
    vlans = {rack: dict(ports) for rack, ports in INTENDED.vlans.items()}
    own = vlans[RackId(2)]["o1.1"].tagged
    vlans[RackId(2)]["o1.1"] = PortVlans(own | {VlanId(7)}, VlanId(8))
    actual = Actual(INTENDED.mirrors, vlans)
    (item,) = drift_of(actual)
    assert item.kind is DriftKind.VLANS
    assert broken_circuits(FABRIC, STATE, actual) == frozenset()


def test_a_port_that_takes_the_tag_of_a_vlan_off_breaks_its_circuit():
    vlans = {rack: dict(ports) for rack, ports in INTENDED.vlans.items()}
    own = vlans[RackId(2)]["o1.1"].tagged
    vlans[RackId(2)]["o1.1"] = PortVlans(own, max(own))
    actual = Actual(INTENDED.mirrors, vlans)
    assert broken_circuits(FABRIC, STATE, actual) == set(SECOND.circuits)


def test_a_server_port_breaks_no_circuit():
    vlans = {rack: dict(ports) for rack, ports in INTENDED.vlans.items()}
    del vlans[RackId(1)]["s2"]
    actual = Actual(INTENDED.mirrors, vlans)
    (item,) = drift_of(actual)
    assert (item.subject, item.actual) == ("s2", "nothing")
    assert broken_circuits(FABRIC, STATE, actual) == frozenset()


def test_vlans_in_words():
    tags = frozenset(map(VlanId, (5, 1, 2, 3, 9, 10)))
    assert describe_vlans(PortVlans(tags)) == "1-3, 5, 9-10"
    assert describe_vlans(PortVlans(frozenset({VlanId(4)}), VlanId(10))) == "4, native 10"


@given(st.integers(0, 2**32))
def test_what_is_broken_always_shows(seed):
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    state = first_state(fabric, rng)
    actual = jumbled(fabric, state, rng)
    if broken_circuits(fabric, state, actual):
        assert list(device_drift(fabric, state, actual))
