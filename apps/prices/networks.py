"""Prices of joining racks: by planes and a low-rate network, or by a fat tree (HydRA, IV)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from apps.prices.files import RackPrices


@dataclass(frozen=True, slots=True)
class Position:
    """A line of a bill of materials."""

    item: str
    what: str
    count: float
    usd_each: float

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


def hydra_bill(prices: RackPrices, planes: int) -> Bill:
    """Bill of a network with ``planes`` optical switches (Table I)."""
    servers = prices.racks * prices.servers_per_rack
    units = {
        "rack": float(prices.racks),
        "server": float(servers),
        "plane": float(planes),
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
            )
            for name, item in prices.items.items()
            if terms[name]
        ),
    )
