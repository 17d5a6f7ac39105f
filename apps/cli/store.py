"""``hydra store``: the journal's place, in a file or in etcd."""

from __future__ import annotations

from pathlib import Path

import click

from apps.cli.command import Command, Group
from apps.cli.output import json_option, print_outcome
from apps.cli.parameters import config_option
from apps.process.configuration import load_configuration
from apps.tools import migration


@click.group(cls=Group, examples=["hydra store migrate --config fabric.yaml --to etcd"])
def store() -> None:
    """Copy the controller's journal to another store."""


@store.command(
    cls=Command,
    examples=[
        "hydra store migrate --config fabric.yaml --to etcd",
        "hydra store migrate --config fabric.yaml --to file",
    ],
)
@config_option("The controllers' configuration file, with controller.store.")
@click.option(
    "--to",
    "target",
    type=click.Choice(["etcd", "file"]),
    required=True,
    help="etcd: from the file controller.journal to controller.store.etcd; file: back.",
)
@json_option
def migrate(config: Path, target: str, as_json: bool) -> None:
    """Copy the journal from its file into etcd, or from etcd into a new file.

    All of the journal or nothing is copied, and the source stays unchanged. No controller may run
    meanwhile.
    """
    settings = load_configuration(config).controller
    move = migration.to_etcd if target == "etcd" else migration.to_file
    number = move(settings)
    words = f"{number} records are now both in {target} and in the former store"
    print_outcome({"to": target, "records": number}, words, as_json)
