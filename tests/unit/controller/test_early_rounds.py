"""A controller's rounds come before their epoch is over where something has shown."""

import time

import numpy as np
import pytest

from hydra.demand.counters import Sent
from tests.unit.controller.test_planned_once import FABRIC, POLICY, RACKS, asked, stage

__all__ = ["asked", "stage"]


@pytest.fixture
def rooms(stage):
    """The controller, whose poller sees the first server fill its uplink to the second rack."""
    rooms = stage.controller
    one, mbps = np.array([0]), np.array([FABRIC.electrical_rate_mbps])
    rooms._poller.sent = lambda: Sent(one, one + 1, mbps, mbps, mbps)
    rooms._poller.heard = lambda: (0.1, (), True)
    rooms._poller.unsure = lambda: np.zeros((RACKS, RACKS), dtype=bool)
    rooms._poller.rates_mbps = lambda: np.zeros((RACKS, RACKS))
    return rooms


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


def test_what_was_given_to_a_guess_is_looked_at_as_soon_as_counters_tell(rooms):
    before_s = time.monotonic()
    rooms._loop.periodic()
    state, since_s = rooms._ledger.state_since()
    assert state.topology.circuits
    assert since_s >= before_s
    assert rooms._loop.round_due_s == since_s + POLICY.settled_s
    due_s = rooms._round_duty.last_s + rooms._round_s()
    assert due_s == pytest.approx(since_s + POLICY.settled_s)


def test_a_round_before_counters_tell_puts_nothing_off(rooms):
    rooms._loop.periodic()
    due_s = rooms._loop.round_due_s
    rooms._loop.periodic()
    assert rooms._loop.round_due_s == due_s
