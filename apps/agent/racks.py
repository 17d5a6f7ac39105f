"""Racks of addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from hydra.demand.backlog import Waiting

_MOST_REMEMBERED: Final = 65_536


class RackFinder:
    """Looks addresses up in the racks' prefixes; the prefixes do not overlap."""

    def __init__(self, prefixes: Mapping[str, Sequence[str]]) -> None:
        """Racks' prefixes by name. Raises ValueError for a text that is no prefix."""
        self._racks: dict[tuple[int, int, int], str] = {}
        for rack, texts in prefixes.items():
            for network in map(ip_network, texts):
                shift = network.max_prefixlen - network.prefixlen
                key = network.version, shift, int(network.network_address) >> shift
                self._racks[key] = rack
        self._shifts = sorted({(version, shift) for version, shift, _ in self._racks})
        self._known: dict[bytes, str | None] = {}

    def rack_of(self, address: bytes) -> str | None:
        """The rack of an address of 4 or 16 bytes, perhaps a mapped IPv4 address; None if in no
        rack.
        """
        if address in self._known:
            return self._known[address]
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        found = self._known[address] = self._look_up(unmapped(ip_address(address)))
        return found

    def _look_up(self, address: IPv4Address | IPv6Address) -> str | None:
        number = int(address)
        for version, shift in self._shifts:
            if version == address.version:
                rack = self._racks.get((version, shift, number >> shift))
                if rack is not None:
                    return rack
        return None

    def by_rack(self, waiting: Iterable[tuple[bytes, Waiting]]) -> dict[str, Waiting]:
        """Sums for each rack; addresses outside all racks are left out."""
        octets: Counter[str] = Counter()
        connections: Counter[str] = Counter()
        for address, share in waiting:
            rack = self.rack_of(address)
            if rack is not None:
                octets[rack] += share.octets
                connections[rack] += share.connections
        return {rack: Waiting(octets[rack], connections[rack]) for rack in octets}


def unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address mapped by an IPv6 address; other addresses unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
