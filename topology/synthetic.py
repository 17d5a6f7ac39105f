"""Synthetic demand matrices for comparisons; the same seed gives the same matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from hydra.errors import PlanError, UnknownName
from hydra.model import DemandMatrix

_HOT_SHARE: Final = 0.1
"""Part of the racks that talk to many others; all other racks have a few partners."""
_PARTNERS: Final = 8
_SKEW: Final = 1.5
"""Standard deviation of the logarithm of a rack's weight."""


def _sparse(n: int, random: np.random.Generator) -> DemandMatrix:
    partners = np.full(n, min(_PARTNERS, n - 1))
    hot = random.permutation(n)[: max(1, round(n * _HOT_SHARE))]
    partners[hot] = max(min(_PARTNERS, n - 1), (n - 1) // 2)
    demand = np.zeros((n, n))
    for rack in range(n):
        others = random.choice(n - 1, size=int(partners[rack]), replace=False)
        others += others >= rack
        demand[rack, others] = random.uniform(1.0, 100.0, len(others))
    return demand


def _dense(n: int, _random: np.random.Generator) -> DemandMatrix:
    return np.ones((n, n)) - np.eye(n)


def _uniform(n: int, random: np.random.Generator) -> DemandMatrix:
    return random.uniform(1.0, 100.0, (n, n)) * (1 - np.eye(n))


def _gravity(n: int, random: np.random.Generator) -> DemandMatrix:
    sends, receives = random.lognormal(0.0, _SKEW, (2, n))
    return np.outer(sends, receives) * (1 - np.eye(n))


KINDS: Final[Mapping[str, Callable[[int, np.random.Generator], DemandMatrix]]] = MappingProxyType(
    {
        "sparse": _sparse,
        "dense": _dense,
        "uniform": _uniform,
        "gravity": _gravity,
    }
)
"""``sparse``: each rack has 8 partners, one rack in ten half of the others; ``dense``: all pairs
alike; ``uniform``: all pairs, at rates drawn evenly; ``gravity``: the product of log-normal weights
of the two racks.
"""


def synthetic_demand(kind: str, n: int, seed: int, busiest_mbps: float) -> DemandMatrix:
    """A matrix of one of :data:`KINDS`, shape (n, n), in Mbps.

    The matrix is scaled so that the busiest rack sends or receives ``busiest_mbps``. Raises
    UnknownName for an unknown kind, PlanError for a bad size or rate.
    """
    make = KINDS.get(kind)
    if make is None:
        raise UnknownName(f"no synthetic demand {kind!r}: choose one of {', '.join(KINDS)}")
    if n < 1:
        raise PlanError(f"a demand between {n} racks: at least 1 is needed")
    if not 0 <= busiest_mbps < float("inf"):
        raise PlanError(f"{busiest_mbps} Mbps at a rack: must be finite and not negative")
    if n == 1:
        return np.zeros((1, 1))
    demand = make(n, np.random.default_rng(seed))
    busiest = float(max(demand.sum(axis=0).max(), demand.sum(axis=1).max()))
    return demand * (busiest_mbps / busiest)
