"""Commands that mend the network, or leave parts out: reconcile, quarantine."""

from __future__ import annotations

from collections.abc import Iterator

import click

from apps.cli.client import ControllerClient, answered, url_option
from apps.cli.command import Command, Group
from apps.cli.output import ExitCode, json_option, print_json, print_table, warn
from apps.cli.wording import moment
from hydra_hybrid_network_client.errors import JsonObject
from hydra_hybrid_network_client.requests import resource

_QUARANTINE = "/v1/quarantine"


@click.command(
    cls=Command, examples=["hydra reconcile --dry-run", "hydra reconcile && echo all is well"]
)
@click.option("--dry-run", is_flag=True, help="Show the differences, change nothing.")
@url_option
@json_option
@click.pass_context
def reconcile(ctx: click.Context, dry_run: bool, url: str, as_json: bool) -> None:
    """Find and mend changes that others made to mirrors, VLANs and rules.

    Exit status 1 if something differs afterwards (or with --dry-run: now); 3 if nothing differs on
    answering devices, but a device does not answer.
    """
    with ControllerClient(url) as client:
        document = (
            client.get("/v1/drift") if dry_run else client.post("/v1/reconcile", {}, wait=True)
        )
    found = document if dry_run else document["found"]
    left = document if dry_run else document["left"]
    if as_json:
        print_json(document)
    else:
        _print_drift("Drift" if dry_run else "Found", found)
        if not dry_run and found["items"]:
            _print_drift("Left", left)
        if left["silent"]:
            warn("no answer from " + ", ".join(left["silent"]))
    silent = ExitCode.UNREACHABLE if left["silent"] else ExitCode.OK
    ctx.exit(ExitCode.PROBLEM if left["items"] else silent)


def _print_drift(title: str, found: JsonObject) -> None:
    print_table(
        title,
        ("device", "what", "where", "intended", "actual"),
        (
            (i["device"], i["kind"], i["subject"], i["intended"], i["actual"])
            for i in found["items"]
        ),
        empty="none where devices answer" if found["silent"] else "none",
    )


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples=[
        "hydra quarantine",
        "hydra quarantine add r1 hyt-r1-p1 --reason 'fibre is being cleaned'",
        "hydra quarantine clear r1 hyt-r1-p1",
    ],
)
@url_option
@json_option
@click.pass_context
def quarantine(ctx: click.Context, url: str, as_json: bool) -> None:
    """List the ToR ports left out of plans after a circuit there failed."""
    if ctx.invoked_subcommand is not None:
        return
    with ControllerClient(url) as client:
        document = client.get(_QUARANTINE)
    if as_json:
        print_json(document)
    else:
        _print_ports(document["ports"])


@quarantine.command(
    cls=Command,
    examples=["hydra quarantine add r1 hyt-r1-p1 --reason 'fibre is being cleaned'"],
)
@click.argument("rack")
@click.argument("port")
@click.option("--reason", required=True, help="Reason, shown with the port.")
@answered
def add(client: ControllerClient, rack: str, port: str, reason: str) -> Iterator[object]:
    """Leave a port out of planning until cleared.

    A standing circuit on the port stays; the next plan leads around the port.
    """
    document = client.put(resource(resource(_QUARANTINE, rack), port), {"reason": reason})
    yield document
    click.echo(f"{rack} {port} is set aside until cleared")


@quarantine.command(cls=Command, examples=["hydra quarantine clear r1 hyt-r1-p1"])
@click.argument("rack")
@click.argument("port")
@answered
def clear(client: ControllerClient, rack: str, port: str) -> Iterator[object]:
    """Let planning use a port again at once."""
    document = client.delete(resource(resource(_QUARANTINE, rack), port))
    words = (
        f"{rack} {port} may be used again; the reason to set the port aside was: "
        f"{document['reason']}"
    )
    yield document
    click.echo(words)


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
