"""Present paths of circuits between racks, for schedulers of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hydra.model import Fabric, Topology
    from hydra_hybrid_network_client.errors import JsonObject


@dataclass(frozen=True, slots=True)
class RackPath:
    """A path of circuits from rack to rack, in one direction."""

    src: str
    dst: str
    hops: int
    mbps: float
    """Rate of the slowest circuit."""


def paths_reported(topology: JsonObject) -> Iterator[RackPath]:
    """Each direction of the paths that a controller reports at ``/v1/topology``."""
    for path in topology["paths"]:
        hops = path["hops"]
        mbps = min(hop["rate_mbps"] for hop in hops)
        yield from _directions(path["src"], path["dst"], len(hops), mbps, path["one_way"])


def paths_planned(topology: Topology, fabric: Fabric) -> Iterator[RackPath]:
    """Each direction of the paths of a topology of the core."""
    for path in topology.paths:
        src, dst = fabric.racks[path.src].name, fabric.racks[path.dst].name
        mbps = min(fabric.rate_of(circuit) for circuit in path.circuits)
        yield from _directions(src, dst, path.hops, mbps, path.one_way)


def _directions(src: str, dst: str, hops: int, mbps: float, one_way: bool) -> Iterable[RackPath]:
    there = RackPath(src, dst, hops, mbps)
    return [there] if one_way else [there, RackPath(dst, src, hops, mbps)]
