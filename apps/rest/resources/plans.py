"""/v1/plan: a dry run of a reconfiguration; the request body of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
from pydantic import Field, field_validator

from apps.rest.document import Body, Document, Name, Names, RackName, RackPairs
from apps.rest.errors import json_pointer
from apps.rest.problems import (
    BODY_PROBLEMS,
    DEVICE_ERROR,
    DEVICE_UNAVAILABLE,
    INVALID_REQUEST,
    NO_PLAN,
    UNKNOWN_NAME,
    ApiError,
)
from apps.rest.request_bodies import MOST_ERRORS
from apps.rest.resources.problem_types import ErrorDetail
from apps.rest.resources.topology import Circuits, Path, in_own_order
from apps.rest.routing import Routes
from apps.rest.wanted_topology import TopologyReader, WantedTopology
from hydra import model
from hydra.model import Fabric, PlaneId, RackId
from hydra.names import did_you_mean
from hydra.service import PlanRequest

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1/plan", "planning")
PLAN_PROBLEMS: Final = (*BODY_PROBLEMS, UNKNOWN_NAME, NO_PLAN, DEVICE_ERROR, DEVICE_UNAVAILABLE)


class DemandEntry(Body):
    """Demand from one rack to another; the way back is a separate entry."""

    src: Name
    dst: Name
    mbps: float = Field(ge=0)
    expected_mbps: float | None = Field(
        default=None,
        ge=0,
        description=(
            "If `mbps` is a guess: the expected demand, by which plans choose between pairs; "
            "gain and cost are computed from `mbps`. Null: `mbps`."
        ),
    )


_Row = Annotated[list[Annotated[float, Field(ge=0)]], Field(fail_fast=True)]


class DemandMatrix(Body):
    """Demand between all pairs of racks, smaller than a list of entries."""

    racks: Names | None = Field(
        default=None, description="Of the rows and columns. Null: as in the topology."
    )
    mbps: Annotated[list[_Row], Field(fail_fast=True)] = Field(
        description="From the row's rack to the column's; the diagonal is zero."
    )


class PlanBody(Body):
    """Demand to plan a topology for, and what may change."""

    demand: Annotated[list[DemandEntry], Field(fail_fast=True)] | None = Field(
        default=None, description="Null: the measured demand. Omitted pairs have no demand."
    )
    demand_matrix: DemandMatrix | None = Field(
        default=None, description="Instead of `demand`. Omitted racks have no demand."
    )
    planes: Names | None = Field(default=None, description="Planes that may change. Null: all.")
    racks: Names | None = Field(default=None, description="Racks that may change. Null: all.")
    use_planes: Names | None = Field(
        default=None,
        description="Planes allowed for circuits that may change. Null: all.",
    )
    algorithm: Name | None = Field(default=None, description="Null: the configured algorithm.")
    topology: WantedTopology | None = Field(
        default=None,
        description="Circuits of the plan, whatever the demand. Null: computed from the demand.",
    )
    only_if_it_pays: bool = False

    def request(self, fabric: Fabric) -> PlanRequest:
        """The core's request. Raises ApiError with all errors, each with a JSON pointer."""
        reader = RequestReader(fabric)
        planes = reader.planes("planes", self.planes)
        use_planes = reader.planes("use_planes", self.use_planes)
        racks = reader.racks("racks", self.racks)
        demand, weights = (None, None) if self.demand is None else reader.demand(self.demand)
        if self.demand_matrix is not None:
            demand = reader.matrix(self.demand_matrix, alone=demand is None)
        topology = self._topology(reader)
        if topology is not None and demand is None:
            demand = np.zeros((len(fabric.racks),) * 2)  # not planned for
        reader.finish()
        return PlanRequest(
            topology=topology,
            demand=demand,
            racks=racks,
            planes=planes,
            use_planes=use_planes,
            algorithm=self.algorithm,
            weights=weights,
            only_if_it_pays=self.only_if_it_pays,
        )

    def _topology(self, reader: RequestReader) -> model.Topology | None:
        if self.topology is None:
            return None
        for field in ("algorithm", "use_planes", "only_if_it_pays"):
            if getattr(self, field):
                reader.wrong(
                    (field,),
                    f"is not used with a given topology: leave out {field} or topology",
                )
        return TopologyReader(reader.fabric, reader).read(self.topology)


class RequestReader:
    """Reads names in a request. Collects errors instead of stopping at the first."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._unknown: list[ErrorDetail] = []
        self._invalid: list[ErrorDetail] = []
        self._unknown_count = self._wrong_count = 0

    def finish(self) -> None:
        """Raise ApiError if there are errors: a 404 if all are unknown names."""
        count = self._wrong_count + self._unknown_count
        if not count:
            return
        shown = (self._invalid + self._unknown)[:MOST_ERRORS]
        words = [f"{error_detail.pointer}: {error_detail.detail}" for error_detail in shown]
        if count > len(shown):
            words.append(f"and {count - len(shown)} more")
        problem = INVALID_REQUEST if self._wrong_count else UNKNOWN_NAME
        raise ApiError(problem, "; ".join(words), errors=shown)

    def planes(self, field: str, names: Sequence[str] | None) -> frozenset[PlaneId] | None:
        known = self.fabric.plane_by_name
        if names is None:
            return None
        return frozenset(known[name].id for name in self._known((field,), "plane", names, known))

    def racks(self, field: str, names: Sequence[str] | None) -> frozenset[RackId] | None:
        known = self.fabric.rack_by_name
        if names is None:
            return None
        return frozenset(known[name].id for name in self._known((field,), "rack", names, known))

    def _known(
        self,
        at: tuple[str | int, ...],
        kind: str,
        names: Sequence[str],
        known: Mapping[str, object],
    ) -> list[str]:
        return [
            name
            for position, name in enumerate(names)
            if self.known((*at, position), kind, name, known)
        ]

    def demand(
        self, entries: Sequence[DemandEntry]
    ) -> tuple[model.DemandMatrix, model.DemandMatrix | None]:
        """Demand and expected demand, Mbps of shape (N, N); the expected demand is None if no entry
        has one.

        Complete only if :meth:`finish` passes.
        """
        racks = self.fabric.rack_by_name
        matrix = np.zeros((len(racks), len(racks)))
        expected = np.zeros_like(matrix)
        seen: dict[tuple[RackId, RackId], int] = {}
        for position, entry in enumerate(entries):
            pair = self._pair(position, entry)
            if pair is None:
                continue
            first = seen.setdefault(pair, position)
            if first != position:
                self.wrong(
                    ("demand", position),
                    f"{entry.src} to {entry.dst} is given twice, first by /demand/{first}: send "
                    "the sum of both",
                )
            matrix[pair] = entry.mbps
            expected[pair] = entry.mbps if entry.expected_mbps is None else entry.expected_mbps
        shown = any(entry.expected_mbps is not None for entry in entries)
        return matrix, expected if shown else None

    def matrix(self, given: DemandMatrix, *, alone: bool) -> model.DemandMatrix:
        """Demand from a matrix; ``alone``: whether the request has no ``demand`` besides."""
        field = "demand_matrix"
        racks = self.fabric.rack_by_name
        names = list(racks) if given.racks is None else given.racks
        if not alone:
            self.wrong((field,), "demand is given, too: send either demand or demand_matrix")
        first: dict[str, int] = {}
        for position, name in enumerate(names):
            if first.setdefault(name, position) != position:
                self.wrong((field, "racks", position), f"{name} is given twice")
        known = self._known((field, "racks"), "rack", names, racks)
        matrix = np.zeros((len(racks), len(racks)))
        if self._check_square(field, given.mbps, names) and len(known) == len(names):
            order = [racks[name].id for name in names]
            matrix[np.ix_(order, order)] = np.array(given.mbps).reshape(len(names), len(names))
        return matrix

    def _check_square(
        self, field: str, rows: Sequence[Sequence[float]], names: Sequence[str]
    ) -> bool:
        n = len(names)
        if len(rows) != n:
            self.wrong((field, "mbps"), f"{len(rows)} rows for {n} racks")
            return False
        wrong = [position for position, row in enumerate(rows) if len(row) != n]
        for position in wrong:
            self.wrong((field, "mbps", position), f"{len(rows[position])} numbers for {n} racks")
        own = [] if wrong else [position for position in range(n) if rows[position][position]]
        for position in own:
            self.wrong(
                (field, "mbps", position, position),
                f"{names[position]} to itself: traffic inside a rack needs no circuit; write 0",
            )
        return not (wrong or own)

    def _pair(self, position: int, entry: DemandEntry) -> tuple[RackId, RackId] | None:
        racks = self.fabric.rack_by_name
        src_known = self.known(("demand", position, "src"), "rack", entry.src, racks)
        dst_known = self.known(("demand", position, "dst"), "rack", entry.dst, racks)
        if not (src_known and dst_known):
            return None
        if entry.src == entry.dst:
            self.wrong(
                ("demand", position),
                f"{entry.src} to itself: traffic inside a rack needs no circuit; leave out the "
                "entry",
            )
            return None
        return racks[entry.src].id, racks[entry.dst].id

    def known(
        self, at: tuple[str | int, ...], kind: str, name: str, known: Mapping[str, object]
    ) -> bool:
        if name in known:
            return True
        self._unknown_count += 1
        if len(self._unknown) < MOST_ERRORS:
            detail = f"no {kind} {name!r} in fabric {self.fabric.name}{did_you_mean(name, known)}"
            self._unknown.append(ErrorDetail(pointer=json_pointer(*at), detail=detail))
        return False

    def wrong(self, at: tuple[str | int, ...], detail: str) -> None:
        self._wrong_count += 1
        if len(self._invalid) < MOST_ERRORS:
            self._invalid.append(ErrorDetail(pointer=json_pointer(*at), detail=detail))


class Verdict(Document):
    pays: bool
    reason: str
    gain_mbps: float
    gain_mbit: float
    cost_mbit: float


class RackLoad(Document):
    rack: RackName
    mbps: float


class Stage(Document):
    """A separately made part of a change."""

    pairs: RackPairs
    diverted_mbps: float = Field(
        description="Traffic taken off circuits: the largest sum of any rack in either direction."
    )
    beyond: list[RackLoad] = Field(
        description="Diverted traffic beyond the capacity of the electrical network, by rack."
    )
    detoured: RackPairs = Field(
        description=(
            "Pairs of the stage that wait for their new paths on spare circuits, or on circuits "
            "of other pairs."
        )
    )
    last: bool = Field(description="False at the end of the list: there are more.")

    @field_validator("beyond", mode="before")
    @classmethod
    def _by_rack(cls, core: Mapping[RackId, float]) -> list[dict[str, float]]:
        return [{"rack": rack, "mbps": mbps} for rack, mbps in sorted(core.items())]


class CircuitShares(Document):
    """Parts of the demand on circuits, without the electrical network."""

    served_share: float = Field(
        description=(
            "Share of the demand carried by the circuits of the plan's paths. Two racks joined "
            "both ways want the larger of their two directions."
        )
    )
    served_share_bound: float | None = Field(
        description="Upper bound of the share for any plan on this fabric. Null: not computed."
    )


class Plan(Document):
    current_epoch: int
    paths: list[Path] = Field(description="All paths of the target.")
    connect: Circuits
    disconnect: Circuits
    affected_pairs: RackPairs
    diverted_pairs: RackPairs = Field(
        description=(
            "Affected pairs whose traffic leaves circuits for the electrical network, meanwhile "
            "or for good, if nothing fails. Traffic of all other pairs stays on circuits."
        )
    )
    courses: int = Field(
        description=(
            "Number of consecutive courses, if nothing fails and the plan is made in a single "
            "stage: courses in the light, and courses that divert pairs."
        )
    )
    retagged_ports: int
    rules: int
    served_mbps: float
    demand_mbps: float
    on_circuits: CircuitShares | None = Field(description="Null: not computed.")
    verdict: Verdict
    planning_ms: float
    at_risk: list[str] = Field(
        description="Missing devices and switches needed by the plan, in words."
    )
    stages: list[Stage] = Field(
        description=(
            "Expected stages with the present traffic. Empty if no traffic is measured: a single "
            "stage."
        )
    )


@routes.on("POST", "", *PLAN_PROBLEMS)
def make_plan(body: PlanBody, service: Service) -> Plan:
    """Dry run: the changes of a reconfiguration, and whether it would pay."""
    fabric = service.fabric
    report = service.plan(body.request(fabric))
    plan = report.plan
    return Plan.of(
        fabric,
        report,
        current_epoch=plan.current.epoch,
        paths=in_own_order(plan.target.topology.paths, plan.target.vlans),
        connect=plan.connect,
        disconnect=plan.disconnect,
        affected_pairs=plan.affected,
        retagged_ports=plan.retagged_ports,
        diverted_pairs=report.way.away,
        courses=len(report.way.courses),
    )
