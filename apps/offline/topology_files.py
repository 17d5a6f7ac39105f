"""Topologies from files, in the JSON of ``hydra topology`` and ``hydra plan --fabric``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path as FilePath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hydra import foreign_json
from hydra.errors import PlanError
from hydra.model import Circuit, Fabric, NetworkState, Path, Topology, VlanId
from topology.checks import check_topology
from topology.marks import marks_of


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class _End(_Part):
    rack: str
    port: str


class _Circuit(_Part):
    a: _End
    b: _End


class _Hop(_Part):
    from_rack: str
    from_port: str
    to_rack: str
    to_port: str


class _Path(_Part):
    vlan: int
    hops: Annotated[list[_Hop], Field(min_length=1)]


class _Document(_Part):
    circuits: list[_Circuit]
    paths: list[_Path]


_DOCUMENT = TypeAdapter(_Document)


def read_state(file: FilePath, fabric: Fabric) -> NetworkState:
    """The circuits, paths and VLANs in a file, on ``fabric``.

    Raises PlanError with the name of the file and the problem, also if the topology could not
    stand.
    """
    try:
        document = _DOCUMENT.validate_python(foreign_json.loads(file.read_text("utf-8-sig")))
        state = _state(document, fabric)
    except OSError as error:
        raise PlanError(f"{file} can't be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise PlanError(
            f"{file} is no topology as `hydra topology --json` prints it: {where}: {first['msg']}"
        ) from error
    except ValueError as error:
        raise PlanError(f"{file} is not JSON: {error}") from error
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from error
    paths = state.topology.paths
    longest = max((path.hops for path in paths), default=1)
    most = max(Counter((path.src, path.dst) for path in paths).values(), default=1)
    problems = [
        *check_topology(fabric, state.topology, longest, paths_per_pair=most),
        *marks_of(fabric).problems(state),
    ]
    if problems:
        raise PlanError(f"{file} holds a topology that can't stand: " + "; ".join(problems))
    return state


def _state(document: _Document, fabric: Fabric) -> NetworkState:
    circuits = frozenset(
        _circuit(fabric, (circuit.a.rack, circuit.a.port), (circuit.b.rack, circuit.b.port))
        for circuit in document.circuits
    )
    vlans: dict[Path, VlanId] = {}
    for path in document.paths:
        vlan = VlanId(path.vlan)
        if (other := vlans.setdefault(_path(fabric, path), vlan)) != vlan:
            way = ", ".join(
                f"{hop.from_rack}:{hop.from_port} - {hop.to_rack}:{hop.to_port}"
                for hop in path.hops
            )
            raise PlanError(f"the path {way} is there twice, with VLANs {other} and {vlan}")
    return NetworkState(0, Topology(circuits, tuple(sorted(vlans))), vlans)


def _circuit(fabric: Fabric, end: tuple[str, str], far_end: tuple[str, str]) -> Circuit:
    ports = fabric.port_by_name
    for name in (end, far_end):
        if name not in ports:
            raise PlanError(f"rack {name[0]} has no optical port {name[1]} in this fabric")
    if end == far_end:
        raise PlanError(f"a circuit from {end[0]}:{end[1]} to itself")
    return fabric.circuit(ports[end].id, ports[far_end].id)


def _path(fabric: Fabric, path: _Path) -> Path:
    circuits = tuple(
        _circuit(fabric, (hop.from_rack, hop.from_port), (hop.to_rack, hop.to_port))
        for hop in path.hops
    )
    first, last = path.hops[0], path.hops[-1]
    src = fabric.rack_by_name[first.from_rack].id
    dst = fabric.rack_by_name[last.to_rack].id
    if src > dst and not fabric.one_way:
        return Path(dst, src, circuits[::-1])
    return Path(src, dst, circuits)
