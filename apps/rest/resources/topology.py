"""/v1/topology: circuits and paths; hops have the direction of the walk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from apps.rest.document import Document, PlaneName, port_names
from apps.rest.routing import Routes
from hydra import model
from hydra.model import Fabric, PortId, RackId, VlanId

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1/topology", "network")


class Hop(Document):
    """A circuit in the direction of the path."""

    plane: PlaneName
    from_rack: str
    from_port: str
    to_rack: str
    to_port: str
    rate_mbps: float


@dataclass(frozen=True, slots=True)
class Along:
    """A path as walked from the rack ``start``, with the VLAN-ID."""

    path: model.Path
    vlan: VlanId | None
    start: RackId


class Path(Document):
    src: str
    dst: str
    vlan: int | None
    hops: list[Hop]
    one_way: bool = Field(description="Traffic goes from src to dst only.")

    @model_validator(mode="before")
    @classmethod
    def _along(cls, core: object, info: ValidationInfo[Fabric]) -> object:
        if not isinstance(core, Along):
            return core
        fabric: Fabric = info.context
        path = core.path
        forward = core.start == path.src
        hops = []
        at = core.start
        for circuit in path.circuits if forward else reversed(path.circuits):
            near, far = fabric.ports[circuit.a], fabric.ports[circuit.b]
            if near.rack != at:
                near, far = far, near
            hops.append(
                {
                    "plane": circuit.plane,
                    "from_rack": fabric.racks[near.rack].name,
                    "from_port": near.tor_port,
                    "to_rack": fabric.racks[far.rack].name,
                    "to_port": far.tor_port,
                    "rate_mbps": fabric.rate_of(circuit),
                }
            )
            at = far.rack
        return {
            "src": fabric.racks[core.start].name,
            "dst": fabric.racks[path.dst if forward else path.src].name,
            "vlan": core.vlan,
            "hops": hops,
            "one_way": path.one_way,
        }


def along(path: model.Path | None, vlan: VlanId | None, start: RackId) -> Along | None:
    return None if path is None else Along(path, vlan, start)


def in_own_order(paths: Iterable[model.Path], vlans: Mapping[model.Path, VlanId]) -> list[Along]:
    return [Along(path, vlans.get(path), path.src) for path in paths]


class CircuitEnd(Document):
    rack: str
    port: str


class Circuit(Document):
    plane: PlaneName
    a: CircuitEnd
    b: CircuitEnd
    rate_mbps: float
    one_way: bool = Field(description="Traffic goes from a to b only.")

    @model_validator(mode="before")
    @classmethod
    def _of_core(cls, core: object, info: ValidationInfo[Fabric]) -> object:
        return named(info.context, core) if isinstance(core, model.Circuit) else core


def named(fabric: Fabric, circuit: model.Circuit) -> dict[str, object]:
    """Attributes of a circuit's document."""
    return {
        "plane": circuit.plane,
        "a": port_names(fabric, circuit.a),
        "b": port_names(fabric, circuit.b),
        "rate_mbps": fabric.rate_of(circuit),
        "one_way": circuit.one_way,
    }


def _sorted(core: object) -> object:
    return sorted(core) if isinstance(core, AbstractSet | tuple) else core


Circuits = Annotated[list[Circuit], BeforeValidator(_sorted)]
"""Built from circuits in any order."""


class LiveCircuit(Circuit):
    """A standing circuit, with the last rates sent by its ToR ports."""

    a_to_b_mbps: float | None
    b_to_a_mbps: float | None = Field(description="Null also for a one-way circuit.")


class Plane(Document):
    name: str
    switching_ms: float
    rate_mbps: float


class Topology(Document):
    fabric: str
    epoch: int
    racks: list[str]
    planes: list[Plane]
    ports: int = Field(description="Optical ports of all ToRs; a circuit takes two.")
    electrical_rate_mbps: float
    circuits: list[LiveCircuit]
    paths: list[Path]
    resting_vlans: list[int]


@routes.on("GET")
def get_topology(service: Service) -> Topology:
    """The circuits and paths that stand now."""
    fabric, state, rates_mbps = service.fabric, service.state(), service.port_rates_mbps()
    return Topology.of(
        fabric,
        fabric=fabric.name,
        epoch=state.epoch,
        racks=[rack.name for rack in fabric.racks],
        planes=fabric.planes,
        ports=len(fabric.ports),
        electrical_rate_mbps=fabric.electrical_rate_mbps,
        circuits=[
            _live(fabric, circuit, rates_mbps) for circuit in sorted(state.topology.circuits)
        ],
        paths=in_own_order(state.topology.paths, state.vlans),
        resting_vlans=sorted(state.pool.resting),
    )


def _live(
    fabric: Fabric, circuit: model.Circuit, rates_mbps: Mapping[PortId, float]
) -> dict[str, object]:
    return named(fabric, circuit) | {
        "a_to_b_mbps": rates_mbps.get(circuit.a),
        "b_to_a_mbps": None if circuit.one_way else rates_mbps.get(circuit.b),
    }
