"""A typed client of the controller's REST API, for Python programs::

    with HydraClient("http://127.0.0.1:8080") as hydra, hydra.bandwidth("r1", "r2", 40):
        transfer()  # 40 Mb/s are there; they are given back whatever happens

Answers are the documents of :mod:`apps.rest.resources`: what the server sends is what it validates.
"""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from pydantic import BaseModel, ValidationError

from apps.connection import (
    PASSING,
    WAIT_S,
    ClientError,
    Connection,
    NoAnswer,
    Place,
    Query,
    Refusal,
    resource,
)
from apps.rest import resources
from hydra.lifecycle import ReservationState
from hydra.reservations.reservation import FINAL_STATES, ServiceClass

if TYPE_CHECKING:
    from hydra.events import EventKind

__all__ = ["ClientError", "HydraClient", "NoAnswer", "NotActive", "Refused"]

_ATTEMPTS: Final = 4

_DocumentT = TypeVar("_DocumentT", bound=BaseModel)


class Refused(ClientError):
    """The controller said no; ``problem`` says why, and may have alternatives."""

    def __init__(self, problem: resources.Problem) -> None:
        self.problem = problem
        super().__init__(f"{problem.title}: {problem.detail}")

    @property
    def passes(self) -> bool:
        """True if it is only that no controller leads now."""
        return self.problem.type in PASSING


class NotActive(ClientError):
    """A reservation was admitted and did not become active."""

    def __init__(self, reservation: resources.Reservation) -> None:
        self.reservation = reservation
        state = reservation.state.value
        super().__init__(f"reservation {reservation.id} is {state}: {reservation.reason}")


class HydraClient:
    """A connection to one controller, or to one of several that share a store; a context manager
    that closes it.

    Methods raise Refused, and ClientError where nothing answers. All requests may be repeated, and
    are, a few times, when the connection fails: those for reservations have an idempotency key.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``url``: one, or several with commas between: those of all controllers that share a
        store. ``tls``: the authorities to trust; None for the system's.
        """
        self._connection = Connection(url, token, tls, attempts=_ATTEMPTS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # -- reservations -----------------------------------------------------------------------------

    def reserve(
        self,
        src: str,
        dst: str,
        bandwidth_mbps: float,
        *,
        minimum_mbps: float | None = None,
        duration_s: float | None = None,
        start_unix_s: float | None = None,
        end_unix_s: float | None = None,
        hold_s: float | None = None,
        priority: int = 0,
        service: ServiceClass = ServiceClass.SHARED,
        purpose: str = "",
        wait_s: int = 0,
    ) -> resources.Reservation:
        """Ask for bandwidth; with ``wait_s``, up to a minute, wait until it is there.

        With ``minimum_mbps`` the answer's ``bandwidth_mbps`` is the most that fits, from there on.
        """
        body = resources.ReservationBody(
            src=src,
            dst=dst,
            bandwidth_mbps=bandwidth_mbps,
            minimum_mbps=minimum_mbps,
            duration_s=duration_s,
            start_unix_s=start_unix_s,
            end_unix_s=end_unix_s,
            hold_s=hold_s,
            priority=priority,
            service=service,
            purpose=purpose,
        )
        return self._make("/v1/reservations", body, resources.Reservation, wait_s)

    def preview(
        self, src: str, dst: str, bandwidth_mbps: float, **times: float
    ) -> resources.ReservationPreview:
        """The outcome of :meth:`reserve`, without its effect."""
        entry = {"src": src, "dst": dst, "bandwidth_mbps": bandwidth_mbps}
        body = resources.ReservationBody.model_validate({**entry, **times})
        return self._make("/v1/reservations/preview", body, resources.ReservationPreview, 0)

    def reserve_matrix(
        self,
        entries: Sequence[resources.MatrixEntry],
        *,
        all_or_nothing: bool = True,
        start_unix_s: float | None = None,
        duration_s: float | None = None,
        repeat: resources.Repeat | None = None,
        wait_s: int = 0,
        key: str | None = None,
    ) -> resources.CreatedGroup:
        """Ask for a whole traffic matrix as one, once or at recurring times.

        The same idempotency ``key`` a second time gives the group that the first made.
        """
        body = resources.GroupBody(
            entries=list(entries),
            all_or_nothing=all_or_nothing,
            start_unix_s=start_unix_s,
            duration_s=duration_s,
            repeat=repeat,
        )
        return self._make("/v1/groups", body, resources.CreatedGroup, wait_s, key)

    def reserve_between(
        self, servers: Iterable[str], bandwidth_mbps: float, *, duration_s: float | None = None
    ) -> resources.CreatedGroup | None:
        """Ask for bandwidth between each two of ``servers`` in different racks, where it is there.

        Names that are no servers of the controller's are left out. None if there are no such two.
        """
        rack_of = {server.name: server.rack for server in self.servers().servers}
        pairs = combinations(sorted(rack_of.keys() & set(servers)), 2)
        entries = [
            resources.MatrixEntry(src=a, dst=b, bandwidth_mbps=bandwidth_mbps)
            for a, b in pairs
            if rack_of[a] != rack_of[b]
        ]
        if len(entries) > resources.MOST_ENTRIES:
            raise ClientError(
                f"{len(entries):,} pairs of servers are more than the "
                f"{resources.MOST_ENTRIES:,} that can be reserved as one: name fewer servers"
            )
        if not entries:
            return None
        return self.reserve_matrix(entries, all_or_nothing=False, duration_s=duration_s)

    def reservation(
        self, reservation_id: str, *, wait: ReservationState | None = None, wait_s: int = WAIT_S
    ) -> resources.Reservation:
        """Read a reservation; with ``wait``, once it is in that state or can't come to be.

        The answer comes after ``wait_s``, up to a minute, whatever the state is then.
        """
        path = resource("/v1/reservations", reservation_id)
        if wait is None:
            return self._read("GET", path, resources.Reservation)
        return self._read("GET", path, resources.Reservation, [("wait", str(wait))], wait_s=wait_s)

    def modify(
        self,
        reservation_id: str,
        *,
        bandwidth_mbps: float | None = None,
        end_unix_s: float | None = None,
        src: str | None = None,
        dst: str | None = None,
    ) -> resources.Reservation:
        """Change it without an interruption; Refused with type ``not-hitless`` if that can't be."""
        body = resources.ModificationBody(
            bandwidth_mbps=bandwidth_mbps, end_unix_s=end_unix_s, src=src, dst=dst
        )
        content = body.model_dump(mode="json", exclude_defaults=True)
        path = resource("/v1/reservations", reservation_id)
        return self._read("PATCH", path, resources.Reservation, body=content)

    def delivery(self, reservation_id: str) -> resources.Delivery:
        """Rates that a reservation gets, by counters, beside those that it was promised."""
        path = f"{resource('/v1/reservations', reservation_id)}/delivery"
        return self._read("GET", path, resources.Delivery)

    def deliveries(self) -> list[resources.Delivery]:
        """Deliveries of all that have, or are getting, circuits now."""
        return self._read("GET", "/v1/deliveries", resources.Deliveries).deliveries

    def reservations(self, *states: ReservationState) -> Iterator[resources.Reservation]:
        """All reservations, or those in these states; oldest first, page by page."""
        query = [("state", str(state)) for state in states]
        after: list[tuple[str, str]] = []
        while True:
            page = self._read("GET", "/v1/reservations", resources.Reservations, [*query, *after])
            yield from page.reservations
            if page.next is None:
                return
            after = [("after", page.next)]

    def commit(self, reservation_id: str, wait_s: int = 0) -> resources.Reservation:
        path = f"{resource('/v1/reservations', reservation_id)}/commit"
        return self._read("POST", path, resources.Reservation, wait_s=wait_s)

    def release(self, reservation_id: str, wait_s: int = 0) -> resources.Reservation:
        """Give a reservation back; harmless where it is over."""
        path = resource("/v1/reservations", reservation_id)
        return self._read("DELETE", path, resources.Reservation, wait_s=wait_s)

    def group(self, group_id: str) -> resources.Group:
        return self._read("GET", resource("/v1/groups", group_id), resources.Group)

    def release_group(self, group_id: str, wait_s: int = 0) -> resources.Group:
        path = resource("/v1/groups", group_id)
        return self._read("DELETE", path, resources.Group, wait_s=wait_s)

    @contextmanager
    def bandwidth(
        self,
        src: str,
        dst: str,
        bandwidth_mbps: float,
        *,
        duration_s: float | None = None,
        wait_s: int = WAIT_S,
    ) -> Iterator[resources.Reservation]:
        """A reservation, active in the ``with`` block, released at its end. Raises NotActive."""
        reservation = self.reserve(src, dst, bandwidth_mbps, duration_s=duration_s, wait_s=wait_s)
        try:
            if reservation.state is not ReservationState.ACTIVE:
                raise NotActive(reservation)
            yield reservation
        finally:
            if reservation.state not in FINAL_STATES:
                self.release(reservation.id)

    # -- the network ------------------------------------------------------------------------------

    def topology(self) -> resources.Topology:
        return self._read("GET", "/v1/topology", resources.Topology)

    def demand(self) -> resources.Demand:
        return self._read("GET", "/v1/demand", resources.Demand)

    def load(self, *racks: str, limit: int = 10) -> resources.Load:
        """The last hour's rates, in Mb/s, of the ``limit`` circuits and pairs that carried most.

        With a rack, of those that end there; with two, of those between them.
        """
        query = [("limit", str(limit)), *(("rack", rack) for rack in racks)]
        return self._read("GET", "/v1/load", resources.Load, query)

    def servers(self) -> resources.Servers:
        return self._read("GET", "/v1/servers", resources.Servers)

    def devices(self) -> resources.Devices:
        return self._read("GET", "/v1/devices", resources.Devices)

    def events(
        self, *kinds: EventKind, last_id: str | None = None
    ) -> Iterator[tuple[str, resources.Event | resources.Gap]]:
        """Yield (id, event) pairs as they happen, after ``last_id``, until the connection ends.

        A silence, however long, ends nothing: the controller keeps the connection open.
        """
        place = Place(last_id)
        with _refusals():
            for name, data in self._connection.follow(kinds, place):
                document = resources.Gap if name == "gap" else resources.Event
                try:
                    event = document.model_validate(data)
                except ValidationError as error:
                    raise ClientError(
                        f"event {place.last_id} is something else: {error}"
                    ) from error
                yield place.last_id or "", event

    # -- on the way -------------------------------------------------------------------------------

    def _make(
        self,
        path: str,
        body: resources.Body,
        document: type[_DocumentT],
        wait_s: int,
        key: str | None = None,
    ) -> _DocumentT:
        content = body.model_dump(mode="json", exclude_defaults=True)
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return self._read("POST", path, document, body=content, headers=headers, wait_s=wait_s)

    def _read(
        self, method: str, path: str, document: type[_DocumentT], query: Query = (), **more: Any
    ) -> _DocumentT:
        with _refusals():
            response = self._connection.request(method, path, query=query, **more)
        try:
            return document.model_validate_json(response.content)
        except ValidationError as error:
            raise ClientError(f"{response.url} answered something else: {error}") from error


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise refusals with the API's own documents."""
    try:
        yield
    except Refusal as refusal:
        raise Refused(resources.Problem.model_validate(refusal.document)) from refusal
