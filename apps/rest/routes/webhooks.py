"""/v1/webhooks: events that are sent rather than asked for"""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import APIRouter, Response, status

from apps.rest import models
from apps.rest.context import Asking, Hooks
from apps.rest.problems import (
    BODY_PROBLEMS,
    JOURNAL_FAILED,
    TOO_MANY_WEBHOOKS,
    UNKNOWN_NAME,
    responses,
)
from apps.rest.reading import BodyRoute
from apps.rest.webhook_delivery import Delivery
from hydra.access import Caller, Role

router = APIRouter(prefix="/v1/webhooks", tags=["events"], route_class=BodyRoute)


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses=responses(*BODY_PROBLEMS, TOO_MANY_WEBHOOKS, JOURNAL_FAILED),
)
def create_webhook(
    body: models.WebhookBody, response: Response, hooks: Hooks
) -> models.CreatedWebhook:
    """Have events posted to an address from now on. The secret is shown this one time."""
    webhook = hooks.add(body.url, body.kinds, body.tenant)
    response.headers["Location"] = f"{router.prefix}/{webhook.id}"
    shown = _webhook(hooks.one(webhook.id))
    return models.CreatedWebhook(**shown.model_dump(), secret=webhook.secret)


@router.get("")
def list_webhooks(hooks: Hooks, caller: Asking) -> models.Webhooks:
    """Viewers see of an address only whose it is: the rest may be a secret."""
    return models.Webhooks(webhooks=[_shown(one, caller) for one in hooks.all()])


@router.get("/{webhook_id}", responses=responses(UNKNOWN_NAME))
def get_webhook(webhook_id: str, hooks: Hooks, caller: Asking) -> models.Webhook:
    """Address that it posts to, and how that goes."""
    return _shown(hooks.one(webhook_id), caller)


@router.put("/{webhook_id}", responses=responses(*BODY_PROBLEMS, UNKNOWN_NAME, JOURNAL_FAILED))
def change_webhook(webhook_id: str, body: models.WebhookBody, hooks: Hooks) -> models.Webhook:
    """Change of address: waiting events are sent to the new one at once; the secret stays."""
    return _webhook(hooks.change(webhook_id, body.url, body.kinds, body.tenant))


@router.delete("/{webhook_id}", responses=responses(UNKNOWN_NAME, JOURNAL_FAILED))
def delete_webhook(webhook_id: str, hooks: Hooks) -> models.Webhook:
    """Answers with what it was."""
    return _webhook(hooks.remove(webhook_id))


def _shown(one: Delivery, caller: Caller) -> models.Webhook:
    whole = _webhook(one)
    if caller.role is Role.OPERATOR:
        return whole
    address = urlsplit(whole.url)
    return whole.model_copy(update={"url": f"{address.scheme}://{address.netloc}/…"})


def _webhook(one: Delivery) -> models.Webhook:
    return models.Webhook(
        id=one.webhook.id,
        url=one.webhook.url,
        kinds=sorted(one.webhook.kinds, key=lambda kind: kind.value),
        tenant=one.webhook.tenant,
        created_unix_s=one.webhook.created_unix_s,
        waiting=one.waiting,
        delivered=one.delivered,
        refused=one.refused,
        missed=one.missed,
        failing_since_unix_s=one.failing_since_unix_s,
        problem=one.problem,
    )
