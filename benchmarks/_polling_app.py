"""A controller process that only polls, for ``benchmarks.sweep``."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Final

from apps.demand.poller import StatsPoller
from apps.openflow.fleet import Fleet
from apps.openflow.framework import OpenFlowApp
from apps.openflow.interface import Application, Post, SwitchEvents
from apps.process.configuration import load_configuration
from benchmarks.sweep import OPENFLOW_PORT
from hydra.model import Fabric
from hydra.policy import Policy, Timeouts

_REPORT_S: Final = 1.0


class _Polling:
    openflow_address = ("127.0.0.1", OPENFLOW_PORT)
    openflow_tls = None
    openflow_connections = 100_000

    def __init__(self, fabric: Fabric, interval_s: float, post: Post) -> None:
        policy = Policy(poll_interval_s=interval_s, timeouts=Timeouts(vswitch_s=10.0))
        self._fleet = Fleet(fabric, post)
        self._poller = StatsPoller(fabric=fabric, policy=policy, fleet=self._fleet)
        self._wanted = len(fabric.servers) + len(fabric.racks)
        self._stop = threading.Event()

    @property
    def events(self) -> SwitchEvents:
        return self._fleet

    def start(self) -> None:
        threading.Thread(target=self._poll_and_report, daemon=True).start()

    def _poll_and_report(self) -> None:
        """Begin once all switches are connected, then report once a second."""
        while len(self._fleet.connected()) < self._wanted:
            self._stop.wait(_REPORT_S)
        self._poller.start()
        while not self._stop.wait(_REPORT_S):
            line = {
                "troubles": self._poller.troubles(),
                "ports": len(self._poller.port_rates_mbps()),
            }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    def stop(self) -> None:
        self._stop.set()
        self._poller.stop()


class PollingApp(OpenFlowApp):
    def compose(self, post: Post) -> Application:
        fabric = load_configuration(Path(os.environ["POLLED"])).fabric
        return _Polling(fabric, float(os.environ["POLL_INTERVAL_S"]), post)
