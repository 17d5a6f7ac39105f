"""Checks of a reservation request without regard to other reservations."""

from __future__ import annotations

import math

from hydra.errors import AdmissionError, QuotaExceeded, WrongRequest
from hydra.model import Fabric, RackId
from hydra.names import rack_of
from hydra.reservations.admission import moment
from hydra.reservations.constraints import check_constraints
from hydra.reservations.reservation import (
    LATEST_UNIX_S,
    PRIORITIES,
    ReservationRequest,
    ServiceClass,
)


def check(fabric: Fabric, request: ReservationRequest) -> tuple[RackId, RackId]:
    """Check the names and numbers of ``request``, and return the two racks.

    Raises UnknownName for a name that is neither a rack nor a server, WrongRequest, and
    AdmissionError for a fabric without reservations, or a priority beyond the quota.
    """
    src, dst = rack_of(fabric, request.src), rack_of(fabric, request.dst)
    if src == dst:
        raise WrongRequest(
            f"{request.src} and {request.dst} are in rack {fabric.racks[src].name}: traffic "
            "inside a rack never leaves its ToR and needs no circuit; name an end in another rack",
            "dst",
        )
    for field, name, rack in (("src", request.src, src), ("dst", request.dst, dst)):
        if fabric.racks[rack].spine:
            raise WrongRequest(
                f"{name} is a spine without servers: reserve between other racks", field
            )
    if fabric.one_way:
        raise AdmissionError(
            "this network has one-way circuits and takes no reservations, since a reservation "
            "holds both directions: circuits follow the measured demand, or the demand given to a "
            "reconfiguration"
        )
    _check_families(fabric, request, src, dst)
    _check_numbers(request)
    if request.is_protected and request.service is ServiceClass.BEST_EFFORT:
        raise WrongRequest(
            "best-effort reservations hold no bandwidth to protect: ask for service shared or "
            "guaranteed, or leave protect out",
            "protect",
        )
    if request.is_protected and request.transfer is not None:
        raise WrongRequest(
            "megabytes by a deadline are planned again after a loss: leave protect out, or ask for "
            "a bandwidth",
            "protect",
        )
    protected = request.is_protected
    check_constraints(fabric, request.constraints, src, dst, protected=protected)
    return src, dst


def _check_families(fabric: Fabric, request: ReservationRequest, src: RackId, dst: RackId) -> None:
    """Raise WrongRequest if the two ends have no common address family."""
    src_families, dst_families = (
        fabric.racks[rack].families(server)
        if (server := fabric.server_by_name.get(name))
        else fabric.families_of[rack]
        for name, rack in ((request.src, src), (request.dst, dst))
    )
    if src_families and dst_families and not src_families & dst_families:
        raise WrongRequest(
            f"{request.src} has {_in_words(src_families)} only, {request.dst} "
            f"{_in_words(dst_families)} only: circuits between the two would carry no packets; "
            "give both ends addresses of one family in the configuration file",
            "dst",
        )


def _in_words(families: frozenset[int]) -> str:
    return " and ".join(f"IPv{version}" for version in sorted(families)) + " addresses"


def _check_numbers(request: ReservationRequest) -> None:
    transfer = request.transfer
    for name, value in (
        ("bandwidth_mbps", request.bandwidth_mbps if transfer is None else None),
        ("megabytes", None if transfer is None else transfer.megabytes),
        ("minimum_mbps", request.minimum_mbps),
        ("duration_s", request.duration_s),
        ("hold_s", request.hold_s),
    ):
        # Written so that NaN fails, too.
        if value is not None and not (math.isfinite(value) and value > 0):
            raise WrongRequest(f"{name} must be a finite number above 0, got {value}", name)
    if request.priority not in PRIORITIES:
        raise WrongRequest(f"priority must be from 0 to 9, got {request.priority}", "priority")
    if request.quota is not None and request.priority > request.quota.max_priority:
        raise QuotaExceeded(
            f"priority {request.priority} exceeds the quota of {request.quota.max_priority}: ask "
            "for a lower priority, or ask an operator for a larger quota"
        )
    if request.minimum_mbps is not None and request.service is not ServiceClass.SHARED:
        raise WrongRequest(
            "minimum_mbps goes with shared reservations, and this reservation is "
            f"{request.service.value}: leave minimum_mbps out",
            "minimum_mbps",
        )
    if transfer is not None and request.service is ServiceClass.BEST_EFFORT:
        raise WrongRequest(
            "best-effort reservations hold no bandwidth, and megabytes by a deadline need "
            "bandwidth: ask for service shared or guaranteed",
            "service",
        )
    if request.least_mbps > request.bandwidth_mbps:
        raise WrongRequest(
            f"minimum_mbps {request.minimum_mbps:g} is more than bandwidth_mbps "
            f"{request.bandwidth_mbps:g}: bandwidth_mbps is the most, minimum_mbps the least",
            "minimum_mbps",
        )


def times(request: ReservationRequest, now: float) -> tuple[float, float | None]:
    """Return (start, end) in Unix seconds; None: no end before the release. Raises
    WrongRequest.
    """
    start = now if request.start_unix_s is None else request.start_unix_s
    if start < now:
        raise WrongRequest(
            f"start_unix_s {start:.15g} ({_when(start)}) has passed: leave start_unix_s out to "
            "start now",
            "start_unix_s",
        )
    end = request.end_unix_s
    sets_end = "end_unix_s" if request.duration_s is None else "duration_s"
    if end is None and request.duration_s is not None:
        end = start + request.duration_s
    if end is not None and end <= start:
        raise WrongRequest(
            f"end_unix_s {end:.15g} ({_when(end)}) is not after the start ({_when(start)}): give a "
            "later end",
            sets_end,
        )
    for name, time, field in (("start", start, "start_unix_s"), ("end", end, sets_end)):
        if time is not None and time > LATEST_UNIX_S:
            raise WrongRequest(
                f"the {name} lies beyond the year 9999: give an earlier {name}", field
            )
    return start, end


def _when(unix_s: float) -> str:
    return moment(unix_s) if 0 <= unix_s <= LATEST_UNIX_S else "out of range"
