"""Verdicts of all experiments' results on the papers' claims: agrees, differs or not played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from mininet_scenarios.experiments.claims import CLAIMS, PAPERS


class Outcome(StrEnum):
    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_PLAYED = "not played"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row of a result that judges a claim, or a claim without a row."""

    paper: str
    where: str
    claim: str
    published: str
    band: str
    two_sided: bool
    experiment: str
    """Empty if no result has a row of the claim."""
    figure: str
    ours: str
    outcome: Outcome
    why: str


def verdicts(found: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """All claims in the order of the papers, judged by the rows of the results.

    Each value is judged by the band of this version; after ``hydra experiment conclude``, the
    value's row agrees.
    """
    rows: dict[str, list[tuple[str, Mapping[str, Any]]]] = {key: [] for key in CLAIMS}
    for result in found:
        for row in result["rows"]:
            if row.get("claim"):
                rows[row["claim"]].append((result["name"], row))
    unplayed = {"figure": "", "ours": "", "met": None, "why": ""}
    return [
        _verdict(key, name, row)
        for key, played in rows.items()
        for name, row in played or [("", unplayed)]
    ]


def _verdict(key: str, experiment: str, row: Mapping[str, Any]) -> Verdict:
    claim = CLAIMS[key]
    outcomes = {True: Outcome.AGREES, False: Outcome.DIFFERS, None: Outcome.NOT_PLAYED}
    return Verdict(
        paper=claim.paper,
        where=claim.where,
        claim=claim.what,
        published=claim.published,
        band=claim.limits,
        two_sided=claim.band.two_sided,
        experiment=experiment,
        figure=row["figure"],
        ours=row["ours"],
        outcome=outcomes[row["met"]],
        why=row["why"],
    )


def counts(found: Sequence[Verdict]) -> dict[str, dict[str, int]]:
    """Numbers of rows, of rows with a two-sided band, and of each outcome, by paper."""
    return {
        paper: _count([judgement for judgement in found if judgement.paper == paper])
        for paper in PAPERS
    }


def _count(found: Sequence[Verdict]) -> dict[str, int]:
    outcomes = Counter(judgement.outcome for judgement in found)
    return {
        "rows": len(found),
        "two_sided": sum(judgement.two_sided for judgement in found),
        **{outcome.name.lower(): outcomes[outcome] for outcome in Outcome},
    }


def as_json(found: Sequence[Verdict]) -> list[dict[str, Any]]:
    return [asdict(judgement) for judgement in found]
