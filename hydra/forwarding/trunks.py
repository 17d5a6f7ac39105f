"""VLAN membership of optical ports as arrays, for fabrics of ten thousand ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hydra.columns import IntArray, make, starts
from hydra.model import NetworkState, PortId, VlanId
from hydra.path_arrays import lanes_of, numbered
from hydra.roles import PortVlans


class Trunks(Mapping[PortId, PortVlans]):
    """The VLANs of each optical port, or the parking VLAN alone; equal to a dict with the same
    items.

    Creates :class:`~hydra.roles.PortVlans` objects only on access.
    """

    __slots__ = ("_made", "bits", "parking", "vlans")

    vlans: IntArray
    """Shape (V,), ascending: VLANs of paths."""
    bits: NDArray[np.uint8]
    """Shape (P, V / 8): a bit for each VLAN that a port carries. A port without VLANs carries
    ``parking``.
    """
    parking: VlanId

    def __init__(self, vlans: IntArray, bits: NDArray[np.uint8], parking: VlanId) -> None:
        self.vlans, self.bits, self.parking = vlans, bits, parking
        self._made: dict[PortId, PortVlans] | None = None

    @classmethod
    def of(cls, state: NetworkState, n_ports: int, parking: VlanId) -> Trunks:
        """The VLANs of the paths at each of ``n_ports`` ports."""
        lanes = lanes_of(state)
        table = lanes.paths.table
        vlans, place = numbered(lanes.vlan)
        of_hop = np.repeat(place, table.hops)
        carries = np.zeros((n_ports, len(vlans)), dtype=np.bool_)
        carries[table.hop_a, of_hop] = carries[table.hop_b, of_hop] = True
        return cls(vlans, np.packbits(carries, axis=1), parking)

    def without(self, vlans: frozenset[VlanId], ports: IntArray) -> Trunks:
        """A copy with ``vlans`` removed from ``ports``."""
        bits = self.bits.copy()
        bits[ports] &= ~np.packbits(np.isin(self.vlans, list(vlans)))
        return Trunks(self.vlans, bits, self.parking)

    def unlike(self, other: Trunks) -> NDArray[np.intp]:
        """Ports with a different membership in ``other``, ascending."""
        own, others = np.isin(self.vlans, other.vlans), np.isin(other.vlans, self.vlans)
        unlike = (self.bits & np.packbits(~own)).any(axis=1)
        unlike |= (other.bits & np.packbits(~others)).any(axis=1)
        if own.any():
            unlike |= (self._only(own) != other._only(others)).any(axis=1)
        return np.flatnonzero(unlike)

    def packed(self, ports: NDArray[np.intp]) -> PackedTrunks:
        """The membership of each of ``ports``."""
        return PackedTrunks(self.vlans, self.bits[ports], self.parking)

    def _only(self, chosen: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """``bits`` with a bit for each VLAN that is True in ``chosen``, shape (V,)."""
        if chosen.all():
            return self.bits
        carries = np.unpackbits(self.bits, axis=1, count=len(self.vlans))
        return np.packbits(carries[:, chosen], axis=1)

    def __len__(self) -> int:
        return len(self.bits)

    def __iter__(self) -> Iterator[PortId]:
        return map(PortId, range(len(self)))

    def __getitem__(self, port: PortId) -> PortVlans:
        return self._objects()[port]

    def _objects(self) -> dict[PortId, PortVlans]:
        if self._made is None:
            ports = np.arange(len(self))
            self._made = dict(zip(self, self.packed(ports).memberships(), strict=True))
        return self._made


@dataclass(frozen=True, slots=True, eq=False)
class PackedTrunks:
    """The VLANs of some ports, a bit each."""

    vlans: IntArray
    """Shape (V,)."""
    bits: NDArray[np.uint8]
    """Shape (ports, V / 8)."""
    parking: VlanId

    def memberships(self) -> list[PortVlans]:
        """The membership of each port: the same object for ports with the same VLANs."""
        bits = self.bits
        rows, width = bits.tobytes(), bits.shape[1]
        alike = [rows[width * place : width * (place + 1)] for place in range(len(bits))]
        place_of = {row: place for place, row in enumerate(alike)}
        carries = np.unpackbits(bits[list(place_of.values())], axis=1, count=len(self.vlans))
        vlans = cast(list[VlanId], self.vlans[np.nonzero(carries)[1]].tolist())
        bounds = starts(np.count_nonzero(carries, axis=1).astype(np.int32)).tolist()
        parked = frozenset({self.parking})
        tagged = (frozenset(vlans[first:last]) or parked for first, last in pairwise(bounds))
        made = make(PortVlans, len(place_of), tagged=tagged, native=repeat(None))
        return [*map(dict(zip(place_of, made, strict=True)).__getitem__, alike)]
