"""Retags ToR ports. If a retag fails, the paths through the ports are lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra.failures import FailureKind
from hydra.model import Fabric, NetworkState, Path, PortId, RackId, VlanId
from hydra.reconfiguration.commands import Outcome, SetVlans, Steps, ask_all
from hydra.reconfiguration.plan import PortsToTag, pair_of, port_trunks
from hydra.reconfiguration.run import Run
from hydra.roles import PortVlans


def retag_alone(run: Run, step: str, ports: PortsToTag) -> Steps:
    """Retag ports that may not be retagged while mirrors move."""
    commands = tuple(SetVlans(rack, ports[rack]) for rack in sorted(ports))
    if not commands:
        return
    outcomes = yield from ask_all(step, commands)
    for command, outcome in zip(commands, outcomes, strict=True):
        retagged(run, step, command, outcome)
    run.note(step, outcomes)


def retagged(run: Run, step: str, command: SetVlans, outcome: Outcome[Any]) -> None:
    rack = run.fabric.racks[command.rack]
    run.device_step(step, rack.name, outcome)
    ports = {
        run.fabric.port_by_name[rack.name, name].id: vlans for name, vlans in command.ports.items()
    }
    run.relearning |= ports.keys()
    if outcome.failure is None:
        if step == "untag":
            run.untagged |= ports
        return
    words = f"{rack.name} was not retagged ({outcome.failure})"
    failure = run.missed(step, rack.name, outcome.failure, words)
    run.retag_failed = True
    if step == "untag" and failure.kind is FailureKind.UNKNOWN:
        run.untagging |= ports
    for circuit in run.plan.target.topology.circuits:
        if not ports.keys().isdisjoint(circuit.ends):
            run.fail(circuit, failure)
    if step == "isolate":
        for path in _beside(run, ports):
            run.lose(path, failure)
    # If the plan has shrunk, unaffected pairs whose VLANs were not restored lose their paths.
    untagged = {end: run.untagged[end] for end in ports if end in run.untagged}
    for path in through(run.plan.target, untagged):
        if pair_of(path) not in run.plan.affected:
            run.lose(path, failure)


def _beside(run: Run, ports: Mapping[PortId, PortVlans]) -> list[Path]:
    """New paths on a VLAN that a port may not have left: the paths over the port's ToR, and over
    ToRs joined to that ToR by such paths.
    """
    meant = port_trunks(run.fabric, run.plan.target)
    kept = {
        (run.fabric.ports[end].rack, vlan)
        for end, vlans in ports.items()
        for vlan in meant[end].tagged - vlans.tagged
    }
    vlans = run.plan.target.vlans
    found: list[Path] = []
    left = [path for path in run.new_paths() if any(vlan == vlans[path] for _, vlan in kept)]
    while True:
        met = [path for path in left if not kept.isdisjoint(_places(run.fabric, path, vlans[path]))]
        if not met:
            return found
        found += met
        kept |= {place for path in met for place in _places(run.fabric, path, vlans[path])}
        left = [path for path in left if path not in met]


def _places(fabric: Fabric, path: Path, vlan: VlanId) -> set[tuple[RackId, VlanId]]:
    return {(rack, vlan) for circuit in path.circuits for rack in fabric.racks_of(circuit)}


def through(state: NetworkState, ports: Mapping[PortId, PortVlans]) -> list[Path]:
    """Paths through ``ports`` without the path's VLAN."""
    return [
        path
        for path, vlan in state.vlans.items()
        if any(
            end in ports and vlan not in ports[end].tagged
            for circuit in path.circuits
            for end in circuit.ends
        )
    ]
