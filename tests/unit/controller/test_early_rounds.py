"""A controller's rounds come before their epoch is over where something has shown."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from hydra.demand.counters import Sent
from hydra.errors import PlanError
from hydra.policy import EarlyRound
from tests.unit.controller.test_planned_once import FABRIC, POLICY, RACKS, asked, stage

__all__ = ["asked", "stage"]


class Counters:
    """The first server fills its uplink to the second rack; each look is at another reading."""

    def __init__(self, poller):
        self.read_at_s = time.monotonic()
        self._one, self._mbps = np.array([0]), np.array([FABRIC.electrical_rate_mbps])
        poller.sent, poller.read_s = self.sent, self.read_s
        poller.heard = lambda: (0.1, (), True)
        poller.unsure = lambda: np.zeros((RACKS, RACKS), dtype=bool)
        poller.rates_mbps = lambda: np.zeros((RACKS, RACKS))

    def sent(self):
        return Sent(self._one, self._one + 1, self._mbps, self._mbps, self._mbps)

    def read_s(self):
        self.read_at_s += 0.01
        found = np.full((RACKS, RACKS), -math.inf)
        found[0, 1] = self.read_at_s
        return found


@pytest.fixture
def rooms(stage):
    stage.controller._counters = Counters(stage.controller._poller)
    return stage.controller


def shown(rooms):
    for _ in range(2):
        rooms._loop.foretell()


def test_a_pair_that_is_held_back_gets_its_circuit_before_the_epoch_is_over(rooms):
    assert rooms._round_s() == POLICY.epoch_s
    assert rooms._patience_s(0.25) == 0.25
    rooms._loop.foretell()
    assert rooms._round_s() == POLICY.epoch_s
    rooms._loop.foretell()
    assert rooms._round_s() < 1.0
    assert rooms._patience_s(0.25) == 0.0
    rooms._conductor._do_if_due(rooms._round_duty)
    assert [(path.src, path.dst) for path in rooms._ledger.state.topology.paths] == [(0, 1)]
    assert rooms._round_s() == POLICY.epoch_s


def test_the_policy_may_turn_them_off_while_the_controller_runs(rooms):
    shown(rooms)
    rooms._policy.now = replace(POLICY, early_rounds=EarlyRound.OFF)
    assert rooms._round_s() == POLICY.epoch_s


def test_a_demand_that_cannot_be_told_is_no_busy_loop(rooms):
    shown(rooms)

    def broken(*_):
        raise PlanError("no counters")

    rooms._loop._estimator.find = broken
    with pytest.raises(PlanError):
        rooms._loop.periodic()
    rooms._round_duty.last_s = time.monotonic()
    assert rooms._round_s() == pytest.approx(POLICY.epoch_s, abs=1.0)


def test_between_stages_none_is_due_and_what_was_shown_waits_for_their_end(rooms, monkeypatch):
    shown(rooms)
    due_s = rooms._loop.round_due_s
    staging = type(rooms._loop._staging)
    with monkeypatch.context() as stages:
        stages.setattr(staging, "under_way", property(lambda _self: True))
        assert rooms._loop.round_due_s == math.inf
        rooms._loop.periodic()
        assert not rooms._ledger.decisions()
    assert rooms._loop.round_due_s == due_s


def test_what_planning_took_counts_and_not_what_the_change_took(rooms, monkeypatch):
    shown(rooms)
    ended, adopt = [], rooms._loop._adopt
    monkeypatch.setattr(rooms._loop._early, "end", lambda *times: ended.append(times))

    def slow(*what):
        time.sleep(0.5)
        adopt(*what)

    monkeypatch.setattr(rooms._loop, "_adopt", slow)
    began_s = time.monotonic()
    rooms._loop.periodic()
    ((_, planning_s),) = ended
    assert 0 < planning_s <= time.monotonic() - began_s - 0.5
