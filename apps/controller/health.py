"""Conditions: collects facts from all rooms, and derives the faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from apps.controller.auditor import Auditor
from apps.controller.policing import Policing
from apps.controller.promises.admission import Admission
from apps.controller.quarantine import Quarantine
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.demand.poller import StatsPoller
from hydra.faults.condition import Condition, ConditionKind, over
from hydra.faults.diagnosis import Watch
from hydra.faults.facts import Facts, RefusedWorker, TakeoverRisk
from hydra.faults.server_links import Dead
from hydra.history import HappeningKind
from hydra.model import Fabric, Pair

_NOTED: Final = (
    ConditionKind.OPTICAL_SWITCH_DOWN,
    ConditionKind.TOR_DOWN,
    ConditionKind.SWITCH_NOT_CONNECTED,
    ConditionKind.SWITCH_NOT_ANSWERING,
    ConditionKind.RULES_REFUSED,
    ConditionKind.SWITCH_REFUSED,
    ConditionKind.PORT_RENUMBERED,
    ConditionKind.WORKER_REFUSED,
    ConditionKind.TRANSFER_AT_RISK,
    ConditionKind.PROTECTION_LOST,
    ConditionKind.TAKEOVER_AT_RISK,
    ConditionKind.UPLINK_DEAD,
    ConditionKind.ALARM,
    ConditionKind.DRIFT,
)
"""Kinds of conditions that :meth:`Health.look` writes to the history. Other kinds are written by
the rooms in which they arise.
"""


class Health:
    """Conditions, for any thread; never waits for a device."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        ledger: Ledger,
        reach: Reach,
        quarantine: Quarantine,
        poller: StatsPoller,
        auditor: Auditor,
        admission: Admission,
        policing: Policing,
        workers_refused: Callable[[], Sequence[RefusedWorker]],
        takeover_risks: Callable[[], Sequence[TakeoverRisk]],
        one_way_uplinks: Callable[[], Dead] = dict,
    ) -> None:
        self._fabric, self._reach, self._quarantine = fabric, reach, quarantine
        self._poller, self._auditor, self._admission = poller, auditor, admission
        self._policing, self._workers_refused = policing, workers_refused
        self._takeover_risks, self._one_way_uplinks = takeover_risks, one_way_uplinks
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._writer = ledger.writer
        self._watch = Watch()
        self._noted: dict[ConditionKind, Mapping[str, frozenset[Pair]]] = {
            kind: {} for kind in _NOTED
        }
        """Rack pairs affected by each condition so far, by kind and subject."""
        self._lock = threading.Lock()

    def look(self) -> None:
        """Write start and end of conditions to the history, and remember the start of each.

        Only for a single thread.
        """
        now: dict[ConditionKind, dict[str, Condition]] = {kind: {} for kind in _NOTED}
        for condition in self.conditions():
            if condition.kind in now:
                now[condition.kind] |= dict.fromkeys(condition.subjects, condition)
        for kind, seen in now.items():
            before = self._noted[kind]
            for condition in dict.fromkeys(seen[name] for name in seen.keys() - before.keys()):
                self._note(condition.what, condition.pairs)
            if ended := sorted(before.keys() - seen.keys()):
                self._note(over(kind, ended), set().union(*(before[name] for name in ended)))
            self._noted[kind] = {
                name: before.get(name, frozenset()) | set(condition.pairs)
                for name, condition in seen.items()
            }

    def _note(self, text: str, pairs: Collection[Pair]) -> None:
        racks = self._fabric.racks
        names = [(racks[a].name, racks[b].name) for a, b in sorted(pairs)]
        self._log.note(HappeningKind.CONDITION, text, names)

    def conditions(self) -> Sequence[Condition]:
        """The present conditions."""
        with self._lock:
            return self._watch.conditions(self._facts())

    def _facts(self) -> Facts:
        reach = self._reach
        _, stale, measured = self._poller.freshness()
        return Facts(
            self._fabric,
            self._network.state,
            time.time(),
            self._bookings.all(),
            self._quarantine.entries(),
            reach.absences.planes_down(),
            reach.absences.tors_down(),
            reach.absences.switches_away(),
            reach.absences.switches_mute(),
            reach.absences.rules_refused(),
            reach.absences.described(self._policing.refused),
            reach.absences.unconfirmed(),
            reach.dead_uplinks(),
            reach.absences.alarms(),
            self._auditor.found,
            stale if measured else (),
            self._poller.stale_s,
            self._writer.failure,
            self._admission.fitting_mbps,
            self._workers_refused(),
            reach.absences.switches_refused(),
            self._takeover_risks(),
            reach.renumbered_ports(),
            self._one_way_uplinks(),
            self._auditor.sending_foreign,
        )
