"""Circuits and paths requested by name, instead of a demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Protocol

from pydantic import Field

from apps.rest.document import Body, Name
from apps.rest.errors import json_pointer
from hydra.model import Circuit, Fabric, OpticalPort, Path, PortId, RackId, Topology
from hydra.reconfiguration.plan import Pair, pair_of

_Walk = Annotated[list[Name], Field(min_length=3)]


class WantedCircuit(Body):
    """A circuit; if circuits are one-way, from `a` to `b`.

    An end is a rack, or RACK:PORT. For a rack alone, the first free port on the plane is used.
    """

    plane: Name
    a: Name
    b: Name


class WantedTopology(Body):
    """All circuits of the target, and the paths over several circuits.

    Each circuit is a path of its two racks, unless `paths` contains a path of the same pair.
    Circuits that may not change, and circuits of reservations, stay besides.
    """

    circuits: Annotated[list[WantedCircuit], Field(fail_fast=True)]
    paths: Annotated[list[_Walk], Field(fail_fast=True)] = Field(
        default=[], description="Racks along each path of several hops."
    )


class Complaints(Protocol):
    """Collects errors in a request."""

    def known(
        self, at: tuple[str | int, ...], kind: str, name: str, known: Mapping[str, object]
    ) -> bool:
        """True if ``name`` is ``known``; else record an unknown name in the request."""

    def wrong(self, at: tuple[str | int, ...], detail: str) -> None:
        """Record the reason why the request can't be carried out."""


class TopologyReader:
    """Makes a topology from names; errors go to ``complaints``."""

    def __init__(
        self, fabric: Fabric, complaints: Complaints, at: tuple[str | int, ...] = ("topology",)
    ) -> None:
        """``at``: place of the topology in the request."""
        self._fabric, self._complaints, self._at = fabric, complaints, at
        self._user: dict[tuple[PortId, bool], int] = {}
        """Positions of circuits, by the transmitters and receivers used."""
        self._joining: dict[tuple[RackId, RackId], Circuit] = {}
        """The first circuit from one rack to the other."""

    def read(self, wanted: WantedTopology) -> Topology:
        """The topology; complete only if there were no complaints."""
        circuits = [
            circuit
            for position, wanted_circuit in enumerate(wanted.circuits)
            if (circuit := self._circuit(position, wanted_circuit)) is not None
        ]
        walks = [
            path
            for position, names in enumerate(wanted.paths)
            if (path := self._path(position, names)) is not None
        ]
        walked = {pair_of(path) for path in walks}
        paths = {*walks, *self._direct(circuits, walked)}
        return Topology(frozenset(circuits), tuple(sorted(paths)))

    def _circuit(self, position: int, wanted_circuit: WantedCircuit) -> Circuit | None:
        at = (*self._at, "circuits", position)
        planes = self._fabric.plane_by_name
        known = self._complaints.known((*at, "plane"), "plane", wanted_circuit.plane, planes)
        racks = [
            self._rack((*at, end), name)
            for end, name in (("a", wanted_circuit.a), ("b", wanted_circuit.b))
        ]
        if not known or None in racks:
            return None
        if racks[0] == racks[1]:
            self._complaints.wrong(
                at,
                f"{wanted_circuit.a} and {wanted_circuit.b} are on the same rack: a circuit joins "
                "two racks",
            )
            return None
        a = self._port((*at, "a"), wanted_circuit.plane, wanted_circuit.a, sends=True)
        b = self._port((*at, "b"), wanted_circuit.plane, wanted_circuit.b, sends=False)
        if a is None or b is None:
            return None
        circuit = self._fabric.circuit(a.id, b.id)
        self._user |= dict.fromkeys(circuit.halves, position)
        self._joining.setdefault((a.rack, b.rack), circuit)
        if not circuit.one_way:
            self._joining.setdefault((b.rack, a.rack), circuit)
        return circuit

    def _rack(self, at: tuple[str | int, ...], name: str) -> RackId | None:
        """The rack of an end, RACK or RACK:PORT."""
        racks = self._fabric.rack_by_name
        rack = name if name in racks else name.partition(":")[0]
        return racks[rack].id if self._complaints.known(at, "rack", rack, racks) else None

    def _port(
        self, at: tuple[str | int, ...], plane: str, name: str, *, sends: bool
    ) -> OpticalPort | None:
        """The port of an end; for a rack without a port, the first free port."""
        known = name in self._fabric.rack_by_name
        rack, _, wanted = (name, "", "") if known else name.partition(":")
        on_plane = self._fabric.plane_by_name[plane].id
        ports = [
            port
            for port in self._fabric.ports_of(self._fabric.rack_by_name[rack].id)
            if port.plane == on_plane and wanted in ("", port.tor_port)
        ]
        if not ports:
            what = f"no port {wanted} on {plane}" if wanted else f"no port on plane {plane}"
            self._complaints.wrong(at, f"{rack} has {what}")
            return None
        sides = (sends,) if self._fabric.one_way else (True, False)
        users = [{self._user.get((port.id, side)) for side in sides} - {None} for port in ports]
        free = [port for port, user in zip(ports, users, strict=True) if not user]
        if not free:
            names = ", ".join(port.tor_port for port in ports)
            first = min(position for user in users for position in user if position is not None)
            self._complaints.wrong(
                at,
                f"{rack} has only {names} on {plane}, taken by "
                f"{json_pointer(*self._at)}/circuits/{first}",
            )
            return None
        return free[0]

    def _path(self, position: int, names: Sequence[str]) -> Path | None:
        at = (*self._at, "paths", position)
        racks = self._fabric.rack_by_name
        known = [
            self._complaints.known((*at, place), "rack", name, racks)
            for place, name in enumerate(names)
        ]
        if not all(known):
            return None
        walk = [racks[name].id for name in names]
        if len(set(walk)) < len(walk):
            self._complaints.wrong(at, f"{' - '.join(names)} visits a rack twice")
            return None
        for spine in (walk[0], walk[-1]):
            if self._fabric.racks[spine].spine:
                name = self._fabric.racks[spine].name
                self._complaints.wrong(at, f"{name} is a spine, without servers")
                return None
        missing = [hop for hop in pairwise(walk) if hop not in self._joining]
        if missing:
            a, b = (self._fabric.racks[rack].name for rack in missing[0])
            self._complaints.wrong(
                at, f"no circuit joins {a} and {b}: add one to {json_pointer(*self._at)}/circuits"
            )
            return None
        hops = tuple(self._joining[hop] for hop in pairwise(walk))
        if self._fabric.one_way or walk[0] < walk[-1]:
            return Path(walk[0], walk[-1], hops)
        return Path(walk[-1], walk[0], hops[::-1])

    def _direct(self, circuits: Sequence[Circuit], walked: set[Pair]) -> Iterator[Path]:
        """A path over each circuit between racks with servers, unless the pair has a path of
        several hops.
        """
        for circuit in circuits:
            ends = self._fabric.racks_of(circuit)
            src, dst = ends if circuit.one_way else sorted(ends)
            path = Path(src, dst, (circuit,))
            if pair_of(path) not in walked and not any(
                self._fabric.racks[rack].spine for rack in ends
            ):
                yield path
