"""A connection to a controller's REST API, as its clients share it: JSON in, JSON out."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx
from httpx_sse import EventSource, ServerSentEvent, connect_sse

from hydra.errors import HydraError

WAIT_S: Final = 60
"""Longest wait for an outcome that the API grants."""
TIMEOUT_S: Final = 30.0
SILENCE_S: Final = 60.0
"""Silence of an event stream that means a lost connection: signs of life come every 15 s."""
TAKEOVER_S: Final = 10.0
"""How long a request is made again while nobody leads: another one does after some 3 s."""
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 1.6
_PROBLEMS: Final = "/problems/"
STORE_LOST: Final = "store-unavailable"
"""Kind of a refusal, and of a condition: controllers that share a store do not reach it."""
_NOBODY_LEADS: Final = frozenset({"standing-by", STORE_LOST})
_UNKNOWN: Final = "leader-unanswered"
_FIRST_OF_SERVERS: Final = 500
PASSING: Final = frozenset(f"{_PROBLEMS}{kind}" for kind in {*_NOBODY_LEADS, _UNKNOWN})
"""Types of problems that are over once a controller leads."""
_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "PUT"})
_STEPS: Final = frozenset({".", ".."})
_T = TypeVar("_T")

JsonObject = dict[str, Any]
Query = Sequence[tuple[str, str]]


class ClientError(HydraError):
    """A controller that can't be asked, or an answer that can't be understood."""


class BadUrl(ClientError):
    """A URL that leads nowhere."""


class BadToken(ClientError):
    """A token that can't be sent. The error does not show it: errors are logged."""


class NoAnswer(ClientError):
    """No answer, or none to its end."""


class NotReached(NoAnswer):
    """Nothing could be asked: nobody accepts connections there."""


class Untrusted(NotReached):
    """A server answers with a certificate that is not trusted here."""


class NoTls(NotReached):
    """A server answers, and not by TLS that can be agreed on."""


class TooLate(NoAnswer):
    """No answer in time, though something may be there."""


class Refusal(ClientError):
    """A refusal by the controller, with its problem document (RFC 9457)."""

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
        """The last part of its type's URI."""
        return str(self.document.get("type", "")).removeprefix(_PROBLEMS)

    @property
    def nobody_leads(self) -> bool:
        """True if nothing was changed, and another controller may lead soon."""
        return self.kind in _NOBODY_LEADS

    @property
    def may_pass(self) -> bool:
        """True if the same request may be taken later: status 429 or 5xx."""
        status = self.response.status_code
        return status == httpx.codes.TOO_MANY_REQUESTS or status >= _FIRST_OF_SERVERS


@dataclass(slots=True)
class Place:
    """A place in a stream of events, from which a follower goes on with another connection."""

    last_id: str | None = None
    """The id of the last event, or of the one before the stream began. None: not known."""
    opened: bool = False
    """True once a controller has begun the stream."""


class Connection:
    """A connection to one controller, or to one of several that share a store; a context manager
    that closes it.

    With several URLs the one that answered last is asked first. Where it is gone, or no controller
    leads, the next one is asked: for :data:`TAKEOVER_S` in all, in which another one should lead.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        attempts: int = 1,
    ) -> None:
        """``url``: one, or several with commas between. ``tls``: the authorities to trust; None for
        the system's. Where the connection fails, each request is made up to ``attempts`` times.

        Raises BadUrl, and BadToken.
        """
        self._url = url
        self._timeout_s = timeout_s
        self._attempts = attempts
        headers = {} if token is None else {"Authorization": f"Bearer {_bare(token)}"}
        urls = [one.strip() for one in url.split(",")]
        trusted = tls or _trusted_by_default(urls)
        self._https: list[httpx.Client] = []
        for one in urls:
            with self._errors():
                # No proxies: a controller is on the management network, not on the Internet.
                self._https.append(
                    httpx.Client(base_url=one, headers=headers, verify=trusted, trust_env=False)
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for one in self._https:
            one.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: int = 0,
        patient: bool = True,
    ) -> httpx.Response:
        """The response; with ``wait_s``, once there is an outcome or so many seconds are over.

        Without ``patient``, that the store does not answer is a response: nobody is waited for.
        Raises ClientError: Refusal where the controller refuses.
        """
        wishes = {"Prefer": f"wait={min(wait_s, WAIT_S)}"} if wait_s else {}

        def ask(http: httpx.Client) -> httpx.Response:
            with self._errors():
                response = http.request(
                    method,
                    path,
                    params=list(query) or None,
                    json=body,
                    headers={**(headers or {}), **wishes},
                    timeout=self._timeout_s + wait_s,
                )
            return _accepted(response)

        repeatable = self._attempts > 1 or method in _IDEMPOTENT
        return self._try(ask, repeatable=repeatable, telling=() if patient else (STORE_LOST,))

    def _try(
        self,
        ask: Callable[[httpx.Client], _T],
        *,
        repeatable: bool,
        telling: Collection[str] = (),
    ) -> _T:
        """The answer of the first controller that takes the request. Raises ClientError.

        ``repeatable``: it may be made again where it is not known what came of it. ``telling``:
        kinds of refusals that are raised once every controller was asked.
        """
        until_s = time.monotonic() + TAKEOVER_S
        patient = len(self._https) > 1 or self._attempts > 1
        rounds = 0
        while True:
            failure: ClientError | None = None
            told: Refusal | None = None
            nobody_leads = False
            for _ in self._https:
                try:
                    return ask(self._https[0])
                except Refusal as refusal:
                    again = refusal.nobody_leads or (refusal.kind == _UNKNOWN and repeatable)
                    if not (patient and again):
                        raise
                    failure, nobody_leads = refusal, True
                    told = refusal if refusal.kind in telling else told
                except NoAnswer as error:
                    if not (repeatable or isinstance(error, NotReached)):
                        raise
                    failure = failure if nobody_leads else error
                self._https.append(self._https.pop(0))
            if told is not None:
                raise told
            rounds += 1
            over = time.monotonic() > until_s if nobody_leads else rounds >= self._attempts
            if over and failure is not None:
                raise failure
            time.sleep(min(_FIRST_PAUSE_S * 2 ** (rounds - 1), _LONGEST_PAUSE_S))

    def json(self, method: str, path: str, **more: Any) -> JsonObject:
        """The document in the answer to a :meth:`request`."""
        return document_of(self.request(method, path, **more))

    def follow(
        self, kinds: Iterable[str], place: Place, path: str = "/v1/events"
    ) -> Iterator[tuple[str, JsonObject]]:
        """Yield (name, data) of each event after ``place``, until the connection ends.

        ``place`` moves along, also without an event. Raises ClientError.
        """
        headers = {} if place.last_id is None else {"Last-Event-ID": place.last_id}
        query = [("kind", kind) for kind in kinds]
        timeout = httpx.Timeout(self._timeout_s, read=SILENCE_S)
        with ExitStack() as stack:

            def ask(http: httpx.Client) -> EventSource:
                with self._errors(), ExitStack() as trial:
                    source = trial.enter_context(
                        connect_sse(
                            http, "GET", path, headers=headers, params=query, timeout=timeout
                        )
                    )
                    if not source.response.is_success:
                        source.response.read()
                    _accepted(source.response)
                    stack.push(trial.pop_all())
                return source

            source = self._try(ask, repeatable=True)
            place.opened = True
            with self._errors():
                for event in source.iter_sse():
                    place.last_id = event.id or place.last_id
                    # Without data there is no event (the WHATWG's standard says so): httpx-sse
                    # gives one for each comment once it has seen an id.
                    if event.data:
                        yield event.event, _document(source.response, event)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.InvalidURL as error:
            raise BadUrl(f"{self._url!r}: {error}") from error
        except httpx.UnsupportedProtocol as error:
            raise BadUrl(f"{self._url!r} must begin with http:// or https://") from error
        except httpx.ConnectError as error:
            tls_error = _tls_error(error)
            if isinstance(tls_error, ssl.SSLCertVerificationError):
                raise Untrusted(f"{self._url}: {error}") from error
            if tls_error is not None:
                raise NoTls(f"{self._url}: {error}") from error
            raise NotReached(f"{self._url}: {error}") from error
        except httpx.ConnectTimeout as error:
            raise NotReached(f"{self._url}: {error}") from error
        except httpx.TimeoutException as error:
            raise TooLate(f"{self._url}: {error}") from error
        except httpx.TransportError as error:
            raise NoAnswer(f"{self._url}: {error}") from error


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """The error of ssl behind another one: httpx and httpcore chain it. None if there is none."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _bare(token: str) -> str:
    """``token`` without the end of line that a file of it has. Raises BadToken."""
    bare = token.strip()
    if not (bare.isascii() and bare.isprintable()):
        raise BadToken("the token is not one line of printable ASCII")
    return bare


def _trusted_by_default(urls: Iterable[str]) -> ssl.SSLContext:
    """The system's authorities, or none where no URL asks for TLS: reading them takes longer than
    most answers.
    """
    if all(one.startswith("http://") for one in urls):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ssl.create_default_context()


def resource(collection: str, identifier: str) -> str:
    """The path of one member of a collection. Raises ClientError for an empty identifier."""
    if not identifier:
        raise ClientError(f"an empty name: nothing at {collection} is called so")
    quoted = quote(identifier, safe="")
    # As they are, these two would be steps of the path.
    return f"{collection}/{quoted.replace('.', '%2E') if quoted in _STEPS else quoted}"


def _accepted(response: httpx.Response) -> httpx.Response:
    if not response.is_success:
        raise Refusal(response, document_of(response, "title"))
    return response


def _document(response: httpx.Response, event: ServerSentEvent) -> JsonObject:
    """The JSON object in an event. Raises ClientError."""
    try:
        document = event.json()
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    raise ClientError(f"{response.url} answered something else: no JSON in event {event.id}")


def document_of(response: httpx.Response, *needed: str) -> JsonObject:
    """The JSON object in a response, with these keys at least."""
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
