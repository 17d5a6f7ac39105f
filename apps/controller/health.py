"""The facts of all rooms, from which follows what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from apps.controller.auditor import Auditor
from apps.controller.ledger import Ledger
from apps.controller.quarantine import Quarantine
from apps.controller.reach import Reach
from apps.demand.poller import StatsPoller
from hydra.faults.conditions import Condition, Facts, Watch
from hydra.model import Fabric


class Health:
    """For any thread; never waits for a device."""

    def __init__(
        self,
        fabric: Fabric,
        ledger: Ledger,
        reach: Reach,
        quarantine: Quarantine,
        poller: StatsPoller,
        auditor: Auditor,
    ) -> None:
        self._fabric = fabric
        self._ledger = ledger
        self._reach = reach
        self._quarantine = quarantine
        self._poller = poller
        self._auditor = auditor
        self._watch = Watch()
        self._lock = threading.Lock()

    def look(self) -> None:
        """Remember what is wrong now, so that later it is known since when."""
        self.conditions()

    def conditions(self) -> Sequence[Condition]:
        """All that is wrong now."""
        with self._lock:
            return self._watch.conditions(self._facts())

    def _facts(self) -> Facts:
        reach = self._reach
        _, stale, measured = self._poller.heard()
        return Facts(
            self._fabric,
            self._ledger.state,
            time.time(),
            self._ledger.reservations(),
            self._quarantine.entries(),
            reach.planes_down(),
            reach.tors_down(),
            reach.switches_away(),
            reach.unconfirmed(),
            reach.dead_uplinks(),
            reach.alarms(),
            self._auditor.found,
            stale if measured else (),
            self._ledger.journal_failure,
        )
