"""Puts the REST API together."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from apps.process.metrics import ServiceCollector, WorkersCollector
from apps.process.term import Alone, Term
from apps.process.worker_list import Workers
from apps.rest import errors
from apps.rest.dependencies import ServerClosing
from apps.rest.description import Api
from apps.rest.guard import AuditLog, Guard, Logins
from apps.rest.leader_proxy import LeaderProxy
from apps.rest.middleware import BodyGuard, Departures, HeadAsGet
from apps.rest.mounting import mounted
from apps.rest.rate import Limiter
from apps.rest.resources import all_routes
from apps.rest.sites import Sites
from apps.rest.standby import StandingBy, View
from apps.rest.tokens import TokenFile
from apps.rest.webhook_delivery import Webhooks
from hydra.service import ControllerService

_ROUTES: Final = mounted(all_routes())
"""Made once, since making takes 0.15 s: the first request of each app would wait."""


def create_app(
    service: ControllerService,
    tokens: TokenFile | None = None,
    limiter: Limiter | None = None,
    audit: AuditLog | None = None,
    registry: CollectorRegistry | None = None,
    hooks: Webhooks | None = None,
    hosts: Sequence[str] = (),
    term: Term | None = None,
    view: View | None = None,
    trust: Callable[[], ssl.SSLContext] | None = None,
    held_by: Workers | None = None,
) -> FastAPI:
    """The API in front of ``service``; serve the app with :class:`apps.rest.server.RestServer`.

    Without ``tokens``, any client may do everything. /metrics shows ``registry``, and the state of
    the service and of workers. Without ``hooks``, webhooks can be made but nothing is sent.
    ``hosts`` are host names of the controller. While ``term`` belongs to another controller,
    requests are answered from ``view`` of the store, or forwarded to the leader; ``trust``: the
    authorities of the leader's certificate, None for the system's. ``held_by``: the workers that
    hold switches.

    /openapi.json describes the API, and /docs shows the description to people. FastAPI's own pages
    load scripts from other sites, and a controller's network may not reach the Internet.
    """
    app = Api(_ROUTES, asks_for_tokens=tokens is not None)
    app.state.service = service
    app.state.tokens = tokens
    app.state.term = term = term or Alone()
    app.state.workers = held_by
    app.state.webhooks = hooks or Webhooks(service.fabric, service.events)
    app.state.closing = ServerClosing()
    app.state.subscribers = Counter()
    app.state.wakeups = None
    app.state.registry = registry or CollectorRegistry()
    app.state.registry.register(ServiceCollector(lambda: app.state.service, term))
    if held_by is not None:
        app.state.registry.register(WorkersCollector(held_by))
    errors.install(app, app.routes)
    app.add_middleware(Departures)
    carrier = LeaderProxy(term.standby, app.state.closing, trust)
    app.add_middleware(StandingBy, term=term, carrier=carrier, view=view)
    app.add_middleware(BodyGuard)
    app.add_middleware(
        Guard,
        routes=app.routes,
        tokens=tokens,
        limiter=limiter,
        audit=audit or AuditLog(None),
        sites=Sites(hosts, any_host=tokens is not None),
        logins=Logins(service.note_login),
    )
    app.add_middleware(HeadAsGet)
    return app
