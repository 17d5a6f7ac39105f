"""Generations of leaders: a leader's generations are above the generations of all leaders before.

Generations are etcd's revisions, times 2**28, above a floor. The floor only grows, and only the
leader raises the floor. The next leader reads the floor in the transaction of the election, and so
begins above all generations of the previous leader.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from apps.etcd.gateway import (
    Entry,
    Etcd,
    EtcdRefused,
    EtcdUnanswered,
    get,
    has_value,
    is_absent,
    put,
    was_created,
)
from apps.etcd.roster import Roster

LOG = logging.getLogger("hydra.leadership")
_LOOK_S: Final = 2.0
_SHIFT: Final = 28
"""Without etcd, generations count from one, by 65,536 a start and two a second: they stay below
2**28 for years. Generations of OpenFlow have 64 bits.
"""
_MOST: Final = 1 << 62
"""Upper bound of a leader's generations. Switches compare modulo 2**64: a generation ahead of
another generation by half of 2**64 counts as behind.
"""


class Generations:
    """For any thread. ``created``: the revision of etcd that made the controller the leader."""

    def __init__(self, roster: Roster, observer: Etcd) -> None:
        self._roster, self._observer = roster, observer
        self._exceeding = threading.Lock()
        self._floor = 0
        """Summand of generations from etcd: an earlier store had higher generations."""

    def begin(self, floor: Sequence[Entry]) -> None:
        """Begin to lead with the floor read by the election."""
        self._floor = _value(floor)

    def of(self, created: int) -> int:
        return self._floor + (created << _SHIFT)

    def exceed(self, generation: int, created: int) -> bool:
        """Raise the leader's generations beyond ``generation``; False if impossible now."""
        with self._exceeding:
            return self._exceed(generation, created)

    def _exceed(self, generation: int, created: int) -> bool:
        floor = self._floor
        if generation >= _MOST:
            return False
        wanted = ((generation >> _SHIFT) + 1 - created) << _SHIFT
        if wanted <= floor:
            return True
        key, leader_key = self._roster.floor_key, self._roster.leader_key
        before = has_value(key, str(floor)) if floor else is_absent(key)
        looks = [get(key), get(leader_key)]
        try:
            answer = self._observer.transaction(
                [before, was_created(leader_key, created)],
                [put(key, str(wanted)), *looks],
                looks,
                patience_s=_LOOK_S,
            )
        except (EtcdRefused, EtcdUnanswered) as error:
            LOG.warning(
                "generations are not raised beyond the generations of an earlier store: %s", error
            )
            return False
        found, leader = answer.found
        if not leader or leader[0].created != created:
            return False
        # Of this attempt, or of an attempt with a lost answer.
        self._floor = max(self._floor, _value(found))
        LOG.warning(
            "switches know generations of an earlier store: generations of this store go on beyond"
        )
        return self._floor >= wanted


def _value(found: Sequence[Entry]) -> int:
    return int(found[0].value) if found else 0
