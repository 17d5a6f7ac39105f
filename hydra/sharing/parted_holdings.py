"""Holdings computed again only where paths or reservations have changed.

Rack pairs and circuits that are joined by paths form a *part*. Two parts have no aggregate, no link
and no tally in common, so a change of one part leaves the holdings of all other parts as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hydra.model import Circuit, Fabric, NetworkState, Pair, Path, VlanId
from hydra.reservations.reservation import Reservation
from hydra.sharing.policing import Holdings, holdings

_Key = tuple[object, ...]
_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")


@dataclass(slots=True)
class _Part:
    """Rack pairs and circuits, their standing paths, and the reservations of the pairs."""

    elements: list[Pair | Circuit] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)

    def key(self, vlans: Mapping[Path, VlanId]) -> _Key:
        """Equal keys have equal holdings."""
        lanes = tuple((path, vlans[path]) for path in self.paths)
        return lanes, tuple(map(_reservation_key, self.reservations))


@dataclass(frozen=True, slots=True)
class PartedHoldings:
    """The holdings of all reservations, part by part."""

    _fabric: Fabric
    _parts: Mapping[_Key, Holdings] = field(default_factory=dict)
    whole: Holdings = field(default_factory=Holdings)
    """The holdings of all parts together."""

    def renewed(
        self, state: NetworkState, reservations: Iterable[Reservation]
    ) -> tuple[PartedHoldings, Holdings, Holdings]:
        """The holdings of ``reservations`` in ``state``, the holdings of the parts that are gone,
        and of the parts that are new. A changed part is in both.
        """
        vlans = state.vlans
        parts: dict[_Key, Holdings] = {}
        for part in _parts(state, reservations):
            key = part.key(vlans)
            known = self._parts.get(key)
            parts[key] = known or holdings(self._fabric, part.paths, vlans, part.reservations)
        gone = _together(_without(self._parts, parts))
        new = _together(_without(parts, self._parts))
        whole = self._exchanged(parts.values(), gone, new)
        return PartedHoldings(self._fabric, parts, whole), gone, new

    def _exchanged(self, parts: Iterable[Holdings], gone: Holdings, new: Holdings) -> Holdings:
        """The whole of ``parts``, with the parts ``new`` in place of the parts ``gone``."""
        return Holdings(
            tuple(flow for part in parts for flow in part.flows),
            exchanged(self.whole.routes, gone.routes, new.routes),
            exchanged(self.whole.remaining_mbps, gone.remaining_mbps, new.remaining_mbps),
            (self.whole.electrical - gone.electrical) | new.electrical,
            exchanged(self.whole.lanes, gone.lanes, new.lanes),
            exchanged(self.whole.standbys, gone.standbys, new.standbys),
        )


def exchanged(
    whole: Mapping[_KeyT, _ValueT], gone: Iterable[_KeyT], new: Mapping[_KeyT, _ValueT]
) -> dict[_KeyT, _ValueT]:
    """``whole`` with the entries ``new`` in place of the entries with the keys ``gone``."""
    made = dict(whole)
    for key in gone:
        made.pop(key, None)
    made.update(new)
    return made


def _without(parts: Mapping[_Key, Holdings], others: Mapping[_Key, Holdings]) -> list[Holdings]:
    return [part for key, part in parts.items() if others.get(key) is not part]


def _together(parts: Sequence[Holdings]) -> Holdings:
    """The holdings of several parts."""
    return Holdings(
        tuple(flow for part in parts for flow in part.flows),
        {key: links for part in parts for key, links in part.routes.items()},
        {link: mbps for part in parts for link, mbps in part.remaining_mbps.items()},
        frozenset().union(*(part.electrical for part in parts)),
        {key: lane for part in parts for key, lane in part.lanes.items()},
        {key: lanes for part in parts for key, lanes in part.standbys.items()},
    )


def _parts(state: NetworkState, reservations: Iterable[Reservation]) -> Iterator[_Part]:
    """The parts with reservations. Standing paths come in the order of the state."""
    placed = [reservation for reservation in reservations if reservation.paths]
    booked = dict.fromkeys(path for reservation in placed for path in reservation.paths)
    pairs = {(path.src, path.dst) for path in booked}
    circuits = {circuit for path in booked for circuit in path.circuits}
    standing = [
        path
        for path in state.topology.paths
        if (path.src, path.dst) in pairs or not circuits.isdisjoint(path.circuits)
    ]
    part_of: dict[Pair | Circuit, _Part] = {}
    for path in dict.fromkeys((*booked, *standing)):
        elements: tuple[Pair | Circuit, ...] = ((path.src, path.dst), *path.circuits)
        met = {id(part_of[element]): part_of[element] for element in elements if element in part_of}
        part, *others = met.values() or (_Part(),)
        part.elements += [element for element in elements if element not in part_of]
        for other in others:
            part.elements += other.elements
        for element in part.elements if others else elements:
            part_of[element] = part
    for path in standing:
        part_of[path.src, path.dst].paths.append(path)
    for reservation in placed:
        part_of[reservation.pair].reservations.append(reservation)
    parts = {id(part): part for part in part_of.values()}
    return (part for part in parts.values() if part.reservations)


def _reservation_key(reservation: Reservation) -> _Key:
    """The fields of a reservation that its holdings depend on."""
    return (
        reservation.id,
        reservation.booked,
        reservation.protection,
        reservation.src,
        reservation.dst,
        reservation.src_rack,
        reservation.dst_rack,
        reservation.bandwidth_mbps,
        reservation.service,
    )
