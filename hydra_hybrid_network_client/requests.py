"""Requests to controllers: paths, headers, and retries."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from hydra_hybrid_network_client.base import Document
from hydra_hybrid_network_client.errors import (
    LEADER_UNANSWERED,
    BadValue,
    ClientError,
    NoAnswer,
    NotReached,
    Refusal,
)

WAIT_S: Final = 60
"""Longest wait for an outcome that the API grants."""
TIMEOUT_S: Final = 30.0
SILENCE_S: Final = 60.0
"""Silence of an event stream that means a lost connection: signs of life come every 15 s."""
TAKEOVER_S: Final = 10.0
"""Time for retries while no controller leads: another controller leads after some 3 s."""
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 1.6
_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "PUT"})
_STEPS: Final = frozenset({".", ".."})

_DocumentT = TypeVar("_DocumentT", bound=Document)
Query = Sequence[tuple[str, str]]


def resource(collection: str, identifier: str) -> str:
    """The path of a member of a collection. Raises ClientError for an empty identifier."""
    if not identifier:
        raise ClientError(f"an empty name: nothing at {collection} is called so")
    quoted = quote(identifier, safe="")
    # Unquoted, these would be steps of the path.
    return f"{collection}/{quoted.replace('.', '%2E') if quoted in _STEPS else quoted}"


def body_of(model: type[_DocumentT], **fields: object) -> _DocumentT:
    """A request's body. Raises BadValue, also for a number in a string."""
    try:
        body = model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        wanted = first["msg"].replace("Input should be", "must be").partition(", unable")[0]
        raise BadValue(f"{first['loc'][0]} {wanted}, not {first['input']!r}") from error
    for name, value in fields.items():
        if isinstance(value, str) and not isinstance(getattr(body, name, value), str):
            raise BadValue(f"{name} must be a number, not {value!r}")
    return body


def prefer(wait_s: int) -> dict[str, str]:
    """The header (RFC 7240) that makes the controller wait for an outcome before answering.

    Raises BadValue for a wait that the controller would cut short.
    """
    if not 0 <= wait_s <= WAIT_S:
        raise BadValue(f"wait_s must be 0 to {WAIT_S}, not {wait_s}: ask again for a longer wait")
    return {"Prefer": f"wait={wait_s}"} if wait_s else {}


@dataclass(slots=True)
class Place:
    """A place in a stream of events, from which a follower resumes in a new connection."""

    last_id: str | None = None
    """The id of the last event, or of the event before the stream began. None: unknown."""
    opened: bool = False
    """True once a controller has begun the stream."""


class Retries:
    """Decides when a request is repeated, and when the error is raised.

    A request goes from controller to controller, in rounds. The request ends after ``attempts``
    rounds without an answer, or after :data:`TAKEOVER_S` without a leader.
    """

    def __init__(
        self, controllers: int, attempts: int, method: str, telling: Collection[str]
    ) -> None:
        """``telling``: kinds of refusals that are raised once every controller was asked."""
        self._controllers = controllers
        self._attempts = attempts
        self._repeatable = attempts > 1 or method in _IDEMPOTENT
        self._telling = telling
        self._until_s = time.monotonic() + TAKEOVER_S
        self._rounds = 0
        self._asked = 0
        self._failure: ClientError | None = None
        self._refusal: Refusal | None = None
        self._nobody_leads = False

    def pause_s(self, error: Refusal | NoAnswer) -> float:
        """Seconds until the next controller is asked, after ``error``.

        Raises the last error if the request ends.
        """
        if isinstance(error, Refusal):
            self._refused(error)
        else:
            self._unanswered(error)
        self._asked += 1
        return self._end_of_round() if self._asked == self._controllers else 0

    def _refused(self, refusal: Refusal) -> None:
        patient = self._controllers > 1 or self._attempts > 1
        unknown = refusal.kind == LEADER_UNANSWERED and self._repeatable
        if not (patient and (refusal.nobody_leads or unknown)):
            raise refusal
        self._failure, self._nobody_leads = refusal, True
        self._refusal = refusal if refusal.kind in self._telling else self._refusal

    def _unanswered(self, error: NoAnswer) -> None:
        if not (self._repeatable or isinstance(error, NotReached)):
            raise error
        self._failure = self._failure if self._nobody_leads else error

    def _end_of_round(self) -> float:
        if self._refusal is not None:
            raise self._refusal
        self._rounds += 1
        late = time.monotonic() > self._until_s
        over = late if self._nobody_leads else self._rounds >= self._attempts
        if over and self._failure is not None:
            raise self._failure
        self._asked, self._failure, self._nobody_leads = 0, None, False
        return min(_FIRST_PAUSE_S * 2.0 ** (self._rounds - 1), _LONGEST_PAUSE_S)
