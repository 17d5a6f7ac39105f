"""A short form of `python -m benchmarks.kills`: acknowledged requests survive SIGKILL."""

from __future__ import annotations

import pytest
import yaml

from benchmarks.kills import double_booked
from mininet_scenarios.kills import POLICY, UNHURRIED, Kills
from mininet_scenarios.stage.stage import Stage

from .live import DEMO_CONFIG, PATIENT

pytestmark = [pytest.mark.ovs, pytest.mark.takes(30)]

LIVES = 2


def test_nothing_acknowledged_is_lost_and_nothing_double_booked(demo_testbed, tmp_path):
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    stage = Stage(demo_testbed, demo_testbed.fabric, document, tmp_path)
    with stage.process({**POLICY, **PATIENT}, UNHURRIED) as process:
        outcome = Kills(stage, process, 1, double_booked(stage.fabric)).run(LIVES)
    assert outcome.violations == []
    assert outcome.checked > 5
    assert outcome.answers["POST"] > 5
