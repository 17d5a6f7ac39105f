"""Network states as JSON-able records, by names rather than positions.

Names survive a configuration that was reordered or shrunk; what no longer exists is left out on
reading, together with everything that relied on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hydra.model import Circuit, Fabric, NetworkState, Path, PortId, Topology, VlanId
from hydra.rings import whole_rings

INTENDED: Final = "reconfiguration intended"
"""Entry with the records of the ``current`` and the ``target`` state, before anything moves."""
FINISHED: Final = "reconfiguration finished"
"""Entry with the record of the resulting ``state``, which is saved next."""


def state_record(fabric: Fabric, state: NetworkState) -> dict[str, Any]:
    """``state`` as nested dicts and lists of names and numbers."""
    return {
        "epoch": state.epoch,
        "resting": sorted(state.resting),
        "circuits": [
            circuit_record(fabric, circuit) for circuit in sorted(state.topology.circuits)
        ],
        "paths": [
            {
                "src": fabric.racks[path.src].name,
                "dst": fabric.racks[path.dst].name,
                "vlan": state.vlans[path],
                "circuits": [circuit_record(fabric, circuit) for circuit in path.circuits],
            }
            for path in state.topology.paths
        ],
    }


def circuit_record(fabric: Fabric, circuit: Circuit) -> list[list[str]]:
    """Its two ends, each a rack and a ToR port by name; of a one-way circuit, the sender first."""
    ends = (fabric.ports[circuit.a], fabric.ports[circuit.b])
    return [[fabric.racks[end.rack].name, end.tor_port] for end in ends]


def read_state(fabric: Fabric, record: Mapping[str, Any]) -> NetworkState:
    """The state that :func:`state_record` wrote, as far as ``fabric`` still has its parts."""
    ports = _ports(fabric)
    circuits = whole_rings(read_circuits(fabric, record["circuits"]))
    vlans: dict[Path, VlanId] = {}
    for entry in record["paths"]:
        path = _read_path(fabric, ports, entry)
        if path is not None and circuits.issuperset(path.circuits):
            vlans[path] = VlanId(entry["vlan"])
    return NetworkState(
        epoch=record["epoch"],
        topology=Topology(circuits, tuple(sorted(vlans))),
        vlans=vlans,
        resting=frozenset(VlanId(vlan) for vlan in record["resting"]),
    )


def read_circuits(fabric: Fabric, entries: Iterable[list[list[str]]]) -> frozenset[Circuit]:
    """Those that :func:`circuit_record` wrote and that ``fabric`` still has the ports of."""
    ports = _ports(fabric)
    read = (_read_circuit(fabric, ports, entry) for entry in entries)
    return frozenset(circuit for circuit in read if circuit is not None)


def _ports(fabric: Fabric) -> dict[tuple[str, str], PortId]:
    return {key: port.id for key, port in fabric.port_by_name.items()}


def _read_circuit(
    fabric: Fabric, ports: Mapping[tuple[str, str], PortId], entry: list[list[str]]
) -> Circuit | None:
    ends = [ports.get((rack, tor_port)) for rack, tor_port in entry]
    a, b = ends
    if a is None or b is None or fabric.ports[a].plane != fabric.ports[b].plane:
        return None
    return fabric.circuit(a, b)


def _read_path(
    fabric: Fabric, ports: Mapping[tuple[str, str], PortId], entry: Mapping[str, Any]
) -> Path | None:
    racks = fabric.rack_by_name
    hops = [_read_circuit(fabric, ports, hop) for hop in entry["circuits"]]
    circuits = tuple(hop for hop in hops if hop is not None)
    if entry["src"] not in racks or entry["dst"] not in racks or len(circuits) != len(hops):
        return None
    src, dst = racks[entry["src"]].id, racks[entry["dst"]].id
    if src > dst and not fabric.one_way:
        src, dst, circuits = dst, src, circuits[::-1]
    return Path(src, dst, circuits)
