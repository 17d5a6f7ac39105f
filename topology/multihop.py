"""The HydRA topology heuristic (Christodoulopoulos et al., JOCN 2015, section III.B.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from numpy.typing import ArrayLike

from hydra.model import Topology
from topology.drafts import Draft, Ground
from topology.problem import (
    RATE_TOLERANCE_MBPS,
    Budget,
    FabricArrays,
    PlanResult,
    Reserved,
    measure,
    pair_demands,
    validate_demand,
)
from topology.rounds import Rule

_DIRECT_SHARES = (1.0, 0.875, 0.75, 0.625, 0.5)
_FURTHER_ORDERS = (1, 2)
"""Orders of equal demands to try beside the first: a single hash can be unlucky."""


def plan_hydra_bfs(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """Plan circuits and paths of at most ``budget.max_hops`` hops for ``demand``.

    ``demand`` has shape (N, N), Mbps from row to column. A pair of racks wants the larger of its
    two directions and gets one path. Pairs are taken largest first in rounds h = 1, 2, …, H. A
    round serves the pairs reached by a breadth-first search of depth h on the auxiliary graph,
    whose links are pairs of free ports on a plane, and circuits with capacity left. In round 1
    every path is a circuit of its own. A served pair leaves the ordering and books the smaller of
    its demand and the capacity left on the scarcest circuit of its path.

    Choices that the paper leaves open: pairs of equal demands go by
    :func:`~topology.problem.tie_break`; among shortest paths the lexicographically smallest rack
    sequence; for a hop a circuit with capacity for the whole demand, then a new circuit (one in
    ``current`` first, then the lowest plane; of ports that carry the whole demand, else of the
    fastest free ports), then a circuit with some capacity (Boolean demands only). A hop runs
    between racks of the budget, on its planes or on circuits that stay.

    With ``budget.paths_per_pair`` above one (Boolean demands; None is one), the rounds are run
    again, up to the given number in all, for the unserved rest of pairs with a path, the largest
    first, on the ports and capacity left. Switches spread a pair's flows evenly over its paths, so
    a further path counts only if the pair gets more. Pairs with a reserved path have no other path.

    The result holds the circuits and paths that must stay (see :mod:`topology.standing`), and
    beyond them only circuits with a path. The same input gives the same result.

    Cost: O(H·N²) searches of O(K·N / 64) operations on words; of O(K²·N / 64) beyond two hops.

    Raises PlanError for a bad demand entry, an impossible budget, or pinned paths that do not fit.
    """
    ground = Ground.of(fabric, demand, current, reserved, budget.as_published())
    return ground.result(ground.draft(Rule(whole=not budget.boolean, partial=budget.boolean)))


def plan_hydra_bfs_plus(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """:func:`plan_hydra_bfs` several times with other rules; the plan that serves most counts.

    If ``budget.paths_per_pair`` is None, a pair gets as many paths as its demand can use.

    The rules differ in the relays (the first found, or those with the most capacity left, which
    spreads the load), in the number of a rack's ports that round 1 may take (the rest is left to
    rounds with more hops), in whether pairs that fit as a whole go before pairs that fit in part,
    and in the order of equal demands. Rules that are the same on a fabric are tried once. Between
    equal plans the earlier plan counts, and the paper's own rule is the first. Trying ends when all
    demand is served, or ``budget.expired()``.

    Each circuit in use that may change counts for ``budget.disturbance_mbps``: a plan that gives up
    the circuit must serve that much more. If the cost is above zero, each rule is also tried with
    all such circuits kept.

    Raises PlanError as :func:`plan_hydra_bfs` does.
    """
    ground = Ground.of(fabric, demand, current, reserved, budget)
    everything_mbps = float(ground.open_mbps.sum()) - RATE_TOLERANCE_MBPS
    drafts = _drafts(ground)
    best, most_mbps = next(drafts)
    while most_mbps < everything_mbps and not budget.expired():
        try:
            draft, worth_mbps = next(drafts)
        except StopIteration:
            break
        if worth_mbps > most_mbps + RATE_TOLERANCE_MBPS:
            best, most_mbps = draft, worth_mbps
    return ground.result(best)


def keep_current(
    fabric: FabricArrays,
    demand: ArrayLike,
    current: Topology,
    reserved: Reserved,
    budget: Budget,
) -> PlanResult:
    """``current`` unchanged, with the part of ``demand`` served: a baseline.

    Raises PlanError for a bad demand entry or budget.
    """
    pairs = pair_demands(validate_demand(demand, fabric.n_racks))
    budget.check(fabric)
    return measure(fabric, pairs, current, reserved)


def _portfolio(budget: Budget) -> Iterator[Rule]:
    """Rules for the rounds: the paper's first, then further rules, the most promising first."""
    plain = Rule(whole=not budget.boolean, partial=budget.boolean)
    yield plain
    for share in _DIRECT_SHARES:
        yield replace(plain, widest=True, direct_share=share)
    for order in _FURTHER_ORDERS:
        yield replace(plain, order=order)
        yield replace(plain, order=order, widest=True, direct_share=_DIRECT_SHARES[order])
    for share in _DIRECT_SHARES[1:]:
        yield replace(plain, direct_share=share)
    if budget.boolean:
        for share in _DIRECT_SHARES[::2]:
            yield Rule(whole=True, partial=True, widest=True, direct_share=share)


def _differing(rules: Iterable[Rule], fabric: FabricArrays) -> Iterator[Rule]:
    """The rules that differ here: with few ports, several shares mean the same number."""
    tried = set()
    for rule in rules:
        meaning = replace(rule, direct_share=1.0), rule.direct_ports(fabric).tobytes()
        if meaning not in tried:
            tried.add(meaning)
            yield rule


def _drafts(ground: Ground) -> Iterator[tuple[Draft, float]]:
    """Drafts with their worth in Mbps: the demand served, less the cost of the change."""
    disturbance_mbps = ground.budget.disturbance_mbps
    in_use = ground.in_use() if disturbance_mbps > 0 else []
    for rule in _differing(_portfolio(ground.budget), ground.fabric):
        for kept in ([], in_use) if in_use else ([],):
            draft = ground.draft(rule, kept)
            given_up = len(in_use) - draft.count_of(in_use)
            yield draft, ground.served_mbps(draft) - disturbance_mbps * given_up
