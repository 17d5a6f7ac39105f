"""Traffic leaves dead circuits at once: over surviving paths, or electrically."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from hydra.forwarding.resteering import diverting, steering_of
from hydra.model import Circuit, Pair, Path
from hydra.reconfiguration.commands import ApplyRules, Course, ask
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import moving_pairs, pair_of, without
from hydra.reconfiguration.relaying import only
from hydra.reconfiguration.switches import Switches
from hydra.reconfiguration.switching_over import (
    UNPROTECTED,
    Protection,
    survivors_of,
    switching_over,
)
from hydra.rings import rings_of

LOG: Final = logging.getLogger("hydra.switches")


class Failover:
    """Courses that take traffic off dead circuits before a change withdraws the circuits."""

    def __init__(self, switches: Switches, protection: Protection = UNPROTECTED) -> None:
        self._switches, self._protection = switches, protection

    def divert(
        self,
        circuits: Collection[Circuit],
        paths: Collection[Path] = (),
        changes: Collection[Execution] = (),
    ) -> Course[frozenset[Circuit]]:
        """Send the pairs on dead circuits and dead paths electrical, until these are withdrawn.
        Pairs whose lost paths are all protected go to the surviving paths instead.

        Pairs moved by ``changes`` under way are left to the changes; a change leaves its unmoved
        dead pairs diverted. Returns the dead circuits in use by pairs: if still standing after the
        changes, the circuits are to be withdrawn, even if light has returned by then.
        """
        state = self._switches.memory.state
        reduced = without(state, circuits, paths)
        pairs = moving_pairs(state, reduced)
        if not pairs or not self._switches.settled:
            return frozenset()
        moving = frozenset[Pair]().union(*(change.moving for change in changes))
        lost = state.vlans.keys() - reduced.vlans.keys()
        surviving = survivors_of(lost, self._protection.survivors(state, lost), reduced, moving)
        over = frozenset(map(pair_of, surviving))
        remaining = pairs - over
        self._switches.note_lost(diverted=remaining, vacated=surviving.keys())
        for change in changes:
            change.keep_electrical(pairs - over)
            remaining -= change.moving
        diverts = diverting(
            self._switches.substrate, steering_of(self._switches.substrate, remaining), state.epoch
        )
        moved = switching_over(self._switches.substrate, self._protection, state, surviving)
        changed = only(
            {
                dp: (*moved.get(dp, ()), *diverts.get(dp, ()))
                for dp in moved.keys() | diverts.keys()
            },
            self._switches.ready(),
        )
        done = yield from ask("divert", ApplyRules(changed, self._switches.hurries))
        for datapath, error in done.value_or({}).items():
            if error is not None:
                LOG.warning("switch %#x was not diverted: %s", datapath, error)
        self._switches.doubt(
            datapath for datapath, error in done.value_or({}).items() if error is not None
        )
        used = {
            circuit
            for path in state.topology.paths
            if pair_of(path) in pairs
            for circuit in path.circuits
        }
        return frozenset(circuits) & rings_of(used, state.topology.circuits)
