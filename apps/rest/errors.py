"""Errors as RFC 9457 problem documents: the problem type of each error, and the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from apps.rest.problems import (
    ADMISSION_REFUSED,
    DEVICE_ERROR,
    DEVICE_UNAVAILABLE,
    FORBIDDEN,
    INTERNAL,
    INVALID_CONFIGURATION,
    INVALID_REQUEST,
    JOURNAL_FAILED,
    KEY_REUSED,
    LIFECYCLE_CONFLICT,
    MALFORMED,
    MEDIA_TYPE,
    METHOD_NOT_ALLOWED,
    NO_PLAN,
    NOT_FOUND,
    NOT_HITLESS,
    PRECONDITION_FAILED,
    QUOTA_EXCEEDED,
    TOO_MANY_REQUESTS,
    TOO_MANY_SUBSCRIBERS,
    UNKNOWN_NAME,
    ApiError,
    ProblemType,
)
from apps.rest.request_bodies import MOST_ERRORS, InvalidRequest, MalformedBody, in_words
from apps.rest.resources.problem_types import Alternative, ErrorDetail, Problem
from apps.rest.webhook_addresses import RefusedAddress
from hydra.demand.agent_protocol import (
    ForeignServer,
    TooManyFollowers,
    TooOften,
    WrongReport,
)
from hydra.errors import (
    AdmissionError,
    Changed,
    ConfigError,
    DeviceError,
    DeviceMissing,
    DeviceUnavailable,
    HydraError,
    KeyReused,
    LifecycleError,
    NotHitless,
    PlanError,
    QuotaExceeded,
    UnknownName,
    WrongRequest,
)
from hydra.journal import JournalError

SCHEMAS: Final = "#/components/schemas/{model}"
"""Address of a model's schema in the OpenAPI description."""

_REFUSALS: Final[Mapping[type[AdmissionError], ProblemType]] = {
    QuotaExceeded: QUOTA_EXCEEDED,
    NotHitless: NOT_HITLESS,
    DeviceMissing: DEVICE_UNAVAILABLE,
}

_BY_ERROR: Final[Mapping[type[HydraError], ProblemType]] = {
    UnknownName: UNKNOWN_NAME,
    LifecycleError: LIFECYCLE_CONFLICT,
    PlanError: NO_PLAN,
    ConfigError: INVALID_CONFIGURATION,
    Changed: PRECONDITION_FAILED,
    KeyReused: KEY_REUSED,
    ForeignServer: FORBIDDEN,
    TooManyFollowers: TOO_MANY_SUBSCRIBERS,
    TooOften: TOO_MANY_REQUESTS,
    WrongReport: INVALID_REQUEST,
    RefusedAddress: INVALID_REQUEST,
    JournalError: JOURNAL_FAILED,
    DeviceUnavailable: DEVICE_UNAVAILABLE,
    DeviceError: DEVICE_ERROR,
}


def problem_response(
    problem: ProblemType,
    detail: str,
    path: str,
    *,
    errors: Iterable[ErrorDetail] = (),
    missing: Sequence[str] = (),
    alternatives: Iterable[object] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A problem document about the request to ``path``."""
    document = Problem(
        type=problem.uri,
        title=problem.title,
        status=problem.status,
        detail=detail,
        instance=quote(path),
        errors=list(errors) or None,
        missing=list(missing) or None,
        alternatives=list(map(Alternative.model_validate, alternatives)) or None,
    )
    return JSONResponse(
        document.model_dump(exclude_none=True),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def responses(*problems: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Answers of a route besides success, for its OpenAPI description."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for problem in problems:
        known = by_status.get(problem.status)
        text = problem.title if known is None else f"{known['description']}; {problem.title}"
        # A model in place of this reference costs every start a validator for each status of each
        # route; apps.rest.description describes the document.
        content = {MEDIA_TYPE: {"schema": {"$ref": SCHEMAS.format(model=Problem.__name__)}}}
        by_status[problem.status] = {"description": text, "content": content}
    return by_status


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make ``app`` answer every error with a problem document.

    ``routes`` are all routes of the app: a 405 lists the methods allowed at the same path.
    """

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for nothing else
        return _from_http(request, error, routes)

    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(MalformedBody, _on_malformed)
    app.add_exception_handler(HydraError, _on_hydra)
    app.add_exception_handler(Exception, _on_unexpected)


def _from_http(request: Request, error: HTTPException, routes: Sequence[BaseRoute]) -> Response:
    path = request.url.path
    if error.status_code == 404:
        remedy = "see /openapi.json"
        if path.startswith("/v1/v1/"):
            remedy = "a client adds /v1 itself, so leave /v1 out of its URL (HYDRA_URL)"
        return problem_response(NOT_FOUND, f"the API has no path {path}: {remedy}", path)
    if error.status_code == 405:
        allowed = ", ".join(_allowed_methods(request, routes))
        return problem_response(
            METHOD_NOT_ALLOWED,
            f"{path} does not take {request.method}, only {allowed}",
            path,
            headers={"Allow": allowed},
        )
    if error.status_code == 400:
        return problem_response(MALFORMED, str(error.detail), path)
    raise error


def _allowed_methods(request: Request, routes: Sequence[BaseRoute]) -> list[str]:
    """Methods of all routes at this path; routes with parameters count only if no other route
    matches.
    """
    matching = [
        route
        for route in routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    literal = [route for route in matching if not route.param_convertors]
    allowed = {method for route in literal or matching for method in route.methods or ()}
    if "GET" in allowed:
        allowed.add("HEAD")
    return sorted(allowed)


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    path = request.url.path
    count = error.count if isinstance(error, InvalidRequest) else len(error.errors())
    errors = [_error_detail(item["loc"], in_words(item)) for item in error.errors()[:MOST_ERRORS]]
    first = errors[0]
    where = first.parameter if first.pointer is None else first.pointer or "the body"
    more = f" (and {count - 1} more)" if count > 1 else ""
    return problem_response(INVALID_REQUEST, f"{where}: {first.detail}{more}", path, errors=errors)


def _error_detail(location: Sequence[str | int], message: str) -> ErrorDetail:
    source, *steps = location
    if source == "body":
        return ErrorDetail(pointer=json_pointer(*steps), detail=message)
    names = (step for step in steps if isinstance(step, str))  # no places of repeated parameters
    return ErrorDetail(parameter=".".join(names), detail=message)


def json_pointer(*steps: str | int) -> str:
    """RFC 6901; keys of more than a hundred characters are cut."""
    return "".join("/" + str(step)[:100].replace("~", "~0").replace("/", "~1") for step in steps)


async def _on_malformed(request: Request, error: Exception) -> Response:
    return problem_response(MALFORMED, str(error), request.url.path)


async def _on_hydra(request: Request, error: Exception) -> Response:
    path = request.url.path
    if isinstance(error, ApiError):
        headers = {} if error.retry_s is None else {"Retry-After": str(error.retry_s)}
        return problem_response(
            error.problem, str(error), path, errors=error.errors, headers=headers
        )
    if isinstance(error, WrongRequest):
        wrong = ErrorDetail(pointer=json_pointer(*error.place), detail=str(error))
        return problem_response(INVALID_REQUEST, str(error), path, errors=[wrong])
    if isinstance(error, AdmissionError):
        alternatives = error.alternatives
        kind = next(
            (kind for refused, kind in _REFUSALS.items() if isinstance(error, refused)),
            ADMISSION_REFUSED,
        )
        return problem_response(kind, str(error), path, alternatives=alternatives)
    for base in type(error).__mro__:
        if (problem := _BY_ERROR.get(base)) is not None:
            return problem_response(problem, str(error), path)
    raise error


async def _on_unexpected(request: Request, _error: Exception) -> Response:
    """The server logs the traceback; the client sees no internals.

    The HTTP server closes the connection after a defect. Without the header, the client would lose
    its next request.
    """
    detail = "unexpected error; the controller's log has the details"
    return problem_response(INTERNAL, detail, request.url.path, headers={"Connection": "close"})
