"""/v1/agents: setup of servers' agents, and their reports"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import AfterValidator, Field

from apps.rest.dependencies import Closing, Service, StillEntitled, Waking
from apps.rest.document import Body, Document, Name
from apps.rest.problems import (
    BODY_PROBLEMS,
    FORBIDDEN,
    TOO_MANY_REQUESTS,
    TOO_MANY_SUBSCRIBERS,
    UNKNOWN_NAME,
)
from apps.rest.request_bodies import BodyRoute, MalformedBody
from apps.rest.routing import Routes
from apps.rest.scope import caller_of
from hydra.access import Role
from hydra.demand.agent_protocol import AgentTrouble, ForeignServer
from hydra.demand.backlog import MOST_ELEPHANTS
from hydra.forwarding import class_table
from hydra.service import ControllerService

_LOOK_UP_S: Final = 5.0
"""Interval at which an idle follower checks whether its token is still valid."""
_MOST_RACKS: Final = 10_000
_MOST_CONNECTIONS: Final = 10_000_000
_MOST_MB: Final = 1e6
"""No server has a terabyte of socket buffers."""


class AgentStatus(Document):
    server: str
    age_s: float = Field(description="Time since the last report.")
    stale: bool = Field(description="No report for too long: the last report no longer counts.")
    waiting_mb: float = Field(description="In sockets to other racks, as reported last.")


class Agents(Document):
    agents: list[AgentStatus]


class AgentSetup(Document):
    """Setup of the agent of this server."""

    server: str
    rack: str
    prefixes: dict[str, list[str]] = Field(description="Prefixes of each other rack, by rack name.")
    report_above_mb: float
    report_change_mb: float
    sample_s: float = Field(description="Between looks at the sockets.")
    report_gap_s: float = Field(description="Shortest time between reports.")
    repeat_s: float = Field(description="Longest time between reports.")
    elephant_mb: float | None = Field(
        description="Size from which a connection is an elephant. Null: elephants are not reported."
    )
    elephant_idle_s: float = Field(
        description="An elephant without anything to send for this time is a mouse again."
    )
    link_mbps: float
    optical_share: float = Field(
        description="Share of the link for racks joined by circuits. 0: no output scheduling."
    )
    revision: str = Field(description="Changes with every other field.")


def _address(text: str) -> str:
    ip_address(text)  # raises ValueError
    return text


class Connection(Body):
    """A TCP connection of the server."""

    address: Annotated[str, Field(max_length=45), AfterValidator(_address)] = Field(
        description="Of the other end."
    )
    src_port: int = Field(ge=1, le=65_535)
    dst_port: int = Field(ge=1, le=65_535)


class BacklogBody(Body):
    """Present backlog of a server's sockets, complete: racks left out have no backlog.

    Connections may be left out as a whole: the last reported connections then stay.
    """

    backlog_mb: dict[Name, Annotated[float, Field(ge=0, le=_MOST_MB)]] = Field(
        max_length=_MOST_RACKS, description="By destination rack, in 10^6 bytes."
    )
    connections: (
        Annotated[
            dict[Name, Annotated[int, Field(ge=1, le=_MOST_CONNECTIONS)]],
            Field(max_length=_MOST_RACKS),
        ]
        | None
    ) = Field(
        default=None,
        description="By destination rack, connections with data to send. Null: as reported before.",
    )
    elephants: Annotated[list[Connection], Field(fail_fast=True)] = Field(
        default=[],
        max_length=MOST_ELEPHANTS,
        description="Connections that may use circuits, if circuits are for elephants.",
    )


class AgentAnswer(Document):
    revision: str = Field(
        description="Revision of the setup in force: if changed, get the setup again."
    )


class AgentCircuits(Document):
    """Racks joined by circuits to a server's rack; racks with moving circuits are left out."""

    optical: list[str]


class _CountingRoute(BodyRoute):
    """Counts unreadable reports, and refuses them as usual; reports for other servers are not
    read.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def counting(request: Request) -> Response:
            _check_owner(request)
            try:
                return await handle(request)
            except RequestValidationError as error:
                _note_malformed(request, str(error.errors()[0]["msg"]))
                raise
            except MalformedBody as error:
                _note_malformed(request, str(error))
                raise

        return counting


def _note_malformed(request: Request, detail: str) -> None:
    service: ControllerService = request.app.state.service
    service.agents.note(AgentTrouble.MALFORMED, str(request.path_params.get("server_name")), detail)


def _check_owner(request: Request) -> None:
    """Raises ForeignServer, before any other check."""
    caller = caller_of(request.scope)
    server = request.path_params.get("server_name")
    if caller.role is Role.AGENT and caller.name != server:
        service: ControllerService = request.app.state.service
        service.agents.note(AgentTrouble.FOREIGN, caller.name, str(server))
        raise ForeignServer(
            f"the token of {caller.name} is not good for {server}: report with a token of "
            f"{server}'s own, by `hydra token create {server} --role agent`"
        )


_IDENTITY_PROBLEMS: Final = (FORBIDDEN, UNKNOWN_NAME)
_AGENTS: Final = frozenset({Role.AGENT})
routes = Routes("/v1/agents", "agents")


@routes.on("GET", route_class_override=_CountingRoute)
def list_agents(service: Service) -> Agents:
    """Agents that have reported since the controller's start."""
    return Agents.of(None, agents=service.agents.agents())


@routes.on(
    "GET",
    "/{server_name}",
    *_IDENTITY_PROBLEMS,
    also=_AGENTS,
    route_class_override=_CountingRoute,
)
def get_setup(server_name: str, service: Service) -> AgentSetup:
    """Prefixes of the racks, and when to report."""
    return AgentSetup.of(None, service.agents.setup(server_name))


@routes.on(
    "PUT",
    "/{server_name}/backlog",
    *BODY_PROBLEMS,
    *_IDENTITY_PROBLEMS,
    TOO_MANY_REQUESTS,
    also=_AGENTS,
    recorded=False,  # several reports a second
    route_class_override=_CountingRoute,
)
def put_backlog(server_name: str, body: BacklogBody, service: Service) -> AgentAnswer:
    """Report a server's backlog. A backlog of traffic unseen by the counters has no effect."""
    elephants = frozenset(
        class_table.TcpConnection(
            ip_address(elephant.address), elephant.src_port, elephant.dst_port
        )
        for elephant in body.elephants
    )
    revision = service.agents.take_report(server_name, body.backlog_mb, elephants, body.connections)
    return AgentAnswer(revision=revision)


async def _news(
    server_name: str, service: Service, closing: Closing, waking: Waking
) -> AsyncIterator[asyncio.Event]:
    """Set when the server's circuits have changed, or REST closes.

    Raises UnknownName, TooManyFollowers.
    """
    news = asyncio.Event()
    wake = partial(waking.wake, news)
    with service.agents.following(server_name, wake), closing.waking(wake):
        yield news


@routes.on(
    "GET",
    "/{server_name}/circuits",
    *_IDENTITY_PROBLEMS,
    TOO_MANY_SUBSCRIBERS,
    also=_AGENTS,
    response_class=EventSourceResponse,
    responses={200: {"model": AgentCircuits}},
    route_class_override=_CountingRoute,
)
async def follow_circuits(
    server_name: str,
    service: Service,
    closing: Closing,
    standing: StillEntitled,
    news: Annotated[asyncio.Event, Depends(_news)],
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events ``circuits``, each an ``AgentCircuits``: one at once, then one for each
    change. The stream ends when the token, or its role, is no longer valid.
    """
    sent = None
    while not closing.is_set() and standing():
        news.clear()
        racks = service.agents.circuits(server_name)
        if racks != sent:
            sent = racks
            yield ServerSentEvent(event="circuits", data=AgentCircuits(optical=list(racks)))
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), _LOOK_UP_S)
