"""Topology algorithms by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NoReturn

from hydra.errors import PlanError, UnknownName
from hydra.plugins import Contributions
from topology.anytime import plan_anytime
from topology.bipartite import plan_b_matching, plan_helios
from topology.duplex import plan_tms_duplex
from topology.eclipse import plan_eclipse
from topology.lanes import plan_by_plane
from topology.multihop import keep_current, plan_hydra_bfs, plan_hydra_bfs_plus
from topology.pairing import plan_edmonds, plan_edmonds_perfect
from topology.problem import Algorithm, FabricArrays
from topology.schedules import (
    needs_one_rate_per_rack,
    plan_round_robin,
    plan_solstice,
    plan_tms,
    plan_tms_plus,
)


class Product(Enum):
    """Kind of plan that an algorithm makes."""

    CIRCUITS = "circuits"
    """Duplex circuits and paths over them."""
    ONE_WAY = "one-way light paths"
    SCHEDULE = "a schedule of configurations"


def _any_fabric(_fabric: FabricArrays) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Entry:
    """An algorithm, and its description for users."""

    plan: Algorithm
    summary: str
    """Description in one line."""
    source: str
    """Paper and section with the algorithm's definition."""
    product: Product = Product.CIRCUITS
    objection: Callable[[FabricArrays], str | None] = _any_fabric
    """Why the algorithm can't plan for a fabric, in words; None if the algorithm can."""
    spares: bool = False
    """True if the algorithm avoids giving up circuits in use (``Budget.disturbance_mbps``)."""
    one_path: bool = False
    """True if a pair gets one path, as published, unless the budget gives a number."""


CONTRIBUTED: Final = "hydra.algorithms"
"""Group of entry points with algorithms from other packages."""


def contributions(ours: Mapping[str, Entry]) -> Contributions[Entry]:
    """HydRA's algorithms, then algorithms of other packages; a name may be a place,
    ``module:object``.

    An unusable algorithm objects to every fabric, with the reason.
    """
    return Contributions(
        "algorithm", CONTRIBUTED, ours, flaw=_flaw, refused=_refused, by_place=True
    )


def _flaw(_name: str, found: object) -> str | None:
    if isinstance(found, Entry):
        return None
    return f"the object is a {type(found).__name__}, not a topology.algorithms.Entry"


def _refused(name: str, why: str) -> Entry:
    def refuse(*_arguments: Any, **_named: Any) -> NoReturn:
        raise PlanError(why)

    return Entry(refuse, "can't be used", name, objection=lambda _fabric: why)


ENTRIES: Final[Mapping[str, Entry]] = contributions(
    {
        "hydra-bfs": Entry(
            plan_hydra_bfs,
            "multi-hop circuits for the largest demands first, in rounds by hop distance",
            "HydRA, JOCN 2015, section III.B.3",
            one_path=True,
        ),
        "hydra-bfs+": Entry(
            plan_hydra_bfs_plus,
            "hydra-bfs by several rules for relays and port use: the best plan by served demand",
            "HydRA, JOCN 2015, section III.B.3; the rules are this project's",
            spares=True,
        ),
        "anytime": Entry(
            plan_anytime,
            "multi-hop circuits, constructed by several rules and improved by local search",
            "iterated local search on the rounds of HydRA, JOCN 2015, section III.B.3",
            spares=True,
        ),
        "edmonds": Entry(
            plan_edmonds,
            "a maximum-weight matching of the racks on each plane in turn",
            "c-Through, SIGCOMM 2010, section 3.2",
            spares=True,
            one_path=True,
        ),
        "edmonds-perfect": Entry(
            plan_edmonds_perfect,
            "a matching as edmonds, joining as many racks as possible, also without a demand",
            "c-Through, SIGCOMM 2010, section 3.2",
            spares=True,
            one_path=True,
        ),
        "helios": Entry(
            plan_helios,
            "a maximum-weight bipartite matching on each plane in turn",
            "Helios, SIGCOMM 2010, section 4.3.3",
            Product.ONE_WAY,
        ),
        "b-matching": Entry(
            plan_b_matching,
            "the light paths of highest traffic on all planes together, by minimum-cost flow",
            "minimum-cost flow, and König's edge colouring",
            Product.ONE_WAY,
        ),
        "tms": Entry(
            plan_tms,
            "the demand scaled and taken apart by Birkhoff and von Neumann, the longest slots",
            "Mordia, SIGCOMM 2013, section 3",
            Product.SCHEDULE,
            needs_one_rate_per_rack,
        ),
        "tms+": Entry(
            plan_tms_plus,
            "tms with each permutation the longest in the rest of the demand",
            "Mordia, SIGCOMM 2013, section 3",
            Product.SCHEDULE,
            needs_one_rate_per_rack,
        ),
        "tms-duplex": Entry(
            plan_tms_duplex,
            "tms for duplex circuits, by matchings: the plans of slotted sharing",
            "Mordia, SIGCOMM 2013, section 3; the matchings are this project's",
            Product.SCHEDULE,
            needs_one_rate_per_rack,
        ),
        "solstice": Entry(
            plan_solstice,
            "few slots for skewed demands, by a falling threshold",
            "Solstice, CoNEXT 2015, section 4",
            Product.SCHEDULE,
            needs_one_rate_per_rack,
        ),
        "eclipse": Entry(
            plan_eclipse,
            "slot after slot the highest traffic per second, switching time included",
            "Eclipse, SIGMETRICS 2016, section 4",
            Product.SCHEDULE,
        ),
        "by-plane": Entry(
            plan_by_plane,
            "a schedule for each plane, switching in turn",
            "after Spectra, arXiv 2603.07373",
            Product.SCHEDULE,
        ),
        "round-robin": Entry(
            plan_round_robin,
            "every rack meets every other in turn, whatever the demand",
            "RotorNet, SIGCOMM 2017; baseline of comparisons",
            Product.SCHEDULE,
        ),
        "static": Entry(
            keep_current, "keeps the present topology", "baseline of comparisons", spares=True
        ),
    }
)


def entry(name: str) -> Entry:
    """The algorithm called ``name``, or at the place ``name`` (``module:object``).

    Raises UnknownName with the list of known names.
    """
    try:
        return ENTRIES[name]
    except KeyError:
        known = ", ".join(sorted(ENTRIES))
        raise UnknownName(f"no topology algorithm {name!r}: choose one of {known}") from None


def algorithm(name: str) -> Algorithm:
    """The function of :func:`entry`."""
    return entry(name).plan


def objection(name: str, fabric: FabricArrays, *, one_way: bool = False) -> str | None:
    """Why the controller can't plan with ``name`` on this fabric; None if planning is possible.

    ``one_way``: the fabric's circuits are one-way. Raises UnknownName.
    """
    chosen = entry(name)
    if one_way and chosen.product is not Product.ONE_WAY:
        able = sorted(other for other in ENTRIES if ENTRIES[other].product is Product.ONE_WAY)
        return (
            "the algorithm plans no one-way light paths, and this fabric has one-way circuits: "
            f"choose {' or '.join(able)}"
        )
    if not one_way and chosen.product is not Product.CIRCUITS:
        return (
            f"the algorithm plans {chosen.product.value}, and the controller sets up duplex "
            "circuits that stay on this fabric: for comparisons, see `hydra plan --fabric`"
        )
    return chosen.objection(fabric)
