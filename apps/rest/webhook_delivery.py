"""Sends events to webhooks, each at its own pace, from a separate thread and event loop.

A subscriber's queue is a place in the bounded history of events: a slow or dead subscriber delays
no other, and costs a timer. Messages come in order and at least once. Events dropped from the
history before a subscriber is back are replaced by a ``gap``. If controllers share a store, the
store holds each place, at most a second old: the next leader goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import httpx

from apps.rest.problems import TOO_MANY_WEBHOOKS, ApiError
from apps.rest.resources.events import CloudEvent, Gap
from apps.rest.resources.events import Event as EventDocument
from apps.rest.webhook_addresses import ReachTransport, RefusedAddress, WebhookNetworks
from hydra.access import LOCAL, Caller, Role
from hydra.errors import UnknownName
from hydra.events import Event, EventKind, EventLog
from hydra.journal import Change, Journal, JournalError, Kind
from hydra.model import Fabric
from hydra.webhooks import SECRET_BYTES, Webhook, make_secret, pause_s, signed_headers

LOG = logging.getLogger("hydra.webhooks")
MOST_WEBHOOKS: Final = 100
_CHANCE: Final = secrets.SystemRandom()
_TIMEOUT_S: Final = 10.0
_STOP_TIMEOUT_S: Final = 5.0
_GONE: Final = 410
_KEEP_S: Final = 1.0
_TRY_AGAIN: Final = frozenset({408, 425, 429})
"""4xx answers that blame the moment, not the message."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """State of a webhook."""

    webhook: Webhook
    waiting: int
    """Events not reported to the webhook yet."""
    delivered: int
    refused: int
    """Messages answered with 4xx; not sent again."""
    missed: int
    """Events dropped from the history before they could be sent."""
    failing_since_unix_s: float | None
    problem: str
    """Why the last message was not accepted; empty if accepted."""


class _Subscriber:
    """A webhook and its place in the history; only the event loop changes the place."""

    def __init__(self, webhook: Webhook, number: int | None) -> None:
        self.webhook = webhook
        self.kept = number
        """The place as stored in the journal."""
        self.number = number
        """Number of the last event sent to the webhook; None: none in this run, so events are
        lost.
        """
        self.delivered = self.refused = self.missed = 0
        self.failing_since_unix_s: float | None = None
        self.problem = ""
        self.gone = False


class Webhooks:
    """All webhooks. For any thread. Without ``journal``, webhooks end with the process."""

    def __init__(
        self,
        fabric: Fabric,
        events: EventLog,
        journal: Journal | None = None,
        reach: WebhookNetworks | None = None,
    ) -> None:
        self._reach = reach or WebhookNetworks()
        self._fabric = fabric
        self._events = events
        self._journal = journal
        self._lock = threading.Lock()
        self._keeping = threading.Lock()
        """Held while places are written, a slow operation; taken before ``_lock``."""
        self._subscribers: dict[str, _Subscriber] = {}
        self._tasks: dict[str, tuple[Webhook, asyncio.Task[None]]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load webhooks from the journal, and start sending. Raises HydraError on a read error."""
        records = self._journal.records(Kind.WEBHOOK) if self._journal else []
        places = self._places()
        with self._lock:
            for webhook in map(Webhook.from_record, records):
                place = places.get(webhook.id)
                self._subscribers.setdefault(webhook.id, _Subscriber(webhook, place))
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ready)), name="webhooks", daemon=True
        )
        self._thread.start()
        ready.wait(_STOP_TIMEOUT_S)

    def stop(self) -> None:
        """Repeatable; unsent events are lost, and the next run reports the loss."""
        if self._thread is not None:
            self._notify_loop(self._ended.set)
            self._thread.join(_STOP_TIMEOUT_S)
            self._thread = None

    # -- the resource -----------------------------------------------------------------------------

    def add(self, url: str, kinds: Collection[EventKind], tenant: str | None) -> Webhook:
        """Add a webhook. Raises ApiError, RefusedAddress, and JournalError on a write error."""
        self._reach.check_literal(httpx.URL(url).host)
        webhook = Webhook(
            id=uuid.uuid4().hex[:12],
            url=url,
            secret=make_secret(secrets.token_bytes(SECRET_BYTES)),
            kinds=frozenset(kinds),
            tenant=tenant,
            created_unix_s=time.time(),
        )
        with self._lock:
            if len(self._subscribers) >= MOST_WEBHOOKS:
                raise ApiError(
                    TOO_MANY_WEBHOOKS, f"there are {MOST_WEBHOOKS} webhooks already: delete some"
                )
            place = self._events.last
            self._keep(webhook.id, webhook, place)
            self._subscribers[webhook.id] = _Subscriber(webhook, place)
        self._notify_loop(self._adjust)
        return webhook

    def change(
        self, webhook_id: str, url: str, kinds: Collection[EventKind], tenant: str | None
    ) -> Delivery:
        """Change a webhook; delivery goes on from the same place, and at once.

        Raises UnknownName, RefusedAddress, JournalError.
        """
        self._reach.check_literal(httpx.URL(url).host)
        with self._lock:
            subscriber = self._get(webhook_id)
            webhook = replace(subscriber.webhook, url=url, kinds=frozenset(kinds), tenant=tenant)
            self._keep(webhook.id, webhook)
            subscriber.webhook = webhook
            subscriber.gone = False
            delivery = self._delivery(subscriber)
        self._notify_loop(self._adjust)
        return delivery

    def remove(self, webhook_id: str) -> Delivery:
        """Remove a webhook; returns the last state. Raises UnknownName, JournalError."""
        with self._keeping, self._lock:
            delivery = self._delivery(self._get(webhook_id))
            self._keep(webhook_id, None)
            del self._subscribers[webhook_id]
        self._notify_loop(self._adjust)
        return delivery

    def _keep(self, webhook_id: str, webhook: Webhook | None, place: int | None = None) -> None:
        """Write a webhook, and its place, or delete both."""
        if self._journal is None:
            return
        changes = [
            Change(Kind.WEBHOOK, webhook_id, None if webhook is None else webhook.to_record())
        ]
        if webhook is None:
            changes.append(Change(Kind.DELIVERY, webhook_id, None))
        elif place is not None and self._events.stored:
            changes.append(self._place(webhook_id, place))
        self._journal.write(changes)

    def _place(self, webhook_id: str, number: int) -> Change:
        record = {"id": webhook_id, "run": self._events.run, "number": number}
        return Change(Kind.DELIVERY, webhook_id, record)

    def _places(self) -> dict[str, int]:
        """Number of the last event sent to each webhook by earlier controllers."""
        if self._journal is None or not self._events.stored:
            return {}
        records = self._journal.records(Kind.DELIVERY)
        return {
            record["id"]: record["number"]
            for record in records
            if record["run"] == self._events.run
        }

    def _keep_places(self) -> None:
        """Write the changed places; after a write error, some messages may be sent again."""
        with self._keeping:
            with self._lock:
                moved = [
                    (subscriber, subscriber.number)
                    for subscriber in self._subscribers.values()
                    if subscriber.number is not None and subscriber.number != subscriber.kept
                ]
            if not moved or self._journal is None:
                return
            with suppress(JournalError):
                self._journal.write(
                    [self._place(subscriber.webhook.id, at) for subscriber, at in moved]
                )
                for subscriber, at in moved:
                    subscriber.kept = at

    def all(self) -> Sequence[Delivery]:
        with self._lock:
            return [self._delivery(subscriber) for subscriber in self._subscribers.values()]

    def delivery(self, webhook_id: str) -> Delivery:
        """State of a webhook. Raises UnknownName."""
        with self._lock:
            return self._delivery(self._get(webhook_id))

    def _get(self, webhook_id: str) -> _Subscriber:
        try:
            return self._subscribers[webhook_id]
        except KeyError:
            raise UnknownName(
                f"no webhook {webhook_id!r}: GET /v1/webhooks (`hydra webhooks`) has the ids"
            ) from None

    def _delivery(self, subscriber: _Subscriber) -> Delivery:
        return Delivery(
            webhook=subscriber.webhook,
            waiting=self._events.last - (subscriber.number or 0),
            delivered=subscriber.delivered,
            refused=subscriber.refused,
            missed=subscriber.missed,
            failing_since_unix_s=subscriber.failing_since_unix_s,
            problem=subscriber.problem,
        )

    # -- in the event loop ------------------------------------------------------------------------

    def _notify_loop(self, callback: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(callback)

    async def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        async with httpx.AsyncClient(
            timeout=_TIMEOUT_S,
            trust_env=False,
            transport=ReachTransport(self._reach, MOST_WEBHOOKS),
        ) as self._http:
            with self._events.listening(lambda: self._notify_loop(self._wake)):
                self._adjust()
                ready.set()
                await self._until_ended()
            tasks = [task for _, task in self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._loop = None
        if self._events.stored:
            self._keep_places()

    async def _until_ended(self) -> None:
        while not self._ended.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _KEEP_S if self._events.stored else None)
            if self._events.stored:
                await asyncio.to_thread(self._keep_places)

    def _wake(self) -> None:
        for news in self._news.values():
            news.set()

    def _adjust(self) -> None:
        """Keep a task for each present webhook, and end the tasks of removed webhooks."""
        with self._lock:
            present = dict(self._subscribers)
        for webhook_id, (webhook, task) in list(self._tasks.items()):
            now = present.get(webhook_id)
            if now is None or now.webhook != webhook or task.done():
                task.cancel()
                del self._tasks[webhook_id], self._news[webhook_id]
        for webhook_id, subscriber in present.items():
            if webhook_id not in self._tasks:
                news = self._news[webhook_id] = asyncio.Event()
                task = asyncio.create_task(self._serve(subscriber, news))
                task.add_done_callback(_note_end)
                self._tasks[webhook_id] = subscriber.webhook, task

    async def _serve(self, subscriber: _Subscriber, news: asyncio.Event) -> None:
        failures = 0
        while not subscriber.gone:
            news.clear()
            number, message, missed = self._next(subscriber)
            if message is not None and not await self._delivered(subscriber, message):
                failures += 1
                await asyncio.sleep(pause_s(failures, _CHANCE.random()))
                continue
            failures = 0
            subscriber.missed += missed
            if number == subscriber.number:
                await news.wait()
            subscriber.number = number

    def _next(self, subscriber: _Subscriber) -> tuple[int, CloudEvent | None, int]:
        """Number of the last event covered, the next message, and the number of lost events.

        The message is None if there is nothing to send.
        """
        if subscriber.number is None:
            return 0, self._gap(0, None), 0
        events, missed = self._events.after(subscriber.number)
        number = subscriber.number + missed
        if missed:
            return number, self._gap(number, missed), missed
        for event in events:
            number = event.number
            message = self._message(subscriber.webhook, event)
            if message is not None:
                return number, message, 0
        return number, None, 0

    def _message(self, webhook: Webhook, event: Event) -> CloudEvent | None:
        if webhook.kinds and event.kind not in webhook.kinds:
            return None
        caller = LOCAL if webhook.tenant is None else Caller(webhook.tenant, Role.TENANT)
        document = EventDocument.seen_by(caller, self._fabric, event)
        if document is None:
            return None
        return CloudEvent(
            id=f"{self._events.run}-{event.number}",
            source=self._source,
            type=f"hydra.{event.kind.value}",
            subject=None if document.reservation is None else document.reservation.id,
            time=datetime.fromtimestamp(event.unix_s, UTC),
            data=document,
        )

    def _gap(self, number: int, missed: int | None) -> CloudEvent:
        return CloudEvent(
            id=f"{self._events.run}-{number}-gap",
            source=self._source,
            type="hydra.gap",
            subject=None,
            time=datetime.now(UTC),
            data=Gap(missed=missed),
        )

    @property
    def _source(self) -> str:
        return f"urn:hydra:{quote(self._fabric.name, safe='')}"

    async def _delivered(self, subscriber: _Subscriber, message: CloudEvent) -> bool:
        """Send ``message``; False if the message has to be sent again."""
        unset = {"subject"} if message.subject is None else None
        body = message.model_dump_json(exclude=unset).encode()
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            **signed_headers(subscriber.webhook.secret, message.id, int(time.time()), body),
        }
        try:
            async with (
                asyncio.timeout(_TIMEOUT_S),
                self._http.stream(
                    "POST", subscriber.webhook.url, content=body, headers=headers
                ) as answer,
            ):
                status = answer.status_code
        except TimeoutError:
            return self._failed(subscriber, f"no answer within {_TIMEOUT_S:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, RefusedAddress, OSError, ValueError) as error:
            return self._failed(subscriber, str(error) or type(error).__name__)
        if httpx.codes.is_success(status):
            subscriber.delivered += 1
            subscriber.failing_since_unix_s, subscriber.problem = None, ""
            return True
        if httpx.codes.is_client_error(status) and status not in _TRY_AGAIN:
            subscriber.refused += 1
            subscriber.gone = status == _GONE
            subscriber.problem = f"the receiver answered {status}" + (
                "; nothing more is sent" if subscriber.gone else ""
            )
            LOG.warning(
                "webhook %s refused an event: %s", subscriber.webhook.id, subscriber.problem
            )
            return True
        return self._failed(subscriber, f"the receiver answered {status}")

    def _failed(self, subscriber: _Subscriber, problem: str) -> bool:
        if subscriber.failing_since_unix_s is None:
            subscriber.failing_since_unix_s = time.time()
            LOG.warning("webhook %s does not take events: %s", subscriber.webhook.id, problem)
        subscriber.problem = problem
        return False


def _note_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        LOG.error(
            "a webhook's task ended unexpectedly; the webhook gets no more events", exc_info=error
        )
