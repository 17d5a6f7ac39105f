"""Has pairs whose circuits are full use the electrical network, too."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric
from hydra.policy import CurrentPolicy, Spill
from hydra.sharing.spill import PairRates, Spills

LOG = logging.getLogger("hydra.spiller")
_SETTLE_POLLS: Final = 3
"""Readings to wait after a change: only the last interval is surely after the change."""


class Spiller:
    """:meth:`look` runs in the conductor's thread, once per reading."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        spills: Spills,
        measure: Callable[[], PairRates | None],
        classify: Callable[[Iterable[DatapathId]], None],
    ) -> None:
        """``classify`` brings switches to the present spills."""
        self._fabric, self._policy, self._spills = fabric, policy, spills
        self._measure, self._classify = measure, classify

    def interval_s(self) -> float | None:
        """Time between two looks; None: there is nothing to look at."""
        now = self._policy.now
        if now.spill is Spill.ON or self._spills.parts:
            return now.poll_interval_s or None
        return None

    def look(self) -> None:
        """Begin spills that pay, end harmful or needless spills, and update the switches."""
        now, before = self._policy.now, self._spills.parts
        room = self._measure() if now.spill is Spill.ON else None
        settle_s = _SETTLE_POLLS * now.poll_interval_s
        self._spills.decide(room, time.monotonic(), now.gain_horizon_s, settle_s)
        after = self._spills.parts
        changed = {direction for direction, _ in before.items() ^ after.items()}
        for src, dst in sorted(changed):
            parts = after.get((src, dst))
            LOG.info(
                "%s to %s: %s",
                self._fabric.racks[src].name,
                self._fabric.racks[dst].name,
                f"one of {parts} parts of the flows is electrical"
                if parts
                else "by circuits alone",
            )
        steering = substrate_of(self._fabric).steering
        racks = {src for src, _ in changed}
        if racks:
            self._classify([switch.datapath for rack in racks for switch in steering(rack)])
