"""Bundles: more bandwidth between two racks than a circuit carries, split by server pairs.

Switches distinguish reserved traffic by server pair, and a server pair uses a single circuit. So
admission splits a request for whole racks among the servers of a rack. Each part is a normal
reservation with path, bandwidth and meters. No hash decides about the bandwidth of a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, fsum
from typing import Final

from hydra.lifecycle import ReservationState
from hydra.model import Fabric, Server
from hydra.names import rack_of
from hydra.reservations.admission import beyond_any_circuit, fastest_circuit_mbps
from hydra.reservations.requests import check
from hydra.reservations.reservation import GONE, Reservation, ReservationRequest
from hydra.reservations.transfers import MBIT, needed_mbps, remaining_megabytes

_WAYS: Final = 4
"""Largest number of circuit counts tried before a refusal."""
_WORST_FIRST: Final = (
    ReservationState.FAILED,
    ReservationState.PREEMPTED,
    ReservationState.RELEASING,
    ReservationState.HELD,
    ReservationState.COMMITTED,
    ReservationState.SCHEDULED,
    ReservationState.ACTIVATING,
    ReservationState.ACTIVE,
    ReservationState.EXPIRED,
    ReservationState.CANCELLED,
    ReservationState.RELEASED,
)


def too_large(fabric: Fabric, request: ReservationRequest, now: float) -> ReservationRequest | None:
    """``request``, a transfer with the least bandwidth that keeps the deadline, if no circuit
    carries the bandwidth; None if a circuit can.

    Raises the errors of :func:`hydra.reservations.requests.check`, except for a request that
    a circuit can carry: UnknownName alone.
    """
    if request.transfer is None:
        src, dst = rack_of(fabric, request.src), rack_of(fabric, request.dst)
        if beyond_any_circuit(fabric, src, dst, request.least_mbps) is None:
            return None  # checked as the request is admitted
    src, dst = check(fabric, request)
    whole, least_mbps = request, request.least_mbps
    if request.transfer is not None:
        least_mbps = needed_mbps(request, now)
        whole = replace(request, bandwidth_mbps=least_mbps)
    return None if beyond_any_circuit(fabric, src, dst, least_mbps) is None else whole


@dataclass(frozen=True, slots=True)
class Bundle(Reservation):
    """The parts of a bundle, shown as a single reservation. Books and journals hold parts only."""

    parts: tuple[Reservation, ...] = ()


def bundle_of(fabric: Fabric, parts: Sequence[Reservation]) -> Bundle:
    """Combine ``parts``: the sum of the bandwidths, and the worst state. The parts of a transfer
    may differ in time: the bandwidth of their bundle is the mean until the last end.
    """
    first = parts[0]
    state = min((part.state for part in parts), key=_WORST_FIRST.index)
    reasons = [f"{part.src}-{part.dst}: {part.reason}" for part in parts if part.state is state]
    shown = reasons if any(part.reason for part in parts if part.state is state) else ()
    ends = [part.expires_unix_s for part in parts]
    starts = min(part.starts_unix_s for part in parts)
    expires = None if None in ends else max(end for end in ends if end is not None)
    mbps, transfer = fsum(part.bandwidth_mbps for part in parts), first.transfer
    if transfer is not None and expires is not None:
        carried = [part.transfer.megabytes for part in parts if part.transfer is not None]
        left = fsum(remaining_megabytes(part, expires) for part in parts)
        mbps = fsum(carried) * MBIT / (expires - starts)
        transfer = replace(
            transfer, megabytes=fsum(carried), left_megabytes=left, planned_unix_s=expires
        )
    as_first = {field.name: getattr(first, field.name) for field in fields(Reservation)}
    return Bundle(
        **as_first
        | {
            "id": first.bundle,
            "bundle": None,
            "state": state,
            "src": _end(fabric, [part.src for part in parts], first.src_rack),
            "dst": _end(fabric, [part.dst for part in parts], first.dst_rack),
            "bandwidth_mbps": mbps,
            "transfer": transfer,
            "wanted_mbps": _sum(part.wanted_mbps for part in parts),
            "minimum_mbps": _sum(part.minimum_mbps for part in parts),
            "starts_unix_s": starts,
            "expires_unix_s": expires,
            "booked": None,
            "protection": None,
            "path": None,
            "vlan": None,
            "reason": "; ".join(shown),
            "since_unix_s": max((part.since_unix_s or 0.0 for part in parts), default=None),
        },
        parts=tuple(parts),
    )


def _end(fabric: Fabric, names: Sequence[str], rack: int) -> str:
    """The common name of all parts, or the name of the rack."""
    return names[0] if len(set(names)) == 1 or rack == GONE else fabric.racks[rack].name


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) if known else None


def divisions(
    fabric: Fabric, request: ReservationRequest, paths_per_pair: int
) -> Iterator[tuple[ReservationRequest, ...]]:
    """Split a request that exceeds any circuit: fewest circuits first; for each number of circuits,
    among the servers of ``src`` first, then of ``dst``.

    All circuits get the same bandwidth. Servers are dealt to circuits in turn, and share the
    bandwidth of the circuit evenly. Nothing if both ends are servers. A transfer, with the rate
    needed as its bandwidth, is divided by megabytes: each part may have its share of a circuit.
    """
    racks = rack_of(fabric, request.src), rack_of(fabric, request.dst)
    fastest_mbps = fastest_circuit_mbps(fabric, *racks)
    if not fastest_mbps:
        return
    least = ceil(request.least_mbps / fastest_mbps)
    for circuits in range(max(2, least), min(paths_per_pair, least + _WAYS - 1) + 1):
        for end, rack in zip(("src", "dst"), racks, strict=True):
            servers = fabric.racks[rack].servers
            whole = getattr(request, end) in fabric.rack_by_name
            if whole and len(servers) >= circuits and not any(server.guests for server in servers):
                yield _divided(request, end, servers, circuits, fastest_mbps)


def smaller_bundles(
    fabric: Fabric, request: ReservationRequest, paths_per_pair: int
) -> Iterator[ReservationRequest]:
    """Requests below ``request`` for two or more whole circuits; largest first."""
    racks = rack_of(fabric, request.src), rack_of(fabric, request.dst)
    fastest_mbps = fastest_circuit_mbps(fabric, *racks)
    if not fastest_mbps:
        return
    least = ceil(request.least_mbps / fastest_mbps)
    for circuits in range(min(paths_per_pair, least - 1), 1, -1):
        yield replace(request, bandwidth_mbps=circuits * fastest_mbps, minimum_mbps=None)


def _divided(
    request: ReservationRequest,
    end: str,
    servers: Sequence[Server],
    circuits: int,
    fastest_mbps: float,
) -> tuple[ReservationRequest, ...]:
    parts = []
    for place, server in enumerate(servers):
        sharing = len(range(place % circuits, len(servers), circuits))
        share = 1 / (circuits * sharing)
        minimum, transfer = request.minimum_mbps, request.transfer
        mbps = request.bandwidth_mbps * share if transfer is None else fastest_mbps / sharing
        if transfer is not None:
            transfer = replace(transfer, megabytes=transfer.megabytes * share)
        parts.append(
            replace(
                request,
                src=server.name if end == "src" else request.src,
                dst=server.name if end == "dst" else request.dst,
                bandwidth_mbps=mbps,
                transfer=transfer,
                minimum_mbps=None if minimum is None else minimum * share,
            )
        )
    return tuple(sorted(parts, key=lambda part: -part.bandwidth_mbps))
