"""``hydra webhooks``: addresses to which events are posted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from apps.cli.client import ControllerClient, answered, url_option
from apps.cli.command import Command, Group
from apps.cli.output import json_option, print_columns, print_json
from apps.cli.wording import moment
from hydra.events import EventKind
from hydra_hybrid_network_client.errors import JsonObject
from hydra_hybrid_network_client.requests import resource

_WEBHOOKS = "/v1/webhooks"


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples=[
        "hydra webhooks",
        "hydra webhooks add https://batch.example/hydra --kind circuit-moving > batch.secret",
        "hydra webhooks remove 7f3a9c41d0be",
    ],
)
@url_option
@json_option
@click.pass_context
def webhooks(ctx: click.Context, url: str, as_json: bool) -> None:
    """List webhooks and the state of deliveries."""
    if ctx.invoked_subcommand is not None:
        return
    with ControllerClient(url) as client:
        document = client.get(_WEBHOOKS)
    if as_json:
        print_json(document)
        return
    print_columns(
        "Webhooks",
        document["webhooks"],
        {
            "id": "id",
            "url": "url",
            "kinds": lambda row: ", ".join(row["kinds"]) or "all",
            "tenant": lambda row: row["tenant"] or "all",
            "delivered>": "delivered",
            "waiting>": "waiting",
            "missed>": "missed",
            "problem": _problem,
        },
    )


def _problem(json_object: JsonObject) -> str:
    since = json_object["failing_since_unix_s"]
    return (
        str(json_object["problem"])
        if since is None
        else f"since {moment(since)}: {json_object['problem']}"
    )


@webhooks.command(
    cls=Command, examples=["hydra webhooks add https://batch.example/hydra --tenant spark"]
)
@click.argument("address")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in EventKind]),
    help="Only events of this kind; repeatable.",
)
@click.option("--tenant", help="Only events visible to this tenant.")
@answered
def add(
    client: ControllerClient, address: str, kinds: Sequence[str], tenant: str | None
) -> Iterator[object]:
    """Post events to ADDRESS; prints the secret that signs the events, which is shown only now."""
    body = {"url": address, "kinds": list(kinds), "tenant": tenant}
    document = client.post(_WEBHOOKS, body)
    yield document
    click.echo(document["secret"])
    click.echo(f"webhook {document['id']} posts to {address}", err=True)


@webhooks.command(cls=Command, examples=["hydra webhooks remove 7f3a9c41d0be"])
@click.argument("identifier", metavar="ID")
@answered
def remove(client: ControllerClient, identifier: str) -> Iterator[object]:
    """Remove a webhook: the controller posts no further events to the address."""
    document = client.delete(resource(_WEBHOOKS, identifier))
    yield document
    click.echo(f"{document['url']} gets no more events")
