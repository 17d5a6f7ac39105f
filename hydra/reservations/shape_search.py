"""Admission of shapes: the highest rate, an order of the edges that fits, or a refusal with what
would fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Final, TypeVar

from hydra.errors import AdmissionError, Alternative, DeviceMissing, WrongRequest
from hydra.model import Fabric
from hydra.names import rack_of
from hydra.reservations.admission import fastest_circuit_mbps, moment
from hydra.reservations.booking import ROUNDING_MBPS, at_most_mbps
from hydra.reservations.reservation import ReservationRequest
from hydra.reservations.shapes import AGAIN, KEPT, MATRIX, Shape, ShapeRequest

_TRIED: Final = 4_000
"""Number of edges tried in search of a fit, beside two trials of the whole shape."""
_REFUSED: Final = 8
"""Number of refusals that end a trial."""
_REFUSAL: Final = 4
"""A refusal counts as so many edges tried."""
_ORDERS: Final = 3
"""Number of orders in which the edges are tried."""
_SHARING: Final = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
"""Numbers of edges that share a circuit evenly, tried in the search for the highest rate."""
_HINTS: Final = 4
"""Number of rates from refusals that refine the highest rate."""
_CHOICES: Final = 16
"""Number of sets of racks tried at a rate."""
_NAMED: Final = 4
"""Number of racks that the words about a choice name."""
_LEFT_OUT: Final = 3
"""Largest number of racks that an alternative leaves out."""

_REMEDIES: Final = ("; ask for at most ", "; start at ")
"""Begin of the remedies in the refusal of an edge."""

_T = TypeVar("_T")
_Requests = Sequence[ReservationRequest]
Room = tuple[float, float]
"""Free Mb/s of a rack: at ports without circuits, and on booked circuits."""
Rooms = Callable[[ReservationRequest], Sequence[Room]]
"""Room of each rack during the time of a request."""
Refused = Mapping[int, AdmissionError]
"""Refusals, by the place of the request among all requests."""
Trial = Callable[[_Requests, int, bool], Refused]
"""Tries requests together, in the given order, without effect; ends after so many refusals. True:
the refusals need no words and no alternatives.
"""


def admit_shape(
    fabric: Fabric,
    shape: ShapeRequest,
    reserve: Callable[[_Requests], _T],
    trial: Trial,
    rooms: Rooms,
) -> _T:
    """Reserve all edges by ``reserve``, which admits all requests or none, in the given order.

    If the order of the pattern does not fit, refused edges go first (squeaky wheel optimization,
    Joslin and Clements 1999). Raises UnknownName, and AdmissionError with the highest rate and the
    largest set of racks that were found to fit; nothing is held then.
    """
    search = _Search(fabric, trial, len(shape.edges))
    if shape.choose:
        shape = search.choose_from(shape, rooms(shape.wish))
    mbps = shape.mbps or search.steps_mbps(shape)[0]
    requests = shape.requests(mbps)
    try:
        return reserve(search.with_choice(requests, shape))
    except DeviceMissing:
        if not shape.choose:
            raise
        error = None
    except AdmissionError as refused:
        error = refused
    if shape.mbps is not None:
        if (order := search.fitting_order(shape, mbps)) is None:
            raise search.refusal(shape, mbps, error)
        return reserve(search.with_choice(order, shape))
    if (found := search.highest(shape)) is None:
        raise search.refusal(shape, search.steps_mbps(shape)[-1])
    return reserve(search.with_choice(found[1], shape))


def with_remedy(fabric: Fabric, shape: Shape, trial: Trial) -> Shape:
    """A shape with lost edges, and the racks that fit in its place now.

    ``trial`` tries requests as if the shape were released.
    """
    search, whole = _Search(fabric, trial, len(shape.edges)), shape.request
    racks = whole.racks
    lost = [at for at, e in enumerate(whole.edges) if (racks[e[0]], racks[e[1]]) in shape.lost]
    if not lost:
        return shape
    mbps = whole.mbps or 0.0
    if search.fitting_order(whole, mbps) is not None:
        to_do, instead = f"{AGAIN}: the same racks fit now; {KEPT}", shape.racks
    elif (smaller := search.smaller(whole, mbps, lost)) is not None:
        missing = ", ".join(name for name in shape.racks if name not in smaller.racks)
        to_do, instead = f"{AGAIN}, without {missing}; {KEPT}", smaller.racks
    else:
        instead = ()
        to_do = (
            "release the shape and ask for a lower rate, or for other racks: at its rate, neither "
            f"its racks nor a part of its racks were found to fit now; {KEPT}"
        )
    return replace(shape, to_do=to_do, instead=instead)


class _Search:
    """Trials, up to a bound; beyond the bound, the search ends."""

    def __init__(self, fabric: Fabric, trial: Trial, edges: int) -> None:
        self._fabric, self._trial = fabric, trial
        self._remaining_effort = _TRIED + 2 * edges
        self._rooms: Sequence[Room] = ()
        self._sets = 0
        """Number of sets of racks that were tried."""

    # --- choice of racks ------------------------------------------------------------------------

    def choose_from(self, shape: ShapeRequest, rooms: Sequence[Room]) -> ShapeRequest:
        """The shape with the racks that have the most room, and all others :attr:`among` in the
        order of their room. Raises UnknownName, and WrongRequest if there are too few racks.
        """
        named: dict[int, str] = {}
        for name in shape.among or [rack.name for rack in self._fabric.racks if not rack.spine]:
            rack = rack_of(self._fabric, name)
            if rack in named:
                raise WrongRequest(
                    f"{named[rack]} and {name} are in rack {self._fabric.racks[rack].name}: name "
                    "each rack once",
                    "racks",
                )
            named[rack] = name
        if len(named) < shape.choose:
            raise WrongRequest(
                f"{shape.choose} racks are asked for, and the network has {len(named)}: ask for "
                f"{len(named)} at most",
                "racks",
            )
        self._rooms = rooms
        falling = sorted(named, key=lambda rack: tuple(-mbps for mbps in rooms[rack]))
        among = tuple(named[rack] for rack in falling)
        return replace(shape, racks=among[: shape.choose], among=among)

    def _chosen(self, shape: ShapeRequest, mbps: float) -> _Requests | None:
        """Requests of racks among all that may be chosen; None: no fit was found.

        In place of racks that touch all refused edges come the racks with the most room that have
        not been tried.
        """
        spare = list(reversed(shape.among[shape.choose :]))
        for _ in range(_CHOICES):
            requests = shape.requests(mbps)
            self._sets += 1
            refused = self._refused(requests)
            if refused is None:
                return None
            if not refused:
                return requests
            if not spare:
                return self._ordered(requests)
            racks = list(shape.racks)
            left = [shape.edges[place][:2] for place in refused]
            while left and spare:
                worst, _ = Counter(end for ends in left for end in ends).most_common(1)[0]
                racks[worst] = spare.pop()
                left = [ends for ends in left if worst not in ends]
            shape = replace(shape, racks=tuple(racks))
        return None

    def with_choice(self, requests: _Requests, shape: ShapeRequest) -> _Requests:
        """Requests that fit, the first with words about the choice of the racks."""
        if not shape.choose or requests[0].shape is None:
            return requests
        chosen = {name for request in requests for name in (request.src, request.dst)}
        least = min(self._rooms[rack_of(self._fabric, name)][0] for name in chosen)
        words = (
            f"{shape.choose} of {len(shape.among)} racks, by most free Mb/s at their ports during "
            f"the time; each chosen rack has {least:g} Mb/s or more free"
        )
        if missing := [name for name in shape.racks if name not in chosen]:
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            words += (
                f"; not {', '.join(missing[:_NAMED])}{more}, where the shape did not fit at this "
                f"rate; {self._sets} sets of racks were tried"
            )
        first = replace(requests[0], shape=replace(requests[0].shape, choice=words))
        return [first, *requests[1:]]

    def _refused(self, requests: _Requests, *, brief: bool = True) -> Refused | None:
        """Refusals of requests, up to :data:`_REFUSED`; None beyond the bound."""
        if self._remaining_effort <= 0:
            return None
        refused = self._trial(requests, _REFUSED, brief)
        self._remaining_effort -= len(requests) + _REFUSAL * len(refused)
        return refused

    def fitting_order(
        self, shape: ShapeRequest, mbps: float, *, far_off: bool = False
    ) -> _Requests | None:
        """The shape's requests in an order in which all fit; None if no order was found.

        ``far_off``: the rate may be far above the fitting rates (:meth:`_ordered`).
        """
        if shape.choose:
            return self._chosen(shape, mbps)
        return self._ordered(shape.requests(mbps), far_off=far_off)

    def _ordered(self, requests: _Requests, *, far_off: bool = False) -> _Requests | None:
        """``far_off``: give up if the trial of a further order ends early, and no later than the
        trial before, which ended early, too.
        """
        reached = -1
        for _ in range(_ORDERS):
            refused = self._refused(requests)
            if refused is None:
                return None
            if not refused:
                return requests
            ended_early = len(refused) == _REFUSED
            if far_off and ended_early and max(refused) <= reached:
                return None
            reached = max(refused) if ended_early else -1
            order = sorted(
                range(len(requests)),
                key=lambda at: (-requests[at].bandwidth_mbps, at not in refused),
            )
            requests = [requests[place] for place in order]
        return None

    # --- rates ----------------------------------------------------------------------------------

    def steps_mbps(self, shape: ShapeRequest) -> list[float]:
        """Rates to try, highest first: whole circuits, then even parts of a circuit.

        No rate is above the sum of a rack's ports, divided by the shares of the rack's edges.
        """
        ends = [rack_of(self._fabric, name) for name in shape.racks]
        shares = [0.0] * len(ends)
        for src, dst, share in shape.edges:
            shares[src] += share
            shares[dst] += share
        most = min(
            fsum(port.rate_mbps for port in self._fabric.ports_of(rack)) / share
            for rack, share in zip(ends, shares, strict=True)
        )
        circuit = min(
            fastest_circuit_mbps(self._fabric, ends[src], ends[dst]) / share
            for src, dst, share in shape.edges
        )
        if not circuit:
            return [1.0]  # the refusal names the rack without optical ports
        whole = int(most / circuit + ROUNDING_MBPS)
        steps = [circuit * number for number in range(whole, 1, -1)]
        steps += [circuit / number for number in _SHARING]
        return [step for step in steps if step <= most + ROUNDING_MBPS] or steps[-1:]

    def highest(
        self, shape: ShapeRequest, below_mbps: float | None = None
    ) -> tuple[float, _Requests] | None:
        """The highest rate found to fit, and requests in an order that fits; None: no rate."""
        steps = self.steps_mbps(shape)
        if below_mbps is not None:
            steps = [step for step in steps if step < below_mbps]
        found: tuple[float, _Requests] | None = None
        low, high = 0, len(steps)  # steps[:low] do not fit, steps[high:] fit
        while low < high:
            # The highest rate first, then the lowest, then the middle of the rest.
            place = 0 if not low else high - 1 if found is None else (low + high) // 2
            lowest = place == len(steps) - 1
            order = self.fitting_order(shape, steps[place], far_off=not lowest)
            if order is not None:
                found, high = (steps[place], order), place
            elif found is None and low:
                break
            else:
                low = place + 1
        above = steps[low - 1] if low else below_mbps
        for _ in range(_HINTS):
            hint = None if above is None else self._hint_mbps(shape, above)
            if hint is None or hint <= (found[0] if found else 0.0) + ROUNDING_MBPS:
                break
            order = self.fitting_order(shape, hint)
            if order is not None:
                return hint, order
            above = hint
        return found

    def _hint_mbps(self, shape: ShapeRequest, mbps: float) -> float | None:
        """The rate at which each edge refused at ``mbps`` would fit by itself."""
        requests = shape.requests(mbps)
        hints = []
        for place, error in (self._refused(requests, brief=False) or {}).items():
            lower = [
                alternative.bandwidth_mbps
                for alternative in error.alternatives
                if alternative.start_unix_s is None
            ]
            if not lower:
                return None
            hints.append(mbps * max(lower) / requests[place].bandwidth_mbps)
        return min(hints, default=None)

    # --- refusals -------------------------------------------------------------------------------

    def refusal(
        self, shape: ShapeRequest, mbps: float, error: AdmissionError | None = None
    ) -> AdmissionError:
        """The refusal of a shape at a rate, with what would fit instead.

        ``error`` is the refusal of an edge, if known.
        """
        refused = self._trial(shape.requests(mbps), _REFUSED, False)
        first = error or next(iter(refused.values()), None)
        if first is None:
            return AdmissionError("the network changed while the shape was planned: ask again")
        ways, alternatives = [], []
        lower = None if shape.mbps is None else self.highest(shape, mbps)
        if lower is not None:
            edges = "the largest edge" if shape.pattern == MATRIX else "each edge"
            ways.append(f"ask for at most {at_most_mbps(lower[0])} Mb/s at {edges}")
            alternatives.append(Alternative(round(lower[0], 6), None))
        if (smaller := self.smaller(shape, mbps, refused)) is not None:
            missing = [name for name in shape.racks if name not in smaller.racks]
            fewer = f"ask for {len(smaller.racks)} racks"
            ways.append(fewer if shape.choose else f"leave out {', '.join(missing)}")
            found = self.highest(smaller) if shape.mbps is None else None
            alternatives.append(Alternative(found[0] if found else mbps, None, racks=smaller.racks))
        if (later := self._later(shape, mbps, refused)) is not None:
            ways.append(f"start at {moment(later.start_unix_s or 0.0)}")
            alternatives.append(later)
        chosen = f" of {len(shape.among)}" if shape.choose else ""
        begun = f"the shape {shape.pattern} of {len(shape.racks)}{chosen} racks does not fit: "
        text = f"; {', or '.join(ways)}" if ways else ""
        public = f"{begun}{_cause(first.in_public)}{text}"
        return type(first)(f"{begun}{_cause(str(first))}{text}", alternatives, public)

    def _later(self, shape: ShapeRequest, mbps: float, refused: Refused) -> Alternative | None:
        """The latest of the times at which refused edges would fit, if the shape fits then."""
        offers = [alternative for error in refused.values() for alternative in error.alternatives]
        starts = [offer for offer in offers if offer.start_unix_s is not None]
        later = max(starts, key=lambda entry: entry.start_unix_s or 0.0, default=None)
        if later is None:
            return None
        start, end = later.start_unix_s, later.end_unix_s
        wish = replace(shape.wish, start_unix_s=start, end_unix_s=end)
        fits = self.fitting_order(replace(shape, wish=wish), mbps) is not None
        return Alternative(mbps, start, end) if fits else None

    def smaller(
        self, shape: ShapeRequest, mbps: float, refused: Iterable[int]
    ) -> ShapeRequest | None:
        """The shape without up to three racks of refused edges, if that fits."""
        for _ in range(_LEFT_OUT):
            ends = Counter(end for place in refused for end in shape.edges[place][:2])
            tried = []
            for place, _ in ends.most_common(2):
                smaller = shape.without(shape.racks[place])
                left = None if smaller is None else self._refused(smaller.requests(mbps))
                if smaller is None or left is None:
                    continue
                if not left:
                    return smaller
                tried.append((len(left), smaller, left))
            if not tried:
                return None
            _, shape, refused = min(tried, key=lambda entry: entry[0])
        return None


def _cause(text: str) -> str:
    """The refusal of an edge without remedies, which concern the edge alone."""
    for remedy in _REMEDIES:
        text = text.partition(remedy)[0]
    return text
