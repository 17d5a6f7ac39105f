"""Records the load of circuits and rack pairs for the last hour."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from apps.demand.poller import StatsPoller
from hydra.demand.load import LOAD_INTERVAL_S, NOT_RECORDED, Load, LoadLog
from hydra.model import Fabric, PortId, RackId, Topology
from hydra.policy import Policy

LOG = logging.getLogger("hydra.load")


class LoadRecorder:
    """A thread that takes a sample every 10 s, or at each poll if polls are further apart.

    The thread waits for no device: a sample contains the latest poll. Without polls, no samples are
    taken.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: Policy,
        poller: StatsPoller,
        port_rates_mbps: Callable[[], Mapping[PortId, float]],
        topology: Callable[[], Topology],
        reservations: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``reservations`` returns the number of reservations that have, or are getting,
        circuits.
        """
        self._poller = poller
        self._port_rates_mbps = port_rates_mbps
        self._topology, self._reservations = topology, reservations
        self._clock = clock
        self._interval_s = max(LOAD_INTERVAL_S, policy.poll_interval_s)
        self._log = LoadLog(fabric, self._interval_s) if poller.enabled else None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="load-recorder", daemon=True)

    def start(self) -> None:
        if self._log is not None:
            self._thread.start()

    def stop(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _repeat(self) -> None:
        due_s = self._clock() + self._interval_s
        while not self._closing.wait(max(0.0, due_s - self._clock())):
            try:
                self.sample()
            except Exception:  # concerns a single sample: the thread has to go on
                LOG.exception("a sample of the load failed; the next one follows")
            due_s = max(due_s + self._interval_s, self._clock())

    def sample(self) -> None:
        """Take a sample now."""
        if self._log is None:
            return
        topology, ports_mbps = self._topology(), self._port_rates_mbps()
        pairs_mbps, reservations = self._poller.known_mbps(), self._reservations()
        with self._lock:
            self._log.take(self._clock(), topology, ports_mbps, pairs_mbps, reservations)

    def load(self, racks: Collection[RackId], most: int) -> Load:
        """As :meth:`hydra.service.ControllerService.load`; for any thread."""
        if self._log is None:
            return NOT_RECORDED
        with self._lock:
            return self._log.load(
                self._clock(), time.time(), self._topology().circuits, racks, most
            )
