"""Owners of racks among workers, as leases in the store shared by controllers.

The leader holds and renews an etcd lease for each worker with a running lease of the leader's own.
A key on the etcd lease lists the worker's shards. The next leader begins with the same owners, so
that no switch moves because of a new leader. A reader of etcd sees the owners, also without a
leader.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from apps.etcd.gateway import Etcd, EtcdRefused, EtcdUnanswered, Json, get, put
from apps.workers.exchange import Exchange
from hydra.settings import EtcdSettings

LOG = logging.getLogger("hydra.workers")
LEASE_S: Final = 20
"""Longer than a change of leader takes."""
_RENEW_S: Final = 2.0
Owners = Mapping[str, tuple[int, ...]]


class WorkerLeases:
    """``conditions``: conditions of a transaction that hold while this controller leads."""

    def __init__(
        self,
        settings: EtcdSettings,
        exchange: Exchange,
        conditions: Callable[[], Sequence[Json]],
    ) -> None:
        self._etcd = Etcd(settings)
        self._prefix = f"{settings.prefix}workers/"
        self._exchange = exchange
        self._conditions = conditions
        self._owners: Owners = {}
        self._leases: dict[str, int] = {}
        self._met: set[str] = set()
        """Workers seen here; leases of other workers expire."""
        self._written: dict[str, tuple[int, ...]] = {}
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="worker-leases", daemon=True)

    def start(self) -> None:
        """Give the exchange the owners in the store. Raises EtcdUnanswered."""
        answer = self._etcd.transaction([], [get(self._prefix, f"{self._prefix[:-1]}0")])
        owners: dict[int, str] = {}
        for entry in answer.found[0]:
            name = entry.key.removeprefix(self._prefix)
            self._leases[name] = entry.lease
            owners |= dict.fromkeys(json.loads(entry.value)["shards"], name)
        self._exchange.post(lambda: self._exchange.remember_owners(owners, self._note))
        self._thread.start()

    def close(self) -> None:
        """End; the leases expire unless another leader renews them."""
        self._closing.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._etcd.close()

    def _note(self, owners: Owners) -> None:
        """In the exchange's thread."""
        self._owners = owners
        self._changed.set()

    def _keep(self) -> None:
        while not self._closing.is_set():
            self._changed.clear()
            try:
                self._renew()
            except (EtcdRefused, EtcdUnanswered) as error:
                LOG.warning("the owners of racks are not in the store: %s", error)
            self._changed.wait(_RENEW_S)

    def _renew(self) -> None:
        owners, here = self._owners, {worker.name for worker in self._exchange.roster.seen()}
        self._met |= here
        for name in here & owners.keys():
            if not self._renewed(name):
                granted = self._etcd.ask("/lease/grant", {"TTL": str(LEASE_S), "ID": "0"})
                self._leases[name] = int(granted["ID"])
                self._written.pop(name, None)
            if self._written.get(name) != owners[name]:
                value = json.dumps({"shards": owners[name]})
                ownership = put(f"{self._prefix}{name}", value, self._leases[name])
                if self._etcd.transaction(self._conditions(), [ownership]).succeeded:
                    self._written[name] = owners[name]
        for name in (self._leases.keys() & self._met) - here:
            lease = self._leases.pop(name)
            self._written.pop(name, None)
            self._etcd.ask("/lease/revoke", {"ID": str(lease)})

    def _renewed(self, name: str) -> bool:
        lease = self._leases.get(name)
        if lease is None:
            return False
        answer = self._etcd.ask("/lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0)) > 0
