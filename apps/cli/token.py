"""``hydra token``: access to the controller's REST API."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click

from apps.cli.command import Command, Group
from apps.cli.output import CommandError, json_option, print_json, print_outcome, print_table
from apps.cli.parameters import FiniteRange, with_options
from apps.cli.wording import moment
from apps.process.files import making
from apps.rest.tokens import changing, read_tokens, write_tokens
from hydra.access import Role, StoredToken, make_token
from hydra.names import counted
from hydra.reservations.quotas import NO_QUOTA, Quota

_SECRET_BYTES: Final = 32

_quota_of = with_options(
    (
        click.option(
            "--max-reservations",
            type=click.IntRange(0),
            help="Most reservations of a tenant that are not over. Without: no limit.",
        ),
        click.option(
            "--max-mbps",
            type=FiniteRange(0),
            help="The sum of a tenant's bandwidths at any moment, at most. Without: no limit.",
        ),
        click.option(
            "--max-priority",
            type=click.IntRange(0, 9),
            default=0,
            show_default=True,
            help=(
                "Highest priority of a tenant's reservations; reservations of lower priority may "
                "have to give way."
            ),
        ),
    )
)
_file_option = click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    envvar="HYDRA_TOKENS",
    show_envvar=True,
    help="Tokens file, named by controller.tokens in the configuration.",
)


@click.group(
    cls=Group,
    examples=[
        "hydra token create alice --role operator --file tokens.json",
        "hydra token create spark --role tenant --file tokens.json --save spark.token",
        "hydra token list --file tokens.json",
        "hydra token quota spark --max-reservations 20 --max-mbps 4000 --file tokens.json",
        "hydra token revoke spark --file tokens.json",
    ],
)
def token() -> None:
    """Make, list and revoke tokens for the REST API, and set tenants' quotas.

    The file holds hashes only. A running controller sees changes at once.
    """


@token.command(cls=Command, examples=["hydra token create spark --role tenant --file tokens.json"])
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    required=True,
    help=(
        "viewer: reads everything; tenant: own reservations; agent: reports for the server "
        "with the token's name; operator: everything."
    ),
)
@_quota_of
@click.option(
    "--save",
    "place",
    type=click.Path(dir_okay=False, path_type=Path),
    help=(
        "Write the token to this new file, readable by its owner alone, instead of printing the "
        "token: for HYDRA_TOKEN_FILE."
    ),
)
@_file_option
@json_option
def create(
    name: str,
    role: str,
    max_reservations: int | None,
    max_mbps: float | None,
    max_priority: int,
    place: Path | None,
    path: Path,
    as_json: bool,
) -> None:
    """Make a token, and print or save the token, which can't be shown again later."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    quota = _tenants_quota(Role(role), Quota(max_reservations, max_mbps, max_priority))
    text, stored = make_token(name, Role(role), secret, time.time(), quota)
    with changing(path), ExitStack() as undo:
        known = read_tokens(path)
        if name in known:
            raise CommandError(f"there is a token {name!r} already: revoke it first")
        if place is not None:
            _save(place, text)
            undo.callback(place.unlink)
        write_tokens(path, [*known.values(), stored])
        undo.pop_all()
    if as_json:
        shown = {"token": text} if place is None else {"saved": str(place)}
        print_json({"name": name, "role": role, **shown})
        return
    variable = "HYDRA_TOKEN" if place is None else f"HYDRA_TOKEN_FILE={place}"
    if place is None:
        click.echo(text)
    click.echo(f"{name} has the role {role}; clients take the token from {variable}", err=True)


def _save(place: Path, text: str) -> None:
    """Write a new file, readable by the owner alone from the first moment on."""
    try:
        with making(place) as file:
            file.write(f"{text}\n".encode("ascii"))
    except OSError as error:
        raise CommandError(f"can't save the token in {place}: {error.strerror}") from error


@token.command(
    "quota",
    cls=Command,
    examples=["hydra token quota spark --max-reservations 20 --file tokens.json"],
)
@click.argument("name")
@_quota_of
@_file_option
@json_option
def set_quota(
    name: str,
    max_reservations: int | None,
    max_mbps: float | None,
    max_priority: int,
    path: Path,
    as_json: bool,
) -> None:
    """Set a tenant's quota. Limits without an option are lifted, and the priority becomes 0.

    Counts for new requests only: admitted reservations stay.
    """
    with changing(path):
        known = read_tokens(path)
        token = _named(known, name, path)
        quota = _tenants_quota(token.role, Quota(max_reservations, max_mbps, max_priority))
        write_tokens(path, {**known, name: replace(token, quota=quota)}.values())
    print_outcome({"name": name, **asdict(quota)}, f"{name} may have {_describe(quota)}", as_json)


def _tenants_quota(role: Role, quota: Quota) -> Quota:
    if quota != NO_QUOTA and role is not Role.TENANT:
        raise CommandError(f"quotas are for tenants: the role is {role.value}")
    return quota


def _describe(quota: Quota) -> str:
    limits = []
    if quota.max_reservations is not None:
        limits.append(counted(quota.max_reservations, "reservation"))
    if quota.max_mbps is not None:
        limits.append(f"{quota.max_mbps:g} Mb/s")
    text = " and ".join(limits) or "the fabric's capacity"
    return f"{text}, priority {quota.max_priority}" if quota.max_priority else text


@token.command("list", cls=Command, examples=["hydra token list --file tokens.json --json"])
@_file_option
@json_option
def list_tokens(path: Path, as_json: bool) -> None:
    """Show all tokens, with names and roles."""
    known = read_tokens(path).values()
    if as_json:
        shown = [
            {
                "name": t.name,
                "role": t.role.value,
                "created_unix_s": t.created_unix_s,
                **asdict(t.quota),
            }
            for t in known
        ]
        print_json({"tokens": shown})
        return
    print_table(
        "Tokens",
        ("name", "role", "created", "may have"),
        ((t.name, t.role.value, moment(t.created_unix_s), _may_have(t)) for t in known),
    )


def _may_have(stored_token: StoredToken) -> str:
    return _describe(stored_token.quota) if stored_token.role is Role.TENANT else "-"


@token.command(cls=Command, examples=["hydra token revoke spark --file tokens.json"])
@click.argument("name")
@_file_option
@json_option
def revoke(name: str, path: Path, as_json: bool) -> None:
    """Make a token worthless. The tenant's reservations stay until released."""
    with changing(path):
        known = read_tokens(path)
        del known[_named(known, name, path).name]
        write_tokens(path, known.values())
    print_outcome({"name": name, "revoked": True}, f"{name} is revoked", as_json)


def _named(known: Mapping[str, StoredToken], name: str, path: Path) -> StoredToken:
    if name not in known:
        names = ", ".join(known) or "none"
        raise CommandError(f"no token {name!r} in {path}: there are {names}")
    return known[name]
