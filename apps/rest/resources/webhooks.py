"""/v1/webhooks: events sent to an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import (
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from apps.rest.document import Body, Document, Name
from apps.rest.problems import (
    BODY_PROBLEMS,
    JOURNAL_FAILED,
    TOO_MANY_WEBHOOKS,
    UNKNOWN_NAME,
)
from apps.rest.routing import Routes
from apps.rest.webhook_delivery import Delivery
from hydra.access import Caller, Role
from hydra.events import EventKind

if TYPE_CHECKING:
    from apps.rest.dependencies import Answer, Asking, Hooks

routes = Routes("/v1/webhooks", "events")
_LABEL: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_PORT: Final = (
    "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)


def _address(value: object, validate: ValidatorFunctionWrapHandler) -> str:
    """Replace the pattern in pydantic's message, a page long, by a sentence."""
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
        default=None, description="Only events visible to this tenant; null: all."
    )


class Webhook(Document):
    id: str
    url: str
    kinds: list[EventKind]
    tenant: str | None
    created_unix_s: float
    waiting: int = Field(description="Events still to be sent.")
    delivered: int
    refused: int = Field(description="Messages answered with 4xx: not sent again.")
    missed: int = Field(description="Events forgotten before being sent.")
    failing_since_unix_s: float | None
    problem: str = Field(description="Why the last message was not taken.")

    @model_validator(mode="before")
    @classmethod
    def _of_delivery(cls, value: object) -> object:
        if not isinstance(value, Delivery):
            return value
        kinds = sorted(value.webhook.kinds)
        return cls.attributes(value) | cls.attributes(value.webhook, kinds=kinds)


class CreatedWebhook(Webhook):
    secret: str = Field(description="Signs the messages; not shown again.")


class Webhooks(Document):
    webhooks: list[Webhook]


@routes.on("POST", "", *BODY_PROBLEMS, TOO_MANY_WEBHOOKS, JOURNAL_FAILED, status_code=201)
async def create_webhook(body: WebhookBody, answer: Answer, hooks: Hooks) -> CreatedWebhook:
    """Post events to an address from now on. The secret is shown only once."""
    webhook = await answer.made(lambda: hooks.add(body.url, body.kinds, body.tenant))
    answer.at(f"{routes.prefix}/{webhook.id}")
    return CreatedWebhook.of(None, hooks.delivery(webhook.id))


@routes.on("GET")
def list_webhooks(hooks: Hooks, caller: Asking) -> Webhooks:
    """All webhooks. Viewers see only the scheme and host of an address: the rest may be a
    secret.
    """
    return Webhooks(webhooks=[_shown(delivery, caller) for delivery in hooks.all()])


@routes.on("GET", "/{webhook_id}", UNKNOWN_NAME)
def get_webhook(webhook_id: str, hooks: Hooks, caller: Asking) -> Webhook:
    """Address of a webhook, and the state of delivery."""
    return _shown(hooks.delivery(webhook_id), caller)


@routes.on("PUT", "/{webhook_id}", *BODY_PROBLEMS, UNKNOWN_NAME, JOURNAL_FAILED)
def change_webhook(webhook_id: str, body: WebhookBody, hooks: Hooks) -> Webhook:
    """Change the address: waiting events are sent to the new address at once; the secret stays."""
    return Webhook.of(None, hooks.change(webhook_id, body.url, body.kinds, body.tenant))


@routes.on("DELETE", "/{webhook_id}", UNKNOWN_NAME, JOURNAL_FAILED)
def delete_webhook(webhook_id: str, hooks: Hooks) -> Webhook:
    """Answers with the last state."""
    return Webhook.of(None, hooks.remove(webhook_id))


def _shown(delivery: Delivery, caller: Caller) -> Webhook:
    whole = Webhook.of(None, delivery)
    if caller.role is Role.OPERATOR:
        return whole
    address = urlsplit(whole.url)
    return whole.model_copy(update={"url": f"{address.scheme}://{address.netloc}/…"})
