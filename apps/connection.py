"""A connection to a controller's REST API, as its clients share it: JSON in, JSON out."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self
from urllib.parse import quote

import httpx
from httpx_sse import ServerSentEvent, connect_sse

from hydra.errors import HydraError

WAIT_S: Final = 60
"""Longest wait for an outcome that the API grants."""
TIMEOUT_S: Final = 30.0
SILENCE_S: Final = 60.0
"""Silence of an event stream that means a lost connection: signs of life come every 15 s."""
_FIRST_PAUSE_S: Final = 0.2

JsonObject = dict[str, Any]
Query = Sequence[tuple[str, str]]


class ClientError(HydraError):
    """A controller that can't be asked, or an answer that can't be understood."""


class BadUrl(ClientError):
    """A URL that leads nowhere."""


class NoAnswer(ClientError):
    """No answer, or none to its end."""


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


class Connection:
    """A connection to one controller; a context manager that closes it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        attempts: int = 1,
    ) -> None:
        """``tls``: the authorities to trust; None for the system's. Where the connection fails,
        each request is made up to ``attempts`` times.
        """
        self._url = url
        self._timeout_s = timeout_s
        self._attempts = attempts
        with self._errors():
            # No proxies: a controller is on the management network, not on the Internet.
            self._http = httpx.Client(
                base_url=url,
                headers={} if token is None else {"Authorization": f"Bearer {token}"},
                verify=tls or ssl.create_default_context(),
                trust_env=False,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: int = 0,
    ) -> httpx.Response:
        """The response; with ``wait_s``, once there is an outcome or so many seconds are over.

        Raises ClientError: Refusal where the controller refuses.
        """
        wishes = {"Prefer": f"wait={min(wait_s, WAIT_S)}"} if wait_s else {}
        for attempt in range(1, self._attempts + 1):
            try:
                with self._errors():
                    response = self._http.request(
                        method,
                        path,
                        params=list(query) or None,
                        json=body,
                        headers={**(headers or {}), **wishes},
                        timeout=self._timeout_s + wait_s,
                    )
                break
            except NoAnswer:
                if attempt == self._attempts:
                    raise
            time.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
        return _accepted(response)

    def json(self, method: str, path: str, **more: Any) -> JsonObject:
        """The document in the answer to a :meth:`request`."""
        return _document(self.request(method, path, **more))

    def follow(
        self, kinds: Iterable[str], last_id: str | None, path: str = "/v1/events"
    ) -> Iterator[ServerSentEvent]:
        """Events after ``last_id``, until the connection ends. Raises ClientError."""
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        query = [("kind", kind) for kind in kinds]
        timeout = httpx.Timeout(self._timeout_s, read=SILENCE_S)
        with (
            self._errors(),
            connect_sse(
                self._http, "GET", path, headers=headers, params=query, timeout=timeout
            ) as source,
        ):
            if not source.response.is_success:
                source.response.read()
            _accepted(source.response)
            yield from source.iter_sse()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.InvalidURL as error:
            raise BadUrl(f"{self._url!r}: {error}") from error
        except httpx.UnsupportedProtocol as error:
            raise BadUrl(f"{self._url!r} must begin with http:// or https://") from error
        except httpx.TimeoutException as error:
            raise TooLate(f"{self._url}: {error}") from error
        except httpx.TransportError as error:
            raise NoAnswer(f"{self._url}: {error}") from error


def resource(collection: str, identifier: str) -> str:
    """The path of one member of a collection."""
    return f"{collection}/{quote(identifier, safe='')}"


def _accepted(response: httpx.Response) -> httpx.Response:
    if not response.is_success:
        raise Refusal(response, _document(response, "title"))
    return response


def _document(response: httpx.Response, *needed: str) -> JsonObject:
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
