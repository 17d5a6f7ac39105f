import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.journal_format import (
    Unfinished,
    read_state,
    read_unfinished,
    state_record,
    unfinished_record,
)
from hydra.model import NetworkState, OpticalPort, PortId, RackId
from tests.unit.core.fabrics import (
    circuit_between,
    first_state,
    path_of,
    random_fabric,
    random_state,
    small_fabric,
    state_of,
)
from topology.checks import check_topology
from topology.marks import marks_of

FABRIC = small_fabric(racks=4, planes=2)
FIRST, SECOND = path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3)
RELAYED = path_of(
    FABRIC, 0, 2, circuit_between(FABRIC, 0, 3, plane=1), circuit_between(FABRIC, 2, 3)
)
STATE = replace(state_of(FABRIC, NetworkState(), FIRST, SECOND, RELAYED), epoch=7)


def through_json(fabric, state):
    return json.loads(json.dumps(state_record(fabric, state)))


@given(st.integers(0, 2**32))
def test_what_is_written_is_read_back(seed):
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    state = random_state(fabric, first_state(fabric, rng), rng)
    assert read_state(fabric, through_json(fabric, state)) == state


@pytest.mark.parametrize("lost", [False, True])
def test_an_unfinished_change_is_read_back_as_far_as_there_are_its_parts(lost):
    change = Unfinished("abc", "periodic", STATE.topology, whole=True, stages_done=2, paused=True)
    record = json.loads(json.dumps(unfinished_record(FABRIC, change)))
    if not lost:
        assert read_unfinished(FABRIC, record) == change
        return
    read = read_unfinished(small_fabric(racks=4, planes=1), record)
    assert not read.whole
    assert [(path.src, path.dst) for path in read.goal.paths] == [(0, 1), (2, 3)]


def reordered(fabric, order):
    """The same network, with racks (and so ports) in another order."""
    position = {rack: RackId(new) for new, rack in enumerate(order)}
    racks = tuple(replace(fabric.racks[rack], id=position[rack]) for rack in order)
    ports: list[OpticalPort] = []
    for rack in order:
        for port in fabric.ports_of(rack):
            ports.append(replace(port, id=PortId(len(ports)), rack=position[rack]))
    return replace(fabric, racks=racks, ports=tuple(ports))


@given(st.integers(0, 2**32))
def test_names_survive_racks_in_another_order(seed):
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    state = first_state(fabric, rng)
    other = reordered(fabric, rng.sample(range(len(fabric.racks)), len(fabric.racks)))
    read = read_state(other, through_json(fabric, state))
    assert check_topology(other, read.topology, max_hops=3, paths_per_pair=99) == []
    assert marks_of(other).problems(read) == []
    assert len(read.topology.paths) == len(state.topology.paths)
    assert len(read.topology.circuits) == len(state.topology.circuits)
    back = read_state(fabric, through_json(other, read))
    assert back == state


def renamed(fabric, rack, name):
    racks = list(fabric.racks)
    racks[rack] = replace(racks[rack], name=name)
    return replace(fabric, racks=tuple(racks))


def test_a_rack_that_is_gone_takes_its_circuits_and_paths_along():
    read = read_state(renamed(FABRIC, 3, "new"), through_json(FABRIC, STATE))
    assert read.topology.paths == (FIRST,)
    assert read.topology.circuits == {FIRST.circuits[0]}
    assert read.vlans == {FIRST: STATE.vlans[FIRST]}
    assert read.epoch == 7


def test_a_port_that_is_gone_takes_what_used_it_along():
    lost = RELAYED.circuits[0].a
    ports = tuple(
        replace(port, tor_port="elsewhere") if port.id == lost else port for port in FABRIC.ports
    )
    read = read_state(replace(FABRIC, ports=ports), through_json(FABRIC, STATE))
    assert set(read.topology.paths) == {FIRST, SECOND}


def test_a_port_that_was_wired_to_another_plane_is_no_circuit():
    moved = FIRST.circuits[0].a
    planes = FABRIC.planes
    ports = tuple(
        replace(port, plane=planes[1].id) if port.id == moved else port for port in FABRIC.ports
    )
    read = read_state(replace(FABRIC, ports=ports), through_json(FABRIC, STATE))
    assert FIRST not in read.topology.paths


def test_a_rack_name_reused_for_another_place_reverses_the_path():
    swapped = reordered(FABRIC, (1, 0, 2, 3))
    read = read_state(swapped, through_json(FABRIC, STATE))
    path = next(p for p in read.topology.paths if p.dst == 2)
    assert (path.src, path.dst, path.hops) == (1, 2, 2)
    backwards = reordered(FABRIC, (3, 2, 1, 0))
    read = read_state(backwards, through_json(FABRIC, STATE))
    relayed = next(p for p in read.topology.paths if p.hops == 2)
    assert (relayed.src, relayed.dst) == (1, 3)  # r3 and r1
    assert check_topology(backwards, read.topology, max_hops=3) == []
