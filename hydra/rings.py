"""Rings of one-way circuits: every port that sends on one is lit by another.

Ethernet takes a port without light for dead, and a dead port sends nothing. If every sender is to
have light, one-way circuits form rings: each port feeds the next, the last one the first. A change
of one circuit concerns its whole ring: while one mirror moves, a port is dark, and so is the port
that it feeds. A duplex circuit is a ring of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from hydra.model import Circuit, PortId


def whole_rings(circuits: Iterable[Circuit]) -> frozenset[Circuit]:
    """Circuits that remain once those with an unlit sender are removed until there are none."""
    left = set(circuits)
    if not _one_way(left):
        return frozenset(left)
    while True:
        lit = {port for circuit in left for port in circuit.receivers}
        dark = {circuit for circuit in left if not lit.issuperset(circuit.senders)}
        if not dark:
            return frozenset(left)
        left -= dark


def rings_of(some: Collection[Circuit], circuits: Iterable[Circuit]) -> frozenset[Circuit]:
    """The rings among ``circuits`` that ``some`` of them are in."""
    found = set(some).intersection(circuits := frozenset(circuits))
    if not _one_way(found):
        return frozenset(found)
    by_port: dict[PortId, list[Circuit]] = {}
    for circuit in circuits:
        for end in circuit.ends:
            by_port.setdefault(end, []).append(circuit)
    waiting = list(found)
    while waiting:
        for end in waiting.pop().ends:
            fresh = [circuit for circuit in by_port[end] if circuit not in found]
            found.update(fresh)
            waiting.extend(fresh)
    return frozenset(found)


def _one_way(circuits: Collection[Circuit]) -> bool:
    """True if these are one-way: a fabric has circuits of one kind."""
    return any(circuit.one_way for circuit in islice(circuits, 1))


def closing(edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs (sender, receiver) that close open chains to rings, from each one's end to its start.

    No port sends to two, and none receives from two.
    """
    following = dict(edges)
    fed = set(following.values())
    missing = []
    for start in sorted(following.keys() - fed):
        end = start
        while end in following:
            end = following[end]
        missing.append((end, start))
    return missing
