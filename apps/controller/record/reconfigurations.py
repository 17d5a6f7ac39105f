"""The latest reconfigurations, and their records missing in the journal."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hydra.journal import Change, Kind
from hydra.lifecycle import ReconfigurationState
from hydra.service import Reconfiguration

LOG = logging.getLogger("hydra.ledger")
_KEPT: Final = 200


class KeptReconfigurations:
    """Thread-safe. A reconfiguration is recorded at its request and at its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: OrderedDict[str, Reconfiguration] = OrderedDict()
        self._unwritten: dict[str, Change] = {}

    def load(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take over the journal's records, oldest first."""
        for record in records:
            try:
                change = _read(record)
            except (KeyError, TypeError, ValueError) as error:
                LOG.warning("a reconfiguration of another release is left out: %r", error)
            else:
                self._by_id[change.id] = change

    def put(self, reconfiguration: Reconfiguration) -> None:
        """Enter a reconfiguration, or replace the entry with the same id. If there are too many,
        forget the oldest finished reconfigurations.
        """
        with self._lock:
            known = self._by_id.get(reconfiguration.id)
            self._by_id[reconfiguration.id] = reconfiguration
            if known is None or reconfiguration.is_over:
                self._unwritten[reconfiguration.id] = Change(
                    Kind.RECONFIGURATION, reconfiguration.id, _record(reconfiguration)
                )
            if known is None:
                over = [each.id for each in self._by_id.values() if each.is_over]
                for oldest in over[: max(0, len(self._by_id) - _KEPT)]:
                    del self._by_id[oldest]
                    self._unwritten[oldest] = Change(Kind.RECONFIGURATION, oldest, None)

    def get(self, identifier: str) -> Reconfiguration | None:
        """The reconfiguration with the given id; None if not remembered."""
        with self._lock:
            return self._by_id.get(identifier)

    def newest_first(self) -> tuple[Reconfiguration, ...]:
        """The remembered reconfigurations."""
        with self._lock:
            return tuple(reversed(self._by_id.values()))

    @property
    def unwritten(self) -> Sequence[Change]:
        """Changes to bring the journal up to date."""
        with self._lock:
            return tuple(self._unwritten.values())

    def written(self, changes: Sequence[Change]) -> None:
        """Note that the journal has ``changes``. Other threads may have put newer changes since."""
        with self._lock:
            for change in changes:
                if change.key is not None and self._unwritten.get(change.key) is change:
                    del self._unwritten[change.key]


def _record(reconfiguration: Reconfiguration) -> dict[str, Any]:
    return {
        "id": reconfiguration.id,
        "state": reconfiguration.state.value,
        "trigger": reconfiguration.trigger,
        "epoch": reconfiguration.epoch,
        "created_unix_s": reconfiguration.created_unix_s,
        "started_unix_s": reconfiguration.started_unix_s,
        "reason": reconfiguration.reason,
        "rules_pushed": reconfiguration.rules_pushed,
        "ports_retagged": reconfiguration.ports_retagged,
    }


def _read(record: Mapping[str, Any]) -> Reconfiguration:
    started_s = record["started_unix_s"]
    return Reconfiguration(
        id=str(record["id"]),
        state=ReconfigurationState(record["state"]),
        trigger=str(record["trigger"]),
        epoch=int(record["epoch"]),
        created_unix_s=float(record["created_unix_s"]),
        started_unix_s=None if started_s is None else float(started_s),
        reason=str(record["reason"]),
        rules_pushed=int(record["rules_pushed"]),
        ports_retagged=int(record["ports_retagged"]),
    )
