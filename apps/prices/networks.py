"""Prices of joining racks: by planes and a low-rate network, or by a fat tree (HydRA, IV)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

from apps.prices.files import RackPrices

_STEPS: Final = 60
"""Halvings of a search by price: more than a float has digits."""


@dataclass(frozen=True, slots=True)
class Position:
    """A line of a bill of materials."""

    item: str
    what: str
    count: float
    usd_each: float
    watt_each: float
    replaced: bool

    @property
    def usd(self) -> float:
        return self.count * self.usd_each


@dataclass(frozen=True, slots=True)
class Bill:
    """A network's bill of materials."""

    network: str
    positions: tuple[Position, ...]

    @property
    def usd(self) -> float:
        return sum(position.usd for position in self.positions)

    @property
    def watt(self) -> float:
        return sum(position.count * position.watt_each for position in self.positions)

    @property
    def upgrade_usd(self) -> float:
        """Price of the items that a higher rate replaces, at present prices."""
        return sum(position.usd for position in self.positions if position.replaced)

    @property
    def dearest(self) -> Position:
        """The position with the largest part of the price."""
        return max(self.positions, key=lambda position: position.usd)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published statement on two networks, beside the result of the price file."""

    hydra: Bill
    fat_tree: Bill
    cheaper_percent: float
    """Percentage by which HydRA is cheaper."""
    published_percent: float
    where: str
    missing_usd: float
    """Additional cost of HydRA that would reproduce the published figure."""


def optical_switches(racks: int, ports: int) -> int:
    """Optical switches of ``ports`` ports in a plane of ``racks`` racks.

    Racks beyond a switch's ports need a folded Clos network: leaves have half of their ports down.
    """
    return 1 if racks <= ports else ceil(racks / (ports // 2)) + ceil(racks / ports)


def hydra_bill(prices: RackPrices, planes: int) -> Bill:
    """Bill of a network with ``planes`` optical switches (Table I)."""
    servers = prices.racks * prices.servers_per_rack
    units = {
        "rack": float(prices.racks),
        "server": float(servers),
        "plane": float(planes * optical_switches(prices.racks, prices.plane_ports or prices.racks)),
        "rack_plane": float(prices.racks * planes),
    }
    terms = {name: dict[str, float](item.hydra.items()) for name, item in prices.items.items()}
    return _bill(f"HydRA, K = {planes}", prices, terms, units)


def fat_tree_bill(prices: RackPrices, oversubscription: float) -> Bill:
    """Bill of a three-level fat tree oversubscribed β to 1 (Table I).

    Bandwidth shrinks by √β from each level to the next.
    """
    units: dict[str, float] = {}
    servers = prices.racks * prices.servers_per_rack
    for unit, number in (("rack", prices.racks), ("server", servers)):
        units[unit] = float(number)
        units[f"{unit}_middle"] = number / sqrt(oversubscription)
        units[f"{unit}_top"] = number / oversubscription
    terms = {name: dict[str, float](item.fat_tree.items()) for name, item in prices.items.items()}
    return _bill(f"fat tree, β = {oversubscription:g}", prices, terms, units)


def equal_cost(prices: RackPrices, planes: int) -> float | None:
    """The oversubscription β of the fat tree that costs as much as HydRA with ``planes`` planes.

    None if every fat tree is cheaper, or dearer.
    """
    usd = hydra_bill(prices, planes).usd
    low, high = 1.0, 1e12
    if not fat_tree_bill(prices, high).usd <= usd <= fat_tree_bill(prices, low).usd:
        return None
    for _ in range(_STEPS):
        middle = sqrt(low * high)
        if fat_tree_bill(prices, middle).usd > usd:
            low = middle
        else:
            high = middle
    return high


def comparisons(prices: RackPrices) -> list[Comparison]:
    """The published statements in the price file."""
    found = []
    for pair in prices.published:
        hydra = hydra_bill(prices, pair.planes)
        fat_tree = fat_tree_bill(prices, pair.oversubscription)
        saved = 1 - hydra.usd / fat_tree.usd if fat_tree.usd else 0.0
        found.append(
            Comparison(
                hydra,
                fat_tree,
                cheaper_percent=100 * saved,
                published_percent=pair.cheaper_percent,
                where=pair.where,
                missing_usd=fat_tree.usd * (1 - pair.cheaper_percent / 100) - hydra.usd,
            )
        )
    return found


def _bill(
    network: str,
    prices: RackPrices,
    terms: Mapping[str, Mapping[str, float]],
    units: Mapping[str, float],
) -> Bill:
    return Bill(
        network,
        tuple(
            Position(
                name,
                item.what,
                count=sum(factor * units[unit] for unit, factor in terms[name].items()),
                usd_each=item.usd,
                watt_each=item.watt,
                replaced=item.replaced,
            )
            for name, item in prices.items.items()
            if terms[name]
        ),
    )
