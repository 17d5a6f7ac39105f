"""Drift: differences of mirrors, VLANs and rules from the intended state.

Devices without an answer are assumed to have no drift.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hydra.forwarding.rules import RuleChange
from hydra.model import Circuit, CrossConnect, Fabric, NetworkState, PlaneId
from hydra.reconfiguration.plan import port_trunks
from hydra.reconfiguration.reconcile import NONE_HELD, Actual, Held, stray_mirrors, wrong_vlans
from hydra.roles import PortVlans

NOTHING: Final = "nothing"


class DriftKind(StrEnum):
    CROSS_CONNECT = "cross-connect"
    VLANS = "vlans"
    RULE = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A difference of a device from the intended state, in words."""

    kind: DriftKind
    device: str
    subject: str
    intended: str
    actual: str

    def __str__(self) -> str:
        return f"{self.device}, {self.subject}: {self.actual} instead of {self.intended}"


@dataclass(frozen=True, slots=True)
class RuleDrift:
    """Differences of a switch's tables from the intended rules."""

    items: tuple[Drift, ...]
    foreign: tuple[RuleChange, ...]
    """Removals of foreign rules."""
    refused: Mapping[int, int] = field(default_factory=dict)
    """Number of frames dropped by the source check, by the server's place in its rack; place 0 at a
    vswitch, for the only server.
    """


def standing_cross_connects(
    fabric: Fabric, state: NetworkState, plane: PlaneId
) -> frozenset[CrossConnect]:
    """Cross-connects of one plane in ``state``."""
    return frozenset(
        cross
        for circuit in state.topology.circuits
        if circuit.plane == plane
        for cross in fabric.cross_connects(circuit)
    )


def broken_circuits(fabric: Fabric, state: NetworkState, actual: Actual) -> frozenset[Circuit]:
    """Circuits of ``state`` that devices deny, at either end or in between.

    A port with extra VLANs breaks no circuit.
    """
    wanted = port_trunks(fabric, state)

    def stands(circuit: Circuit) -> bool:
        if actual.passes(fabric, circuit) is False:
            return False
        return all(
            actual.carries(fabric, end, vlan) is not False
            for end in circuit.ends
            if end in wanted
            for vlan in wanted[end].tagged
        )

    return frozenset(circuit for circuit in state.topology.circuits if not stands(circuit))


def device_drift(
    fabric: Fabric,
    state: NetworkState,
    actual: Actual,
    closed: Collection[str] = (),
    held: Held = NONE_HELD,
) -> Iterator[Drift]:
    """Differences on devices that answered; ports of ``closed`` servers should be closed, and
    ``held`` paths should stand.

    Cross-connects between ports outside the configuration are ignored.
    """
    strays = stray_mirrors(fabric, state, actual.mirrors, held)
    for plane, mirrors in sorted(actual.mirrors.items()):
        name = fabric.planes[plane].name
        for cross in sorted(standing_cross_connects(fabric, state, plane) - mirrors.lit):
            found = "without light" if cross in mirrors.present else NOTHING
            yield Drift(
                kind=DriftKind.CROSS_CONNECT,
                device=name,
                subject=_shown(cross),
                intended="connected",
                actual=found,
            )
        stray = strays[plane].disconnect if plane in strays else frozenset()
        for cross in sorted(stray):
            yield Drift(
                kind=DriftKind.CROSS_CONNECT,
                device=name,
                subject=_shown(cross),
                intended=NOTHING,
                actual="connected",
            )
    for rack, wrong in sorted(wrong_vlans(fabric, state, actual, closed, held).items()):
        for port, wanted in sorted(wrong.items()):
            yield Drift(
                kind=DriftKind.VLANS,
                device=fabric.racks[rack].name,
                subject=port,
                intended=describe_vlans(wanted),
                actual=describe_vlans(actual.vlans[rack].get(port)),
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
