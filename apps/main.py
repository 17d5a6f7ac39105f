"""The Ryu application: ``HYDRA_CONFIG=fabric.yaml ryu-manager apps.main``.

The composition root: reads the configuration named by the environment and puts the parts together.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, cast

from apps.controller.controller import Controller
from apps.controller.standby_service import StoredView
from apps.journal.opening import needs_etcd
from apps.journal.sqlite import SqliteJournal
from apps.openflow.framework import OpenFlowApp
from apps.openflow.interface import Application, OpenFlowTls, Post, SwitchEvents
from apps.openflow.requests import read_first
from apps.process import logs
from apps.process.configuration import (
    configuration_at_start,
    configuration_path,
    digest_of,
    load_configuration,
)
from apps.process.garbage import exempt_present_objects
from apps.process.shutdown import give_up
from apps.process.single_instance import check_port, check_private, journal_held
from apps.process.supervision import Heart
from apps.process.term import Alone, Term
from apps.process.tracing import traces
from apps.rest.app import create_app
from apps.rest.connections import room_for_connections
from apps.rest.guard import AuditLog
from apps.rest.rate import Limiter
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile
from apps.rest.trust import Tls, trust_in
from apps.rest.webhook_addresses import WebhookNetworks
from apps.rest.webhook_delivery import Webhooks
from apps.workers.opening import needs_workers
from hydra import __version__
from hydra.config import Loaded
from hydra.errors import HydraError
from hydra.journal import Journal
from hydra.reconfiguration.substeps import OWN_CYCLE, Cycle
from hydra.settings import ControllerSettings

if TYPE_CHECKING:
    from apps.workers.leases import WorkerLeases

LOG = logging.getLogger("hydra")
LOST_LEASE: Final = 75
"""Exit status of a leader without a renewed lease: EX_TEMPFAIL of sysexits.h.
Started again, the controller stands by."""
_TURN_S: Final = 0.001
"""Time for which a thread computes while other threads wait for Python.

A request to REST takes dozens of turns: with Python's own 5 ms, a quarter of a second beside an
audit, or a change of all circuits.
"""
_LAST_WORDS_S: Final = 0.05


class HydraApplication:
    """A controller with a REST server."""

    def __init__(self, loaded: Loaded, post: Post, cycle: Cycle = OWN_CYCLE) -> None:
        settings = loaded.controller
        fabric = loaded.fabric
        connections = room_for_connections(loaded)
        self.openflow_connections = connections.openflow
        self.openflow_tls = _openflow_tls(settings)
        self.openflow_address: tuple[str, int] | None = None
        if settings.workers is None:
            self.openflow_address = (settings.openflow_host, settings.openflow_port)
        self._alone = ExitStack()
        if settings.etcd is None:
            self._alone.enter_context(journal_held(settings.journal))
            check_private(settings.journal)
        if self.openflow_address is not None:
            check_port("controller.openflow", *self.openflow_address)
        check_port("controller.rest", settings.rest_host, settings.rest_port)
        journal = self._open_journal(loaded)
        self._traces = traces(loaded.fabric.name)
        began = int(time.time()) // 10  # below all terms in etcd, beginning at 2**28
        exchange = self._exchange = needs_workers(
            settings.workers,
            fabric,
            lambda: self._incarnation(began),
        )
        if exchange is not None:
            post = exchange.post
        self._controller = Controller(
            loaded=loaded,
            journal=journal,
            post=post,
            read_file=lambda: load_configuration(Path(loaded.source)),
            traces=self._traces,
            give_up=give_up,
            term=self._term,
            catch_up=read_first if exchange is None else exchange.catch_up,
            workers_refused=(lambda: ()) if exchange is None else exchange.roster.refused,
            cycle=cycle,
        )
        desk = self._controller.desk
        self._webhooks = Webhooks(
            loaded.fabric, desk.events, journal, WebhookNetworks(settings.webhook_networks)
        )
        self._began = self._stopping = False
        self._beginning = threading.Lock()
        self._heart = Heart(post, lambda: not self._began or self._controller.alive())
        self._rest = self._rest_server(loaded, connections.rest)

    def _rest_server(self, loaded: Loaded, connections: int) -> RestServer:
        settings, exchange, desk = loaded.controller, self._exchange, self._controller.desk
        app = create_app(
            desk,
            None if settings.tokens is None else TokenFile(Path(settings.tokens)),
            Limiter(settings.requests_per_s),
            AuditLog(settings.audit_log),
            self._controller.metrics.registry,
            self._webhooks,
            settings.hosts,
            self._term,
            self._view,
            trust_in(settings.authority),
            None if exchange is None else exchange.roster,
        )
        tls = None
        if settings.tls_certificate is not None and settings.tls_key is not None:
            tls = Tls(settings.tls_certificate, settings.tls_key)
        return RestServer(
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

    def _open_journal(self, loaded: Loaded) -> Journal:
        """The journal: open, or opened once this controller leads."""
        settings, fabric = loaded.controller, loaded.fabric
        self._term: Term = Alone()
        self._take_part: Callable[[], None] | None = None
        self._leave: Callable[[], None] = lambda: None
        self._view: StoredView | None = None
        self._worker_leases: WorkerLeases | None = None
        if settings.etcd is None:
            if not Path(settings.journal).exists():
                LOG.info("%s: a new journal, without circuits or reservations", settings.journal)
            return SqliteJournal(settings.journal, kept_days=settings.journal_days)
        needs_etcd("apps.etcd.gateway").check_files(settings.etcd)
        etcd = needs_etcd("apps.journal.etcd")
        leadership = needs_etcd("apps.etcd.leadership")
        journal = etcd.EtcdJournal(settings.etcd, later=True, kept_days=settings.journal_days)
        copies = needs_etcd("apps.journal.copy").Copying(settings.etcd)
        view = StoredView(fabric, copies)

        def lead() -> None:
            try:
                view.stop()
                journal.open(term.conditions(), copies.hand_over())
                if self._exchange is not None and settings.etcd is not None:
                    self._worker_leases = needs_etcd("apps.workers.leases").WorkerLeases(
                        settings.etcd, self._exchange, term.conditions
                    )
                    self._worker_leases.start()
                self._begin()
                term.note_begun()
                # A collection would stop the reading of devices for 0.1 s.
                exempt_present_objects(collect=False)
            except HydraError as error:
                give_up(error)
            except Exception as error:  # a leader that never begins keeps standbys from leading
                LOG.exception("this controller can't begin to lead")
                give_up(HydraError(f"can't begin to lead, the log says where: {error!r}"))

        term = leadership.Leadership(
            settings.etcd,
            socket.gethostname(),
            _own_url(settings),
            __version__,
            lead,
            _end_at_once,
            give_up,
            lambda: len(self._controller.fleet.own_connected()),
            lambda: digest_of(loaded),
        )
        self._term, self._take_part, self._leave = term, term.start, term.close
        self._view = view
        return cast(Journal, journal)

    def start(self) -> None:
        sys.setswitchinterval(_TURN_S)
        exempt_present_objects()  # the configuration: devices' replies fill the memory many times
        if self._exchange is None:  # workers report switches once this controller leads
            self._controller.fleet.note_listening()
        self._controller.prepare()
        if self._take_part is None:
            self._begin()
            exempt_present_objects()
        self._rest.start()
        signal.signal(signal.SIGHUP, lambda *_: self._controller.policies.reload_soon())
        self._heart.start()
        if self._exchange is not None:
            self._exchange.start(self._controller.fleet, self._controller.put)
        where = self.openflow_address or ("workers", "none here")
        LOG.info("OpenFlow on %s:%s, REST on %s", *where, self._rest.url)
        if self._take_part is not None and self._view is not None:
            self._view.start(self._take_part, give_up, self._controller.look_ahead)

    def _begin(self) -> None:
        """Decide and act from now on."""
        with self._beginning:
            if self._stopping:
                return
            self._controller.start()
            self._began = True
            self._webhooks.start()

    def stop(self) -> None:
        """End in order. If there are standbys, do as much as possible before or after the change of
        leaders: in between, no controller leads.
        """
        self._term.end_soon()
        self._heart.stop()
        if not self._term.is_shared:
            self._rest.stop()
        with self._beginning:
            self._stopping = True
        if self._began:
            self._webhooks.stop()
            self._controller.end_soon()
        self._term.take_no_more()
        self._rest.drain()
        if self._began:
            self._controller.stop(self._resign)
        else:
            self._controller.end_planning()
        if self._view is not None:
            self._view.stop()
        if self._worker_leases is not None:
            self._worker_leases.close()
        if self._exchange is not None:
            self._exchange.stop()
        self._leave()
        self._rest.stop()
        self._traces.close()
        self._alone.close()
        LOG.info("stopped; the switches go on forwarding")

    def _incarnation(self, began: int) -> int | None:
        """The leader's number for workers; None if this controller does not lead."""
        if not self._term.is_shared:
            return began
        return None if self._term.over() else self._term.generation

    def _resign(self) -> None:
        """Let another controller lead, and begin to give up the switches."""
        if self._worker_leases is not None:
            self._worker_leases.close()
        self._term.resign()
        if self._term.is_shared:
            self._controller.fleet.stand_aside()
        self._leave()


def _own_url(settings: ControllerSettings) -> str:
    """The URL of REST for other machines."""
    if settings.url is not None:
        return settings.url.rstrip("/")
    scheme = "http" if settings.tls_certificate is None else "https"
    host = settings.rest_host
    if host in {"", "0.0.0.0", "::"}:
        host = socket.gethostname()
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.rest_port}"


def _end_at_once(why: str) -> NoReturn:
    """End the process: another controller may lead from now on.

    Changes under way stop as by a kill; the next leader resumes the changes.
    """
    LOG.critical(
        "this controller leads no more, and ends at once: %s; start the controller again", why
    )
    logs.flush(_LAST_WORDS_S)
    os._exit(LOST_LEASE)


def _openflow_tls(settings: ControllerSettings) -> OpenFlowTls | None:
    files = settings.openflow_certificate, settings.openflow_key, settings.openflow_authority
    certificate, key, authority = files
    if certificate is None or key is None or authority is None:
        return None
    tls = OpenFlowTls(certificate, key, authority)
    tls.check()
    return tls


class HydRA(OpenFlowApp):
    """The application that ryu-manager finds in this file."""

    cycle: Cycle = OWN_CYCLE

    def compose(self, post: Post) -> Application:
        # Here, since Ryu sets up a log of its own before loading applications.
        log_format = os.environ.get(logs.FORMAT_VARIABLE, "text")
        logs.set_up(log_format, os.environ.get(logs.LEVEL_VARIABLE, "info"))
        loaded = configuration_at_start(configuration_path())
        return HydraApplication(loaded, post, self.cycle)
