"""``hydra replicas``, ``hydra handover``: controllers that share a store, and leadership."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import click
import httpx

from apps.cli.client import ControllerClient, answered, url_option
from apps.cli.command import Command
from apps.cli.output import (
    CommandError,
    ExitCode,
    json_option,
    print_columns,
    print_json,
    print_table,
    warn,
)
from apps.cli.parameters import wait_option
from apps.cli.patience import Progress
from apps.cli.wording import moment
from hydra_hybrid_network_client.errors import JsonObject, Refusal

_POLL_S: Final = 0.5


@click.command(
    cls=Command, examples=["hydra replicas", "hydra replicas --json | jq -r .leader.url"]
)
@url_option
@json_option
@click.pass_context
def replicas(ctx: click.Context, url: str, as_json: bool) -> None:
    """List the controllers that share a store, the leader, and the state of etcd's members.

    Any of the controllers answers. Exit status 1 without a leader.
    """
    with ControllerClient(url) as client:
        document = client.get("/v1/replicas")
    if as_json:
        print_json(document)
    elif document["role"] == "alone":
        click.echo("this controller has no standby: the journal is a file")
    else:
        _print(document)
    ctx.exit(ExitCode.OK if document["role"] == "alone" or document["leader"] else ExitCode.PROBLEM)


def _print(document: JsonObject) -> None:
    leader = document["leader"]
    rows = [("leads", leader)] if leader else []
    rows += [("stands by", replica) for replica in document["standing_by"]]
    print_table(
        "Controllers",
        ("role", "name", "REST", "release", "since", "switches"),
        (
            (
                role,
                replica["name"],
                replica["url"],
                replica["release"],
                moment(replica["since_unix_s"]),
                # An earlier release counts no switches.
                "-" if replica.get("switches") is None else replica["switches"],
            )
            for role, replica in rows
        ),
        empty="none has a lease",
    )
    print_columns(
        "etcd",
        document["store"],
        {
            "member": "endpoint",
            "state": _state,
            "version": "version",
            "MB": lambda row: f"{row['size_mb']:.1f}",
            "behind": "behind",
            "problems": lambda row: "; ".join(row["problems"]),
        },
    )
    if document["problem"]:
        warn(document["problem"])


def _state(member: JsonObject) -> str:
    if not member["answers"]:
        return "no answer"
    return "leads" if member["leads"] else "follows"


@click.command(
    cls=Command, examples=["hydra handover && hydra replicas", "hydra handover --wait 60"]
)
@wait_option("Wait at most this long until there is a standby, and each standby has all switches.")
@answered
def handover(client: ControllerClient, wait_s: float) -> Iterator[object]:
    """Hand leadership to a standby controller, as before an upgrade.

    The leader finishes the change under way and ends; its service starts the controller again as a
    standby. Without a standby, or while switches have yet to connect to a standby, the handover is
    refused, or waited for.
    """
    document = _handed_over(client, time.monotonic() + wait_s)
    yield document
    click.echo(f"handed over; standing by: {', '.join(document['standing_by'])}")


def _handed_over(client: ControllerClient, deadline_s: float) -> JsonObject:
    """The answer once accepted, or the refusal at the deadline."""
    with Progress("waiting for a standby with all switches"):
        while True:
            try:
                return client.post("/v1/handover", {})
            except CommandError as refused:
                is_early = isinstance(refused.__cause__, Refusal) and (
                    refused.__cause__.response.status_code == httpx.codes.CONFLICT
                )
                remaining_s = deadline_s - time.monotonic()
                if (
                    not is_early
                    or remaining_s <= 0
                    or client.get("/v1/replicas")["role"] == "alone"
                ):
                    raise
                time.sleep(min(_POLL_S, remaining_s))
