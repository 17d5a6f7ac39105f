"""From request bodies to the core's types: names become numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from apps.rest import models
from apps.rest.conditional import retry_key
from apps.rest.problems import INVALID_REQUEST, UNKNOWN_NAME, EntriesError, json_pointer
from apps.rest.reading import MOST_ERRORS
from hydra.errors import AdmissionError, UnknownName
from hydra.model import DemandMatrix, Fabric, PlaneId, RackId
from hydra.names import did_you_mean
from hydra.reservations.modification import Modification
from hydra.reservations.reservation import ReservationRequest
from hydra.service import PlanRequest


def reservation_request(body: models.ReservationBody, key: str | None) -> ReservationRequest:
    return ReservationRequest(
        body.src,
        body.dst,
        body.bandwidth_mbps,
        body.duration_s,
        body.start_unix_s,
        body.end_unix_s,
        body.hold_s,
        retry=retry_key(key, body),
        minimum_mbps=body.minimum_mbps,
        priority=body.priority,
        service=body.service,
    )


def modification(body: models.ModificationBody) -> Modification:
    return Modification(body.bandwidth_mbps, body.src, body.dst, body.end_unix_s)


def group_requests(body: models.GroupBody, key: str | None) -> list[ReservationRequest]:
    """Requests, one for each entry and time. Raises AdmissionError."""
    retry = retry_key(key, body)
    return [
        ReservationRequest(
            entry.src,
            entry.dst,
            entry.bandwidth_mbps,
            body.duration_s,
            None if body.start_unix_s is None else body.start_unix_s + later_s,
            None if body.end_unix_s is None else body.end_unix_s + later_s,
            body.hold_s,
            retry=retry,
            minimum_mbps=entry.minimum_mbps,
            priority=body.priority,
            service=body.service,
        )
        for later_s in _repetitions_s(body)
        for entry in body.entries
    ]


def _repetitions_s(body: models.GroupBody) -> list[float]:
    """How much later each time begins than the first. Raises AdmissionError."""
    if body.repeat is None:
        return [0.0]
    if body.start_unix_s is None:
        raise AdmissionError("what is repeated needs start_unix_s, and duration_s or end_unix_s")
    end_unix_s = body.end_unix_s
    length_s = body.duration_s if end_unix_s is None else end_unix_s - body.start_unix_s
    if length_s is None or length_s > body.repeat.every_s:
        lasts = "lasts until it is released" if length_s is None else f"lasts {length_s:g} s"
        raise AdmissionError(
            f"one time {lasts}, and the next begins {body.repeat.every_s:g} s after it began: "
            "give a duration_s of at most every_s"
        )
    count = body.repeat.times * len(body.entries)
    if count > models.MOST_ENTRIES:
        raise AdmissionError(
            f"{len(body.entries)} entries, {body.repeat.times} times, are {count} reservations: "
            f"one request may be for {models.MOST_ENTRIES}"
        )
    return [number * body.repeat.every_s for number in range(body.repeat.times)]


def rack_named(fabric: Fabric, name: str) -> RackId:
    """Raises UnknownName."""
    rack = fabric.rack_by_name.get(name)
    if rack is None:
        raise UnknownName(f"no rack {name!r}{did_you_mean(name, fabric.rack_by_name)}")
    return rack.id


def plan_request(body: models.PlanBody, fabric: Fabric) -> PlanRequest:
    """Raises EntriesError with everything that is wrong, each with its JSON pointer."""
    reader = _Reader(fabric)
    planes = reader.planes("planes", body.planes)
    use_planes = reader.planes("use_planes", body.use_planes)
    racks = reader.racks("racks", body.racks)
    demand, weights = (None, None) if body.demand is None else reader.demand(body.demand)
    if body.demand_matrix is not None:
        demand = reader.matrix(body.demand_matrix, alone=demand is None)
    reader.finish()
    return PlanRequest(
        demand=demand,
        racks=racks,
        planes=planes,
        use_planes=use_planes,
        algorithm=body.algorithm,
        weights=weights,
        only_if_it_pays=body.only_if_it_pays,
    )


class _Reader:
    """Collects what is wrong instead of stopping at the first problem."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._unknown: list[models.ErrorDetail] = []
        self._invalid: list[models.ErrorDetail] = []
        self._unknown_count = self._wrong_count = 0

    def finish(self) -> None:
        """Names that do not exist are a 404, unless something else is wrong, too."""
        told = (self._invalid + self._unknown)[:MOST_ERRORS]
        if self._wrong_count:
            raise EntriesError(INVALID_REQUEST, told, self._wrong_count + self._unknown_count)
        if self._unknown_count:
            raise EntriesError(UNKNOWN_NAME, told, self._unknown_count)

    def planes(self, field: str, names: Sequence[str] | None) -> frozenset[PlaneId] | None:
        known = self._fabric.plane_by_name
        if names is None:
            return None
        return frozenset(known[name].id for name in self._known((field,), "plane", names, known))

    def racks(self, field: str, names: Sequence[str] | None) -> frozenset[RackId] | None:
        known = self._fabric.rack_by_name
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
            if self._check_known((*at, position), kind, name, known)
        ]

    def demand(
        self, entries: Sequence[models.DemandEntry]
    ) -> tuple[DemandMatrix, DemandMatrix | None]:
        """Demand and what is expected of it, Mbps of shape (N, N), None where no entry tells that;
        complete only if :meth:`finish` passes.
        """
        racks = self._fabric.rack_by_name
        matrix = np.zeros((len(racks), len(racks)))
        expected = np.zeros_like(matrix)
        seen: dict[tuple[RackId, RackId], int] = {}
        for position, entry in enumerate(entries):
            pair = self._pair(position, entry)
            if pair is None:
                continue
            first = seen.setdefault(pair, position)
            if first != position:
                self._wrong(
                    json_pointer("demand", position),
                    f"{entry.src} to {entry.dst} is given twice, first by /demand/{first}: "
                    "send their sum",
                )
            matrix[pair] = entry.mbps
            expected[pair] = entry.mbps if entry.expected_mbps is None else entry.expected_mbps
        told = any(entry.expected_mbps is not None for entry in entries)
        return matrix, expected if told else None

    def matrix(self, given: models.DemandMatrix, *, alone: bool) -> DemandMatrix:
        """The same; ``alone`` is whether there are no entries besides."""
        field = "demand_matrix"
        racks = self._fabric.rack_by_name
        names = list(racks) if given.racks is None else given.racks
        if not alone:
            self._wrong(json_pointer(field), "there is a demand as well: send one of them")
        first: dict[str, int] = {}
        for position, name in enumerate(names):
            if first.setdefault(name, position) != position:
                self._wrong(json_pointer(field, "racks", position), f"{name} is given twice")
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
            self._wrong(json_pointer(field, "mbps"), f"{len(rows)} rows for {n} racks")
            return False
        wrong = [position for position, row in enumerate(rows) if len(row) != n]
        for position in wrong:
            pointer = json_pointer(field, "mbps", position)
            self._wrong(pointer, f"{len(rows[position])} numbers for {n} racks")
        own = [] if wrong else [position for position in range(n) if rows[position][position]]
        for position in own:
            self._wrong(
                json_pointer(field, "mbps", position, position),
                f"{names[position]} to itself: traffic inside a rack needs no circuit; write 0",
            )
        return not (wrong or own)

    def _pair(self, position: int, entry: models.DemandEntry) -> tuple[RackId, RackId] | None:
        racks = self._fabric.rack_by_name
        src_known = self._check_known(("demand", position, "src"), "rack", entry.src, racks)
        dst_known = self._check_known(("demand", position, "dst"), "rack", entry.dst, racks)
        if not (src_known and dst_known):
            return None
        if entry.src == entry.dst:
            self._wrong(
                json_pointer("demand", position),
                f"{entry.src} to itself: traffic inside a rack needs no circuit; leave it out",
            )
            return None
        return racks[entry.src].id, racks[entry.dst].id

    def _check_known(
        self, at: tuple[str | int, ...], kind: str, name: str, known: Mapping[str, object]
    ) -> bool:
        if name in known:
            return True
        self._unknown_count += 1
        if len(self._unknown) < MOST_ERRORS:
            detail = f"no {kind} {name!r} in fabric {self._fabric.name}{did_you_mean(name, known)}"
            self._unknown.append(models.ErrorDetail(pointer=json_pointer(*at), detail=detail))
        return False

    def _wrong(self, pointer: str, detail: str) -> None:
        self._wrong_count += 1
        if len(self._invalid) < MOST_ERRORS:
            self._invalid.append(models.ErrorDetail(pointer=pointer, detail=detail))
