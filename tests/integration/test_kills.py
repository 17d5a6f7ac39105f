"""A short form of `python -m benchmarks.kills`: what was acknowledged outlives SIGKILL."""

from __future__ import annotations

import pytest

from benchmarks.kills import double_booked
from mininet_scenarios.kills import POLICY, Kills

from .live import live

pytestmark = pytest.mark.ovs

LIVES = 3


def test_nothing_acknowledged_is_lost_and_nothing_double_booked(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, POLICY) as network:
        check = double_booked(network.fabric)
        outcome = Kills(network.stage, network.process, 1, check).run(LIVES)
    assert outcome.violations == []
    assert outcome.checked > 5
    assert outcome.answers["POST"] > 5
