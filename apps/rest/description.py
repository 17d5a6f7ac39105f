"""The description of the API at /openapi.json: FastAPI's, as valid OpenAPI 3.1 for generators.

If FastAPI's description and a generator of clients do not agree, the description is corrected here,
for all routes at once. ``examples/clients/run.sh`` makes clients with several generators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fastapi import FastAPI
from starlette.routing import BaseRoute

from apps.rest import problems
from apps.rest.errors import SCHEMAS
from apps.rest.resources.problem_types import Problem

TITLE: Final = "HydRA"
VERSION: Final = "1.0"
SUMMARY: Final = "Circuits between racks: reservations, plans and reconfigurations."
_ABOUT: Final = (
    "Units are in the names: `_mbps`, `_ms`, `_s`, and `_unix_s` for points in time, in seconds "
    "since 1970, with fractions. Racks, planes and ports have the names in the controller's "
    "configuration. Every error is a problem document (RFC 9457); `type` is the address of a "
    "description of the problem."
)
_TAGS: Final = {
    "reservations": "Bandwidth between racks or servers, promised for a time.",
    "events": "Events, as a stream or posted to an address.",
    "network": "Racks, circuits, paths and the traffic between racks.",
    "planning": "Plans for the circuits, and reconfigurations.",
    "maintenance": "Differences between devices and intent, ports left out of plans, the policy.",
    "operations": "Devices, faults, history, and the leader.",
    "agents": "Reports of the agents on servers.",
}
_JSON: Final = "application/json"
_STREAM: Final = "text/event-stream"
_SECURITY: Final = "token"
_OPTIONAL: Final[list[dict[str, list[str]]]] = [{_SECURITY: []}, {}]
_FORMATS: Final = {"number": "double", "integer": "int64"}
"""Formats of numbers. Without a format, generators for Go store Unix seconds in a float32, exact to
two minutes, and generators for Java use an int of 32 bits.
"""


class Api(FastAPI):
    """FastAPI with a description accepted by client generators."""

    def __init__(self, routes: Sequence[BaseRoute], *, asks_for_tokens: bool) -> None:
        super().__init__(
            routes=list(routes),
            title=TITLE,
            version=VERSION,
            summary=SUMMARY,
            description=_ABOUT,
            contact={"name": "Operators of this controller"},
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
            servers=[{"url": "/", "description": "The controller that sent this description"}],
            openapi_tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        self._asks_for_tokens = asks_for_tokens

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = _corrected(super().openapi(), self._asks_for_tokens)
        return self.openapi_schema


def _corrected(description: dict[str, Any], asks_for_tokens: bool) -> dict[str, Any]:
    """Correct ``description`` in place, and return it."""
    schemas = description["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    problem = Problem.model_json_schema(mode="serialization", ref_template=SCHEMAS)
    schemas |= problem.pop("$defs") | {Problem.__name__: problem}
    for operation in _operations(description):
        _remove_guess(operation["responses"])
        _correct_streams(operation["responses"])
    description["components"]["securitySchemes"] = {
        _SECURITY: {
            "type": "http",
            "scheme": "bearer",
            "description": "A token from `hydra token`, where the controller's configuration asks "
            "for tokens.",
        }
    }
    description["security"] = [{_SECURITY: []}] if asks_for_tokens else _OPTIONAL
    for schema in _objects(description):
        _correct_schema(schema)
    return description


def _operations(description: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in description["paths"].values():
        yield from methods.values()


def _objects(node: object) -> Iterator[dict[str, Any]]:
    """Every object in ``node``, outermost first, except maps of names to schemas and examples."""
    if isinstance(node, dict):
        yield node
        for key, child in list(node.items()):
            if key in ("properties", "$defs") and isinstance(child, dict):
                for schema in child.values():
                    yield from _objects(schema)
            elif key not in ("example", "examples"):
                yield from _objects(child)
    elif isinstance(node, list):
        for child in node:
            yield from _objects(child)


def _correct_schema(schema: dict[str, Any]) -> None:
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _FORMATS:
        schema.setdefault("format", _FORMATS[kind])
    if isinstance(schema.get("default", ""), list | dict | None):
        # openapi-generator copies a list or an object into Go code unchanged, and the code does
        # not compile; a default of null says as much as none.
        del schema["default"]


def _remove_guess(by_status: dict[str, Any]) -> None:
    """Remove FastAPI's own 422, described for routes with only string parameters in the path."""
    refused = by_status.get("422", {})
    if problems.MEDIA_TYPE not in refused.get("content", {}):
        by_status.pop("422", None)


def _correct_streams(by_status: dict[str, Any]) -> None:
    """Describe a stream by the documents in its events, without OpenAPI 3.2's ``itemSchema``."""
    for response in by_status.values():
        contents = response.get("content", {})
        if _STREAM in contents:
            document = contents[_STREAM]["schema"]
            document.pop("title", None)  # the path's title, useless to readers
            contents[_STREAM] = {"schema": _stream_of(document)}


def _stream_of(document: dict[str, Any]) -> dict[str, Any]:
    """A string of server-sent events with ``document`` as their data."""
    data = {"type": "string", "contentMediaType": _JSON, "contentSchema": document}
    event = {
        "type": "object",
        "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": data},
    }
    return {
        "type": "string",
        "contentMediaType": _STREAM,
        "contentSchema": {"type": "array", "items": event},
    }
