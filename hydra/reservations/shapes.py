"""Shapes: reservations between racks in a pattern, admitted whole under a common id.

The id is the group of the reservations. The book, the calendar and the journal hold reservations
only: each has its place in the shape (:class:`hydra.reservations.reservation.ShapeEdge`), and the
state of the shape is derived from the states of its reservations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import repeat
from typing import Final

from hydra.columns import make
from hydra.errors import AdmissionError, UnknownName
from hydra.lifecycle import ReservationState
from hydra.model import Fabric
from hydra.reservations.bundle import Bundle, bundle_of
from hydra.reservations.patterns import edges_of
from hydra.reservations.reservation import Reservation, ReservationRequest, ShapeEdge

MATRIX: Final = "matrix"
"""Pattern of a shape whose edges are listed one by one."""
AGAIN: Final = "release the shape and ask for it again"
KEPT: Final = "until then, the other edges keep their bandwidth"
_NAMED: Final = 4
"""Number of edges that a reason names."""

_LOST: Final = frozenset({ReservationState.FAILED, ReservationState.PREEMPTED})


class ShapeState(StrEnum):
    """State of a shape, derived from its reservations."""

    HELD = "held"
    SCHEDULED = "scheduled"
    ACTIVATING = "activating"
    READY = "ready"
    """Every edge has its circuits."""
    DEGRADED = "degraded"
    """An edge is lost, or gets another path; other edges keep their bandwidth."""
    FAILED = "failed"
    """All edges are lost."""
    OVER = "over"
    """Released, cancelled or expired."""


_NOT_READY: Final = {
    ReservationState.HELD: ShapeState.HELD,
    ReservationState.COMMITTED: ShapeState.SCHEDULED,
    ReservationState.SCHEDULED: ShapeState.SCHEDULED,
    ReservationState.ACTIVATING: ShapeState.ACTIVATING,
}
"""States of edges that keep a whole shape from being ready; the first that occurs counts."""


@dataclass(frozen=True, slots=True)
class ShapeRequest:
    """Request for a shape; the values are checked by the admission of its reservations."""

    pattern: str
    racks: tuple[str, ...]
    """Names of racks or servers; empty: the admission chooses, see :attr:`choose`."""
    edges: tuple[tuple[int, int, float], ...]
    """Positions of both racks, and the edge's share of :attr:`mbps`; the largest shares first."""
    mbps: float | None
    """None: the highest rate that fits."""
    wish: ReservationRequest
    """Times, class, owner and quota of each reservation; the ends are replaced."""
    choose: int = 0
    """Number of racks that the admission chooses; 0: the racks are given."""
    among: tuple[str, ...] = ()
    """Racks to choose from; empty: all."""

    def requests(self, mbps: float) -> list[ReservationRequest]:
        """A request for each edge."""
        number, names = len(self.edges), self.racks
        srcs, dsts, shares = zip(*self.edges, strict=True)
        edges = make(
            ShapeEdge,
            number,
            pattern=repeat(self.pattern),
            src=srcs,
            dst=dsts,
            racks=repeat(len(names)),
            choice=repeat(""),
        )
        of_each = {
            "src": [names[src] for src in srcs],
            "dst": [names[dst] for dst in dsts],
            "bandwidth_mbps": [mbps * share for share in shares],
            "shape": edges,
        }
        same = {
            field.name: repeat(getattr(self.wish, field.name))
            for field in fields(ReservationRequest)
            if field.name not in of_each
        }
        return make(ReservationRequest, number, **same, **of_each)

    def without(self, name: str) -> ShapeRequest | None:
        """The same pattern without a rack; in ``pairs``, without its partner. None: no shape is
        left.
        """
        place = self.racks.index(name)
        gone = {place, place ^ 1} if self.pattern == "pairs" else {place}
        if self.pattern == MATRIX:
            kept = [edge for edge in self.edges if gone.isdisjoint(edge[:2])]
            used = sorted({end for edge in kept for end in edge[:2]})
            at = {old: new for new, old in enumerate(used)}
            edges = tuple((at[src], at[dst], share) for src, dst, share in kept)
            racks = tuple(self.racks[old] for old in used)
        else:
            racks = tuple(rack for at, rack in enumerate(self.racks) if at not in gone)
            edges = _whole_edges(self.pattern, len(racks))
        return replace(self, racks=racks, edges=edges) if edges else None


def _whole_edges(pattern: str, racks: int) -> tuple[tuple[int, int, float], ...]:
    try:
        return tuple((src, dst, 1.0) for src, dst in edges_of(pattern, racks))
    except AdmissionError:
        return ()


def pattern_request(
    pattern: str, racks: Sequence[str], mbps: float | None, wish: ReservationRequest
) -> ShapeRequest:
    """A shape with the same rate at each edge. Raises AdmissionError if the racks do not suit."""
    _check_once(racks)
    edges = tuple((src, dst, 1.0) for src, dst in edges_of(pattern, len(racks)))
    return ShapeRequest(pattern, tuple(racks), edges, mbps, wish)


def chosen_request(
    pattern: str,
    number: int,
    among: Sequence[str],
    mbps: float | None,
    wish: ReservationRequest,
) -> ShapeRequest:
    """A shape of a number of racks, chosen by the admission ``among`` racks (empty: all).

    Raises AdmissionError if the number does not suit the pattern or the list.
    """
    if among and number > len(among):
        raise AdmissionError(
            f"{number} racks of {len(among)} are asked for: name more racks to choose from, or "
            f"ask for {len(among)} at most"
        )
    _check_once(among)
    edges = tuple((src, dst, 1.0) for src, dst in edges_of(pattern, number))
    return ShapeRequest(pattern, (), edges, mbps, wish, number, tuple(among))


def _check_once(racks: Iterable[str]) -> None:
    for name, count in Counter(racks).items():
        if count > 1:
            raise AdmissionError(f"rack {name} is named twice: name each rack once")


def matrix_request(
    rates: Sequence[tuple[str, str, float]], wish: ReservationRequest, *, most: bool = False
) -> ShapeRequest:
    """A shape of pairs, each with its own rate in Mb/s; with ``most``, the highest rates in the
    same proportion.

    Raises AdmissionError for a pair that occurs twice.
    """
    racks = tuple(dict.fromkeys(name for src, dst, _ in rates for name in (src, dst)))
    for pair, count in Counter(frozenset(ends) for *ends, _ in rates).items():
        if count > 1:
            raise AdmissionError(
                f"the pair {' and '.join(sorted(pair))} is named twice: a reservation holds both "
                "directions, so name the pair once, with the larger rate"
            )
    largest = max(mbps for _, _, mbps in rates)
    at = {name: place for place, name in enumerate(racks)}
    falling = sorted(rates, key=lambda rate: -rate[2])
    edges = tuple((at[src], at[dst], mbps / largest) for src, dst, mbps in falling)
    return ShapeRequest(MATRIX, racks, edges, None if most else largest, wish)


# --- state --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape as derived from its reservations."""

    id: str
    pattern: str
    racks: tuple[str, ...]
    """As named in the request; without racks whose reservations are forgotten."""
    state: ShapeState
    reason: str
    """Edges that are not as promised, and why."""
    to_do: str
    """Remedy; empty if nothing is to be done."""
    edges: tuple[Reservation, ...]
    """In the order of the pattern; a bundle is one edge."""
    choice: str = ""
    """How the racks were chosen; empty: the request named them."""
    lost: frozenset[tuple[str, str]] = frozenset()
    """Ends of lost edges."""
    instead: tuple[str, ...] = ()
    """Racks that fit now in place of a shape with lost edges
    (:func:`hydra.reservations.shape_search.with_remedy`); empty: none are known.
    """

    @property
    def request(self) -> ShapeRequest:
        """The request for the same shape: the same rates, from now or from its start on."""
        first = self.edges[0]
        ahead = any(edge.state is ReservationState.SCHEDULED for edge in self.edges)
        mbps = max(edge.bandwidth_mbps for edge in self.edges)
        at = {name: place for place, name in enumerate(self.racks)}
        wish = ReservationRequest(
            src="",
            dst="",
            bandwidth_mbps=0.0,
            end_unix_s=first.expires_unix_s,
            start_unix_s=first.starts_unix_s if ahead else None,
            owner=first.owner,
            priority=first.priority,
            service=first.service,
            constraints=first.constraints,
            protect=first.protect,
        )
        edges = _whole_edges(self.pattern, len(self.racks))
        if self.pattern == MATRIX:
            falling = sorted(self.edges, key=lambda edge: -edge.bandwidth_mbps)
            edges = tuple((at[e.src], at[e.dst], e.bandwidth_mbps / mbps) for e in falling)
        return ShapeRequest(self.pattern, self.racks, edges, mbps, wish)


def shapes_among(fabric: Fabric, reservations: Iterable[Reservation]) -> list[Shape]:
    """All shapes of the reservations, in the order of their first reservation."""
    members: dict[str, list[Reservation]] = {}
    for reservation in reservations:
        if reservation.shape is not None and reservation.group is not None:
            members.setdefault(reservation.group, []).append(reservation)
    return [shape_of(fabric, parts) for parts in members.values()]


def shape_of(fabric: Fabric, members: Sequence[Reservation]) -> Shape:
    """The shape of a group. Raises UnknownName if the group is no shape."""
    places: dict[tuple[int, int], list[Reservation]] = {}
    for reservation in members:
        if reservation.shape is None:
            raise UnknownName(
                f"group {reservation.group} is no shape: see /v1/groups/{reservation.group}"
            )
        places.setdefault((reservation.shape.src, reservation.shape.dst), []).append(reservation)
    edges = {
        place: bundle_of(fabric, parts) if parts[0].bundle is not None else parts[0]
        for place, parts in sorted(places.items())
    }
    pattern = members[0].shape.pattern if members[0].shape is not None else ""
    names: dict[int, str] = {}
    for (src, dst), edge in edges.items():
        names |= {src: edge.src, dst: edge.dst}
    racks = tuple(names[place] for place in sorted(names))
    state = _state(list(edges.values()))
    reason, to_do = "", ""
    lost: frozenset[tuple[str, str]] = frozenset()
    if state is ShapeState.HELD:
        to_do = "commit its reservations before held_until_unix_s"
    elif state in {ShapeState.DEGRADED, ShapeState.FAILED}:
        reason = _in_words([edge for edge in edges.values() if not _is_ready(edge)])
        lost = frozenset((edge.src, edge.dst) for edge in edges.values() if not edge.is_booked)
        to_do = f"{AGAIN}; {KEPT}" if lost else "wait: the controller brings up other paths"
    return Shape(
        id=members[0].group or "",
        pattern=pattern,
        racks=racks,
        state=state,
        reason=reason,
        to_do=to_do,
        edges=tuple(edges.values()),
        choice=next(
            (member.shape.choice for member in members if member.shape and member.shape.choice), ""
        ),
        lost=lost,
    )


def _state(edges: Sequence[Reservation]) -> ShapeState:
    states = {edge.state for edge in edges}
    if not any(edge.is_booked for edge in edges):
        return ShapeState.FAILED if states <= _LOST else ShapeState.OVER
    if not all(edge.is_booked for edge in edges):
        return ShapeState.DEGRADED
    for waiting, state in _NOT_READY.items():
        if waiting in states:
            return state
    return ShapeState.READY if all(map(_is_ready, edges)) else ShapeState.DEGRADED


def _is_ready(edge: Reservation) -> bool:
    """True if all circuits of an edge stand on the booked path."""
    parts = edge.parts if isinstance(edge, Bundle) else (edge,)
    return all(part.state is ReservationState.ACTIVE and part.path == part.booked for part in parts)


def _in_words(edges: Sequence[Reservation]) -> str:
    words = []
    for edge in edges[:_NAMED]:
        why = f" ({edge.reason})" if edge.reason else ""
        state = "gets another path" if edge.is_booked else f"is {edge.state.value}"
        words.append(f"{edge.src} to {edge.dst} {state}{why}")
    more = len(edges) - _NAMED
    return "; ".join(words) + (f"; and {more} more edges" if more > 0 else "")
