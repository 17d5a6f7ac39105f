"""Makes FastAPI's routes from the declared routes of resources."""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType
from typing import Any, get_type_hints

from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Cookie, Header, Path
from starlette.routing import BaseRoute

from apps.rest import dependencies
from apps.rest.access import set_access
from apps.rest.answering import written
from apps.rest.errors import responses
from apps.rest.problems import INVALID_REQUEST
from apps.rest.request_bodies import BodyRoute, unknown_names
from apps.rest.routing import Route, Routes


def mounted(resources: Iterable[Routes]) -> tuple[BaseRoute, ...]:
    """FastAPI's routes of all resources. The OpenAPI ``operationId`` of a route is the name of the
    route's function, so generated clients have methods with the same names.
    """
    router = APIRouter()
    for resource in resources:
        for route in resource.declared:
            _mount(router, route)
    return tuple(router.routes)


def _mount(router: APIRouter, route: Route) -> None:
    settings: dict[str, Any] = {"route_class_override": BodyRoute, **route.settings}
    problems = route.problems
    if settings.get("include_in_schema", True):
        problems = tuple(dict.fromkeys((*problems, INVALID_REQUEST)))
        settings["dependencies"] = [Depends(_known_query), *settings.get("dependencies", ())]
    answers = settings.pop("responses", {}) | responses(*problems)
    function = route.function
    names = {**vars(dependencies), **function.__globals__}
    hints = get_type_hints(function, names, include_extras=True)
    function.__annotations__ = {
        name: None if hint is NoneType else hint for name, hint in hints.items()
    }
    router.add_api_route(
        route.path,
        written(function, settings.get("status_code", 200)),
        methods=[route.method],
        tags=None if route.tag is None else [route.tag],
        operation_id=function.__name__,
        responses=answers,
        openapi_extra={"security": []} if route.access.public else None,
        **settings,
    )
    set_access(router.routes[-1], route.access)


async def _known_query(request: Request) -> None:
    """Raise InvalidRequest if the query has a name that is no parameter of the route."""
    if not request.query_params:
        return
    known = [
        field.alias
        for field in get_flat_params(request.scope["route"].dependant)
        if not isinstance(field.field_info, Path | Header | Cookie)
    ]
    if unknown := request.query_params.keys() - set(known):
        raise unknown_names("query", sorted(unknown), known)
