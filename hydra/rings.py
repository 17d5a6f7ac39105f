"""Rings of one-way circuits: every sending port receives light from another circuit.

Ethernet treats a port without light as dead, and a dead port sends nothing. If every sender is to
have light, one-way circuits form rings: each port feeds the next, the last port feeds the first. A
change of a circuit affects the whole ring: while a mirror moves, a port is dark, and so is the next
port. A duplex circuit is a ring by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from hydra.model import Circuit, PortId


def whole_rings(circuits: Iterable[Circuit]) -> frozenset[Circuit]:
    """Remaining circuits after repeatedly removing circuits with an unlit sender."""
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
    """The rings among ``circuits`` that contain circuits of ``some``."""
    if not some:
        return frozenset()
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
    """True for one-way circuits; all circuits of a fabric have the same direction type."""
    return any(circuit.one_way for circuit in islice(circuits, 1))


def closing(edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs (sender, receiver) that close open chains to rings, from the end to the start of each
    chain.

    Each port sends to at most one port, and receives from at most one port.
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
