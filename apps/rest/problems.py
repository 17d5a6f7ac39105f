"""Errors as RFC 9457 problem documents: the catalogue, and what raises which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route

from apps.rest import models
from apps.rest.reading import MOST_ERRORS, InvalidBody, MalformedBody, in_words
from apps.rest.webhook_addresses import RefusedAddress
from apps.rest.webhook_delivery import TooManyWebhooks
from hydra.demand.agent_protocol import (
    ForeignServer,
    TooManyFollowers,
    TooOften,
    WrongReport,
)
from hydra.errors import (
    AdmissionError,
    Alternative,
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
)
from hydra.journal import JournalError

MEDIA_TYPE: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class ProblemType:
    slug: str
    status: int
    title: str
    meaning: str

    @property
    def uri(self) -> str:
        return f"/problems/{self.slug}"


MALFORMED: Final = ProblemType(
    "malformed-json", 400, "The body is not JSON", "The request body could not be parsed."
)
UNAUTHENTICATED: Final = ProblemType(
    "unauthenticated",
    401,
    "Who are you?",
    "The request has no token, or one that is not known: Authorization: Bearer TOKEN.",
)
FORBIDDEN: Final = ProblemType(
    "forbidden",
    403,
    "Your role may not do this",
    "The token's role does not allow the request; the detail says which role does.",
)
FOREIGN_SITE: Final = ProblemType(
    "foreign-site",
    403,
    "The request is not for this controller, or from another site's page",
    "Host is no name of the controller (see controller.hosts), or a browser sent it from a page of "
    "another site.",
)
UNKNOWN_NAME: Final = ProblemType(
    "unknown-name",
    404,
    "There is nothing of that name",
    "A rack, server, plane, algorithm, reservation or reconfiguration that does not exist.",
)
NOT_FOUND: Final = ProblemType(
    "not-found", 404, "There is nothing at this address", "The path is not part of this API."
)
METHOD_NOT_ALLOWED: Final = ProblemType(
    "method-not-allowed",
    405,
    "The resource does not take this method",
    "The Allow header lists the methods that it takes.",
)
ADMISSION_REFUSED: Final = ProblemType(
    "admission-refused",
    409,
    "The fabric can't carry this reservation",
    "The bandwidth is not there, or is taken by other reservations; the detail says by which, "
    "and alternatives lists what would be admitted.",
)
QUOTA_EXCEEDED: Final = ProblemType(
    "quota-exceeded",
    409,
    "The tenant's quota does not allow this",
    "The tenant has, or would have, more at a time than its quota; the detail says what is left.",
)
NOT_HITLESS: Final = ProblemType(
    "not-hitless",
    409,
    "Hitless modification not possible",
    "The change needs other circuits, or more of them than is left; reserve anew beside it, then "
    "release this one.",
)
LIFECYCLE_CONFLICT: Final = ProblemType(
    "lifecycle-conflict",
    409,
    "The resource's state does not allow this",
    "The detail names the state, and what can be done in it.",
)
NO_PLAN: Final = ProblemType(
    "no-plan",
    409,
    "No topology meets the request",
    "The planner found nothing; the detail says which limit stands in the way.",
)
INVALID_CONFIGURATION: Final = ProblemType(
    "invalid-configuration",
    409,
    "The configuration file can't be used",
    "The controller goes on with what it read last; the detail lists every problem with its line.",
)
PRECONDITION_FAILED: Final = ProblemType(
    "precondition-failed",
    412,
    "The resource is not what the client saw",
    "It has another ETag than If-Match says: read it again.",
)
BODY_TOO_LARGE: Final = ProblemType(
    "body-too-large",
    413,
    "The body is too large",
    "Bodies have up to 64 KiB; a plan's and a group's more, by the size of the fabric.",
)
UNSUPPORTED_MEDIA_TYPE: Final = ProblemType(
    "unsupported-media-type",
    415,
    "The body is not declared as JSON",
    "Send bodies with Content-Type: application/json.",
)
INVALID_REQUEST: Final = ProblemType(
    "invalid-request",
    422,
    "The request does not have the right form",
    "errors lists what is wrong: a JSON pointer into the body, or a query parameter, and why.",
)
KEY_REUSED: Final = ProblemType(
    "key-reused",
    422,
    "The idempotency key belongs to another request",
    "Idempotency-Key came before with another body: use a new key.",
)
TOO_MANY_REQUESTS: Final = ProblemType(
    "too-many-requests",
    429,
    "Too many requests",
    "Try again after as many seconds as Retry-After says.",
)
INTERNAL: Final = ProblemType(
    "internal",
    500,
    "The controller failed to handle the request",
    "A defect; the controller's log has the details.",
)
DEVICE_ERROR: Final = ProblemType(
    "device-error",
    502,
    "A device did not do as it was told",
    "It refused, or its answer was lost; the detail names it.",
)
DEVICE_UNAVAILABLE: Final = ProblemType(
    "device-unavailable",
    503,
    "A device can't be reached",
    "Nothing was changed; the detail names the device, except to tenants. Trying again later may "
    "help.",
)
NOT_READY: Final = ProblemType(
    "not-ready",
    503,
    "The controller is not ready",
    "missing lists the reasons.",
)
STANDING_BY: Final = ProblemType(
    "standing-by",
    503,
    "This controller stands by",
    "Nothing was changed; the detail says which of the controllers that share a store leads now.",
)
STORE_UNAVAILABLE: Final = ProblemType(
    "store-unavailable",
    503,
    "The store that the controllers share does not answer",
    "Nothing was changed, and nothing is promised until it does: none of the controllers leads.",
)
LEADER_UNANSWERED: Final = ProblemType(
    "leader-unanswered",
    502,
    "The controller that leads has not answered",
    "The request was carried to it, and what came of it is not known: with an idempotency key it "
    "may be repeated.",
)

JOURNAL_FAILED: Final = ProblemType(
    "journal-failed",
    503,
    "The controller can't write its journal",
    "Nothing was changed: what can't be kept is not promised. An operator has to see to its disk.",
)

TOO_MANY_SUBSCRIBERS: Final = ProblemType(
    "too-many-subscribers",
    503,
    "Too many follow the events",
    "There are as many clients as there may be: end some, or try again later.",
)

TOO_MANY_WEBHOOKS: Final = ProblemType(
    "too-many-webhooks",
    409,
    "Too many webhooks",
    "There are as many webhooks as there may be: delete some.",
)

CATALOGUE: Final = tuple(one for one in globals().values() if isinstance(one, ProblemType))
"""All of them, in the order from above."""
BODY_PROBLEMS: Final = (MALFORMED, BODY_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST)
"""Answers of each route that takes a body."""


class BusyError(HydraError):
    """There are as many clients of this kind as there may be."""

    def __init__(self, message: str, retry_s: int) -> None:
        self.retry_s = retry_s
        super().__init__(f"{message}: try again in {retry_s} s")


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
    BusyError: TOO_MANY_SUBSCRIBERS,
    ForeignServer: FORBIDDEN,
    TooManyFollowers: TOO_MANY_SUBSCRIBERS,
    TooOften: TOO_MANY_REQUESTS,
    WrongReport: INVALID_REQUEST,
    RefusedAddress: INVALID_REQUEST,
    TooManyWebhooks: TOO_MANY_WEBHOOKS,
    JournalError: JOURNAL_FAILED,
    DeviceUnavailable: DEVICE_UNAVAILABLE,
    DeviceError: DEVICE_ERROR,
}


class EntriesError(HydraError):
    """A body of the right form whose entries make no sense for this fabric."""

    def __init__(
        self, problem: ProblemType, errors: Sequence[models.ErrorDetail], count: int
    ) -> None:
        """``errors`` are the first of ``count``."""
        self.problem = problem
        self.errors = tuple(errors)
        told = [f"{e.pointer}: {e.detail}" for e in errors]
        more = [f"and {count - len(told)} more"] if count > len(told) else []
        super().__init__("; ".join(told + more))


def problem_response(
    problem: ProblemType,
    detail: str,
    path: str,
    *,
    errors: Iterable[models.ErrorDetail] = (),
    missing: Sequence[str] = (),
    alternatives: Iterable[Alternative] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A problem document about the request to ``path``."""
    document = models.Problem(
        type=problem.uri,
        title=problem.title,
        status=problem.status,
        detail=detail,
        instance=quote(path),
        errors=list(errors) or None,
        missing=list(missing) or None,
        alternatives=list(map(models.Alternative.model_validate, alternatives)) or None,
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
        by_status[problem.status] = {"model": models.Problem, "description": text}
    return by_status


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make ``app`` answer every error with a problem document.

    ``routes`` are all routes of the app: a 405 lists what they allow at the same path.
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
        return problem_response(NOT_FOUND, f"nothing is at {path}: see /openapi.json", path)
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
    """Methods of all routes at this path; routes with parameters count if no other one matches."""
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
    count = error.count if isinstance(error, InvalidBody) else len(error.errors())
    errors = [_error_detail(item["loc"], in_words(item)) for item in error.errors()[:MOST_ERRORS]]
    first = errors[0]
    where = first.parameter if first.pointer is None else first.pointer or "the body"
    more = f" (and {count - 1} more)" if count > 1 else ""
    return problem_response(INVALID_REQUEST, f"{where}: {first.detail}{more}", path, errors=errors)


def _error_detail(location: Sequence[str | int], message: str) -> models.ErrorDetail:
    source, *steps = location
    if source == "body":
        return models.ErrorDetail(pointer=json_pointer(*steps), detail=message)
    return models.ErrorDetail(parameter=".".join(str(step) for step in steps), detail=message)


def json_pointer(*steps: str | int) -> str:
    """RFC 6901; keys of more than a hundred characters are cut."""
    return "".join("/" + str(step)[:100].replace("~", "~0").replace("/", "~1") for step in steps)


async def _on_malformed(request: Request, error: Exception) -> Response:
    return problem_response(MALFORMED, str(error), request.url.path)


async def _on_hydra(request: Request, error: Exception) -> Response:
    path = request.url.path
    if isinstance(error, EntriesError):
        return problem_response(error.problem, str(error), path, errors=error.errors)
    if isinstance(error, AdmissionError):
        alternatives = error.alternatives
        kind = next(
            (kind for one, kind in _REFUSALS.items() if isinstance(error, one)), ADMISSION_REFUSED
        )
        return problem_response(kind, str(error), path, alternatives=alternatives)
    for one in type(error).__mro__:
        if (problem := _BY_ERROR.get(one)) is not None:
            headers = {"Retry-After": str(error.retry_s)} if isinstance(error, BusyError) else {}
            return problem_response(problem, str(error), path, headers=headers)
    raise error


async def _on_unexpected(request: Request, _error: Exception) -> Response:
    """The server logs the traceback; the client learns nothing of the inside.

    The HTTP server closes the connection after a defect; a client that is not told would lose its
    next request.
    """
    detail = "unexpected error; the controller's log has the details"
    return problem_response(INTERNAL, detail, request.url.path, headers={"Connection": "close"})
