"""Commands for what failed: quarantine."""

from __future__ import annotations

import click

from apps.cli.client import ControllerClient, JsonObject, resource, url_option
from apps.cli.command import Command, Group
from apps.cli.network import moment
from apps.cli.output import json_option, print_json, print_table

_QUARANTINE = "/v1/quarantine"


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples=["hydra quarantine", "hydra quarantine clear r1 hyt-r1-p1"],
)
@url_option
@json_option
@click.pass_context
def quarantine(ctx: click.Context, url: str, as_json: bool) -> None:
    """List the ToR ports that planning leaves out because a circuit on them failed."""
    if ctx.invoked_subcommand is not None:
        return
    with ControllerClient(url) as client:
        document = client.get(_QUARANTINE)
    if as_json:
        print_json(document)
    else:
        _print_ports(document["ports"])


@quarantine.command(cls=Command, examples=["hydra quarantine clear r1 hyt-r1-p1"])
@click.argument("rack")
@click.argument("port")
@url_option
@json_option
def clear(rack: str, port: str, url: str, as_json: bool) -> None:
    """Let planning use a port again at once."""
    with ControllerClient(url) as client:
        document = client.delete(resource(resource(_QUARANTINE, rack), port))
    if as_json:
        print_json(document)
    else:
        click.echo(f"{rack} {port} may be used again; it was out because: {document['reason']}")


def _print_ports(ports: list[JsonObject]) -> None:
    print_table(
        "Quarantine",
        ("rack", "port", "plane", "since", "until", "reason"),
        (
            (p["rack"], p["port"], p["plane"], moment(p["since_unix_s"]), _end(p), p["reason"])
            for p in ports
        ),
    )


def _end(port: JsonObject) -> str:
    if port["on_trial"]:
        return "on trial"
    until = port["until_unix_s"]
    return "cleared" if until is None else moment(until)
