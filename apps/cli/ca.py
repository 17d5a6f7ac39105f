"""``hydra ca``: certificates for a lab."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from apps.cli.command import Command, Group
from apps.cli.output import CommandError, json_option, print_outcome
from apps.tools.authority import Use, create_authority, issue, renew
from hydra.errors import HydraError

_dir_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("ca"),
    show_default=True,
    help="Directory of the authority and its certificates.",
)


@click.group(
    cls=Group,
    examples=[
        "hydra ca create --dir ca",
        "hydra ca issue rest --host 10.0.0.5 --host hydra.example --dir ca",
        "hydra ca issue br-h11 --use client --dir ca",
    ],
)
def ca() -> None:
    """Make a certificate authority for a lab, and certificates.

    A certificate is NAME.pem, its key NAME.key; clients trust ca.pem. The holder of ca.key can
    issue certificates: keep ca.key off machines without a need for it.
    """


@ca.command(cls=Command, examples=["hydra ca create --dir ca --name 'HydRA lab'"])
@click.option("--name", default="HydRA lab CA", show_default=True, help="Name of the authority.")
@click.option("--days", type=click.IntRange(1, 36500), default=3650, show_default=True)
@_dir_option
@json_option
def create(name: str, days: int, directory: Path, as_json: bool) -> None:
    """Make an authority: ca.pem and ca.key."""
    try:
        made = create_authority(directory, name, days, datetime.now(UTC))
    except (HydraError, ValueError) as error:
        raise CommandError(str(error)) from error
    _print(made, as_json)


@ca.command(
    "issue",
    cls=Command,
    examples=[
        "hydra ca issue rest --host 10.0.0.5 --host localhost --dir ca",
        "hydra ca issue openflow --host 10.0.0.5 --dir ca",
        "hydra ca issue br-h11 --use client --dir ca",
        "hydra ca issue rest --renew --dir ca",
    ],
)
@click.argument("name")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help=(
        "Address or name of the certificate's owner; repeatable. A server's certificate needs at "
        "least one."
    ),
)
@click.option(
    "--use",
    type=click.Choice([use.value for use in Use]),
    help="server (default): REST, or the controller's OpenFlow; client: a switch.",
)
@click.option(
    "--renew",
    "renews",
    is_flag=True,
    help="Replace NAME.pem: the key stays, and hosts and use, where none are given.",
)
@click.option("--days", type=click.IntRange(1, 36500), default=365, show_default=True)
@_dir_option
@json_option
def issue_certificate(
    name: str,
    hosts: Sequence[str],
    use: str | None,
    renews: bool,
    days: int,
    directory: Path,
    as_json: bool,
) -> None:
    """Make NAME.pem and NAME.key, or renew NAME.pem."""
    asked, now = None if use is None else Use(use), datetime.now(UTC)
    if not renews and asked is not Use.CLIENT and not hosts:
        raise click.UsageError("a server's certificate is for addresses or names: give --host")
    try:
        if renews:
            made = renew(directory, name, hosts or None, asked, days, now)
        else:
            made = issue(directory, name, hosts, asked or Use.SERVER, days, now)
    except (HydraError, ValueError) as error:
        raise CommandError(str(error)) from error
    _print(made, as_json)


def _print(certificate: Path, as_json: bool) -> None:
    key = certificate.with_suffix(".key")
    print_outcome(
        {"certificate": str(certificate), "key": str(key)}, f"{certificate} and {key}", as_json
    )
