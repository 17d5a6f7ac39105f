"""The controller's REST API for the commands: JSON in, JSON out, errors in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any, Final, Self

import click

from apps.cli.output import CommandError, UnreachableError, json_option, print_json, warn
from apps.cli.patience import Progress
from hydra_hybrid_network_client.environment import DEFAULT_URL
from hydra_hybrid_network_client.errors import (
    BadSetting,
    BadUrl,
    ClientError,
    JsonObject,
    NoAnswer,
    Refusal,
    Refused,
    TooLate,
    document_of,
)
from hydra_hybrid_network_client.requests import SILENCE_S, TIMEOUT_S, WAIT_S, Place
from hydra_hybrid_network_client.synchronous.connection import Connection

_OLD_S: Final = 5
"""Age in seconds above which an answer is reported as old."""


def _joined(_ctx: click.Context, _param: click.Parameter, urls: Sequence[str]) -> str:
    return ",".join(urls)


url_option = click.option(
    "--url",
    multiple=True,
    default=[DEFAULT_URL],
    show_default=DEFAULT_URL,
    envvar="HYDRA_URL",
    show_envvar=True,
    callback=_joined,
    help="Where the controller's REST API is; of several controllers, all: with commas between, or "
    "once for each.",
)


class ControllerClient:
    """A connection to a controller; use as a context manager.

    Methods raise UnreachableError without an answer, CommandError if the controller refuses, and
    UsageError for an invalid URL.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        with in_words(self._url):
            self._connection = Connection(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str) -> JsonObject:
        return self._ask("GET", path)

    def get_text(self, path: str) -> str:
        """The response at ``path`` unparsed, also a refusal."""
        with in_words(self._url):
            try:
                return self._connection.request("GET", path).text
            except Refusal as refusal:
                return refusal.response.text

    def get_all(self, path: str, key: str) -> JsonObject:
        """All pages of a list, joined."""
        document = self.get(path)
        after = document.pop("next")
        while after is not None:
            page = self._ask("GET", path, query=[("after", after)])
            document[key] += page[key]
            after = page["next"]
        return document

    def get_readiness(self) -> list[str]:
        """Reasons why the controller takes no requests; empty if ready."""
        with in_words(self._url):
            try:
                query = [("standby", "true")]
                self._connection.json("GET", "/readyz", query=query, patient=False)
            except Refusal as refusal:
                if "missing" in refusal.document:
                    return list(refusal.document["missing"])
                if refusal.nobody_leads:
                    return [refusal.document["detail"]]
                raise
        return []

    def post(self, path: str, body: Mapping[str, object], *, wait: bool = False) -> JsonObject:
        return self._ask("POST", path, body=body, wait=wait)

    def put(self, path: str, body: Mapping[str, object]) -> JsonObject:
        return self._ask("PUT", path, body=body)

    def patch(self, path: str, body: Mapping[str, object]) -> JsonObject:
        return self._ask("PATCH", path, body=body)

    def delete(self, path: str, *, wait: bool = False) -> JsonObject:
        return self._ask("DELETE", path, wait=wait)

    def events(self, kinds: Sequence[str], place: Place) -> Iterator[tuple[str, JsonObject]]:
        """Yield (name, data) of each event after ``place``, until the connection ends."""
        with in_words(self._url, SILENCE_S):
            yield from self._connection.follow(kinds, place)

    def follow(self, path: str) -> Iterator[JsonObject]:
        """Yield the documents that ``path`` sends as events, until the connection ends."""
        with in_words(self._url, SILENCE_S):
            for _, document in self._connection.follow((), Place(), path):
                yield document

    def _ask(self, method: str, path: str, *, wait: bool = False, **more: Any) -> JsonObject:
        wait_s = WAIT_S if wait else 0
        timeout_s = TIMEOUT_S + wait_s
        progress = (
            Progress(f"waiting for the controller, {timeout_s:g} s at most") if wait else None
        )
        with progress or nullcontext(), in_words(self._url, timeout_s):
            response = self._connection.request(method, path, wait_s=wait_s, **more)
            age_s = int(response.headers.get("Age", "0"))
            if age_s > _OLD_S:
                warn(
                    f"{response.url.host} is a standby without a store: this answer is {age_s} s "
                    "old"
                )
            return document_of(response)


@contextmanager
def in_words(url: str, timeout_s: float = TIMEOUT_S) -> Iterator[None]:
    """Errors of a connection to ``url`` become ends of the command, in words.

    Raises UnreachableError without an answer, CommandError if the controller refuses, and
    UsageError for an invalid URL or setting.
    """
    try:
        yield
    except BadSetting as error:
        raise click.UsageError(str(error)) from error
    except BadUrl as error:
        raise click.UsageError(f"--url {error}") from error
    except TooLate as error:
        raise UnreachableError(
            f"the controller at {url} did not answer within {timeout_s:g} s; see the "
            "controller's log for the cause"
        ) from error
    except NoAnswer as error:
        raise UnreachableError(str(error)) from error
    except Refusal as refusal:
        end = UnreachableError if refusal.nobody_leads else CommandError
        raise end(str(refusal), refusal.document) from refusal
    except Refused as refused:
        end = UnreachableError if refused.passes else CommandError
        raise end(str(refused)) from refused
    except ClientError as error:
        raise CommandError(str(error)) from error


def answered(command: Callable[..., Iterator[object]]) -> Callable[..., None]:
    """Decorator of a command that asks the controller: adds ``--url`` and ``--json``.

    The command takes a client, yields the document that ``--json`` prints, and goes on with the
    text for people.
    """

    @url_option
    @json_option
    @wraps(command)
    def asked(*, url: str, as_json: bool, **given: object) -> None:
        with ControllerClient(url) as client:
            for document in command(client, **given):
                if as_json:
                    print_json(document)
                    return

    return asked
