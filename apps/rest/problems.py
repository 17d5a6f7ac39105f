"""Problem types: kinds of errors in the API's answers, after RFC 9457."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hydra.errors import HydraError

if TYPE_CHECKING:
    from apps.rest.resources.problem_types import ErrorDetail

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
    "No valid token",
    "The request has no token, or an unknown token: send Authorization: Bearer TOKEN.",
)
FORBIDDEN: Final = ProblemType(
    "forbidden",
    403,
    "The caller's role does not allow the request",
    "The detail names a role that allows the request.",
)
FOREIGN_SITE: Final = ProblemType(
    "foreign-site",
    403,
    "The request is not for this controller, or from another site's page",
    "Host is no name of the controller (see controller.hosts), or a browser sent the request from "
    "a page of another site.",
)
UNKNOWN_NAME: Final = ProblemType(
    "unknown-name",
    404,
    "Unknown name",
    "There is no rack, server, plane, algorithm, reservation or reconfiguration of this name.",
)
NOT_FOUND: Final = ProblemType(
    "not-found", 404, "Unknown address", "The path is not part of this API."
)
METHOD_NOT_ALLOWED: Final = ProblemType(
    "method-not-allowed",
    405,
    "The resource does not allow this method",
    "The Allow header lists the allowed methods.",
)
ADMISSION_REFUSED: Final = ProblemType(
    "admission-refused",
    409,
    "The network does not admit the reservation",
    "The bandwidth does not exist, other reservations hold the bandwidth, or the network or its "
    "policy takes no such reservation; the detail says which, and alternatives, where there are "
    "any, lists reservations that would be admitted.",
)
QUOTA_EXCEEDED: Final = ProblemType(
    "quota-exceeded",
    409,
    "The tenant's quota does not allow the request",
    "The tenant's use would exceed the quota; the detail says how much is left.",
)
NOT_HITLESS: Final = ProblemType(
    "not-hitless",
    409,
    "Hitless modification not possible",
    "The change needs other or more circuits than are free: make a new reservation, then release "
    "this reservation.",
)
LIFECYCLE_CONFLICT: Final = ProblemType(
    "lifecycle-conflict",
    409,
    "The resource's state does not allow the request",
    "The detail names the state, and the requests allowed in this state.",
)
NO_PLAN: Final = ProblemType(
    "no-plan",
    409,
    "No topology meets the request",
    "The planner found nothing; the detail names the limit in the way.",
)
INVALID_CONFIGURATION: Final = ProblemType(
    "invalid-configuration",
    409,
    "The configuration file can't be used",
    "The controller keeps the configuration read last; the detail lists every problem with its "
    "line.",
)
PRECONDITION_FAILED: Final = ProblemType(
    "precondition-failed",
    412,
    "The resource has changed since the client read it",
    "The resource's ETag differs from If-Match: read the resource again.",
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
    "errors lists each problem: a JSON pointer into the body, or a query parameter, and the "
    "reason.",
)
KEY_REUSED: Final = ProblemType(
    "key-reused",
    422,
    "The idempotency key belongs to another request",
    "Idempotency-Key was sent before with another body: use a new key.",
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
    "A device did not carry out a command",
    "The device refused, or the answer was lost; the detail names the device.",
)
DEVICE_UNAVAILABLE: Final = ProblemType(
    "device-unavailable",
    503,
    "A device can't be reached",
    "Nothing was changed; the detail names the device, except to tenants. Try again later.",
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
    "This controller is a standby",
    "Nothing was changed; the detail names the leader among the controllers with the same store.",
)
STORE_UNAVAILABLE: Final = ProblemType(
    "store-unavailable",
    503,
    "The controllers' shared store does not answer",
    "Nothing was changed. Until the store answers, no controller leads, and nothing is promised.",
)
LEADER_UNANSWERED: Final = ProblemType(
    "leader-unanswered",
    502,
    "The leader has not answered",
    "The request was passed on to the leader, with unknown outcome. A request with an "
    "idempotency key may be repeated.",
)

JOURNAL_FAILED: Final = ProblemType(
    "journal-failed",
    503,
    "The controller can't write its journal",
    "Nothing was changed: the controller promises only what the journal keeps. An operator has to "
    "check the disk.",
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

CATALOGUE: Final = tuple(value for value in globals().values() if isinstance(value, ProblemType))
"""All problem types, in the order from above."""
BODY_PROBLEMS: Final = (MALFORMED, BODY_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE)
"""Answers of each route with a body, besides :data:`INVALID_REQUEST`."""


class ApiError(HydraError):
    """An error found by the API in a request, with the problem type."""

    def __init__(
        self,
        problem: ProblemType,
        message: str,
        *,
        errors: Sequence[ErrorDetail] = (),
        retry_s: int | None = None,
    ) -> None:
        """``errors``: places in the body; ``retry_s``: when the client may try again."""
        self.problem = problem
        self.errors = tuple(errors)
        self.retry_s = retry_s
        super().__init__(message)
