"""Drift: differences of the network from what it is meant to be, in mirrors, VLANs and rules.

Devices that did not answer are given the benefit of the doubt: they differ in nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hydra.forwarding.rules import RuleChange
from hydra.model import Circuit, CrossConnect, Fabric, NetworkState, OpticalPort, PlaneId
from hydra.reconfiguration.plan import port_trunks
from hydra.reconfiguration.reconcile import Actual, stray_mirrors, wrong_vlans
from hydra.roles import PortVlans

NOTHING: Final = "nothing"


class DriftKind(StrEnum):
    CROSS_CONNECT = "cross-connect"
    VLANS = "vlans"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class Drift:
    """A thing on a device that is not as intended, in words."""

    kind: DriftKind
    device: str
    subject: str
    intended: str
    actual: str

    def __str__(self) -> str:
        return f"{self.device}, {self.subject}: {self.actual} instead of {self.intended}"


@dataclass(frozen=True, slots=True)
class RuleDrift:
    """Differences of a switch's tables from what they are to hold."""

    items: tuple[Drift, ...]
    foreign: tuple[RuleChange, ...]
    """Removals of the rules that somebody else added."""
    refused: Mapping[int, int] = field(default_factory=dict)
    """Number of frames that the source check has dropped, by the place of the server in its rack;
    at a vswitch, of the only server (0)."""


def standing_cross_connects(
    fabric: Fabric, state: NetworkState, plane: PlaneId
) -> frozenset[CrossConnect]:
    """Cross-connects that ``state`` wants on one plane."""
    return frozenset(
        cross
        for circuit in state.topology.circuits
        if circuit.plane == plane
        for cross in fabric.cross_connects(circuit)
    )


def broken_circuits(fabric: Fabric, state: NetworkState, actual: Actual) -> frozenset[Circuit]:
    """Circuits of ``state`` that devices say are not there, at either end or in between."""
    wanted = port_trunks(fabric, state)

    def stands(circuit: Circuit) -> bool:
        if actual.passes(fabric, circuit) is False:
            return False
        return all(tagged(fabric.ports[end]) for end in circuit.ends)

    def tagged(port: OpticalPort) -> bool:
        seen = actual.vlans.get(port.rack)
        return seen is None or seen.get(port.tor_port) == wanted.get(port.id)

    return frozenset(circuit for circuit in state.topology.circuits if not stands(circuit))


def device_drift(
    fabric: Fabric, state: NetworkState, actual: Actual, closed: Collection[str] = ()
) -> Iterator[Drift]:
    """Differences on devices that answered; the ports of ``closed`` servers are to be closed.

    Cross-connects between ports that the configuration does not name are not ours to judge.
    """
    strays = stray_mirrors(fabric, state, actual.mirrors)
    for plane, mirrors in sorted(actual.mirrors.items()):
        name = fabric.planes[plane].name
        for cross in sorted(standing_cross_connects(fabric, state, plane) - mirrors.lit):
            found = "without light" if cross in mirrors.present else NOTHING
            yield Drift(DriftKind.CROSS_CONNECT, name, _shown(cross), "connected", found)
        stray = strays[plane].disconnect if plane in strays else frozenset()
        for cross in sorted(stray):
            yield Drift(DriftKind.CROSS_CONNECT, name, _shown(cross), NOTHING, "connected")
    for rack, wrong in sorted(wrong_vlans(fabric, state, actual, closed).items()):
        for port, wanted in sorted(wrong.items()):
            yield Drift(
                DriftKind.VLANS,
                fabric.racks[rack].name,
                port,
                describe_vlans(wanted),
                describe_vlans(actual.vlans[rack].get(port)),
            )


def _shown(cross: CrossConnect) -> str:
    return f"{cross.ingress} to {cross.egress}"


def describe_vlans(vlans: PortVlans | None) -> str:
    """VLANs in words: ``100-199, native 10``."""
    if vlans is None:
        return NOTHING
    runs: list[list[int]] = []
    for vlan in sorted(vlans.tagged):
        if runs and runs[-1][-1] == vlan - 1:
            runs[-1][1:] = [vlan]
        else:
            runs.append([vlan])
    parts = ["-".join(str(vlan) for vlan in run) for run in runs]
    if vlans.native is not None:
        parts.append(f"native {vlans.native}")
    return ", ".join(parts) or NOTHING
