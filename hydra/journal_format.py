"""Network states and paths as JSON-able records with names instead of positions.

Names survive a reordered or reduced configuration. Reading leaves out missing parts and everything
that depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hydra.journal import Change, Journal, JournalError, Kind, entry
from hydra.model import Circuit, Fabric, NetworkState, Path, Topology, VlanId
from hydra.rings import whole_rings
from hydra.vlan_pool import VlanPool

INTENDED: Final = "reconfiguration intended"
"""Entry with the ``current`` and the ``target`` state, written before the first change."""

_NETWORK: Final = "network"
"""Key of the only record of the kind."""


def save_state(fabric: Fabric, state: NetworkState, unix_s: float, what: str) -> list[Change]:
    """Changes that save ``state`` as the present state of the network; ``what`` is the reason."""
    record = state_record(fabric, state)
    return [
        Change(Kind.STATE, _NETWORK, {"fabric": fabric.name, "state": record}),
        entry(unix_s, what, {"state": record}),
    ]


def saved_state(fabric: Fabric, journal: Journal) -> NetworkState | None:
    """Read the last saved state; None if there is none.

    Raises JournalError, also for the journal of another fabric.
    """
    for record in journal.records(Kind.STATE):
        if record["fabric"] != fabric.name:
            raise JournalError(
                f"journal {journal.name} belongs to fabric {record['fabric']!r}, not "
                f"{fabric.name!r}: set controller.journal to a file of its own"
            )
        return read_state(fabric, record["state"])
    return None


def state_record(fabric: Fabric, state: NetworkState) -> dict[str, Any]:
    """``state`` as nested dicts and lists of names and numbers."""
    return {
        "epoch": state.epoch,
        "resting": sorted(state.pool.resting),
        "freed": list(state.pool.freed),
        "circuits": [
            circuit_record(fabric, circuit) for circuit in sorted(state.topology.circuits)
        ],
        "paths": [
            {**path_record(fabric, path), "vlan": state.vlans[path]}
            for path in state.topology.paths
        ],
    }


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A staged change that was unfinished when the controller ended."""

    id: str
    trigger: str
    goal: Topology
    """Target topology, without parts that the fabric has lost."""
    whole: bool
    """False if the fabric has lost a part of the goal."""
    stages_done: int
    paused: bool


def unfinished_record(fabric: Fabric, change: Unfinished) -> dict[str, Any]:
    """``change`` as nested dicts and lists of names and numbers."""
    return {
        "id": change.id,
        "trigger": change.trigger,
        "circuits": [circuit_record(fabric, circuit) for circuit in sorted(change.goal.circuits)],
        "paths": [path_record(fabric, path) for path in change.goal.paths],
        "stages_done": change.stages_done,
        "paused": change.paused,
    }


def read_unfinished(fabric: Fabric, record: Mapping[str, Any]) -> Unfinished:
    """Read a record of :func:`unfinished_record`."""
    circuits = whole_rings(read_circuits(fabric, record["circuits"]))
    read = [read_path(fabric, entry) for entry in record["paths"]]
    paths = [path for path in read if path is not None and circuits.issuperset(path.circuits)]
    return Unfinished(
        record["id"],
        record["trigger"],
        Topology(circuits, tuple(sorted(paths))),
        whole=len(circuits) == len(record["circuits"]) and len(paths) == len(read),
        stages_done=record["stages_done"],
        paused=record["paused"],
    )


def path_record(fabric: Fabric, path: Path) -> dict[str, Any]:
    """The two racks of a path and its circuits, in hop order."""
    return {
        "src": fabric.racks[path.src].name,
        "dst": fabric.racks[path.dst].name,
        "circuits": [circuit_record(fabric, circuit) for circuit in path.circuits],
    }


def circuit_record(fabric: Fabric, circuit: Circuit) -> list[list[str]]:
    """The ends of a circuit as names of rack and ToR port; the sender of a one-way circuit comes
    first.
    """
    ends = (fabric.ports[circuit.a], fabric.ports[circuit.b])
    return [[fabric.racks[end.rack].name, end.tor_port] for end in ends]


def read_state(fabric: Fabric, record: Mapping[str, Any]) -> NetworkState:
    """Read a record of :func:`state_record`, without parts that ``fabric`` has lost."""
    circuits = whole_rings(read_circuits(fabric, record["circuits"]))
    vlans: dict[Path, VlanId] = {}
    for path_entry in record["paths"]:
        path = read_path(fabric, path_entry)
        if path is not None and circuits.issuperset(path.circuits):
            vlans[path] = VlanId(path_entry["vlan"])
    return NetworkState(
        epoch=record["epoch"],
        topology=Topology(circuits, tuple(sorted(vlans))),
        vlans=vlans,
        pool=VlanPool(
            frozenset(VlanId(vlan) for vlan in record["resting"]),
            tuple(VlanId(vlan) for vlan in record["freed"]),
        ),
    )


def read_circuits(fabric: Fabric, entries: Iterable[list[list[str]]]) -> frozenset[Circuit]:
    """Read records of :func:`circuit_record`, without circuits whose ports ``fabric`` has lost."""
    read = (read_circuit(fabric, entry) for entry in entries)
    return frozenset(circuit for circuit in read if circuit is not None)


def read_circuit(fabric: Fabric, entry: list[list[str]]) -> Circuit | None:
    """Read a record of :func:`circuit_record`; None if a port is missing or on another plane."""
    a, b = (fabric.port_by_name.get((rack, tor_port)) for rack, tor_port in entry)
    if a is None or b is None or a.plane != b.plane:
        return None
    return fabric.circuit(a.id, b.id)


def read_path(fabric: Fabric, record: Mapping[str, Any]) -> Path | None:
    """Read a record of :func:`path_record`; None if ``fabric`` has lost a part of the path."""
    racks = fabric.rack_by_name
    hops = [read_circuit(fabric, hop) for hop in record["circuits"]]
    circuits = tuple(hop for hop in hops if hop is not None)
    if record["src"] not in racks or record["dst"] not in racks or len(circuits) != len(hops):
        return None
    src, dst = racks[record["src"]].id, racks[record["dst"]].id
    if src > dst and not fabric.one_way:
        src, dst, circuits = dst, src, circuits[::-1]
    return Path(src, dst, circuits)
