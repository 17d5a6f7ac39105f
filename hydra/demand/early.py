"""Rounds of the periodic mode that come before their epoch is over, as counters show that they pay.

The last round went by a demand, part of which was a guess. What two readings show that it did not
know makes another one due. No clock: times are arguments, of one monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix
from hydra.policy import CurrentPolicy, DemandBasis, EarlyRound, Mode, Policy

FELL: Final = 0.5
"""A circuit whose pair wants no more than this part of what was counted on is news: two pairs that
are nearly equal bring no round forward for each other."""
_LOAD: Final = 10.0
"""A round comes early only after this many times what the last plan took."""

Times = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What is known of each pair at one moment, all shapes (N, N)."""

    counted_on_mbps: DemandMatrix
    """Demand by which plans prefer one pair to another."""
    held_back: Flags
    """Something full holds the pair back: its demand is a guess."""
    unsure: Flags
    """Its readings are late, or too few yet."""
    joined: Flags
    """A path of circuits is there for the pair."""
    read_s: Times
    """When the counters of its traffic were read, the earliest of them; -inf: nothing is sent."""
    changed_s: Times
    """Last change of circuits at one of its racks; -inf: none."""

    def clean(self, policy: Policy) -> Flags:
        """Pairs whose last reading is of an interval that began after the last change."""
        told: Flags = ~self.unsure & (self.read_s >= self.changed_s + policy.poll_interval_s)
        return told


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """What the last round went by, all shapes (N, N)."""

    counted_on_mbps: DemandMatrix
    held_back: Flags
    since_s: Times
    """When :attr:`held_back` was so: what a change of circuits did to it is no news."""


def news(last: Basis, look: Look, policy: Policy, now_s: float) -> Flags:
    """Pairs of which a look shows what the last round did not know, shape (N, N).

    - A pair has a circuit that may go, and what was counted on has turned out to be at most
      :data:`FELL` of that. Nothing holds the pair back, so this is no guess.
    - Something full holds a pair back that it did not hold back then, and no circuit has changed at
      either rack meanwhile.
    """
    clean = look.clean(policy)
    less_mbps = last.counted_on_mbps - look.counted_on_mbps
    fell = look.joined & ~look.held_back & (less_mbps > 0)
    fell &= less_mbps >= policy.minimum_gain_mbps
    fell &= look.counted_on_mbps <= FELL * last.counted_on_mbps
    fell &= now_s - look.changed_s >= policy.minimum_circuit_life_s
    newly = look.held_back & ~last.held_back & (look.changed_s <= last.since_s)
    found: Flags = clean & (fell | newly)
    return found


class EarlyRounds:
    """When the next round is due, if that is before its epoch is over.

    That is once :func:`news` of a pair show in two readings of its counters, or a poll later if
    those of others show in one so far. A pair brings a round forward once in an epoch. None comes
    sooner after another than counters are read twice, and than :data:`_LOAD` times what planning
    took; after a round that broke off, none before its epoch is over. Where circuits go round in
    turns or by slots, rounds are the turns; where plans are made for what is sent or waits, nothing
    is a guess: none comes early there.
    """

    def __init__(self, policy: CurrentPolicy, racks: int) -> None:
        self._policy = policy
        shape = racks, racks
        self._last = Basis(np.zeros(shape), np.zeros(shape, dtype=bool), np.full(shape, -math.inf))
        self._first_s: Times = np.full(shape, math.inf)
        """When counters were read that showed news first, and every time since; inf: none are."""
        self._asked_s: Times = np.full(shape, -math.inf)
        """When pairs brought a round forward last."""
        self._shown = np.zeros(shape, dtype=bool)
        self._shown_s = math.inf
        self._earliest_s = -math.inf

    @property
    def due_s(self) -> float:
        """Time from which on a round is due; infinite if none is before its epoch is over."""
        due_s = max(self._shown_s, self._earliest_s)
        return due_s if _applies(self._policy.now) else math.inf

    def look(self, look: Look, now_s: float) -> None:
        """Take in the demand after a poll."""
        policy = self._policy.now
        self._let_changes_be(look, policy, now_s)
        found = news(self._last, look, policy, now_s)
        self._first_s = np.where(found, np.minimum(self._first_s, look.read_s), math.inf)
        found &= now_s - self._asked_s >= policy.epoch_s
        self._shown = found & (look.read_s > self._first_s)
        if not self._shown.any():
            self._shown_s = math.inf
        else:  # what has just begun elsewhere is given its second reading, too
            young = (found & ~self._shown).any()
            self._shown_s = min(self._shown_s, now_s + (policy.poll_interval_s if young else 0.0))

    def attempt(self, now_s: float) -> None:
        """Note that a round is tried: if it breaks off, the next one waits for its epoch."""
        self._earliest_s = now_s + self._policy.now.epoch_s

    def begin(self, look: Look, now_s: float) -> None:
        """Note what a round goes by: it sees to all that has been shown."""
        self._asked_s[self._shown] = now_s
        self._last = Basis(look.counted_on_mbps, look.held_back, np.full_like(look.read_s, now_s))
        self._first_s.fill(math.inf)
        self._shown, self._shown_s = np.zeros_like(self._shown), math.inf

    def end(self, now_s: float, planning_s: float) -> None:
        """Note that a round is over, whose plan took ``planning_s``."""
        self._earliest_s = now_s + max(self._policy.now.settled_s, _LOAD * planning_s)

    def _let_changes_be(self, look: Look, policy: Policy, now_s: float) -> None:
        """What circuits that came or went hold back, or no longer do, was to be expected."""
        touched = look.changed_s > self._last.since_s
        silent = np.isneginf(look.read_s) & ~look.unsure
        settled = touched & (look.clean(policy) | silent)
        settled &= now_s >= look.changed_s + policy.settled_s
        if settled.any():
            held_back = np.where(settled, look.held_back, self._last.held_back)
            since_s = np.where(settled, now_s, self._last.since_s)
            self._last = Basis(self._last.counted_on_mbps, held_back, since_s)


def _applies(policy: Policy) -> bool:
    return (
        policy.mode is Mode.PERIODIC
        and policy.early_rounds is EarlyRound.ON
        and policy.demand is DemandBasis.ESTIMATE
        and not policy.slotted
        and not policy.sharing.in_turn
    )
