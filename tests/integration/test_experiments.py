"""The papers' experiments on real switches, shorter than their short form."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hydra.policy import Transition
from mininet_scenarios.experiments import abu_tair
from mininet_scenarios.leaf_spine import ELEPHANT, Case, Regime, Scale
from mininet_scenarios.narrator import ConsoleNarrator

pytestmark = [pytest.mark.ovs, pytest.mark.alone, pytest.mark.usefixtures("machine")]


@pytest.fixture
def narrator():
    with ConsoleNarrator(Console(file=io.StringIO(), width=100), 60.0) as narrator:
        yield narrator


def test_an_elephant_on_demand_leaves_the_mice_behind(tmp_path, narrator):
    none = Case(Regime.NONE, Transition.HITLESS, 24)
    on_demand = Case(Regime.ON_DEMAND, Transition.HITLESS, 24)
    found = abu_tair.measure(tmp_path, Scale(1 / 100, 1 / 8), [none, on_demand], narrator)
    by_spine, directly = found.runs
    assert len(by_spine.done) == len(directly.done) == 24
    assert (by_spine.changes, by_spine.dark_frames) == (0, 0)
    assert directly.changes >= 1
    assert directly.dark_frames == 0
    # 1.5 in the paper; half of it on a busy machine.
    assert directly.mbps(ELEPHANT) > 1.2 * by_spine.mbps(ELEPHANT)
