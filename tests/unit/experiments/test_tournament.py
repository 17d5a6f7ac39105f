"""The tournament's heat map: an algorithm that refuses is no algorithm that serves nothing."""

from apps.traces.comparing import Attempt, Contestant
from mininet_scenarios.experiments.tournament.experiment import Match, Tournament, algorithms_figure
from topology.algorithms import ENTRIES


def contestant(algorithm: str, share: float) -> Contestant:
    return Contestant(algorithm, (Attempt(0, 0.0, 100.0, share, 1.0, 2, 0, ()),))


def test_a_refusal_is_a_dash_and_nothing_served_is_a_zero():
    all_of_it, nothing, refuses, *_ = ENTRIES
    contestants = (
        contestant(all_of_it, 1.0),
        contestant(nothing, 0.0),
        Contestant(refuses, (), "odd number of racks"),
    )
    match = Match("skewed", contestants, electrical_share=0.1, bisection_share=1.0)
    axes = algorithms_figure([Tournament(4, 2, (match,), ())]).axes[0]
    assert [text.get_text() for text in axes.texts[:3]] == ["100", "0", "–"]
    painted = axes.images[0].get_array()
    assert painted[:2, 0].tolist() == [100.0, 0.0]
    assert painted.mask[2, 0]
