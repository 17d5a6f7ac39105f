"""The Ryu application: ``HYDRA_CONFIG=fabric.yaml ryu-manager apps/main.py``.

The composition root: reads the configuration named by the environment and puts the parts together.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from apps.controller.controller import Controller
from apps.journal.sqlite import SqliteJournal
from apps.openflow.framework import OpenFlowApp
from apps.openflow.seam import Application, OpenFlowTls, Post, SwitchEvents, give_up
from apps.process import logs
from apps.process.configuration import load_configuration
from apps.process.doors import reserve_descriptors
from apps.process.garbage import spare_what_stays
from apps.process.single_instance import check_port, check_private, journal_held
from apps.process.supervision import Heart
from apps.process.tracing import traces
from apps.rest.app import create_app
from apps.rest.guard import AuditLog
from apps.rest.rate import Limiter
from apps.rest.server import MOST_CONNECTIONS, RestServer, Tls
from apps.rest.tokens import TokenFile
from apps.rest.webhook_addresses import Reach
from apps.rest.webhook_delivery import Webhooks
from hydra.config import Loaded
from hydra.errors import HydraError
from hydra.policy import ControllerSettings

CONFIG_VARIABLE = "HYDRA_CONFIG"
LOG = logging.getLogger("hydra")
_SPARE_CONNECTIONS: Final = 64
_OTHER_DESCRIPTORS: Final = 256
"""The journal, logs, pipes, webhooks."""


def configuration_path() -> Path:
    """The file that the environment names; raises HydraError if it names none."""
    value = os.environ.get(CONFIG_VARIABLE)
    if not value:
        raise HydraError(
            f"{CONFIG_VARIABLE} is not set: say which fabric to control, for example "
            f"{CONFIG_VARIABLE}=configs/demo.yaml ryu-manager apps/main.py"
        )
    return Path(value)


class HydraApplication:
    """A controller with its REST server."""

    def __init__(self, loaded: Loaded, post: Post) -> None:
        settings = loaded.controller
        fabric = loaded.fabric
        # Switches that come back may do so before their old connections have ended. Half of them
        # at a time: the others are let in once those have been settled, within seconds.
        switches = len(fabric.servers) + len(fabric.racks)
        self.openflow_connections = switches + switches // 2 + _SPARE_CONNECTIONS
        connections = settings.connections or MOST_CONNECTIONS + 2 * len(fabric.servers)
        reserve_descriptors(
            self.openflow_connections
            + connections
            + 2 * (len(fabric.racks) + len(fabric.planes))
            + _OTHER_DESCRIPTORS,
            f"for {switches} switches, {len(fabric.racks) + len(fabric.planes)} devices and "
            f"{connections} connections to REST",
        )
        self.openflow_address = (settings.openflow_host, settings.openflow_port)
        self.openflow_tls = _openflow_tls(settings)
        self._alone = ExitStack()
        self._alone.enter_context(journal_held(settings.journal))
        check_private(settings.journal)
        check_port("controller.openflow", *self.openflow_address)
        check_port("controller.rest", settings.rest_host, settings.rest_port)
        journal = SqliteJournal(settings.journal, kept_days=settings.journal_days)
        self._traces = traces(loaded.fabric.name)
        self._controller = Controller(
            loaded,
            journal,
            post,
            lambda: load_configuration(Path(loaded.source)),
            self._traces,
            give_up,
        )
        desk = self._controller.desk
        self._webhooks = Webhooks(
            loaded.fabric, desk.events, journal, Reach(settings.webhook_networks)
        )
        app = create_app(
            desk,
            None if settings.tokens is None else TokenFile(Path(settings.tokens)),
            Limiter(settings.requests_per_s),
            AuditLog(settings.audit_log),
            self._controller.metrics.registry,
            self._webhooks,
            settings.hosts,
        )
        tls = None
        if settings.tls_certificate is not None and settings.tls_key is not None:
            tls = Tls(settings.tls_certificate, settings.tls_key)
        self._heart = Heart(post, self._controller.alive)
        self._rest = RestServer(
            app,
            settings.rest_host,
            settings.rest_port,
            tls,
            connections,
            settings.connections_per_address or max(1, connections // 2),
        )

    @property
    def events(self) -> SwitchEvents:
        return self._controller.fleet

    def start(self) -> None:
        self._controller.start()
        self._webhooks.start()
        self._rest.start()
        signal.signal(signal.SIGHUP, lambda *_: self._controller.policies.reload_soon())
        self._heart.start()
        spare_what_stays()
        LOG.info("OpenFlow on %s:%s, REST on %s", *self.openflow_address, self._rest.url)

    def stop(self) -> None:
        self._heart.stop()
        self._rest.stop()
        self._webhooks.stop()
        self._controller.stop()
        self._traces.close()
        self._alone.close()
        LOG.info("stopped; the switches go on forwarding")


def _openflow_tls(settings: ControllerSettings) -> OpenFlowTls | None:
    files = settings.openflow_certificate, settings.openflow_key, settings.openflow_authority
    certificate, key, authority = files
    if certificate is None or key is None or authority is None:
        return None
    for file in (certificate, key, authority):
        if not Path(file).is_file():
            raise HydraError(f"controller.openflow_…: there is no file {file}: see `hydra ca`")
    return OpenFlowTls(certificate, key, authority)


class HydRA(OpenFlowApp):
    """The application that ryu-manager finds in this file."""

    def compose(self, post: Post) -> Application:
        # Here, since Ryu sets its own log up before it loads its applications.
        log_format = os.environ.get(logs.FORMAT_VARIABLE, "text")
        logs.set_up(log_format, os.environ.get(logs.LEVEL_VARIABLE, "info"))
        return HydraApplication(load_configuration(configuration_path()), post)
