"""A topology algorithm: the busiest racks get circuits first."""

from topology.algorithms import Entry
from topology.direct import Joins, direct


@direct
def busiest_first(joins: Joins) -> None:
    """Take racks by the sum of their demands; join each to the partners it has most for."""
    total_mbps = joins.wanted_mbps.sum(axis=1)

    def busier_mbps(pair: tuple[int, int]) -> float:
        return float(max(total_mbps[list(pair)]))

    # Pairs of the same rack stay in the order of pairs(): the largest demand first.
    for a, b in sorted(joins.pairs(), key=busier_mbps, reverse=True):
        for plane in joins.planes(a, b)[:1]:
            joins.join(a, b, plane)


BUSIEST_FIRST = Entry(busiest_first, "circuits for the busiest racks first", "hydra_example")
