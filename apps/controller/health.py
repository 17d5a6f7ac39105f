"""The facts of all rooms, from which follows what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final

from apps.controller.auditor import Auditor
from apps.controller.policing import Policing
from apps.controller.promises.admission import Admission
from apps.controller.quarantine import Quarantine
from apps.controller.reach import Reach
from apps.controller.record.ledger import Ledger
from apps.demand.poller import StatsPoller
from hydra.faults.conditions import (
    Condition,
    ConditionKind,
    Facts,
    RefusedWorker,
    TakeoverRisk,
    Watch,
    over,
)
from hydra.faults.server_links import Dead
from hydra.history import HappeningKind
from hydra.model import Fabric
from hydra.reconfiguration.plan import Pair

_NOTED: Final = (
    ConditionKind.OPTICAL_SWITCH_DOWN,
    ConditionKind.TOR_DOWN,
    ConditionKind.SWITCH_NOT_CONNECTED,
    ConditionKind.SWITCH_NOT_ANSWERING,
    ConditionKind.RULES_REFUSED,
    ConditionKind.SWITCH_REFUSED,
    ConditionKind.PORT_RENUMBERED,
    ConditionKind.WORKER_REFUSED,
    ConditionKind.TAKEOVER_AT_RISK,
    ConditionKind.UPLINK_DEAD,
    ConditionKind.ALARM,
    ConditionKind.DRIFT,
)
"""Kinds that the history is told of here; of the others it hears where they arise."""


@dataclass(eq=False, repr=False)
class Health:
    """Conditions, for any thread; it never waits for a device."""

    _fabric: Fabric
    ledger: InitVar[Ledger]
    _reach: Reach
    _quarantine: Quarantine
    _poller: StatsPoller
    _auditor: Auditor
    _admission: Admission
    _policing: Policing
    _workers_refused: Callable[[], Sequence[RefusedWorker]]
    _takeover_risks: Callable[[], Sequence[TakeoverRisk]]
    _one_way_uplinks: Callable[[], Dead] = dict
    _watch: Watch = field(default_factory=Watch, init=False)
    _noted: dict[ConditionKind, Mapping[str, frozenset[Pair]]] = field(
        default_factory=lambda: {kind: {} for kind in _NOTED}, init=False
    )
    """Whom each subject of a condition has affected, until it is over."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self, ledger: Ledger) -> None:
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._writer = ledger.writer

    def look(self) -> None:
        """Remember what is wrong now, so that later it is known since when; note what is new.

        For one thread.
        """
        now: dict[ConditionKind, dict[str, Condition]] = {kind: {} for kind in _NOTED}
        for one in self.conditions():
            if one.kind in now:
                now[one.kind] |= dict.fromkeys(one.subjects, one)
        for kind, seen in now.items():
            before = self._noted[kind]
            for one in dict.fromkeys(seen[name] for name in seen.keys() - before.keys()):
                self._note(one.what, one.pairs)
            if ended := sorted(before.keys() - seen.keys()):
                self._note(over(kind, ended), set().union(*(before[name] for name in ended)))
            self._noted[kind] = {
                name: before.get(name, frozenset()) | set(one.pairs) for name, one in seen.items()
            }

    def _note(self, text: str, pairs: Collection[Pair]) -> None:
        racks = self._fabric.racks
        names = [(racks[a].name, racks[b].name) for a, b in sorted(pairs)]
        self._log.note(HappeningKind.CONDITION, text, names)

    def conditions(self) -> Sequence[Condition]:
        """All that is wrong now."""
        with self._lock:
            return self._watch.conditions(self._facts())

    def _facts(self) -> Facts:
        reach = self._reach
        _, stale, measured = self._poller.heard()
        return Facts(
            self._fabric,
            self._network.state,
            time.time(),
            self._bookings.all(),
            self._quarantine.entries(),
            reach.planes_down(),
            reach.tors_down(),
            reach.switches_away(),
            reach.switches_mute(),
            reach.rules_refused(),
            reach.described(self._policing.refused),
            reach.unconfirmed(),
            reach.dead_uplinks(),
            reach.alarms(),
            self._auditor.found,
            stale if measured else (),
            self._poller.stale_s,
            self._writer.failure,
            self._admission.fitting_mbps,
            self._workers_refused(),
            reach.switches_refused(),
            self._takeover_risks(),
            reach.moved_ports(),
            self._one_way_uplinks(),
            self._auditor.sending_foreign,
        )
