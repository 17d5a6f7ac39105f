"""Network states and paths as JSON-able records, by names rather than positions.

Names survive a configuration that was reordered or shrunk; parts that no longer exist are left out
on reading, together with everything that relied on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hydra.journal import Change, Journal, JournalError, Kind, entry
from hydra.model import Circuit, Fabric, NetworkState, Path, Topology, VlanId
from hydra.rings import whole_rings

INTENDED: Final = "reconfiguration intended"
"""Entry with the records of the ``current`` and the ``target`` state, before anything moves."""

_NETWORK: Final = "network"
"""Key of the only record of its kind."""


def save_state(fabric: Fabric, state: NetworkState, unix_s: float, what: str) -> list[Change]:
    """Changes that make ``state`` the network's from now on; ``what`` says why."""
    record = state_record(fabric, state)
    return [
        Change(Kind.STATE, _NETWORK, {"fabric": fabric.name, "state": record}),
        entry(unix_s, what, {"state": record}),
    ]


def saved_state(fabric: Fabric, journal: Journal) -> NetworkState | None:
    """The state that was saved last; None if there is none.

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
        "resting": sorted(state.resting),
        "freed": list(state.freed),
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
    """A change in stages that was not over when the controller ended."""

    id: str
    trigger: str
    goal: Topology
    """What it leads to, as far as the fabric still has it."""
    whole: bool
    """False if the fabric has a part of the goal no more."""
    stages_done: int
    paused: bool


def unfinished_record(fabric: Fabric, change: Unfinished) -> dict[str, Any]:
    """``change`` as nested dicts and lists of names and numbers."""
    return {
        "id": change.id,
        "trigger": change.trigger,
        "circuits": [circuit_record(fabric, one) for one in sorted(change.goal.circuits)],
        "paths": [path_record(fabric, path) for path in change.goal.paths],
        "stages_done": change.stages_done,
        "paused": change.paused,
    }


def read_unfinished(fabric: Fabric, record: Mapping[str, Any]) -> Unfinished:
    """The change that :func:`unfinished_record` wrote."""
    circuits = whole_rings(read_circuits(fabric, record["circuits"]))
    read = [read_path(fabric, one) for one in record["paths"]]
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
    """A path's two racks and its circuits, in hop order."""
    return {
        "src": fabric.racks[path.src].name,
        "dst": fabric.racks[path.dst].name,
        "circuits": [circuit_record(fabric, circuit) for circuit in path.circuits],
    }


def circuit_record(fabric: Fabric, circuit: Circuit) -> list[list[str]]:
    """A circuit's ends, each a rack and a ToR port by name; if it is one-way, the sender first."""
    ends = (fabric.ports[circuit.a], fabric.ports[circuit.b])
    return [[fabric.racks[end.rack].name, end.tor_port] for end in ends]


def read_state(fabric: Fabric, record: Mapping[str, Any]) -> NetworkState:
    """The state that :func:`state_record` wrote, as far as ``fabric`` still has its parts."""
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
        resting=frozenset(VlanId(vlan) for vlan in record["resting"]),
        freed=tuple(VlanId(vlan) for vlan in record["freed"]),
    )


def read_circuits(fabric: Fabric, entries: Iterable[list[list[str]]]) -> frozenset[Circuit]:
    """Circuits that :func:`circuit_record` wrote and that ``fabric`` still has the ports of."""
    read = (read_circuit(fabric, entry) for entry in entries)
    return frozenset(circuit for circuit in read if circuit is not None)


def read_circuit(fabric: Fabric, entry: list[list[str]]) -> Circuit | None:
    """The circuit that :func:`circuit_record` wrote; None if ``fabric`` lacks one of its ports."""
    a, b = (fabric.port_by_name.get((rack, tor_port)) for rack, tor_port in entry)
    if a is None or b is None or a.plane != b.plane:
        return None
    return fabric.circuit(a.id, b.id)


def read_path(fabric: Fabric, record: Mapping[str, Any]) -> Path | None:
    """The path that :func:`path_record` wrote; None if ``fabric`` has a part of it no more."""
    racks = fabric.rack_by_name
    hops = [read_circuit(fabric, hop) for hop in record["circuits"]]
    circuits = tuple(hop for hop in hops if hop is not None)
    if record["src"] not in racks or record["dst"] not in racks or len(circuits) != len(hops):
        return None
    src, dst = racks[record["src"]].id, racks[record["dst"]].id
    if src > dst and not fabric.one_way:
        src, dst, circuits = dst, src, circuits[::-1]
    return Path(src, dst, circuits)
