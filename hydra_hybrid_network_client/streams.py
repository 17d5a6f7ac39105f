"""Server-sent events, after the WHATWG's HTML standard (9.2.6, interpreting a stream)."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import httpx

from hydra_hybrid_network_client.errors import ClientError, JsonObject

MEDIA_TYPE: Final = "text/event-stream"
HEADERS: Final = {"Accept": MEDIA_TYPE, "Cache-Control": "no-store"}
_END_OF_LINE: Final = re.compile(r"\r\n|\n|\r(?!$)")
"""A CR at the end may be half of a CRLF: the next bytes decide."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """An event; ``last_id`` is the last id in the stream so far, empty if there was none."""

    name: str
    data: str
    last_id: str


class EventDecoder:
    """Turns the bytes of a stream into events. Comments, and events without data, are skipped."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""
        self._name = ""
        self._data: list[str] = []
        self._id = ""
        self.last_id = ""
        """The last id in the stream so far, also of an event without data."""

    def feed(self, received: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events completed by ``received``."""
        *lines, self._rest = _END_OF_LINE.split(self._rest + self._text.decode(received))
        for line in lines:
            if line:
                self._take(line)
                continue
            self.last_id = self._id  # not before: an event cut off is sent again
            if self._data:
                yield ServerSentEvent(self._name or "message", "\n".join(self._data), self.last_id)
            self._name, self._data = "", []

    def _take(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id" and "\0" not in value:
            self._id = value


def check_stream(response: httpx.Response) -> None:
    """Raise ClientError unless ``response`` is a stream of events."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != MEDIA_TYPE:
        raise ClientError(f"{response.url} gave an unexpected answer: {kind!r} is no {MEDIA_TYPE}")


def document_in(response: httpx.Response, event: ServerSentEvent) -> JsonObject:
    """The JSON object in an event of ``response``. Raises ClientError."""
    try:
        document = json.loads(event.data)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    raise ClientError(f"{response.url} gave an unexpected answer: no JSON in event {event.last_id}")
