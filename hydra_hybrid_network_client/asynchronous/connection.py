"""A connection to a controller's REST API, shared by clients: JSON in, JSON out."""

from __future__ import annotations

import ssl
from asyncio import sleep
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Any, Self

import httpx

from hydra_hybrid_network_client import environment, streams
from hydra_hybrid_network_client.errors import (
    STORE_LOST,
    JsonObject,
    NoAnswer,
    Refusal,
    accepted,
    document_of,
    errors_of_httpx,
)
from hydra_hybrid_network_client.requests import (
    SILENCE_S,
    TIMEOUT_S,
    Place,
    Query,
    Retries,
    prefer,
)


class AsyncConnection:
    """A connection to a controller, or to several controllers with a shared store.

    A context manager that closes the connection. With several URLs, the controller that answered
    last is asked first. If the controller is gone, or no controller leads, the next is asked: for
    10 s in all, enough time for another controller to lead.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        attempts: int = 1,
    ) -> None:
        """``url``: a URL, or several with commas between. ``tls``: the authorities to trust.
        Defaults come from the environment: HYDRA_URL, HYDRA_TOKEN or HYDRA_TOKEN_FILE, HYDRA_CA. If
        the connection fails, each request is made up to ``attempts`` times.

        Raises BadUrl, BadToken and BadSetting.
        """
        self._url = environment.controller_url() if url is None else url
        self._timeout_s = timeout_s
        self._attempts = attempts
        bearer = environment.bearer_token() if token is None else environment.bare(token)
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        urls = [part.strip() for part in self._url.split(",")]
        trusted = tls or environment.trusted() or environment.trusted_by_default(urls)
        self._https: list[httpx.AsyncClient] = []
        for base_url in urls:
            with errors_of_httpx(self._url):
                # No proxies: a controller is on the management network, not on the Internet.
                self._https.append(
                    httpx.AsyncClient(
                        base_url=base_url, headers=headers, verify=trusted, trust_env=False
                    )
                )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        for connection in self._https:
            await connection.aclose()

    async def request(
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
        """The response; with ``wait_s``, upon an outcome, or after ``wait_s`` seconds.

        Without ``patient``, a refusal because of a lost store is raised once every controller was
        asked, without waiting for a leader. Raises ClientError: Refusal if the controller refuses.
        """
        return await self._send(
            method,
            path,
            telling=() if patient else (STORE_LOST,),
            params=list(query) or None,
            json=body,
            headers={**(headers or {}), **prefer(wait_s)},
            timeout=self._timeout_s + wait_s,
        )

    async def json(self, method: str, path: str, **more: Any) -> JsonObject:
        """The document in the answer to a :meth:`request`."""
        return document_of(await self.request(method, path, **more))

    async def follow(
        self,
        kinds: Iterable[str],
        place: Place,
        path: str = "/v1/events",
        reservations: Iterable[str] = (),
    ) -> AsyncIterator[tuple[str, JsonObject]]:
        """Yield (name, data) of each event after ``place``, until the connection ends.

        ``reservations``: only events about the given ids. ``place`` advances even without events.
        Raises ClientError.
        """
        after = {} if place.last_id is None else {"Last-Event-ID": place.last_id}
        query = [("kind", kind) for kind in kinds]
        query += [("reservation", identifier) for identifier in reservations]
        response = await self._send(
            "GET",
            path,
            stream=True,
            params=query or None,
            headers={**streams.HEADERS, **after},
            timeout=httpx.Timeout(self._timeout_s, read=SILENCE_S),
        )
        try:
            streams.check_stream(response)
            place.opened = True
            decoder = streams.EventDecoder()
            with errors_of_httpx(self._url):
                async for received in response.aiter_bytes():
                    for event in decoder.feed(received):
                        place.last_id = event.last_id or place.last_id
                        yield event.name, streams.document_in(response, event)
                    place.last_id = decoder.last_id or place.last_id
        finally:
            await response.aclose()

    async def _send(
        self,
        method: str,
        path: str,
        *,
        stream: bool = False,
        telling: Collection[str] = (),
        **more: Any,
    ) -> httpx.Response:
        """The answer of the first controller that accepts the request. Raises ClientError.

        With ``stream``, the body is not read, and the caller closes the response.
        """
        retries = Retries(len(self._https), self._attempts, method, telling)
        while True:
            http = self._https[0]
            try:
                with errors_of_httpx(self._url):
                    response = await http.send(
                        http.build_request(method, path, **more), stream=stream
                    )
                    if not response.is_success:
                        await response.aread()
                return accepted(response)
            except (Refusal, NoAnswer) as error:
                pause_s = retries.pause_s(error)
            if self._https[0] is http:  # another thread may have gone on already
                self._https = [*self._https[1:], http]
            if pause_s:
                await sleep(pause_s)
