"""Rounds of the periodic mode that come before their epoch is over."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix
from hydra.policy import CurrentPolicy, DemandBasis, Mode
from hydra.reconfiguration.plan import Pair
from hydra.service import DemandReport

_LOAD: Final = 10.0
"""A round comes early only after this many times what the last one took."""


class EarlyRounds:
    """What has shown since the last round, and can't wait; no clock: times are arguments.

    - Circuits that went to guesses have stood until counters tell what their pairs want, and for
      their minimum life.
    - Something full has held back, at two looks in a row, a pair that it did not hold back at the
      last round. A pair brings a round forward once in an epoch.

    Where circuits go round in turns, rounds are the turns, and none comes early.
    """

    def __init__(self, policy: CurrentPolicy, racks: int) -> None:
        self._policy = policy
        shape = racks, racks
        self._held_back = np.zeros(shape, dtype=bool)
        """At the last look."""
        self._known = np.zeros(shape, dtype=bool)
        """Pairs that were held back at the last round."""
        self._asked_s: DemandMatrix = np.full(shape, -math.inf)
        """When pairs brought a round forward last."""
        self._earliest_s = -math.inf
        self._shown_s = self._again_s = math.inf

    @property
    def due_s(self) -> float:
        """Time from which on a round is due; infinite if none is before its epoch is over."""
        return max(self._earliest_s, min(self._shown_s, self._again_s))

    def look(self, seen: DemandReport, now_s: float) -> None:
        """Take in the demand after a poll."""
        policy = self._policy.now
        if policy.mode is not Mode.PERIODIC or policy.slotted or policy.sharing.in_turn:
            self._shown_s = self._again_s = math.inf
            return
        held_back = _guessed(seen) & ~seen.doubted
        fresh = held_back & self._held_back & ~self._known
        fresh &= now_s - self._asked_s >= policy.epoch_s
        self._held_back = held_back
        if fresh.any():
            self._asked_s[fresh] = now_s
            self._shown_s = min(self._shown_s, now_s)

    def begin(self, seen: DemandReport, now_s: float) -> None:
        """Note that a round begins: it sees to all that has shown by ``now_s``."""
        self._shown_s = math.inf
        if now_s >= self._again_s:
            self._again_s = math.inf
        self._known = _guessed(seen)

    def end(self, began_s: float, now_s: float) -> None:
        """Note that a round is over."""
        self._earliest_s = now_s + _LOAD * (now_s - began_s)

    def changed(self, seen: DemandReport, pairs: Collection[Pair], now_s: float) -> None:
        """Note that these pairs' circuits have changed at ``now_s``, by the demand ``seen``."""
        guessed, policy = _guessed(seen), self._policy.now
        if any(guessed[a, b] or guessed[b, a] for a, b in pairs):
            self._again_s = now_s + max(policy.settled_s, policy.minimum_circuit_life_s)


def _guessed(seen: DemandReport) -> NDArray[np.bool_]:
    """Pairs whose demand is a guess, shape (N, N): something full holds them back."""
    if seen.constrained is None or seen.basis is not DemandBasis.ESTIMATE:
        return np.zeros(seen.rate_mbps.shape, dtype=bool)
    return seen.constrained
