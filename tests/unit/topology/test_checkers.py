"""The checkers find each kind of damage."""

from dataclasses import replace

import pytest
from topology_fabrics import VLANS, arrays, circuit, full, path, topology_of

from hydra.model import NetworkState, Path, PlaneId, PortId, Topology, VlanId
from hydra.vlan_pool import VlanPool
from topology.checks import check_topology, check_transit, check_vlans

FABRIC = full(4, 2)
FIRST, SECOND = circuit(FABRIC, 0, 2), circuit(FABRIC, 3, 5)
GOOD = topology_of(path(0, 1, FIRST), path(0, 2, FIRST, SECOND))


def test_a_sound_topology_passes():
    assert check_topology(FABRIC, GOOD, 2) == []


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (replace(GOOD, circuits=GOOD.circuits | {circuit(FABRIC, 0, 4)}), "port 0 serves 2"),
        (Topology(frozenset({replace(FIRST, plane=PlaneId(1))})), "of plane 0"),
        (Topology(frozenset({replace(FIRST, b=PortId(99))})), "missing port 99"),
        (topology_of(path(0, 1, replace(FIRST, b=PortId(99)))), "which ends at a missing port"),
        (topology_of(path(0, 1, replace(FIRST, a=PortId(-1)))), "which ends at a missing port"),
        (replace(GOOD, circuits=frozenset({FIRST})), r"path 0-2 uses the missing"),
        (replace(GOOD, paths=GOOD.paths[::-1]), "not sorted"),
        (topology_of(path(0, 1, FIRST), path(0, 1, FIRST, FIRST)), "pair 0-1 has 2 paths"),
        (topology_of(path(0, 3, FIRST, SECOND)), "path 0-3 ends at rack 2"),
        (topology_of(path(0, 2, SECOND, FIRST)), "path 0-2 breaks at rack 0"),
        (topology_of(path(1, 0, FIRST)), "not written from the lower"),
        (topology_of(path(0, 2, FIRST, FIRST, FIRST, SECOND)), "visits a rack twice"),
        (topology_of(path(0, 2, FIRST, FIRST, FIRST, SECOND)), "4 hops, more than 2"),
        (topology_of(path(0, 1)), "path 0-1 ends at rack 0"),
    ],
)
def test_damage_to_a_topology_is_found(topology, message):
    assert [p for p in check_topology(FABRIC, topology, 2) if _matches(message, p)]


def _matches(message, problem):
    parts = message.split(" .* ")
    return all(part in problem for part in parts)


def test_blocked_ports_and_long_paths_are_found():
    assert check_topology(FABRIC, GOOD, 2, {PortId(3)}) == [
        "port 3 is blocked and serves a circuit"
    ]
    assert check_topology(FABRIC, GOOD, 1) == ["path 0-2 has 2 hops, more than 1"]
    assert check_topology(FABRIC, GOOD, 1, standing=GOOD.paths) == []


def test_a_circuit_from_a_rack_to_itself_is_found():
    fabric = full(2, 1, per_plane=2)
    problems = check_topology(fabric, Topology(frozenset({circuit(fabric, 0, 1)})), 1)
    assert problems == [f"{circuit(fabric, 0, 1)} joins rack 0 to itself"]


def tagged(tags: dict[Path, int], **changes) -> NetworkState:
    state = NetworkState(1, topology_of(*tags), {p: VlanId(v) for p, v in tags.items()})
    return replace(state, **changes)


def test_sound_vlans_pass():
    assert check_vlans(FABRIC, tagged(dict.fromkeys(GOOD.paths, 100)), VLANS) == []


def test_damage_to_vlans_is_found():
    direct = GOOD.paths[0]
    beside = path(0, 1, circuit(FABRIC, 1, 3))
    assert check_vlans(FABRIC, tagged({direct: 100}, vlans={}), VLANS) == ["path 0-1 has no VLAN"]
    (outside,) = check_vlans(FABRIC, tagged({direct: 99}), VLANS)
    assert outside == "VLAN 99 of path 0-1 is outside 100-999"
    (stale,) = check_vlans(FABRIC, tagged({direct: 100}, vlans={direct: 100, beside: 101}), VLANS)
    assert "VLAN 101 belongs to" in stale
    (resting,) = check_vlans(FABRIC, tagged({direct: 100}, pool=VlanPool(frozenset({100}))), VLANS)
    assert resting == "VLAN 100 is in use and resting"
    (loop,) = check_vlans(FABRIC, tagged({direct: 100, beside: 100}), VLANS)
    assert "closes a loop" in loop
    assert check_vlans(FABRIC, tagged({direct: 100, beside: 101}), VLANS) == []


def test_a_circuit_that_no_path_uses_counts_where_both_its_ports_carry_the_vlan():
    # 0-1 and 0-1 again over another plane, the latter as a circuit without a path: its ports get
    # VLAN 100 from the two paths that end there, which makes it a loop.
    fabric = arrays(3, 2, [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1)])
    direct, through = path(0, 1, circuit(fabric, 0, 1)), path(0, 1, circuit(fabric, 2, 3))
    state = NetworkState(
        1,
        Topology(frozenset({*direct.circuits, *through.circuits}), (direct,)),
        {direct: VlanId(100), through: VlanId(100)},
    )
    assert any("closes a loop" in problem for problem in check_vlans(fabric, state, VLANS))


def test_loops_in_transit_are_found_and_impossible_ones_are_not():
    old = tagged({path(0, 1, FIRST): 100})
    parallel = tagged({path(0, 1, circuit(FABRIC, 1, 3)): 100})
    (problem,) = check_transit(FABRIC, old, parallel)
    assert "may close a loop during the change" in problem
    assert check_transit(FABRIC, old, parallel, disconnect_first={FIRST}) == []
    assert check_transit(FABRIC, old, parallel, connect_last={circuit(FABRIC, 1, 3)}) == []
    # The same two racks on one plane with two ports each: the circuits share a port, or do not.
    wide = full(2, 1, per_plane=2)
    before = tagged({path(0, 1, circuit(wide, 0, 2)): 100})
    assert check_transit(wide, before, tagged({path(0, 1, circuit(wide, 0, 3)): 100})) == []
    assert check_transit(wide, before, tagged({path(0, 1, circuit(wide, 1, 3)): 100})) != []
