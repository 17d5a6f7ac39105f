"""The worker's process: an application of Ryu's or os-ken's without decisions."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Final

from apps.openflow.framework import OpenFlowApp
from apps.openflow.interface import Application, OpenFlowTls, Post, SwitchEvents
from apps.process import logs
from apps.process.admitted_connections import reserve_descriptors
from apps.process.configuration import configuration_at_start
from apps.process.garbage import exempt_present_objects
from apps.process.single_instance import check_port
from apps.process.supervision import Heart
from apps.workers.links import Links
from apps.workers.settings import WorkerOptions, handed_over
from hydra.config import Loaded
from hydra.forwarding.substrate import substrate_of

LOG = logging.getLogger("hydra.workers")
_SPARE_CONNECTIONS: Final = 64
_OTHER_DESCRIPTORS: Final = 128


class WorkerApplication:
    """Switches' connections, held for controllers."""

    def __init__(self, loaded: Loaded, options: WorkerOptions, post: Post) -> None:
        fabric, settings = loaded.fabric, loaded.controller
        switches = len(fabric.servers) + len(fabric.racks)
        # Switches may come back before the end of their old connections.
        self.openflow_connections = switches + switches // 2 + _SPARE_CONNECTIONS
        self.openflow_address: tuple[str, int] | None = options.listen
        self.openflow_tls: OpenFlowTls | None = None
        certificate, key = settings.openflow_certificate, settings.openflow_key
        if certificate and key and settings.openflow_authority:
            self.openflow_tls = OpenFlowTls(certificate, key, settings.openflow_authority)
            self.openflow_tls.check()
        each = 1 if self.openflow_tls is None else OpenFlowTls.DESCRIPTORS
        reserve_descriptors(
            self.openflow_connections * each + _OTHER_DESCRIPTORS, f"for {switches} switches"
        )
        check_port("--listen", *options.listen)
        self._options = options
        known = {*fabric.tor_names, *substrate_of(fabric).owned()}
        self._links = Links(options, post, known.__contains__)
        self._heart = Heart(post, lambda: True)

    @property
    def events(self) -> SwitchEvents:
        return self._links.holder

    def start(self) -> None:
        exempt_present_objects()
        self._links.start()
        self._heart.start()
        LOG.info("worker %s: OpenFlow on %s:%s", self._options.name, *self._options.listen)

    def stop(self) -> None:
        self._heart.stop()
        self._links.stop()
        LOG.info("stopped; the switches go on forwarding")


class Worker(OpenFlowApp):
    """The application for the OpenFlow framework."""

    def compose(self, post: Post) -> Application:
        # A controller reloads its policy at SIGHUP, and closed terminals send it: no reason to end.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        log_format = os.environ.get(logs.FORMAT_VARIABLE, "text")
        logs.set_up(log_format, os.environ.get(logs.LEVEL_VARIABLE, "info"))
        loaded = configuration_at_start(Path(os.environ["HYDRA_CONFIG"]))
        return WorkerApplication(loaded, handed_over(), post)
