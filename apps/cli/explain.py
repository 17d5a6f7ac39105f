"""``hydra explain``: reasons for the state of the network."""

from __future__ import annotations

from collections.abc import Iterator

import click

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command, Group
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
@answered
def circuit(client: ControllerClient, a: str, b: str) -> Iterator[object]:
    """Explain why two racks are, or are not, joined by a circuit.

    Shows the present paths, the demand between the two racks, and past decisions about the pair:
    the measured demand, the possible changes, and the gain of each.
    """
    document = client.get(resource(resource("/v1/explanations/circuits", a), b))
    yield document
    for line in document["lines"]:
        click.echo(local(line))
