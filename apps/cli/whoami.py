"""``hydra whoami``: name and role of the token."""

from __future__ import annotations

from collections.abc import Iterator

import click

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command
from apps.cli.output import print_facts


@click.command(cls=Command, examples=["hydra whoami", "hydra whoami --json | jq -r .role"])
@answered
def whoami(client: ControllerClient) -> Iterator[object]:
    """Show your name and role, by your token, at the controller.

    Without tokens, every program with access to the controller is an operator named local.
    """
    document = client.get("/v1/whoami")
    yield document
    print_facts([("name", document["name"]), ("role", document["role"])])
