"""Port counters of the ToRs outside OpenFlow, read by their drivers: OVSDB, NETCONF."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from hydra.demand.counters import PortMeter
from hydra.errors import DeviceError
from hydra.model import Fabric, PortId, RackId
from hydra.policy import Policy
from hydra.roles import PortCounters

LOG = logging.getLogger("hydra.counters")
_NO_ANSWER: Final = "no port counters"
_STALE: Final = 3
"""Number of intervals after which the last reading of a ToR is unknown."""


class CounterSource(Protocol):
    def counters_age_s(self, rack: RackId) -> float | None:
        """Possible age of counters; None if a ToR's driver has no counters."""

    def counters(self, rack: RackId) -> Mapping[str, PortCounters] | None:
        """Counters of a ToR's optical ports; None while the ToR is away or busy. Raises
        DeviceError.
        """


class TorCounters:
    """A thread that reads one ToR after the other; the readings are available to any thread.

    Each ToR is asked once in ``poll_interval_s``, or as often as its counters change, if less
    often: drivers learn the interval of some counters from the device. A ToR used by a
    reconfiguration is not asked.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: Policy,
        devices: CounterSource,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        ages_s = {
            rack.id: age_s
            for rack in fabric.racks
            if rack.tor.datapath_id is None
            and (age_s := devices.counters_age_s(rack.id)) is not None
        }
        self._fabric = fabric
        self._devices = devices
        self._clock = clock
        self._racks = tuple(ages_s)
        self._interval_s = max([policy.poll_interval_s, *ages_s.values()])
        self._enabled = bool(ages_s) and policy.poll_interval_s > 0
        self._ports = PortMeter[PortId]()
        self._received_s: dict[RackId, float] = {}
        self._failures: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="tor-counters", daemon=True)

    def start(self) -> None:
        if self._enabled:
            self._thread.start()

    def stop(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _repeat(self) -> None:
        pause_s = self._interval_s / len(self._racks)
        while True:
            for rack in self._racks:
                if self._closing.wait(pause_s):
                    return
                if self.is_due(rack):
                    self.read(rack)

    def is_due(self, rack: RackId) -> bool:
        """True if a ToR may have new counters since the last reading."""
        return self._clock() - self._received_s.get(rack, -math.inf) >= self._age_s(rack)

    def _age_s(self, rack: RackId) -> float:
        return self._devices.counters_age_s(rack) or 0.0

    def read(self, rack: RackId) -> None:
        """Ask a ToR now."""
        try:
            found = self._devices.counters(rack)
        except DeviceError as error:
            self._note_failure(rack, str(error))
            found = {}
        now_s = self._clock()
        if found is None:  # away or in use: the last reading holds for a while
            holds_s = _STALE * max(self._interval_s, self._age_s(rack))
            if now_s - self._received_s.get(rack, -math.inf) < holds_s:
                return
            found = {}
        else:
            self._received_s[rack] = now_s
        with self._lock:
            for port in self._fabric.ports_of(rack):
                if port.tor_port in found:
                    self._ports.update(port.id, found[port.tor_port].tx_octets, now_s)
                else:
                    self._ports.forget(port.id)

    def _note_failure(self, rack: RackId, detail: str) -> None:
        with self._lock:
            self._failures[_NO_ANSWER] += 1
            first = self._failures[_NO_ANSWER] == 1
        if first:
            LOG.warning(
                "port counters of %s: %s; further cases are only counted",
                self._fabric.racks[rack].name,
                detail,
            )

    # -- any thread -------------------------------------------------------------------------------

    def rates_mbps(self) -> Mapping[PortId, float]:
        """Mbps sent by each optical port; ports without a reading are absent."""
        with self._lock:
            return self._ports.rates_mbps()

    def troubles(self) -> Mapping[str, int]:
        """Number of missing or unusable answers, by cause."""
        with self._lock:
            found = Counter({a.value: n for a, n in self._ports.anomalies.items()})
            found.update(self._failures)
        return dict(found)
