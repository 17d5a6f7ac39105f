"""Errors of the client, and checks of a controller's answers."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
from pydantic import ValidationError

from hydra_hybrid_network_client.documents import Problem, Reservation

JsonObject = dict[str, Any]

_PROBLEMS: Final = "/problems/"
STORE_LOST: Final = "store-unavailable"
"""Kind of a refusal, and of a condition: controllers do not reach their shared store."""
_NOBODY_LEADS: Final = frozenset({"standing-by", STORE_LOST})
LEADER_UNANSWERED: Final = "leader-unanswered"
"""Kind of a refusal: the leader did not answer the standby that passed the request on."""
_PASSING: Final = frozenset(f"{_PROBLEMS}{kind}" for kind in {*_NOBODY_LEADS, LEADER_UNANSWERED})
_FIRST_OF_SERVERS: Final = 500


class ClientError(Exception):
    """A controller that can't be asked, or an answer that can't be understood."""


class BadSetting(ClientError):
    """An environment variable that the client can't use."""


class BadUrl(ClientError):
    """A URL that leads nowhere."""


class BadToken(ClientError):
    """A token that can't be sent. The error does not show the token: errors are logged."""


class BadValue(ClientError):
    """An argument of a method that the controller can't be asked for."""


class NoAnswer(ClientError):
    """No answer, or an incomplete answer."""


class NotReached(NoAnswer):
    """The request was not sent: the address accepts no connections."""


class Untrusted(NotReached):
    """The server's certificate is not trusted here."""


class NoTls(NotReached):
    """The server answers, but the TLS handshake fails."""


class TooLate(NoAnswer):
    """No answer in time; the request may have arrived."""


class Refusal(ClientError):
    """A refusal by the controller, with its problem document (RFC 9457) as JSON."""

    def __init__(self, response: httpx.Response, document: JsonObject) -> None:
        self.response = response
        self.document = document
        lines = [f"{document['title']}: {document.get('detail', '')}"]
        errors = document.get("errors") or ()
        if len(errors) > 1:
            lines += [f"  {e.get('pointer') or e.get('parameter')}: {e['detail']}" for e in errors]
        super().__init__("\n".join(lines))

    @property
    def kind(self) -> str:
        """The last part of the problem type's URI."""
        return str(self.document.get("type", "")).removeprefix(_PROBLEMS)

    @property
    def nobody_leads(self) -> bool:
        """True if nothing was changed, and another controller may lead soon."""
        return self.kind in _NOBODY_LEADS

    @property
    def may_pass(self) -> bool:
        """True if the same request may succeed later: status 429 or 5xx."""
        status = self.response.status_code
        return status == httpx.codes.TOO_MANY_REQUESTS or status >= _FIRST_OF_SERVERS


class Refused(ClientError):
    """The controller refused a request; ``problem`` has the reason, and perhaps alternatives."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(f"{problem.title}: {problem.detail}")

    @property
    def passes(self) -> bool:
        """True if the only reason is that no controller leads now."""
        return self.problem.type in _PASSING


class NotActive(ClientError):
    """A reservation was admitted and did not become active."""

    def __init__(self, reservation: Reservation) -> None:
        self.reservation = reservation
        state = reservation.state.value
        super().__init__(f"reservation {reservation.id} is {state}: {reservation.reason}")


@contextmanager
def errors_of_httpx(url: str) -> Iterator[None]:
    """Raise httpx's errors as ClientError; ``url`` names the controllers in the message."""
    try:
        yield
    except httpx.InvalidURL as error:
        raise BadUrl(f"{url!r}: {error}") from error
    except httpx.UnsupportedProtocol as error:
        raise BadUrl(f"{url!r} must begin with http:// or https://") from error
    except httpx.ConnectError as error:
        tls_error = _tls_error(error)
        if isinstance(tls_error, ssl.SSLCertVerificationError):
            raise Untrusted(f"{url} has an untrusted certificate ({error}): {_trust()}") from error
        if tls_error is not None:
            raise NoTls(
                f"the server at {url} does not speak TLS ({error}): without TLS, the URL begins "
                "with http://"
            ) from error
        raise _not_reached(url, error) from error
    except httpx.ConnectTimeout as error:
        raise _not_reached(url, error) from error
    except httpx.TimeoutException as error:
        raise TooLate(
            f"the controller at {url} did not answer in time ({type(error).__name__}); see the "
            "controller's log for the cause"
        ) from error
    except httpx.TransportError as error:
        raise NoAnswer(
            f"the answer from {url} is incomplete ({error}): with TLS, the URL begins with "
            "https://; else see the controller's log"
        ) from error


def _not_reached(url: str, error: httpx.TransportError) -> NotReached:
    return NotReached(
        f"no controller answers at {url} ({error}): start a controller with `hydra run --config "
        "FILE`, or give its URL in HYDRA_URL, --url or HydraClient(url)"
    )


def _trust() -> str:
    """The remedy for an untrusted certificate."""
    ca = os.environ.get("HYDRA_CA")
    if not ca:
        return "set HYDRA_CA to the file of the controller's authority (ca.pem of `hydra ca`)"
    return (
        f"HYDRA_CA, {ca}, lacks the certificate's authority, or the certificate is for another "
        "name than the URL's"
    )


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """The ssl error behind ``error``, as chained by httpx and httpcore. None without such an
    error.
    """
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def refusals() -> Iterator[None]:
    """Raise a Refusal as Refused, which has the problem as a document."""
    try:
        yield
    except Refusal as refusal:
        try:
            problem = Problem.model_validate(refusal.document)
        except ValidationError:
            raise refusal from None  # a proxy's problem: RFC 9457 leaves most members out
        raise Refused(problem) from refusal


def accepted(response: httpx.Response) -> httpx.Response:
    """``response`` unchanged. Raises Refusal unless the status is 2xx."""
    if not response.is_success:
        raise Refusal(response, document_of(response, "title"))
    return response


def document_of(response: httpx.Response, *needed: str) -> JsonObject:
    """The JSON object in ``response``. Raises ClientError unless all ``needed`` keys are
    present.
    """
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict) and document.keys() >= {*needed}:
        return document
    status = f"{response.status_code} {response.reason_phrase}"
    raise ClientError(
        f"{response.url} answered {status}, but not like a HydRA controller: check the URL"
    )
