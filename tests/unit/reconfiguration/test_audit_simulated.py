"""The shipped audit on a network changed by a third party: hundreds of seeds.

Replay as in :mod:`tests.unit.reconfiguration.seeds`.
"""

from __future__ import annotations

import random

import pytest

from hydra.model import PlaneId, RackId
from hydra.reconfiguration.audit import Seen
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import diff, port_trunks, without
from hydra.roles import PortVlans
from tests.unit.core.fabrics import first_state, order_of, random_fabric
from tests.unit.reconfiguration.seeds import chunks, hold, remembering
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.upkeep import POLICY, SimulatedUpkeep
from tests.unit.reconfiguration.watch import Violation

_RUNS = 150
_ROUNDS = 12
"""Largest number of audits until nothing differs: a circuit that has not drained waits for the next
audit.
"""


def tamper(network: Network, rng: random.Random) -> set[PlaneId | RackId | str]:
    """Remove mirrors, VLANs and rules; returns the names of the devices that differ now."""
    fabric, touched = network.fabric, set()
    for plane in fabric.planes:
        lit = sorted(network.mirrors[plane.id])
        if lit and rng.random() < 0.4:
            network.mirrors[plane.id].discard(gone := rng.choice(lit))
            if rng.random() < 0.5:
                network.halves[plane.id].add(gone)
            touched.add(plane.name)
    for end in sorted(network.vlans):
        if rng.random() < 0.1:
            network.vlans[end] = PortVlans(frozenset({fabric.circuit_vlans.last}), None)
            touched.add(fabric.racks[fabric.ports[end].rack].name)
    for datapath, table in sorted(network.tables.items()):
        if table and rng.random() < 0.3:
            table.pop(rng.choice(sorted(table, key=str)))
            network.rules_changed(datapath)
            touched.add(network.name_of(datapath))
    return touched


@remembering(150)
def simulate(seed: int) -> tuple[set[object], Seen]:
    """Audits and repairs until nothing differs; returns the changed devices, and the first audit's
    findings.
    """
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    order = order_of(fabric)
    state = first_state(fabric, rng)
    network = Network(fabric, state, rng)
    upkeep = SimulatedUpkeep.at_work(network, state)
    audit = upkeep.audit
    if upkeep.run(audit.look()).items:
        raise Violation("something differs that nobody touched")
    touched = tamper(network, rng)
    first = seen = upkeep.run(audit.look())
    for _ in range(_ROUNDS):
        upkeep.run(audit.mend_rules(seen))
        if seen.broken:
            now = upkeep.memory.state
            plan = diff(fabric, now, without(now, seen.broken), order)
            execution = Execution(
                fabric=fabric,
                policy=POLICY,
                plan=plan,
                conditions=upkeep.conditions(),
                order_of=order,
            )
            network.unsettle(())
            upkeep.run(execution.run())
            upkeep.take_over(
                execution
            )  # the plan may keep circuits that did not drain: another round follows
        upkeep.run(audit.clear_away())
        upkeep.look_after()
        seen = upkeep.run(audit.look())
        if not (seen.items or seen.broken):
            break
    else:
        raise Violation(f"{[str(item) for item in seen.items]} is left of {touched}")
    agrees(network, upkeep)
    return touched, first


def agrees(network: Network, upkeep: SimulatedUpkeep) -> None:
    """By readers independent of the audit."""
    state = upkeep.memory.state
    meant = {
        (circuit.plane, cross)
        for circuit in state.topology.circuits
        for cross in network.fabric.cross_connects(circuit)
    }
    lit = {(plane, cross) for plane, some in network.mirrors.items() for cross in some}
    if (
        lit != meant
        or any(network.halves.values())
        or network.vlans != dict(port_trunks(network.fabric, state))
    ):
        raise Violation("mirrors or VLANs differ, and nobody says so")
    if any(list(network.differing_rules(datapath, state)) for datapath in network.names):
        raise Violation("rules differ, and nobody says so")
    if not all(network.tables[datapath] for datapath in network.learning):
        raise Violation("a learning ToR forwards nothing")
    for server in network.fabric.servers:
        for rack in network.fabric.racks:
            for way in () if rack.id == server.rack else network.sends_on(server, rack.id):
                if not network.arrives(way, server.rack, rack.id):
                    raise Violation(f"{server.name} does not reach {rack.name}")


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_what_was_changed_is_found_and_mended(seeds):
    hold(simulate, seeds)


def test_every_device_that_was_touched_is_named_and_no_other():
    named = 0
    for seed in range(150):
        touched, seen = simulate(seed)
        assert {item.device for item in seen.items} == touched
        named += len(touched)
    assert named > 150
