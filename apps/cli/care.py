"""Commands for maintenance: reload, backup, restore, support."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command
from apps.cli.output import (
    CommandError,
    UnreachableError,
    insist,
    json_option,
    print_json,
    print_outcome,
    print_table,
    warn,
)
from apps.cli.parameters import config_option
from apps.cli.wording import moment
from apps.process.configuration import load_configuration
from apps.tools import archive
from hydra_hybrid_network_client.errors import JsonObject

_RESOURCES: Final = (
    "readyz",
    "v1/conditions",
    "v1/history?limit=1000",
    "v1/topology",
    "v1/demand",
    "v1/devices",
    "v1/quarantine",
    "v1/reservations",
    "v1/reconfigurations",
    "v1/decisions",
    "metrics",
)

_config_option = config_option("The controller's configuration file.")


@click.command(
    cls=Command, examples=["hydra reload --dry-run", "hydra reload", "systemctl reload hydra"]
)
@click.option("--dry-run", is_flag=True, help="Show the effect, change nothing.")
@answered
def reload(client: ControllerClient, dry_run: bool) -> Iterator[object]:
    """Reload the controller's configuration file.

    Applies the settings that `hydra policy` marks as changed by a reload, and lists other changed
    settings, which wait for the next start. If the file can't be used, nothing changes.
    """
    document = client.post("/v1/reload", {"dry_run": dry_run}, wait=True)
    yield document
    _print_changes("Would be applied" if dry_run else "Applied", document["applied"])
    if document["waiting"]:
        _print_changes("After the next start", document["waiting"])


def _print_changes(title: str, changes: list[JsonObject]) -> None:
    print_table(
        title,
        ("key", "before", "after"),
        ((change["key"], change["before"], change["after"]) for change in changes),
        empty="nothing has changed",
    )


@click.command(
    cls=Command,
    examples=["hydra backup --config fabric.yaml hydra.tar.gz"],
)
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@_config_option
@json_option
def backup(target: Path, config: Path, as_json: bool) -> None:
    """Back up the controller's journal and configuration to FILE, also while the controller runs.

    The backup has the journal with reservations and quarantine, the configuration, the hashes of
    tokens, and the keys of webhooks in clear: keep the backup like a password. Run the command on
    the controller's machine.
    """
    about = archive.back_up(load_configuration(config), target)
    words = f"{target}: {target.stat().st_size / 1024:.0f} KiB of fabric {about.fabric}"
    print_outcome({"file": str(target), "fabric": about.fabric}, words, as_json)


@click.command(
    cls=Command,
    examples=["hydra restore --config fabric.yaml hydra.tar.gz"],
)
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@_config_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def restore(source: Path, config: Path, yes: bool, as_json: bool) -> None:
    """Replace the journal by the journal of a backup FILE; the present journal is kept in the same
    folder.

    Stop all controllers first. At its next start, the controller reads all devices, and keeps the
    parts of the journal that the devices confirm.
    """
    loaded = load_configuration(config)
    about = archive.look(loaded, source)
    if not yes:
        of = f"fabric {about.fabric} as of {moment(about.created_unix_s)}"
        question = f"Replace the journal of {config} by that of {source}, {of}?"
        insist(question)
    about, kept = archive.restore(loaded, source)
    if as_json:
        print_json(
            {
                "fabric": about.fabric,
                "created_unix_s": about.created_unix_s,
                "kept": None if kept is None else str(kept),
            }
        )
        return
    click.echo(f"restored fabric {about.fabric} as of {moment(about.created_unix_s)}")
    if kept is not None:
        click.echo(f"the former journal is {kept}")


@click.command(
    cls=Command,
    examples=[
        "hydra support --config fabric.yaml",
        "hydra support --config fabric.yaml --log /var/log/hydra/hydra.log report.tar.gz",
    ],
)
@click.argument("target", metavar="[FILE]", type=click.Path(path_type=Path), required=False)
@_config_option
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    help="Log of the controller: the last part goes into the bundle.",
)
@answered
def support(
    client: ControllerClient, target: Path | None, config: Path, log: Path | None
) -> Iterator[object]:
    """Collect data for a problem report in a file, without secrets.

    Includes versions, the configuration, the journal's last entries, and the controller's reports
    about itself, as far as available. Passwords, tokens, keys and logins are left out; check the
    file before you send it.
    """
    target = target or Path(f"hydra-support-{time.strftime('%Y%m%dT%H%M%S')}.tar.gz")
    answers = {}
    for resource in _RESOURCES:
        try:
            answers[f"{resource.partition('?')[0].replace('/', '-')}.txt"] = client.get_text(
                f"/{resource}"
            )
        except UnreachableError as error:
            warn(f"the bundle has no answers of the controller: {error}")
            break
        except CommandError as error:
            warn(f"/{resource} is not in the bundle: {error}")
    names = archive.support_bundle(config, target, answers, log, warn)
    yield {"file": str(target), "names": names}
    click.echo(f"{target}: {', '.join(names)}")
