"""Claims of the papers: bands by their rules, verdicts, and their numbers by paper."""

import pytest

from mininet_scenarios.experiments import judgement
from mininet_scenarios.experiments.bands import (
    Band,
    about,
    computed,
    measured,
    percent,
    stated,
)
from mininet_scenarios.experiments.claims import CLAIMS, PAPERS, judged, unjudged


@pytest.mark.parametrize(
    ("band", "least", "most"),
    [
        (measured(28.7), 25.83, 31.57),
        (percent(0.55), 0.44, 0.66),
        (percent(-0.11), -0.132, -0.088),
        (percent(0.06), 0.04, 0.08),  # a fifth would be less than two points
        (about(9), 7.2, 10.8),
        (computed(3_484, 1), 3_483.5, 3_484.5),
    ],
)
def test_a_band_surrounds_the_paper_s_figure_by_its_rule(band, least, most):
    assert (band.least, band.most) == (pytest.approx(least), pytest.approx(most))
    assert band.two_sided
    assert [band.holds(value) for value in (least - 0.01, band.figure, most + 0.01)] == [
        False,
        True,
        False,
    ]


def test_a_statement_without_a_figure_has_one_limit():
    assert not Band(1.0, None).two_sided
    assert stated(1.0, None).holds(5.0)
    assert not stated(1.0, None).holds(0.99)


def test_a_row_is_judged_by_its_claim():
    row = judged("mordia/share", 0.887, "share", why="another decomposition")
    assert (row.paper, row.ours, row.target) == ("80.6 %", "88.7%", "64.5% to 96.7%")
    assert (row.ratio, row.met, row.claim) == (pytest.approx(1.1, abs=0.01), True, "mordia/share")
    assert judged("mordia/share", 0.97, "share").met is False
    assert (unjudged(row).paper, unjudged(row).ratio) == ("", None)


@pytest.mark.parametrize(
    ("ours", "shown"),
    [
        ("", "4.6"),
        ("4.6", "4.6"),
        ("median 32 ms", "4.6 (median 32 ms)"),
        ("4.6 (4.1 to 5.2)", "4.6 (4.1 to 5.2)"),
        ("14.6 ms", "4.6 (14.6 ms)"),
        ("4.61", "4.61"),
        ("4.6%", "4.6 (4.6%)"),
    ],
)
def test_a_row_shows_the_value_that_was_judged(ours, shown):
    """If only the units differed, a row would contradict its own target."""
    row = judged("c-through/up", 4.6, "until TCP uses the circuit", ours)
    assert (row.ours, row.target, row.met) == (shown, "≤ 5.0", True)


def test_every_row_counts_and_a_claim_without_one_is_not_played():
    def row(key, met):
        return {"figure": key, "ours": "1", "met": met, "why": "", "claim": key}

    own = {"figure": "frames in the dark", "ours": "0", "met": True, "why": "", "claim": ""}
    first = {"name": "first", "rows": [row("mordia/share", True), own]}
    second = {"name": "second", "rows": [row("mordia/share", False), row("mordia/duty", True)]}
    found = judgement.verdicts([first, second])
    counts = judgement.counts(found)
    assert list(counts) == list(PAPERS)
    mordia = sum(claim.paper == "Mordia" for claim in CLAIMS.values())
    assert counts["Mordia"] | {"two_sided": 0} == {
        "rows": mordia + 1,
        "two_sided": 0,
        "agrees": 2,
        "differs": 1,
        "not_played": mordia - 2,
    }
    assert counts["HydRA"]["not_played"] == counts["HydRA"]["rows"]
    (differs,) = (one for one in found if one.outcome is judgement.Outcome.DIFFERS)
    assert (differs.experiment, differs.published) == ("second", "80.6 %")


def test_most_claims_have_two_sides():
    """Four of five claims with a figure; the others are bounds or have no figure."""
    figures = [one for one in CLAIMS.values() if any(map(str.isdigit, one.published))]
    assert len([one for one in figures if one.band.two_sided]) >= 0.8 * len(figures)
