"""Reads every vswitch's account table and every ToR's port counters once an interval."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np

from apps.fleet import Fleet
from apps.openflow import FlowCounters
from hydra.counters import DemandMeter, PortMeter
from hydra.model import DemandMatrix, Fabric, PortId
from hydra.pipeline import Table, cookie_subject
from hydra.policy import Policy

LOG = logging.getLogger("hydra.poller")
_STALE_INTERVALS = 3


class StatsPoller:
    """A thread that polls; the matrix can be read from any other."""

    def __init__(self, fabric: Fabric, policy: Policy, fleet: Fleet) -> None:
        self._fabric = fabric
        self._interval_s = policy.poll_interval_s
        self._timeout_s = min(policy.timeouts.vswitch_s, max(policy.poll_interval_s, 0.1))
        self._fleet = fleet
        self._meter = DemandMeter(fabric, policy.demand_window_s)
        self._ports = PortMeter()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="poller", daemon=True)

    @property
    def enabled(self) -> bool:
        return self._interval_s > 0

    def start(self) -> None:
        if self.enabled:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _repeat(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._interval_s, time.monotonic())
            self.poll()

    def poll(self) -> None:
        """One sweep over all connected switches."""
        self._poll_vswitches()
        self._poll_tors()

    def _poll_tors(self) -> None:
        tors = self._fabric.rack_by_tor_datapath
        connected = [datapath for datapath in sorted(self._fleet.connected()) if datapath in tors]
        answers = self._fleet.port_packets(connected, self._timeout_s)
        now_s = time.monotonic()
        with self._lock:
            for port in self._fabric.ports:
                datapath = self._fabric.racks[port.rack].tor.datapath_id
                counters = None if datapath is None else answers.get(datapath)
                if counters is None or port.tor_port not in counters:
                    self._ports.forget(port.id)
                else:
                    self._ports.update(port.id, counters[port.tor_port].tx_bytes, now_s)

    def port_rates_mbps(self) -> dict[PortId, float]:
        """Mbps that each optical ToR port sends; ports not heard of are absent."""
        with self._lock:
            return self._ports.rates_mbps()

    def _poll_vswitches(self) -> None:
        indices = {
            server.vswitch.datapath_id: index for index, server in enumerate(self._fabric.servers)
        }
        connected = [dp for dp in sorted(self._fleet.connected()) if dp in indices]
        counters = self._fleet.flow_counters(connected, Table.ACCOUNT, self._timeout_s)
        now_s = time.monotonic()
        with self._lock:
            for datapath, columns in counters.items():
                if columns is not None:
                    totals = self._bytes_per_rack(columns)
                    self._meter.update(indices[datapath], totals, now_s)

    def _bytes_per_rack(
        self, columns: FlowCounters
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Sum the prefixes of each destination rack; the cookie says which rack a rule counts."""
        racks = len(self._fabric.racks)
        subject = np.array([cookie_subject(int(value)) for value in columns.cookie], dtype=np.intp)
        known = (subject >= 1) & (subject <= racks)
        totals = np.zeros(racks)
        np.add.at(totals, subject[known] - 1, columns.bytes[known].astype(np.float64))
        return totals

    def rates(self) -> tuple[DemandMatrix, float | None, tuple[str, ...], bool]:
        """(Mbps matrix, age in s of the newest reading, stale servers, any rate measured)."""
        now_s = time.monotonic()
        with self._lock:
            stale = tuple(self._meter.stale(now_s, _STALE_INTERVALS * max(self._interval_s, 0.1)))
            return self._meter.matrix(), self._meter.age_s(now_s), stale, self._meter.ready
