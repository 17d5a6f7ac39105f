"""``hydra sharing``: pairs that get circuits in periodic mode, and the traffic on circuits."""

from __future__ import annotations

from collections.abc import Iterator

import click

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command
from hydra.policy import Sharing

_PATH = "/v1/sharing"


@click.command(cls=Command, examples=["hydra sharing", "hydra sharing on-demand"])
@click.argument("policy", type=click.Choice([sharing.value for sharing in Sharing]), required=False)
@answered
def sharing(client: ControllerClient, policy: str | None) -> Iterator[object]:
    """Show how circuits are shared in periodic mode, or set the sharing to POLICY.

    by-demand: pairs where circuits gain most, all of their traffic. undifferentiated: all pairs in
    turn, all of their traffic. differentiated: pairs with elephants in turn, only elephants.
    on-demand: a pair with an elephant, until the elephant ends, only elephants. slotted: by a
    precomputed, repeating schedule, all of the pairs' traffic; `hydra schedule` shows the schedule.
    auto: by-demand or slotted, whichever is expected to carry more; this command shows the choice
    and the reason. POLICY holds until the next start or reload of the configuration.
    """
    document = client.get(_PATH) if policy is None else client.put(_PATH, {"sharing": policy})
    words = document["sharing"]
    if words == Sharing.AUTO.value or document["in_force"] != words:
        words = f"{words}: {document['in_force']}, since {document['reason']}"
    yield document
    click.echo(words)
