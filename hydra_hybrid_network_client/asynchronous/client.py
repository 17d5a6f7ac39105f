"""A typed client of the controller's REST API; answers are the documents of the API."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import combinations
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import ValidationError

from hydra_hybrid_network_client import documents
from hydra_hybrid_network_client.asynchronous.connection import AsyncConnection
from hydra_hybrid_network_client.base import Document
from hydra_hybrid_network_client.documents import EventKind, ReservationState, ServiceClass
from hydra_hybrid_network_client.errors import ClientError, NotActive, refusals
from hydra_hybrid_network_client.requests import WAIT_S, Place, Query, body_of, resource

_ATTEMPTS: Final = 4

_DocumentT = TypeVar("_DocumentT", bound=Document)


class AsyncHydraClient:
    """A connection to a controller, or to several controllers with a shared store.

    A context manager that closes the connection. Methods raise Refused, and ClientError without an
    answer. All requests can safely be repeated, and are repeated a few times when the connection
    fails: requests for reservations have an idempotency key.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``url``: the URL of the controller, or the URLs of all controllers with a shared store,
        with commas between. ``tls``: the authorities to trust. Defaults come from the environment:
        HYDRA_URL, HYDRA_TOKEN or HYDRA_TOKEN_FILE, HYDRA_CA.
        """
        self._connection = AsyncConnection(url, token, tls, attempts=_ATTEMPTS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._connection.aclose()

    # -- reservations -----------------------------------------------------------------------------

    async def reserve(
        self,
        src: str,
        dst: str,
        bandwidth_mbps: float | None = None,
        *,
        megabytes: float | None = None,
        profile: documents.Profile = documents.Profile.EARLIEST,
        minimum_mbps: float | None = None,
        duration_s: float | None = None,
        start_unix_s: float | None = None,
        end_unix_s: float | None = None,
        hold_s: float | None = None,
        priority: int = 0,
        service: ServiceClass = ServiceClass.SHARED,
        purpose: str = "",
        constraints: documents.ConstraintsBody | None = None,
        protect: documents.Protect = documents.Protect.NONE,
        wait_s: int = 0,
    ) -> documents.Reservation:
        """Ask for bandwidth; with ``wait_s``, up to a minute, wait until the bandwidth is
        available.

        With ``minimum_mbps``, the answer's ``bandwidth_mbps`` is the most that fits, at least the
        minimum. With ``megabytes`` and ``end_unix_s`` instead of a rate, the controller chooses
        rate and times such that the bytes arrive by the end. ``constraints`` bind the path, and
        ``protect`` asks for a second path that takes over after a loss.
        """
        body = body_of(
            documents.ReservationBody,
            src=src,
            dst=dst,
            bandwidth_mbps=bandwidth_mbps,
            megabytes=megabytes,
            profile=profile,
            minimum_mbps=minimum_mbps,
            duration_s=duration_s,
            start_unix_s=start_unix_s,
            end_unix_s=end_unix_s,
            hold_s=hold_s,
            priority=priority,
            service=service,
            purpose=purpose,
            constraints=constraints or documents.ConstraintsBody(),
            protect=protect,
        )
        return await self._make("/v1/reservations", body, documents.Reservation, wait_s)

    async def preview(
        self, src: str, dst: str, bandwidth_mbps: float, **times: float
    ) -> documents.ReservationPreview:
        """The outcome of :meth:`reserve`, without its effect."""
        body = body_of(
            documents.ReservationBody, src=src, dst=dst, bandwidth_mbps=bandwidth_mbps, **times
        )
        return await self._make("/v1/reservations/preview", body, documents.ReservationPreview, 0)

    async def reserve_matrix(
        self,
        entries: Sequence[documents.MatrixEntry],
        *,
        all_or_nothing: bool = True,
        start_unix_s: float | None = None,
        duration_s: float | None = None,
        repeat: documents.Repeat | None = None,
        wait_s: int = 0,
        key: str | None = None,
    ) -> documents.CreatedGroup:
        """Ask for a whole traffic matrix in one request, once or at recurring times.

        A second request with the same idempotency ``key`` returns the group of the first.
        """
        body = body_of(
            documents.GroupBody,
            entries=list(entries),
            all_or_nothing=all_or_nothing,
            start_unix_s=start_unix_s,
            duration_s=duration_s,
            repeat=repeat,
        )
        return await self._make("/v1/groups", body, documents.CreatedGroup, wait_s, key)

    async def reserve_between(
        self, servers: Iterable[str], bandwidth_mbps: float, *, duration_s: float | None = None
    ) -> documents.CreatedGroup | None:
        """Ask for bandwidth between each two of ``servers`` in different racks, as far as
        available.

        Names unknown to the controller are left out. None if there is no such pair of servers.
        """
        rack_of = {server.name: server.rack for server in (await self.servers()).servers}
        pairs = combinations(sorted(rack_of.keys() & set(servers)), 2)
        entries = [
            documents.MatrixEntry(src=a, dst=b, bandwidth_mbps=bandwidth_mbps)
            for a, b in pairs
            if rack_of[a] != rack_of[b]
        ]
        if not entries:
            return None
        return await self.reserve_matrix(entries, all_or_nothing=False, duration_s=duration_s)

    async def reservation(
        self, reservation_id: str, *, wait: ReservationState | None = None, wait_s: int = WAIT_S
    ) -> documents.Reservation:
        """Read a reservation; with ``wait``, once in the given state, or unable to reach the state.

        The answer comes after ``wait_s``, 60 at most; the state may then lie ahead still.
        """
        path = resource("/v1/reservations", reservation_id)
        if wait is None:
            return await self._read("GET", path, documents.Reservation)
        return await self._read(
            "GET", path, documents.Reservation, [("wait", str(wait))], wait_s=wait_s
        )

    async def modify(
        self,
        reservation_id: str,
        *,
        bandwidth_mbps: float | None = None,
        end_unix_s: float | None = None,
        src: str | None = None,
        dst: str | None = None,
    ) -> documents.Reservation:
        """Change a reservation without an interruption; Refused, type ``not-hitless``, if
        impossible.
        """
        body = body_of(
            documents.ModificationBody,
            bandwidth_mbps=bandwidth_mbps,
            end_unix_s=end_unix_s,
            src=src,
            dst=dst,
        )
        content = body.model_dump(mode="json", exclude_defaults=True, by_alias=True)
        path = resource("/v1/reservations", reservation_id)
        return await self._read("PATCH", path, documents.Reservation, body=content)

    async def delivery(self, reservation_id: str) -> documents.Delivery:
        """Rates that a reservation receives, by counters, beside the promised rates."""
        path = f"{resource('/v1/reservations', reservation_id)}/delivery"
        return await self._read("GET", path, documents.Delivery)

    async def deliveries(self) -> list[documents.Delivery]:
        """Deliveries of all reservations that have, or are getting, circuits now."""
        return (await self._read("GET", "/v1/deliveries", documents.Deliveries)).deliveries

    async def reservations(self, *states: ReservationState) -> AsyncIterator[documents.Reservation]:
        """All reservations, or those in the given states; oldest first, page by page."""
        query = [("state", str(state)) for state in states]
        after: list[tuple[str, str]] = []
        while True:
            page = await self._read(
                "GET", "/v1/reservations", documents.Reservations, [*query, *after]
            )
            for reservation in page.reservations:
                yield reservation
            if page.next is None:
                return
            after = [("after", page.next)]

    async def commit(self, reservation_id: str, wait_s: int = 0) -> documents.Reservation:
        path = f"{resource('/v1/reservations', reservation_id)}/commit"
        return await self._read("POST", path, documents.Reservation, wait_s=wait_s)

    async def release(self, reservation_id: str, wait_s: int = 0) -> documents.Reservation:
        """Release a reservation; no error if the reservation is over and still remembered."""
        path = resource("/v1/reservations", reservation_id)
        return await self._read("DELETE", path, documents.Reservation, wait_s=wait_s)

    async def group(self, group_id: str) -> documents.Group:
        return await self._read("GET", resource("/v1/groups", group_id), documents.Group)

    async def release_group(self, group_id: str, wait_s: int = 0) -> documents.Group:
        path = resource("/v1/groups", group_id)
        return await self._read("DELETE", path, documents.Group, wait_s=wait_s)

    async def reserve_shape(
        self,
        pattern: str,
        racks: Sequence[str] | documents.AnyRacks,
        bandwidth_mbps: float | Literal["most"],
        *,
        start_unix_s: float | None = None,
        duration_s: float | None = None,
        end_unix_s: float | None = None,
        priority: int = 0,
        service: ServiceClass = ServiceClass.SHARED,
        purpose: str = "",
        constraints: documents.ConstraintsBody | None = None,
        protect: documents.Protect = documents.Protect.NONE,
        wait_s: int = 0,
        key: str | None = None,
    ) -> documents.Shape:
        """Ask for bandwidth between racks in a pattern, all of it or nothing.

        With ``AnyRacks(any=8)`` the controller chooses the racks, ``from_`` a list or of all.
        ``constraints`` and ``protect``, as in :meth:`reserve`, are for each pair. A second request
        with the same idempotency ``key`` returns the shape of the first.
        """
        body = body_of(
            documents.ShapeBody,
            pattern=pattern,
            racks=racks if isinstance(racks, documents.AnyRacks) else list(racks),
            bandwidth_mbps=bandwidth_mbps,
            start_unix_s=start_unix_s,
            duration_s=duration_s,
            end_unix_s=end_unix_s,
            priority=priority,
            service=service,
            purpose=purpose,
            constraints=constraints or documents.ConstraintsBody(),
            protect=protect,
        )
        return await self._make("/v1/shapes", body, documents.Shape, wait_s, key)

    async def availability(self, src: str, dst: str, **times: float) -> documents.Availability:
        """The bandwidth that two racks or servers could reserve, and when.

        ``times``: ``start_unix_s`` and ``end_unix_s``; by default, the next day.
        """
        query = [("src", src), ("dst", dst), *((name, str(at)) for name, at in times.items())]
        return await self._read("GET", "/v1/availability", documents.Availability, query)

    async def shapes(self) -> list[documents.ShapeStatus]:
        """All shapes, without their reservations."""
        return (await self._read("GET", "/v1/shapes", documents.Shapes)).shapes

    async def shape(self, shape_id: str) -> documents.Shape:
        return await self._read("GET", resource("/v1/shapes", shape_id), documents.Shape)

    async def release_shape(self, shape_id: str, wait_s: int = 0) -> documents.Shape:
        path = resource("/v1/shapes", shape_id)
        return await self._read("DELETE", path, documents.Shape, wait_s=wait_s)

    @asynccontextmanager
    async def bandwidth(
        self,
        src: str,
        dst: str,
        bandwidth_mbps: float,
        *,
        duration_s: float | None = None,
        wait_s: int = WAIT_S,
    ) -> AsyncIterator[documents.Reservation]:
        """A reservation, active in the ``with`` block, released at the end. Raises NotActive."""
        reservation = await self.reserve(
            src, dst, bandwidth_mbps, duration_s=duration_s, wait_s=wait_s
        )
        try:
            if reservation.state is not ReservationState.ACTIVE:
                raise NotActive(reservation)
            yield reservation
        finally:
            await self.release(reservation.id)

    # -- the network ------------------------------------------------------------------------------

    async def topology(self) -> documents.Topology:
        return await self._read("GET", "/v1/topology", documents.Topology)

    async def demand(self) -> documents.Demand:
        return await self._read("GET", "/v1/demand", documents.Demand)

    async def load(self, *racks: str, limit: int = 10) -> documents.Load:
        """The last hour's rates, in Mb/s, of the ``limit`` busiest circuits and pairs.

        With a rack, of circuits and pairs at the rack; with two, between the racks.
        """
        query = [("limit", str(limit)), *(("rack", rack) for rack in racks)]
        return await self._read("GET", "/v1/load", documents.Load, query)

    async def servers(self) -> documents.Servers:
        return await self._read("GET", "/v1/servers", documents.Servers)

    async def devices(self) -> documents.Devices:
        return await self._read("GET", "/v1/devices", documents.Devices)

    async def events(
        self, *kinds: EventKind, last_id: str | None = None, reservations: Iterable[str] = ()
    ) -> AsyncIterator[tuple[str, documents.Event | documents.Gap]]:
        """Yield (id, event) pairs as they happen, after ``last_id``, until the connection ends.

        With ``reservations``, only events about the given ids, their parts and their circuits;
        Refused if one does not exist. The end of a reservation does not end the stream.

        A time without events ends nothing. NoAnswer if the connection is lost: call again with the
        last id.
        """
        place = Place(last_id)
        with refusals():
            async for name, data in self._connection.follow(
                kinds, place, reservations=reservations
            ):
                document = documents.Gap if name == "gap" else documents.Event
                try:
                    event = document.model_validate(data)
                except ValidationError as error:
                    raise ClientError(f"event {place.last_id} is unexpected: {error}") from error
                yield place.last_id or "", event

    # -- on the way -------------------------------------------------------------------------------

    async def _make(
        self,
        path: str,
        body: Document,
        document: type[_DocumentT],
        wait_s: int,
        key: str | None = None,
    ) -> _DocumentT:
        content = body.model_dump(mode="json", exclude_defaults=True, by_alias=True)
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return await self._read(
            "POST", path, document, body=content, headers=headers, wait_s=wait_s
        )

    async def _read(
        self, method: str, path: str, document: type[_DocumentT], query: Query = (), **more: Any
    ) -> _DocumentT:
        with refusals():
            response = await self._connection.request(method, path, query=query, **more)
        try:
            return document.model_validate_json(response.content)
        except ValidationError as error:
            raise ClientError(f"{response.url} gave an unexpected answer: {error}") from error
