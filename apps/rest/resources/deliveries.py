"""/v1/deliveries: bandwidth received by reservations, beside the promised bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from apps.rest.access import TENANTS
from apps.rest.document import Document
from apps.rest.routing import Routes
from hydra.lifecycle import ReservationState
from hydra.reservations import reservation as core

if TYPE_CHECKING:
    from apps.rest.dependencies import Reserving

routes = Routes("/v1/deliveries", "reservations", TENANTS)


class Delivery(Document):
    """Bandwidth that a reservation receives, beside the promised bandwidth."""

    reservation: str
    state: ReservationState
    promised_mbps: float = Field(description="In both directions; 0 for best effort.")
    there_mbps: float | None = Field(
        description="Received at dst from src over circuits in the last seconds; null: unknown."
    )
    back_mbps: float | None = Field(description="From dst to src.")
    unheld: list[str] = Field(
        description="Servers on the same circuits whose vswitches can't enforce a rate limit."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_core(cls, value: object) -> object:
        promise = getattr(value, "reservation", None)
        if not isinstance(promise, core.Reservation):
            return value
        return cls.attributes(
            value,
            reservation=promise.id,
            state=promise.state,
            promised_mbps=promise.promised_mbps,
        )


class Deliveries(Document):
    deliveries: list[Delivery]


@routes.on("GET")
def list_deliveries(service: Reserving) -> Deliveries:
    """Deliveries of all reservations that have, or are getting, circuits now."""
    return Deliveries.of(None, deliveries=service.deliveries())
