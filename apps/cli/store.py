"""``hydra store``: the journal's place, in a file or in etcd."""

from __future__ import annotations

from pathlib import Path

import click

from apps.cli.command import Command, Group
from apps.cli.output import CommandError, json_option, print_json
from apps.process.configuration import load_configuration
from apps.tools import migration
from hydra.errors import HydraError


@click.group(cls=Group, examples=["hydra store migrate --config fabric.yaml --to etcd"])
def store() -> None:
    """Move what the controller remembers to another store."""


@store.command(
    cls=Command,
    examples=[
        "hydra store migrate --config fabric.yaml --to etcd",
        "hydra store migrate --config fabric.yaml --to file",
    ],
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    required=True,
    envvar="HYDRA_CONFIG",
    show_envvar=True,
    help="The controllers' configuration file, with controller.store.",
)
@click.option(
    "--to",
    "target",
    type=click.Choice(["etcd", "file"]),
    required=True,
    help="etcd: from the file controller.journal to controller.store.etcd; file: back.",
)
@json_option
def migrate(config: Path, target: str, as_json: bool) -> None:
    """Copy the journal from its file into etcd, or from there into a new file.

    All of it or nothing, and where it came from stays as it is. No controller may run meanwhile.
    """
    try:
        settings = load_configuration(config).controller
        move = migration.to_etcd if target == "etcd" else migration.to_file
        number = move(settings)
    except HydraError as error:
        raise CommandError(str(error)) from error
    if as_json:
        print_json({"to": target, "records": number})
    else:
        click.echo(f"{number} records are in {target} now, and where they were")
