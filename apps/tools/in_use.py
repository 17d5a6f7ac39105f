"""Circuits and VLANs in use by a controller's journal, for work on devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hydra.journal import Journal, Kind
from hydra.journal_format import INTENDED, read_state, saved_state
from hydra.model import Circuit, CrossConnect, Fabric, NetworkState, PlaneId, VlanId


@dataclass(frozen=True, slots=True)
class InUse:
    """Cross-connects and VLANs of circuits set up, or being set up, by a controller."""

    mirrors: Mapping[PlaneId, Mapping[CrossConnect, Circuit]] = field(default_factory=dict)
    vlans: frozenset[VlanId] = frozenset()

    def on(self, plane: PlaneId) -> Mapping[CrossConnect, Circuit]:
        return self.mirrors.get(plane, {})

    def touching(self, plane: PlaneId, ports: frozenset[int]) -> dict[CrossConnect, Circuit]:
        """Cross-connects with an end at any of ``ports``, with the circuits."""
        return {
            cross: circuit
            for cross, circuit in self.on(plane).items()
            if cross.ingress in ports or cross.egress in ports
        }


def read_in_use(fabric: Fabric, journal: Journal) -> InUse:
    """Circuits and VLANs in use by the journal.

    A change under way counts with the states before and after. Raises JournalError for an
    unreadable journal, or a different fabric's journal.
    """
    states = [saved_state(fabric, journal)]
    for last in journal.records(Kind.ENTRY, newest=1):
        if last["what"] == INTENDED:
            states += [read_state(fabric, last["details"][end]) for end in ("current", "target")]
    return _in_use(fabric, [state for state in states if state is not None])


def _in_use(fabric: Fabric, states: list[NetworkState]) -> InUse:
    mirrors: dict[PlaneId, dict[CrossConnect, Circuit]] = {}
    for state in states:
        for circuit in state.topology.circuits:
            held = mirrors.setdefault(circuit.plane, {})
            held.update(dict.fromkeys(fabric.cross_connects(circuit), circuit))
    vlans = {vlan for state in states for vlan in (*state.vlans.values(), *state.pool.resting)}
    return InUse(mirrors, frozenset(vlans))
