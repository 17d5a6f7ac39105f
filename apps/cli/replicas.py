"""``hydra replicas``, ``hydra handover``: controllers that share a store, and who leads."""

from __future__ import annotations

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.output import ExitCode, json_option, print_json, print_outcome, print_table, warn
from apps.cli.wording import moment
from apps.connection import JsonObject


@click.command(
    cls=Command, examples=["hydra replicas", "hydra replicas --json | jq -r .leader.url"]
)
@url_option
@json_option
@click.pass_context
def replicas(ctx: click.Context, url: str, as_json: bool) -> None:
    """List the controllers that share a store, who leads, and how the members of etcd are.

    Each of them answers. Exit status 1 if nobody leads.
    """
    with ControllerClient(url) as client:
        document = client.get("/v1/replicas")
    if as_json:
        print_json(document)
    elif document["role"] == "alone":
        click.echo("this controller is alone: its journal is a file")
    else:
        _print(document)
    ctx.exit(ExitCode.OK if document["role"] == "alone" or document["leader"] else ExitCode.PROBLEM)


def _print(document: JsonObject) -> None:
    leader = document["leader"]
    everybody = [("leads", leader)] if leader else []
    everybody += [("stands by", one) for one in document["standing_by"]]
    print_table(
        "Controllers",
        ("role", "name", "REST", "release", "since", "switches"),
        (
            (
                role,
                one["name"],
                one["url"],
                one["release"],
                moment(one["since_unix_s"]),
                "-" if one.get("switches") is None else one["switches"],  # an earlier release's
            )
            for role, one in everybody
        ),
        empty="none has a lease",
    )
    print_table(
        "etcd",
        ("member", "state", "version", "MB", "behind", "problems"),
        (
            (
                one["endpoint"],
                _state(one),
                one["version"],
                f"{one['size_mb']:.1f}",
                one["behind"],
                "; ".join(one["problems"]),
            )
            for one in document["store"]
        ),
    )
    if document["problem"]:
        warn(document["problem"])


def _state(member: JsonObject) -> str:
    if not member["answers"]:
        return "no answer"
    return "leads" if member["leads"] else "follows"


@click.command(cls=Command, examples=["hydra handover && hydra replicas"])
@url_option
@json_option
def handover(url: str, as_json: bool) -> None:
    """Have the controller that leads end, and one that stands by lead, as for an upgrade.

    The change under way is finished first. The service starts it again, and it stands by then.
    """
    with ControllerClient(url) as client:
        document = client.post("/v1/handover", {})
    print_outcome(
        document, f"handed over; standing by: {', '.join(document['standing_by'])}", as_json
    )
