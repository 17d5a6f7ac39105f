"""``hydra whoami``: name and role of the token."""

from __future__ import annotations

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.output import json_option, print_facts, print_json


@click.command(cls=Command, examples=["hydra whoami", "hydra whoami --json | jq -r .role"])
@url_option
@json_option
def whoami(url: str, as_json: bool) -> None:
    """Show your name and role, by your token, at the controller. Without tokens, every program with
    access to the controller is an operator named local.
    """
    with ControllerClient(url) as client:
        document = client.get("/v1/whoami")
    if as_json:
        print_json(document)
    else:
        print_facts([("name", document["name"]), ("role", document["role"])])
