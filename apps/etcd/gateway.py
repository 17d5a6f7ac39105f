"""etcd's v3 API through its gateway of JSON over HTTP, by any endpoint that answers.

A request is tried at the endpoints in turn until its time is up. A request without an answer may
still be carried out, once or several times: callers put a comparison into each transaction, which
fails the second time.
"""

from __future__ import annotations

import json
import ssl
import time
import warnings
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Final, cast
from urllib.parse import urlsplit

import requests

from drivers.credentials import secret
from hydra.errors import DeviceError, HydraError
from hydra.model import Login
from hydra.settings import EtcdSettings

with warnings.catch_warnings():
    # The import brings eventlet, whose maintenance warning is of no use to users.
    warnings.simplefilter("ignore")
    from etcd3gw import exceptions
    from etcd3gw.client import Etcd3Client

PATIENCE_S: Final = 5.0
"""How long a request is tried."""
_TRY_S: Final = 1.0
"""Longest wait for a single endpoint: a stopped member takes requests and says nothing."""
_PAUSE_S: Final = 0.05
_UNANSWERED: Final = (
    exceptions.ConnectionFailedError,
    exceptions.ConnectionTimeoutError,
    exceptions.InternalServerError,
)
"""Includes etcd's errors without quorum: the request may have been carried out."""
_REFUSALS: Final = frozenset({3, 5, 6, 7, 8, 9, 10, 11, 12, 16})
"""gRPC codes, from etcd's error documents, that rule out execution of the request: all but
CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE and DATA_LOSS.
"""
_LOGIN_ENDED: Final = ("invalid auth token", "revision of auth store is old")
"""The second text refers to a JWT, once users or their roles have changed."""

Json = dict[str, Any]


class EtcdRefused(HydraError):
    """etcd has answered without carrying the request out."""


class EtcdUnanswered(HydraError):
    """No endpoint has answered in time; the request may be carried out now or later."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value, and the store's revisions of creation and last write."""

    key: str
    value: str
    created: int
    modified: int
    lease: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a transaction, as of ``revision`` of the store."""

    succeeded: bool
    revision: int
    found: Sequence[Sequence[Entry]]
    """Findings of each range in the taken branch."""
    counts: Sequence[int]
    """Number of keys in each range, returned or not."""


def written(text: str) -> str:
    """A key or value in the gateway's encoding."""
    return b64encode(text.encode()).decode("ascii")


def put(key: str, value: str, lease: int = 0) -> Json:
    return {"requestPut": {"key": written(key), "value": written(value), "lease": str(lease)}}


def delete(first: str, end: str | None = None) -> Json:
    """Delete a key, or all keys from ``first`` up to ``end`` (exclusive)."""
    return {"requestDeleteRange": _range(first, end)}


def get(
    first: str,
    end: str | None = None,
    *,
    limit: int = 0,
    last: bool = False,
    revision: int = 0,
    written_since: int = 0,
    keys_only: bool = False,
    counts_only: bool = False,
) -> Json:
    """Range of keys in order; ``last``: from the end.

    ``revision``: as of this revision; ``written_since``: only keys written in this revision or
    later. ``keys_only``: without values; ``counts_only``: no keys, and their number in the answer.
    """
    order = {"sortOrder": "DESCEND", "sortTarget": "KEY"} if last else {}
    asked = {
        "limit": str(limit),
        "revision": str(revision),
        "min_mod_revision": str(written_since),
        "keys_only": keys_only,
        "count_only": counts_only,
    }
    return {"requestRange": {**_range(first, end), **order, **asked}}


def has_value(key: str, value: str) -> Json:
    return {"key": written(key), "target": "VALUE", "result": "EQUAL", "value": written(value)}


def is_absent(key: str) -> Json:
    return was_created(key, 0)


def was_created(key: str, revision: int) -> Json:
    """True if the key was created in ``revision`` of the store."""
    return {
        "key": written(key),
        "target": "CREATE",
        "result": "EQUAL",
        "create_revision": str(revision),
    }


def _range(first: str, end: str | None) -> Json:
    return {"key": written(first)} | ({} if end is None else {"range_end": written(end)})


def check_files(settings: EtcdSettings) -> None:
    """Raise HydraError unless certificates, key and password can be read and used."""
    source = f"tls.authority {settings.authority}"
    try:
        context = ssl.create_default_context(cafile=settings.authority)
        if settings.certificate is not None and settings.key is not None:
            source = f"tls.certificate {settings.certificate} with tls.key {settings.key}"
            context.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:  # ssl.SSLError included
        raise HydraError(
            f"etcd.{source} can't be used ({error.strerror or error}): put the files there, in "
            "PEM, readable for the controller's user"
        ) from error
    if settings.password_file is not None:
        secret("etcd", Login(settings.username or "", password_file=settings.password_file))


class Etcd:
    """Thread-safe; a single request at a time."""

    def __init__(self, settings: EtcdSettings, try_s: float = _TRY_S) -> None:
        """``try_s``: longest wait for an endpoint."""
        self._settings = settings
        self._try_s = try_s
        self._lock = Lock()
        self._clients = [_client(settings, endpoint) for endpoint in settings.endpoints]
        self._logged_in = False
        """True if the first client has a token of etcd's."""

    @property
    def name(self) -> str:
        return f"etcd {', '.join(self._settings.endpoints)}"

    def transaction(
        self,
        compare: Sequence[Json],
        success: Sequence[Json],
        failure: Sequence[Json] = (),
        *,
        patience_s: float | None = None,
    ) -> Answer:
        """As :meth:`ask`. Raises EtcdRefused, EtcdUnanswered."""
        document = self.ask(
            "/kv/txn",
            {"compare": list(compare), "success": list(success), "failure": list(failure)},
            patience_s=patience_s,
        )
        ranges = [
            response["response_range"]
            for response in document.get("responses", ())
            if "response_range" in response
        ]
        return Answer(
            bool(document.get("succeeded", False)),
            int(document["header"]["revision"]),
            [[_entry(entry) for entry in found.get("kvs", ())] for found in ranges],
            [int(found.get("count", 0)) for found in ranges],
        )

    def ask(self, path: str, body: Json, *, patience_s: float | None = None) -> Json:
        """A request of any kind, by path; ``patience_s`` is PATIENCE_S by default.

        After as many time-outs as there are members, each member has twice the time, as a slow
        member would never answer otherwise. Raises EtcdRefused, EtcdUnanswered.
        """
        patience_s = PATIENCE_S if patience_s is None else patience_s
        until_s = time.monotonic() + patience_s
        detail, try_s, late = "no time to ask", self._try_s, 0
        with self._lock:
            while (remaining_s := until_s - time.monotonic()) > 0:
                try:
                    return self._ask_first(path, body, min(try_s, remaining_s))
                except _UNANSWERED as error:
                    detail = str(error.detail_text or error)
                    if isinstance(error, exceptions.ConnectionTimeoutError):
                        late += 1
                        try_s = self._try_s * 2 ** (late // len(self._clients))
                # From now on the next endpoint is asked first.
                self._clients.append(self._clients.pop(0))
                self._logged_in = False
                time.sleep(min(_PAUSE_S, max(0.0, until_s - time.monotonic())))
        raise EtcdUnanswered(
            f"{self.name} did not answer within {patience_s:g} s ({detail.strip()})"
        )

    def _ask_first(self, path: str, body: Json, try_s: float) -> Json:
        client = self._clients[0]
        client.timeout = try_s
        for fresh in (False, True):
            try:
                self._log_in(client)
                return cast(Json, client.post(client.get_url(path), json=body))
            except _UNANSWERED:
                raise
            except exceptions.Etcd3Exception as error:
                text = str(error.detail_text)
                if any(words in text for words in _LOGIN_ENDED) and not fresh:
                    self._logged_in = False
                    continue
                if not _is_refusal(text):
                    raise exceptions.ConnectionFailedError(_words(text)) from error
                raise EtcdRefused(f"{self.name} refused: {_words(text)}") from None
            except (OSError, ValueError) as error:
                # OSError: a missing certificate file, as during a renewal, and errors of requests.
                raise exceptions.ConnectionFailedError(str(error)) from error
        raise EtcdRefused(f"{self.name} refuses tokens just issued")

    def _log_in(self, client: Etcd3Client) -> None:
        settings = self._settings
        if settings.username is None or self._logged_in:
            return
        login = Login(settings.username, settings.password_env, settings.password_file)
        try:
            password = secret("etcd", login)
        except DeviceError as error:
            raise EtcdRefused(str(error)) from error
        client.session.headers.pop("Authorization", None)
        answer = client.post(
            client.get_url("/auth/authenticate"),
            json={"name": settings.username, "password": password},
        )
        client.session.headers["Authorization"] = answer["token"]
        self._logged_in = True

    def members(self, patience_s: float = _TRY_S) -> Iterator[tuple[str, Json | None]]:
        """Each endpoint with its own status; None without an answer."""
        for endpoint in self._settings.endpoints:
            member = Etcd(_only(self._settings, endpoint))
            try:
                yield endpoint, member.ask("/maintenance/status", {}, patience_s=patience_s)
            except (EtcdRefused, EtcdUnanswered):
                yield endpoint, None
            finally:
                member.close()

    def close(self) -> None:
        for client in self._clients:
            client.session.close()


def _only(settings: EtcdSettings, endpoint: str) -> EtcdSettings:
    return replace(settings, endpoints=(endpoint,))


def _client(settings: EtcdSettings, endpoint: str) -> Etcd3Client:
    url = urlsplit(endpoint)
    session = requests.Session()
    session.trust_env = False  # a proxy of the environment's is for the Internet
    if settings.authority is not None:
        session.verify = settings.authority
    if settings.certificate is not None and settings.key is not None:
        session.cert = (settings.certificate, settings.key)
    return Etcd3Client(
        url.hostname or "", url.port or 2379, url.scheme, api_path="/v3/", session=session
    )


def _entry(document: Mapping[str, Any]) -> Entry:
    return Entry(
        b64decode(document["key"]).decode(),
        b64decode(document.get("value", "")).decode(),
        int(document["create_revision"]),
        int(document["mod_revision"]),
        int(document.get("lease", 0)),
    )


def _is_refusal(text: str) -> bool:
    """True if ``text`` is a document of etcd's about a request not carried out.

    Proxies answer with documents of their own, also if etcd has carried the request out.
    """
    try:
        return json.loads(text)["code"] in _REFUSALS
    except (ValueError, KeyError, TypeError):
        return False


def _words(text: str) -> str:
    """The message out of the gateway's JSON."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()
