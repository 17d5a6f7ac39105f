"""``hydra token``: who may use the controller's REST API."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Final

import click

from apps.cli.command import Command, Group
from apps.cli.network import moment
from apps.cli.output import CommandError, json_option, print_json, print_table
from apps.tokens import read_tokens, write_tokens
from hydra.access import Role, StoredToken, make_token
from hydra.errors import HydraError

_SECRET_BYTES: Final = 32

_file_option = click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    envvar="HYDRA_TOKENS",
    show_envvar=True,
    help="What controller.tokens names in the configuration.",
)


@click.group(
    cls=Group,
    examples=[
        "hydra token create alice --role operator --file tokens.json",
        "hydra token create spark --role tenant --file tokens.json > spark.token",
        "hydra token list --file tokens.json",
        "hydra token revoke spark --file tokens.json",
    ],
)
def token() -> None:
    """Make, list and revoke tokens for the REST API.

    The file holds hashes only. A running controller sees changes at once.
    """


@token.command(cls=Command, examples=["hydra token create spark --role tenant --file tokens.json"])
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    required=True,
    help="viewer: reads everything; tenant: its own reservations; operator: everything.",
)
@_file_option
@json_option
def create(name: str, role: str, path: Path, as_json: bool) -> None:
    """Make a token and print it: this is the only time that it can be seen."""
    known = _read(path)
    if name in known:
        raise CommandError(f"there is a token {name!r} already: revoke it first")
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    try:
        text, stored = make_token(name, Role(role), secret, time.time())
        write_tokens(path, [*known.values(), stored])
    except HydraError as error:
        raise CommandError(str(error)) from error
    if as_json:
        print_json({"name": name, "role": role, "token": text})
        return
    click.echo(text)
    click.echo(f"{name} has the role {role}; clients take the token from HYDRA_TOKEN", err=True)


@token.command("list", cls=Command, examples=["hydra token list --file tokens.json --json"])
@_file_option
@json_option
def list_tokens(path: Path, as_json: bool) -> None:
    """Show who has a token."""
    known = _read(path).values()
    if as_json:
        shown = [
            {"name": t.name, "role": t.role.value, "created_unix_s": t.created_unix_s}
            for t in known
        ]
        print_json({"tokens": shown})
        return
    print_table(
        "Tokens",
        ("name", "role", "created"),
        ((t.name, t.role.value, moment(t.created_unix_s)) for t in known),
    )


@token.command(cls=Command, examples=["hydra token revoke spark --file tokens.json"])
@click.argument("name")
@_file_option
@json_option
def revoke(name: str, path: Path, as_json: bool) -> None:
    """Make a token worthless. What a tenant reserved stays until it is released."""
    known = _read(path)
    if name not in known:
        names = ", ".join(known) or "none"
        raise CommandError(f"no token {name!r} in {path}: there are {names}")
    try:
        write_tokens(path, [one for one in known.values() if one.name != name])
    except HydraError as error:
        raise CommandError(str(error)) from error
    if as_json:
        print_json({"name": name, "revoked": True})
    else:
        click.echo(f"{name} is revoked")


def _read(path: Path) -> dict[str, StoredToken]:
    try:
        return read_tokens(path)
    except HydraError as error:
        raise CommandError(str(error)) from error
