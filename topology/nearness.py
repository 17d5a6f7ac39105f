"""Racks in nested groups by the circuits between them, for schedulers that know trees or blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topology.matching import heaviest_matching


@dataclass(frozen=True, slots=True)
class Group:
    """Racks joined by circuits: the members are racks or smaller groups, nearest first."""

    members: tuple[int | Group, ...]


def nearest_groups(rate: NDArray[np.int64]) -> list[int | Group]:
    """Group racks by the rates between them, as far as circuits lead.

    ``rate`` has shape (R, R), is symmetric, and counts only off its diagonal. In each round a
    heaviest matching (:func:`~topology.matching.heaviest_matching`) pairs groups; a group that
    stays alone joins the group with the highest rate to it. Each round halves the number of groups
    of a connected part at least, so groups nest at most log2(R) deep. Racks without a circuit stay
    alone.
    """
    groups: list[int | Group] = list(range(len(rate)))
    rate = _off_diagonal(rate)
    while rate.any():
        mate = heaviest_matching(rate).mate
        first = np.arange(len(groups))
        first[mate >= 0] = np.minimum(first, mate)[mate >= 0]
        alone = np.flatnonzero((mate < 0) & rate.any(axis=1))
        first[alone] = first[rate[alone].argmax(axis=1)]
        merged = [np.flatnonzero(first == lowest).tolist() for lowest in np.unique(first)]
        groups = [
            groups[members[0]] if len(members) == 1 else Group(tuple(groups[at] for at in members))
            for members in merged
        ]
        rate = _merged(rate, merged)
    return groups


def block_order(rate: NDArray[np.int64]) -> list[int]:
    """All racks in an order for aligned blocks of 2, 4, 8, … racks with high rates inside.

    ``rate`` as in :func:`nearest_groups`. In each round a heaviest matching pairs the blocks, and
    blocks without a circuit to a free block are paired in their order. One block at most is
    incomplete, and comes last.
    """
    blocks = [[rack] for rack in range(len(rate))]
    rate = _off_diagonal(rate)
    while len(blocks) > 1:
        full = len(blocks[0])
        if len(blocks) % 2 and len(blocks[-1]) < full:
            rate[-1] = rate[:, -1] = 0
        mate = heaviest_matching(rate).mate
        pairs = [[a, int(b)] for a, b in enumerate(mate) if a < b]
        left = [int(at) for at in np.flatnonzero(mate < 0)]
        pairs += [left[at : at + 2] for at in range(0, len(left), 2)]
        pairs.sort(key=lambda pair: (sum(-len(blocks[at]) for at in pair), pair))
        blocks = [[rack for at in pair for rack in blocks[at]] for pair in pairs]
        rate = _merged(rate, pairs)
    return blocks[0] if blocks else []


def _off_diagonal(rate: NDArray[np.int64]) -> NDArray[np.int64]:
    rate = rate.copy()
    np.fill_diagonal(rate, 0)
    return rate


def _merged(rate: NDArray[np.int64], groups: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Rates between merged groups."""
    is_in = np.zeros((len(groups), len(rate)), dtype=np.int64)
    for group, members in enumerate(groups):
        is_in[group, members] = 1
    return _off_diagonal(is_in @ rate @ is_in.T)
