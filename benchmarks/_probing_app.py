"""A controller process that only probes, for ``benchmarks.probing``."""

from __future__ import annotations

import json
import os
import time

from apps.controller.surveillance import Prober
from apps.openflow.fleet import Fleet
from apps.openflow.framework import OpenFlowApp
from apps.openflow.interface import Application, Post, SwitchEvents
from apps.process.configuration import load_configuration
from benchmarks.probing import CONFIG, OPENFLOW_PORT, standing_state
from hydra.faults.surveillance import LostPath
from hydra.model import Fabric
from hydra.policy import Policy


class _Probing:
    openflow_address = ("127.0.0.1", OPENFLOW_PORT)
    openflow_tls = None
    openflow_connections = 100_000

    def __init__(self, fabric: Fabric, interval_s: float, post: Post) -> None:
        self._fleet = Fleet(fabric, post)
        state = standing_state(fabric)
        first = {rack.servers[0].vswitch.datapath_id for rack in fabric.racks}
        self._prober = Prober(
            fabric=fabric,
            policy=Policy(probe_interval_s=interval_s),
            fleet=self._fleet,
            standing=lambda: (state, ()),
            able=lambda: first & self._fleet.connected(),
            report=self._lost,
        )

    @property
    def events(self) -> SwitchEvents:
        return self._fleet

    def _lost(self, lost: list[LostPath] | tuple[LostPath, ...] | object) -> None:
        print(json.dumps({"at_s": time.monotonic(), "lost": str(lost)[:200]}), flush=True)

    def start(self) -> None:
        self._prober.start()

    def stop(self) -> None:
        self._prober.stop()


class ProbingApp(OpenFlowApp):
    def compose(self, post: Post) -> Application:
        fabric = load_configuration(CONFIG).fabric
        return _Probing(fabric, float(os.environ["PROBE_INTERVAL_S"]), post)
