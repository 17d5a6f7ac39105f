"""Paths whose VLAN is missing at some port."""

from hydra.model import NetworkState
from hydra.reconfiguration.retagging import through
from hydra.roles import PortVlans
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of

FABRIC = small_fabric(racks=4, planes=1)
ONE, OTHER = (path_of(FABRIC, a, b, circuit_between(FABRIC, a, b, 0)) for a, b in ((0, 1), (2, 3)))
STATE = state_of(FABRIC, NetworkState(), ONE, OTHER)


def test_a_path_through_a_port_without_its_vlan_is_found():
    (port, _), (other_port, _) = ONE.circuits[0].ends, OTHER.circuits[0].ends
    has = PortVlans(frozenset({STATE.vlans[ONE]}))
    assert through(STATE, {port: has}) == []
    assert through(STATE, {port: has, other_port: PortVlans(frozenset())}) == [OTHER]
    assert through(STATE, {port: PortVlans(frozenset())}) == [ONE]
