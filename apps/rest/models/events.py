"""Events, and the webhooks that they are posted to."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from apps.rest.models.base import Body, Document, Name
from apps.rest.models.devices import DeviceAlarm
from apps.rest.models.reconfigurations import Progress
from apps.rest.models.reservations import Reservation
from apps.rest.models.topology import Circuit
from hydra.events import EventKind

_LABEL: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_PORT: Final = (
    "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)


def _address(value: object, validate: ValidatorFunctionWrapHandler) -> str:
    """The pattern's words are a page long."""
    try:
        address: str = validate(value)
    except ValidationError:
        raise PydanticCustomError(
            "webhook_address",
            "must be http:// or https://, a name in small letters or an IPv4 address, without user "
            "and password, 2000 characters at most",
        ) from None
    return address


class WebhookBody(Body):
    """Address to post events to, and the kinds of events."""

    url: Annotated[
        str,
        Field(
            max_length=2000,
            pattern=rf"^https?://({_LABEL}\.){{0,126}}{_LABEL}(:{_PORT})?(/[!-~]*)?$",
        ),
        WrapValidator(_address),
    ] = Field(description="http or https, a name or an IPv4 address, no user and password.")
    kinds: Annotated[list[Annotated[EventKind, Field(strict=False)]], Field(fail_fast=True)] = (
        Field(default=[], max_length=10, description="Empty: all.")
    )
    tenant: Name | None = Field(
        default=None, description="Only what this tenant may see; null: everything."
    )


class Event(Document):
    """Content of ``data`` in a server-sent event."""

    kind: EventKind
    unix_s: float
    reservation: Reservation | None = Field(description="As it is from now on.")
    circuit: Circuit | None
    reservations: list[str] = Field(description="Ids of those that have the circuit.")
    reconfiguration: Progress | None = None
    alarm: DeviceAlarm | None = None
    reason: str


class Gap(Document):
    """Content of ``data`` in the event ``gap``."""

    missed: int | None = Field(description="Events that were lost; null: not known how many.")


class CloudEvent(Document):
    """Event as it is posted to a webhook: CloudEvents 1.0, in structured mode."""

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(description="The same if it is sent again.")
    source: str
    type: str = Field(description="`hydra.` and the kind of the event.")
    subject: str | None = Field(
        default=None, description="Id of the reservation that it is about; left out if none."
    )
    time: datetime
    datacontenttype: Literal["application/json"] = "application/json"
    data: Event | Gap


class Webhook(Document):
    id: str
    url: str
    kinds: list[EventKind]
    tenant: str | None
    created_unix_s: float
    waiting: int = Field(description="Events that it has not been told of yet.")
    delivered: int
    refused: int = Field(description="Messages that it answered with 4xx: not sent again.")
    missed: int = Field(description="Events forgotten before it could be told.")
    failing_since_unix_s: float | None
    problem: str = Field(description="Why the last message was not taken.")


class CreatedWebhook(Webhook):
    secret: str = Field(description="Signs the messages; it is not shown again.")


class Webhooks(Document):
    webhooks: list[Webhook]
