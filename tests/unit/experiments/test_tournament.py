"""The tournament's demands, and its heat map."""

from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

from apps.traces.comparing import Attempt, Contestant
from apps.traces.reading import read_trace, summarise
from apps.traces.synthetic import SAMPLE, SAMPLE_SEED
from apps.traces.windows import rack_numbers, windows
from mininet_scenarios.experiments.frame import Setting
from mininet_scenarios.experiments.tournament import experiment, policy_matrix
from mininet_scenarios.experiments.tournament.experiment import (
    SHORT,
    Match,
    Tournament,
    algorithms_figure,
    workloads,
)
from topology.algorithms import ENTRIES
from topology.synthetic import KINDS


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


def demands(name, seed):
    return np.array([window.demand_mbps for window in workloads(SHORT, seed)[name]()])


@pytest.mark.parametrize("name", ["coflows", *(kind for kind in KINDS if kind != "dense")])
def test_each_repetition_has_demands_of_its_own(name):
    first, second = demands(name, 1), demands(name, 2)
    assert len(first) == len(second) == SHORT.periods
    assert (first == demands(name, 1)).all()
    assert (first != second).any()


def test_the_first_repetition_plays_the_sample():
    numbers = rack_numbers(summarise(SAMPLE).racks, SHORT.racks, fold=True)
    cut = windows(read_trace(SAMPLE), numbers, SHORT.racks, SHORT.window_s)
    sample = [window.demand_mbps / window.busiest_rack_mbps for window in islice(cut, 2)]
    ours = [demand / demand.sum() for demand in demands("coflows", SAMPLE_SEED)]
    assert np.allclose(ours, [demand / demand.sum() for demand in sample])


class Noted:
    """A narrator that records phases and their expected durations."""

    def __init__(self):
        self.phases = []

    @contextmanager
    def phase(self, title, expected_s):
        self.phases.append((title, expected_s))
        yield

    def say(self, _text):
        pass


def test_the_forecast_is_the_sum_of_phases_that_name_what_they_play(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "compare", lambda *_args: [])
    monkeypatch.setattr(policy_matrix, "replay", lambda *_args: SimpleNamespace(
        served_share=1.0, changes=0
    ))  # fmt: skip
    noted = Noted()
    experiment.EXPERIMENT.measure(Setting(full=False, seed=1, work_dir=tmp_path), noted)
    titles = [title for title, _ in noted.phases]
    assert len(set(titles)) == len(titles)
    assert {"gravity: tms-duplex", "coflows: auto, anytime"} <= set(titles)
    expected_s = sum(expected_s for _, expected_s in noted.phases)
    assert experiment.EXPERIMENT.expected_s(False) == pytest.approx(expected_s)
