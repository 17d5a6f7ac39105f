"""The controller's REST API as the commands use it: JSON in, JSON out, errors in words."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import click
import httpx
from httpx_sse import connect_sse

from apps.cli.output import CommandError, UnreachableError
from apps.cli.patience import Progress

DEFAULT_URL: Final = "http://127.0.0.1:8080"
WAIT_S: Final = 60
"""Longest wait for an outcome that the API grants."""
_TIMEOUT_S: Final = 30.0
_SILENCE_S: Final = 60.0
"""A stream of events is silent for at most 15 s: then the server says that it lives."""

url_option = click.option(
    "--url",
    default=DEFAULT_URL,
    show_default=True,
    envvar="HYDRA_URL",
    show_envvar=True,
    help="Where the controller's REST API is.",
)

JsonObject = dict[str, Any]


def bearer_token() -> str | None:
    """The token in HYDRA_TOKEN, or in the file that HYDRA_TOKEN_FILE names.

    There is no option for it: command lines are seen by everybody on the machine.
    """
    token = os.environ.get("HYDRA_TOKEN", "")
    path = os.environ.get("HYDRA_TOKEN_FILE")
    if not token and path:
        try:
            token = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"HYDRA_TOKEN_FILE {path}: {error.strerror}") from error
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise click.UsageError("the token in HYDRA_TOKEN or HYDRA_TOKEN_FILE is not one line of it")
    return token or None


def _authorization() -> dict[str, str]:
    token = bearer_token()
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def trusted() -> ssl.SSLContext:
    """The system's authorities, and those in the file that HYDRA_CA names."""
    context = ssl.create_default_context()
    path = os.environ.get("HYDRA_CA")
    if path:
        try:
            context.load_verify_locations(path)
        except (OSError, ssl.SSLError) as error:
            raise click.UsageError(f"HYDRA_CA {path}: {error.strerror or error}") from error
    return context


class ControllerClient:
    """A connection to one controller; use as a context manager.

    Methods raise UnreachableError where nothing answers, CommandError where the controller refuses,
    and UsageError for a URL that is none.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            # No proxies: a controller is on the management network, not on the Internet.
            self._http = httpx.Client(
                base_url=url,
                headers=_authorization(),
                verify=trusted(),
                timeout=_TIMEOUT_S,
                trust_env=False,
            )
        except httpx.InvalidURL as error:
            raise click.UsageError(f"--url {url!r}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    def get(self, path: str) -> JsonObject:
        return self._accepted(self._send("GET", path))

    def get_text(self, path: str) -> str:
        """What is at ``path`` as it is, an error document too."""
        return self._send("GET", path).text

    def get_all(self, path: str, key: str) -> JsonObject:
        """All pages of a list, as if they were one."""
        document = self.get(path)
        after = document.pop("next")
        while after is not None:
            page = self.get(f"{path}?after={quote(after, safe='')}")
            document[key] += page[key]
            after = page["next"]
        return document

    def get_readiness(self) -> list[str]:
        """What the controller waits for; empty when it is ready."""
        response = self._send("GET", "/readyz")
        missing = _json(response).get("missing") if response.status_code == 503 else None
        if missing is None:
            self._accepted(response)
            return []
        return list(missing)

    def post(self, path: str, body: Mapping[str, object], *, wait: bool = False) -> JsonObject:
        return self._accepted(self._send("POST", path, body=body, wait=wait))

    def put(self, path: str, body: Mapping[str, object]) -> JsonObject:
        return self._accepted(self._send("PUT", path, body=body))

    def patch(self, path: str, body: Mapping[str, object]) -> JsonObject:
        return self._accepted(self._send("PATCH", path, body=body))

    def delete(self, path: str, *, wait: bool = False) -> JsonObject:
        return self._accepted(self._send("DELETE", path, wait=wait))

    def events(
        self, kinds: Sequence[str], last_id: str | None
    ) -> Iterator[tuple[str, str, JsonObject]]:
        """(name, id, data) of each event after ``last_id``, until the connection ends."""
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        params = [("kind", kind) for kind in kinds]
        timeout = httpx.Timeout(_TIMEOUT_S, read=_SILENCE_S)
        with (
            self._errors(_SILENCE_S),
            connect_sse(
                self._http, "GET", "/v1/events", headers=headers, params=params, timeout=timeout
            ) as source,
        ):
            if not source.response.is_success:
                source.response.read()
                self._accepted(source.response)
            for event in source.iter_sse():
                yield event.event, event.id, json.loads(event.data)

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        wait: bool = False,
    ) -> httpx.Response:
        headers = {"Prefer": f"wait={WAIT_S}"} if wait else {}
        timeout = _TIMEOUT_S + (WAIT_S if wait else 0)
        told = Progress(f"waiting for the controller, {timeout:g} s at most") if wait else None
        with told or nullcontext(), self._errors(timeout):
            return self._http.request(method, path, json=body, headers=headers, timeout=timeout)

    @contextmanager
    def _errors(self, timeout_s: float) -> Iterator[None]:
        """What goes wrong on the way, in words."""
        try:
            yield
        except httpx.UnsupportedProtocol as error:
            raise click.UsageError(
                f"--url {self._url!r} must begin with http:// or https://"
            ) from error
        except httpx.TimeoutException as error:
            raise UnreachableError(
                f"the controller at {self._url} did not answer within {timeout_s:g} s; its log may "
                "say what it is busy with"
            ) from error
        except httpx.TransportError as error:
            raise UnreachableError(
                f"no controller answers at {self._url} ({error}): start one with `hydra run "
                "--config FILE`, or say where it is with --url or HYDRA_URL"
            ) from error

    def _accepted(self, response: httpx.Response) -> JsonObject:
        document = _json(response)
        if response.is_success and document:
            return document
        raise CommandError(_refusal(response, document, self._url))


def resource(collection: str, identifier: str) -> str:
    """The path of one member of a collection."""
    return f"{collection}/{quote(identifier, safe='')}"


def _json(response: httpx.Response) -> JsonObject:
    """The JSON object in a response; empty if there is none."""
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _refusal(response: httpx.Response, document: JsonObject, url: str) -> str:
    """An RFC 9457 problem document in words."""
    if "title" not in document:
        return (
            f"{url} answered {response.status_code} {response.reason_phrase}, but not like a HydRA "
            "controller: check --url"
        )
    lines = [f"{document['title']}: {document.get('detail', '')}"]
    errors = document.get("errors") or ()
    if len(errors) > 1:
        lines += [f"  {e.get('pointer') or e.get('parameter')}: {e['detail']}" for e in errors]
    return "\n".join(lines)
