"""``hydra explain``: reasons for the state of the network."""

from __future__ import annotations

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command, Group
from apps.cli.output import json_option, print_json
from apps.cli.wording import local
from hydra_hybrid_network_client.requests import resource


@click.group(cls=Group, examples=["hydra explain circuit r1 r2"])
def explain() -> None:
    """Explain the state of the network."""


@explain.command(
    cls=Command,
    examples=["hydra explain circuit r1 r2", "hydra explain circuit r1 r2 --json | jq .decisions"],
)
@click.argument("a", metavar="RACK")
@click.argument("b", metavar="RACK")
@url_option
@json_option
def circuit(a: str, b: str, url: str, as_json: bool) -> None:
    """Explain why two racks are, or are not, joined by a circuit.

    Shows the present paths, the demand between the two racks, and past decisions about the pair:
    the measured demand, the possible changes, and the gain of each.
    """
    with ControllerClient(url) as client:
        document = client.get(resource(resource("/v1/explanations/circuits", a), b))
    if as_json:
        print_json(document)
        return
    for line in document["lines"]:
        click.echo(local(line))
